//! A cluster in one thread: soft NICs on one fabric, PEs brought up as coroutines, their agents, their kernels.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::rc::Rc;
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::agent::Agent;
use shunt_host::config::{EnvConfig, FenceMode, FetchMode, ledger_patience_ns};
use shunt_host::connect::bootstrap::InMemory;
use shunt_host::connect::oob::{LATENCY_NS, OobNet};
use shunt_host::devx::Devx;
use shunt_host::events::{Event, Level, Metrics, Told, Watching};
use shunt_host::gpu::HeapMemory;
use shunt_host::nanos::Nanos;
use shunt_host::nic::short_in;
use shunt_host::pe::{Bringup, Pe, PeConfig};
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::mlx5::prm::qp::QUERY_OUT_BYTES;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{self, OrderPolicy, SwitchRecord};
use shunt_soft_devx::SoftDevx;
use shunt_soft_nic::{
    AtomicCount, Counters, Fabric, FabricConfig, Fault, FaultReport, Injection, LinkLayer, NicConfig, NicId,
    RailAt, SharedFabric, SoftNic, WordWatch,
};

use crate::clockwork::{Bells, FabricClock};
use crate::echo;
use crate::kernel::Kernel;
use crate::lies::{Lies, LyingDevx};
use crate::oracle::{Oracle, Stream, load, store};
use crate::pe_faults::{AgentFate, PeFaults, Targets};
use crate::sim::{ActorOptions, Interference, PeWorld, Sim, SimConfig, SimCrew, SimWorld, Task};
use crate::spec::RunSpec;
use crate::traffic::Traffic;

/// Local and remote rail of each slot, by PE, peer and channel.
pub type Paths = BTreeMap<(u32, u32, u32), Vec<(u32, u32)>>;

/// Latency of a packet between two NICs.
pub const LINK_NS: u64 = 2_000;
/// Shortest pause of an agent between two steps.
const AGENT_NS: u64 = 10_000;
/// Where streams begin in the heap; the words before are for scenarios of their own.
const STREAMS_AT: u64 = 4096;

/// Something that an operator has an agent do.
type Order = Box<dyn FnOnce(&mut Agent, Nanos)>;

/// What an agent leaves behind for the test.
#[derive(Default)]
struct AgentLog {
    /// What faults do to it.
    fate: Rc<AgentFate>,
    records: RefCell<Vec<SwitchRecord>>,
    orders: RefCell<Vec<Order>>,
    events: RefCell<Vec<Told>>,
    watching: RefCell<Option<(Watching, Option<Arc<Metrics>>)>>,
}

/// A job of PEs that is up: paths connected, agents running.
pub struct Cluster {
    /// Dropped first: unwinds kernels and agents while everything they use is still there.
    pub sim: Sim,
    /// All NICs.
    pub fabric: SharedFabric,
    /// The agents' own network.
    pub oob: OobNet,
    /// Where broken promises go.
    pub oracle: Oracle,
    /// How kernels are disturbed.
    pub interference: Rc<Interference>,
    /// What this run is.
    pub spec: RunSpec,
    agents: Vec<Rc<AgentLog>>,
    pes: Vec<Rc<Pe>>,
    clocks: Vec<Arc<PeWorld>>,
    /// Planned faults of PEs.
    pub pe_faults: PeFaults,
    streams: Vec<Stream>,
    /// Paths as they were made at start.
    first_paths: Paths,
    /// When traffic began.
    began_ns: u64,
    /// Dropped last.
    memories: Memories,
}

/// Memory of each PE. A NIC that is gone keeps what it was given, run after run, until nobody is left to write to it.
struct Memories(Vec<Arc<HeapMemory>>);

impl Drop for Memories {
    fn drop(&mut self) {
        // SAFETY: the cluster's last field. Kernels and agents were unwound and the PEs dropped before it; NICs move
        // only when the simulation, which is over, steps them.
        self.0.iter().for_each(|memory| unsafe { memory.free_all() });
    }
}

/// The step that the word of a switch names.
pub fn step_at(word: u64) -> state::Step {
    state::SwitchWord(load(word)).step()
}

/// Bytes of the heap that a stream takes.
fn region(traffic: &Traffic) -> u64 {
    let asks = traffic.gets + traffic.fetches > 0;
    let echoes = if asks { echo::bytes(traffic.slot_bytes) } else { 0 };
    Stream::bytes(traffic.slots, traffic.slot_bytes) + echoes
}

/// Streams of a run: channels times warps for each ordered pair of PEs that sends.
fn streams(spec: &RunSpec) -> Vec<Stream> {
    let mut streams = Vec::new();
    let region = region(&spec.traffic);
    let carrying = if spec.stream_channels == 0 { spec.channels } else { spec.stream_channels };
    for from in 0..spec.pes {
        for to in (0..spec.pes).filter(|to| from < *to || spec.both_ways && from != *to) {
            for channel in 0..carrying {
                for _ in 0..spec.warps {
                    let id = streams.len() as u32;
                    let base = STREAMS_AT + u64::from(id) * region;
                    let (slots, slot_bytes) = (spec.traffic.slots, spec.traffic.slot_bytes);
                    streams.push(Stream { id, from, to, channel, base, slots, slot_bytes });
                }
            }
        }
    }
    streams
}

fn heap_bytes(spec: &RunSpec) -> u64 {
    (STREAMS_AT + region(&spec.traffic) * streams(spec).len() as u64).next_multiple_of(4096)
}

fn pe_config(spec: &RunSpec, heap_bytes: u64) -> PeConfig {
    let env = EnvConfig {
        backups: spec.backups,
        give_up_ns: spec.give_up_ns,
        channels_per_pe: spec.channels,
        log_depth: spec.log_depth,
        fault_tolerance: !spec.ft_off,
        fence: if spec.time_fence { FenceMode::Time } else { FenceMode::Strict },
        ordering: Some(OrderPolicy::from_raw(spec.ordering)),
        polled_puts: spec.polled_puts,
        fetch: if spec.exact == 0 { FetchMode::Nic } else { FetchMode::Auto },
        ..EnvConfig::default()
    };
    let mut config = PeConfig::new(&env, heap_bytes);
    config.policy.suspect_ns = spec.suspect_ns;
    config.policy.suspect_floor_ns = spec.suspect_floor_ns.min(spec.suspect_ns);
    config.policy.recovery_window_ns = spec.recovery_ns;
    config.policy.fence_wait_ns = spec.fence_wait_ns;
    config.rail.flush_ns = spec.flush_ns;
    // NICs in order would pass: what the search takes is no part of a seed.
    config.rail.order_rounds *= u32::from(spec.out_of_order != 0);
    config.rail.proof_atomics *= u32::from(spec.atomic_count != 0);
    (config.policy.drain_ns, config.policy.ledger_ns) =
        (spec.drain_ns, ledger_patience_ns(spec.drain_ns, spec.suspect_ns));
    config.log2_chunk = spec.log2_chunk;
    config.bringup = Bringup::Sequential;
    config.step_records = true;
    config.backups_later = spec.backups_later;
    config.host_channels = (spec.host_channels > 0).then_some(spec.host_channels);
    config.kernels_from = spec.queues_on_device.then_some(spec.host_channels);
    config
}

fn make_fabric(spec: &RunSpec) -> SharedFabric {
    let mut fabric = Fabric::new(FabricConfig { link_ns: LINK_NS, seed: spec.seed });
    for pe in 0..spec.pes {
        for rail in 0..spec.rails {
            let mut config = NicConfig::new(format!("mlx5_{rail}"), pe, rail);
            config.mtu = spec.mtu;
            config.firmware_ns = spec.firmware_ns;
            config.rail_gbps = (spec.rail_gbps > 0).then_some(spec.rail_gbps.into());
            config.quirks.rmsn_cleared_by_2err = spec.rmsn_cleared;
            config.quirks.atomic_count = match spec.atomic_count {
                0 => AtomicCount::Honest,
                1 => AtomicCount::Left,
                2 => AtomicCount::Again,
                3 => AtomicCount::Accepted,
                other => panic!("atomic_count is 0 to 3, not {other}"),
            };
            config.quirks.reads_pass_posted_writes = spec.reads_pass_writes;
            config.quirks.out_of_order = spec.out_of_order & 1 != 0;
            config.quirks.out_of_order_inside = spec.out_of_order & 2 != 0;
            config.quirks.order_denied = spec.out_of_order & 4 != 0;
            config.quirks.qpn_reused = spec.qpn_reused;
            config.quirks.adaptive_retransmission = spec.adaptive_retransmission;
            config.quirks.atomic_gap_ns = spec.atomic_gap_ns;
            // A key of one NIC is none of another's.
            config.quirks.keys_skipped = ((pe * spec.rails + rail) * 0x20) as u16;
            if spec.infiniband {
                config.link_layer = LinkLayer::InfiniBand;
            }
            if !spec.profile.is_empty() {
                let names: Vec<&str> = spec.profile.split(',').collect();
                let name = names[(pe * spec.rails + rail) as usize % names.len()];
                let profile = name.parse().unwrap_or_else(|error| panic!("{error}"));
                config = config.with_profile(profile).with_port_of_profile(rail);
            }
            let made = fabric.add(SoftNic::new(config), RailAt { pe, rail });
            assert_eq!(made, NicId(pe * spec.rails + rail));
        }
    }
    SharedFabric::new(fabric)
}

/// The world of a PE, whose doorbells are those of its own NICs.
fn make_clock(sim: &Sim, spec: &RunSpec, pe: u32, bells: &Arc<Bells>) -> PeWorld {
    let (bells, first, rails) = (bells.clone(), pe * spec.rails, spec.rails);
    PeWorld::with_bell(sim.world(), Arc::new(move || bells.ring((first..first + rails).map(NicId))))
}

fn start_pes(
    sim: &Sim,
    spec: &RunSpec,
    fabric: &SharedFabric,
    oob: &OobNet,
    lies: &Lies,
    clocks: &[Arc<PeWorld>],
    memories: &Memories,
) -> Vec<Rc<Pe>> {
    let world: Arc<dyn World> = sim.world();
    let heap_bytes = heap_bytes(spec);
    let mut tasks: Vec<Task<Pe>> = Vec::new();
    for (pe, bootstrap) in (0..spec.pes).zip(InMemory::group(spec.pes, &world)) {
        let rails: Vec<Arc<dyn Devx>> = (0..spec.rails)
            .map(|rail| {
                let nic = fabric.with(|fabric| fabric.find(RailAt { pe, rail })).expect("added above");
                let honest = SoftDevx::new(fabric.clone(), nic, world.clone(), spec.command_timeout_ns);
                Arc::new(LyingDevx::new(Arc::new(honest), lies.clone(), pe, rail)) as Arc<dyn Devx>
            })
            .collect();
        let (config, end) = (pe_config(spec, heap_bytes), Box::new(oob.end(pe)));
        let world: Arc<dyn World> = clocks[pe as usize].clone();
        let memory = memories.0[pe as usize].clone();
        // Nothing that goes on meanwhile is looked at closely, where so little is at all.
        let poll_ns = if spec.idle_ns > ActorOptions::host().poll_max_ns { 20_000 } else { 5_000 };
        let options = ActorOptions { poll_ns, ..ActorOptions::host() };
        tasks.push(sim.spawn(format!("pe{pe}.start"), options, move || {
            match Pe::start(config, rails, memory, &bootstrap, end, world) {
                Ok(pe) => pe,
                Err(error) => panic!("PE does not start: {error}"),
            }
        }));
    }
    sim.finish_all(&tasks).into_iter().map(Rc::new).collect()
}

/// The loop of an agent: step, leave what happened for the test, pause.
fn agent_loop(pe: &Pe, log: &AgentLog, faults: &PeFaults, world: &Arc<SimWorld>, spec: &RunSpec) {
    let me = pe.root().my_pe;
    let crew = SimCrew::new(world.clone(), me, |actor| faults.adopt(me, actor));
    let next = || {
        let agent = Agent::new(pe, spec.agent, &crew).expect("the state that was just uploaded");
        agent.expect("the only agent of this PE")
    };
    let mut agent = next();
    loop {
        if let Some(until_ns) = log.fate.dies(faults) {
            agent.abandon();
            world.note(|| "dead".into());
            world.sleep(until_ns.saturating_sub(world.now()));
            agent = next();
        }
        let stalled_ns = log.fate.stalled_ns(world.now(), faults);
        if stalled_ns > 0 {
            world.note(|| "stalled".into());
            world.sleep(stalled_ns);
        }
        if let Some((watching, metrics)) = log.watching.take() {
            agent.be_watched(pe.world().now_ns().into(), &watching, metrics.as_ref());
        }
        world.note(|| "stepping".into());
        let inputs = agent.inputs();
        let now = Nanos::from(pe.world().now_ns());
        log.orders.take().into_iter().for_each(|order| order(&mut agent, now));
        let busy = agent.step(now, inputs);
        agent.hand_on(pe.world().now_ns().into());
        log.records.borrow_mut().extend(agent.records().0);
        log.events.borrow_mut().extend(agent.take_events().0);
        world.note(|| "pausing".into());
        let idle_ns = world.pause(AGENT_NS, spec.idle_ns);
        world.sleep(if busy { AGENT_NS / 4 } else { idle_ns } + world.draw(AGENT_NS));
    }
}

impl Cluster {
    /// Brings a job up, with agents and without traffic.
    pub fn start(spec: &RunSpec) -> Self {
        Self::start_lying(spec, Lies::default())
    }

    /// The same on NICs whose firmware lies as `lies` say at each time.
    pub fn start_lying(spec: &RunSpec, lies: Lies) -> Self {
        // Dropped after everything that uses it, should a PE not start.
        let memories = Memories((0..spec.pes).map(|_| Arc::default()).collect());
        let mut config = SimConfig::new(spec.seed);
        config.time_limit_ns = spec.time_limit_ns;
        config.step_limit = spec.step_limit;
        let sim = Sim::new(config);
        let (fabric, bells) = (make_fabric(spec), Arc::new(Bells::default()));
        sim.drive(Rc::new(FabricClock::new(fabric.clone(), bells.clone())));
        let oob = OobNet::new(spec.pes, LATENCY_NS, sim.world());
        let streams = streams(spec);
        let clocks: Vec<_> = (0..spec.pes).map(|pe| Arc::new(make_clock(&sim, spec, pe, &bells))).collect();
        let pes = start_pes(&sim, spec, &fabric, &oob, &lies, &clocks, &memories);
        let device = pes.iter().filter_map(|pe| pe.device_control());
        device.for_each(|span| sim.world().is_device_memory(span.address..span.address + span.bytes));
        let agents = (0..spec.pes).map(|_| Rc::new(AgentLog::default())).collect();
        let interference = Rc::new(Interference::random(spec.interference));
        let oracle = Oracle::default();
        let began_ns = sim.now();
        let spec = spec.clone();
        let pe_faults = PeFaults::default();
        let mut cluster = Self {
            sim,
            fabric,
            oob,
            oracle,
            interference,
            spec,
            agents,
            pes,
            clocks,
            pe_faults,
            streams,
            first_paths: Paths::new(),
            began_ns,
            memories,
        };
        cluster.first_paths = cluster.paths();
        cluster.preset_all();
        for pe in 0..cluster.spec.pes {
            cluster.start_agent(pe);
        }
        cluster
    }

    fn start_agent(&self, pe: u32) {
        let (host, log) = (self.pes[pe as usize].clone(), self.agents[pe as usize].clone());
        let (world, spec, faults) = (self.sim.world(), self.spec.clone(), self.pe_faults.clone());
        let body = move || agent_loop(&host, &log, &faults, &world, &spec);
        let agent = self.sim.spawn::<()>(format!("pe{pe}.agent"), ActorOptions::host(), body);
        self.pe_faults.adopt(pe, agent.id());
    }

    /// Has the agent of a PE do something before its next step.
    pub fn order(&self, pe: u32, order: impl FnOnce(&mut Agent, Nanos) + 'static) {
        self.agents[pe as usize].orders.borrow_mut().push(Box::new(order));
    }

    /// The clock of a PE.
    pub fn clock(&self, pe: u32) -> Arc<PeWorld> {
        self.clocks[pe as usize].clone()
    }

    /// A PE.
    pub fn pe(&self, pe: u32) -> &Pe {
        &self.pes[pe as usize]
    }

    /// The streams of the spec.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Instant 0 of the faults' clock: when the job was up.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// The memory that all PEs were given: what device code may touch, heaps, rings and states among it.
    pub fn memories(&self) -> Vec<Arc<HeapMemory>> {
        self.memories.0.clone()
    }

    /// A kernel's surroundings on `pe`.
    pub fn kernel(&self, pe: u32) -> Kernel {
        let host = self.pe(pe);
        Kernel {
            world: self.clock(pe),
            state: host.state(),
            heap: host.heap().address,
            heaps: Rc::new(self.pes.iter().map(|pe| pe.heap().address).collect()),
            // Where no agent looks after the channels, only a wait that outlasts the suspect time finds one silent.
            slice_ns: self.spec.traffic.slice_ns.max(4 * self.spec.suspect_ns),
            interference: self.interference.clone(),
            oracle: self.oracle.clone(),
            ledger_blocks: match OrderPolicy::from_raw(self.spec.ordering) {
                OrderPolicy::Unordered if !Mutant::LedgerWritten.on() => 2,
                _ => 1,
            },
        }
    }

    /// Starts a kernel of its own.
    pub fn spawn<T: 'static>(
        &self,
        name: &str,
        pe: u32,
        body: impl FnOnce(&Kernel) -> T + 'static,
    ) -> Task<T> {
        let kernel = self.kernel(pe);
        // The kernel's memory must outlive it even if the cluster is torn down in another order.
        let host = self.pes[pe as usize].clone();
        let options = ActorOptions::kernel().idle(self.spec.idle_ns);
        let task = self.sim.spawn(format!("pe{pe}.{name}"), options, move || {
            let _host = host;
            body(&kernel)
        });
        self.pe_faults.adopt(pe, task.id());
        task
    }

    /// Plans a fault, relative to [`Cluster::began_ns`].
    pub fn inject(&self, injection: &Injection) {
        let at_ns = self.began_ns + injection.at_ns;
        match (&injection.fault, injection.rail) {
            (Fault::Nic(kind), Some(rail)) => {
                let at = RailAt { pe: injection.pe, rail };
                self.fabric.with(|fabric| fabric.plan(at_ns, at, *kind));
            }
            (Fault::Pe(fault), None) => self.pe_faults.inject(injection, *fault, &self.targets(injection)),
            _ => panic!("{injection}: not a fault of the simulator"),
        }
    }

    fn targets(&self, injection: &Injection) -> Targets<'_> {
        assert!(injection.pe < self.spec.pes, "{injection}: there is no such PE");
        let pe = injection.pe as usize;
        Targets {
            sim: &self.sim,
            oob: &self.oob,
            fabric: &self.fabric,
            fate: &self.agents[pe].fate,
            clock: &self.clocks[pe],
            pes: self.spec.pes,
            rails: self.spec.rails,
            began_ns: self.began_ns,
        }
    }

    /// What [`Cluster::paths`] said when the job was up.
    pub fn first_paths(&self) -> &Paths {
        &self.first_paths
    }

    /// Local and remote rail of each path, by PE, peer and channel.
    pub fn paths(&self) -> Paths {
        let channels = (0..self.spec.pes)
            .flat_map(|pe| (0..self.spec.pes).map(move |peer| (pe, peer)))
            .filter(|(pe, peer)| pe != peer)
            .flat_map(|(pe, peer)| (0..self.spec.channels).map(move |channel| (pe, peer, channel)));
        channels.map(|at| (at, self.slots(at))).collect()
    }

    /// Address of the word that says where the switch of a channel of `pe` stands.
    pub fn step_word(&self, pe: u32, peer: u32, channel: u32) -> u64 {
        let root = self.pe(pe).root();
        let row = u64::from(peer * root.channels_per_pe + channel);
        root.channels
            + row * size_of::<state::Channel>() as u64
            + offset_of!(state::Channel, switch.word) as u64
    }

    /// Address of what the agent of `pe` reads of a channel.
    pub fn mirror(&self, pe: u32, peer: u32, channel: u32) -> u64 {
        let root = self.pe(pe).root();
        let row = u64::from(peer * root.channels_per_pe + channel);
        root.mirrors + row * size_of::<state::Mirror>() as u64
    }

    /// Where the switch of a channel of `pe` stands, as its agent reads it.
    pub fn mirror_word(&self, pe: u32, peer: u32, channel: u32) -> state::SwitchWord {
        state::SwitchWord(load(self.mirror(pe, peer, channel)))
    }

    /// Address of the word that names the owner of a channel's switch.
    pub fn owner_word(&self, pe: u32, peer: u32, channel: u32) -> u64 {
        let step = offset_of!(state::Channel, switch.word) as u64;
        self.step_word(pe, peer, channel) - step + offset_of!(state::Channel, switch.owner) as u64
    }

    /// Where the switch of a channel of `pe` stands.
    pub fn step(&self, pe: u32, peer: u32, channel: u32) -> state::Step {
        step_at(self.step_word(pe, peer, channel))
    }

    /// The slot that a channel of `pe` is on.
    pub fn active_slot(&self, pe: u32, peer: u32, channel: u32) -> u32 {
        let root = self.pe(pe).root();
        let row = u64::from(peer * root.channels_per_pe + channel);
        let words = root.channels + row * size_of::<state::Channel>() as u64;
        state::Word(load(words + offset_of!(state::Channel, ticket) as u64)).slot()
    }

    /// The row of a path.
    pub fn path_row(&self, pe: u32, peer: u32, channel: u32, slot: u32) -> state::PathRow {
        let root = self.pe(pe).root();
        let row = u64::from((peer * root.channels_per_pe + channel) * root.slots + slot);
        let at = (root.paths + row * size_of::<state::PathRow>() as u64) as *const state::PathRow;
        // SAFETY: a row of the PE's path table, mapped while the cluster lives; no actor runs meanwhile.
        unsafe { at.read() }
    }

    pub(crate) fn slots(&self, (pe, peer, channel): (u32, u32, u32)) -> Vec<(u32, u32)> {
        let root = self.pe(pe).root();
        let row = u64::from(peer * root.channels_per_pe + channel) * u64::from(root.slots);
        let slot = |slot: u64| {
            let path = root.paths + (row + slot) * size_of::<state::PathRow>() as u64;
            let word = |offset: usize| {
                let (at, high) = (offset & !7, offset & 4 != 0);
                (load(path + at as u64) >> if high { 32 } else { 0 }) as u32
            };
            let made = word(offset_of!(state::PathRow, state)) != state::PathState::Absent as u32;
            let local = word(offset_of!(state::PathRow, local_rail));
            made.then(|| (local, word(offset_of!(state::PathRow, remote_rail))))
        };
        (0..u64::from(root.slots)).filter_map(slot).collect()
    }

    /// Every channel starts where the spec says.
    fn preset_all(&self) {
        let (first, generation) = (self.spec.first_ticket, self.spec.first_generation);
        if first == 0 && generation == 0 {
            return;
        }
        for (pe, peer, channel) in self.paths().into_keys() {
            self.preset_tickets(pe, peer, channel, first, generation);
        }
    }

    /// Makes a channel of `pe` start at ticket `first` of `generation`, as if so many had been done and it had
    /// been switched so often. Before any traffic on it.
    pub fn preset_tickets(&self, pe: u32, peer: u32, channel: u32, first: u64, generation: u64) {
        let root = self.pe(pe).root();
        let row = u64::from(peer * root.channels_per_pe + channel);
        let words = root.channels + row * size_of::<state::Channel>() as u64;
        let word = state::Word::new(0, generation, first).0;
        for (offset, value) in [
            (offset_of!(state::Channel, ticket), word),
            (offset_of!(state::Channel, done), word),
            (offset_of!(state::Channel, ready), first),
            (offset_of!(state::Channel, posted), first),
        ] {
            assert_eq!(load(words + offset as u64), 0, "the channel has been used");
            store(words + offset as u64, value);
        }
        let path = root.hot + row * u64::from(root.slots) * size_of::<state::HotPath>() as u64;
        store(path + offset_of!(state::HotPath, base) as u64, first);
        store(path + offset_of!(state::HotPath, cq_map) as u64, state::CqMap::new(first, 0, generation).0);
    }

    /// Stops an agent for good, now.
    pub fn kill_agent(&self, pe: u32) {
        self.agents[pe as usize].fate.stall(u64::MAX / 2, None);
    }

    /// Every switch so far: PE and record, in the order in which they opened.
    pub fn records(&self) -> Vec<(u32, SwitchRecord)> {
        let of =
            |pe: u32| self.agents[pe as usize].records.borrow().clone().into_iter().map(move |one| (pe, one));
        let mut records: Vec<_> = (0..self.spec.pes).flat_map(of).collect();
        records.sort_by_key(|(_, record)| record.stamps[5]);
        records
    }

    /// Lets the agents be watched from their next step on, which this waits for.
    pub fn watch_agents(&self, watching: &Watching, metrics: Option<&Arc<Metrics>>) {
        for log in &self.agents {
            *log.watching.borrow_mut() = Some((watching.clone(), metrics.cloned()));
        }
        self.sim.run_until(|| self.agents.iter().all(|log| log.watching.borrow().is_none()));
    }

    /// Every event of a PE so far, as its agent told them.
    pub fn events(&self, pe: u32) -> Vec<Told> {
        self.agents[pe as usize].events.borrow().clone()
    }

    /// What the agents said that somebody should look at, and why paths were left.
    pub fn notes(&self) -> Vec<String> {
        let begins = |event: &Event| {
            matches!(event, Event::PathFencing { .. } | Event::SwitchNoticed { .. } | Event::Failover { .. })
        };
        let of = |pe: u32| {
            let events = self.agents[pe as usize].events.borrow();
            let said = events.iter().filter(|told| told.event.level() >= Level::Warn || begins(&told.event));
            said.map(|told| format!("agent of PE {pe}: {}", told.event)).collect::<Vec<_>>()
        };
        (0..self.spec.pes).flat_map(of).collect()
    }

    /// Faults and how often each hit: of NICs in the order of planning, then of PEs.
    pub fn faults(&self) -> Vec<(Injection, u64)> {
        let of_nic = |report: FaultReport| {
            let (pe, rail) = (report.at.pe, Some(report.at.rail));
            let at_ns = report.at_ns.saturating_sub(self.began_ns);
            (Injection { at_ns, pe, rail, fault: Fault::Nic(report.kind) }, report.hits)
        };
        let nics = self.fabric.with(|fabric| fabric.faults());
        nics.into_iter().map(of_nic).chain(self.pe_faults.hits()).collect()
    }

    /// Counters of a NIC.
    pub fn counters(&self, pe: u32, rail: u32) -> Counters {
        self.fabric.with(|fabric| {
            let id = fabric.find(RailAt { pe, rail }).expect("a rail of the cluster");
            fabric.nic(id).counters()
        })
    }

    /// What a NIC answers to QUERY_QP.
    pub fn query_qp(&self, pe: u32, rail: u32, qpn: u32) -> Vec<u8> {
        let mailbox = short_in(Opcode::QueryQp, qpn);
        let nic = self.fabric.with(|fabric| fabric.find(RailAt { pe, rail })).expect("a rail of the cluster");
        let now = self.sim.now();
        let id = self.fabric.with(|fabric| fabric.nic(nic).command_submit(now, &mailbox, QUERY_OUT_BYTES));
        loop {
            self.sim.run_for(1_000_000);
            let now = self.sim.now();
            if let Some(answer) = self.fabric.with(|fabric| fabric.nic(nic).command_poll(now, id)) {
                return answer;
            }
        }
    }

    /// Counts every placement on a heap word of `pe` from now on.
    pub fn watch(&self, pe: u32, offset: u64) {
        let address = self.pe(pe).heap().address + offset;
        self.fabric.with(|fabric| fabric.watch_word(address));
    }

    /// What was counted on a watched word.
    pub fn watched(&self, pe: u32, offset: u64) -> WordWatch {
        let address = self.pe(pe).heap().address + offset;
        self.fabric.with(|fabric| fabric.watched(address))
    }
}
