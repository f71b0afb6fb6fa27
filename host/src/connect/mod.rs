//! How PEs find each other: cards, the bootstrap at start, and the agents' own channel afterwards.

pub mod bootstrap;
pub mod card;
pub mod oob;
pub mod tcp;

pub use bootstrap::{Bootstrap, InMemory};
pub use oob::{Oob, OobEnd, OobNet};
