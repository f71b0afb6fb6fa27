//! The WQEs that signals are made of, written into tickets that somebody took; and what the policy says of their form.

use crate::part::part;
use crate::platform::Platform;
use crate::root::root;
use crate::send_queue::SendQueue;
use crate::types::{Amo, HeapOffset};
use crate::wqe_write::{self, Answer, Place};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::OrderPolicy;

part! {
    /// Writes one WQE.
    pub(crate) WqeWriter {}
}

impl<'s, P: Platform> WqeWriter<'s, P> {
    /// True where writes land in any order.
    #[inline(always)]
    pub(crate) fn is_unordered(self) -> bool {
        root!(self.ptr.state, policy.ordering) == OrderPolicy::Unordered as u32
    }

    /// True where a kind 1 signal is an atomic.
    #[inline(always)]
    pub(crate) fn are_signals_atomics(self) -> bool {
        self.is_unordered() && !Mutant::SignalsWritten.on()
    }

    /// True where a kind 2 signal stands between two ledger words.
    #[inline(always)]
    pub(crate) fn has_brackets(self) -> bool {
        let policy = self.ptr.state.policy();
        policy.bracket != 0 && self.ptr.state.tolerant()
    }

    /// Blocks of a ledger word.
    #[inline(always)]
    pub(crate) fn ledger_blocks(self) -> u64 {
        if self.is_unordered() && !Mutant::LedgerWritten.on() { 2 } else { 1 }
    }

    /// An answer that goes where nobody looks.
    #[inline(always)]
    pub(crate) fn unwanted(self, queue: &SendQueue<'s, P>, tag: u32) -> Answer {
        Answer {
            at: root!(self.ptr.state, sink),
            lkey_be: self.ptr.state.scratch_lkey(queue.local_rail),
            tag,
        }
    }

    #[inline(always)]
    pub(crate) fn amo(
        self,
        queue: &SendQueue<'s, P>,
        place: Place,
        dst: HeapOffset,
        amo: Amo,
        answer: Answer,
    ) {
        let (remote, rkey) = self.ptr.remote(queue.remote_rail, dst.0);
        queue.write_atomic(place.index, &wqe_write::atomic(place, remote, rkey, amo, answer));
    }

    /// A kind 1 signal where writes land in order.
    #[inline(always)]
    pub(crate) fn monotone(self, queue: &SendQueue<'s, P>, place: Place, at: HeapOffset, value: u64) {
        let (remote, rkey) = self.ptr.remote(queue.remote_rail, at.0);
        queue.write(place.index, &wqe_write::signal(place, remote, rkey, value));
    }

    /// Heap offset of ledger word A (0) or B (1) of this channel.
    #[inline(always)]
    pub(crate) fn ledger_word(self, which: u64) -> u64 {
        self.ptr.ledger_words() + which * 8
    }

    /// That word, written.
    #[inline(always)]
    pub(crate) fn ledger(self, queue: &SendQueue<'s, P>, place: Place, which: u64, number: u64) {
        // Both words lie under one key: it is looked up for the first.
        let (remote, rkey) = self.ptr.remote(queue.remote_rail, self.ledger_word(0));
        queue.write(place.index, &wqe_write::ledger(place, remote + which * 8, rkey, number));
    }
}
