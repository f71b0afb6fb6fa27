//! Rails and whole PEs on soft NICs, in real time: an engine thread, and a thread for each PE.

use shunt_device::platform::host::{Host, World};
use shunt_device::{Amo, Device};
use shunt_host::agent::command_queue::CommandQueue;
use shunt_host::agent::nic_job::{Job, JobId, Outcome, Urgency};
use shunt_host::agent::supervisor::Supervisor;
use shunt_host::agent::worker::{Crew, Threads, Worker};
use shunt_host::config::EnvConfig;
use shunt_host::connect::card::HalfCard;
use shunt_host::connect::{Bootstrap, InMemory, OobNet};
use shunt_host::devx::{Devx, MkeyShape, Neighbour, PortGid, PortReport, SubnetPort, UarPage};
use shunt_host::error::{BootstrapError, DevxError, NicError, StartError};
use shunt_host::events::{Sink, Told};
use shunt_host::gpu::{DmaBuf, GpuMemory, HeapMemory, OwnedSpan, Placement, Span, Split};
use shunt_host::nic::queue::Request;
use shunt_host::pe::{Bringup, Pe, PeConfig};
use shunt_host::rail::{FetchError, FetchPatience, HeapShape, Rail, RailOptions};
use shunt_layout::mlx5::prm::cmd::{self, Opcode};
use shunt_layout::mlx5::prm::qp::{self, State};
use shunt_layout::state::OrderPolicy;
use shunt_soft_devx::{SoftClock, SoftDevx};
use shunt_soft_nic::profile::Ece;
use shunt_soft_nic::{
    AtomicCount, Clock, Engine, Fabric, FabricConfig, FaultKind, LinkLayer, NicConfig, NicId, RailAt,
    SharedFabric, SoftNic,
};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Commands are quick here: these tests are not about their latency.
const FIRMWARE_NS: u64 = 1_000;
const PATIENT_NS: u64 = 30_000_000_000;

/// Soft NICs under an engine. The engine stops with it.
struct Machine {
    world: Arc<dyn World>,
    fabric: SharedFabric,
    nics: Vec<Vec<NicId>>,
}

impl Machine {
    fn new(pes: u32, rails: u32, change: impl Fn(&mut NicConfig)) -> Self {
        let mut fabric = Fabric::new(FabricConfig::default());
        let nics = (0..pes)
            .map(|pe| {
                (0..rails)
                    .map(|rail| {
                        let mut config = NicConfig::new(format!("mlx5_{rail}"), pe, rail);
                        config.firmware_ns = FIRMWARE_NS;
                        change(&mut config);
                        fabric.add(SoftNic::new(config), RailAt { pe, rail })
                    })
                    .collect()
            })
            .collect();
        let clock = Clock::new();
        let engine = Arc::new(Engine::spawn(fabric, clock));
        let fabric = engine.fabric();
        Self { world: Arc::new(SoftClock::new(clock, engine)), fabric, nics }
    }

    fn devx(&self, pe: u32, rail: u32, timeout_ns: u64) -> Arc<dyn Devx> {
        let nic = self.nics[pe as usize][rail as usize];
        Arc::new(SoftDevx::new(self.fabric.clone(), nic, self.world.clone(), timeout_ns))
    }

    /// Commands of all NICs so far.
    fn commands(&self) -> u64 {
        let all = self.nics.iter().flatten();
        self.fabric.with(|fabric| all.map(|nic| fabric.nic(*nic).counters().commands).sum())
    }

    fn devices(&self, pe: u32) -> Vec<Arc<dyn Devx>> {
        (0..self.nics[pe as usize].len() as u32).map(|rail| self.devx(pe, rail, PATIENT_NS)).collect()
    }

    fn rail(&self, rail: u32) -> Rail {
        let options = RailOptions { flush_ns: PATIENT_NS, startup_ns: PATIENT_NS, ..RailOptions::default() };
        Rail::open(self.devx(0, rail, PATIENT_NS), rail, options, self.world.clone()).unwrap()
    }

    fn inject(&self, pe: u32, rail: u32, fault: &str) {
        let kind: FaultKind = fault.parse().unwrap();
        self.fabric.with(|fabric| fabric.plan(0, RailAt { pe, rail }, kind));
    }
}

fn heap_memory() -> Arc<dyn GpuMemory> {
    Arc::new(HeapMemory::new())
}

fn infiniband(config: &mut NicConfig) {
    config.link_layer = LinkLayer::InfiniBand;
}

#[test]
fn an_honest_nic_proves_its_truth() {
    for change in [|_: &mut NicConfig| {}, infiniband] {
        let machine = Machine::new(1, 2, change);
        for index in 0..2 {
            let proof = machine.rail(index).prove_truth().unwrap();
            assert!(proof.holds, "{}", proof.detail);
        }
    }
}

/// A NIC that is disbelieved stays so: that its host was too busy for a flush in time is no reason.
#[test]
fn a_proof_waits_longer_than_a_flush() {
    let machine = Machine::new(1, 1, |_| {});
    let options = RailOptions { flush_ns: 1, startup_ns: PATIENT_NS, ..RailOptions::default() };
    let mut rail = Rail::open(machine.devx(0, 0, PATIENT_NS), 0, options, machine.world.clone()).unwrap();
    rail.settle_truth();
    assert!(rail.truth_holds, "{}", rail.truth_detail);
}

#[test]
fn a_nic_that_forgets_its_count_is_found() {
    let machine = Machine::new(1, 1, |config| config.quirks.rmsn_cleared_by_2err = true);
    let mut rail = machine.rail(0);
    rail.settle_truth();
    assert!(!rail.truth_holds);
    assert!(rail.truth_detail.contains("does not survive 2ERR: 6 before, 0 after"), "{}", rail.truth_detail);
}

#[test]
fn atomics_are_proved_executed_and_counted_once() {
    for gap_ns in [0, 5_000] {
        let machine = Machine::new(1, 1, |config| config.quirks.atomic_gap_ns = gap_ns);
        let proof = machine.rail(0).prove_truth().unwrap();
        assert!(proof.holds, "{}", proof.detail);
        assert!(proof.detail.contains("7 atomics without answers counted once each"), "{}", proof.detail);
        let shown = ["of 360 atomics 2ERR left ", "360 atomics counted, none of them under way"];
        assert!(shown.iter().any(|words| proof.detail.contains(words)), "{}", proof.detail);
        // Slow ones are under way for certain.
        assert!(gap_ns == 0 || proof.detail.contains(shown[0]), "{}", proof.detail);
    }
}

/// A host that is not run for a while after each doorbell.
struct Halting(Arc<dyn World>);

impl World for Halting {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
    fn relax(&self) {
        self.0.relax();
    }
    fn doorbell(&self) {
        self.0.doorbell();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Between two of its atomics the requester gives up by itself, and what was not posted by then is not executed: that
/// says nothing of the NIC's count.
#[test]
fn a_proof_of_a_busy_host_is_tried_again() {
    let machine = Machine::new(1, 1, |_| {});
    let world = Arc::new(Halting(machine.world.clone()));
    let options = RailOptions { startup_ns: PATIENT_NS, ..RailOptions::default() };
    let mut rail = Rail::open(machine.devx(0, 0, PATIENT_NS), 0, options, world).unwrap();
    rail.settle_truth();
    let detail = &rail.truth_detail;
    assert!(rail.truth_holds && detail.contains("7 atomics without answers counted once each"), "{detail}");
}

#[test]
fn a_nic_that_miscounts_atomics_is_found() {
    type Lie = fn(&mut NicConfig);
    let lies: [(Lie, &str); 3] = [
        (
            |config| config.quirks.atomic_count = AtomicCount::Left,
            "rmsn counts 0 atomics, 7 of 7 were executed",
        ),
        (|config| config.quirks.atomic_count = AtomicCount::Again, "atomics, 7 of 7 were executed"),
        (accepted_and_dropped, "atomics under way when their responder is moved to ERR: rmsn counts "),
    ];
    for (lie, words) in lies {
        let machine = Machine::new(1, 1, lie);
        let mut rail = machine.rail(0);
        rail.settle_truth();
        assert!(!rail.truth_holds && rail.truth_detail.contains(words), "{words}: {}", rail.truth_detail);
    }
}

/// With 5 us for each atomic 2ERR came on a busy machine, in one of five runs, when all that was accepted was executed:
/// then nothing is there to be found.
fn accepted_and_dropped(config: &mut NicConfig) {
    (config.quirks.atomic_count, config.quirks.atomic_gap_ns) = (AtomicCount::Accepted, 100_000);
}

/// A NIC whose driver's code panics once, when the trap is set, and whose answers may be bent.
struct Snare(Arc<dyn Devx>, AtomicBool, Bend);

/// Changes the answer to a command.
type Bend = fn(&[u8], &mut [u8]);

impl Snare {
    fn spring(&self) {
        assert!(!self.1.swap(false, Ordering::AcqRel), "trapped");
    }
}

impl Devx for Snare {
    fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), DevxError> {
        self.spring();
        self.0.command(input, output)?;
        self.2(input, output);
        Ok(())
    }
    fn gid(&self, index: u32) -> Result<Option<PortGid>, DevxError> {
        self.spring();
        self.0.gid(index)
    }
    fn name(&self) -> String {
        self.0.name()
    }
    unsafe fn register_umem(&self, span: Span, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.register_umem(span, dmabuf) }
    }
    fn deregister_umem(&self, id: u32) -> Result<(), DevxError> {
        self.0.deregister_umem(id)
    }
    fn alloc_pd(&self) -> Result<u32, DevxError> {
        self.0.alloc_pd()
    }
    fn dealloc_pd(&self, pd: u32) -> Result<(), DevxError> {
        self.0.dealloc_pd(pd)
    }
    fn keys_need_umem(&self) -> bool {
        self.0.keys_need_umem()
    }
    unsafe fn create_key(&self, shape: &MkeyShape, dmabuf: Option<DmaBuf>) -> Result<u32, DevxError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.create_key(shape, dmabuf) }
    }
    fn destroy_key(&self, key: u32) -> Result<(), DevxError> {
        self.0.destroy_key(key)
    }
    fn map_uar(&self) -> Result<UarPage, DevxError> {
        self.0.map_uar()
    }
    fn free_uar(&self, id: u32) {
        self.0.free_uar(id);
    }
    fn query_eqn(&self) -> Result<u32, DevxError> {
        self.0.query_eqn()
    }
    fn port(&self) -> Result<Option<PortReport>, DevxError> {
        self.0.port()
    }
    fn subnet(&self) -> Result<SubnetPort, DevxError> {
        self.0.subnet()
    }
    fn resolve_mac(&self, pd: u32, neighbour: &Neighbour) -> Result<Option<[u8; 6]>, DevxError> {
        self.0.resolve_mac(pd, neighbour)
    }
    fn next_event(&self) -> Result<Option<[u8; 64]>, DevxError> {
        self.0.next_event()
    }
}

/// A panic of a worker ends one job, with an error that says so; the next ones are done.
#[test]
fn a_worker_that_panics_ends_its_job_and_goes_on() {
    let machine = Machine::new(1, 1, |_| {});
    let trap = Arc::new(Snare(machine.devx(0, 0, PATIENT_NS), AtomicBool::new(false), |_, _| {}));
    let rail = Rail::open(trap.clone(), 0, RailOptions::default(), machine.world.clone()).unwrap();
    let desk = Arc::new(CommandQueue::default());
    let hand = Threads.hire("nic 0".into(), Worker::new(Arc::new(rail), desk.clone(), machine.world.clone()));
    trap.1.store(true, Ordering::Release);
    desk.submit(Urgency::Idle, JobId { number: 1, about: 0 }, Job::AskAddress);
    desk.submit(Urgency::Idle, JobId { number: 2, about: 0 }, Job::AskAddress);
    hand.wake();
    let since = machine.world.now_ns();
    let done = || loop {
        match desk.next_done() {
            Some((id, Outcome::Address(result))) => return (id.number, result),
            Some(_) => panic!("an outcome of something else"),
            None => assert!(machine.world.now_ns() - since < PATIENT_NS, "the worker goes on"),
        }
    };
    let said = "trapped".to_owned();
    assert_eq!(done(), (1, Err(NicError::Panicked { nic: "mlx5_0".into(), said })));
    assert_eq!(done(), (2, Ok(())));
    desk.close();
    hand.wake();
}

#[test]
fn keys_follow_the_chunks_of_the_heap() {
    let machine = Machine::new(1, 1, |_| {});
    let memory = heap_memory();
    let heap = OwnedSpan::alloc(&memory, 3 * 4096 + 100, Placement::Heap).unwrap();
    let mut rail = machine.rail(0);
    rail.register_heap(&heap, HeapShape::whole(12)).unwrap();
    let mut keys = rail.heap_keys();
    assert_eq!(keys.len(), 4);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 4, "each chunk has a key of its own");
}

#[test]
fn flushes_work_with_the_port_down() {
    let machine = Machine::new(1, 1, |_| {});
    let memory = heap_memory();
    let heap = OwnedSpan::alloc(&memory, 4096, Placement::Heap).unwrap();
    let mut rail = machine.rail(0);
    rail.register_heap(&heap, HeapShape::whole(12)).unwrap();
    assert!(rail.port_up().unwrap());
    machine.inject(0, 0, "down");
    let since = machine.world.now_ns();
    while rail.port_up().unwrap() {
        assert!(machine.world.now_ns() - since < PATIENT_NS, "the port goes down");
    }
    // More than one ring round, so that both passes of the owner bit are seen.
    for _ in 0..40 {
        rail.flush().unwrap();
    }
}

/// A read of one memory says nothing of what is under way to another.
#[test]
fn a_flush_reads_every_memory_of_the_heap() {
    let machine = Machine::new(1, 1, |_| {});
    let memory = heap_memory();
    let wqes = || machine.fabric.with(|fabric| fabric.nic(machine.nics[0][0]).counters().wqes);
    let posted = |split: Option<Split>, late| {
        let heap = OwnedSpan::alloc_heap(&memory, 5 * 4096, split).unwrap();
        let mut rail = machine.rail(0);
        rail.register_heap(&heap, HeapShape { log2_chunk: 12, split, late }).unwrap();
        let before = wqes();
        rail.flush().unwrap();
        wqes() - before
    };
    let split = Split::new(2 * 4096 - 8, 12);
    assert_eq!([posted(None, 0), posted(None, 2), posted(Some(split), 0)], [1, 1, 2]);
    assert_eq!(posted(Some(split), 1), 2, "its second chunk has a key");
    assert_eq!(
        posted(Some(split), 2),
        1,
        "no key leads to the device's memory, so no write is under way to it"
    );
}

#[test]
fn a_dead_nic_ends_every_wait() {
    let machine = Machine::new(1, 1, |_| {});
    let options = RailOptions { flush_ns: 50_000_000, ..RailOptions::default() };
    let devx = machine.devx(0, 0, 50_000_000);
    let rail = Rail::open(devx, 0, options, machine.world.clone()).unwrap();
    rail.flush().unwrap();
    machine.inject(0, 0, "nic-gone");
    let lost = rail.flush().unwrap_err();
    assert!(matches!(lost, NicError::Overdue { .. } | NicError::Completion { .. }), "{lost}");
    let dead = rail.flush().unwrap_err();
    assert!(matches!(dead, NicError::Devx(DevxError::Timeout { .. })), "{dead}");
    assert!(!rail.devx.responsive());
    assert!(matches!(rail.prove_truth(), Err(NicError::Devx(DevxError::Timeout { .. }))));
}

fn config(bringup: Bringup) -> PeConfig {
    let env = EnvConfig { backups: 3, log_depth: 5, fault_tolerance: true, ..EnvConfig::default() };
    let rail = RailOptions { flush_ns: PATIENT_NS, startup_ns: PATIENT_NS, ..RailOptions::default() };
    PeConfig { log2_chunk: 14, rail, bringup, backups_later: false, ..PeConfig::new(&env, 40_000) }
}

/// Starts one PE on its thread; `f` works with it.
fn with_pes(
    machine: &Machine,
    pes: u32,
    config: &(dyn Fn(u32) -> PeConfig + Sync),
    f: impl Fn(&Pe, &InMemory) + Sync,
) {
    let oob = OobNet::new(pes, 30_000, machine.world.clone());
    let group = InMemory::group(pes, &machine.world).into_iter().map(|m| m.with_patience(PATIENT_NS));
    let group: Vec<_> = group.collect();
    std::thread::scope(|scope| {
        for member in &group {
            let (f, oob) = (&f, &oob);
            scope.spawn(move || {
                let rank = member.rank();
                let end = Box::new(oob.end(rank));
                let (rails, world) = (machine.devices(rank), machine.world.clone());
                let pe = Pe::start(config(rank), rails, heap_memory(), member, end, world).unwrap();
                f(&pe, member);
                // Nobody takes its memory away while others may still write to it.
                member.all_gather(&[]).unwrap();
            });
        }
    });
}

/// Bring-up makes the first path of each channel and leaves the rest to the agents, for fewer commands.
#[test]
fn backups_may_be_left_to_the_agents() {
    let commands = |backups_later| {
        let machine = Machine::new(2, 2, |_| {});
        let config = |_| PeConfig { backups_later, ..config(Bringup::Sequential) };
        with_pes(&machine, 2, &config, |pe, group| {
            let resources = pe.take_agent_resources().unwrap();
            for channel in resources.channels.iter().filter(|channel| channel.peer != group.rank()) {
                let made: Vec<bool> = channel.slots.iter().map(|slot| slot.half.is_some()).collect();
                assert_eq!(made, [true, !backups_later, !backups_later, !backups_later]);
            }
        });
        machine.commands()
    };
    let (all, first) = (commands(false), commands(true));
    // Three further halves at each end, each with a queue pair and its completion queues to make and connect.
    assert!(first + 2 * 3 * 5 <= all, "{first} commands with backups left out, {all} with all");
}

/// Every slot of every channel carries one empty message and one word into the peer's heap.
fn use_every_slot(pe: &Pe, group: &InMemory) {
    let world = &**pe.world();
    // SAFETY: the state lives as long as `pe`.
    unsafe { Device::attach(pe.state(), Host::new(world)) }.map(drop).expect("device code takes the state");
    let resources = pe.take_agent_resources().unwrap();
    assert!(pe.take_agent_resources().is_none());
    let word = |peer: u32, channel: u32, slot: u64| 0xfeed_0000 + u64::from(peer * 100 + channel * 10) + slot;
    // Round the border of the first two chunks, so that both keys are used.
    let place =
        |me: u32, channel: u32, slot: u64| u64::from(me * 16 + channel * 8) * 8 + slot * 8 + 16_384 - 64;
    let me = group.rank();
    for channel in resources.channels.iter().filter(|channel| channel.peer != me) {
        assert_eq!(channel.slots.len(), 4, "both rails crossed");
        for (path, slot) in channel.slots.iter().zip(0..) {
            let offset = place(me, channel.index, slot);
            let rkey = pe.keys().rkey(channel.peer, path.remote_rail, offset).unwrap();
            // SAFETY: no device code runs here, and the half outlives the producer.
            let mut producer = unsafe { path.half.as_ref().unwrap().producer() };
            producer.post(world, Request::WriteNothing);
            producer.post(
                world,
                Request::WriteInline {
                    value: word(channel.peer, channel.index, slot),
                    remote: pe.peers()[channel.peer as usize].heap_base + offset,
                    rkey_be: rkey.to_be(),
                },
            );
            producer.wait_all(world, PATIENT_NS).unwrap();
        }
    }
    group.all_gather(&[]).unwrap();
    pe.rails().iter().for_each(|rail| rail.flush().unwrap());
    for channel in resources.channels.iter().filter(|channel| channel.peer != me) {
        for (path, slot) in channel.slots.iter().zip(0..) {
            let mut met = [0; 8];
            pe.memory().read(pe.heap().address + place(channel.peer, channel.index, slot), &mut met).unwrap();
            assert_eq!(u64::from_le_bytes(met), word(me, channel.index, slot), "slot {slot}");
            let half = path.half.as_ref().unwrap();
            let truth = half.query().unwrap();
            assert_eq!((truth.state, truth.rmsn), (Some(State::Rts), 2));
            half.to_error().unwrap();
            let truth = half.query().unwrap();
            let psn = path.remote.unwrap().psn.wrapping_add(2) & 0xff_ffff;
            assert_eq!((truth.state, truth.rmsn, truth.next_rcv_psn), (Some(State::Err), 2, psn));
        }
    }
    assert!(pe.rails().iter().all(|rail| rail.truth_holds));
}

/// What the program has not reached is not pinned, and no key leads there.
#[test]
fn chunks_get_their_keys_when_all_pes_reach_them() {
    let machine = Machine::new(2, 2, |_| {});
    let config = |_| PeConfig { late_chunks: 2, ..config(Bringup::Parallel) };
    with_pes(&machine, 2, &config, |pe, group| {
        let uploaded = || {
            let mut key = [0; 12];
            pe.memory().read(pe.root().lkeys, &mut key).unwrap();
            key.as_chunks::<4>().0.iter().map(|key| u32::from_be_bytes(*key)).collect::<Vec<_>>()
        };
        let known = |chunk: u64| {
            (0..2).map(|peer| pe.keys().rkey(peer, 1, chunk << 14).is_some()).collect::<Vec<_>>()
        };
        assert_eq!([known(0), known(1), known(2)], [[false; 2], [false; 2], [true; 2]]);
        let last = uploaded()[2];
        assert!(uploaded()[..2] == [0, 0] && last != 0);
        pe.reach(10, group).unwrap();
        assert_eq!([known(0), known(1)], [[true; 2], [false; 2]]);
        let first = uploaded()[0];
        assert!(first != 0 && uploaded()[1] == 0);
        let commands = machine.commands();
        pe.reach(1 << 14, group).unwrap();
        assert_eq!(machine.commands(), commands, "it is there");
        group.all_gather(&[]).unwrap();
        pe.reach(40_000, group).unwrap();
        assert!(uploaded()[0] == first && uploaded()[1] != 0 && uploaded()[2] == last);
        use_every_slot(pe, group);
    });
}

#[test]
fn two_pes_reach_each_other_over_every_slot() {
    for (bringup, change) in [
        (Bringup::Parallel, (|_| {}) as fn(&mut NicConfig)),
        (Bringup::Sequential, infiniband as fn(&mut NicConfig)),
    ] {
        let machine = Machine::new(2, 2, change);
        with_pes(&machine, 2, &|_| config(bringup), use_every_slot);
    }
}

#[test]
fn three_pes_reach_each_other_over_every_slot() {
    let machine = Machine::new(3, 2, |_| {});
    with_pes(&machine, 3, &|_| config(Bringup::Sequential), use_every_slot);
}

/// A member that notes how many bytes it is given in each round.
struct Weighed {
    member: InMemory,
    taken: Mutex<Vec<usize>>,
}

impl Weighed {
    fn weigh(&self, given: &[Vec<u8>]) {
        self.taken.lock().unwrap().push(given.iter().map(Vec::len).sum());
    }
}

impl Bootstrap for Weighed {
    fn rank(&self) -> u32 {
        self.member.rank()
    }

    fn size(&self) -> u32 {
        self.member.size()
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.member.all_gather(mine).inspect(|all| self.weigh(all))
    }

    fn all_gather_within(&self, mine: &[u8], patience_ns: u64) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.member.all_gather_within(mine, patience_ns).inspect(|all| self.weigh(all))
    }

    fn exchange(&self, rows: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.member.exchange(rows).inspect(|all| self.weigh(all))
    }
}

#[test]
fn a_pe_is_told_of_the_halves_that_lead_to_it_and_of_no_others() {
    // A table's head and count, and for each half whether it is there and the card without a head of its own.
    const HEAD: usize = 12;
    const HALF: usize = 1 + HalfCard::BYTES - 8;
    let pes = 4;
    let machine = Machine::new(pes, 1, |_| {});
    let oob = OobNet::new(pes, 30_000, machine.world.clone());
    let group: Vec<_> = InMemory::group(pes, &machine.world)
        .into_iter()
        .map(|member| Weighed { member: member.with_patience(PATIENT_NS), taken: Mutex::default() })
        .collect();
    std::thread::scope(|scope| {
        for member in &group {
            let (machine, oob) = (&machine, &oob);
            scope.spawn(move || {
                let rank = member.rank();
                let config = PeConfig { channels_per_pe: 3, ..config(Bringup::Sequential) };
                let (end, world) = (Box::new(oob.end(rank)), machine.world.clone());
                let pe = Pe::start(config, machine.devices(rank), heap_memory(), member, end, world).unwrap();
                let shape = &pe.plan().shape;
                let row = (shape.channels_per_pe * shape.slots) as usize;
                let halves: usize = (pes as usize - 1) * (HEAD + row * HALF) + HEAD + row;
                // Cards, halves, and the word that all listen.
                let taken = member.taken.lock().unwrap().clone();
                assert_eq!((taken.len(), taken[1], taken[2]), (3, halves, 0));
                member.all_gather(&[]).unwrap();
            });
        }
    });
}

#[test]
fn pes_that_disagree_do_not_start() {
    let machine = Machine::new(2, 1, |_| {});
    let oob = OobNet::new(2, 30_000, machine.world.clone());
    let group = InMemory::group(2, &machine.world);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = group
            .iter()
            .map(|member| {
                let (machine, oob) = (&machine, &oob);
                scope.spawn(move || {
                    let rank = member.rank();
                    let config = PeConfig { log_depth: 5 + rank, ..config(Bringup::Sequential) };
                    let end = Box::new(oob.end(rank));
                    let (rails, world) = (machine.devices(rank), machine.world.clone());
                    Pe::start(config, rails, heap_memory(), member, end, world).map(drop)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let what = "log2 of the ring depth";
    assert_eq!(answers[0], Err(StartError::Disagree { what, pe: 1, theirs: 6, mine: 5 }));
    assert_eq!(answers[1], Err(StartError::Disagree { what, pe: 0, theirs: 5, mine: 6 }));
}

/// Hears what an agent tells, and panics at its first word.
struct Trap(Arc<Mutex<Vec<&'static str>>>);

impl Sink for Trap {
    fn tell(&mut self, told: &Told) {
        self.0.lock().unwrap().push(told.event.name());
        assert_ne!(told.event.name(), "agent_started", "a bug of an agent");
    }
}

#[test]
fn an_agent_that_panics_is_followed_by_another() {
    let machine = Machine::new(2, 1, |_| {});
    with_pes(&machine, 2, &|_| config(Bringup::Sequential), |pe, group| {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut agent = pe.agent().unwrap().unwrap();
        assert!(pe.agent().unwrap().is_none(), "a PE has one at a time");
        agent.add_sink(Box::new(Trap(heard.clone())));
        let mut supervisor = Supervisor::new(agent);
        let until_ns = machine.world.now_ns() + PATIENT_NS;
        while !heard.lock().unwrap().contains(&"agent_restarted") {
            supervisor.step(pe);
            assert!(machine.world.now_ns() < until_ns, "{:?}", heard.lock().unwrap());
        }
        assert_eq!(*heard.lock().unwrap(), ["agent_started", "agent_failed", "agent_restarted"]);
        group.all_gather(&[]).unwrap();
    });
}

/// Options of connections that a NIC has, by PE and rail.
const OPTIONS: [[Ece; 2]; 2] =
    [[Ece::with_control(0b011), Ece::REPEAT], [Ece::with_control(0b110), Ece::NONE]];

fn with_options(config: &mut NicConfig) {
    // The GID ends with rail, and number of the PE counted from one.
    let [rail, _, pe] = [config.gid[13], config.gid[14], config.gid[15] - 1].map(usize::from);
    config.profile.ece = OPTIONS[pe][rail];
}

/// What each path of `pe` has in force must be what `want` says of its local and its remote rail.
fn check_options(pe: &Pe, rank: u32, want: impl Fn(u32, u32) -> u32) {
    let resources = pe.take_agent_resources().unwrap();
    let others = resources.channels.iter().filter(|channel| channel.peer != rank);
    let halves = others.flat_map(|channel| &channel.slots).map(|slot| {
        let (half, (local, remote)) = (slot.half.as_ref().unwrap(), (slot.local_rail, slot.remote_rail));
        assert_eq!(half.query().unwrap().ece, want(local, remote), "PE {rank}, rails {local} and {remote}");
    });
    assert!(halves.count() >= 4, "all pairs of rails");
}

#[test]
fn both_ends_of_a_path_have_the_options_that_both_nics_have() {
    let machine = Machine::new(2, 2, with_options);
    with_pes(&machine, 2, &|_| config(Bringup::Sequential), |pe, group| {
        check_options(pe, group.rank(), |local, remote| {
            let (first, second) = if group.rank() == 0 { (local, remote) } else { (remote, local) };
            match (first, second) {
                (0, 0) => 0x3000_0005, // the one algorithm of congestion control that both have
                (1, 0) => 0x2000_0001, // the older version
                _ => 0,
            }
        });
    });
}

#[test]
fn options_are_agreed_on_only_where_both_ends_want_to() {
    let machine = Machine::new(2, 2, with_options);
    let wants = |rank| {
        let config = config(Bringup::Sequential);
        PeConfig { rail: RailOptions { ece: rank == 0, ..config.rail }, ..config }
    };
    with_pes(&machine, 2, &wants, |pe, group| check_options(pe, group.rank(), |_, _| 0));
}

/// Two ends with different options would be worse than no path.
#[test]
fn a_nic_that_puts_fewer_options_in_force_than_it_has_gives_no_path() {
    let machine = Machine::new(1, 1, |config| config.profile.ece = Ece::with_control(0b10));
    let overstate: Bend = |input, output| {
        if cmd::input::OPCODE.get(input) == Opcode::CreateQp as u32 && qp::create::ECE.get(input) != 0 {
            qp::answer::ECE.set(output, 0x3000_0003);
        }
    };
    let opened = |devx| Rail::open(devx, 0, RailOptions::default(), machine.world.clone()).unwrap();
    let honest = opened(machine.devx(0, 0, PATIENT_NS));
    honest.flush().unwrap();
    let snare = Snare(machine.devx(0, 0, PATIENT_NS), AtomicBool::new(false), overstate);
    let error = opened(Arc::new(snare)).flush().unwrap_err().to_string();
    assert!(
        error.contains(
            "options of connection establishment: expected what both ends said they have, got 0x30000001 of \
             0x30000003; set SHUNT_ECE=0"
        ),
        "{error}"
    );
}

fn device(name: &str) -> impl Fn(&mut NicConfig) {
    let profile = name.parse().unwrap();
    move |config| *config = config.clone().with_profile(profile)
}

fn opened(change: impl Fn(&mut NicConfig)) -> Result<Rail, NicError> {
    let machine = Machine::new(1, 1, change);
    let options = RailOptions { flush_ns: PATIENT_NS, startup_ns: PATIENT_NS, ..RailOptions::default() };
    Rail::open(machine.devx(0, 0, PATIENT_NS), 0, options, machine.world.clone())
}

/// Fetched values would be swapped, and nobody would know.
#[test]
fn a_nic_with_big_endian_answers_is_refused() {
    let error = opened(|config| config.profile.atomics.big_endian = true).err().unwrap().to_string();
    assert_eq!(
        error,
        "mlx5_0: atomic_req_8B_endianness_mode: expected 1 (host order), got 0 (answers of 8 bytes come big-endian); \
         mlx5_core sets it where the firmware lets it: update the firmware, or take another NIC or function"
    );
}

/// Without force-loopback the flush and the proof go over the port's own address.
#[test]
fn a_nic_without_force_loopback_is_proved_and_flushed_all_the_same() {
    for link in [|_: &mut NicConfig| {}, infiniband] {
        let machine = Machine::new(1, 1, |config| {
            link(config);
            let none = &mut config.profile.force_loopback;
            (none.with_roce, none.without_roce) = (false, false);
        });
        let mut rail = machine.rail(0);
        rail.settle_truth();
        assert!(!rail.caps.force_loopback && rail.truth_holds, "{}", rail.truth_detail);
        rail.flush().unwrap();
    }
}

/// 4096 was taken for granted: INIT2RTR was refused on a fabric of 2 KiB.
#[test]
fn an_infiniband_ports_own_mtu_is_taken() {
    let machine = Machine::new(1, 1, |config| {
        infiniband(config);
        config.mtu = 2048;
    });
    let mut rail = machine.rail(0);
    assert_eq!(rail.address().mtu, 4);
    rail.settle_truth();
    assert!(rail.truth_holds, "{}", rail.truth_detail);
}

#[test]
fn a_nic_without_masked_atomics_is_proved_without_them_and_says_so() {
    let machine = Machine::new(1, 1, |config| config.profile.atomics.operations = 3);
    let mut rail = machine.rail(0);
    rail.settle_truth();
    assert!(
        rail.truth_holds && rail.truth_detail.contains("2 atomics without answers"),
        "{}",
        rail.truth_detail
    );
    let said = shunt_host::rail::remarks(&[Arc::new(rail)]);
    assert_eq!(
        said,
        ["mlx5_0: it has no masked atomics: those of 4 bytes, and swap, set, and, or and xor of 8, are \
          refused where they are posted; SHUNT_ORDERING=unordered is refused"]
    );
}

/// One NIC of one PE decides for the job: a backup may have to execute what the primary could.
#[test]
fn pes_agree_on_what_their_weakest_nic_does_with_atomics() {
    let weak = |change: fn(&mut NicConfig)| {
        let made = AtomicU32::new(0);
        let machine = Machine::new(2, 2, |config| {
            // The last of four.
            if made.fetch_add(1, Ordering::Relaxed) == 3 {
                change(config);
            }
        });
        let seen = Mutex::new(Vec::new());
        with_pes(&machine, 2, &|_| config(Bringup::Sequential), |pe, _| {
            let root = pe.root();
            seen.lock().unwrap().push((root.plain_atomics, root.fetch_exact));
        });
        seen.into_inner().unwrap()
    };
    assert_eq!(weak(|_| {}), [(0, 0); 2]);
    assert_eq!(weak(|config| config.profile.atomics.operations = 3), [(1, 0); 2]);
    assert_eq!(weak(|config| config.quirks.rmsn_cleared_by_2err = true), [(0, 1); 2]);
}

/// Of eight bytes: to compare and swap for one of four would undo what is written to the other four meanwhile.
#[test]
fn a_nic_without_masked_atomics_compares_and_swaps_for_them() {
    let machine = Machine::new(1, 1, |config| config.profile.atomics.operations = 3);
    let heap = OwnedSpan::alloc(&heap_memory(), 4096, Placement::Heap).unwrap();
    let mut rail = machine.rail(0);
    rail.register_heap(&heap, HeapShape::whole(12)).unwrap();
    let patience = FetchPatience::of(PATIENT_NS, PATIENT_NS);
    let fetch = |amo| rail.fetch(amo, 8, 12, patience);
    let (old, new) = (0x1234_5678_9abc_def0_u64, 0xff00_ff00_ff00_ff00);
    for (amo, after) in [
        (Amo::Set64(new), new),
        (Amo::Swap64(new), new),
        (Amo::And64(new), old & new),
        (Amo::Or64(new), old | new),
        (Amo::Xor64(new), old ^ new),
        (Amo::Add64(new), old.wrapping_add(new)),
        (Amo::CompareSwap64 { expect: old, new }, new),
    ] {
        let before = fetch(Amo::Add64(0)).unwrap();
        assert_eq!(fetch(Amo::CompareSwap64 { expect: before, new: old }), Ok(before));
        assert_eq!(fetch(amo), Ok(old), "{amo:?}");
        assert_eq!(fetch(Amo::Add64(0)), Ok(after), "{amo:?}");
    }
    for amo in [Amo::Add32(1), Amo::Set32(1), Amo::CompareSwap32 { expect: 0, new: 1 }] {
        assert_eq!(fetch(amo), Err(FetchError::NoAtomic), "{amo:?}");
    }
}

/// A NIC in real-time mode refuses the free-running clock that was always asked for.
#[test]
fn a_nic_in_real_time_mode_gives_queue_pairs() {
    let real = shunt_layout::mlx5::prm::caps::TimestampCap::RealTime;
    let machine = Machine::new(1, 1, |config| config.profile.clock = real);
    let mut rail = machine.rail(0);
    rail.settle_truth();
    assert!(rail.caps.ts_format == 1 && rail.truth_holds, "{}", rail.truth_detail);
}

/// Rings at offsets that firmware's pages divide.
#[test]
fn a_nic_that_wants_aligned_queues_gives_them() {
    let machine = Machine::new(1, 1, device("strict"));
    let mut rail = machine.rail(0);
    rail.settle_truth();
    assert!(rail.truth_holds, "{}", rail.truth_detail);
    rail.settle_order().unwrap();
}

/// Adaptive routing that nothing overrides: strict is refused, and without a wish the order is given up, and said.
#[test]
fn strict_on_a_network_that_reorders_is_refused_and_the_default_is_weaker_and_says_so() {
    let machine = Machine::new(1, 1, device("ib-ar"));
    let open = |ordering| {
        let options = RailOptions { ordering, startup_ns: PATIENT_NS, ..RailOptions::default() };
        Rail::open(machine.devx(0, 0, PATIENT_NS), 0, options, machine.world.clone()).unwrap()
    };
    let error = open(Some(OrderPolicy::Strict)).settle_order().unwrap_err().to_string();
    assert_eq!(
        error,
        "mlx5_0: placement: expected data_in_order 1 in RTS, got out of order (data_in_order 0 in RTS); set \
         SHUNT_ORDERING=unordered or leave it unset, or switch adaptive routing off for the service level of \
         NVSHMEM_IB_SL"
    );
    let mut rail = open(None);
    rail.settle_order().unwrap();
    assert_eq!(rail.order, OrderPolicy::Unordered);
    let said = shunt_host::rail::remarks(&[Arc::new(rail)]).join("; ");
    assert!(said.contains("signals go as atomics"), "{said}");
    println!("{error}\n{said}");
}
