//! The real world: threads, a monotonic clock, and a NIC engine to wake.

use shunt_device::platform::host::World;
use shunt_soft_nic::{Clock, Engine};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Yields before a waiter sleeps once: with more waiters than cores, the one all wait for must get to run.
const YIELDS: u32 = 64;
const NAP: Duration = Duration::from_micros(30);

thread_local! {
    static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// Real time, on threads.
pub struct RealWorld {
    clock: Clock,
    engine: Option<Arc<Engine>>,
}

impl RealWorld {
    /// A world whose doorbells wake `engine`.
    pub fn new(clock: Clock, engine: Arc<Engine>) -> Self {
        Self { clock, engine: Some(engine) }
    }

    /// A world without a NIC engine.
    pub fn without_engine(clock: Clock) -> Self {
        Self { clock, engine: None }
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
        if let Some(engine) = &self.engine {
            engine.kick();
        }
    }
}
