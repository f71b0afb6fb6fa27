//! How processes of a job find each other. No NIC is needed for any of it.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`bootstrap`] | the exchange at start, and its body in one process |
//! | [`oob`] | the agents' own channel, beside the rails |
//! | [`tcp`] | both of them over TCP, between processes |
//! | [`job`] | who this process is in its job: environment and flags |

pub mod bootstrap;
mod error;
pub mod job;
pub mod oob;
#[cfg(test)]
mod step_world;
pub mod tcp;

pub use bootstrap::{Bootstrap, InMemory};
pub use error::BootstrapError;
pub use oob::{Oob, OobEnd, OobNet};

/// Largest job.
pub const WORLD_MAX: u32 = 4096;
