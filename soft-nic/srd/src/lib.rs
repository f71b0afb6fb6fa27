//! One soft EFA: a device of the layout of EFA's that sends by scalable reliable datagrams (SRD).
//!
//! | module | what it is |
//! | --- | --- |
//! | [`asking`], [`answering`] | the steps of a device: what it sends, and what comes |
//! | [`device`] | the device: its objects, what it counts and tells |
//! | [`qp`] | a queue pair: its rings, and its two halves |
//! | [`sender`] | the half that asks: what is under way, and what is sent again |
//! | [`flow`] | the half that receives: messages put together, each taken once |
//! | [`queues`] | rings that a program and its device share |
//! | [`memory`] | registered memory, and rings as memory |
//! | [`path`] | many paths between two devices, of different lengths |
//! | [`format`](mod@format), [`segment`] | bytes: WQEs and completions as EFA has them; what devices send each other |
//!
//! SRD is reliable and keeps no order: each message, and each piece of a read, is sent, answered and sent again for
//! itself, over a path that a lot draws. It completes when the other side has it.
//!
//! The crate knows the user's side of EFA (`efa_io_defs.h`) and nothing of a fabric, of verbs or of hosts. Segments go
//! out by [`Device::take_outgoing`](device::Device::take_outgoing) and come in by
//! [`Device::receive`](device::Device::receive); time is an argument. What Amazon's devices send each other is not
//! public: soft ones speak to soft ones only.

pub mod answering;
pub mod asking;
pub mod device;
pub mod flow;
pub mod format;
pub mod memory;
pub mod path;
pub mod qp;
pub mod queues;
pub mod segment;
pub mod sender;
