//! One path to a peer: its machine, its endpoint, and the lane that is open on it.

use crate::aside::Asides;
use crate::closing::Closing;
use crate::endpoint::{Done, Endpoint, Posted, Work};
use crate::fabric::Rail;
use crate::lane::{Held, Lane, Waiting};
use crate::ledger::Ledger;
use crate::machine::{Act, Ending, Machine, Patience};
use crate::region::Region;
use crate::words::{Answers, Asks, Word, encode};
use shunt_bootstrap::Oob;
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::domain::{Batch, Event, Fence, LaneFacts, Op};
use shunt_transfer_engine::ids::{LaneId, PeerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most pieces under way on a lane, and receives of parts of messages.
const DEPTH: usize = 64;
const RECEIVES: usize = 64;
/// The operation that proves a new endpoint.
const PROBE: u64 = u64::MAX;
/// Names that are not used again, as long as they are remembered: a peer may still try the endpoint that had one.
const NAMES: usize = 4096;
const TRIES: usize = 4;

/// What paths share.
pub(crate) struct Around {
    pub rails: Vec<Rail>,
    /// Regions of this end by key, of each rail.
    pub regions: Vec<BTreeMap<u32, Region>>,
    pub oob: Box<dyn Oob>,
    pub patience: Patience,
    pub next_lane: u64,
    pub remarks: Vec<String>,
    pub events: Vec<Event>,
    /// Endpoints that were set aside: they may still place bytes.
    pub aside: Asides,
    /// Names of the last endpoints.
    pub names: VecDeque<Vec<u8>>,
}

impl Around {
    fn say(&self, peer: PeerId, path: u32, incarnation: u32, word: Word) {
        self.oob.send(peer.0, encode(&(path, incarnation, word)));
    }

    /// An endpoint whose name none of the last ones had.
    fn endpoint(&mut self, rail: usize) -> Option<Endpoint> {
        let rail = self.rails.get(rail)?;
        for _ in 0..TRIES {
            match Endpoint::open(rail, DEPTH.min(rail.limits().depth), RECEIVES) {
                Ok(endpoint) if self.names.iter().any(|name| name == endpoint.name()) => {}
                Ok(endpoint) => {
                    self.names.truncate(NAMES - 1);
                    self.names.push_front(endpoint.name().to_vec());
                    return Some(endpoint);
                }
                Err(error) => {
                    self.remarks.push(error.to_string());
                    return None;
                }
            }
        }
        None
    }
}

/// The path.
pub(crate) struct Path {
    pub peer: PeerId,
    /// Its number among the paths to that peer, and the rail of both ends.
    pub number: u32,
    machine: Machine,
    endpoint: Option<Endpoint>,
    /// The endpoint, while it is being closed.
    closing: Option<Closing>,
    /// The provider did not let go of an endpoint: nothing is proved of it.
    stuck: bool,
    ledger: Ledger,
    /// That of the last incarnation, for a peer that asks late.
    previous: (u32, Option<Ledger>),
    lane: Option<Lane>,
    done: Vec<Done>,
    /// The first operation is not posted yet.
    probe_waits: bool,
    /// What the peer asks. It is answered once the owner has seen what had arrived, and said what it reached.
    asked: Vec<(u32, Asks)>,
    /// When the last batch of counts was said.
    settled: Nanos,
}

impl Path {
    pub fn new(peer: PeerId, number: u32, leads: bool, patience: Patience) -> Self {
        Self {
            peer,
            number,
            machine: Machine::new(leads, patience),
            endpoint: None,
            closing: None,
            stuck: false,
            ledger: Ledger::default(),
            previous: (0, Some(Ledger::default())),
            lane: None,
            done: Vec::new(),
            probe_waits: false,
            asked: Vec::new(),
            settled: Nanos::ZERO,
        }
    }

    pub fn lane(&self) -> Option<LaneId> {
        self.lane.as_ref().map(|lane| lane.id)
    }

    /// Bytes under way.
    pub fn bytes(&self) -> u64 {
        self.lane.as_ref().map_or(0, |lane| lane.bytes)
    }

    /// An expectation of this immediate was reached.
    pub fn reached(&mut self, imm: u32) {
        self.ledger.reached(imm);
        self.previous.1.iter_mut().for_each(|ledger| ledger.reached(imm));
    }

    /// Has the machine do something, and does what follows.
    pub fn step(
        &mut self,
        around: &mut Around,
        now: Nanos,
        call: impl FnOnce(&mut Machine, Nanos, &mut Vec<Act>),
    ) {
        let mut acts = Vec::new();
        call(&mut self.machine, now, &mut acts);
        let mut acts: VecDeque<_> = acts.into();
        while let Some(act) = acts.pop_front() {
            let mut more = Vec::new();
            self.act(around, now, act, &mut more);
            // What follows from an act comes before what was to be done after it.
            more.into_iter().rev().for_each(|act| acts.push_front(act));
        }
    }

    fn act(&mut self, around: &mut Around, now: Nanos, act: Act, more: &mut Vec<Act>) {
        let (peer, number) = (self.peer, self.number);
        match act {
            Act::Make => {
                self.ledger = Ledger::default();
                self.endpoint = around.endpoint(number as usize);
                let name = self.endpoint.as_ref().map(|endpoint| endpoint.name().to_vec());
                self.machine.made(now, name, more);
            }
            Act::Insert(name) => {
                let known = self.endpoint.as_mut().map(|endpoint| endpoint.insert(&name));
                if let Some(Err(error)) = known {
                    around.remarks.push(format!("peer {peer}, path {number}: {error}"));
                }
            }
            // `poll` posts it, until the machine has waited long enough.
            Act::Probe => self.probe_waits = true,
            Act::Shut => {
                self.shut(around);
                self.look_at_closing(around, now, more);
            }
            Act::SetAside => {
                self.set_aside(around);
                self.look_at_closing(around, now, more);
            }
            Act::Say(incarnation, word) => around.say(peer, number, incarnation, word),
            Act::Ask(incarnation) => {
                let asks = self.ledger.asks(self.keys());
                around.say(peer, number, incarnation, Word::Close(asks));
            }
            Act::Answer(incarnation, asks) => self.asked.push((incarnation, asks)),
            Act::Opened => {
                let id = LaneId(around.next_lane);
                around.next_lane += 1;
                self.lane = Some(Lane::new(id, now));
                let depth = DEPTH.min(around.rails[number as usize].limits().depth) as u32;
                let facts =
                    LaneFacts { peer, local: number, remote: number, depth, rate: 1, lands_late: false };
                around.events.push(Event::Opened(id, facts));
            }
            Act::Ended(ending) => self.ended(around, ending),
        }
    }

    /// Posts pieces, or keeps them until the provider takes them. They are lost to the fence if the lane is closed.
    pub fn post(&mut self, around: &Around, now: Nanos, batch: &Batch<'_>) {
        let Some(lane) = &mut self.lane else { return };
        if lane.under_way.is_empty() {
            lane.progress = now;
        }
        for request in batch.requests() {
            let waiting = Waiting::new(lane.next, self.number as usize, &request);
            let imm = if let Op::Write(imm) = waiting.op { imm } else { None };
            let imm = imm.map(|imm| (imm, self.ledger.post(imm)));
            let len = waiting.len;
            lane.under_way.insert(lane.next, Held { len, imm, key: waiting.remote.1 });
            lane.waiting.push_back(waiting);
            (lane.next, lane.bytes) = (lane.next + 1, lane.bytes + len);
        }
        self.flush(around);
    }

    /// Hands the provider what it takes. True if it refuses a piece.
    fn flush(&mut self, around: &Around) -> bool {
        let Some(endpoint) = &mut self.endpoint else { return false };
        if self.probe_waits {
            let work = Work { op: Op::Write(None), part: &[], local: None, remote: (0, 0), len: 0 };
            match endpoint.post(&work, PROBE) {
                Posted::Taken => self.probe_waits = false,
                Posted::Again => return false,
                Posted::Refused(_) => return true,
            }
        }
        let Some(lane) = &mut self.lane else { return false };
        let rail = self.number as usize;
        while let Some(Waiting { number, op, part, local, remote, len }) = lane.waiting.front() {
            let region = local.1.and_then(|key| around.regions[rail].get(&key));
            let work = Work {
                op: *op,
                part,
                local: region.map(|region| (region, local.0)),
                remote: (remote.0, remote.1.unwrap_or(0)),
                len: *len,
            };
            match endpoint.post(&work, *number) {
                Posted::Taken => drop(lane.waiting.pop_front()),
                Posted::Again => return false,
                Posted::Refused(code) => {
                    lane.denied = is_program_error(code).then_some(*number);
                    return true;
                }
            }
        }
        false
    }

    /// What has happened on the endpoint since the last call, and what follows from time.
    pub fn poll(&mut self, around: &mut Around, now: Nanos, on_rail: u64) {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.poll(&mut self.done);
        }
        let mut acts = Vec::new();
        self.look_at_closing(around, now, &mut acts);
        self.step(around, now, |_, _, more| *more = acts);
        let (probed, broken) = self.take_done(around, now);
        if probed {
            self.step(around, now, Machine::probed);
        }
        let refused = self.flush(around);
        let silent = self.lane.as_ref().is_some_and(|lane| lane.is_silent(now, &around.patience, on_rail));
        if broken || refused || silent {
            self.step(around, now, Machine::fail);
        }
        if self.endpoint.is_some() && now >= self.settled + around.patience.resend {
            let (peer, number, incarnation) = (self.peer, self.number, self.machine.incarnation());
            if let Some(batch) = self.ledger.settles() {
                self.settled = now;
                around.say(peer, number, incarnation, Word::Settle(batch.clone()));
            }
        }
        self.step(around, now, Machine::tick);
    }

    /// The peer says something.
    pub fn hear(&mut self, around: &mut Around, now: Nanos, incarnation: u32, word: Word) {
        let is_this = incarnation == self.machine.incarnation();
        match word {
            Word::Settle(batch) if is_this => {
                let taken = self.ledger.take(&batch);
                around.say(self.peer, self.number, incarnation, Word::Settled(taken));
            }
            Word::Settled(number) if is_this => {
                self.ledger.settled(number);
                // The next one may go at once.
                self.settled = Nanos::ZERO;
            }
            Word::Settle(_) | Word::Settled(_) => {}
            word => self.step(around, now, |machine, now, acts| machine.hear(now, incarnation, word, acts)),
        }
    }

    /// Tells what has happened: the first operation was executed, and something does not work.
    fn take_done(&mut self, around: &mut Around, now: Nanos) -> (bool, bool) {
        let (mut probed, mut broken) = (false, false);
        for done in std::mem::take(&mut self.done) {
            match done {
                Done::Executed(PROBE) => probed = true,
                Done::Executed(number) => {
                    let Some(lane) = &mut self.lane else { continue };
                    let Some(held) = lane.under_way.remove(&number) else { continue };
                    held.imm.into_iter().for_each(|(imm, which)| self.ledger.executed(imm, which));
                    (lane.bytes, lane.progress) = (lane.bytes - held.len, now);
                    around.events.push(Event::Executed(lane.id, number));
                }
                Done::Failed(..) | Done::Broken(_) => broken = true,
                Done::Imm(imm) => {
                    self.ledger.arrived(imm);
                    around.events.push(Event::Imm(self.peer, imm));
                }
                Done::Part(part) => around.events.push(Event::Part(self.peer, part)),
            }
        }
        (probed, broken)
    }

    /// Begins to close the endpoint.
    fn shut(&mut self, around: &mut Around) {
        self.probe_waits = false;
        // One that is being closed already goes on.
        if let Some(endpoint) = self.endpoint.take() {
            self.closing = Some(Closing::of(endpoint, &around.rails[self.number as usize]));
        }
        if let Some(lane) = &mut self.lane {
            lane.waiting.clear();
            if !std::mem::replace(&mut lane.told, true) {
                around.events.push(Event::Failed(lane.id));
            }
        }
    }

    /// What had happened before the endpoint was closed, once it is.
    fn look_at_closing(&mut self, around: &mut Around, now: Nanos, more: &mut Vec<Act>) {
        if let Some(closing) = &mut self.closing {
            let Some(result) = closing.take(&mut self.done) else { return };
            self.closing = None;
            if let Err(error) = result {
                around.aside.fail(self.number, self.peer);
                self.is_stuck(around, &error.to_string());
            }
            self.take_done(around, now);
        }
        if self.endpoint.is_none() {
            self.machine.shut(now, more);
        }
    }

    fn set_aside(&mut self, around: &mut Around) {
        if let Some(closing) = self.closing.take() {
            around.aside.put(self.number, self.peer, closing);
        }
        self.is_stuck(around, "an endpoint does not close");
    }

    fn is_stuck(&mut self, around: &mut Around, why: &str) {
        self.stuck = true;
        around.remarks.push(format!("peer {}, path {}: {why}", self.peer, self.number));
    }

    /// Keys of the peer that pieces under way name.
    fn keys(&self) -> Vec<u32> {
        let under_way = self.lane.iter().flat_map(|lane| lane.under_way.values());
        let keys: BTreeSet<u32> = under_way.filter_map(|held| held.key).collect();
        keys.into_iter().collect()
    }

    /// Answers what the peer has asked before the owner saw the last events.
    pub fn answer_all(&mut self, around: &Around) {
        for (incarnation, asks) in std::mem::take(&mut self.asked) {
            self.answer(around, incarnation, &asks);
        }
    }

    fn answer(&mut self, around: &Around, incarnation: u32, asks: &Asks) {
        let is_this = incarnation == self.machine.incarnation() && self.endpoint.is_none();
        let is_previous = self.previous.0 == incarnation;
        let is_stuck = if is_previous { self.previous.1.is_none() } else { self.stuck };
        let ledger = if is_previous { self.previous.1.as_mut() } else { is_this.then_some(&mut self.ledger) };
        let known = &around.regions[self.number as usize];
        let unknown = asks.keys.iter().copied().filter(|key| !known.contains_key(key)).collect();
        let word = match ledger {
            // It is asked again.
            _ if incarnation == self.machine.incarnation() && self.closing.is_some() => Word::Wait,
            // Nothing is proved: it is better to say nothing.
            _ if is_stuck => return,
            Some(ledger) => Word::Closed(ledger.answers(asks, unknown)),
            None => Word::Gone,
        };
        around.say(self.peer, self.number, incarnation, word);
    }

    fn ended(&mut self, around: &mut Around, ending: Ending) {
        if let Some(lane) = self.lane.take() {
            let fence = match &ending {
                _ if self.stuck => Fence::Unproven,
                Ending::Answered(answers) => self.counted(&lane, answers, &mut around.events),
                Ending::Gone => Fence::NoTruth,
                // Its process, or its system, may hold bytes that it places later.
                Ending::Silent => Fence::Unproven,
            };
            around.events.push(Event::Closed(lane.id, fence));
        }
        let ledger = std::mem::take(&mut self.ledger);
        let known = (!std::mem::take(&mut self.stuck)).then_some(ledger);
        self.previous = (self.machine.incarnation(), known);
    }

    /// What became of the pieces under way, after the one that was refused.
    fn counted(&self, lane: &Lane, answers: &Answers, events: &mut Vec<Event>) -> Fence {
        let mut counts = self.ledger.fence(answers);
        let imm_of = |held: &Held| held.imm.map(|(imm, _)| imm);
        let all_missing = |imm: u32| {
            let count = lane.under_way.values().filter(|held| imm_of(held) == Some(imm)).count() as u64;
            counts.get(&imm).is_some_and(|counted| counted.missing >= count)
        };
        // One that may have been executed before its key was taken back is not refused yet.
        let is_unknown = |held: &Held| {
            held.key.is_some_and(|key| answers.unknown.contains(&key)) && imm_of(held).is_none_or(all_missing)
        };
        let refused = lane.under_way.iter().find(|(_, held)| is_unknown(held)).map(|(number, _)| *number);
        if let Some(number) = lane.denied.or(refused) {
            events.push(Event::Denied(lane.id, number));
            // It is none of those that are posted again.
            let imm = lane.under_way.get(&number).and_then(|held| held.imm);
            let counted = imm.and_then(|(imm, _)| counts.get_mut(&imm));
            counted.into_iter().for_each(|counted| counted.missing = counted.missing.saturating_sub(1));
        }
        Fence::Counted(counts)
    }

    /// The peer leaves: its endpoint is closed. [`Path::is_left`] says when it is.
    pub fn leave(&mut self, around: &mut Around) {
        // Its end is known: nothing else is told of it.
        self.lane.iter_mut().for_each(|lane| lane.told = true);
        self.shut(around);
    }

    /// Its owner is gone: the endpoint, if it is not closed.
    pub fn end(mut self, around: &mut Around) -> Option<(u32, Closing)> {
        self.shut(around);
        self.closing.take().map(|closing| (self.number, closing))
    }

    /// True once the endpoint of a peer that leaves is closed; `overdue`: it is set aside if it is not closed by now.
    pub fn is_left(&mut self, around: &mut Around, now: Nanos, overdue: bool) -> bool {
        let mut acts = Vec::new();
        self.look_at_closing(around, now, &mut acts);
        if self.closing.is_some() && overdue {
            self.set_aside(around);
        }
        self.closing.is_none()
    }

    /// Words about it are over. The lane that was open, and its fence.
    pub fn farewell(&mut self, around: &Around) -> Option<(LaneId, Fence)> {
        around.say(self.peer, self.number, self.machine.incarnation(), Word::Close(Asks::default()));
        // What its process or its system holds it may still place in its own memory.
        self.lane.take().map(|lane| (lane.id, Fence::Unproven))
    }

    /// The endpoint that may be written through now: its incarnation, if there is one that is not closed.
    pub fn held(&self) -> Option<u32> {
        (self.endpoint.is_some() || self.closing.is_some()).then(|| self.machine.incarnation())
    }
}

/// True if an operation names what is none, and would be refused on every lane.
fn is_program_error(code: i32) -> bool {
    [shunt_libfabric_sys::FI_EFAULT, shunt_libfabric_sys::FI_EMSGSIZE].contains(&(code as u32))
}
