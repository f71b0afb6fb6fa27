//! Workers of an agent as actors: one a NIC, asleep until there is a job.

use std::sync::Arc;

use shunt_host::agent::worker::{Crew, Hand, Shift, Worker};

use super::{ActorOptions, SimWorld};

/// For ever, in virtual time.
const FOR_EVER_NS: u64 = u64::MAX / 4;

/// Spawns the workers of one PE's agent.
pub struct SimCrew<F> {
    world: Arc<SimWorld>,
    pe: u32,
    adopt: F,
}

impl<F: Fn(usize)> SimCrew<F> {
    /// Workers of `pe`; `adopt` is told the number of each actor.
    pub fn new(world: Arc<SimWorld>, pe: u32, adopt: F) -> Self {
        Self { world, pe, adopt }
    }
}

struct SimHand {
    world: Arc<SimWorld>,
    actor: usize,
}

impl Hand for SimHand {
    fn wake(&self) {
        // While a run is torn down the workers are the first to go.
        if !self.world.closing() {
            self.world.unpark(self.actor);
        }
    }
}

impl<F: Fn(usize)> Crew for SimCrew<F> {
    fn hire(&self, name: String, mut worker: Worker) -> Box<dyn Hand> {
        let world = self.world.clone();
        let body = move || {
            loop {
                match worker.step() {
                    Shift::Busy => {}
                    Shift::Idle => {
                        world.note(|| "idle".into());
                        world.stir();
                        world.park(FOR_EVER_NS);
                        world.note(|| "at work".into());
                    }
                    Shift::Over => break,
                }
            }
        };
        let actor = self.world.spawn(format!("pe{}.{name}", self.pe), ActorOptions::host(), Box::new(body));
        (self.adopt)(actor);
        Box::new(SimHand { world: self.world.clone(), actor })
    }
}
