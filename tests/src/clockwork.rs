//! What moves the NICs of a simulated cluster: steps that look only at those that have something due or were rung.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use shunt_soft_nic::{Fabric, NicId, SharedFabric};

use crate::sim::Clockwork;

/// NICs that were rung since the last step.
#[derive(Default)]
pub struct Bells(Mutex<Vec<NicId>>);

impl Bells {
    /// Doorbells of these NICs may have been written.
    pub fn ring(&self, nics: impl IntoIterator<Item = NicId>) {
        self.0.lock().expect("one thread").extend(nics);
    }
}

/// The fabric as a [`Clockwork`].
pub struct FabricClock {
    fabric: SharedFabric,
    bells: Arc<Bells>,
    /// When it is due, as it was last asked.
    due: Cell<Option<u64>>,
}

impl FabricClock {
    /// Steps `fabric`; a kernel that writes a doorbell rings `bells`.
    pub fn new(fabric: SharedFabric, bells: Arc<Bells>) -> Self {
        Self { fabric, bells, due: Cell::new(None) }
    }
}

impl Clockwork for FabricClock {
    fn step(&self, now: u64) -> bool {
        let mut rung = self.bells.0.lock().expect("one thread");
        let happened = self.fabric.with(|fabric| fabric.step_sparse(now, &rung));
        rung.clear();
        happened
    }

    fn next_due(&self) -> Option<u64> {
        // Asked at each turn: mostly it was an actor's, and the fabric is as it was.
        if self.fabric.was_had() {
            self.due.set(self.fabric.with(Fabric::next_due_sparse));
            self.fabric.was_had();
        }
        self.due.get()
    }
}
