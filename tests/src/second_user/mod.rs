//! A second user of the recovery engine, small and without a GPU: processes that talk over RC queue pairs of their own.
//!
//! No device state, no channels, no bring-up: each process makes an engine, joins those it finds, and asks for paths.
//! It posts SENDs and WRITEs itself, gives the engine its queue pairs as [`endpoint`]s and is the [`owner`] of its paths.
//! What was under way at a fault is cut by the count that the peer's NIC gives, and the rest is posted on another path.
//!
//! A talk is a stream of numbers each way. An even number is a WRITE into its place at the other end, the odd one behind
//! it a SEND that says so. Whoever takes a SEND checks the place and marks it as read: a number that is lost, doubled,
//! out of order or written again later is found.

mod endpoint;
mod owner;
mod process;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::connect::oob::{LATENCY_NS, OobNet};
use shunt_soft_nic::fault::FaultKind;
use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, NicId, RailAt, SharedFabric, SoftNic};

use crate::clockwork::{Bells, FabricClock};
use crate::cluster::LINK_NS;
use crate::rng::Rng;
use crate::sim::{ActorOptions, PeWorld, Sim, SimConfig, Task};
use process::Process;
pub use process::{Fate, Told};

/// Rails of each process, and paths to each peer: one a rail.
pub const RAILS: u32 = 2;

/// What processes find each other by: where each is, once it is there.
#[derive(Default)]
pub struct Directory(RefCell<Vec<Option<owner::Introduction>>>);

/// What a run of talks is.
#[derive(Clone, Debug)]
pub struct TalkSpec {
    /// Seed of the simulator.
    pub seed: u64,
    /// Numbers each way of each talk.
    pub numbers: u64,
    /// When each process joins, nanoseconds of virtual time.
    pub joins: Vec<u64>,
    /// Processes that leave once they have said all: the others go on.
    pub leaves: Vec<u32>,
    /// Faults: how long after the first number, at which process and rail, and which.
    pub faults: Vec<(u64, RailAt, FaultKind)>,
    /// A break of the second user: every cut begins one number too early.
    pub repeats: bool,
}

impl TalkSpec {
    /// Two processes whose ports go down and come back as the seed has it; of every fourth seed, three, the last of which
    /// joins late and leaves early.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7a1c);
        let third = seed % 4 == 3;
        let joins = if third { vec![0, 0, 5_000_000 + rng.below(5_000_000)] } else { vec![0, 0] };
        let processes = joins.len() as u64;
        let mut faults = Vec::new();
        let mut at = 0;
        for _ in 0..1 + rng.below(4) {
            at += 100_000 + rng.below(4_000_000);
            let place = RailAt { pe: rng.below(processes) as u32, rail: rng.below(u64::from(RAILS)) as u32 };
            let for_ns = Some(1_000_000 + rng.below(10_000_000));
            let kind = match rng.below(4) {
                0 => FaultKind::DropAcks { for_ns },
                1 => FaultKind::BlackholeTx { for_ns },
                _ => FaultKind::Down { for_ns },
            };
            faults.push((at, place, kind));
        }
        let leaves = if third { vec![2] } else { Vec::new() };
        Self { seed, numbers: 600 + 2 * rng.below(800), joins, leaves, faults, repeats: false }
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct TalkReport {
    /// What each process has to say.
    pub processes: Vec<Told>,
    /// Faults that hit.
    pub hits: u64,
    /// Virtual time.
    pub took_ns: u64,
}

impl TalkReport {
    /// Everything that broke the promise.
    pub fn wrong(&self) -> Vec<String> {
        self.processes.iter().flat_map(|told| told.wrong.clone()).collect()
    }

    /// Paths left because of a fault.
    pub fn failovers(&self) -> u64 {
        self.processes.iter().map(|told| told.failovers).sum()
    }

    /// Paths that were made again and used.
    pub fn revivals(&self) -> u64 {
        self.processes.iter().map(|told| told.revivals).sum()
    }
}

/// Runs it: returns once every process has said and heard everything, and every path is ready again.
pub fn run(spec: &TalkSpec) -> TalkReport {
    let mut config = SimConfig::new(spec.seed);
    config.time_limit_ns = 20_000_000_000;
    let sim = Sim::new(config);
    let processes = spec.joins.len() as u32;
    let mut fabric = Fabric::new(FabricConfig { link_ns: LINK_NS, seed: spec.seed });
    for pe in 0..processes {
        for rail in 0..RAILS {
            let made = fabric
                .add(SoftNic::new(NicConfig::new(format!("mlx5_{rail}"), pe, rail)), RailAt { pe, rail });
            assert_eq!(made, NicId(pe * RAILS + rail));
        }
    }
    let (fabric, bells) = (SharedFabric::new(fabric), Arc::new(Bells::default()));
    sim.drive(Rc::new(FabricClock::new(fabric.clone(), bells.clone())));
    let oob = OobNet::new(processes, LATENCY_NS, sim.world());
    let directory = Rc::new(Directory::default());
    directory.0.borrow_mut().resize_with(processes as usize, || None);
    let fate = Rc::new(Fate::new(processes));
    let tasks: Vec<Task<Told>> = (0..processes)
        .map(|me| {
            let bells = bells.clone();
            let ring = move || bells.ring((me * RAILS..(me + 1) * RAILS).map(NicId));
            let world: Arc<dyn World> = Arc::new(PeWorld::with_bell(sim.world(), Arc::new(ring)));
            let (fabric, end) = (fabric.clone(), Box::new(oob.end(me)));
            let (directory, fate, spec) = (directory.clone(), fate.clone(), spec.clone());
            let sim_world = sim.world();
            sim.spawn(format!("process{me}"), ActorOptions::host(), move || {
                sim_world.sleep(spec.joins[me as usize]);
                Process::start(me, &sim_world, world, &fabric, end, &directory, &spec).talk(&directory, &fate)
            })
        })
        .collect();
    let processes = sim.finish_all(&tasks);
    let hits = fabric.with(|fabric| fabric.faults().iter().filter(|report| report.hits > 0).count() as u64);
    TalkReport { processes, hits, took_ns: sim.now() }
}
