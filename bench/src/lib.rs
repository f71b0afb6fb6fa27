//! The main program: NVSHMEM perftest's `shmem_put_bw`, with a fault in the middle and a verdict.

pub mod pattern;
pub mod plot;
pub mod report;
pub mod switches;
pub mod timeline;
pub mod units;
pub mod verify;
