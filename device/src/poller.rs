//! Completions: one look at them, and the progress of `done`.
//!
//! "My ticket is done" is decided by the done word alone (rule 4). A poller reads it, then CQEs, and advances
//! it by compare-and-swap from the value it read: frozen or late, it does nothing.

use crate::completion_queue::CompletionQueue;
use crate::doorbell::Doorbell;
use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::platform::Platform;
use crate::types::Ticket;
use shunt_layout::mlx5::cqe::{Tail, opcode};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CqMap, ReadyWord, Word};

/// CQEs one look goes over at most: bounds the look, not the progress.
const SCAN_MAX: u64 = 64;

/// Looks at one CQE before a waiter looks at everything else that may have happened.
const LOOKS: u32 = 16;

/// What one look at the completion queue saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// `done` stands here now.
    At(Word),
    /// The first unfinished WQE of this generation has an error completion.
    Failed { at: Word, syndrome: u32 },
}

part! {
    /// Reads completions and advances `done`; never waits for more than one CQE's time, never switches.
    pub(crate) Poller { multi_block: MultiBlock, doorbell: Doorbell }
}

impl<P: Platform> Poller<'_, P> {
    /// One look: advances `done` over completed WQEs, finds the first error.
    ///
    /// Ring CQ, every WQE signalled: the first error CQE *is* the first cause, flushes behind it hide
    /// nothing.
    #[inline(always)]
    pub(crate) fn poll(self) -> Polled {
        let ptr = self.ptr;
        let done = ptr.load_done();
        if done.flag() {
            return Polled::At(done);
        }
        if self.multi_block().posted(done.slot()) != 0 {
            return self.poll_multi_block();
        }
        let cq = CompletionQueue::of(ptr, done.slot());
        let first = done.index();
        let mut count = 0;
        let mut failed = false;
        while count < SCAN_MAX {
            match cq.tail(first.wrapping_add(count)) {
                Some(tail) if tail.opcode == opcode::REQ || Mutant::ErrorTakenForDone.on() => count += 1,
                Some(_) => {
                    failed = true;
                    break;
                }
                None => break,
            }
        }
        let mut at = done;
        if count > 0 {
            ptr.platform().cqe_before_data();
            at = done.with_index(done.index() + count);
            if Mutant::DoneByStore.on() {
                ptr.done_word().store_release(at.0);
                return Polled::At(at);
            }
            if ptr.done_word().compare_swap(done.0, at.0) != done.0 {
                return Polled::At(ptr.load_done());
            }
        }
        if failed {
            ptr.platform().cqe_before_data(); // the body of an error completion is data, too
            let syndrome = cq.syndrome(cq.map.physical(at.index()), cq.map.lag());
            // A view of another generation reads nonsense: believe it only if `done` still stands where it
            // did.
            if ptr.load_done() == at || Mutant::LateLookBelieved.on() {
                return Polled::Failed { at, syndrome };
            }
        }
        Polled::At(at)
    }

    /// The same on a path with WQEs of two blocks.
    #[inline(always)]
    fn poll_multi_block(self) -> Polled {
        let ptr = self.ptr;
        let failed = self.multi_block().poll_slow();
        let at = ptr.load_done();
        if !failed || at.flag() {
            return Polled::At(at);
        }
        let cq = CompletionQueue::of(ptr, at.slot());
        ptr.platform().cqe_before_data();
        let syndrome = cq.syndrome(cq.map.physical(at.index()), cq.map.lag());
        if ptr.load_done() == at { Polled::Failed { at, syndrome } } else { Polled::At(at) }
    }

    /// True if `ticket` is done. The no-fault path of a wait: its own CQE, one load, without walking the
    /// others.
    #[inline(always)]
    pub(crate) fn is_done(self, ticket: Ticket) -> bool {
        let ptr = self.ptr;
        let done = ptr.load_done();
        if done.index() > ticket.0 {
            return true;
        }
        if done.flag() {
            return false;
        }
        match CompletionQueue::of(ptr, done.slot()).tail(ticket.0) {
            Some(tail) if tail.opcode == opcode::REQ => {}
            _ => return false,
        }
        ptr.platform().cqe_before_data();
        // RC completes in order, so this CQE vouches for all before it.
        ptr.done_word().compare_swap(done.0, done.with_index(ticket.0 + 1).0);
        ptr.load_done().index() > ticket.0
    }

    /// True if nothing failed so far, nothing is switched and no doorbell was left: the no-fault path of a look at a
    /// channel. `is_idle` says whether no step of a switch is under way. Completions come in order, so the last of them
    /// is found by halves, and `done` goes there.
    #[inline(always)]
    pub(crate) fn finds_no_fault(self, is_idle: impl FnOnce() -> bool) -> bool {
        let ptr = self.ptr;
        let (done, ready) = (ptr.load_done(), ptr.load_ready().index());
        let open = !done.flag() && !ptr.load_ticket().flag() && is_idle();
        if !open || self.doorbell().posted() < ready || self.multi_block().posted(done.slot()) != 0 {
            return false;
        }
        let cq = CompletionQueue::of(ptr, done.slot());
        let (mut low, mut high) = (done.index(), ready);
        let mut failed = false;
        // Ends: a ring's depth is halved at each turn.
        while low < high {
            let middle = low + (high - low) / 2;
            match cq.tail(middle) {
                Some(tail) => (low, failed) = (middle + 1, tail.opcode != opcode::REQ),
                None => high = middle,
            }
        }
        if failed {
            return false;
        }
        if low > done.index() {
            ptr.platform().cqe_before_data();
            // RC completes in order, so the last completion vouches for all before it.
            ptr.done_word().compare_swap(done.0, done.with_index(low).0);
        }
        true
    }

    /// The no-fault path of a quiet: waits a little for what is published, by the CQE of its last ticket; true if it is
    /// done. In 32 bits: published and done tickets lie no further apart than the ring is deep.
    #[inline(always)]
    pub(crate) fn poll_last(self) -> bool {
        let ptr = self.ptr;
        // A number, no more: nothing is read on the strength of it.
        let published = ReadyWord(ptr.ready_word().load()).index();
        let done = ptr.load_done();
        if (done.0 as u32).wrapping_sub(published as u32) as i32 >= 0 || Mutant::QuietAtPublish.on() {
            return true;
        }
        if done.flag() {
            return false;
        }
        let cq = CompletionQueue::of(ptr, done.slot());
        let physical = cq.map.physical(published.wrapping_sub(1));
        let number = physical.wrapping_sub(cq.map.lag());
        let due =
            Tail { wqe_counter: physical as u16, opcode: opcode::REQ, owner: cq.owner(number) }.to_memory();
        // Success or failure: once the counter agrees, the entry is that of the WQE.
        let wrong_bits = cq.tail_word(number).poll_cqe(due, Tail::COUNTER, LOOKS);
        let wrong = CqMap::index(physical) > u16::MAX as u32 && Mutant::CounterNotWrapped.on();
        if wrong_bits & Tail::ALL != 0 || wrong {
            return false;
        }
        ptr.platform().cqe_before_data();
        // RC completes in order, so this CQE vouches for all before it. A swap that fails was overtaken: by another
        // waiter, or by a switch.
        ptr.done_word().compare_swap_behind_barrier(done.0, done.with_index(published).0) == done.0
    }
}
