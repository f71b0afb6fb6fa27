//! Two processes on soft NICs in one simulation: what a run is played on, and what each process opens.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::agent::links::PeerAddress;
use shunt_host::connect::oob::{LATENCY_NS, Oob, OobNet};
use shunt_host::devx::Devx;
use shunt_host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_soft_devx::SoftDevx;
use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, NicId, RailAt, SharedFabric, SoftNic};
use shunt_transfer_engine::rc::{Draw, Parts, Patience, RcDomain, address, open_rails};
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};

use crate::clockwork::{Bells, FabricClock};
use crate::cluster::LINK_NS;
use crate::sim::{ActorOptions, PeWorld, Sim, SimConfig, SimCrew, SimWorld, Task};

/// Processes of a run.
pub(super) const PROCESSES: u32 = 2;
/// What every process of the job has drawn.
const DRAW: Draw = [7; 16];
/// A command of firmware that takes longer is given up.
const COMMAND_NS: u64 = 5_000_000;

/// What a run is played on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground {
    pub seed: u64,
    /// Rails of each process.
    pub rails: u32,
    /// What each rail carries.
    pub rail_gbps: f64,
    /// A run that takes longer, in virtual time, has come to a stop.
    pub limit_ns: u64,
}

/// What was played.
pub(super) struct Played<T> {
    /// What each process has to say.
    pub told: Vec<T>,
    /// Faults that hit.
    pub hits: u64,
    /// Virtual time.
    pub took_ns: u64,
}

/// What processes find each other by.
#[derive(Clone)]
struct Introduction {
    address: PeerAddress,
    /// Its region as it is sent to others, and where it begins: all processes are in one address space.
    region: Vec<u8>,
    base: u64,
}

/// Where a process sits.
pub(super) struct Seat {
    pub me: u32,
    pub sim: Arc<SimWorld>,
    pub world: Arc<dyn World>,
    pub fabric: SharedFabric,
    rails: u32,
    oob: Box<dyn Oob>,
    introductions: Rc<RefCell<Vec<Option<Introduction>>>>,
}

/// What a process has opened.
pub(super) struct Opened {
    pub domain: RcDomain,
    /// Its region, and the other's.
    pub region: Mr,
    pub target: MrDesc,
    /// Where they begin.
    pub base: u64,
    pub there: u64,
}

impl Ground {
    /// Has every process do this: returns once all of them have.
    pub fn play<T: 'static>(&self, body: impl Fn(Seat) -> T + Clone + 'static) -> Played<T> {
        let mut config = SimConfig::new(self.seed);
        config.time_limit_ns = self.limit_ns;
        let sim = Sim::new(config);
        let rails = self.rails;
        let (fabric, bells) = (SharedFabric::new(self.fabric()), Arc::new(Bells::default()));
        sim.drive(Rc::new(FabricClock::new(fabric.clone(), bells.clone())));
        let oob = OobNet::new(PROCESSES, LATENCY_NS, sim.world());
        let introductions = Rc::new(RefCell::new(vec![None; PROCESSES as usize]));
        let start = |me: u32| {
            let bells = bells.clone();
            let ring = move || bells.ring((me * rails..(me + 1) * rails).map(NicId));
            let seat = Seat {
                me,
                sim: sim.world(),
                world: Arc::new(PeWorld::with_bell(sim.world(), Arc::new(ring))),
                fabric: fabric.clone(),
                rails,
                oob: Box::new(oob.end(me)),
                introductions: introductions.clone(),
            };
            let body = body.clone();
            sim.spawn(format!("process{me}"), ActorOptions::host(), move || body(seat))
        };
        let tasks: Vec<Task<T>> = (0..PROCESSES).map(start).collect();
        let told = sim.finish_all(&tasks);
        let hit = |fabric: &mut Fabric| fabric.faults().iter().filter(|report| report.hits > 0).count();
        Played { told, hits: fabric.with(hit) as u64, took_ns: sim.now() }
    }

    fn fabric(&self) -> Fabric {
        let mut fabric = Fabric::new(FabricConfig { link_ns: LINK_NS, seed: self.seed });
        for pe in 0..PROCESSES {
            for rail in 0..self.rails {
                let mut nic = NicConfig::new(format!("mlx5_{rail}"), pe, rail);
                nic.rail_gbps = Some(self.rail_gbps);
                fabric.add(SoftNic::new(nic), RailAt { pe, rail });
            }
        }
        fabric
    }
}

impl Seat {
    /// Opens the NICs, tells the other where it is, connects to it, and registers so many bytes at both ends.
    pub fn open(self, bytes: u64, patience: Patience) -> Opened {
        let Self { me, sim, world, fabric, rails, oob, introductions } = self;
        let nic = |rail| fabric.with(|fabric| fabric.find(RailAt { pe: me, rail })).expect("added before");
        let open = |rail| SoftDevx::new(fabric.clone(), nic(rail), world.clone(), COMMAND_NS);
        let nics = (0..rails).map(|rail| Arc::new(open(rail)) as Arc<dyn Devx>).collect();
        let rails = open_rails(nics, &world, &DRAW).expect("soft NICs");
        let own = address(&rails, &DRAW);
        let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let region = OwnedSpan::alloc(&memory, bytes, Placement::Heap).expect("memory");
        let base = region.span().address;
        // The addresses come first: without them no domain, and without that no keys.
        let introduce = |region| Introduction { address: own.clone(), region, base };
        introductions.borrow_mut()[me as usize] = Some(introduce(Vec::new()));
        let known = |other: u32| introductions.borrow()[other as usize].clone();
        while !(0..PROCESSES).all(|other| known(other).is_some()) {
            world.relax();
        }
        let peers = (0..PROCESSES).filter_map(known).map(|introduction| introduction.address).collect();
        let crew = SimCrew::new(sim, me, |_| ());
        let parts = Parts { me, world: world.clone(), rails, peers, oob, draw: DRAW, patience };
        let mut domain = RcDomain::new(parts, &crew);
        let registered = domain.regions.register(&region, Rights::Write).expect("a region");
        introductions.borrow_mut()[me as usize] =
            Some(introduce(registered.describe(Rights::Write).to_bytes()));
        let other = PROCESSES - 1 - me;
        while known(other).is_none_or(|introduction| introduction.region.is_empty()) {
            world.relax();
        }
        let there = known(other).expect("introduced");
        let target = MrDesc::from_bytes(&there.region).expect("as it was sent");
        Opened { domain, region: registered, target, base, there: there.base }
    }
}
