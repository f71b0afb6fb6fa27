//! The functions of `shunt_transfer.h`.
//!
//! | module | functions |
//! | --- | --- |
//! | [`ends`] | open, close, exchange, who and how many, counters, faults of soft NICs |
//! | [`peers`] | nodes that connect one by one: listen, connect, peers, changes, revoke |
//! | [`memory`] | register, deregister, describe, import |
//! | [`messages`] | send, receive |
//! | [`transfers`] | write, write pages, read, expect, counters of immediates |
//! | [`several`] | scatters and barriers |
//! | [`operations`] | test, wait, poll, functions that are called, cancel |
//! | [`watch`] | words that an engine looks at |
//! | [`words`] | version, statuses in words, the last failure |

pub mod ends;
pub mod memory;
pub mod messages;
pub mod operations;
pub mod peers;
pub mod several;
pub mod transfers;
pub mod watch;
pub mod words;

use std::time::Duration;

const fn patience(timeout_ns: u64) -> Duration {
    Duration::from_nanos(timeout_ns)
}
