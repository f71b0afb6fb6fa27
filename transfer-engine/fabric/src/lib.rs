//! The transfer engine over libfabric.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`fabric`] | a provider's domain, opened as a rail |
//! | [`region`] | memory, registered on a rail |
//! | [`endpoint`] | an endpoint with queues of its own: writes, reads, sends, completions |
//! | `machine` | the life of a path; pure |
//! | `ledger` | immediates, counted at both ends; pure |
//! | `words` | what the two ends of a path tell each other; pure |
//! | `path` | a path: its machine, its endpoint, its lane |
//! | `address` | where an end is, as it is sent to others; pure |
//! | `domain` | [`FabricDomain`] |
//! | [`error`] | why a provider cannot be used |

mod address;
mod domain;
pub mod endpoint;
pub mod error;
pub mod fabric;
mod ledger;
mod machine;
mod path;
pub mod region;
mod words;

pub use address::FabricAddress;
pub use domain::{FabricDomain, Parts};
pub use machine::Patience;
