//! Signals where writes land in any order (`OrderPolicy::Unordered`): what carries order is an atomic, which a NIC
//! executes behind all that was posted before it on its queue pair.
//!
//! A kind 1 signal and a ledger word store an absolute value, and repeating it must change nothing, so they are masked
//! compare-and-swaps that compare nothing: two blocks, two tickets. Nothing of this is on the path of the other
//! policies but the look at the policy, which lies in the root.

use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::platform::Platform;
use crate::send_queue::SendQueue;
use crate::types::{Amo, HeapOffset};
use crate::wqe_write::{CLEARED_TAG, LEDGER_TAG, SIGNAL_TAG};
use crate::wqe_writer::WqeWriter;
use shunt_layout::state::Word;

part! {
    /// Writes signals as atomics.
    pub(crate) OutOfOrder { writer: WqeWriter, multi_block: MultiBlock }
}

impl<P: Platform> OutOfOrder<'_, P> {
    /// A kind 1 signal at number `first` of the group of `word`. Words and numbers, because what is not inlined takes
    /// registers.
    #[inline(never)]
    pub(crate) fn write_signal_slow(self, word: u64, first: u64, at: u64, value: u64) {
        let (word, writer) = (Word(word), self.writer());
        let queue = SendQueue::of(self.ptr, word.slot());
        let place = queue.place(word, first as u32);
        if writer.are_signals_atomics() {
            self.multi_block().count_one(word.slot());
            let answer = writer.unwanted(&queue, SIGNAL_TAG);
            return writer.amo(&queue, place, HeapOffset(at), Amo::Set64(value), answer);
        }
        writer.monotone(&queue, place, HeapOffset(at), value);
    }

    /// A kind 2 signal: what adds is an atomic in any case, the ledger words on both sides are so here. `half`: its
    /// word has four bytes.
    #[inline(never)]
    pub(crate) fn write_bracket_slow(self, word: u64, first: u64, at: u64, add: u64, half: bool) {
        let (word, writer) = (Word(word), self.writer());
        let queue = SendQueue::of(self.ptr, word.slot());
        let blocks = if writer.has_brackets() { writer.ledger_blocks() } else { 0 };
        let signal = first + blocks;
        if blocks > 0 {
            let number = word.index() + signal + 1;
            self.write_ledger(word, first, 0, number);
            self.write_ledger(word, signal + 1, 1, number);
        }
        let place = queue.place(word, signal as u32);
        let amo = if half { Amo::Add32(add as u32) } else { Amo::Add64(add) };
        writer.amo(&queue, place, HeapOffset(at), amo, writer.unwanted(&queue, CLEARED_TAG));
    }

    /// Ledger word A (0) or B (1) at number `at` of the group of `word`.
    #[inline(always)]
    fn write_ledger(self, word: Word, at: u64, which: u64, number: u64) {
        let writer = self.writer();
        let queue = SendQueue::of(self.ptr, word.slot());
        let place = queue.place(word, at as u32);
        if writer.ledger_blocks() == 1 {
            return writer.ledger(&queue, place, which, number);
        }
        self.multi_block().count_one(word.slot());
        let at = HeapOffset(writer.ledger_word(which));
        writer.amo(&queue, place, at, Amo::Set64(number), writer.unwanted(&queue, LEDGER_TAG));
    }
}
