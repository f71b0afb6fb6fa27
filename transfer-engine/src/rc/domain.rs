//! The domain: joins the recovery engine, its links and events, and the lanes.

use super::doubts::Counting;
use super::endpoint::Flush;
use super::lane::{LANE_DEPTH, Lane};
use super::leaving::{Gone, Leavings};
use super::listening::Listening;
use super::owner::{Owned, OwnedPath};
use super::rails::{Draw, Patience};
use super::registrar::Regions;
use super::words::{Said, decode, encode};
use crate::domain::{Batch, Domain, Event, Fence, LaneFacts};
use crate::ids::{LaneId, PeerId};
use shunt_bootstrap::Oob;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::eqe;
use shunt_layout::state::PathState;
use shunt_mlx5::rail::Rail;
use shunt_recovery::destroy_queue::DestroyQueue;
use shunt_recovery::endpoint::Half;
use shunt_recovery::engine::{Around, Engine, Parts as EngineParts};
use shunt_recovery::links::arrival::Arrival;
use shunt_recovery::links::envelope::Seal;
use shunt_recovery::links::{Heard, LinkParts, Links, PeerAddress, Reach};
use shunt_recovery::nanos::Nanos;
use shunt_recovery::nic_dispatch::Nics;
use shunt_recovery::nic_job::{Job, Outcome, Urgency};
use shunt_recovery::path::{PathMachine, PathStart, Step};
use shunt_recovery::port_table::PortTable;
use shunt_recovery::slots::RailPair;
use shunt_recovery::worker::Crew;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};

/// Time between two looks at NICs, peers and paths while nothing of theirs is under way.
const LOOK: Nanos = Nanos::micros(20);
/// Pause between two questions to firmware about a port that may have changed unheard.
const ASK_PORT: Nanos = Nanos::millis(100);

/// What a domain is made of.
pub struct Parts {
    /// The number of this end.
    pub me: u32,
    /// The clock of its NICs.
    pub world: Arc<dyn World>,
    /// Its rails, from [`open_rails`](super::open_rails).
    pub rails: Vec<Arc<Rail>>,
    /// Every end by number, this one among them: [`PeerId`] is this number.
    pub peers: Vec<PeerAddress>,
    /// Where messages to other ends go.
    pub oob: Box<dyn Oob>,
    /// What all ends share.
    pub draw: Draw,
    /// How patient it is.
    pub patience: Patience,
}

/// RC queue pairs on the NICs of this process: a lane for each rail that both ends have.
pub struct RcDomain {
    engine: Engine,
    owned: Owned,
    lanes: BTreeMap<LaneId, Lane>,
    next_lane: u64,
    patience: Patience,
    arrived: VecDeque<Arrival>,
    ports_asked: Nanos,
    leaving: Leavings,
    counting: Counting,
    listening: Listening,
    /// By key: whether a lane on the path can work, as of the last look.
    up: Vec<bool>,
    /// When the next look is due; at once while something is under way.
    look_at: Nanos,
    /// Memory that is registered. Dropped after the engine, whose workers may be fencing what uses it, and with the
    /// rails: queue pairs and keys stand in their protection domains.
    pub regions: Regions,
}

impl RcDomain {
    /// Begins to connect to every other end.
    pub fn new(parts: Parts, crew: &dyn Crew) -> Self {
        let Parts { me, world, rails, peers, oob, draw, patience } = parts;
        let now = Nanos::new(world.now_ns());
        let counts: Vec<u32> = peers.iter().map(|peer| peer.rails.len() as u32).collect();
        let seal = Seal::new(&[draw]);
        let mut ports = PortTable::new(peers.len() as u32, counts.iter().copied().max().unwrap_or_default());
        for rail in &rails {
            if !rail.port_up().unwrap_or(true) {
                ports.own_changes(now, rail.index, true);
            }
        }
        let count = peers.len();
        let links = LinkParts { me, world: world.clone(), oob, rails: rails.clone(), peers, seal };
        let engine = Engine::new(
            EngineParts {
                world: world.clone(),
                rails: rails.clone(),
                ports,
                links: Links::new(links, Vec::new()),
                nics: Nics::spawn(crew, &rails, &world),
                destroys: DestroyQueue::default(),
                timing: patience.timing,
                nic_patience: patience.nic,
                peers: count,
            },
            now,
        );
        let owned = Owned {
            paths: Vec::new(),
            rails: counts,
            me,
            requests: 0,
            answers: Vec::new(),
            made: Arc::default(),
            world,
            remarks: Vec::new(),
        };
        let listening = Listening::new(owned.made.clone());
        let mut domain = Self {
            engine,
            owned,
            lanes: BTreeMap::new(),
            next_lane: 0,
            patience,
            arrived: VecDeque::new(),
            ports_asked: now,
            leaving: Leavings::new(patience.timing.lifetime),
            counting: Counting::default(),
            listening,
            up: Vec::new(),
            look_at: now,
            regions: Regions::new(rails),
        };
        (0..count as u32).filter(|peer| *peer != me).for_each(|peer| domain.connect(now, peer, me < peer));
        domain
    }

    /// Begins to connect to an end that was not there before. One of the two leads. Its agent is not reached over the
    /// rails: the two ends have no number for each other that both know.
    pub fn join(&mut self, address: PeerAddress, leads: bool) -> PeerId {
        let now = Nanos::new(self.owned.world.now_ns());
        self.look_at = now;
        let rails = address.rails.len();
        let peer = self.engine.join(PeerAddress { datagrams: vec![0; rails], ..address });
        self.owned.rails.push(rails as u32);
        self.connect(now, peer, leads);
        for rail in 0..self.engine.rails.len() as u32 {
            let (down, at) = self.engine.ports.own(rail);
            if down {
                let message = encode(Said::Port(rail, down, at.get()));
                self.engine.links.send(now, peer, message, Reach::Link, &self.engine.ports);
            }
        }
        PeerId(peer)
    }

    fn connect(&mut self, now: Nanos, peer: u32, leads: bool) {
        let me = self.owned.me;
        let count = |end: u32| self.owned.rails[end as usize];
        for rail in 0..count(me).min(count(peer)) {
            let rails = RailPair { local: rail, remote: rail };
            let next_psn = 0x1000 * (1 + rail + self.engine.rails.len() as u32 * me);
            let start = PathStart { incarnation: 0, rails, half: None, next_psn, orders: 0 };
            let key = self.engine.insert(peer, PathMachine::found(start, leads, now));
            let (number, state) = (rail, PathState::Released);
            let path = OwnedPath { peer, number, state, incarnation: 0, opened: 0, lane: None, asked: 0 };
            self.owned.put(key, path);
        }
    }

    /// True once the peer has said that it ends. Nothing more of it comes; what came before is told by the next poll.
    pub fn has_left(&self, peer: PeerId) -> bool {
        self.engine.links.has_left(peer.0)
    }

    /// What went wrong behind the scenes since the last call: for logs.
    pub fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.owned.remarks)
    }

    fn step(&mut self) -> Nanos {
        let outcomes = self.engine.nics.take_done();
        let mut events = Vec::new();
        for (rail, one) in self.engine.rails.iter().enumerate() {
            while let Ok(Some(event)) = one.devx.next_event() {
                events.push((rail as u32, event));
            }
        }
        while self.engine.links.receive(&mut self.arrived) {}
        // Inputs first, then the clock: nothing that is told is younger than its time.
        let now = Nanos::new(self.owned.world.now_ns());
        self.engine.grow(now);
        for (rail, id, outcome) in outcomes {
            match outcome {
                Outcome::Port(up) => {
                    let asked = self.engine.nics.port_answered(rail);
                    if self.engine.ports.believes_firmware(rail, up, asked) {
                        self.port_changed(now, rail as u32, !up);
                    }
                }
                Outcome::Worked(result) => self.leaving.flushed(now, id.number, result.is_ok()),
                outcome => self.engine.outcome(&mut self.owned, now, id, outcome),
            }
        }
        for (rail, event) in events {
            if eqe::EVENT_TYPE.get(&event) as u8 == eqe::event::PORT_CHANGE {
                self.port_changed(now, rail, eqe::SUB_TYPE.get(&event) as u8 == eqe::port::DOWN);
            }
        }
        self.ask_ports(now);
        while let Some(arrival) = self.arrived.pop_front() {
            if let Some(Heard::Message(from, bytes)) = self.engine.links.hear(now, arrival) {
                self.hear(now, from, &bytes);
            }
        }
        for key in self.engine.paths().keys() {
            self.engine.look(&mut self.owned, now, key, Around::default());
        }
        self.engine.look_at_destroys(now);
        now
    }

    fn ask_ports(&mut self, now: Nanos) {
        if now < self.ports_asked + ASK_PORT {
            return;
        }
        self.ports_asked = now;
        for rail in 0..self.engine.rails.len() {
            if self.engine.ports.is_in_question(rail) {
                self.engine.nics.ask_port(now, rail);
            }
        }
    }

    fn port_changed(&mut self, now: Nanos, rail: u32, down: bool) {
        if self.engine.ports.own_changes(now, rail, down).is_none() {
            return;
        }
        for peer in (0..self.owned.rails.len() as u32).filter(|peer| *peer != self.owned.me) {
            let message = encode(Said::Port(rail, down, now.get()));
            self.engine.links.send(now, peer, message, Reach::Both, &self.engine.ports);
        }
    }

    fn hear(&mut self, now: Nanos, from: u32, bytes: &[u8]) {
        self.engine.peers.heard(self.engine.awake.age_ns, from);
        match decode(bytes) {
            Some(Said::Port(rail, down, at_ns)) => {
                self.engine.ports.peer_says(now, from, rail, down, at_ns.into());
            }
            Some(Said::Path(number, incarnation, word)) => {
                let Some(key) = self.owned.key(from, number) else { return };
                if !self.engine.hear(&mut self.owned, now, key, (incarnation, word), false) {
                    let remark = format!("end {from} speaks of incarnation {incarnation}, which cannot be");
                    self.owned.remarks.push(remark);
                }
            }
            Some(Said::HowMany(number, incarnation)) => {
                let key = self.owned.key(from, number);
                self.counting.questions.extend(key.map(|key| (from, number, (key, incarnation))));
            }
            Some(Said::Came(number, incarnation, count)) => {
                let key = self.owned.key(from, number);
                self.counting.counts.extend(key.map(|key| ((key, incarnation), count)));
            }
            None => self.owned.remarks.push(format!("end {from} sent an unknown message")),
        }
    }

    fn is_up(&self, key: usize) -> bool {
        self.owned.paths[key].state == PathState::Ready && self.engine.ports_up(key)
    }

    /// Opens a lane on every path that is ready and has none.
    fn open_lanes(&mut self, now: Nanos, events: &mut Vec<Event>) {
        for key in 0..self.owned.paths.len() {
            let OwnedPath { peer, incarnation, opened, lane, .. } = self.owned.paths[key];
            if lane.is_some() || incarnation <= opened || !self.is_up(key) {
                continue;
            }
            let made = self.owned.made.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(made) = made.iter().find(|made| (made.key, made.incarnation) == (key, incarnation))
            else {
                continue;
            };
            let Some(rails) = self.engine.path(key).map(PathMachine::rails) else { continue };
            let id = LaneId(self.next_lane);
            self.next_lane += 1;
            self.lanes.insert(id, Lane::new(key, rails, made.queue.clone(), now));
            let path = &mut self.owned.paths[key];
            (path.lane, path.opened) = (Some(id), incarnation);
            let facts = LaneFacts {
                peer: PeerId(peer),
                local: rails.local,
                remote: rails.remote,
                depth: LANE_DEPTH,
                rate: 1,
                lands_late: true,
            };
            events.push(Event::Opened(id, facts));
        }
    }

    /// What lanes have done, and which of them work no more.
    fn look_at_lanes(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let (world, patience, up) = (&*self.owned.world, &self.patience, &self.up);
        let mut all_work = true;
        for (id, lane) in &mut self.lanes {
            let sent = lane.poll(world, now);
            if sent > 0 {
                events.push(Event::Sent(*id, sent));
            }
            all_work &= !lane.is_broken() && up[lane.key] && !lane.is_silent(now, patience, 0);
        }
        if all_work {
            return;
        }
        let mut on_rail: BTreeMap<u32, u64> = BTreeMap::new();
        for lane in self.lanes.values() {
            *on_rail.entry(lane.rail()).or_default() += lane.bytes();
        }
        for (id, lane) in &mut self.lanes {
            let is_silent = lane.is_silent(now, patience, on_rail[&lane.rail()]);
            let failed = lane.is_broken() || !up[lane.key] || is_silent;
            if failed && !std::mem::replace(&mut lane.told, true) {
                events.push(if lane.is_denied() {
                    Event::Denied(*id, lane.executed())
                } else {
                    Event::Failed(*id)
                });
            }
        }
    }

    /// Fences that are answered.
    fn take_answers(&mut self, now: Nanos, events: &mut Vec<Event>) {
        for (key, request, verdict) in std::mem::take(&mut self.owned.answers) {
            let lane = self.owned.paths[key].lane;
            let asked = lane.and_then(|id| self.lanes.get(&id)).and_then(|lane| lane.asked);
            let Some(id) = lane.filter(|_| asked == Some(request)) else { continue };
            if self.lanes.get(&id).is_some_and(|lane| lane.wants_count(verdict)) {
                self.counting.doubts.begin(now, id, (key, self.owned.paths[key].opened));
            } else {
                self.closed(id, |lane| lane.fence(verdict), events);
            }
        }
        for (at, count) in std::mem::take(&mut self.counting.counts) {
            let Some(id) = self.counting.doubts.answered(at) else { continue };
            self.closed(id, |lane| count.map_or(Fence::NoTruth, |count| lane.fence_by_count(count)), events);
        }
        for id in self.counting.doubts.overdue(now) {
            self.closed(id, |_| Fence::NoTruth, events);
        }
    }

    /// A lane is closed, and another one may be opened on its path.
    fn closed(&mut self, id: LaneId, fence: impl Fn(&Lane) -> Fence, events: &mut Vec<Event>) {
        let Some(lane) = self.lanes.remove(&id) else { return };
        events.push(Event::Closed(id, fence(&lane)));
        self.owned.paths[lane.key].lane = None;
    }

    /// Asks peers about lanes in doubt, and answers theirs. What their queue pairs have received was taken before.
    fn ask_and_answer(&mut self, now: Nanos) {
        for (key, incarnation) in self.counting.doubts.ask(now) {
            let OwnedPath { peer, number, .. } = self.owned.paths[key];
            self.say(now, peer, Said::HowMany(number, incarnation));
        }
        for (from, number, at) in std::mem::take(&mut self.counting.questions) {
            let there = {
                let made = self.owned.made.lock().unwrap_or_else(PoisonError::into_inner);
                let it =
                    made.iter().find(|made| (made.peer, made.key, made.incarnation) == (from, at.0, at.1));
                it.map(|made| made.queue.tell_came())
            };
            let count = there.or_else(|| self.counting.ended.came(from, at));
            self.say(now, from, Said::Came(number, at.1, count));
        }
    }

    fn say(&mut self, now: Nanos, peer: u32, said: Said) {
        self.engine.links.send(now, peer, encode(said), Reach::Both, &self.engine.ports);
    }

    /// Peers that are cut off, and lanes to them of which nothing is on its way any more.
    fn look_at_leaving(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let Self { leaving, lanes, engine, .. } = self;
        let (destroys, nics) = (&engine.destroys, &mut engine.nics);
        let flush = |rail| nics.submit(rail, Urgency::Peer, rail as usize, Job::Work(Box::new(Flush)));
        for gone in leaving.look(now, |key| destroys.has_any(key), flush) {
            events.push(match gone {
                Gone::Peer(peer) => Event::Left(peer),
                Gone::Lane(id) => {
                    lanes.remove(&id);
                    Event::Closed(id, Fence::NoTruth)
                }
            });
        }
    }
}

impl Domain for RcDomain {
    fn post(&mut self, now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.post(&*self.owned.world, now, batch);
        }
    }

    fn close(&mut self, now: Nanos, id: LaneId) {
        let on_rail = |rail| self.lanes.values().filter(|lane| lane.rail() == rail).map(Lane::bytes).sum();
        let Some(on_rail) = self.lanes.get(&id).map(|lane| on_rail(lane.rail())) else { return };
        let Some(lane) = self.lanes.get_mut(&id).filter(|lane| lane.asked.is_none()) else { return };
        if self.owned.paths[lane.key].lane != Some(id) {
            // Its peer leaves.
            return;
        }
        self.owned.requests += 1;
        let silent = lane.is_silent(now, &self.patience, on_rail);
        self.look_at = Nanos::ZERO;
        let (key, request) = (lane.key, self.owned.requests);
        lane.asked = Some(request);
        self.owned.paths[key].asked = request;
        let ask = |path: &mut PathMachine<Half>, cx: &mut Step<'_, Half>| path.ask(cx, request, silent);
        self.engine.with(&mut self.owned, now, key, ask);
    }

    fn leave(&mut self, _now: Nanos, peer: PeerId) {
        let now = Nanos::new(self.owned.world.now_ns());
        self.look_at = now;
        let keys: Vec<usize> = self.engine.paths().keys_to(peer.0).collect();
        self.engine.leave(now, peer.0);
        let lanes: Vec<_> = keys.iter().filter_map(|key| self.owned.take(*key)).collect();
        for lane in &lanes {
            // Its end is known: nothing else is told of it.
            self.lanes.get_mut(lane).into_iter().for_each(|lane| lane.told = true);
            self.counting.doubts.forget(*lane);
        }
        // A path has the number of its rail.
        let paths = keys.into_iter().map(|key| (key, self.owned.paths[key].number)).collect();
        self.leaving.begin(peer, paths, lanes);
    }

    fn poll(&mut self, _now: Nanos, events: &mut Vec<Event>) {
        let now = Nanos::new(self.owned.world.now_ns());
        if now < self.look_at {
            self.look_at_lanes(now, events);
            self.listening.poll(&*self.owned.world, events, &mut self.owned.remarks);
            return;
        }
        let now = self.step();
        self.up = (0..self.owned.paths.len()).map(|key| self.is_up(key)).collect();
        self.look_at_lanes(now, events);
        let Self { listening, owned, counting, .. } = self;
        listening.look(&*owned.world, events, &mut owned.remarks, &mut counting.ended);
        self.take_answers(now, events);
        self.ask_and_answer(now);
        self.look_at_leaving(now, events);
        self.open_lanes(now, events);
        let rests = self.engine.is_at_rest() && self.leaving.is_empty() && self.counting.is_empty();
        self.look_at = if rests { now + LOOK } else { now };
    }
}
