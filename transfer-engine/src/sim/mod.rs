//! A domain in virtual time that does what a network may do, by seed.
//!
//! Nodes have one connection to each other over each rail, and each connection carries both directions. On a connection
//! pieces are executed in order; between connections there is none. Packets, acknowledgements and completions take
//! any time, are lost with their rail, or are held back and come late. Once a loss has happened on a direction nothing
//! behind it is executed, as on an RC queue pair. A connection that is closed is fenced at both ends, one after the
//! other, and opened again as another one.

pub mod faults;
mod lane;
pub mod oracle;
mod rng;

pub use rng::Rng;

use crate::domain::{Domain, Event, Fence, LaneFacts, Op, Piece};
use crate::ids::{LaneId, PeerId};
use faults::{Fault, Kind};
use lane::{Direction, Pair};
use shunt_recovery::nanos::Nanos;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;

/// What a network is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Everything random comes from it.
    pub seed: u64,
    /// Engines.
    pub nodes: u32,
    /// Rails of each.
    pub rails: u32,
    /// Bytes of memory of each.
    pub memory: usize,
    /// Most pieces under way on a lane.
    pub depth: u32,
    /// One fence in so many ends without a count; 0: none.
    pub no_truth: u64,
    /// One fence in so many proves nothing; 0: none.
    pub unproven: u64,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pieces that were executed.
    pub executed: u64,
    /// Pieces that were lost with their rail, or behind one that was.
    pub lost: u64,
    /// Acknowledgements that were lost: the piece was executed.
    pub acks_lost: u64,
    /// Pieces that were held back.
    pub held: u64,
    /// Pieces that were refused: their keys are not the receiver's.
    pub denied: u64,
    /// Pieces that came when their connection was fenced, and did nothing.
    pub late: u64,
    /// Connections that were fenced.
    pub fences: u64,
    /// Fences without a count.
    pub no_truth: u64,
    /// Fences that proved nothing.
    pub unproven: u64,
    /// Connections that were opened again.
    pub reopened: u64,
    /// Faults that changed something.
    pub hits: u64,
}

enum Act {
    /// A piece of a pair's direction arrives.
    Arrive(u64, usize, Piece, Vec<u8>),
    /// An answer of the responder, and where what it brings goes.
    Ack(u64, usize, Option<(usize, Vec<u8>)>),
    Tell(u32, Event),
    /// A sender has waited long enough.
    TimeOut(u64, usize),
    /// The half of an end goes to ERR.
    Stop(u64, usize),
    /// An end has destroyed its halves of these pairs with a peer.
    Left(u32, u32, Vec<(u64, usize)>),
    Closed(u64),
    Open(u32, u32, u32),
}

struct Node {
    memory: Vec<u8>,
    events: Vec<Event>,
}

struct Net {
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
    hit: Vec<bool>,
    counts: Counts,
}

impl Net {
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

    fn post(&mut self, node: u32, id: LaneId, pieces: &[Piece]) {
        let (pair, side) = (id.0 / 2, (id.0 % 2) as usize);
        for piece in pieces {
            let Some(known) = self.pairs.get(&pair).filter(|known| !known.stopped[side]) else { return };
            assert_eq!(known.ends[side], node, "a lane is posted on by its own end");
            let own = piece.local_keys.get(known.rail as usize);
            let is_own = own == Some(&key(node, known.rail)) || matches!(piece.op, Op::Send(_));
            assert!(is_own, "key of this end's region");
            let at = piece.local as usize;
            let bytes = match &piece.op {
                Op::Send(part) => part.to_vec(),
                Op::Write(_) => self.nodes[node as usize].memory[at..at + piece.len as usize].to_vec(),
                Op::Read => Vec::new(),
            };
            let mut takes = self.rng.between(500, 20_000);
            if self.struck(pair, |kind| kind == Kind::Hold) {
                self.counts.held += 1;
                takes += self.rng.between(100_000, 8_000_000);
                self.time_out(pair, side);
            }
            let now = self.now;
            let Some(known) = self.pairs.get_mut(&pair) else { return };
            let direction = &mut known.directions[side];
            direction.arrives = (direction.arrives + 1).max(now + takes);
            direction.posted += 1;
            let unanswered = direction.posted - direction.acked;
            assert!(unanswered <= u64::from(self.config.depth), "a lane has no more than its depth");
            let time = direction.arrives;
            self.at(time, Act::Arrive(pair, side, piece.clone(), bytes));
        }
    }

    fn time_out(&mut self, pair: u64, side: usize) {
        self.soon(50_000, 2_000_000, Act::TimeOut(pair, side));
    }

    fn arrive(&mut self, number: u64, side: usize, piece: &Piece, bytes: &[u8]) {
        let down = self.struck(number, |kind| kind == Kind::Down);
        let acks_lost = self.struck(number, |kind| kind == Kind::LoseAcks);
        let Some(pair) = self.pairs.get_mut(&number) else {
            self.counts.late += 1;
            return;
        };
        if pair.stopped[1 - side] {
            self.counts.late += 1;
            return;
        }
        let (peer, to) = (pair.ends[side], pair.ends[1 - side]);
        let known = piece.remote_keys.get(pair.rail as usize) == Some(&key(to, pair.rail));
        let denied = !known && !matches!(piece.op, Op::Send(_));
        let Direction { broken, .. } = &mut pair.directions[side];
        if *broken || down {
            *broken = true;
            self.counts.lost += 1;
            return self.time_out(number, side);
        }
        if denied {
            *broken = true;
            if acks_lost || pair.directions[side].acks_lost {
                return self.time_out(number, side);
            }
            self.counts.denied += 1;
            // It is answered behind what came before it.
            let (answers, answered) = (self.rng.between(500, 20_000), pair.directions[side].answers);
            let (time, event) = ((answered + 1).max(self.now + answers), Event::Denied(lane(number, side)));
            return self.at(time, Act::Tell(peer, event));
        }
        pair.directions[side].executed += 1;
        self.counts.executed += 1;
        let (at, memory) = (piece.remote as usize, &mut self.nodes[to as usize].memory);
        if matches!(piece.op, Op::Write(_)) {
            memory[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let read = || (piece.local as usize, memory[at..at + piece.len as usize].to_vec());
        let brings = (piece.op == Op::Read).then(read);
        let (completes, answers) = (self.rng.between(0, 30_000), self.rng.between(500, 20_000));
        let now = self.now;
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let direction = &mut pair.directions[side];
        direction.completes = (direction.completes + 1).max(now + completes);
        direction.answers = (direction.answers + 1).max(now + answers);
        let (completes, answers) = (direction.completes, direction.answers);
        direction.acks_lost |= acks_lost;
        let lost = direction.acks_lost;
        let event = match piece.op {
            Op::Write(Some(imm)) => Some(Event::Imm(PeerId(peer), imm)),
            Op::Send(_) => Some(Event::Part(PeerId(peer), bytes.to_vec())),
            _ => None,
        };
        event.into_iter().for_each(|event| self.at(completes, Act::Tell(to, event)));
        if lost {
            self.counts.acks_lost += 1;
            self.time_out(number, side);
        } else {
            self.at(answers, Act::Ack(number, side, brings));
        }
    }

    /// An end destroys its halves, whatever the other one does.
    fn leave(&mut self, node: u32, peer: u32) {
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
            let closed = Event::Closed(lane(number, side), Fence::NoTruth);
            self.soon(20_000_000, 20_000_000, Act::Tell(node, closed));
        }
    }

    /// Both halves go to ERR, each when its end gets to it.
    fn close(&mut self, number: u64) {
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
        self.pairs.get_mut(&number).into_iter().for_each(|pair| pair.fence = fence);
        if fence == Fence::Unproven {
            // Nobody is stopped, and the other end learns of it as well.
            return self.soon(500_000, 1_000_000, Act::Closed(number));
        }
        self.soon(1_000, 200_000, Act::Stop(number, 0));
        self.soon(1_000, 200_000, Act::Stop(number, 1));
    }

    fn stop(&mut self, number: u64, side: usize) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.stopped[side] = true;
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
            let executed = pair.directions[side].executed;
            let fence = match pair.fence {
                Fence::Executed(_) => Fence::Executed(executed),
                fence => fence,
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
        if self.left.contains(&(a, b)) || self.left.contains(&(b, a)) {
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
            };
            self.nodes[own as usize].events.push(Event::Opened(lane(number, side), facts));
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Arrive(pair, side, piece, bytes) => self.arrive(pair, side, &piece, &bytes),
            Act::Ack(number, side, brings) => {
                let Some(pair) = self.pairs.get_mut(&number).filter(|pair| !pair.stopped[side]) else {
                    return;
                };
                let node = &mut self.nodes[pair.ends[side] as usize];
                if let Some((at, bytes)) = brings {
                    node.memory[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                if !pair.silent {
                    pair.directions[side].acked += 1;
                    node.events.push(Event::Sent(lane(number, side), 1));
                }
            }
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
        }
    }
}

/// The key of a node's memory on a rail.
pub const fn key(node: u32, rail: u32) -> u32 {
    0x100 * (node + 1) + rail
}

const fn lane(pair: u64, side: usize) -> LaneId {
    LaneId(2 * pair + side as u64)
}

/// The network, and all memory.
#[derive(Clone)]
pub struct Sim(Rc<RefCell<Net>>);

impl Sim {
    /// A network whose connections are open, and the domain of each node.
    pub fn new(config: Config) -> (Self, Vec<SimDomain>) {
        let nodes = (0..config.nodes).map(|_| Node { memory: vec![0; config.memory], events: Vec::new() });
        let mut net = Net {
            now: 0,
            rng: Rng::new(config.seed),
            due: BinaryHeap::new(),
            acts: BTreeMap::new(),
            next_act: 0,
            nodes: nodes.collect(),
            pairs: BTreeMap::new(),
            next_pair: 0,
            left: BTreeSet::new(),
            hit: vec![false; config.faults.len()],
            counts: Counts::default(),
            config,
        };
        for a in 0..net.config.nodes {
            for b in a + 1..net.config.nodes {
                (0..net.config.rails).for_each(|rail| net.open(a, b, rail, true));
            }
        }
        let count = net.config.nodes;
        let sim = Self(Rc::new(RefCell::new(net)));
        let domains = (0..count).map(|node| SimDomain { node, sim: sim.clone() }).collect();
        (sim, domains)
    }

    /// Virtual time.
    pub fn now(&self) -> Nanos {
        Nanos::new(self.0.borrow().now)
    }

    /// When something happens next; never, if nothing does.
    pub fn next_time(&self) -> Nanos {
        self.0.borrow().due.peek().map_or(Nanos::MAX, |Reverse((time, ..))| Nanos::new(*time))
    }

    /// Lets time pass until then, and does what is due.
    pub fn advance(&self, to: Nanos) {
        let mut net = self.0.borrow_mut();
        while let Some(Reverse((time, _, number))) = net.due.peek().copied() {
            if time > to.get() {
                break;
            }
            net.due.pop();
            net.now = net.now.max(time);
            if let Some(act) = net.acts.remove(&number) {
                net.act(act);
            }
        }
        net.now = net.now.max(to.get());
    }

    /// What lies in a node's memory.
    pub fn read(&self, node: u32, at: u64, len: u64) -> Vec<u8> {
        self.0.borrow().nodes[node as usize].memory[at as usize..(at + len) as usize].to_vec()
    }

    /// Writes into a node's memory, as its program does.
    pub fn write(&self, node: u32, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.0.borrow_mut().nodes[node as usize].memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        let net = self.0.borrow();
        Counts { hits: net.hit.iter().filter(|hit| **hit).count() as u64, ..net.counts }
    }
}

/// The rails of a node.
pub struct SimDomain {
    node: u32,
    sim: Sim,
}

impl Domain for SimDomain {
    fn post(&mut self, _now: Nanos, lane: LaneId, pieces: &[Piece]) {
        self.sim.0.borrow_mut().post(self.node, lane, pieces);
    }

    fn close(&mut self, _now: Nanos, lane: LaneId) {
        self.sim.0.borrow_mut().close(lane.0 / 2);
    }

    fn leave(&mut self, _now: Nanos, peer: PeerId) {
        self.sim.0.borrow_mut().leave(self.node, peer.0);
    }

    fn poll(&mut self, _now: Nanos, events: &mut Vec<Event>) {
        events.append(&mut self.sim.0.borrow_mut().nodes[self.node as usize].events);
    }
}
