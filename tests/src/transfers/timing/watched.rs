//! A domain that writes down when pieces are posted and when they are done, lane by lane.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shunt_host::nanos::Nanos;
use shunt_transfer_engine::domain::{Batch, Domain, Event, Fence, LaneFacts};
use shunt_transfer_engine::ids::{LaneId, PeerId, TransferId};
use shunt_transfer_engine::rc::RcDomain;

/// A piece, whichever lane it is on: its transfer, and where it goes.
type Key = (TransferId, u64);

struct Lane {
    rail: u32,
    opened: Nanos,
    /// Pieces under way, the oldest first: which, since when, how many bytes.
    out: VecDeque<(Key, Nanos, u64)>,
    executed: u64,
    /// It was left, or its fence was told.
    is_left: bool,
}

/// The fault of a run, and what became of the pieces that it met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub at: Nanos,
    /// When the port is there again.
    pub up: Nanos,
    pub rail: u32,
}

/// What was seen of it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// When the lane was left, and when its fence told what was executed.
    pub left: Option<Nanos>,
    pub fenced: Option<Nanos>,
    /// Pieces that were under way on it when the fault came: how many, and when the first and the last were done.
    pub met: usize,
    pub first: Option<Nanos>,
    pub last: Option<Nanos>,
    /// Longest time without a completion on any lane, from the fault until the last of them was done.
    pub quiet: Nanos,
    /// When a piece was done on a lane of this rail that was opened after the port was there again.
    pub back: Option<Nanos>,
}

/// What a process has posted, and what of it is done.
#[derive(Default)]
pub(super) struct Log {
    lanes: BTreeMap<LaneId, Lane>,
    fault: Option<Fault>,
    pub seen: Seen,
    waited_for: BTreeSet<Key>,
    last_done: Nanos,
    /// Bytes that are done.
    pub bytes: u64,
}

impl Log {
    /// There will be a fault.
    pub fn expect(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// True once all pieces that the fault met are done.
    pub fn is_settled(&self) -> bool {
        self.seen.fenced.is_some() && self.waited_for.is_empty()
    }

    /// Transfers with a piece under way on a rail, the oldest piece first.
    pub fn on_rail(&self, rail: u32) -> impl Iterator<Item = TransferId> {
        let lanes = self.lanes.values().filter(move |lane| lane.rail == rail && !lane.is_left);
        lanes.flat_map(|lane| lane.out.iter().map(|((transfer, _), ..)| *transfer))
    }

    fn opened(&mut self, now: Nanos, id: LaneId, facts: &LaneFacts) {
        let lane = Lane { rail: facts.local, opened: now, out: VecDeque::new(), executed: 0, is_left: false };
        self.lanes.insert(id, lane);
    }

    fn posted(&mut self, now: Nanos, id: LaneId, batch: &Batch<'_>) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let all = batch.requests();
        lane.out.extend(all.map(|one| ((one.transfer, one.remote), now, u64::from(one.len))));
    }

    /// The first lane of the rail that is left after the fault is the one that it met.
    fn left(&mut self, now: Nanos, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.is_left = true;
        let Some(fault) = self.fault.filter(|fault| fault.rail == lane.rail && fault.at <= now) else {
            return;
        };
        if self.seen.left.is_none() {
            self.seen.left = Some(now);
            let met = lane.out.iter().filter(|(_, since, _)| *since < fault.at);
            self.waited_for = met.map(|(key, ..)| *key).collect();
            self.seen.met = self.waited_for.len();
        }
    }

    fn sent(&mut self, now: Nanos, id: LaneId, count: u64) {
        for _ in 0..count {
            let Some(lane) = self.lanes.get_mut(&id) else { return };
            let (rail, opened) = (lane.rail, lane.opened);
            lane.executed += 1;
            let Some((key, _, bytes)) = lane.out.pop_front() else { return };
            self.done(now, key, bytes);
            let is_back = |fault: Fault| rail == fault.rail && fault.up <= opened;
            if self.fault.is_some_and(is_back) {
                self.seen.back.get_or_insert(now);
            }
        }
    }

    fn closed(&mut self, now: Nanos, id: LaneId, fence: &Fence) {
        let Some(lane) = self.lanes.get(&id) else { return };
        if self.seen.left.is_some() && self.fault.is_some_and(|fault| fault.rail == lane.rail) {
            self.seen.fenced.get_or_insert(now);
        }
        let more = match fence {
            Fence::Executed(count) => count.saturating_sub(lane.executed),
            _ => 0,
        };
        self.sent(now, id, more);
        self.lanes.remove(&id);
    }

    fn done(&mut self, now: Nanos, key: Key, bytes: u64) {
        self.bytes += bytes;
        let since = std::mem::replace(&mut self.last_done, now);
        let Some(fault) = self.fault.filter(|fault| fault.at <= now) else { return };
        if self.seen.last.is_none() || !self.waited_for.is_empty() {
            self.seen.quiet = self.seen.quiet.max(now - since.max(fault.at));
        }
        if self.waited_for.remove(&key) {
            self.seen.first.get_or_insert(now);
            self.seen.last = Some(now);
        }
    }
}

/// The domain, and what it has written down.
pub(super) struct Watched {
    pub inner: RcDomain,
    pub log: Log,
}

impl Watched {
    /// Nothing yet.
    pub fn new(inner: RcDomain) -> Self {
        Self { inner, log: Log::default() }
    }
}

impl Domain for Watched {
    fn post(&mut self, now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        self.log.posted(now, lane, batch);
        self.inner.post(now, lane, batch);
    }

    fn close(&mut self, now: Nanos, lane: LaneId) {
        self.log.left(now, lane);
        self.inner.close(now, lane);
    }

    fn leave(&mut self, now: Nanos, peer: PeerId) {
        self.inner.leave(now, peer);
    }

    fn reached(&mut self, peer: PeerId, imm: u32) {
        self.inner.reached(peer, imm);
    }

    fn poll(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let before = events.len();
        self.inner.poll(now, events);
        for event in &events[before..] {
            match event {
                Event::Opened(lane, facts) => self.log.opened(now, *lane, facts),
                Event::Sent(lane, count) => self.log.sent(now, *lane, *count),
                Event::Closed(lane, fence) => self.log.closed(now, *lane, fence),
                _ => {}
            }
        }
    }
}
