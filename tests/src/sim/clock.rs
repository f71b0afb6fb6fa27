//! The world as one PE sees it: the simulated one, by a clock of its own.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shunt_device::platform::host::World;

use super::SimWorld;

/// A PE's world. Its kernels and its agent read this clock; NICs and links keep the true one. It only ever jumps
/// forward, as `clock-jump` says.
pub struct PeWorld {
    world: Arc<SimWorld>,
    ahead_ns: AtomicU64,
    /// Is told of every doorbell of this PE.
    bell: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl PeWorld {
    /// A clock that is right.
    pub fn new(world: Arc<SimWorld>) -> Self {
        Self { world, ahead_ns: AtomicU64::new(0), bell: None }
    }

    /// The same, with somebody who is told of every doorbell.
    pub fn with_bell(world: Arc<SimWorld>, bell: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { bell: Some(bell), ..Self::new(world) }
    }

    /// What this PE takes the time to be.
    pub fn now(&self) -> u64 {
        self.world.now() + self.ahead_ns()
    }

    /// How far the clock is ahead of the true one.
    pub fn ahead_ns(&self) -> u64 {
        self.ahead_ns.load(Ordering::Relaxed)
    }

    /// Sets the clock forward.
    pub fn jump(&self, by_ns: u64) {
        self.ahead_ns.fetch_add(by_ns, Ordering::Relaxed);
    }

    /// The simulated world, with the true clock.
    pub fn sim(&self) -> &Arc<SimWorld> {
        &self.world
    }
}

/// Everything but the clock is the simulated world's.
impl Deref for PeWorld {
    type Target = SimWorld;

    fn deref(&self) -> &SimWorld {
        &self.world
    }
}

impl World for PeWorld {
    fn now_ns(&self) -> u64 {
        self.now()
    }

    fn relax(&self) {
        self.world.relax();
    }

    fn doorbell(&self) {
        if let Some(bell) = &self.bell {
            bell();
        }
        self.world.doorbell();
    }

    fn touches(&self, address: u64) {
        self.world.touches(address);
    }
}
