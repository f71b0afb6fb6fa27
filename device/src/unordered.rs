//! Signals where writes land in any order (`OrderPolicy::Unordered`; H3): what carries order is an atomic, which a NIC
//! executes behind all that was posted before it on its queue pair.
//!
//! A kind 1 signal and a ledger word store an absolute value, and repeating it must change nothing, so they are masked
//! compare-and-swaps that compare nothing: two blocks, two tickets. Nothing of this is on the path of the other
//! policies but the look at the policy, which lies in the root.

use crate::access::Channel;
use crate::platform::Platform;
use crate::root::root;
use crate::types::{Amo, HeapOffset};
use crate::wqe_write::{CLEARED_TAG, LEDGER_TAG, SIGNAL_TAG};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{OrderPolicy, Word};

impl<P: Platform> Channel<'_, P> {
    /// True where writes land in any order.
    #[inline(always)]
    pub(crate) fn unordered(self) -> bool {
        root!(self.device, policy.ordering) == OrderPolicy::Unordered as u32
    }

    /// True where a kind 1 signal is an atomic.
    #[inline(always)]
    pub(crate) fn signals_are_atomics(self) -> bool {
        self.unordered() && !Mutant::SignalsWritten.on()
    }

    /// Blocks of a ledger word.
    #[inline(always)]
    pub(crate) fn ledger_blocks(self) -> u64 {
        if self.unordered() && !Mutant::LedgerWritten.on() { 2 } else { 1 }
    }

    /// A kind 1 signal at number `first` of the group of `word`. Words and numbers, because what is not inlined takes
    /// registers.
    #[inline(never)]
    pub(crate) fn write_stored_signal_slow(self, word: u64, first: u64, at: u64, value: u64) {
        let word = Word(word);
        let view = self.view(word.slot());
        let place = view.place(word, first as u32);
        if self.signals_are_atomics() {
            self.note_wide(word.slot());
            return self.write_amo(
                &view,
                place,
                HeapOffset(at),
                Amo::Set64(value),
                self.unwanted(&view, SIGNAL_TAG),
            );
        }
        self.write_monotone(&view, place, HeapOffset(at), value);
    }

    /// A kind 2 signal: what adds is an atomic in any case, the ledger words on both sides are so here. `half`: its
    /// word has four bytes.
    #[inline(never)]
    pub(crate) fn write_stored_bracket_slow(self, word: u64, first: u64, at: u64, add: u64, half: bool) {
        let word = Word(word);
        let view = self.view(word.slot());
        let blocks = if self.brackets() { self.ledger_blocks() } else { 0 };
        let signal = first + blocks;
        if blocks > 0 {
            let number = word.index() + signal + 1;
            self.write_stored_ledger(word, first, 0, number);
            self.write_stored_ledger(word, signal + 1, 1, number);
        }
        let place = view.place(word, signal as u32);
        let amo = if half { Amo::Add32(add as u32) } else { Amo::Add64(add) };
        self.write_amo(&view, place, HeapOffset(at), amo, self.unwanted(&view, CLEARED_TAG));
    }

    /// Ledger word A (0) or B (1) at number `at` of the group of `word`.
    #[inline(always)]
    fn write_stored_ledger(self, word: Word, at: u64, which: u64, number: u64) {
        let view = self.view(word.slot());
        let place = view.place(word, at as u32);
        if self.ledger_blocks() == 1 {
            return self.write_ledger(&view, place, which, number);
        }
        self.note_wide(word.slot());
        let words = HeapOffset(self.ledger_words() + which * 8);
        self.write_amo(&view, place, words, Amo::Set64(number), self.unwanted(&view, LEDGER_TAG));
    }
}
