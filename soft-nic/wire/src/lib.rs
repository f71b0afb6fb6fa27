//! What soft NICs exchange, and how: packets, their frames, and the way to NICs of other processes.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`psn`] | packet sequence numbers |
//! | [`packet`] | a packet as NICs of one process hand it on, and the buffers its payload travels in |
//! | [`mod@frame`] | packets as frames of a real network: RoCE v1 and v2 |
//! | [`uplink`] | the way out of a process: Unix datagrams, or UDP |
//! | [`remote_nics`] | NICs of other processes: their numbers, what is under way to each |
//! | [`congestion`] | how much may be under way to a destination that loses what it cannot hold |
//!
//! The crate knows the wire. It knows no queue pair, no memory, no firmware and no fault: who sends a packet, and what
//! it does where it arrives, is for others to say. It opens sockets and reads what the system tells of interfaces; it
//! starts no thread.

pub mod congestion;
pub mod frame;
pub mod packet;
pub mod psn;
pub mod remote_nics;
pub mod uplink;
