//! A second user of the recovery engine, small and without a GPU: processes that talk over RC queue pairs of their own.
//!
//! No device state, no channels, no bring-up: each process makes an engine, joins those it finds, and asks for paths.
//! It posts SENDs and WRITEs itself, gives the engine its queue pairs as [`endpoint`]s and is the [`owner`] of its
//! paths. What was under way at a fault is cut by the count that the peer's NIC gives, and the rest is posted on
//! another path.
//!
//! A talk is a stream of numbers each way. An even number is a WRITE into its place at the other end, the odd one
//! behind it a SEND that says so. The receiver of a SEND checks the place and marks it as read: a number that is lost,
//! doubled, out of order or written again later is found.

mod endpoint;
mod owner;
mod process;
mod spec;

use std::rc::Rc;
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::connect::oob::{LATENCY_NS, OobNet};
use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, NicId, RailAt, SharedFabric, SoftNic};

use crate::clockwork::{Bells, FabricClock};
use crate::cluster::LINK_NS;
use crate::sim::{ActorOptions, PeWorld, Sim, SimConfig, Task};
use process::Process;
pub use process::{Fate, Told};
use spec::Directory;
pub use spec::{RAILS, TalkSpec};

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
