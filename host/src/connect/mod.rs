//! How PEs find each other: cards, the bootstrap at start, and the agents' own channel afterwards.

pub mod card;

pub use shunt_bootstrap::{Bootstrap, InMemory, Oob, OobEnd, OobNet, bootstrap, oob, tcp};
