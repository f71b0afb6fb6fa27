//! Shunt's device code: puts, signals, timed completion checks and the switch, one source for nvptx64 and the
//! host.
//!
//! Five nouns: a [`Device`] is the state the host uploaded; a [`Channel`] is an ordered stream to one peer; a
//! [`Ticket`] names an operation on it for ever; a [`Deadline`] ends every wait; a [`Fault`] says what went
//! wrong.
//!
//! Inside, a channel is parts that own a subject each: `Poster` takes tickets and publishes, `Poller` reads
//! completions, `Switch` moves the channel to another path, `Waiter` is what a wait does between looks. All of them are
//! a `ChannelPtr`; `shared.rs` has the safety argument.
//!
//! A channel outlives its paths. Every wait of a channel notices failures and carries the switch on, so there
//! is no call to "fail over": `quiet`, `wait`, a full ring and `wait_until_ge` do it.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

#[cfg(test)]
extern crate std;

mod atomic_owner;
mod channel;
mod completion_queue;
pub mod cut;
mod device;
mod doorbell;
mod exact_fetch;
mod fault_words;
pub mod journal;
mod multi_block;
mod out_of_order;
mod part;
mod paths;
pub mod platform;
mod poller;
mod poster;
pub mod ring;
mod rma;
mod root;
mod rounds;
mod send_queue;
mod shared;
mod signal;
mod signal_group;
mod stall;
mod state_ptr;
mod switch;
mod types;
mod waiter;
pub mod wqe_write;
mod wqe_writer;

pub use channel::Channel;
pub use device::{Device, PIECE_BYTES};
pub use platform::{Lanes, Platform, Solo, WarpLanes};
pub use rounds::Rounds;
pub use stall::{Limits, StallDetector};
pub use types::{
    AbiMismatch, Amo, CqCheck, Deadline, Fault, FaultKind, Get, HeapOffset, Operation, Posted, Put,
    Resolution, Signal, Ticket,
};
