//! A process: its engine, its talks with others, and the loop that carries both on.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::agent::destroy_queue::DestroyQueue;
use shunt_host::agent::engine::{Around, Engine, Parts};
use shunt_host::agent::links::envelope::{Seal, qkey};
use shunt_host::agent::links::{Heard, LinkParts, Links, PeerAddress};
use shunt_host::agent::nic_dispatch::Nics;
use shunt_host::agent::path::{Output, PathMachine, PathStart, Timing};
use shunt_host::agent::port_table::PortTable;
use shunt_host::connect::oob::Oob;
use shunt_host::devx::Devx;
use shunt_host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_host::nanos::Nanos;
use shunt_host::nic::mkey::{Access, Mkey};
use shunt_host::nic::umem::Umem;
use shunt_host::rail::{Rail, RailOptions};
use shunt_host::slots::RailPair;
use shunt_layout::mlx5::eqe;
use shunt_layout::state::{AnswerStatus, PathState};
use shunt_soft_devx::SoftDevx;
use shunt_soft_nic::{RailAt, SharedFabric};

use super::endpoint::{Made, Queue, Work};
use super::owner::{Owned, OwnedPath, Said, decode, port_word};
use super::spec::{Directory, Introduction, RAILS, TalkSpec};
use crate::oracle::{load, store};
use crate::sim::{SimCrew, SimWorld};

/// What every process of the job has drawn.
const DRAW: [u8; 16] = [7; 16];
/// Numbers under way at most.
const WINDOW: u64 = 24;
/// Without a completion for so long a path is suspected.
const SUSPECT_NS: u64 = 6_000_000;
/// A command of firmware that takes longer is given up.
const COMMAND_NS: u64 = 5_000_000;
/// How patient the engine is.
const TIMING: Timing = Timing {
    lifetime: Nanos::millis(5),
    peer: Nanos::millis(500),
    doubt: Nanos::millis(2),
    resend: Nanos::millis(10),
    probes: 3,
    probe: Nanos::micros(100),
    revive: Nanos::secs(2),
    backoff: Nanos::millis(2),
    owner: Nanos::secs(2),
    give_up: Nanos::secs(1),
};
/// Stands where a number was read.
const READ: u64 = u64::MAX;

/// What is known of all processes: who is done, and who has left.
pub struct Fate {
    done: RefCell<Vec<bool>>,
    left: RefCell<Vec<bool>>,
}

impl Fate {
    /// Of so many processes.
    pub(super) fn new(processes: u32) -> Self {
        let none = vec![false; processes as usize];
        Self { done: RefCell::new(none.clone()), left: RefCell::new(none) }
    }

    fn all_done(&self) -> bool {
        self.done.borrow().iter().all(|done| *done)
    }

    fn has_left(&self, process: u32) -> bool {
        self.left.borrow()[process as usize]
    }
}

/// What a process has to say in the end.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Promises that were broken.
    pub wrong: Vec<String>,
    /// Paths left because of a fault.
    pub failovers: u64,
    /// Paths that were made again and used.
    pub revivals: u64,
    /// Numbers that were posted again.
    pub replayed: u64,
}

/// What a number looks like in memory.
const fn shape(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5ec0
}

/// Where a stream is posted: on which path, and from which index and number on.
#[derive(Clone)]
struct Track {
    key: usize,
    queue: Arc<Queue>,
    first_index: u64,
    first_number: u64,
    /// The request for its fence, while it is out.
    asked: Option<u64>,
}

/// A talk with another process.
struct Talk {
    peer: u32,
    there: Introduction,
    /// Where the peer's numbers land.
    region: u64,
    track: Option<Track>,
    /// The next number to post, and the first that is not known to be executed.
    next: u64,
    done: u64,
    progress_ns: u64,
    /// The next SEND that is due.
    heard: u64,
    /// SENDs that came before their turn, by queue pair.
    early: HashMap<(usize, u32), u64>,
}

/// A process that has started.
pub(super) struct Process {
    me: u32,
    sim: Arc<SimWorld>,
    world: Arc<dyn World>,
    spec: TalkSpec,
    engine: Engine,
    owned: Owned,
    talks: Vec<Talk>,
    told: Told,
    region: u64,
    arrived: VecDeque<shunt_host::agent::links::arrival::Arrival>,
    /// Dropped after the engine.
    _keys: Vec<(Mkey, Umem)>,
    waited: Cell<u64>,
    fabric: SharedFabric,
    /// The first number was posted, and the faults were planned.
    begun: bool,
}

/// Bytes of the region that one peer's numbers take.
fn share(spec: &TalkSpec) -> u64 {
    spec.numbers * 8
}

/// What the peer's memory says against a cut: a number before it has arrived, and one behind it has not. Only the even
/// ones are WRITEs, and all processes are in one address space.
fn misplaced(talk: &Talk, me: u32, spec: &TalkSpec, number: u64, arrived: bool) -> Option<String> {
    let word = load(talk.there.base + u64::from(me) * share(spec) + number * 8);
    let there = word == shape(number) || word == READ;
    let wrong = number.is_multiple_of(2) && there != arrived;
    wrong.then(|| {
        format!("process {me}: the cut says that {number} arrived: {arrived}; {word:#x} is in its place")
    })
}

/// Opens a rail and registers the region on it.
fn open_rail(
    devx: Arc<dyn Devx>,
    index: u32,
    world: &Arc<dyn World>,
    region: &Arc<OwnedSpan>,
) -> (Rail, (Mkey, Umem)) {
    let options = RailOptions { proof_atomics: 0, order_rounds: 0, ..RailOptions::default() };
    let mut rail = Rail::open(devx.clone(), index, options, world.clone()).expect("a soft NIC");
    rail.settle_truth();
    assert!(rail.truth_holds, "{}", rail.truth_detail);
    rail.settle_datagrams(qkey(&DRAW));
    let umem = Umem::for_keys(&devx, region).expect("memory of this process");
    let key = Mkey::create(&devx, rail.pd(), &umem, 0..region.span().bytes, Access::Remote).expect("a key");
    (rail, (key, umem))
}

/// An engine that knows these processes, and no path.
fn engine(
    me: u32,
    sim: &Arc<SimWorld>,
    world: &Arc<dyn World>,
    rails: &[Arc<Rail>],
    oob: Box<dyn Oob>,
    peers: Vec<PeerAddress>,
) -> Engine {
    let crew = SimCrew::new(sim.clone(), me, |_| ());
    let (count, seal) = (peers.len(), Seal::new(&[DRAW]));
    let links = LinkParts { me, world: world.clone(), oob, rails: rails.to_vec(), peers, seal };
    let parts = Parts {
        world: world.clone(),
        rails: rails.to_vec(),
        ports: PortTable::new(count as u32, RAILS),
        links: Links::new(links, Vec::new()),
        nics: Nics::spawn(&crew, rails, world),
        destroys: DestroyQueue::default(),
        timing: TIMING,
        nic_patience: Nanos::millis(200),
        peers: count,
    };
    Engine::new(parts, world.now_ns().into())
}

impl Process {
    /// Opens the NICs, tells the others where it is, and waits for those who began with it or before it.
    pub(super) fn start(
        me: u32,
        sim: &Arc<SimWorld>,
        world: Arc<dyn World>,
        fabric: &SharedFabric,
        oob: Box<dyn Oob>,
        directory: &Directory,
        spec: &TalkSpec,
    ) -> Self {
        let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let bytes = (share(spec) * spec.joins.len() as u64).next_multiple_of(4096);
        let region = OwnedSpan::alloc(&memory, bytes, Placement::Heap).expect("memory");
        let (mut rails, mut keys) = (Vec::new(), Vec::new());
        for rail in 0..RAILS {
            let nic = fabric.with(|fabric| fabric.find(RailAt { pe: me, rail })).expect("added before");
            let devx = Arc::new(SoftDevx::new(fabric.clone(), nic, world.clone(), COMMAND_NS));
            let (rail, key) = open_rail(devx, rail, &world, &region);
            rails.push(Arc::new(rail));
            keys.push(key);
        }
        let own = Introduction {
            address: PeerAddress {
                rails: rails.iter().map(|rail| rail.card()).collect(),
                datagrams: rails.iter().map(|rail| rail.datagram_qpn()).collect(),
                qkey: qkey(&DRAW),
            },
            base: region.span().address,
            rkeys_be: keys.iter().map(|(key, _)| key.key_be()).collect(),
        };
        directory.0.borrow_mut()[me as usize] = Some(own);
        let early: Vec<usize> =
            (0..spec.joins.len()).filter(|other| spec.joins[*other] <= spec.joins[me as usize]).collect();
        let known = |other: &usize| directory.0.borrow()[*other].clone();
        while !early.iter().all(|other| known(other).is_some()) {
            world.relax();
        }
        let peers: Vec<PeerAddress> =
            early.iter().filter_map(known).map(|introduction| introduction.address).collect();
        let engine = engine(me, sim, &world, &rails, oob, peers);
        let made = Made::default();
        let owned = Owned {
            paths: Vec::new(),
            requests: 0,
            answers: Vec::new(),
            wrong: Vec::new(),
            made,
            world: world.clone(),
        };
        let mut process = Self {
            me,
            sim: sim.clone(),
            engine,
            world,
            spec: spec.clone(),
            owned,
            talks: Vec::new(),
            told: Told::default(),
            region: region.span().address,
            arrived: VecDeque::new(),
            _keys: keys,
            waited: Cell::new(0),
            fabric: fabric.clone(),
            begun: false,
        };
        for other in early.into_iter().filter(|other| *other != me as usize) {
            let there = directory.0.borrow()[other].clone().expect("known above");
            process.begin(other as u32, there);
        }
        process
    }

    /// Begins a talk: a path a rail.
    fn begin(&mut self, peer: u32, there: Introduction) {
        let now = Nanos::new(self.world.now_ns());
        for rail in 0..RAILS {
            let rails = RailPair { local: rail, remote: rail };
            let next_psn = 0x1000 * (1 + rail + RAILS * self.me);
            let start = PathStart { incarnation: 0, rails, half: None, next_psn, orders: 0 };
            let key = self.engine.insert(peer, PathMachine::found(start, self.me < peer, now));
            let path = OwnedPath {
                peer,
                number: rail,
                state: PathState::Released,
                incarnation: 0,
                active: false,
                asked: 0,
            };
            assert_eq!(key, self.owned.paths.len(), "no process joins after another has left");
            self.owned.paths.push(path);
        }
        let region = self.region + u64::from(peer) * share(&self.spec);
        let now_ns = now.get();
        self.talks.push(Talk {
            peer,
            there,
            region,
            track: None,
            next: 0,
            done: 0,
            progress_ns: now_ns,
            heard: 1,
            early: HashMap::new(),
        });
    }

    /// Talks until everything was said and heard, and every path is ready again.
    pub(super) fn talk(mut self, directory: &Directory, fate: &Fate) -> Told {
        loop {
            self.meet(directory, fate);
            self.step();
            for index in 0..self.talks.len() {
                self.say(index);
                self.listen(index);
            }
            let said = self.talks.iter().all(|talk| self.is_over(talk));
            if said && self.spec.leaves.contains(&self.me) && self.peers_are_over(fate) {
                fate.left.borrow_mut()[self.me as usize] = true;
                fate.done.borrow_mut()[self.me as usize] = true;
                break;
            }
            let complete = self.talks.len() + 1 == self.spec.joins.len();
            if said && complete && self.paths_are_ready(fate) {
                fate.done.borrow_mut()[self.me as usize] = true;
                if fate.all_done() {
                    break;
                }
            }
            self.sim.sleep(4_000 + self.sim.draw(4_000));
        }
        self.end();
        self.told
    }

    fn is_over(&self, talk: &Talk) -> bool {
        talk.done == self.spec.numbers && talk.heard > self.spec.numbers
    }

    /// A process that leaves gives the others the time to hear its last acknowledgement.
    fn peers_are_over(&self, _fate: &Fate) -> bool {
        self.waited.set(self.waited.get() + 1);
        self.waited.get() > 2_000
    }

    /// Others may have joined or left.
    fn meet(&mut self, directory: &Directory, fate: &Fate) {
        let now = Nanos::new(self.world.now_ns());
        for other in 0..self.spec.joins.len() as u32 {
            let known = other == self.me || self.talks.iter().any(|talk| talk.peer == other);
            let introduced = directory.0.borrow()[other as usize].clone();
            if let Some(there) = introduced.filter(|_| !known) {
                let number = self.engine.join(there.address.clone());
                assert_eq!(number, other, "processes are numbered as they join");
                self.begin(other, there);
            }
            if known && other != self.me && fate.has_left(other) {
                self.engine.leave(now, other);
                for path in self.owned.paths.iter_mut().filter(|path| path.peer == other) {
                    (path.state, path.active) = (PathState::Absent, false);
                }
            }
        }
    }

    /// One step of the engine.
    fn step(&mut self) {
        let outcomes = self.engine.nics.take_done();
        let mut events = Vec::new();
        for (rail, one) in self.engine.rails.iter().enumerate() {
            while let Ok(Some(event)) = one.devx.next_event() {
                events.push((rail as u32, event));
            }
        }
        while self.engine.links.receive(&mut self.arrived) {}
        let now = Nanos::new(self.world.now_ns());
        self.engine.grow(now);
        for (_, id, outcome) in outcomes {
            self.engine.outcome(&mut self.owned, now, id, outcome);
        }
        for (rail, event) in events {
            if eqe::EVENT_TYPE.get(&event) as u8 == eqe::event::PORT_CHANGE {
                self.port_changed(now, rail, eqe::SUB_TYPE.get(&event) as u8 == eqe::port::DOWN);
            }
        }
        while let Some(arrival) = self.arrived.pop_front() {
            if let Some(Heard::Message(from, bytes)) = self.engine.links.hear(now, arrival) {
                self.hear(now, from, &bytes);
            }
        }
        for key in self.engine.paths().keys() {
            self.engine.look(&mut self.owned, now, key, Around::default());
        }
        self.engine.look_at_destroys(now);
    }

    fn port_changed(&mut self, now: Nanos, rail: u32, down: bool) {
        if self.engine.ports.own_changes(now, rail, down).is_none() {
            return;
        }
        for talk in &self.talks {
            let engine = &mut self.engine;
            let reach = shunt_host::agent::links::Reach::Both;
            engine.links.send(now, talk.peer, port_word(rail, down, now.get()), reach, &engine.ports);
        }
    }

    fn hear(&mut self, now: Nanos, from: u32, bytes: &[u8]) {
        self.engine.peers.heard(self.engine.awake.age_ns, from);
        match decode(bytes) {
            Some(Said::Port(rail, down, at_ns)) => {
                self.engine.ports.peer_says(now, from, rail, down, at_ns.into());
            }
            Some(Said::Path(number, incarnation, word)) => {
                // Somebody who has not met the sender yet does not know the path: it is told again.
                let Some(key) = self.owned.key(from, number) else { return };
                if !self.engine.hear(&mut self.owned, now, key, (incarnation, word), false) {
                    self.told.wrong.push(format!("process {from} speaks of {incarnation}, which cannot be"));
                }
            }
            None => self.told.wrong.push(format!("process {from} sent an unknown message")),
        }
    }

    /// Posts what there is to say, on a path that works.
    fn say(&mut self, index: usize) {
        let now = Nanos::new(self.world.now_ns());
        self.take_answers(index);
        let talk = &mut self.talks[index];
        let Some(track) = talk.track.clone() else { return self.choose(index) };
        let mut trouble = false;
        while let Some((at, executed)) = track.queue.poll_sent(&*self.world) {
            if executed && at >= track.first_index && track.asked.is_none() {
                talk.done = talk.done.max(track.first_number + (at - track.first_index) + 1);
                talk.progress_ns = now.get();
            }
            trouble |= !executed;
        }
        if track.asked.is_some() {
            return;
        }
        let rails = self.engine.path(track.key).map(PathMachine::rails);
        let up = rails.is_some_and(|rails| self.engine.ports.up(rails.local, talk.peer, rails.remote));
        let silent = talk.done < talk.next && now.get() > talk.progress_ns + SUSPECT_NS;
        trouble |= !up || self.owned.paths[track.key].state != PathState::Ready;
        if trouble || silent {
            self.owned.requests += 1;
            let request = self.owned.requests;
            self.owned.paths[track.key].asked = request;
            talk.track = Some(Track { asked: Some(request), ..track.clone() });
            let ask = |path: &mut PathMachine<_>, cx: &mut shunt_host::agent::path::Step<'_, _>| {
                path.ask(cx, request, silent);
            };
            self.engine.with(&mut self.owned, now, track.key, ask);
            return;
        }
        // One a step: a talk takes milliseconds, so that faults meet it.
        if talk.next < self.spec.numbers && talk.next - talk.done < WINDOW && track.queue.has_room() {
            let number = talk.next;
            let work = match number % 2 {
                0 => Work::Write {
                    value: shape(number),
                    to: talk.there.base + u64::from(self.me) * share(&self.spec) + number * 8,
                    rkey_be: talk.there.rkeys_be[rails.expect("it is up").remote as usize],
                },
                _ => Work::Send(number),
            };
            track.queue.post(&*self.world, work);
            if talk.done == talk.next {
                talk.progress_ns = now.get();
            }
            talk.next += 1;
        }
    }

    /// The fence of a talk's path may be answered: the cut, and from there on another path.
    fn take_answers(&mut self, index: usize) {
        let talk = &mut self.talks[index];
        let Some(Track { key, first_index, first_number, asked: Some(request), .. }) = talk.track.clone()
        else {
            return;
        };
        let Some(at) = self.owned.answers.iter().position(|one| (one.0, one.1) == (key, request)) else {
            return;
        };
        let (_, _, verdict) = self.owned.answers.swap_remove(at);
        if verdict.status != AnswerStatus::Truth {
            self.told.wrong.push(format!("process {}: expected a truth, got {verdict:?}", self.me));
        }
        let cut = first_number + u64::from(verdict.executed).saturating_sub(first_index);
        if cut < talk.done || cut > talk.next {
            let (done, next) = (talk.done, talk.next);
            self.told.wrong.push(format!("process {}: cut {cut}, of {done} done and {next} posted", self.me));
        }
        let cut = if self.spec.repeats { cut.saturating_sub(1).max(first_number) } else { cut };
        for number in talk.done..talk.next {
            if let Some(text) = misplaced(talk, self.me, &self.spec, number, number < cut) {
                self.told.wrong.push(text);
            }
        }
        self.told.failovers += 1;
        self.told.replayed += talk.next.saturating_sub(cut);
        (talk.done, talk.next, talk.track) = (cut, cut, None);
        self.owned.paths[key].active = false;
    }

    /// Goes on over the first path that is ready.
    fn choose(&mut self, index: usize) {
        let talk = &mut self.talks[index];
        let usable = |key: &usize| {
            let path = &self.owned.paths[*key];
            let rails = self.engine.path(*key).map(PathMachine::rails);
            let up = rails.is_some_and(|rails| self.engine.ports.up(rails.local, talk.peer, rails.remote));
            path.peer == talk.peer && path.state == PathState::Ready && up
        };
        let keys = 0..self.owned.paths.len();
        // It begins once every path is ready, so that a fault of the first one meets it.
        let mut theirs = keys.clone().filter(|key| self.owned.paths[*key].peer == talk.peer);
        if talk.next == 0 && !theirs.all(|key| usable(&key)) {
            return;
        }
        let Some(key) = keys.into_iter().find(usable) else { return };
        let incarnation = self.owned.paths[key].incarnation;
        let made = self.owned.made.lock().expect("one thread");
        let Some((_, queue)) = made.iter().find(|(name, _)| *name == (key, incarnation)) else { return };
        let (queue, first_index, first_number) = (queue.clone(), queue.next(), talk.next);
        talk.track = Some(Track { key, queue, first_index, first_number, asked: None });
        talk.progress_ns = self.world.now_ns();
        if self.me == 0 && !std::mem::replace(&mut self.begun, true) {
            let began_ns = self.sim.now();
            self.fabric.with(|fabric| {
                self.spec
                    .faults
                    .iter()
                    .for_each(|(at, place, kind)| fabric.plan(began_ns + at, *place, *kind));
            });
        }
        self.owned.paths[key].active = true;
        self.told.revivals += u64::from(incarnation > 1);
    }

    /// Takes what has arrived, each number in its turn, on whichever queue pair it came.
    fn listen(&mut self, index: usize) {
        let talk = &mut self.talks[index];
        let made = self.owned.made.lock().expect("one thread");
        let theirs = made.iter().filter(|((key, _), _)| self.owned.paths[*key].peer == talk.peer);
        let queues: Vec<_> = theirs.cloned().collect();
        drop(made);
        loop {
            for (name, queue) in &queues {
                if !talk.early.contains_key(name)
                    && let Some(number) = queue.poll_received(&*self.world)
                {
                    talk.early.insert(*name, number);
                }
            }
            let due =
                talk.early.iter().find(|(_, number)| **number <= talk.heard).map(|(name, n)| (*name, *n));
            let Some((name, number)) = due else { return };
            talk.early.remove(&name);
            if number < talk.heard {
                self.told.wrong.push(format!("process {}: {number} came twice", self.me));
                continue;
            }
            let at = talk.region + (number - 1) * 8;
            if load(at) != shape(number - 1) {
                let found = load(at);
                self.told.wrong.push(format!(
                    "process {}: {found:#x} in the place of {}",
                    self.me,
                    number - 1
                ));
            }
            store(at, READ);
            talk.heard += 2;
        }
    }

    fn paths_are_ready(&self, fate: &Fate) -> bool {
        let keys = self.engine.paths().keys();
        let alive = |key: &usize| self.engine.paths().peer(*key).is_some_and(|peer| !fate.has_left(peer));
        keys.filter(alive).all(|key| self.owned.paths[key].state == PathState::Ready)
    }

    fn panic_once(&mut self) {
        let now = Nanos::new(self.world.now_ns());
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.engine.with(&mut self.owned, now, 0, |path, cx| {
                cx.out.extend(path.half().cloned().map(Output::Destroy));
                panic!("as it was told to");
            })
        }));
        self.engine.settle(&mut self.owned, now);
        if broken.is_ok() || !self.engine.destroys.has_any(0) {
            self.told.wrong.push(format!("process {}: a half was lost with a panic", self.me));
        }
    }

    /// Nothing was written again behind the reader, and nothing came that was not due.
    fn end(&mut self) {
        (0..self.talks.len()).for_each(|index| self.listen(index));
        if self.spec.panics {
            self.panic_once();
        }
        self.told.wrong.append(&mut self.owned.wrong);
        for talk in &self.talks {
            if !talk.early.is_empty() {
                self.told.wrong.push(format!("process {}: {:?} came and was never due", self.me, talk.early));
            }
            for number in (0..self.spec.numbers).step_by(2) {
                if load(talk.region + number * 8) != READ {
                    self.told.wrong.push(format!("process {}: {number} was written again", self.me));
                }
            }
        }
    }
}
