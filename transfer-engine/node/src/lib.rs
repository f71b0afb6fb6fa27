//! The transfer engine as a program uses it: NICs found, the job joined, every other process connected, and a thread
//! that drives the engine, so that any thread may call.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`transport`] | what carries transfers, as it is asked for |
//! | [`source`] | what carries the packets |
//! | [`carriers`] | NICs, or rails of libfabric, open |
//! | [`simulated`] | rails of a simulated network, for ends of one process |
//! | [`rails`] | the rails of an end, whatever carries them |
//! | `registering` | memory, registered and taken back |
//! | [`place`] | the ends of this process, and the others |
//! | [`connect`] | a domain with a lane to each other end |
//! | [`node`] | [`Node`]: an end and its thread |
//! | [`several`] | scatters and barriers |
//! | [`open`] | nodes that connect to each other one by one, at any time |
//! | `mesh` | the connections of those |
//! | [`mates`] | the other ends of a job, and who of them has left |
//! | `cuts` | peers that were cut off, and the proof of it |
//! | `thread` | the thread that drives an engine |
//! | [`report`] | what becomes of its lanes, for logs and metrics |
//! | `mailbox` | what has come and waits for a thread of the program |
//! | `words` | words that a kernel writes and the thread looks at |
//! | [`pending`] | what a call gives back: a transfer or an expectation, to wait for |
//! | `asker` | the way to that thread |
//! | `process` | the process whose thread it is |
//! | [`error`] | why there is no node, and why a call failed |
//!
//! [`shunt_transfer_engine`] has the calls without a thread.

mod asker;
pub mod carriers;
pub mod connect;
mod cuts;
pub mod error;
mod mailbox;
pub mod mates;
mod mesh;
mod naps;
pub mod node;
pub mod open;
pub mod pending;
pub mod place;
mod process;
pub mod rails;
mod registering;
pub mod report;
pub mod several;
pub mod simulated;
pub mod source;
mod thread;
pub mod transport;
mod words;

pub use carriers::Carriers;
pub use error::{CallError, NoNode};
pub use node::{Change, EXCHANGE, Node, Region};
pub use pending::{Expectation, Met, Scattered, Transfer};
pub use place::Place;
pub use shunt::host::connect::tcp::Secret;
pub use shunt::host::error::BootstrapError;
pub use shunt_settings::{FABRIC, NicKind};
pub use shunt_transfer_fabric::fabric::needed_variable;
pub use source::{Source, Wish};
pub use transport::{Transport, Way};

use shunt::host::error::GpuError;
use shunt::host::gpu::{OwnedSpan, Span};
use std::sync::Arc;

/// Lends memory of the program's own to the NICs of a node. `owner` is kept until all of them let go of it.
///
/// # Errors
/// It has no bytes, or an end beyond the last address.
///
/// # Safety
/// As [`shunt::host::gpu::lend`].
pub unsafe fn lend(
    address: u64,
    bytes: u64,
    owner: Box<dyn Send + Sync>,
) -> Result<Arc<OwnedSpan>, GpuError> {
    // SAFETY: the caller vouches for it.
    unsafe { shunt::host::gpu::lend(Span { address, bytes }, owner) }
}

/// Says a line on standard error, as this crate does.
pub fn complain(line: &str) {
    shunt::host::complain!("shunt transfer: {line}");
}
