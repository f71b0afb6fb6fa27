//! The transfer engine over libfabric.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`fabric`] | a provider's domain, opened as a rail |
//! | [`region`] | memory, registered on a rail |
//! | [`endpoint`] | an endpoint with queues of its own: writes, reads, sends, completions |
//! | [`error`] | why a provider cannot be used |

pub mod endpoint;
pub mod error;
pub mod fabric;
pub mod region;
