//! Verbs programs on soft NICs in virtual time, through the library that makes them outlive a NIC.
//!
//! What ships runs here: its hooks, journals, agent and recovery engine. In the place of libibverbs stands
//! [`library`], in the place of the directory [`place`]; an agent is an actor, and so is each program.
//!
//! A program posts SENDs, WRITEs, READs and FETCH_ADDs, and judges what comes: nothing is lost, doubled or out of
//! order, nothing is written behind a reader, completions come in order and once, and the sum of adds is the number of
//! those that completed.

mod agent;
mod around;
mod buffers;
mod commands;
mod connection;
mod events;
mod extended;
mod library;
mod memory;
mod place;
mod process;
mod queue;
mod requests;
mod rest;
mod schedules;
mod shared;
mod spec;
mod steps;

use std::rc::Rc;
use std::sync::{Arc, Once};

use shunt_device::platform::host::World;
use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, NicId, RailAt, SharedFabric, SoftNic};
use shunt_verbs::settings::{Atomics, Mode, Peer, Settings};
use shunt_verbs_directory::StoreAt;
use shunt_verbs_journal::policy::{Answers, Policy, Rule};

use crate::clockwork::{Bells, FabricClock};
use crate::cluster::LINK_NS;
use crate::sim::{ActorOptions, PeWorld, Sim, SimConfig, Task};
use around::Around;
use process::Process;
pub use requests::{Does, Request};
pub use schedules::{Bounds, Round, explore, sample};
use spec::{Board, PROCESSES};
pub use spec::{Told, VerbsSpec};
use steps::Steps;
pub use steps::{Step, Who};

/// Waits of the library, shorter than a program's: a run takes some tens of milliseconds.
const SETTINGS: Settings = Settings {
    mode: Mode::On,
    give_up_ns: 1_000_000_000,
    suspect_ns: 5_000_000,
    recovery_window_ns: 3_000_000,
    lifetime_ns: 2_000_000,
    probes: 3,
    policy: Policy { answers: Answers::Unread, rule: Rule::Exact },
    atomics: Atomics::Keep,
    store: StoreAt::Folder,
    peer: Peer::Optional,
    backups: 1,
};

/// What came of a run.
#[derive(Debug, Default)]
pub struct VerbsReport {
    /// What each program has to say.
    pub processes: Vec<Told>,
    /// Faults that hit, of those that were planned.
    pub hits: u64,
    /// Virtual time.
    pub took_ns: u64,
    /// Of everything that happened, in order.
    pub digest: u64,
    /// Steps from the first request until all is complete.
    pub steps: Vec<Step>,
}

impl VerbsReport {
    /// Everything that broke the promise.
    pub fn wrong(&self) -> Vec<String> {
        self.processes.iter().flat_map(|told| told.wrong.clone()).collect()
    }

    /// A sum over processes.
    pub fn sum(&self, of: impl Fn(&Told) -> u64) -> u64 {
        self.processes.iter().map(of).sum()
    }
}

/// The library finds this in the place of its surroundings from now on.
fn stand_in() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: each function has its name's type, and keeps to its manual where the library calls it.
        unsafe { shunt_verbs::real::stand_in(library::lookup) };
        shunt_verbs::settings::fix(SETTINGS);
        shunt_verbs::voice::hush();
    });
}

/// Runs it: returns once every request is complete and every message has come, and all is quiet.
pub fn run(spec: &VerbsSpec) -> VerbsReport {
    stand_in();
    let mut config = SimConfig::new(spec.seed);
    config.time_limit_ns = 17_000_000_000 + spec.patience_ns;
    let sim = Sim::new(config);
    let mut fabric = Fabric::new(FabricConfig { link_ns: LINK_NS, seed: spec.seed });
    for pe in 0..PROCESSES {
        for rail in 0..spec.rails {
            fabric.add(SoftNic::new(NicConfig::new(format!("mlx5_{rail}"), pe, rail)), RailAt { pe, rail });
        }
    }
    let (fabric, bells) = (SharedFabric::new(fabric), Arc::new(Bells::default()));
    sim.drive(Rc::new(FabricClock::new(fabric.clone(), bells.clone())));
    let around = Around {
        sim: sim.world(),
        fabric: fabric.clone(),
        town: Arc::default(),
        net: Rc::default(),
        board: Rc::new(Board::new(spec.pairs)),
        steps: Rc::new(Steps::new(&spec.put_off)),
    };
    if spec.counts_steps {
        sim.world().watch(around.steps.clone());
        around.town.watch(around.steps.clone());
    }
    let tasks: Vec<Task<Told>> = (0..PROCESSES)
        .map(|me| {
            let (bells, rails) = (bells.clone(), spec.rails);
            let ring = move || bells.ring((me * rails..(me + 1) * rails).map(NicId));
            let world: Arc<dyn World> = Arc::new(PeWorld::with_bell(sim.world(), Arc::new(ring)));
            let (around, spec, steps) = (around.clone(), spec.clone(), around.steps.clone());
            let task = sim.spawn(format!("program{me}"), ActorOptions::host(), move || {
                Process::start(me, &around, world, &spec).run()
            });
            steps.knows(task.id(), Who::Program(me));
            task
        })
        .collect();
    let processes = sim.finish_all(&tasks);
    let hits = fabric.with(|fabric| fabric.faults().iter().filter(|report| report.hits > 0).count() as u64);
    let steps = around.steps.take();
    VerbsReport { processes, hits, took_ns: sim.now(), digest: sim.trace_hash(), steps }
}
