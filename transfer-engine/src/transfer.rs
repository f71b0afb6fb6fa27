//! The life of transfers: which pieces wait, which are under way on which lane, and when one has ended. Pure.
//!
//! A transfer ends once, and only when no piece of it is under way on any lane. A lane that fails is fenced; what its
//! receiver had executed is done, and the rest goes to other lanes with its immediates.

use crate::domain::{Fence, LaneFacts, Op, Piece};
use crate::error::TransferError;
use crate::ids::{ByNumber, LaneId, PeerId, TransferId};
use crate::lane::{Done, Lane, Rest};
use crate::life::Life;
pub use crate::life::{Cancel, Ended, Quiesced};
use crate::message;
use crate::recover::{Follows, Held, Plan, Replays, Tag};
use crate::route::Route;
use shunt_layout::mutant::Mutant;
use shunt_recovery::nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// A lane is to be fenced.
    Close(LaneId),
    /// A transfer has ended.
    Ended(Ended),
    /// A peer had no lane for the give-up time. Said once for each time it is lost.
    Lost(PeerId),
}

/// What has become of lanes and pieces so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lanes that were opened.
    pub opened: u64,
    /// Lanes that were closed, because they failed or held what was cancelled.
    pub closed: u64,
    /// Pieces that were under way on a closed lane and go over another one.
    pub again: u64,
    /// Times that some pieces of an immediate had arrived, some had not, and their receiver could not tell which.
    pub replays: u64,
}

/// All transfers of an engine.
#[derive(Debug)]
pub struct Transfers {
    give_up: Nanos,
    next: u64,
    lives: ByNumber<TransferId, Life>,
    routes: ByNumber<PeerId, Route>,
    lane_of: ByNumber<LaneId, PeerId>,
    /// Peers for which a piece may be posted, each once.
    ready: VecDeque<PeerId>,
    replays: Replays,
    /// [`Transfers::tick`] has nothing to do before.
    due: Nanos,
    out: VecDeque<Output>,
    done: Vec<Done>,
    counts: Counts,
}

impl Transfers {
    /// None yet. A peer without a lane for `give_up` is lost.
    pub fn new(give_up: Nanos) -> Self {
        Self {
            give_up,
            next: 0,
            lives: ByNumber::default(),
            routes: ByNumber::default(),
            lane_of: ByNumber::default(),
            ready: VecDeque::new(),
            replays: Replays::new(),
            due: Nanos::MAX,
            out: VecDeque::new(),
            done: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The number that the next transfer has.
    pub const fn next_id(&self) -> TransferId {
        TransferId(self.next)
    }

    /// Begins a transfer of these pieces, which carry [`Transfers::next_id`].
    pub fn begin(&mut self, now: Nanos, peer: PeerId, pieces: impl IntoIterator<Item = Piece>) -> TransferId {
        let id = self.next_id();
        self.next += 1;
        let route = self.routes.entry(peer).or_default();
        let before = route.waiting.len();
        route.waiting.extend(pieces.into_iter().map(Held::of_transfer));
        self.lives.insert(id, Life::new(peer, (route.waiting.len() - before) as u64));
        if route.left {
            self.leave(peer);
        } else {
            route.make_ready(peer, &mut self.ready);
            self.look_for_lanes(now, peer);
        }
        self.settle(id);
        id
    }

    /// A peer leaves, for good: what waits for it ends, and so does what is begun later. What is under way ends when
    /// its lanes are closed, which the domain does of its own.
    pub fn leave(&mut self, peer: PeerId) {
        self.routes.entry(peer).or_default().leave();
        self.stop_all(peer, |written, of| TransferError::PeerLeft { peer, written, of });
        self.routes.entry(peer).or_default().waiting.clear();
    }

    fn stop_all(&mut self, peer: PeerId, why: impl Fn(u64, u64) -> TransferError) {
        let theirs = |life: &Life| life.peer == peer && life.waiting + life.under_way > 0;
        let ids = self.of_lives(theirs);
        for id in ids {
            if let Some(life) = self.lives.get_mut(&id) {
                let (written, of) = (life.written, life.total);
                life.stopped.get_or_insert_with(|| why(written, of));
            }
            self.drop_waiting(id);
            self.settle(id);
        }
    }

    /// Transfers of which something is true, the oldest first.
    fn of_lives(&self, is: impl Fn(&Life) -> bool) -> Vec<TransferId> {
        let mut ids: Vec<_> = self.lives.iter().filter(|(_, life)| is(life)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// A lane may be used.
    pub fn opened(&mut self, id: LaneId, facts: LaneFacts) {
        self.counts.opened += 1;
        self.lane_of.insert(id, facts.peer);
        let route = self.routes.entry(facts.peer).or_default();
        route.opened(id, facts);
        route.make_ready(facts.peer, &mut self.ready);
    }

    /// The next pieces to post, and on which lane: they are under way from here on.
    pub fn next_batch(&mut self) -> Option<(LaneId, &[Piece])> {
        let Self { routes, lives, ready, .. } = self;
        while let Some(route) = ready.front().and_then(|peer| routes.get_mut(peer)) {
            route.assign(|id, count| {
                if let Some(life) = lives.get_mut(&id) {
                    (life.waiting, life.under_way) = (life.waiting - count, life.under_way + count);
                }
            });
            if route.lanes().any(|(_, lane)| lane.has_fresh()) {
                break;
            }
            route.ready = false;
            ready.pop_front();
        }
        routes.get_mut(ready.front()?)?.next_batch()
    }

    fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        let peer = self.lane_of.get(&id)?;
        self.routes.get_mut(peer)?.lane(id)
    }

    /// The oldest pieces of a lane are executed.
    pub fn sent(&mut self, id: LaneId, count: u64) {
        let Some(peer) = self.lane_of.get(&id).copied() else { return };
        let Some(route) = self.routes.get_mut(&peer) else { return };
        let mut done = std::mem::take(&mut self.done);
        route.lane(id).into_iter().for_each(|lane| lane.sent(count, &mut done));
        route.make_ready(peer, &mut self.ready);
        for one in done.drain(..) {
            match one {
                Done::Pieces(id, count) => self.written(id, count),
                Done::Replayed(tag) => self.replayed(tag),
            }
        }
        self.done = done;
    }

    /// A piece of a lane without an order is executed.
    pub fn executed(&mut self, id: LaneId, number: u64) {
        let Some(peer) = self.lane_of.get(&id).copied() else { return };
        let Some(route) = self.routes.get_mut(&peer) else { return };
        let held = route.lane(id).and_then(|lane| lane.take(number));
        route.make_ready(peer, &mut self.ready);
        held.into_iter().for_each(|held| self.done(held));
    }

    /// A lane does not work any more.
    pub fn failed(&mut self, now: Nanos, id: LaneId) {
        self.fence(now, id);
    }

    /// A lane does not work any more, because a NIC refused the piece of this number.
    pub fn denied(&mut self, now: Nanos, id: LaneId, number: u64) {
        self.lane(id).into_iter().for_each(|lane| lane.denied = Some(number));
        self.fence(now, id);
    }

    /// A lane is closed.
    pub fn closed(&mut self, now: Nanos, id: LaneId, fence: Fence) {
        let Some(peer) = self.lane_of.remove(&id) else { return };
        let Some(lane) = self.routes.get_mut(&peer).and_then(|route| route.remove(id)) else { return };
        self.counts.closed += 1;
        self.look_for_lanes(now, peer);
        let Rest { denied, plan, quiet } = lane.rest(fence);
        denied.into_iter().for_each(|held| self.deny(held));
        let Plan { executed, again, replays, in_doubt } = plan;
        executed.into_iter().for_each(|held| self.done(held));
        self.give_up_pieces(in_doubt, quiet);
        self.again(peer, again);
        for (pieces, missing) in replays {
            self.replay(pieces, missing);
        }
    }

    /// Pieces of one immediate are written again, of which so many did not arrive.
    fn replay(&mut self, pieces: Vec<Held>, missing: u64) {
        let owners: BTreeSet<_> = pieces.iter().map(|held| held.piece.transfer).collect();
        let post = self.replays.begin(pieces, missing);
        self.counts.again += post.len() as u64;
        self.counts.replays += 1;
        self.follow(Follows { post, ..Follows::default() }, true);
        let is_stopped = |id: &TransferId| self.lives.get(id).is_some_and(Life::is_stopped);
        let stopped: Vec<_> = owners.into_iter().filter(is_stopped).collect();
        stopped.into_iter().for_each(|id| self.drop_waiting(id));
    }

    /// Does what follows from a change of a replay. `quiet`: nothing of it can land any more.
    fn follow(&mut self, follows: Follows, quiet: bool) {
        let Follows { post, executed, in_doubt } = follows;
        for held in post.into_iter().rev() {
            // Its transfer has not ended: it waits for this piece.
            let Some(peer) = self.lives.get(&held.piece.transfer).map(|life| life.peer) else { continue };
            let route = self.routes.entry(peer).or_default();
            route.waiting.push_front(held);
            route.make_ready(peer, &mut self.ready);
        }
        executed.into_iter().for_each(|held| self.done(held));
        self.give_up_pieces(in_doubt.into(), quiet);
    }

    /// Cancels a transfer. False if it has ended.
    pub fn cancel(&mut self, now: Nanos, id: TransferId, how: Cancel) -> bool {
        let Some(life) = self.lives.get_mut(&id) else { return false };
        let (written, of) = (life.written, life.total);
        life.stopped.get_or_insert(TransferError::Cancelled { written, of });
        if let Cancel::Drain(until) = how {
            life.drain_until = Some(until);
            self.due = self.due.min(until);
        }
        self.drop_waiting(id);
        if how == Cancel::Now && Mutant::CancelledUnfenced.on() {
            self.lives.get_mut(&id).into_iter().for_each(|life| life.under_way = 0);
        } else if how == Cancel::Now {
            self.fence_holders(now, id);
        }
        self.settle(id);
        true
    }

    /// Time passes.
    pub fn tick(&mut self, now: Nanos) {
        if now < self.due {
            return;
        }
        let overdue = self.of_lives(|life: &Life| life.drain_until.is_some_and(|until| until <= now));
        for id in overdue {
            self.lives.get_mut(&id).into_iter().for_each(|life| life.drain_until = None);
            self.fence_holders(now, id);
        }
        let give_up = self.give_up;
        let gone = |route: &Route| !route.left && route.pathless.is_some_and(|since| since + give_up <= now);
        let all = self.routes.iter().filter(|(_, route)| gone(route));
        let mut lost: Vec<_> = all.map(|(id, _)| *id).collect();
        lost.sort_unstable();
        lost.into_iter().for_each(|peer| self.lose(now, peer));
        let drains = self.lives.values().filter_map(|life| life.drain_until);
        let waits = self.routes.values().filter(|route| !route.left && (!route.lost || route.has_more()));
        let losses = waits.filter_map(|route| route.pathless.map(|since| since + self.give_up));
        self.due = drains.chain(losses).min().unwrap_or(Nanos::MAX);
    }

    /// When [`Transfers::tick`] may have something to do next.
    pub const fn next_deadline(&self) -> Nanos {
        self.due
    }

    /// What is to be done next.
    pub fn next_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// True if a transfer that has not ended reads or writes a region of this end.
    pub fn uses(&self, keys: &[u32]) -> bool {
        let is_theirs = |piece: &Piece| *piece.local_keys == *keys;
        let use_it = |route: &Route| {
            route.waiting.iter().any(|held| is_theirs(&held.piece))
                || route.lanes().any(|(_, lane)| lane.under_way().any(is_theirs))
        };
        self.routes.values().any(use_it) || self.replays.uses(keys)
    }

    /// What has become of lanes and pieces so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Lanes to a peer that may be used.
    pub fn lanes_to(&self, peer: PeerId) -> impl Iterator<Item = &LaneFacts> {
        self.routes.get(&peer).into_iter().flat_map(Route::open).map(|lane| &lane.facts)
    }

    fn look_for_lanes(&mut self, now: Nanos, peer: PeerId) {
        let route = self.routes.entry(peer).or_default();
        if route.open().next().is_none() {
            let since = *route.pathless.get_or_insert(now);
            self.due = self.due.min(since + self.give_up);
        }
    }

    fn fence(&mut self, now: Nanos, id: LaneId) {
        let Some(lane) = self.lane(id).filter(|lane| !lane.closing) else { return };
        lane.closing = true;
        let peer = lane.facts.peer;
        self.out.push_back(Output::Close(id));
        self.look_for_lanes(now, peer);
    }

    fn fence_holders(&mut self, now: Nanos, id: TransferId) {
        let holds = |lane: &Lane| lane.under_way().any(|piece| piece.transfer == id);
        let all = self.routes.values().flat_map(Route::lanes);
        let mut holders: Vec<_> = all.filter(|(_, lane)| holds(lane)).map(|(id, _)| *id).collect();
        holders.sort_unstable();
        holders.into_iter().for_each(|lane| self.fence(now, lane));
    }

    fn lose(&mut self, now: Nanos, peer: PeerId) {
        let route = self.routes.entry(peer).or_default();
        let waited_ns = route.pathless.map_or(0, |since| (now - since).get());
        let first = !std::mem::replace(&mut route.lost, true);
        self.stop_all(peer, |written, of| TransferError::PeerLost { peer, waited_ns, written, of });
        if first {
            self.out.push_back(Output::Lost(peer));
        }
    }

    /// A piece that was under way is executed.
    fn done(&mut self, held: Held) {
        match held.tag {
            None => self.written(held.piece.transfer, 1),
            Some(tag) => self.replayed(tag),
        }
    }

    fn replayed(&mut self, tag: Tag) {
        let follows = self.replays.executed(tag);
        self.follow(follows, true);
    }

    /// More pieces are executed.
    fn written(&mut self, id: TransferId, count: u64) {
        if let Some(life) = self.lives.get_mut(&id) {
            (life.under_way, life.written) = (life.under_way - count, life.written + count);
        }
        self.settle(id);
    }

    /// Pieces that were not executed wait again, in front, unless their transfer was stopped.
    fn again(&mut self, peer: PeerId, pieces: VecDeque<Held>) {
        for held in pieces.into_iter().rev() {
            if let Some(tag) = held.tag.filter(|tag| self.replays.is_over(*tag)) {
                let follows = self.replays.lost(tag);
                self.follow(follows, true);
                continue;
            }
            let id = held.piece.transfer;
            let life = self.lives.get_mut(&id).filter(|_| held.tag.is_none());
            let goes_on = life.map(|life| {
                life.under_way -= 1;
                life.waiting += u64::from(!life.is_stopped());
                !life.is_stopped()
            });
            let left = if held.tag.is_some() || goes_on == Some(true) { Some(held) } else { left_of(held) };
            let route = self.routes.entry(peer).or_default();
            if let Some(held) = left.filter(|_| !route.left) {
                self.counts.again += 1;
                route.waiting.push_front(held);
                route.make_ready(peer, &mut self.ready);
            }
            self.settle(id);
        }
    }

    /// Pieces of which it is not known whether they were executed (`quiet`), or whether they will be.
    fn give_up_pieces(&mut self, pieces: VecDeque<Held>, quiet: bool) {
        let mut counts = BTreeMap::new();
        for held in pieces {
            match held.tag {
                None => *counts.entry(held.piece.transfer).or_insert(0) += 1,
                Some(tag) => {
                    let follows = self.replays.lost(tag);
                    self.follow(follows, quiet);
                }
            }
        }
        for (id, pieces) in counts {
            let Some(life) = self.lives.get_mut(&id) else { continue };
            life.under_way -= pieces;
            if quiet {
                life.uncertain += pieces;
            } else {
                life.unproven += pieces;
            }
            self.drop_waiting(id);
            self.settle(id);
        }
    }

    /// A transfer is stopped: what waits of it is not sent, and neither is what replays have of it.
    fn drop_waiting(&mut self, id: TransferId) {
        let Some(life) = self.lives.get_mut(&id) else { return };
        life.waiting = 0;
        let peer = life.peer;
        let follows = self.replays.stop(id);
        let route = self.routes.entry(peer).or_default();
        let mut over = Vec::new();
        for held in std::mem::take(&mut route.waiting) {
            match held.tag {
                Some(tag) if self.replays.is_over(tag) => over.push(tag),
                None if held.piece.transfer == id => route.waiting.extend(left_of(held)),
                _ => route.waiting.push_back(held),
            }
        }
        self.follow(follows, true);
        for tag in over {
            let follows = self.replays.lost(tag);
            self.follow(follows, true);
        }
    }

    /// A NIC refused a piece that is under way no more: the rest of its transfer is not sent.
    fn deny(&mut self, held: Held) {
        let id = held.piece.transfer;
        let Some(life) = self.lives.get_mut(&id) else { return };
        let (peer, written, of) = (life.peer, life.written, life.total);
        life.stopped.get_or_insert(TransferError::Denied { peer, written, of });
        match held.tag {
            None => life.under_way -= 1,
            Some(tag) => {
                let follows = self.replays.lost(tag);
                self.follow(follows, true);
            }
        }
        self.drop_waiting(id);
        self.settle(id);
    }

    /// Ends a transfer of which nothing waits and nothing is under way.
    fn settle(&mut self, id: TransferId) {
        let over = |life: &Life| life.waiting == 0 && (life.under_way == 0 || Mutant::EndsUnderWay.on());
        if !self.lives.get(&id).is_some_and(over) {
            return;
        }
        let Some(life) = self.lives.remove(&id) else { return };
        self.out.push_back(Output::Ended(life.end(id)));
    }
}

/// What is still to be sent of a piece whose transfer has ended: a receiver waits for the number of each part.
fn left_of(held: Held) -> Option<Held> {
    let Op::Send(part) = &held.piece.op else { return None };
    let op = Op::Send(message::skipped(part));
    Some(Held::of_transfer(Piece { transfer: TransferId::ENDED, op, ..held.piece }))
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
