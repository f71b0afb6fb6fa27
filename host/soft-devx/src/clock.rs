//! Real time, and a thread that steps the soft NICs.

use shunt_device::platform::host::World;
use shunt_mlx5::clock::relax;
use shunt_soft_nic::{Clock, Engine};
use std::sync::Arc;

/// Real time, on threads; doorbells wake the engine.
pub struct SoftClock {
    clock: Clock,
    engine: Arc<Engine>,
}

impl SoftClock {
    /// `clock` is the engine's.
    pub fn new(clock: Clock, engine: Arc<Engine>) -> Self {
        Self { clock, engine }
    }
}

impl World for SoftClock {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn relax(&self) {
        relax();
    }

    fn doorbell(&self) {
        self.engine.kick();
    }
}
