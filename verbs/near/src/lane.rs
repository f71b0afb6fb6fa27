//! Good completions of one direction of a queue pair, counted.

use core::sync::atomic::{AtomicU64, Ordering};

/// How many there were, and the newest. One thread adds at a time; any reads.
#[derive(Default)]
pub struct Lane {
    count: AtomicU64,
    newest: AtomicU64,
}

impl Lane {
    /// Counts so many, of which the newest has this number of the program's. Who calls it is alone.
    #[inline(always)]
    pub fn add(&self, count: u64, newest: u64) {
        self.newest.store(newest, Ordering::Relaxed);
        // One writer at a time: no read-modify-write is needed.
        self.count.store(self.count.load(Ordering::Relaxed) + count, Ordering::Release);
    }

    /// Completions so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The program's number for the newest.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}
