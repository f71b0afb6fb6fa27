//! The network: who is connected, what is on its way, and what happens next.

use super::act::{Act, Packet, Way};
use super::config::{Config, Counts, key};
use super::faults::{Fault, Kind};
use super::lane::Pair;
use super::memory::Memory;
use super::node::Node;
use super::rng::Rng;
use crate::domain::{Batch, Event, Fence, LaneFacts, Op};
use crate::ids::{LaneId, PeerId};
use shunt_recovery::nanos::Nanos;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The network.
pub(super) struct Net {
    config: Config,
    now: u64,
    rng: Rng,
    due: BinaryHeap<Reverse<(u64, u64, u64)>>,
    acts: BTreeMap<u64, Act>,
    next_act: u64,
    nodes: Vec<Node>,
    pairs: BTreeMap<u64, Pair>,
    next_pair: u64,
    /// Ends that have cut a peer off: which, and whom it cut off.
    left: BTreeSet<(u32, u32)>,
    gone: BTreeSet<u32>,
    hit: Vec<bool>,
    counts: Counts,
}

impl Net {
    /// One whose connections are open.
    pub fn new(config: Config) -> Self {
        let nodes = (0..config.nodes).map(|_| Node::new(config.memory));
        let mut net = Self {
            now: 0,
            rng: Rng::new(config.seed),
            due: BinaryHeap::new(),
            acts: BTreeMap::new(),
            next_act: 0,
            nodes: nodes.collect(),
            pairs: BTreeMap::new(),
            next_pair: 0,
            left: BTreeSet::new(),
            gone: BTreeSet::new(),
            hit: vec![false; config.faults.len()],
            counts: Counts::default(),
            config,
        };
        for a in 0..net.config.nodes {
            for b in a + 1..net.config.nodes {
                (0..net.config.rails).for_each(|rail| net.open(a, b, rail, true));
            }
        }
        net
    }

    /// Rails of each node.
    pub const fn rails(&self) -> u32 {
        self.config.rails
    }

    /// Virtual time.
    pub const fn now(&self) -> Nanos {
        Nanos::new(self.now)
    }

    /// When something happens next; never, if nothing does.
    pub fn next_time(&self) -> Nanos {
        self.due.peek().map_or(Nanos::MAX, |Reverse((time, ..))| Nanos::new(*time))
    }

    /// Lets time pass until then, and does what is due.
    pub fn advance(&mut self, to: Nanos) {
        while let Some(Reverse((time, _, number))) = self.due.peek().copied() {
            if time > to.get() {
                break;
            }
            self.due.pop();
            self.now = self.now.max(time);
            if let Some(act) = self.acts.remove(&number) {
                self.act(act);
            }
        }
        self.now = self.now.max(to.get());
    }

    /// A node has ended: nothing is executed there any more.
    pub fn end(&mut self, node: u32) {
        self.gone.insert(node);
        self.nodes[node as usize].memory.deregister_all();
        for pair in self.pairs.values_mut() {
            for side in 0..2 {
                pair.stopped[side] |= pair.ends[side] == node;
            }
        }
    }

    /// Whether a node has ended.
    pub fn has_ended(&self, node: u32) -> bool {
        self.gone.contains(&node)
    }

    /// A node's memory.
    pub fn memory(&mut self, node: u32) -> &mut Memory {
        &mut self.nodes[node as usize].memory
    }

    /// Something more goes wrong; its number.
    pub fn inject(&mut self, fault: Fault) -> usize {
        let number = self.hit.len();
        self.hit.push(false);
        self.config.faults.push(fault);
        if fault.kind == Kind::Up {
            self.at(fault.from, Act::Up(number));
        }
        number
    }

    /// Ends what keeps the rail of this fault down.
    fn up(&mut self, number: usize) {
        let (Fault { node, rail, .. }, now) = (self.config.faults[number], self.now);
        for fault in &mut self.config.faults {
            let is_theirs = (fault.kind, fault.node, fault.rail) == (Kind::Down, node, rail);
            if is_theirs && (fault.from..fault.from + fault.lasts).contains(&now) {
                fault.lasts = now - fault.from;
                self.hit[number] = true;
            }
        }
    }

    /// Whether each fault has changed something.
    pub fn hit(&self) -> &[bool] {
        &self.hit
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        Counts { hits: self.hit.iter().filter(|hit| **hit).count() as u64, ..self.counts }
    }

    /// What a node is told.
    pub fn events(&mut self, node: u32) -> &mut Vec<Event> {
        &mut self.nodes[node as usize].events
    }

    fn at(&mut self, time: u64, act: Act) {
        let number = self.next_act;
        self.next_act += 1;
        let tie = self.rng.draw();
        self.due.push(Reverse((time, tie, number)));
        self.acts.insert(number, act);
    }

    fn soon(&mut self, low: u64, high: u64, act: Act) {
        let time = self.now + self.rng.between(low, high);
        self.at(time, act);
    }

    /// The fault that strikes a pair's rails now, if there is one of a kind.
    fn struck(&mut self, pair: u64, is: impl Fn(Kind) -> bool) -> bool {
        let Some(pair) = self.pairs.get(&pair) else { return false };
        let now = self.now;
        let meets = |fault: &Fault| {
            is(fault.kind)
                && (fault.from..fault.from + fault.lasts).contains(&now)
                && fault.rail == pair.rail
                && pair.ends.contains(&fault.node)
        };
        let at = self.config.faults.iter().position(meets);
        at.inspect(|at| self.hit[*at] = true).is_some()
    }

    /// A node posts pieces on its lane.
    pub fn post(&mut self, node: u32, id: LaneId, batch: &Batch<'_>) {
        let (pair, side) = (id.0 / 2, (id.0 % 2) as usize);
        for piece in batch.requests() {
            let Some(known) = self.pairs.get(&pair).filter(|known| !known.stopped[side]) else {
                self.post_late(node, id, piece.op);
                continue;
            };
            assert_eq!(known.ends[side], node, "a lane is posted on by its own end");
            let own = piece.local_keys.get(known.rail as usize);
            let is_own = own == Some(&key(node, known.rail)) || matches!(piece.op, Op::Send | Op::Flush);
            assert!(is_own, "key of this end's region");
            let key = piece.remote_keys.get(known.rail as usize).copied();
            let (op, local, remote, len) = (piece.op, piece.local, piece.remote, piece.len.into());
            let bytes = match op {
                Op::Send => Some(piece.part.to_vec()),
                Op::Write(_) => self.nodes[node as usize].memory.fetch(local, len),
                Op::Read | Op::Flush => Some(Vec::new()),
            };
            let mut takes = self.rng.between(500, 20_000);
            if self.struck(pair, |kind| kind == Kind::Hold) {
                self.counts.held += 1;
                takes += self.rng.between(100_000, 8_000_000);
                self.time_out(pair, side);
            }
            let (now, ordered) = (self.now, !self.config.unordered);
            let Some(known) = self.pairs.get_mut(&pair) else { return };
            let direction = &mut known.directions[side];
            let time = if ordered { (direction.arrives + 1).max(now + takes) } else { now + takes };
            direction.arrives = time;
            let number = direction.post(op);
            let unanswered = direction.posted - direction.acked;
            assert!(unanswered <= u64::from(self.config.depth), "a lane has no more than its depth");
            self.at(
                time,
                Act::Arrive(Way { pair, side, number }, Packet { op, local, remote, key, len }, bytes),
            );
        }
    }

    /// A piece is posted on a lane that works no more, which its end was not told yet.
    fn post_late(&mut self, node: u32, id: LaneId, op: Op) {
        if let Some(pair) = self.pairs.get_mut(&(id.0 / 2)) {
            pair.directions[(id.0 % 2) as usize].post(op);
        }
        let Op::Write(Some(imm)) = op else { return };
        self.nodes[node as usize].posted_late(id, imm);
    }

    fn time_out(&mut self, pair: u64, side: usize) {
        self.soon(50_000, 2_000_000, Act::TimeOut(pair, side));
    }

    fn arrive(&mut self, way: Way, piece: Packet, bytes: Option<Vec<u8>>) {
        let Way { pair: number, side, .. } = way;
        let part = if self.struck(number, |kind| kind == Kind::Lossy) { self.rng.below(3) } else { 2 };
        let silent = self.struck(number, |kind| kind == Kind::Silent) && self.rng.one_in(3);
        let down = silent || part == 0 || self.struck(number, |kind| kind == Kind::Down);
        let acks_lost = part == 1 || self.struck(number, |kind| kind == Kind::LoseAcks);
        let ordered = !self.config.unordered;
        let Some(pair) = self.pairs.get_mut(&number).filter(|pair| !pair.stopped[1 - side]) else {
            self.counts.late += 1;
            return;
        };
        let (peer, to, rail) = (pair.ends[side], pair.ends[1 - side], pair.rail);
        let direction = &mut pair.directions[side];
        let Some(bytes) = bytes.filter(|_| !direction.broken && !down) else {
            direction.broken = ordered;
            self.counts.lost += 1;
            if !silent {
                self.time_out(number, side);
            }
            return;
        };
        let late = self.config.late && ordered && matches!(piece.op, Op::Write(_));
        if !late {
            self.land(way);
        }
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let direction = &mut pair.directions[side];
        let Some(answer) = self.nodes[to as usize].execute((to, rail), piece, &bytes, late) else {
            direction.broken = ordered;
            if acks_lost || direction.acks_lost {
                return self.time_out(number, side);
            }
            self.counts.denied += 1;
            // Where there is an order it is answered behind what came before it.
            let answered = if ordered { direction.answers } else { 0 };
            let time = (answered + 1).max(self.now + self.rng.between(500, 20_000));
            return self.at(time, Act::Deny(way));
        };
        self.counts.reordered += u64::from(direction.execute(way.number));
        self.counts.executed += 1;
        let bytes = if late {
            direction.accepted.put(way.number, piece.remote, bytes);
            Vec::new()
        } else {
            bytes
        };
        let brings = (piece.op == Op::Read).then_some((piece.local, answer));
        let (completes, answers) = (self.rng.between(0, 30_000), self.rng.between(500, 20_000));
        let now = self.now;
        let after = |last: u64, time: u64| if ordered { (last + 1).max(time) } else { time };
        let (completes, answers) =
            (after(direction.completes, now + completes), after(direction.answers, now + answers));
        (direction.completes, direction.answers) = (completes, answers);
        let lost = acks_lost || direction.acks_lost;
        direction.acks_lost = lost && ordered;
        match piece.op {
            Op::Write(Some(imm)) => self.at(completes, Act::TellImm((to, peer), way, imm)),
            Op::Send => self.at(completes, Act::Tell(to, Event::Part(PeerId(peer), bytes))),
            _ => {}
        }
        if late {
            self.soon(0, 1_000_000, Act::Land(way));
        }
        if lost {
            self.counts.acks_lost += 1;
            self.time_out(number, side);
        } else {
            self.at(answers, Act::Ack(way, brings));
        }
    }

    /// What was executed with and before a piece comes to memory: how many writes.
    fn land(&mut self, Way { pair, side, number }: Way) -> u64 {
        let Some(pair) = self.pairs.get_mut(&pair) else { return 0 };
        let memory = &mut self.nodes[pair.ends[1 - side] as usize].memory;
        // Memory that was taken back meanwhile is not reached.
        pair.directions[side].accepted.up_to(number).map(|(at, bytes)| memory.place(at, &bytes)).count()
            as u64
    }

    /// An end is told of the first piece that was refused: it is none of those that a fence tells of.
    fn deny(&mut self, Way { pair, side, number }: Way) {
        let id = lane(pair, side);
        let is_told = |pair: &&mut Pair| !pair.stopped[side] && !pair.silent;
        let Some(pair) = self.pairs.get_mut(&pair).filter(is_told) else { return };
        if pair.directions[side].deny(number) {
            self.nodes[pair.ends[side] as usize].events.push(Event::Denied(id, number));
        }
    }

    /// An answer comes.
    fn answer(&mut self, way: Way, brings: Option<(u64, Vec<u8>)>) {
        let Way { pair, side, number } = way;
        let (id, ordered) = (lane(pair, side), !self.config.unordered);
        let Some(pair) = self.pairs.get_mut(&pair).filter(|pair| !pair.stopped[side]) else { return };
        let node = &mut self.nodes[pair.ends[side] as usize];
        if let Some((at, bytes)) = brings {
            node.memory.place(at, &bytes);
        }
        if !pair.silent {
            pair.directions[side].answer(number);
            node.events.push(if ordered { Event::Sent(id, 1) } else { Event::Executed(id, number) });
        }
    }

    /// An end is told of an immediate. Its pair may be gone.
    fn tell_imm(&mut self, to: (u32, u32), way: Way, imm: u32) {
        let (node, peer) = to;
        self.land(way);
        let pair = self.pairs.get_mut(&way.pair);
        pair.into_iter().for_each(|pair| pair.directions[way.side].tell(imm));
        self.nodes[node as usize].events.push(Event::Imm(PeerId(peer), imm));
    }

    /// An expectation of a node was reached.
    pub fn reached(&mut self, node: u32, peer: u32, imm: u32) {
        for pair in self.pairs.values_mut() {
            for side in 0..2 {
                if (pair.ends[1 - side], pair.ends[side]) == (node, peer) {
                    pair.directions[side].reached(imm);
                }
            }
        }
    }

    /// An end destroys its halves, whatever the other one does.
    pub fn leave(&mut self, node: u32, peer: u32) {
        let side = |pair: &Pair| pair.ends.iter().position(|end| *end == node);
        let is_theirs = |pair: &&mut Pair| pair.ends.contains(&node) && pair.ends.contains(&peer);
        let mut pairs = Vec::new();
        for (number, pair) in self.pairs.iter_mut().filter(|(_, pair)| is_theirs(pair)) {
            if let Some(side) = side(pair) {
                pair.left[side] = true;
                pairs.push((*number, side));
            }
        }
        self.left.insert((node, peer));
        self.soon(1_000, 200_000, Act::Left(node, peer, pairs));
    }

    fn left(&mut self, node: u32, peer: u32, pairs: Vec<(u64, usize)>) {
        self.nodes[node as usize].events.push(Event::Left(PeerId(peer)));
        for (number, side) in pairs {
            self.pairs.get_mut(&number).into_iter().for_each(|pair| pair.stopped[side] = true);
            self.land(Way { pair: number, side: 1 - side, number: u64::MAX });
            let closed = Event::Closed(lane(number, side), Fence::NoTruth);
            self.soon(20_000_000, 20_000_000, Act::Tell(node, closed));
        }
    }

    /// Both halves go to ERR, each when its end gets to it.
    pub fn close(&mut self, lane: LaneId) {
        let number = lane.0 / 2;
        let Some(pair) = self.pairs.get_mut(&number).filter(|pair| !pair.closing) else { return };
        pair.closing = true;
        self.counts.fences += 1;
        let once_in = |rng: &mut Rng, n| n > 0 && rng.one_in(n);
        let fence = match () {
            () if pair.left != [false; 2] => Fence::NoTruth,
            () if once_in(&mut self.rng, self.config.unproven) => Fence::Unproven,
            () if once_in(&mut self.rng, self.config.no_truth) => Fence::NoTruth,
            () => Fence::Executed(0),
        };
        self.counts.no_truth += u64::from(fence == Fence::NoTruth);
        self.counts.unproven += u64::from(fence == Fence::Unproven);
        let is_unproven = fence == Fence::Unproven;
        self.pairs.get_mut(&number).into_iter().for_each(|pair| pair.fence = fence.clone());
        if is_unproven {
            // Nobody is stopped, and the other end learns of it as well.
            return self.soon(500_000, 1_000_000, Act::Closed(number));
        }
        self.soon(1_000, 200_000, Act::Stop(number, 0));
        self.soon(1_000, 200_000, Act::Stop(number, 1));
    }

    fn stop(&mut self, number: u64, side: usize) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.stopped[side] = true;
        self.land(Way { pair: number, side: 1 - side, number: u64::MAX });
        let Some(pair) = self.pairs.get(&number) else { return };
        let (end, both) = (pair.ends[side], pair.stopped == [true; 2]);
        self.nodes[end as usize].events.push(Event::Failed(lane(number, side)));
        if both {
            self.soon(1_000, 300_000, Act::Closed(number));
        }
    }

    fn closed(&mut self, number: u64) {
        // Where nothing is proved, what is on its way may land: the connection stays.
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        for side in 0..2 {
            let direction = &pair.directions[side];
            let fence = match &pair.fence {
                Fence::Executed(_) if self.config.unordered => Fence::Counted(direction.counted()),
                Fence::Executed(_) => Fence::Executed(direction.executed),
                fence => fence.clone(),
            };
            let event = Event::Closed(lane(number, side), fence);
            if !pair.left[side] {
                self.nodes[pair.ends[side] as usize].events.push(event);
            }
        }
        let (ends, rail, proven) = (pair.ends, pair.rail, pair.fence != Fence::Unproven);
        pair.silent = true;
        if proven {
            self.pairs.remove(&number);
        }
        self.soon(100_000, 3_000_000, Act::Open(ends[0], ends[1], rail));
    }

    fn open(&mut self, a: u32, b: u32, rail: u32, first: bool) {
        let is_gone = self.gone.contains(&a) || self.gone.contains(&b);
        if is_gone || self.left.contains(&(a, b)) || self.left.contains(&(b, a)) {
            return;
        }
        let number = self.next_pair;
        self.pairs.insert(number, Pair::new([a, b], rail));
        if !first && self.struck(number, |kind| kind == Kind::Down) {
            self.pairs.remove(&number);
            return self.soon(100_000, 1_000_000, Act::Open(a, b, rail));
        }
        self.next_pair += 1;
        self.counts.reopened += u64::from(!first);
        for (side, (own, peer)) in [(a, b), (b, a)].into_iter().enumerate() {
            let facts = LaneFacts {
                peer: PeerId(peer),
                local: rail,
                remote: rail,
                depth: self.config.depth,
                rate: 1 + u64::from(rail),
                lands_late: self.config.late && !self.config.unordered,
            };
            self.nodes[own as usize].events.push(Event::Opened(lane(number, side), facts));
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Arrive(way, piece, bytes) => self.arrive(way, piece, bytes),
            Act::Ack(way, brings) => self.answer(way, brings),
            Act::TellImm(to, way, imm) => self.tell_imm(to, way, imm),
            Act::Deny(way) => self.deny(way),
            Act::Land(way) => self.counts.landed_late += self.land(way),
            Act::Tell(node, event) => self.nodes[node as usize].events.push(event),
            Act::TimeOut(number, side) => {
                let Some(pair) = self.pairs.get_mut(&number).filter(|pair| !pair.closing) else { return };
                let end = pair.ends[side];
                self.nodes[end as usize].events.push(Event::Failed(lane(number, side)));
            }
            Act::Stop(pair, side) => self.stop(pair, side),
            Act::Left(node, peer, pairs) => self.left(node, peer, pairs),
            Act::Closed(pair) => self.closed(pair),
            Act::Open(a, b, rail) => self.open(a, b, rail, false),
            Act::Up(fault) => self.up(fault),
        }
    }
}

const fn lane(pair: u64, side: usize) -> LaneId {
    LaneId(2 * pair + side as u64)
}
