//! What launches kernels here: a simulated cluster whose kernels are PTX, one actor a block, against soft NICs, with
//! the agents that ship.

use crate::block::{Block, Progress, World};
use crate::code::Module;
use crate::counts::{Counts, Memory};
use crate::memory::{Chance, Gpu};
use shunt_kernels::Outcome;
use shunt_layout::state::{DeviceState, HotPath};
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::sim::{ActorOptions, PeWorld};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Virtual time that a turn of a block takes.
const TURN_NS: u64 = 250;
/// Virtual time between a doorbell and the next instruction where accesses are delayed: time for the NIC to fetch.
const RANG_NS: u64 = 1_000;
/// Groups of lanes that run in a turn.
const GROUPS: usize = 8;
/// Virtual time after which a kernel that still runs has hung: far above what any wait of it is given.
const HANG_NS: u64 = 40_000_000_000;

/// How the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Accesses are delayed as far as the memory model lets them be.
    pub relaxed: bool,
    /// Seed of its decisions.
    pub seed: u64,
}

/// When a doorbell was rung, by which PE, and its register.
type Bell = (u64, u32, u64);

struct Clock {
    world: Arc<PeWorld>,
    pe: u32,
    first_bell: Rc<Cell<Option<Bell>>>,
}

impl World for Clock {
    fn now_ns(&self) -> u64 {
        self.world.now()
    }
    fn doorbell(&self, register: u64) {
        let first = self.first_bell.get().unwrap_or((self.world.sim().now(), self.pe, register));
        self.first_bell.set(Some(first));
        shunt_device::platform::host::World::doorbell(&*self.world);
    }
}

/// Words that kernels reach and no PE was given: outcomes, tensors.
#[derive(Clone, Default)]
pub struct Lent(Rc<RefCell<Vec<Range<u64>>>>);

impl Lent {
    /// Lends memory for as long as the cluster runs.
    pub fn lend(&self, words: &[u64]) {
        let at = words.as_ptr() as u64;
        self.0.borrow_mut().push(at..at + 8 * words.len() as u64);
    }
}

/// The GPUs of a cluster, one a PE.
pub struct Rig {
    /// The cluster.
    pub cluster: Cluster,
    module: Rc<Module>,
    gpus: Vec<Rc<RefCell<Gpu>>>,
    lent: Lent,
    counts: Rc<RefCell<Counts>>,
    entered: Rc<RefCell<Entered>>,
    first_bell: Rc<Cell<Option<Bell>>>,
    mode: Mode,
}

/// Functions that were started, by the PE.
pub type Entered = BTreeSet<(u32, String)>;

/// What a block needs to run on a PE.
#[derive(Clone)]
pub struct Station {
    module: Rc<Module>,
    gpu: Rc<RefCell<Gpu>>,
    kernel: Kernel,
    counts: Rc<RefCell<Counts>>,
    entered: Rc<RefCell<Entered>>,
    first_bell: Rc<Cell<Option<Bell>>>,
    pe: u32,
    /// Memory for tensors.
    pub lent: Lent,
    seed: Rc<Cell<u64>>,
}

impl Rig {
    /// A cluster whose GPUs run this module. A kernel reaches the memory of its own PE, and the heaps of all if they
    /// are `near`.
    pub fn new(cluster: Cluster, module: &Rc<Module>, mode: Mode, near: bool) -> Self {
        Self::with_own_heap(cluster, module, mode, near, u64::MAX)
    }

    /// The same, where so many bytes at the start of each heap lie on the GPU, if queues do.
    pub fn with_own_heap(
        cluster: Cluster,
        module: &Rc<Module>,
        mode: Mode,
        near: bool,
        own_heap: u64,
    ) -> Self {
        let lent = Lent::default();
        let gpu = |pe: u32| {
            let (memories, lent, kernel) = (cluster.memories(), lent.clone(), cluster.kernel(pe));
            let heap = |pe: u32| {
                cluster.pe(pe).heap().address..cluster.pe(pe).heap().address + cluster.pe(pe).heap().bytes
            };
            let near: Vec<Range<u64>> = (0..cluster.spec.pes).filter(|_| near).map(heap).collect();
            let reach = move |at: u64, bytes: u32| {
                let ours = |range: &Range<u64>| range.start <= at && at + u64::from(bytes) <= range.end;
                memories[pe as usize].holds(at, bytes.into())
                    || lent.0.borrow().iter().any(ours)
                    || near.iter().any(ours)
            };
            // SAFETY: the cluster keeps the state mapped as long as kernels run; nobody writes its root.
            let mut root = unsafe { *kernel.state };
            if cluster.spec.queues_on_device {
                // So much of the heap counts as the GPU's.
                root.own_end = own_heap.min(root.heap_bytes) + 1;
            }
            // SAFETY: the root of a device state is plain words.
            let bytes = unsafe {
                std::slice::from_raw_parts((&raw const root).cast::<u8>(), size_of::<DeviceState>()).to_vec()
            };
            let registers = move |at: u64, bytes: u32| bytes == 8 && is_register(&root, at);
            let host = cluster.pe(pe).bases().host..cluster.pe(pe).bases().host + cluster.pe(pe).plan().bytes;
            let device = cluster.pe(pe).device_control().map(|span| span.address..span.address + span.bytes);
            let memory_of = move |at: u64| match &device {
                Some(device) if device.contains(&at) => Some(Memory::Gpu),
                _ => host.contains(&at).then_some(Memory::Host),
            };
            // SAFETY: memory of the PEs stays until the cluster is dropped, and is shared as atomic words.
            let gpu = unsafe {
                Gpu::new(
                    (Box::new(reach), Box::new(registers), Box::new(memory_of)),
                    bytes,
                    mode.relaxed,
                    mode.seed ^ u64::from(pe),
                )
            };
            Rc::new(RefCell::new(gpu))
        };
        let gpus = (0..cluster.spec.pes).map(gpu).collect();
        Self {
            cluster,
            module: module.clone(),
            gpus,
            lent,
            counts: Rc::default(),
            entered: Rc::default(),
            first_bell: Rc::default(),
            mode,
        }
    }

    /// True if the module has such a function.
    pub fn has(&self, name: &str) -> bool {
        self.module.find(name).is_some()
    }

    /// What was executed so far.
    pub fn counts(&self) -> Counts {
        self.counts.borrow().clone()
    }

    /// Functions that were started.
    pub fn entered(&self) -> Entered {
        self.entered.borrow().clone()
    }

    /// Where and when the first doorbell was rung: nanoseconds since the cluster was up, PE, rail. Paths are as they
    /// were then only if nothing failed.
    pub fn first_bell(&self) -> Option<(u64, u32, u32)> {
        let ((at_ns, pe, register), spec) = (self.first_bell.get()?, &self.cluster.spec);
        let peers = (0..spec.pes).filter(|peer| *peer != pe);
        let channels = peers.flat_map(|peer| (0..spec.channels).map(move |channel| (peer, channel)));
        let mut rows = channels.flat_map(|(peer, channel)| {
            (0..self.cluster.pe(pe).root().slots)
                .map(move |slot| self.cluster.path_row(pe, peer, channel, slot))
        });
        let row = rows.find(|row| row.doorbell_register == register)?;
        Some((at_ns.saturating_sub(self.cluster.began_ns()), pe, row.local_rail))
    }

    /// For blocks of a PE.
    pub fn station(&self, pe: u32) -> Station {
        Station {
            module: self.module.clone(),
            gpu: self.gpus[pe as usize].clone(),
            kernel: self.cluster.kernel(pe),
            counts: self.counts.clone(),
            entered: self.entered.clone(),
            first_bell: self.first_bell.clone(),
            pe,
            lent: self.lent.clone(),
            seed: Rc::new(Cell::new(self.mode.seed ^ u64::from(pe) << 32)),
        }
    }
}

/// True for the doorbell register of a path, as its row is now: a path that was made again has another one.
fn is_register(root: &DeviceState, at: u64) -> bool {
    let rows = u64::from(root.pe_count) * u64::from(root.channels_per_pe) * u64::from(root.slots);
    (0..rows).any(|row| {
        let field =
            root.hot + row * size_of::<HotPath>() as u64 + offset_of!(HotPath, doorbell_register) as u64;
        shunt_tests::oracle::load(field) == at
    })
}

/// A block's threads on a GPU: two warps, of which those that take no part end at once.
pub const THREADS: u32 = 64;

impl Station {
    /// Runs block `number.0` of `number.1` of an entry point to its end: the body of an actor.
    ///
    /// # Panics
    /// A defect of the code that runs: the text says function, line and threads.
    pub fn run(&self, entry: &str, params: &[Vec<u8>], number: (u32, u32), threads: u32) -> u64 {
        let Some(function) = self.module.find(entry) else { panic!("the module has no `{entry}`") };
        self.entered.borrow_mut().insert((self.pe, entry.to_owned()));
        let seed = self.seed.get();
        self.seed.set(Chance::new(seed).below(u64::MAX));
        let (module, gpu) = (self.module.clone(), self.gpu.clone());
        let mut block = Block::new(module, gpu, (function, params), threads, number, seed);
        let world =
            Clock { world: self.kernel.world.clone(), pe: self.pe, first_bell: self.first_bell.clone() };
        let begun = world.now_ns();
        loop {
            match block.run(&world, GROUPS) {
                Ok(Progress::Ran) => self.kernel.world.sleep(TURN_NS),
                Ok(Progress::Rang) => self.kernel.world.sleep(RANG_NS),
                Ok(Progress::Sleeps(_)) => shunt_device::platform::host::World::relax(&*self.kernel.world),
                Ok(Progress::Ended) => break,
                Err(failure) => panic!("PTX machine: {failure}"),
            }
            assert!(
                world.now_ns() - begun < HANG_NS,
                "PTX machine: {entry}: ran for {HANG_NS} ns, expected an end"
            );
        }
        self.counts.borrow_mut().add(&block.counts);
        block.answer(0)
    }

    /// Its surroundings.
    pub const fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}

/// The bytes of an argument.
///
/// # Safety
/// Plain words without padding that matters.
pub unsafe fn bytes_of<T: Copy>(value: &T) -> Vec<u8> {
    // SAFETY: forwarded to the caller.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()).to_vec() }
}

/// How a kernel's actor runs.
pub fn actor() -> ActorOptions {
    ActorOptions::kernel()
}

/// Room for outcomes, as words.
pub fn outcome_words(blocks: u32) -> Vec<u64> {
    vec![0; size_of::<Outcome>().div_ceil(8) * blocks as usize]
}

/// The outcomes that lie there.
pub fn outcomes(words: &[u64], blocks: u32) -> Vec<Outcome> {
    let each = size_of::<Outcome>().div_ceil(8);
    // SAFETY: `outcome_words` made room for so many, and kernels wrote them as the type has them.
    (0..blocks as usize)
        .map(|block| unsafe { words[block * each..].as_ptr().cast::<Outcome>().read() })
        .collect()
}
