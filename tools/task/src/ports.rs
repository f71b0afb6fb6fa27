//! Ports for servers that are about to be started.
//!
//! The kernel picks a port from the range that outgoing connections use, so the ones above it may be taken before the
//! server starts. These lie below that range, and no two calls of one process get the same.

use anyhow::{Result, bail};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The range that is searched: above what services use, below what Linux gives to outgoing connections.
const FIRST: u16 = 10_000;
const LAST: u16 = 31_999;

/// How far this process has come, from where it began.
static TAKEN: AtomicU16 = AtomicU16::new(0);

/// The first of `count` ports in a row at which nothing listens on this machine's loopback address now.
///
/// # Errors
/// Every port of the range was tried.
pub fn free(count: u16) -> Result<u16> {
    let span = LAST - FIRST + 1 - count;
    // Processes begin far from each other: their numbers are neighbours.
    let begin = (std::process::id() % 1_000) as u16 * 22;
    for _ in 0..span / count {
        let taken = TAKEN.fetch_add(count, Ordering::Relaxed);
        let first = FIRST + ((u32::from(begin) + u32::from(taken)) % u32::from(span)) as u16;
        if (first..first + count).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return Ok(first);
        }
    }
    bail!("ports {FIRST} to {LAST}: expected {count} free ones in a row, got none; end what listens there")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank at a port above the first met one that an outgoing connection had taken.
    #[test]
    fn ports_in_a_row_are_free_and_given_once() {
        let (one, other) = (free(10).unwrap(), free(10).unwrap());
        assert!(one.abs_diff(other) >= 10, "{one} and {other}");
        let held = TcpListener::bind(("127.0.0.1", other + 13)).unwrap();
        let third = free(10).unwrap();
        let at = held.local_addr().unwrap().port();
        assert!(!(third..third + 10).contains(&at), "{at} is in use");
        assert!((FIRST..=LAST - 9).contains(&third), "{third}");
    }
}
