//! Processes find each other over TCP: the root, the exchanges through it, and a mesh for agents and programs.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`net`] | **start here**: [`TcpNet`] and its ends |
//! | `collectives` | its bootstrap: all-gathers and exchanges |
//! | [`pipe`] | connections beside jobs: messages between two processes with one secret |
//! | [`options`], [`address`], [`secret`], [`unique_id`], [`interface`] | what it takes to join |
//! | [`error`] | what can go wrong, and why a connection is refused |
//! | [`preamble`], [`frame`], `link` | the bytes: in the clear, encrypted, and a connection without its socket |
//! | `driver` | the one thread with all sockets and timers: root, member, mesh |
//! | [`state`] | what that thread and the program's threads share |
//!
//! The protocol, and what is authenticated and what is not: `docs/PROCESSES.md`.

pub mod address;
mod collectives;
mod driver;
pub mod error;
pub mod frame;
mod handle;
pub mod interface;
mod link;
pub mod net;
pub mod options;
pub mod pipe;
pub mod preamble;
pub mod secret;
pub mod state;
pub mod unique_id;

pub use address::RootAddress;
pub use collectives::TcpBootstrap;
pub use error::{JoinError, Refusal, Refused};
pub use net::{Peers, TcpEnd, TcpNet};
pub use options::{JoinOptions, Notices, listener_from_fd};
pub use secret::Secret;
pub use state::{Counters, LinkReason, PeerLink, Topic};
pub use unique_id::UniqueId;

/// Longest part of an all-gather, and longest row of an exchange.
pub const PART_MAX: usize = 128 << 20;
