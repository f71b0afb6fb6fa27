//! What a ConnectX reads and writes: work queue entries, completions, doorbells, firmware mailboxes.
//!
//! All of it is big-endian. Types that sit in shared rings hold words *in memory order*: a `u32` inside
//! them is the four bytes as they lie in memory, so device code stores them without swapping again.

pub mod cqe;
pub mod doorbell;
pub mod eqe;
pub mod prm;
pub mod wqe;
