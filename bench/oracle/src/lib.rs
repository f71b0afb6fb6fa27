//! What the stream of `shmem_put_bw` writes, and whether it arrived: once, whole, in order, and nothing else.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`pattern`] | words that depend on seed, put and offset; the poison of a slot that was checked |
//! | [`amo_model`] | the atomics of a stream, and what words hold after them |
//! | [`checker`] | the receiver's judgement of every put, signal and slot |
//!
//! The crate is pure: seeds, numbers and memory in, findings out. It reads no clock but the one that it is given, and
//! touches no memory but the slots that it is lent. It knows no PE, no channel and no NIC.

pub mod amo_model;
pub mod checker;
pub mod pattern;
