//! The simulator: one OS thread, one virtual clock, one seed.
//!
//! Kernels, agents and host loops are *actors*, stackful coroutines that give way in `World::relax`. The
//! scheduler takes whatever comes first, an actor's wake-up or the fabric's next event, and breaks ties with the
//! seed, so a run is a function of its seed and of nothing else.

mod actor;
mod clock;
mod config;
mod crew;
mod platform;
mod world;

pub use actor::ActorOptions;
pub use clock::PeWorld;
pub use config::{Clockwork, NoClockwork, SimConfig, Steps};
pub use crew::SimCrew;
pub use platform::{Access, Hook, Interference, SimPlatform};
pub use world::{SimWorld, thread_cpu_ns};

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A run: its world, its actors, its scheduler. Dropping it unwinds whatever has not finished.
pub struct Sim {
    world: Arc<SimWorld>,
}

/// What an actor will have returned.
pub struct Task<T> {
    id: usize,
    result: Rc<RefCell<Option<T>>>,
}

impl<T> Clone for Task<T> {
    fn clone(&self) -> Self {
        Self { id: self.id, result: self.result.clone() }
    }
}

impl<T> Task<T> {
    /// Number of the actor.
    pub fn id(&self) -> usize {
        self.id
    }

    /// True once the actor has returned and its value has not been taken.
    pub fn is_done(&self) -> bool {
        self.result.borrow().is_some()
    }

    /// The value, once.
    pub fn take(&self) -> Option<T> {
        self.result.borrow_mut().take()
    }
}

impl Sim {
    /// A world without actors and NICs at virtual instant 0.
    pub fn new(config: SimConfig) -> Self {
        Self { world: Arc::new(SimWorld::new(config)) }
    }

    /// What moves on the clock besides the actors.
    pub fn drive(&self, clockwork: Rc<dyn Clockwork>) {
        self.world.set_clockwork(clockwork);
    }

    /// The world, as host code takes it.
    pub fn world(&self) -> Arc<SimWorld> {
        self.world.clone()
    }

    /// The virtual instant.
    pub fn now(&self) -> u64 {
        self.world.now()
    }

    /// Starts an actor; it first runs when the scheduler picks it.
    pub fn spawn<T: 'static>(
        &self,
        name: impl Into<String>,
        options: ActorOptions,
        body: impl FnOnce() -> T + 'static,
    ) -> Task<T> {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        let id = self.world.spawn(name.into(), options, Box::new(move || *slot.borrow_mut() = Some(body())));
        Task { id, result }
    }

    /// Runs until `done` says so.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) {
        while !done() {
            self.world.turn();
        }
    }

    /// Runs until `task` has returned and gives its value.
    pub fn finish<T>(&self, task: &Task<T>) -> T {
        self.run_until(|| task.is_done());
        task.take().expect("run_until returned because the task is done")
    }

    /// Runs until all `tasks` have returned.
    pub fn finish_all<T>(&self, tasks: &[Task<T>]) -> Vec<T> {
        let mut pending = 0;
        self.run_until(|| {
            while tasks.get(pending).is_some_and(Task::is_done) {
                pending += 1;
            }
            pending == tasks.len()
        });
        tasks.iter().map(|task| task.take().expect("all are done")).collect()
    }

    /// Runs for `ns` of virtual time.
    pub fn run_for(&self, ns: u64) {
        self.world.run_to(self.now() + ns);
    }

    /// From now on the CPU time of each turn of the actors whose name begins so is written down.
    pub fn count_cpu(&self, prefix: &str) {
        self.world.count_cpu(prefix);
    }

    /// The turns written down since: virtual instant, CPU time.
    pub fn cpu_turns(&self) -> Vec<(u64, u64)> {
        self.world.cpu_turns()
    }

    /// A hash of every scheduling decision and fabric event so far.
    pub fn trace_hash(&self) -> u64 {
        self.world.trace_hash()
    }

    /// Scheduling steps taken so far.
    pub fn steps(&self) -> u64 {
        self.world.steps()
    }

    /// Every unfinished actor, what it says it waits for, and since when.
    pub fn dump(&self) -> String {
        self.world.dump()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.world.close();
    }
}
