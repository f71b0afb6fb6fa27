//! Shunt's device code: puts, signals, timed completion checks and the switch, one source for nvptx64 and the
//! host.
//!
//! Five nouns: a [`Device`] is the state the host uploaded; a [`Channel`] is an ordered stream to one peer; a
//! [`Ticket`] names an operation on it for ever; a [`Deadline`] ends every wait; a [`Fault`] says what went
//! wrong.
//!
//! A channel outlives its paths. Every wait of a channel notices failures and carries the switch on, so there
//! is no call to "fail over": `quiet`, `wait`, a full ring and `wait_until_ge` do it.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

#[cfg(test)]
extern crate std;

mod access;
mod atomic;
mod channel;
mod complete;
pub mod cut;
mod home;
pub mod journal;
mod local;
mod moves;
mod patience;
pub mod platform;
mod post;
pub mod ring;
mod root;
mod switch;
mod types;
mod uncertain;
mod unordered;
mod wait;
mod wide;
pub mod wqe_write;

pub use access::{Channel, Device};
pub use local::PIECE_BYTES;
pub use patience::{Limits, Patience};
pub use platform::{Lanes, Platform, Solo};
pub use types::{
    AbiMismatch, Amo, CqCheck, Deadline, Fault, FaultKind, Get, HeapOffset, Operation, Posted, Put,
    Resolution, Signal, Ticket,
};
pub use wait::Rounds;
