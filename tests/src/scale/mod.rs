//! One PE with very many peers, and the NIC under its primaries dies: how long until every channel is open again.
//!
//! The centre runs everything: its own NICs, its agent with a worker a NIC, kernels that wait. Each far PE has NICs of
//! its own with their firmware, and an agent with its workers; it holds the rows of one peer and runs no kernel.

pub mod plot;
mod star;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_device::{Deadline, HeapOffset, Put, Signal, Solo, StallDetector, Ticket};
use shunt_host::agent::endpoint::Half;
use shunt_host::agent::path::PathMachine;
use shunt_host::agent::words::Place;
use shunt_host::agent::{Agent, AgentOptions};
use shunt_host::config::EnvConfig;
use shunt_host::connect::oob::{LATENCY_NS, OobNet};
use shunt_host::devx::Devx;
use shunt_host::events::{Event, Told};
use shunt_host::gpu::HeapMemory;
use shunt_host::pe::{Bringup, Pe, PeConfig};
use shunt_host::plan::Shape;
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::state::{SwitchKind, SwitchRecord};
use shunt_soft_devx::SoftDevx;
use shunt_soft_nic::{Fabric, FabricConfig, FaultKind, NicConfig, NicId, RailAt, SharedFabric, SoftNic};

use crate::clockwork::{Bells, FabricClock};
use crate::cluster::LINK_NS;
use crate::kernel::Kernel;
use crate::oracle::{Oracle, load, store};
use crate::sim::{
    ActorOptions, Interference, PeWorld, Sim, SimConfig, SimCrew, SimWorld, Task, thread_cpu_ns,
};
use crate::traffic::SLICE_NS;
use shunt_host::agent::health::Health;
use star::{Mailbag, Star, StarOob};

const HEAP_BYTES: u64 = 64 << 10;
/// A put's payload, and where it lies: at the centre in one of 64 places, at every far PE in the first.
const BYTES: u64 = 64;
const DATA: u64 = 4096;
const PLACES: u64 = 64;
/// Where the signals of the centre lie at a far PE, a word a channel.
const SIGNAL: u64 = 512;
/// Where those of the far PEs lie at the centre, a word a row.
const SIGNAL_BACK: u64 = 16 << 10;
/// Signals before the fault and after it, by channel.
const BEFORE: u64 = 2;
const AFTER: u64 = 4;
const LOG_DEPTH: u32 = 6;
/// Kernels of the centre: each looks after its share of the channels, as warps that wait for tokens do.
const WARPS: u32 = 32;
/// A command without an answer for this long counts as unanswered.
const COMMAND_TIMEOUT_NS: u64 = 20_000_000;
/// While everything is made, commands take this long: it is not what is measured.
const BRING_UP_NS: u64 = 100;
const AGENT_NS: u64 = 10_000;

/// What is done to the NIC of the primaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// Its port goes down: it answers commands, one after the other.
    Port,
    /// It answers nothing any more.
    Nic,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct ScaleSpec {
    /// Peers of the centre.
    pub peers: u32,
    /// Channels to each of them.
    pub channels: u32,
    /// The far PEs send as well, as much on every channel: both ends of each pair have work outstanding at the fault.
    pub both_ways: bool,
    /// So many of them are sent something only later, one after the other; all others at the fault.
    pub late: u32,
    /// From one late one to the next.
    pub pace_ns: u64,
    /// Backups of a channel: a rail each.
    pub backups: u32,
    /// Time of a firmware command.
    pub firmware_ns: u64,
    /// What happens.
    pub hit: Hit,
    /// Seed.
    pub seed: u64,
    /// How long a run may take in virtual time.
    pub time_limit_ns: u64,
}

impl ScaleSpec {
    /// All of them at once, two backups each.
    pub fn new(peers: u32, firmware_ns: u64, hit: Hit) -> Self {
        let time_limit_ns = 600_000_000_000;
        let (channels, both_ways) = (1, false);
        let (late, pace_ns, backups, seed) = (0, 0, 2, 1);
        Self { peers, channels, both_ways, late, pace_ns, backups, firmware_ns, hit, seed, time_limit_ns }
    }

    /// Two ports, each of which carries 1,536 pairs with work in both directions, 24 to each of 64 peers: one goes
    /// down.
    pub fn mass(firmware_ns: u64) -> Self {
        Self { channels: 48, both_ways: true, backups: 1, ..Self::new(64, firmware_ns, Hit::Port) }
    }

    /// Rows of a far PE or of the centre's first peer: those before are of the centre itself.
    fn rows(&self) -> std::ops::Range<u32> {
        self.channels..(self.peers + 1) * self.channels
    }

    fn rails(&self) -> u32 {
        self.backups + 1
    }

    fn nic(&self, pe: u32, rail: u32) -> NicId {
        NicId(pe * self.rails() + rail)
    }
}

/// What came of it. Times from the fault, in nanoseconds, by channel in order of opening.
#[derive(Clone, Debug)]
pub struct ScaleOutcome {
    /// The run.
    pub spec: ScaleSpec,
    /// From the fault to the instant at which each channel that was switched was open again.
    pub opened_ns: Vec<u64>,
    /// The same of the far PEs' channels, if they send.
    pub far_opened_ns: Vec<u64>,
    /// Fences that a switcher of the centre asked for, in the order in which they were asked.
    pub fences: Vec<Fence>,
    /// From the fault until everything posted was done.
    pub all_done_ns: u64,
    /// Commands that the NIC which failed executed after the fault.
    pub own: Commands,
    /// The same of all other NICs together.
    pub others: Commands,
    /// The most that one NIC of a peer executed.
    pub most_of_one: u64,
    /// 2ERR that the NIC had executed once it had nothing more to do for the pairs.
    pub stopped: u64,
    /// CPU time of the run, bring-up included.
    pub cpu_ns: u64,
    /// Control memory of the centre, by peer: what lies in GPU-visible memory.
    pub control_bytes_per_peer: u64,
    /// Memory of the agent, by peer.
    pub agent_bytes_per_peer: u64,
    /// Messages between agents after the fault.
    pub messages: u64,
    /// Scheduling steps.
    pub steps: u64,
    /// Fences of the centre that ended without a truth.
    pub without_truth: u64,
}

/// Firmware commands by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// 2ERR_QP.
    pub errors: u64,
    /// QUERY_QP.
    pub queries: u64,
    /// All else.
    pub rest: u64,
}

impl Commands {
    /// All of them.
    pub fn all(self) -> u64 {
        self.errors + self.queries + self.rest
    }

    fn of(by_opcode: &BTreeMap<u16, u64>) -> Self {
        let of = |opcode: Opcode| by_opcode.get(&(opcode as u16)).copied().unwrap_or(0);
        let (errors, queries) = (of(Opcode::Qp2Err), of(Opcode::QueryQp));
        Self { errors, queries, rest: by_opcode.values().sum::<u64>() - errors - queries }
    }

    fn less(self, before: Self) -> Self {
        Self {
            errors: self.errors - before.errors,
            queries: self.queries - before.queries,
            rest: self.rest - before.rest,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            errors: self.errors + other.errors,
            queries: self.queries + other.queries,
            rest: self.rest + other.rest,
        }
    }
}

/// When the centre's agent was asked for the fence of a channel, and when it answered. From the fault on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// A switcher asked.
    pub asked_ns: u64,
    /// It was answered.
    pub answered_ns: u64,
}

impl ScaleOutcome {
    /// The most fences that one of them was overtaken by, and which: 0 if each had its turn. Who was asked for within
    /// `at_once_ns` was asked for at the same time.
    pub fn most_overtaken(&self, at_once_ns: u64) -> (usize, Option<Fence>) {
        let overtook = |other: &&Fence, one: &Fence| {
            other.asked_ns > one.asked_ns + at_once_ns && other.answered_ns < one.answered_ns
        };
        let count = |one: &Fence| self.fences.iter().filter(|other| overtook(other, one)).count();
        let all = self.fences.iter().map(|one| (count(one), Some(*one)));
        all.max_by_key(|(count, _)| *count).unwrap_or((0, None))
    }
}

struct Rig {
    sim: Sim,
    fabric: SharedFabric,
    oob: OobNet,
    bag: Arc<Mailbag>,
    clocks: Vec<Arc<PeWorld>>,
    pes: Vec<Rc<Pe>>,
    told: Rc<Heard>,
}

/// What the centre's agent has told.
#[derive(Default)]
struct Heard {
    records: RefCell<Vec<SwitchRecord>>,
    far_records: RefCell<Vec<SwitchRecord>>,
    events: RefCell<Vec<Told>>,
}

fn make_fabric(spec: &ScaleSpec) -> SharedFabric {
    let mut fabric = Fabric::new(FabricConfig { link_ns: LINK_NS, seed: spec.seed });
    for pe in 0..=spec.peers {
        for rail in 0..spec.rails() {
            let mut config = NicConfig::new(format!("mlx5_{rail}"), pe, rail);
            config.firmware_ns = BRING_UP_NS;
            let made = fabric.add(SoftNic::new(config), RailAt { pe, rail });
            assert_eq!(made, spec.nic(pe, rail));
        }
    }
    SharedFabric::new(fabric)
}

fn pe_config(spec: &ScaleSpec) -> PeConfig {
    let env = EnvConfig {
        backups: spec.backups,
        log_depth: LOG_DEPTH,
        channels_per_pe: spec.channels,
        fault_tolerance: true,
        ..EnvConfig::default()
    };
    let mut config = PeConfig::new(&env, HEAP_BYTES);
    config.rail.proof_atomics = 0; // what a NIC proves at start is no part of it
    config.bringup = Bringup::Sequential;
    config.backups_later = false;
    config
}

impl Rig {
    fn start(spec: &ScaleSpec) -> Self {
        let mut config = SimConfig::new(spec.seed);
        config.time_limit_ns = spec.time_limit_ns;
        config.step_limit = 4_000_000_000;
        let sim = Sim::new(config);
        let (fabric, bells) = (make_fabric(spec), Arc::new(Bells::default()));
        sim.drive(Rc::new(FabricClock::new(fabric.clone(), bells.clone())));
        let oob = OobNet::new(spec.peers + 1, LATENCY_NS, sim.world());
        let clock = |pe: u32| {
            let (bells, spec) = (bells.clone(), *spec);
            let bell = move || bells.ring((0..spec.rails()).map(|rail| spec.nic(pe, rail)));
            Arc::new(PeWorld::with_bell(sim.world(), Arc::new(bell)))
        };
        let clocks: Vec<_> = (0..=spec.peers).map(clock).collect();
        let (bag, told) = (Arc::default(), Rc::default());
        let mut rig = Self { sim, fabric, oob, bag, clocks, pes: Vec::new(), told };
        rig.start_pes(spec);
        rig.start_agents(spec);
        rig
    }

    fn start_pes(&mut self, spec: &ScaleSpec) {
        let star = Star::new(self.sim.world(), spec.peers + 1);
        let mut tasks: Vec<Task<Pe>> = Vec::new();
        for pe in 0..=spec.peers {
            let world = star::as_world(&self.clocks[pe as usize]);
            let rails: Vec<Arc<dyn Devx>> = (0..spec.rails())
                .map(|rail| {
                    let nic = spec.nic(pe, rail);
                    let devx = SoftDevx::new(self.fabric.clone(), nic, world.clone(), COMMAND_TIMEOUT_NS);
                    Arc::new(devx) as Arc<dyn Devx>
                })
                .collect();
            let end = Box::new(StarOob::new(self.oob.end(pe), self.bag.clone(), self.sim.world()));
            let (bootstrap, config) = (star.end(pe), pe_config(spec));
            tasks.push(self.sim.spawn(
                format!("pe{pe}.start"),
                ActorOptions::host(),
                move || match Pe::start(config, rails, Arc::new(HeapMemory::new()), &bootstrap, end, world) {
                    Ok(pe) => pe,
                    Err(error) => panic!("PE does not start: {error}"),
                },
            ));
        }
        self.pes = self.sim.finish_all(&tasks).into_iter().map(Rc::new).collect();
    }

    fn start_agents(&self, spec: &ScaleSpec) {
        let spec = *spec;
        for (pe, host) in (0..).zip(&self.pes) {
            let (host, world, bag) = (host.clone(), self.sim.world(), self.bag.clone());
            let told = self.told.clone();
            let body = move || match pe {
                0 => centre_agent(&host, &world, &told),
                far => far_agent(&host, &world, &bag, far, &spec, &told),
            };
            let agent = self.sim.spawn::<()>(format!("pe{pe}.agent"), ActorOptions::host(), body);
            if pe > 0 {
                self.bag.register(pe, agent.id());
            }
        }
    }

    fn kernel(&self, pe: usize) -> Kernel {
        Kernel {
            world: self.clocks[pe].clone(),
            state: self.pes[pe].state(),
            heap: self.pes[pe].heap().address,
            heaps: Rc::new(self.pes.iter().map(|pe| pe.heap().address).collect()),
            slice_ns: SLICE_NS,
            interference: Rc::new(Interference::random(0)),
            oracle: Oracle::default(),
            ledger_blocks: 1,
        }
    }

    /// Runs a kernel in each warp of the centre, and one in each far PE that sends; `body` gets who it is, and the rows
    /// that it looks after.
    fn warps(&self, spec: &ScaleSpec, body: impl Fn(&Kernel, Sender, &[u32]) + Clone + 'static) {
        let start = |pe: u32, warp: u32| {
            let (kernel, body) = (self.kernel(pe as usize), body.clone());
            let mine: Vec<u32> = match pe {
                0 => spec.rows().filter(|row| row % WARPS == warp).collect(),
                _ => (0..spec.channels).collect(),
            };
            // Each looks at all of its channels in one poll; with more of them it polls less often.
            let times = 1 + u64::from(spec.rows().end / 64);
            let (poll_ns, poll_max_ns) = (2_000 * times, 10_000 * times);
            let options = ActorOptions { poll_ns, poll_max_ns, ..ActorOptions::kernel() };
            let sender = Sender { pe, channels: spec.channels };
            self.sim.spawn(format!("pe{pe}.warp{warp}"), options, move || body(&kernel, sender, &mine))
        };
        let far = if spec.both_ways { spec.peers } else { 0 };
        let tasks: Vec<_> =
            (0..WARPS).map(|warp| start(0, warp)).chain((1..=far).map(|pe| start(pe, 0))).collect();
        self.sim.finish_all(&tasks);
    }

    /// Commands so far, by NIC: those of the centre first.
    fn commands(&self) -> Vec<Commands> {
        self.fabric.with(|fabric| {
            fabric.nics().map(|nic| Commands::of(fabric.nic(nic).commands_by_opcode())).collect()
        })
    }
}

fn start_agent(pe: &Pe, world: &Arc<SimWorld>, number: u32) -> Agent {
    let crew = SimCrew::new(world.clone(), number, |_| {});
    let agent = Agent::new(pe, AgentOptions::default(), &crew).expect("the state that was just uploaded");
    agent.expect("the first agent of this PE")
}

fn step(agent: &mut Agent, pe: &Pe) -> bool {
    let inputs = agent.inputs();
    let busy = agent.step(pe.world().now_ns().into(), inputs);
    agent.hand_on(pe.world().now_ns().into());
    busy
}

fn centre_agent(pe: &Pe, world: &Arc<SimWorld>, told: &Heard) {
    let mut agent = start_agent(pe, world, 0);
    loop {
        let busy = step(&mut agent, pe);
        told.records.borrow_mut().extend(agent.records().0);
        told.events.borrow_mut().extend(agent.take_events().0);
        world.sleep(if busy { AGENT_NS / 4 } else { AGENT_NS } + world.draw(AGENT_NS));
    }
}

/// The same loop, which sleeps where nothing can happen before a message comes.
fn far_agent(pe: &Pe, world: &Arc<SimWorld>, bag: &Mailbag, number: u32, spec: &ScaleSpec, told: &Heard) {
    let mut agent = start_agent(pe, world, number);
    let mut awake_ns = 0;
    loop {
        if step(&mut agent, pe) {
            // As long as what its NIC does now may take.
            awake_ns = world.now() + 10 * spec.firmware_ns;
        }
        agent.take_events();
        told.far_records.borrow_mut().extend(agent.records().0);
        let health = |channel, slot| agent.health(Place { peer: 0, channel, slot });
        let ready = (0..spec.channels)
            .all(|channel| (0..=spec.backups).all(|slot| health(channel, slot) == Some(Health::Ready)));
        let pause = match world.now() < awake_ns {
            true => AGENT_NS + world.draw(AGENT_NS),
            // It is asked by its own kernel, which sends no message.
            false if spec.both_ways => AGENT_NS,
            false if ready => 50_000_000,
            false => 2_000_000,
        };
        bag.sleep(world, number, pause);
    }
}

fn value(peer: u32) -> u64 {
    0x5151_0000_0000 + u64::from(peer) % PLACES
}

/// Who sends.
#[derive(Clone, Copy)]
struct Sender {
    pe: u32,
    channels: u32,
}

impl Sender {
    /// Of a row: where its data lies here, where it goes, and where its signal does. Every far PE sends the same to the
    /// centre, where nobody looks at it.
    fn places(self, row: u32) -> (u64, u64, u64) {
        let (peer, channel) = (u64::from(row / self.channels), u64::from(row % self.channels));
        match self.pe {
            0 => (DATA + peer % PLACES * BYTES, DATA, SIGNAL + 8 * channel),
            pe => {
                let word = u64::from(pe * self.channels) + channel;
                (DATA, SIGNAL_BACK / 2, SIGNAL_BACK + 8 * word)
            }
        }
    }
}

fn post(kernel: &Kernel, sender: Sender, row: u32, from: u64, count: u64) -> Option<Ticket> {
    let channel = kernel.device().channel(row / sender.channels, row % sender.channels);
    let (src, dst, signal) = sender.places(row);
    let mut last = None;
    for number in from + 1..=from + count {
        let put = Put { dst: HeapOffset(dst), src: HeapOffset(src), bytes: BYTES };
        let ticket = channel.put_signal_nbi(Solo, put, HeapOffset(signal), Signal::Monotone(number));
        last = Some(ticket.expect("a channel that lives, a heap that is large enough"));
    }
    last
}

/// Posts on each row when its time has come, and waits for all as a kernel does that looks after its channels in turn.
fn post_and_wait(
    kernel: &Kernel,
    sender: Sender,
    rows: &[u32],
    (from, count): (u64, u64),
    due_ns: impl Fn(u32) -> u64,
) {
    let device = kernel.device();
    let (mut later, mut open) = (rows.to_vec(), Vec::new());
    let at_once = Deadline::after(0, 0);
    while !later.is_empty() || !open.is_empty() {
        let now = kernel.world.now();
        later.retain(|row| {
            let due = due_ns(*row) <= now;
            if due && let Some(last) = post(kernel, sender, *row, from, count) {
                open.push((*row, last, StallDetector::new(now)));
            }
            !due
        });
        for (row, _, patience) in &mut open {
            device.attend_to(*row, patience);
        }
        open.retain(|(row, last, _)| {
            let channel = device.channel(row / sender.channels, row % sender.channels);
            channel.alive().expect("a channel with two backups");
            channel.wait(Solo, *last, at_once).is_err()
        });
        kernel.world.relax();
    }
}

/// Runs a spec: every channel recovers with everything there, or this panics.
pub fn run(spec: &ScaleSpec) -> ScaleOutcome {
    let cpu_ns = thread_cpu_ns();
    let rig = Rig::start(spec);
    let heap = rig.pes[0].heap().address;
    for place in 0..PLACES {
        (0..BYTES / 8).for_each(|word| store(heap + DATA + place * BYTES + word * 8, value(place as u32)));
    }
    rig.warps(spec, |kernel, sender, rows| post_and_wait(kernel, sender, rows, (0, BEFORE), |_| 0));
    rig.fabric.with(|fabric| {
        fabric.nics().for_each(|nic| fabric.nic(nic).set_firmware_ns(spec.firmware_ns));
    });
    let kind = match spec.hit {
        Hit::Port => FaultKind::Down { for_ns: None },
        Hit::Nic => FaultKind::NicGone { for_ns: None },
    };
    let (fault_ns, before, sent) = (rig.sim.now() + 100_000, rig.commands(), rig.oob.counts().0);
    rig.fabric.with(|fabric| fabric.plan(fault_ns, RailAt { pe: 0, rail: 0 }, kind));
    rig.sim.run_for(100_001);
    let (early, pace_ns) = (spec.peers - spec.late, spec.pace_ns);
    let due_ns = move |row: u32| fault_ns + u64::from(row.saturating_sub(early)) * pace_ns;
    rig.warps(spec, move |kernel, sender, rows| post_and_wait(kernel, sender, rows, (BEFORE, AFTER), due_ns));
    let all_done_ns = rig.sim.now() - fault_ns;
    // The agent gathers what the kernels have recorded.
    rig.sim.run_for(1_000_000);
    check(&rig, spec);
    let outcome = outcome(&rig, spec, (fault_ns, all_done_ns), &before, sent);
    if spec.both_ways {
        // What nobody waits for comes last: 2ERR and a query of each.
        rig.sim.run_for(2 * u64::from(spec.rows().end) * spec.firmware_ns);
    }
    let stopped = rig.commands()[0].less(before[0]).errors;
    ScaleOutcome { stopped, cpu_ns: thread_cpu_ns() - cpu_ns, ..outcome }
}

/// What was posted is there, everywhere, up to the last signal.
fn check(rig: &Rig, spec: &ScaleSpec) {
    for (peer, pe) in (0..).zip(&rig.pes).skip(1) {
        let heap = pe.heap().address;
        for channel in 0..u64::from(spec.channels) {
            assert_eq!(load(heap + SIGNAL + 8 * channel), BEFORE + AFTER, "signal {channel} at PE {peer}");
        }
        for word in 0..BYTES / 8 {
            assert_eq!(load(heap + DATA + word * 8), value(peer), "data at PE {peer}");
        }
    }
    for row in spec.rows().filter(|_| spec.both_ways) {
        let word = rig.pes[0].heap().address + SIGNAL_BACK + 8 * u64::from(row);
        assert_eq!(load(word), BEFORE + AFTER, "signal of row {row} at the centre");
    }
}

/// Fences that were asked for and answered.
fn fences(events: &[Told], fault_ns: u64) -> Vec<Fence> {
    let (mut asked, mut fences) = (BTreeMap::new(), Vec::new());
    for told in events.iter().filter(|told| told.at_ns >= fault_ns) {
        let at_ns = told.at_ns - fault_ns;
        match &told.event {
            Event::FenceAsked { at, .. } => {
                asked.entry((at.place.peer, at.place.channel)).or_insert(at_ns);
            }
            Event::FenceAnswered { at, .. } => {
                let asked_ns = asked.remove(&(at.place.peer, at.place.channel));
                fences.extend(asked_ns.map(|asked_ns| Fence { asked_ns, answered_ns: at_ns }));
            }
            _ => {}
        }
    }
    fences.sort_unstable();
    fences
}

fn outcome(
    rig: &Rig,
    spec: &ScaleSpec,
    (fault_ns, all_done_ns): (u64, u64),
    before: &[Commands],
    sent: u64,
) -> ScaleOutcome {
    let records = rig.told.records.borrow();
    let switches = records.iter().filter(|record| record.kind == SwitchKind::Failover as u32);
    let mut opened_ns: Vec<u64> = switches.clone().map(|record| record.stamps[5] - fault_ns).collect();
    opened_ns.sort_unstable();
    let far_records = rig.told.far_records.borrow();
    let far = far_records.iter().filter(|record| record.kind == SwitchKind::Failover as u32);
    let mut far_opened_ns: Vec<u64> = far.clone().map(|record| record.stamps[5] - fault_ns).collect();
    far_opened_ns.sort_unstable();
    let spent: Vec<Commands> = rig.commands().iter().zip(before).map(|(now, then)| now.less(*then)).collect();
    let shape = |pes| Shape { pes, ..rig.pes[0].plan().shape };
    let bytes = |pes| shape(pes).plan().bytes;
    let slots = u64::from(1 + spec.backups);
    ScaleOutcome {
        spec: *spec,
        opened_ns,
        far_opened_ns,
        fences: fences(&rig.told.events.borrow(), fault_ns),
        all_done_ns,
        own: spent[0],
        others: spent[1..].iter().fold(Commands::default(), |sum, one| sum.and(*one)),
        most_of_one: spent[spec.rails() as usize..].iter().map(|one| one.all()).max().unwrap_or(0),
        stopped: 0,
        cpu_ns: 0,
        control_bytes_per_peer: (bytes(2049) - bytes(1)) / 2048,
        agent_bytes_per_peer: slots * size_of::<Option<PathMachine<Half>>>() as u64,
        messages: rig.oob.counts().0 - sent,
        steps: rig.sim.steps(),
        without_truth: switches.chain(far).filter(|record| record.ledger != 0).count() as u64,
    }
}

/// The value at a share of a sorted list; 0 of an empty one.
pub fn quantile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
}
