//! The functions of `shunt_transfer.h`.
//!
//! | module | functions |
//! | --- | --- |
//! | [`ends`] | open, close, exchange, who and how many, counters, faults of soft NICs |
//! | [`memory`] | register, describe, import |
//! | [`transfers`] | write, write pages, read, expect |
//! | [`operations`] | test, wait, poll, cancel |
//! | [`words`] | version, statuses in words, the last failure |

pub mod ends;
pub mod memory;
pub mod operations;
pub mod transfers;
pub mod words;

use std::time::Duration;

const fn patience(timeout_ns: u64) -> Duration {
    Duration::from_nanos(timeout_ns)
}
