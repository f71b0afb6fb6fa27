//! The real world: threads, a monotonic clock, and a NIC engine to wake.

use shunt_device::platform::host::World;
use shunt_soft_nic::{Clock, Engine};
use std::cell::Cell;
use std::time::Duration;

/// Yields before a waiter sleeps once: with more waiters than cores, the one all wait for must get to run.
const YIELDS: u32 = 32;
const NAP: Duration = Duration::from_micros(20);

thread_local! {
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// Real time, on threads.
pub struct RealWorld {
    clock: Clock,
    engine: Engine,
}

impl RealWorld {
    /// A world whose doorbells wake `engine`, which ends with it.
    pub fn new(clock: Clock, engine: Engine) -> Self {
        Self { clock, engine }
    }
}

impl World for RealWorld {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn relax(&self) {
        let waits = WAITS.get().wrapping_add(1);
        WAITS.set(waits);
        if waits.is_multiple_of(YIELDS) {
            std::thread::sleep(NAP);
        } else {
            std::thread::yield_now();
        }
    }

    fn doorbell(&self) {
        self.engine.kick();
    }
}
