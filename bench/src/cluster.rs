//! What of a job lives in this process: NICs, PEs, and a thread for each agent.

mod faults;

pub use crate::agent_pause::AgentGate;
use crate::clock::PeClock;
use crate::gpu::{Kernels, NoGpu, OneGpu};
use crate::heap::{HeapMap, HeapView};
use crate::job::{Job, JobError, Member};
use crate::kernel::Dev;
use crate::nics::error::NoNics;
use crate::nics::source::Source;
use crate::nics::{Medium, Nics, RailCounters};
use crate::options::{DeviceKind, Mode, NicKind, Options};
use crate::remarks::{Doubts, say_weaker};
use crate::thread_limit::{NoRoom, STACK_BYTES, try_threads};
use shunt::queues::{self, Carrier, KernelsOn, NoQueues, Queues};
use shunt::{AgentThread, Runtime, Turn};
use shunt_device::platform::host::{Host, World};
use shunt_device::{Device, HeapOffset};
use shunt_figures::switch_table::Pathless;
use shunt_host::agent::reader::Cursor;
use shunt_host::agent::words::{Place, StateWords};
use shunt_host::config::EnvConfig;
use shunt_host::gpu::{GpuMemory, HeapMemory, cuda::Mover};
use shunt_host::pe::{Pe, PeConfig};
use shunt_host::silence::Silence;
use shunt_layout::state::{PathRow, SLOTS_MAX, SwitchRecord};
use shunt_soft_nic::RailAt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Agents that make the backups are waited for this long, before anything is posted, and longer by so much for each two
/// rails, whose proofs go one after the other.
const SETTLE: Duration = Duration::from_secs(5);
/// See [`SETTLE`].
const SETTLE_PAIR: Duration = Duration::from_millis(200);

/// One PE that is up.
pub struct Unit {
    words: StateWords,
    heap: HeapView,
    map: HeapMap,
    clock: Arc<PeClock>,
    gate: Arc<AgentGate>,
    /// What posts for a sender, if it runs on a GPU.
    kernels: Option<Kernels>,
    /// Dropped last: everything above points into it.
    pe: Arc<Pe>,
}

/// The PEs of a job that live here. Dropping it stops the agents, then the PEs, then the NICs.
pub struct Cluster {
    agents: Vec<AgentThread>,
    first: u32,
    units: Vec<Unit>,
    nics: Box<dyn Nics>,
}

/// Why this process's PEs did not come up.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// A PE.
    #[error(transparent)]
    Start(#[from] shunt::Error),
    /// The way to the other processes.
    #[error(transparent)]
    Job(#[from] JobError),
    /// Threads.
    #[error(transparent)]
    Room(#[from] NoRoom),
    /// NICs.
    #[error(transparent)]
    Nics(#[from] NoNics),
    /// The GPU that kernels were to run on.
    #[error("--device gpu: {0}")]
    Gpu(#[from] NoGpu),
    /// The memory that queues were to lie in.
    #[error(transparent)]
    Queues(#[from] NoQueues),
}

/// The GPU that the command line asks for, if it does.
///
/// # Errors
/// There is none: what was looked for.
pub fn find_gpu(options: &Options) -> Result<Option<OneGpu>, NoGpu> {
    if options.device == DeviceKind::Cpu {
        return Ok(None);
    }
    let mover = if options.nic == NicKind::Soft { Mover::SoftNic } else { Mover::Hardware };
    Ok(Some(OneGpu::open(options.kernels.as_deref(), mover)?))
}

/// Where the queues of kernels lie, and the line that says so. A heap of this program's lies in the host's memory: a
/// kernel may see a completion in the GPU's before what a fetching atomic brought into that heap.
///
/// # Errors
/// They cannot lie where `SHUNT_QUEUES` asks for them.
pub fn find_queues(
    options: &Options,
    source: &Source,
    gpu: Option<&OneGpu>,
) -> Result<(Queues<()>, Option<String>), NoQueues> {
    let carrier = match source.medium() {
        Medium::Soft => Carrier::Software,
        Medium::Interposer => Carrier::Interposed,
        Medium::ConnectX => Carrier::Hardware,
    };
    let kernels = if gpu.is_some() { KernelsOn::Gpu(0) } else { KernelsOn::Processor };
    queues::choose(options.environment.config.queues, kernels, carrier, |_| match gpu {
        Some(_) if options.mode == Mode::Amo => Err("--mode amo fetches into the host's memory".to_owned()),
        Some(gpu) => gpu.memory_with_queues().map(drop).map_err(|error| error.to_string()),
        None => Err("there is no GPU".to_owned()),
    })
}

/// Threads this program runs when everything is up: kernels, agents, the engine and the one that waits.
pub fn threads(options: &Options) -> u32 {
    options.pes() * (options.ctas + 1) + 2 * options.processes()
}

/// Threads that one process is about to start: its part of [`threads`], a worker for each NIC, and those that bring it
/// up. The workers sleep while nothing fails.
fn threads_here(options: &Options) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    (threads(options) + options.pes() * options.rails).div_ceil(options.processes()) + cores
}

/// More threads than cores.
pub fn oversubscribed(options: &Options) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    threads(options) > cores
}

/// How long a path may be silent: where threads wait for cores, a healthy one is silent for long. A
/// completion comes once a put, and a rail needs its time for one of `largest` bytes.
pub fn suspect_ns(options: &Options, source: &Source, largest: u64) -> u64 {
    let put_ns = (largest as f64 * 8.0 / source.rail_gbps(options)) as u64;
    let usual = Silence::usual(source.medium() == Medium::ConnectX).suspect_ns;
    let base = if oversubscribed(options) { usual.max(50_000_000) } else { usual };
    options.suspect().unwrap_or(base) + 2 * put_ns
}

/// Whether the agents make the backups, and prove them. Over soft NICs of this process a real path shows what loopback
/// does; and where kernels run on a GPU an agent may not have a path left under them.
fn agents_make_backups(options: &Options, source: &Source) -> bool {
    source.medium() != Medium::Soft && options.device == DeviceKind::Cpu
}

/// What a command line means for a PE. `largest` is the largest put that will be posted.
fn pe_config(options: &Options, source: &Source, map: &HeapMap, largest: u64) -> PeConfig {
    let depth = (options.tickets_per_put() * options.window).max(256).next_power_of_two();
    let said = &options.environment;
    let env = EnvConfig {
        give_up_ns: options.give_up(),
        channels_per_pe: options.channels(),
        log_depth: said.log_depth.unwrap_or(depth.ilog2()),
        fault_tolerance: options.tolerant(),
        fence: options.fence(),
        // The whole chain: any local rail with any remote one, as far as a channel has slots for it.
        backups: options.backups().unwrap_or((options.rails * options.rails).min(SLOTS_MAX as u32) - 1),
        ..said.config
    };
    let mut config = PeConfig::new(&env, map.bytes());
    // What is measured is a switch to a backup that is there: made at start, or by the agents before anything is
    // posted. Then they carry probes, and what loopback showed of their NICs is proved on the real paths.
    config.backups_later = agents_make_backups(options, source);
    config.prove_ns = if config.backups_later { 0 } else { config.prove_ns };
    config.log2_chunk = options.log2_chunk.unwrap_or(config.log2_chunk);
    config.policy.suspect_ns = suspect_ns(options, source, largest);
    // Where threads wait for cores, and where a time was asked for, silence is not told from what is usual.
    let floor_ns = match said.suspect_floor {
        Some(floor_ns) => floor_ns,
        None if options.suspect().is_some() || oversubscribed(options) => config.policy.suspect_ns,
        None => Silence::usual(source.medium() == Medium::ConnectX).floor_ns,
    };
    config.policy.suspect_floor_ns = floor_ns.min(config.policy.suspect_ns);
    config.policy.recovery_window_ns = options.recovery_window.unwrap_or(config.policy.recovery_window_ns);
    config
}

impl Cluster {
    /// Brings everything up that lives here.
    ///
    /// # Errors
    /// The first PE's reason, or why the other processes cannot be reached.
    pub fn start(
        options: &Options,
        source: &Source,
        job: &dyn Job,
        map: HeapMap,
        largest: u64,
    ) -> Result<Self, UpError> {
        let needed = threads_here(options);
        try_threads(needed, STACK_BYTES)?;
        let nics = source.start(options, job)?;
        let first = job.own().start;
        let mut cluster = Self { agents: Vec::new(), first, units: Vec::new(), nics };
        let no_room = |met| UpError::Room(NoRoom { needed, met });
        let config = pe_config(options, source, &map, largest);
        let gpu = |pe: u32, gpu: &OneGpu| {
            // PE 2k puts to PE 2k + 1, which checks what came with loads of its own.
            (options.gpu_everywhere || pe.is_multiple_of(2)).then(|| gpu.clone())
        };
        let found = find_gpu(options)?;
        let (queues, _) = find_queues(options, source, found.as_ref())?;
        let gpu = |pe: u32| found.as_ref().and_then(|found| gpu(pe, found));
        cluster.start_pes(&config, map, job, (gpu, &queues), no_room)?;
        if config.backups_later {
            cluster.settle();
        }
        Ok(cluster)
    }

    /// Waits until the agents have their backups ready and proved. What takes longer goes on beside the run.
    fn settle(&self) {
        let rails = self.units.first().map_or(0, |unit| unit.pe.rails().len() as u32);
        let patience = SETTLE + SETTLE_PAIR * rails * rails;
        let until = Instant::now() + patience;
        for (pe, agent) in (self.first..).zip(&self.agents) {
            while !agent.is_settled() {
                if Instant::now() >= until {
                    let seconds = patience.as_secs();
                    shunt_host::complain!(
                        "note: PE {pe}: backups: expected all to be ready and proved within {seconds} s, got some \
                         that are not; the run begins without them"
                    );
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn start_pes(
        &mut self,
        config: &PeConfig,
        map: HeapMap,
        job: &dyn Job,
        (gpu, queues): (impl Fn(u32) -> Option<OneGpu>, &Queues<()>),
        no_room: impl Fn(std::io::Error) -> UpError,
    ) -> Result<(), UpError> {
        let bring_up = |member: Member| {
            let pe = member.pe;
            let clock = Arc::new(PeClock::new(self.nics.world().clone()));
            let gpu = gpu(pe);
            let (memory, kernels) = match &gpu {
                None => (Arc::new(HeapMemory::new()) as Arc<dyn GpuMemory>, None),
                Some(gpu) => {
                    let memory = match queues {
                        Queues::Gpu(()) => gpu.memory_with_queues(),
                        _ => gpu.memory(),
                    };
                    (memory.map_err(NoGpu::from)?, Some(gpu.prepare(&clock)?))
                }
            };
            // Beside kernels on a GPU others of this program run on the processor: their queues are the host's.
            let here = gpu.is_some() == matches!(queues, Queues::Gpu(()));
            let kernels_from = queues.kernels_from(0).filter(|_| here);
            let config = PeConfig { host_channels: gpu.is_some().then_some(0), kernels_from, ..*config };
            let builder = Runtime::builder(self.nics.rails().clone(), member)
                .memory(memory)
                .clock(clock.clone())
                .adjust(move |to| *to = config);
            Ok(move || builder.connect().map(|pe| (pe, clock, kernels)))
        };
        let members = job.members(self.nics.world()).into_iter().map(bring_up);
        let members: Vec<_> = members.collect::<Result<_, UpError>>()?;
        let started: Vec<Result<_, UpError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = members
                .into_iter()
                .map(|start| std::thread::Builder::new().spawn_scoped(scope, start).map_err(&no_room))
                .collect();
            let end = |thread: std::thread::ScopedJoinHandle<'_, Result<_, shunt::Error>>| {
                Ok(thread.join().expect("bring-up does not panic")?)
            };
            threads.into_iter().map(|thread| thread.and_then(end)).collect()
        });
        let started = started.into_iter().collect::<Result<Vec<_>, _>>()?;
        let rails: Vec<_> = started.iter().flat_map(|(pe, ..)| pe.rails().iter().cloned()).collect();
        say_weaker(&rails);
        for (pe, clock, kernels) in started {
            if let Some(kernels) = &kernels {
                // SAFETY: both go into one unit, which drops the PE last.
                unsafe { kernels.enter(&pe)? };
            }
            let unit = Unit::new(Arc::new(pe), map, clock, kernels);
            self.agents.push(self.spawn_agent(&unit)?);
            self.units.push(unit);
        }
        Ok(())
    }

    fn spawn_agent(&self, unit: &Unit) -> Result<AgentThread, shunt::Error> {
        let (gate, clock) = (unit.gate.clone(), self.nics.world().clone());
        let turn = move || match () {
            () if gate.dies() => Turn::Restart,
            () if gate.shut(clock.now_ns()) => Turn::Hold,
            () => Turn::Step,
        };
        let doubts = Box::new(Doubts::of(&unit.pe));
        Ok(AgentThread::spawn(unit.pe.clone(), vec![doubts], turn)?)
    }

    /// The clock of this process, and how to wait.
    pub fn clock(&self) -> &dyn World {
        &**self.nics.world()
    }

    /// The NICs that live here.
    pub fn nics(&self) -> &dyn Nics {
        &*self.nics
    }

    /// True if a PE lives here.
    pub fn has(&self, pe: u32) -> bool {
        pe.checked_sub(self.first).is_some_and(|at| (at as usize) < self.units.len())
    }

    /// A PE that lives here.
    pub fn unit(&self, pe: u32) -> &Unit {
        &self.units[(pe - self.first) as usize]
    }

    /// All PEs that live here.
    pub fn units(&self) -> impl Iterator<Item = (u32, &Unit)> {
        (self.first..).zip(&self.units)
    }

    /// Counters of every NIC that lives here.
    pub fn counters(&self) -> Vec<(RailAt, RailCounters)> {
        self.nics.counters()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.agents.iter().for_each(AgentThread::ask_to_stop);
        self.agents.clear();
    }
}

impl Unit {
    fn new(pe: Arc<Pe>, map: HeapMap, clock: Arc<PeClock>, kernels: Option<Kernels>) -> Self {
        // SAFETY: the state and its tables are mapped while `pe` lives, and this unit holds `pe` and drops it
        // last.
        let words =
            unsafe { StateWords::new(pe.host_state(), clock.clone()) }.expect("host and bench are one build");
        let span = pe.heap();
        // SAFETY: the heap lives as long as `pe`; kernels and NICs reach it atomically.
        let heap = unsafe { HeapView::new(span.address, span.bytes) };
        Self { words, heap, map, clock, gate: Arc::default(), kernels, pe }
    }

    /// Device code on this PE.
    pub fn device(&self) -> Dev<'_> {
        // SAFETY: uploaded by `Pe::start`, mapped while `self.pe` lives, and nobody writes the root.
        unsafe { Device::attach(self.pe.state(), Host::new(&*self.clock)) }
            .expect("host and bench are one build")
    }

    /// The PE.
    pub fn pe(&self) -> &Pe {
        &self.pe
    }

    /// What is known of a path.
    pub fn path(&self, place: Place) -> PathRow {
        self.words.read_row(place)
    }

    /// Rails of the PE.
    pub fn rails(&self) -> u32 {
        self.pe.rails().len() as u32
    }

    /// Its kernels on a GPU, if it has any.
    pub fn kernels(&self) -> Option<&Kernels> {
        self.kernels.as_ref()
    }

    /// Its clock.
    pub fn clock(&self) -> &PeClock {
        &self.clock
    }

    /// What holds its agent back.
    pub fn gate(&self) -> &AgentGate {
        &self.gate
    }

    /// Switch records written since the last look of this reader, and how many were lost.
    pub fn records_since(&self, reader: &mut Cursor) -> (Vec<SwitchRecord>, u64) {
        self.words.records_since(reader)
    }

    /// Its heap.
    pub fn heap(&self) -> &HeapView {
        &self.heap
    }

    /// Where everything lies in it.
    pub fn map(&self) -> HeapMap {
        self.map
    }

    /// Absolute address of a heap offset.
    pub fn address(&self, at: HeapOffset) -> u64 {
        self.heap.address(at)
    }

    /// Generations opened because of a fault and by a switch-back, over all channels.
    pub fn generations(&self) -> (u64, u64) {
        (0..self.rows())
            .map(|row| self.words.generations(row))
            .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    /// Channels that are without any path now; times on the PE's clock.
    pub fn pathless(&self) -> impl Iterator<Item = Pathless> + '_ {
        let (me, channels) = (self.words.root().my_pe, self.words.root().channels_per_pe);
        (0..self.rows()).filter_map(move |row| {
            let (peer, channel) = (row / channels, row % channels);
            let since_ns = self.words.pathless_since(row)?;
            Some(Pathless { pe: me, peer, channel, since_ns })
        })
    }

    fn rows(&self) -> u32 {
        self.words.root().pe_count * self.words.root().channels_per_pe
    }

    /// The name of the path that is slot 0 of a channel.
    pub fn primary(&self, peer: u32, channel: u32) -> String {
        let row = self.words.read_row(Place { peer, channel, slot: 0 });
        shunt_figures::switch_table::path_name(self.words.root().my_pe, peer, &row.identity)
    }
}
