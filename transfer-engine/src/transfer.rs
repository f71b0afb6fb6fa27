//! The life of transfers: which pieces wait, which are under way on which lane, and when one has ended. Pure.
//!
//! A transfer ends once, and only when no piece of it is under way on any lane. A lane that fails is fenced; what its
//! receiver had executed is done, and the rest goes to other lanes with its immediates.

use crate::domain::{Batch, Fence, LaneFacts};
use crate::error::TransferError;
use crate::ids::{LaneId, PeerId, TransferId};
use crate::landing::Landings;
use crate::lane::{Done, Rest};
use crate::life::Life;
pub use crate::life::{Cancel, Counts, Ended, Output, Quiesced};
use crate::lives::Lives;
use crate::piece::{Held, Piece, Spans, Tag, Work};
use crate::recover::{Follows, Plan, Replays};
use crate::route::Route;
use crate::routes::Routes;
use crate::suspect::Suspects;
use shunt_layout::mutant::Mutant;
use shunt_recovery::nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// All transfers of an engine.
#[derive(Debug)]
pub struct Transfers {
    give_up: Nanos,
    lives: Lives,
    routes: Routes,
    replays: Replays,
    suspects: Suspects,
    landings: Landings,
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
            lives: Lives::new(),
            routes: Routes::default(),
            replays: Replays::new(),
            suspects: Suspects::new(Nanos::MAX),
            landings: Landings::default(),
            due: Nanos::MAX,
            out: VecDeque::new(),
            done: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The same, and a lane is fenced once its oldest piece is that for so long.
    pub fn suspecting(mut self, after: Nanos) -> Self {
        self.suspects = Suspects::new(after);
        self
    }

    /// Begins a transfer. With `post` its only piece goes there at once, if a lane has room and nothing waits.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        now: Nanos,
        peer: PeerId,
        work: Work,
        post: Option<impl FnOnce(LaneId, &Batch<'_>)>,
    ) -> TransferId {
        let (at, op, pieces) = (self.routes.to(peer), work.op, work.spans.all().len());
        let lone = match (&work.spans, post) {
            (Spans::One(span), Some(post)) => {
                self.routes.at(at).at_once(span.len).map(|lane| (lane, *span, post))
            }
            _ => None,
        };
        let id = self.lives.put(peer, work, pieces, u32::from(lone.is_some()));
        if let Some((lane, span, post)) = lone {
            self.routes.at(at).post_at_once(lane, Piece::new(id, op, span), &self.lives, post);
        } else if !self.routes.wait_all(at, id) {
            self.has_begun(now, at);
        }
        self.suspect_from(now);
        id
    }

    /// Begins to send a message, of which these are the parts.
    pub fn begin_message(&mut self, now: Nanos, peer: PeerId, parts: Vec<Arc<[u8]>>) -> TransferId {
        let at = self.routes.to(peer);
        let id = self.lives.put(peer, Work::of_message(), parts.len(), 0);
        let route = self.routes.at(at);
        parts.into_iter().for_each(|part| route.wait(Held::of_message(id, part)));
        self.has_begun(now, at);
        self.suspect_from(now);
        id
    }

    /// Begins to bring into a peer's memory what was written there by transfers that have ended.
    pub(crate) fn flush(&mut self, peer: PeerId, work: Work) -> TransferId {
        let at = self.routes.to(peer);
        let id = self.lives.put_flush(peer, work, self.routes.at(at).unproven);
        self.settle(id);
        id
    }

    /// There is something to look at from now on.
    #[inline]
    fn suspect_from(&mut self, now: Nanos) {
        if self.suspects.next_deadline() == Nanos::MAX {
            self.due = self.due.min(self.suspects.wake(now));
        }
    }

    #[cold]
    fn has_begun(&mut self, now: Nanos, at: u32) {
        let route = self.routes.at(at);
        if route.left {
            let peer = route.peer;
            return self.leave(peer);
        }
        self.routes.make_ready(at);
        self.look_for_lanes(now, at);
    }

    /// A peer leaves, for good: what waits for it ends, and so does what is begun later. What is under way ends when
    /// its lanes are closed, which the domain does of its own.
    pub fn leave(&mut self, peer: PeerId) {
        let at = self.routes.to(peer);
        self.routes.at(at).leave();
        self.stop_all(peer, |written, of| TransferError::PeerLeft { peer, written, of });
        self.routes.at(at).wait_for_nothing();
    }

    fn stop_all(&mut self, peer: PeerId, why: impl Fn(u64, u64) -> TransferError) {
        let theirs = |life: &Life| life.peer == peer && life.waiting + life.under_way > 0;
        let ids = self.lives.which(theirs);
        for id in &ids {
            self.lives.get_mut(*id).into_iter().for_each(|life| life.stop(&why));
        }
        // All at once: what waits for a peer is gone through once, however many transfers that are.
        self.drop_all_waiting(peer, &ids);
        ids.into_iter().for_each(|id| self.settle(id));
    }

    /// A lane may be used.
    pub fn opened(&mut self, id: LaneId, facts: LaneFacts) {
        self.counts.opened(self.routes.opened(id, facts));
    }

    /// Gives pieces to `post`, as many as lanes have room for: they are under way from here on. True if there were
    /// some.
    #[inline]
    pub fn post(&mut self, post: impl FnMut(LaneId, &Batch<'_>)) -> bool {
        self.routes.post(&mut self.lives, post)
    }

    /// The oldest pieces of a lane are executed.
    pub fn sent(&mut self, id: LaneId, count: u64) {
        let Some(at) = self.routes.of(id) else { return };
        let mut done = std::mem::take(&mut self.done);
        let mark = self.routes.at(at).lane(id).map_or(0, |lane| lane.sent(count, &mut done));
        self.routes.make_ready(at);
        for one in done.drain(..) {
            self.is_done(id, mark, one);
        }
        self.done = done;
    }

    #[inline(always)]
    fn is_done(&mut self, lane: LaneId, mark: u32, one: Done) {
        match one {
            Done::Pieces(id, count) => self.written(id, count, mark),
            Done::Replayed(tag) => self.replayed(tag),
            Done::Flushed => {
                let landed = self.landings.answered(&mut self.routes, lane);
                landed.into_iter().for_each(|id| self.landed(id));
            }
        }
    }

    /// A piece of a lane without an order is executed.
    pub fn executed(&mut self, id: LaneId, number: u64) {
        let Some(at) = self.routes.of(id) else { return };
        let held = self.routes.at(at).lane(id).and_then(|lane| lane.take(number));
        self.routes.make_ready(at);
        held.into_iter().for_each(|held| self.is_done(id, 0, held.done()));
    }

    /// A lane does not work any more.
    pub fn failed(&mut self, now: Nanos, id: LaneId) {
        self.fence(now, id);
    }

    /// A lane does not work any more, because a NIC refused the piece of this number.
    pub fn denied(&mut self, now: Nanos, id: LaneId, number: u64) {
        self.routes.lane(id).into_iter().for_each(|lane| lane.denied = Some(number));
        self.fence(now, id);
    }

    /// A lane is closed.
    pub fn closed(&mut self, now: Nanos, id: LaneId, fence: Fence) {
        let Some((at, lane)) = self.routes.closed(id) else { return };
        self.counts.closed += u64::from(!self.routes.at(at).left);
        self.look_for_lanes(now, at);
        let (peer, mark) = (lane.facts.peer, lane.mark);
        let Rest { denied, plan, quiet } = lane.rest(fence);
        if !quiet {
            self.lives.unsure(peer, mark);
            self.routes.at(at).unproven = true;
        }
        denied.into_iter().for_each(|held| self.deny(held));
        let Plan { executed, again, replays, in_doubt } = plan;
        executed.into_iter().for_each(|held| self.done(held));
        self.give_up_pieces(in_doubt, quiet);
        self.again(at, again);
        for (pieces, missing) in replays {
            self.replay(pieces, missing);
        }
        self.landings.closed(id).into_iter().for_each(|transfer| self.landed(transfer));
    }

    /// Pieces of one immediate are written again, of which so many did not arrive.
    fn replay(&mut self, pieces: Vec<Held>, missing: u64) {
        let owners: BTreeSet<_> = pieces.iter().map(|held| held.piece.transfer).collect();
        let post = self.replays.begin(pieces, missing);
        self.counts.again += post.len() as u64;
        self.counts.replays += 1;
        self.follow(Follows { post, ..Follows::default() }, true);
        let is_stopped = |id: &TransferId| self.lives.get(*id).is_some_and(Life::is_stopped);
        let stopped: Vec<_> = owners.into_iter().filter(is_stopped).collect();
        stopped.into_iter().for_each(|id| self.drop_waiting(id));
    }

    /// Does what follows from a change of a replay. `quiet`: nothing of it can land any more.
    fn follow(&mut self, follows: Follows, quiet: bool) {
        let Follows { post, executed, in_doubt } = follows;
        for held in post.into_iter().rev() {
            // Its transfer has not ended: it waits for this piece.
            let Some(peer) = self.lives.get(held.piece.transfer).map(|life| life.peer) else { continue };
            let at = self.routes.to(peer);
            self.routes.wait_first(at, held);
        }
        executed.into_iter().for_each(|held| self.done(held));
        self.give_up_pieces(in_doubt.into(), quiet);
    }

    /// Cancels a transfer. False if it has ended.
    pub fn cancel(&mut self, now: Nanos, id: TransferId, how: Cancel) -> bool {
        let Some(life) = self.lives.get_mut(id) else { return false };
        life.stop(|written, of| TransferError::Cancelled { written, of });
        if let Cancel::Drain(until) = how {
            life.trouble_mut().drain_until = Some(until);
            self.due = self.due.min(until);
        }
        self.drop_waiting(id);
        if how == Cancel::Now && Mutant::CancelledUnfenced.on() {
            self.lives.get_mut(id).into_iter().for_each(|life| life.under_way = 0);
        } else if how == Cancel::Now {
            self.fence_holders(now, id);
        }
        self.settle(id);
        true
    }

    /// Time passes.
    #[inline]
    pub fn tick(&mut self, now: Nanos) {
        if now >= self.due {
            self.look_at_time(now);
        }
    }

    fn look_at_time(&mut self, now: Nanos) {
        let overdue = self.lives.drained(now);
        overdue.into_iter().for_each(|id| self.fence_holders(now, id));
        self.suspect(now);
        let lost = self.routes.lost(now, self.give_up);
        lost.into_iter().for_each(|peer| self.lose(now, peer));
        let drains = self.lives.iter().filter_map(|life| life.trouble().drain_until);
        let others = [self.routes.next_loss(self.give_up), self.suspects.next_deadline()];
        self.due = drains.chain(others).min().unwrap_or(Nanos::MAX);
    }

    fn suspect(&mut self, now: Nanos) {
        let lanes = || self.routes.iter().flat_map(Route::lanes).filter(|(_, lane)| !lane.is_closing());
        let bytes = lanes().map(|(_, lane)| lane.load().bytes).sum();
        let oldest = lanes().filter_map(|(id, lane)| Some((*id, lane.oldest()?)));
        let more = self.lives.iter().next().is_some();
        let suspects = self.suspects.look(now, oldest, bytes, more);
        suspects.into_iter().for_each(|lane| self.fence(now, lane));
    }

    /// When [`Transfers::tick`] may have something to do next.
    pub const fn next_deadline(&self) -> Nanos {
        self.due
    }

    /// What is to be done next.
    #[inline]
    pub fn next_output(&mut self) -> Option<Output> {
        let output = self.out.pop_front()?;
        // What is kept by its place is of no use to another transfer before this one's end is told.
        if let Output::Ended(ended) = &output {
            self.lives.let_go(ended.transfer);
        }
        Some(output)
    }

    /// True if a transfer that has not ended reads or writes a region of this end.
    pub fn uses(&self, keys: &[u32]) -> bool {
        self.lives.iter().any(|life| *life.work.local_keys == *keys)
    }

    /// What has become of lanes and pieces so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Lanes that may be used, to whatever peer.
    pub fn lanes(&self) -> impl Iterator<Item = &LaneFacts> {
        self.routes.iter().flat_map(Route::open).map(|lane| &lane.facts)
    }

    #[inline]
    fn look_for_lanes(&mut self, now: Nanos, at: u32) {
        let route = self.routes.at(at);
        if route.open().next().is_none() {
            let since = *route.pathless.get_or_insert(now);
            self.due = self.due.min(since + self.give_up);
        }
    }

    fn fence(&mut self, now: Nanos, id: LaneId) {
        let Some(lane) = self.routes.lane(id).filter(|lane| !lane.is_closing()) else { return };
        lane.close();
        let peer = lane.facts.peer;
        self.out.push_back(Output::Close(id));
        let at = self.routes.to(peer);
        self.look_for_lanes(now, at);
    }

    fn fence_holders(&mut self, now: Nanos, id: TransferId) {
        self.routes.holders(id).into_iter().for_each(|lane| self.fence(now, lane));
    }

    fn lose(&mut self, now: Nanos, peer: PeerId) {
        let at = self.routes.to(peer);
        let route = self.routes.at(at);
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
            None => self.written(held.piece.transfer, 1, 0),
            Some(tag) => self.replayed(tag),
        }
    }

    fn replayed(&mut self, tag: Tag) {
        let follows = self.replays.executed(tag);
        self.follow(follows, true);
    }

    /// More pieces are executed.
    fn written(&mut self, id: TransferId, count: u32, mark: u32) {
        if let Some(life) = self.lives.get_mut(id) {
            life.on |= mark;
            (life.under_way, life.written) = (life.under_way - count, life.written + count);
        }
        self.settle(id);
    }

    /// Pieces that were not executed wait again, in front, unless their transfer was stopped.
    fn again(&mut self, at: u32, pieces: VecDeque<Held>) {
        for held in pieces.into_iter().rev() {
            if let Some(tag) = held.tag.filter(|tag| self.replays.is_over(*tag)) {
                let follows = self.replays.lost(tag);
                self.follow(follows, true);
                continue;
            }
            let id = held.piece.transfer;
            let life = self.lives.get_mut(id).filter(|_| held.tag.is_none());
            let goes_on = life.map(Life::is_again);
            let left = if held.tag.is_some() || goes_on == Some(true) { Some(held) } else { held.left() };
            if let Some(held) = left.filter(|_| !self.routes.at(at).left) {
                self.counts.again += 1;
                self.routes.wait_first(at, held);
            }
            self.settle(id);
        }
    }

    /// Pieces of which it is not known whether they were executed (`quiet`), or whether they will be.
    fn give_up_pieces(&mut self, pieces: VecDeque<Held>, quiet: bool) {
        let mut counts = BTreeMap::new();
        for held in pieces {
            match held.tag {
                None => *counts.entry(held.piece.transfer).or_insert(0u32) += 1,
                Some(tag) => {
                    let follows = self.replays.lost(tag);
                    self.follow(follows, quiet);
                }
            }
        }
        for (id, pieces) in counts {
            let Some(life) = self.lives.get_mut(id) else { continue };
            life.gives_up(pieces, quiet);
            self.drop_waiting(id);
            self.settle(id);
        }
    }

    /// A transfer is stopped: what waits of it is not sent, and neither is what replays have of it.
    fn drop_waiting(&mut self, id: TransferId) {
        let Some(life) = self.lives.get(id) else { return };
        self.drop_all_waiting(life.peer, &[id]);
    }

    /// The same of transfers to one peer.
    fn drop_all_waiting(&mut self, peer: PeerId, ids: &[TransferId]) {
        let Self { lives, routes, replays, .. } = self;
        for id in ids {
            lives.get_mut(*id).into_iter().for_each(|life| life.waiting = 0);
        }
        let all: Vec<_> = ids.iter().map(|id| replays.stop(*id)).collect();
        let ids: BTreeSet<_> = ids.iter().copied().collect();
        let (at, mut over) = (routes.to(peer), Vec::new());
        routes.at(at).drop_waiting(&ids, |held| match held.tag {
            Some(tag) if replays.is_over(tag) => {
                over.push(tag);
                None
            }
            None if held.only.is_none() && ids.contains(&held.piece.transfer) => held.left(),
            _ => Some(held),
        });
        all.into_iter().for_each(|follows| self.follow(follows, true));
        for tag in over {
            let follows = self.replays.lost(tag);
            self.follow(follows, true);
        }
    }

    /// A NIC refused a piece that is under way no more: the rest of its transfer is not sent.
    fn deny(&mut self, held: Held) {
        let id = held.piece.transfer;
        let Some(life) = self.lives.get_mut(id) else { return };
        let peer = life.peer;
        life.stop(|written, of| TransferError::Denied { peer, written, of });
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

    /// One lane fewer may have bytes of a transfer that are not in memory.
    fn landed(&mut self, id: TransferId) {
        self.lives.get_mut(id).into_iter().for_each(Life::landed);
        self.settle(id);
    }

    /// True while a lane may have bytes of a transfer that are not in memory. All are asked, once.
    #[cold]
    fn is_landing(&mut self, id: TransferId) -> bool {
        let Self { lives, routes, landings, .. } = self;
        let Some(life) = lives.get_mut(id).filter(|_| !Mutant::StoppedUnflushed.on()) else { return false };
        if life.trouble().lands.is_none() {
            life.trouble_mut().lands = Some(landings.begin(routes, id, life));
        }
        life.trouble().lands > Some(0)
    }

    /// Ends a transfer of which nothing waits, nothing is under way, and nothing is on its way to memory.
    fn settle(&mut self, id: TransferId) {
        let Some(life) = self.lives.get(id) else { return };
        let is_over = life.waiting == 0 && (life.under_way == 0 || Mutant::EndsUnderWay.on());
        if !is_over || life.on != 0 && !life.is_counted() && self.is_landing(id) {
            return;
        }
        let Some(life) = self.lives.take(id) else { return };
        self.out.push_back(Output::Ended(life.end(id)));
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
