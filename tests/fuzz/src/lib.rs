//! What strangers can send, as functions of bytes: each reads its input with the code that ships and panics where a
//! promise is broken. `src/main.rs` has libFuzzer call them, `tests/suite.rs` gives them the corpus that is kept.
//!
//! Nothing may panic. Besides:
//!
//! * [`packet`]: frames from the network, read by a NIC with work under way. Nothing outside of what is registered
//!   changes, and each frame is counted.
//! * [`mailbox`]: firmware commands and doorbells. An answer has the length asked for and a status that has a name;
//!   nothing outside of what is registered changes.
//! * [`uverbs`]: ioctls of a program on an RDMA device. Nothing is written but where the call said, and the device
//!   answers afterwards.
//! * [`bootstrap`]: preamble, frames, cards, unique id, agents' messages. What is read writes itself as the bytes that
//!   were read.
//! * [`control`]: datagrams of agents, an operator's orders, requests to soft devices. What is read writes itself as
//!   the same; no bit of a sealed datagram can be changed, and no number is taken twice.

pub mod bootstrap;
pub mod control;
mod input;
pub mod mailbox;
pub mod packet;
#[allow(dead_code, missing_docs)] // shared with the soft NIC's own tests, which use all of it
#[path = "../../../soft-nic/tests/rig/mod.rs"]
mod rig;
pub mod uverbs;

/// One parser under test.
pub struct Target {
    /// Its name; its corpus lies in the folder of that name.
    pub name: &'static str,
    /// Reads an input.
    pub run: fn(&[u8]),
    /// Inputs that are well-formed, to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "packet", run: packet::run, seeds: packet::seeds },
    Target { name: "mailbox", run: mailbox::run, seeds: mailbox::seeds },
    Target { name: "uverbs", run: uverbs::run, seeds: uverbs::seeds },
    Target { name: "bootstrap", run: bootstrap::run, seeds: bootstrap::seeds },
    Target { name: "control", run: control::run, seeds: control::seeds },
];

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
