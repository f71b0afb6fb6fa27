//! Processes find each other over TCP: the root, the all-gather through it, and a mesh for agents and programs.

pub mod address;
pub mod error;
pub mod frame;
pub mod interface;
pub mod options;
pub mod preamble;
pub mod secret;
pub mod unique_id;

pub use address::RootAddress;
pub use error::{JoinError, Refusal, Refused};
pub use options::{JoinOptions, Notices, listener_from_fd};
pub use secret::Secret;
pub use unique_id::UniqueId;
