//! Processes that move memory with the transfer engine over RC queue pairs of soft NICs, in virtual time.
//!
//! Each process writes to the other, pages and single writes, some of which it cancels. The judge takes promises at
//! their word: a source is overwritten when its transfer has ended, a target when its immediates were counted, or when
//! its transfer was cancelled and has quiesced. What lands later is found at the end.

mod process;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::agent::links::PeerAddress;
use shunt_host::connect::oob::{LATENCY_NS, OobNet};
use shunt_soft_nic::fault::FaultKind;
use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, NicId, RailAt, SharedFabric, SoftNic};
use shunt_transfer_engine::transfer::Counts;

use crate::clockwork::{Bells, FabricClock};
use crate::cluster::LINK_NS;
use crate::rng::Rng;
use crate::sim::{ActorOptions, PeWorld, Sim, SimConfig, Task};
use process::Process;

/// Processes of a run.
const PROCESSES: u32 = 2;

/// What a rail carries: so little that pieces wait in it when a fault comes.
const RAIL_GBPS: f64 = 2.0;

/// What a run is.
#[derive(Clone, Debug)]
pub struct TransferSpec {
    /// Seed of the simulator.
    pub seed: u64,
    /// Rails of each process.
    pub rails: u32,
    /// Transfers each way.
    pub transfers: usize,
    /// One transfer in so many is cancelled; 0: none.
    pub cancels: usize,
    /// Faults: how long after the first transfer, at which process and rail, and which.
    pub faults: Vec<(u64, RailAt, FaultKind)>,
    /// A break of the judge: it takes memory back when it asks for the cancel, and not when that is proven.
    pub hasty: bool,
}

impl TransferSpec {
    /// Faults as the seed has them.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7a4f);
        let rails = rng.between(2, 3) as u32;
        let mut at = 0;
        let mut fault = |rng: &mut Rng| {
            at += 50_000 + rng.below(900_000);
            let place =
                RailAt { pe: rng.below(PROCESSES.into()) as u32, rail: rng.below(rails.into()) as u32 };
            let for_ns = Some(500_000 + rng.below(8_000_000));
            let kind = match rng.below(4) {
                0 => FaultKind::DropAcks { for_ns },
                1 => FaultKind::BlackholeTx { for_ns },
                _ => FaultKind::Down { for_ns },
            };
            (at, place, kind)
        };
        let count = 1 + rng.below(4);
        let faults = (0..count).map(|_| fault(&mut rng)).collect();
        Self { seed, rails, transfers: 60, cancels: 6, faults, hasty: false }
    }
}

/// What a process has to say in the end.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Promises that were broken.
    pub wrong: Vec<String>,
    /// What became of lanes and pieces.
    pub lanes: Counts,
    /// Transfers that were written whole.
    pub written: u64,
    /// Transfers that were cancelled before that, with a proof.
    pub cancelled: u64,
    /// Transfers that ended otherwise.
    pub other: Vec<String>,
}

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

/// What processes find each other by.
#[derive(Clone)]
struct Introduction {
    address: PeerAddress,
    /// Its region as it is sent to others, and where it begins: all processes are in one address space.
    region: Vec<u8>,
    base: u64,
}

/// What processes know of each other.
struct Board {
    introductions: RefCell<Vec<Option<Introduction>>>,
    /// By process: all its transfers have ended, and all it expected has come.
    done: RefCell<Vec<bool>>,
    /// By process: how many pieces of each of its transfers were written, once it has ended.
    written: RefCell<Vec<Vec<Option<u64>>>>,
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
    let board = Rc::new(Board {
        introductions: RefCell::new(vec![None; PROCESSES as usize]),
        done: RefCell::new(vec![false; PROCESSES as usize]),
        written: RefCell::new(vec![vec![None; spec.transfers]; PROCESSES as usize]),
    });
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
