//! A world for tests of waits.

use shunt_device::platform::host::World;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that goes on by one step each time somebody waits: for tests of waits.
pub(crate) struct StepWorld {
    now: AtomicU64,
    step: u64,
}

impl StepWorld {
    pub fn new(step: u64) -> Self {
        Self { now: AtomicU64::new(0), step }
    }

    /// Time goes by at once, where nobody else has to get on meanwhile.
    pub fn pass(&self, ns: u64) {
        self.now.fetch_add(ns, Ordering::Relaxed);
    }
}

impl World for StepWorld {
    fn now_ns(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
    fn relax(&self) {
        self.now.fetch_add(self.step, Ordering::Relaxed);
        std::thread::yield_now();
    }
    fn doorbell(&self) {}
}
