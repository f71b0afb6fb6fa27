//! The switch-back: drain the backup, flush its NIC at the receiver, open on the primary. Rule 19.
//!
//! Nothing is replayed. If the backup fails or takes too long, it *is* a switch from its fence on.

use super::close::Close;
use super::oldest::OldestMessage;
use super::state::{Next, Stamp, State};
use super::words::words;
use crate::completion_queue::CompletionQueue;
use crate::doorbell::Doorbell;
use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::platform::Platform;
use crate::poller::{Polled, Poller};
use crate::send_queue::SendQueue;
use crate::stall::in_units;
use crate::wqe_write;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CauseKind, Step, SwitchWord, Word};

/// Bytes of a flush READ: one word of the peer's heap.
const FLUSH_BYTES: u32 = 8;

part! {
    /// Empties the path that is left, and proves that its NIC placed everything.
    pub(super) SwitchBack {
        state: State, close: Close, oldest: OldestMessage, poller: Poller, doorbell: Doorbell, multi_block: MultiBlock,
    }
}

impl<'s, P: Platform> SwitchBack<'s, P> {
    /// Closed, but `done` is not frozen: groups that wait for room still find it, and who publishes now
    /// does not ring, so the drainer does.
    pub(super) fn drain(self, word: SwitchWord, now: u64) -> Next {
        let (state, words) = (self.state(), words(self.ptr));
        let close = words.close().load();
        let closed = self.ptr.load_ticket();
        if !closed.flag() || !state.stands_at(word) {
            return Next::Wait; // opened by another since
        }
        let ready = self.ptr.load_ready();
        let queue = SendQueue::of(self.ptr, words.from().load());
        if !self.doorbell().try_lock() {
            if state.overdue(now, self.limit_ns()) {
                return self.drain_failed(word, CauseKind::DrainFailed, 0, now);
            }
            return Next::Wait;
        }
        if self.ptr.still_closed(closed) {
            self.doorbell().ring_locked(self.doorbell().posted(), ready.index(), &queue);
        }
        self.doorbell().unlock();
        let at = match self.poller().poll() {
            Polled::Failed { at: _, syndrome } => {
                return self.drain_failed(word, CauseKind::Completion, syndrome, now);
            }
            Polled::At(at) => at,
        };
        if Mutant::NoDrain.on() && ready.index() >= close {
            return self.left_undrained(word, close, now);
        }
        if at.index() < close || ready.index() < close {
            // The deadline is for standing still: a deep window may take long and is no failure.
            if at.index() > words.done_at_close().load() {
                state.raise_done_to(at.index());
                words.step_since_ns().store(now);
            }
            if self.stands_still(at, now) {
                return self.drain_failed(word, CauseKind::DrainFailed, 0, now);
            }
            return Next::Wait;
        }
        // Frozen before the READ is posted: its completion is no ticket's.
        if !self.close().freeze() {
            return Next::Wait;
        }
        if Mutant::NoFlushAfterDrain.on() {
            return self.left_undrained(word, close, now);
        }
        self.post_flush(word, &queue, (close, closed), now)
    }

    #[inline(always)]
    fn post_flush(
        self,
        word: SwitchWord,
        queue: &SendQueue<'s, P>,
        (close, closed): (u64, Word),
        now: u64,
    ) -> Next {
        let words = words(self.ptr);
        words.journal_end().store(close); // empty: D is `close` as well
        words.posted_reads().store(1);
        let physical = close.wrapping_sub(queue.base);
        let (root, peer) = (self.ptr.state, self.ptr.peer());
        let rkey = root.rkey(peer, queue.remote_rail, 0);
        let lkey = root.scratch_lkey(queue.local_rail);
        let from = root.peer_heap(peer);
        let to = self.ptr.scratch(0).address() as u64;
        queue.write(physical, &wqe_write::read(queue.place_at(physical), from, rkey, to, lkey, FLUSH_BYTES));
        if !self.doorbell().ring_closed(queue, closed, physical + 1) {
            return Next::Wait; // and comes here again, or finds the drain late
        }
        self.state().stamp(Stamp::Fenced, now);
        self.state().enter(word, Step::DrainFlush, now)
    }

    /// What the mutants of a drain do: the backup is left as it is.
    fn left_undrained(self, word: SwitchWord, close: u64, now: u64) -> Next {
        let words = words(self.ptr);
        let from = words.from().load();
        let next = close.wrapping_sub(SendQueue::of(self.ptr, from).base);
        self.close().freeze();
        words.done_at_close().store(close);
        words.journal_end().store(close);
        words.executed().store(close.max(words.executed().load()));
        self.state().set_next_index(from, next);
        self.state().enter(word, Step::Choose, now)
    }

    /// How long a drain may stand still: never less than a path may before it is suspected.
    fn limit_ns(self) -> u64 {
        self.ptr.state.policy().drain_ns.max(self.state().limits().bound_ns)
    }

    /// True if nothing was finished for that long, and by more than the bytes of the oldest message excuse.
    fn stands_still(self, at: Word, now: u64) -> bool {
        let since_ns = now.saturating_sub(words(self.ptr).step_since_ns().load());
        let limit_ns = self.limit_ns();
        if since_ns <= limit_ns {
            return false;
        }
        let beyond = if Mutant::DrainKnowsNoBytes.on() { u32::MAX } else { in_units(since_ns - limit_ns) };
        !self.oldest().is_moving_slow(at, beyond)
    }

    /// Waits for the flush READ: it does not pass earlier posted writes of the receiver's NIC.
    pub(super) fn await_flush(self, word: SwitchWord, now: u64) -> Next {
        let (state, words) = (self.state(), words(self.ptr));
        let from = words.from().load();
        let (close, cq) = (words.close().load(), CompletionQueue::of(self.ptr, from));
        let physical = close.wrapping_sub(SendQueue::of(self.ptr, from).base);
        // All of them are done.
        let lag = self.multi_block().posted(from) as u32;
        match cq.tail_behind(physical as u32, lag) {
            Some(tail) if tail.opcode == opcode::REQ => {}
            Some(_) => {
                self.ptr.platform().cqe_before_data();
                let syndrome = cq.syndrome(physical as u32, lag);
                return self.fall_back(word, CauseKind::Completion, syndrome, now);
            }
            None if state.overdue(now, self.limit_ns()) => {
                return self.fall_back(word, CauseKind::DrainFailed, 0, now);
            }
            None => return Next::Wait,
        }
        self.ptr.platform().cqe_before_data();
        // The path that is left goes on counting from here when it is entered again.
        state.set_next_index(from, physical + 1);
        words.posted_reads().store(0);
        state.raise_executed_to(close);
        state.stamp(Stamp::Cut, now);
        state.enter(word, Step::Choose, now)
    }

    /// The backup failed while it was drained: from here on it is a switch because of a fault.
    fn drain_failed(self, word: SwitchWord, cause: CauseKind, syndrome: u32, now: u64) -> Next {
        if !self.close().freeze() {
            return Next::Wait;
        }
        // What waits for a fence is bounded from the close: a drain of any length is no part of that.
        self.state().stamp(Stamp::Closed, now);
        self.fall_back(word, cause, syndrome, now)
    }

    fn fall_back(self, word: SwitchWord, cause: CauseKind, syndrome: u32, now: u64) -> Next {
        let words = words(self.ptr);
        words.back().store(0);
        self.state().set_cause(cause, syndrome);
        self.state().note_first_cause(words.from().load(), cause, syndrome);
        self.state().enter(word, Step::Settle, now)
    }
}
