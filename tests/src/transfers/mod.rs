//! Processes that move memory with the transfer engine over RC queue pairs of soft NICs, in virtual time.
//!
//! Each process writes to the other, pages and single writes, some of which it cancels. The judge takes promises at
//! their word: a source is overwritten when its transfer has ended, a target when its immediates were counted, or when
//! its transfer was cancelled and has quiesced. What lands later is found at the end.

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
use spec::{Board, PROCESSES};
pub use spec::{Told, TransferSpec};

/// What a rail carries: so little that pieces wait in it when a fault comes.
const RAIL_GBPS: f64 = 2.0;

/// What came of a run.
#[derive(Debug, Default)]
pub struct TransferReport {
    /// What each process has to say.
    pub processes: Vec<Told>,
    /// Faults that hit.
    pub hits: u64,
    /// Virtual time.
    pub took_ns: u64,
}

impl TransferReport {
    /// Everything that broke the promise.
    pub fn wrong(&self) -> Vec<String> {
        self.processes.iter().flat_map(|told| told.wrong.clone()).collect()
    }

    /// A sum over processes.
    pub fn sum(&self, of: impl Fn(&Told) -> u64) -> u64 {
        self.processes.iter().map(of).sum()
    }
}

/// Runs it: returns once every transfer has ended, every expectation too, and every lane is open again.
pub fn run(spec: &TransferSpec) -> TransferReport {
    let mut config = SimConfig::new(spec.seed);
    config.time_limit_ns = 1_000_000_000;
    let sim = Sim::new(config);
    let mut fabric = Fabric::new(FabricConfig { link_ns: LINK_NS, seed: spec.seed });
    for pe in 0..PROCESSES {
        for rail in 0..spec.rails {
            let mut nic = NicConfig::new(format!("mlx5_{rail}"), pe, rail);
            nic.rail_gbps = Some(RAIL_GBPS);
            fabric.add(SoftNic::new(nic), RailAt { pe, rail });
        }
    }
    let (fabric, bells) = (SharedFabric::new(fabric), Arc::new(Bells::default()));
    sim.drive(Rc::new(FabricClock::new(fabric.clone(), bells.clone())));
    let oob = OobNet::new(PROCESSES, LATENCY_NS, sim.world());
    let board = Rc::new(Board::new(spec.transfers));
    let tasks: Vec<Task<Told>> = (0..PROCESSES)
        .map(|me| {
            let (bells, rails) = (bells.clone(), spec.rails);
            let ring = move || bells.ring((me * rails..(me + 1) * rails).map(NicId));
            let world: Arc<dyn World> = Arc::new(PeWorld::with_bell(sim.world(), Arc::new(ring)));
            let (fabric, end) = (fabric.clone(), Box::new(oob.end(me)));
            let (board, spec, sim_world) = (board.clone(), spec.clone(), sim.world());
            sim.spawn(format!("process{me}"), ActorOptions::host(), move || {
                Process::start(me, &sim_world, world, &fabric, end, board, &spec).run()
            })
        })
        .collect();
    let processes = sim.finish_all(&tasks);
    let hits = fabric.with(|fabric| fabric.faults().iter().filter(|report| report.hits > 0).count() as u64);
    TransferReport { processes, hits, took_ns: sim.now() }
}
