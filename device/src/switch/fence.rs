//! The steps that leave a path: settle, fence and cut. Rules 8 to 13.

use super::cut::Cut;
use super::mailbox::FenceRequest;
use super::old_ring::OldRing;
use super::record::count;
use super::state::{LEDGER_TO_READ, Next, Stamp, State};
use super::words::words;
use crate::doorbell::Doorbell;
use crate::part::part;
use crate::paths::Paths;
use crate::platform::Platform;
use crate::root::root;
use crate::send_queue::SendQueue;
use crate::types::FaultKind;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{AnswerStatus, FencePolicy, Step, SwitchWord};

part! {
    /// Fixes the journal, has the old path fenced, and stores the cut that follows.
    pub(super) Fence {
        state: State, request: FenceRequest, old_ring: OldRing, cut: Cut, doorbell: Doorbell, paths: Paths,
    }
}

impl<P: Platform> Fence<'_, P> {
    /// Waits until everything reserved before the close is published, or the head group is blocked. What is
    /// published then is the journal.
    pub(super) fn settle(self, at: SwitchWord, now: u64) -> Next {
        let (state, words) = (self.state(), words(self.ptr));
        let ready = self.ptr.load_ready();
        let generation = self.ptr.load_done().generation();
        let all = ready.index() == words.close().load() || Mutant::NotSettled.on();
        if !all && !ready.blocked_in(generation) {
            if state.overdue(now, state.chain_bound_ns()) {
                return state.die(at, FaultKind::PeerLost, now); // a caller vanished between reserve and publish
            }
            return Next::Wait;
        }
        // Once through the post lock: no doorbell of the old generation is still on its way. Its holder may sleep,
        // or be gone with its kernel: the caller has other channels to look after.
        if !self.doorbell().pass_lock() {
            return state.await_lock(at, now);
        }
        words.journal_end().store(ready.index());
        let queue = SendQueue::of(self.ptr, words.from().load());
        words.journal_queue().store(queue.ring);
        self.ptr.mirror().journal_queue().store(queue.ring);
        words.journal_base().store(queue.base);
        self.request().send(words.from().load(), words.from_incarnation().load());
        state.enter(at, Step::Fence, now)
    }

    /// Waits for the agent's answer and computes the cut.
    pub(super) fn fence(self, at: SwitchWord, now: u64) -> Next {
        let (state, words) = (self.state(), words(self.ptr));
        let (from, incarnation) = (words.from().load(), words.from_incarnation().load());
        let Some(answer) = self.request().answer() else { return Next::Wait };
        let status = answer.status;
        let awaited =
            answer.number == words.request().load() || (answer.number != 0 && Mutant::OldAnswerTaken.on());
        let refused = !awaited || status == AnswerStatus::Unprovable;
        let by_time = refused && self.cut().is_proven_by_time(now);
        if !awaited && !by_time {
            return self.wait_for_agent(at, now);
        }
        let other =
            (answer.slot != from || answer.incarnation != incarnation) && !Mutant::OldAnswerTaken.on();
        if !by_time && (other || status == AnswerStatus::Unprovable) {
            // The agent could prove nothing; time may still.
            let policy = self.ptr.state.policy();
            if policy.fence == FencePolicy::Time as u32 && !state.overdue(now, policy.fence_wait_ns) {
                return Next::Wait;
            }
            return state.die(at, FaultKind::FenceUnproven, now);
        }
        if by_time {
            self.paths().mark_fenced(from);
        }
        self.cut().raise_done();
        state.stamp(Stamp::Fenced, now);
        let executed24 = if !by_time && status == AnswerStatus::Truth { Some(answer.executed) } else { None };
        self.store_cut(from, executed24, now);
        state.enter(at, Step::Choose, now)
    }

    fn wait_for_agent(self, at: SwitchWord, now: u64) -> Next {
        let state = self.state();
        if Mutant::DeadlineForFence.on() && state.overdue(now, 50_000) {
            return state.enter(at, Step::Choose, now);
        }
        // At each look, so that the wait is renewed by what was said, and from when it was seen.
        let in_hand = !Mutant::OldWordRenews.on() && self.request().is_in_hand(now);
        let overdue = state.overdue(now, root!(self.ptr.state, policy.fence_wait_ns));
        if !in_hand && overdue && !(Mutant::OldWordRenews.on() && self.request().is_in_hand(now)) {
            return state.die(at, FaultKind::FenceUnproven, now);
        }
        Next::Wait
    }

    /// Stores X, and N: what lies between may have been executed. `executed24` is the receiver's count, if it has one.
    fn store_cut(self, from: u32, executed24: Option<u32>, now: u64) {
        let words = words(self.ptr);
        let kept = if Mutant::CutRecomputed.on() { 0 } else { words.executed().load() };
        let watermark = kept.max(words.done_at_close().load());
        let truth = executed24.and_then(|executed| self.cut().truth(from, executed));
        let truth = if Mutant::NoTruth.on() { Some(watermark) } else { truth };
        let truth = if Mutant::OutstandingForgotten.on() { Some(self.old_ring().announced()) } else { truth };
        let to_read = truth.is_none() && !Mutant::NoLedger.on();
        words.ledger().store(if to_read { LEDGER_TO_READ } else { 0 });
        count(self.ptr.tally().ledger_cuts(), truth.is_none() as u64);
        // Rule 12: monotone, and stored before anything is replayed.
        if Mutant::CutRecomputed.on() {
            words.executed().store(0);
        }
        self.state().raise_executed_to(watermark.max(truth.unwrap_or(0)));
        // The count tells of every message; without it nothing is known behind X, until the ledger says more.
        let watermark = words.executed().load();
        words.unexecuted().store(if truth.is_some() { watermark } else { self.old_ring().announced() });
        if truth.is_some() {
            self.state().stamp(Stamp::Cut, now);
        }
    }
}
