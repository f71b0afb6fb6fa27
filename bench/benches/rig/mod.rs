//! Two PEs on soft NICs that move only when told to: what is measured is device code and nothing beside it.

use shunt_device::platform::host::{Host, World};
use shunt_device::{Channel, CqCheck, Deadline, Device, HeapOffset, Put, Solo, Ticket};
use shunt_host::config::EnvConfig;
use shunt_host::connect::bootstrap::InMemory;
use shunt_host::connect::oob::{LATENCY_NS, OobNet};
use shunt_host::devx::Devx;
use shunt_host::gpu::HeapMemory;
use shunt_host::pe::{Pe, PeConfig};
use shunt_soft_devx::SoftDevx;
use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, RailAt, SharedFabric, SoftNic};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Virtual time between two looks of a waiter.
const STEP_NS: u64 = 500;
/// Longest a firmware command may take, in virtual time.
const COMMAND_NS: u64 = 50_000_000;
/// Operations between two drains; the ring holds many more.
pub const BATCH: u64 = 32;

/// Virtual time, which passes where somebody waits; the NICs move with it.
struct Virtual {
    now_ns: AtomicU64,
    fabric: SharedFabric,
}

impl World for Virtual {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn relax(&self) {
        let now = self.now_ns.fetch_add(STEP_NS, Ordering::Relaxed) + STEP_NS;
        self.fabric.with(|fabric| fabric.step(now));
    }

    fn doorbell(&self) {}
}

/// PE 0 and PE 1, two rails each, one channel between them.
pub struct Rig {
    world: Arc<Virtual>,
    pes: Vec<Pe>,
}

fn start(fabric: &SharedFabric, world: &Arc<dyn World>, ft: bool) -> Vec<Pe> {
    let env = EnvConfig { channels_per_pe: 1, fault_tolerance: ft, ..EnvConfig::default() };
    let config = PeConfig { backups_later: false, ..PeConfig::new(&env, 1 << 20) };
    let oob = OobNet::new(2, LATENCY_NS, world.clone());
    let bring_up = |(pe, member): (u32, InMemory)| {
        let devices = (0..2).map(|rail| {
            let nic = fabric.with(|fabric| fabric.find(RailAt { pe, rail })).expect("was added");
            Arc::new(SoftDevx::new(fabric.clone(), nic, world.clone(), COMMAND_NS)) as Arc<dyn Devx>
        });
        let (devices, end, world) = (devices.collect(), Box::new(oob.end(pe)), world.clone());
        move || Pe::start(config, devices, Arc::new(HeapMemory::new()), &member, end, world)
    };
    let starts: Vec<_> = (0..2).zip(InMemory::group(2, world)).map(bring_up).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = starts.into_iter().map(|start| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic").expect("two PEs start")).collect()
    })
}

impl Rig {
    /// Brings both PEs up; `ft`: with fault tolerance.
    pub fn new(ft: bool) -> Self {
        let mut fabric = Fabric::new(FabricConfig::default());
        for (pe, rail) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            fabric.add(SoftNic::new(NicConfig::new(format!("mlx5_{rail}"), pe, rail)), RailAt { pe, rail });
        }
        let fabric = SharedFabric::new(fabric);
        let world = Arc::new(Virtual { now_ns: AtomicU64::new(1), fabric: fabric.clone() });
        let shared: Arc<dyn World> = world.clone();
        let pes = start(&fabric, &shared, ft);
        Self { world, pes }
    }

    /// Device code on a PE.
    pub fn device(&self, pe: u32) -> Device<'_, Host<'_>> {
        // SAFETY: uploaded by `Pe::start`, mapped while the rig lives.
        let device = unsafe { Device::attach(self.pe(pe).state(), Host::new(&*self.world)) };
        device.expect("host and bench are one build")
    }

    /// A PE.
    pub fn pe(&self, pe: u32) -> &Pe {
        &self.pes[pe as usize]
    }

    fn channel(&self) -> Channel<'_, Host<'_>> {
        self.device(0).channel(1, 0)
    }

    /// Posts a batch of 64-byte puts; the last one's ticket.
    #[inline(never)]
    pub fn puts(&self) -> Ticket {
        let channel = self.channel();
        let mut last = Ticket(0);
        for n in 0..BATCH {
            let put = Put { dst: HeapOffset(4096 + n * 64), src: HeapOffset(n * 64), bytes: 64 };
            last = channel.put_nbi(Solo, black_box(put)).expect("a healthy channel");
        }
        last
    }

    /// Posts a batch of kind 1 signals, from `first` on; the last one's ticket.
    #[inline(never)]
    pub fn signals(&self, first: u64) -> Ticket {
        let channel = self.channel();
        let mut last = Ticket(0);
        for n in 0..BATCH {
            last = channel
                .signal_nbi(Solo, HeapOffset(64), shunt_device::Signal::Monotone(black_box(first + n)))
                .expect("a healthy channel");
        }
        last
    }

    /// Checks a batch of tickets that ends with `last`, oldest first; how many are done.
    #[inline(never)]
    pub fn checks(&self, last: Ticket) -> u64 {
        let channel = self.channel();
        let at = Deadline { at_ns: u64::MAX };
        let done = |n: &u64| channel.check(black_box(Ticket(last.0 + 1 - BATCH + n)), at) == CqCheck::Done;
        (0..BATCH).filter(done).count() as u64
    }

    /// Lets the NICs do all that was posted, up to `last`, without looking at a completion.
    pub fn complete(&self, _last: Ticket) {
        // A batch takes a few microseconds of virtual time; nothing else is under way.
        (0..200).for_each(|_| self.world.relax());
    }

    /// The same, and takes the completions.
    pub fn drain(&self, last: Ticket) {
        let until = Deadline::after(self.world.now_ns(), 1_000_000_000);
        self.channel().wait(Solo, last, until).expect("a healthy channel");
    }
}
