//! Real time, on threads.

use shunt_device::platform::host::World;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Yields before a waiter sleeps once: with more waiters than cores, the one all wait for must get to run.
const YIELDS: u32 = 64;
const NAP: Duration = Duration::from_micros(30);

thread_local! {
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// A monotonic clock that shows zero when it is made.
pub struct RealClock {
    origin: Instant,
}

impl RealClock {
    /// A clock that shows zero now.
    #[allow(clippy::new_without_default)] // a default clock would hide that its origin matters
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl World for RealClock {
    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn relax(&self) {
        relax();
    }

    /// A NIC watches its doorbells itself.
    fn doorbell(&self) {}
}

/// One turn of a waiting thread: it yields, and now and then it sleeps.
pub fn relax() {
    let waits = WAITS.get().wrapping_add(1);
    WAITS.set(waits);
    if waits.is_multiple_of(YIELDS) {
        std::thread::sleep(NAP);
    } else {
        std::thread::yield_now();
    }
}
