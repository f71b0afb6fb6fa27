//! The transfer engine over libfabric.
//!
//! A lane is a pair of endpoints, one at each end, which nothing else uses. It is fenced by closing both: each end
//! closes its own, tells the other, and answers how many immediates it had. Where the peer answers that gives
//! [`Counted`]. What is proved besides depends on the provider:
//!
//! | provider | nothing lands at an end whose endpoint is closed | the peer does not answer |
//! | --- | --- | --- |
//! | tcp | its process alone places bytes, when it is polled | [`Unproven`]: its system may hold bytes |
//! | shm | the same | [`Unproven`]: its process may still copy out of this one's |
//! | efa, run on soft ones | the NIC has destroyed the queue pair | [`Unproven`]: writes come as messages |
//!
//! An endpoint of efa is closed by a thread: it waits for what is on the wire. One that does not close in time is set
//! aside, and its lane is [`Unproven`]. Once it is closed after all, nothing of it lands any more: then its peer counts
//! as cut off, and the keys of its rail as taken back.
//!
//! A peer that has no endpoint of a lane any more, and has forgotten it, makes [`NoTruth`].
//!
//! [`Counted`]: shunt_transfer_engine::domain::Fence::Counted
//! [`NoTruth`]: shunt_transfer_engine::domain::Fence::NoTruth
//! [`Unproven`]: shunt_transfer_engine::domain::Fence::Unproven
//!
//! | module | what it is |
//! | --- | --- |
//! | [`fabric`] | a provider's domain, opened as a rail |
//! | [`region`] | memory, registered on a rail |
//! | [`endpoint`] | an endpoint with queues of its own: writes, reads, sends, completions |
//! | `closing` | an endpoint that is being closed |
//! | `aside` | endpoints that did not close in time |
//! | `last` | what is left of a domain that was dropped |
//! | `machine` | the life of a path; pure |
//! | `ledger` | immediates, counted at both ends; pure |
//! | `words` | what the two ends of a path tell each other; pure |
//! | `lane` | the lane that is open on a path; pure |
//! | `path` | a path: its machine, its endpoint, its lane |
//! | `address` | where an end is, as it is sent to others; pure |
//! | `domain` | [`FabricDomain`] |
//! | [`error`] | why a provider cannot be used |

mod address;
mod aside;
mod closing;
mod domain;
pub mod endpoint;
pub mod error;
pub mod fabric;
mod lane;
mod last;
mod ledger;
mod machine;
mod path;
pub mod region;
mod words;

pub use address::FabricAddress;
pub use domain::{FabricDomain, Parts};
pub use machine::Patience;
