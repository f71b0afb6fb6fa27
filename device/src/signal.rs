//! Signals of all kinds and atomics, as the leader of a group posts them.

use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::platform::Platform;
use crate::poster::{Poster, UNRESERVED, is_none};
use crate::send_queue::SendQueue;
use crate::signal_group::SignalGroup;
use crate::state_ptr::StatePtr;
use crate::types::{Amo, FaultKind, HeapOffset, Posted, Signal};
use crate::wqe_write::{ADD_TAG, Answer, FETCH_TAG};
use crate::wqe_writer::WqeWriter;
use shunt_layout::state::Word;

part! {
    /// Posts words, not bytes.
    pub(crate) Signals { poster: Poster, writer: WqeWriter, group: SignalGroup, multi_block: MultiBlock }
}

impl<P: Platform> Signals<'_, P> {
    /// A signal alone. That of kind 1 is one WQE, unless it stands apart.
    #[inline(always)]
    pub(crate) fn post_signal(self, at: HeapOffset, signal: Signal) -> Posted {
        if !self.ptr.word_fits(at, signal.bytes()) {
            return Posted::refused(FaultKind::BadAddress);
        }
        if !self.ptr.has_atomic(signal.is_masked()) {
            return Posted::refused(FaultKind::NoMaskedAtomics);
        }
        match signal {
            Signal::Monotone(value) => self.post_monotone(at, value),
            _ => self.post_group(at, signal),
        }
    }

    /// One call for all that may hold a kind 1 signal up, or make it an atomic: writes that land in any order, and a
    /// ring that is full or closed.
    #[inline(always)]
    fn post_monotone(self, at: HeapOffset, value: u64) -> Posted {
        let poster = self.poster();
        let done = poster.glance_at_done();
        let reserved = if self.writer().is_unordered() { Word(UNRESERVED) } else { poster.reserve(1) };
        if !poster.admits(done, reserved, 1) {
            let posted = Self::post_monotone_slow(self.ptr.state, self.ptr.row(), reserved.0, at.0, value);
            return Posted::from_raw(posted);
        }
        let queue = SendQueue::of(self.ptr, reserved.slot());
        self.writer().monotone(&queue, queue.place(reserved, 0), at, value);
        poster.publish(reserved, 1, &queue)
    }

    #[inline(never)]
    fn post_monotone_slow(state: StatePtr<'_, P>, row: u32, reserved: u64, at: u64, value: u64) -> u64 {
        let (signals, at) = (Signals::of(state.row(row)), HeapOffset(at));
        if reserved == UNRESERVED {
            return signals.post_group(at, Signal::Monotone(value)).raw();
        }
        let word = Poster::admit_slow(state, row, Word(reserved), 1);
        if is_none(word) {
            return word;
        }
        let queue = SendQueue::of(signals.ptr, Word(word).slot());
        signals.writer().monotone(&queue, queue.place(Word(word), 0), at, value);
        signals.poster().publish(Word(word), 1, &queue).raw()
    }

    /// A signal at a word of the heap.
    #[inline(always)]
    fn post_group(self, at: HeapOffset, signal: Signal) -> Posted {
        let (poster, group) = (self.poster(), self.group());
        let count = group.tickets(signal);
        if count > 1 && count > self.ptr.depth() {
            return Posted::refused(FaultKind::BadAddress);
        }
        let word = match signal {
            Signal::Add(_) => poster.take_bound(count),
            _ => poster.take(count),
        };
        if is_none(word) {
            return Posted::from_raw(word);
        }
        let queue = SendQueue::of(self.ptr, Word(word).slot());
        group.write(&queue, Word(word), 0, at, signal);
        poster.publish(Word(word), count, &queue)
    }

    /// An atomic, whose answer goes to `result` or nowhere.
    #[inline(always)]
    pub(crate) fn post_amo(self, dst: HeapOffset, amo: Amo, result: Option<HeapOffset>) -> Posted {
        let (state, poster, writer) = (self.ptr.state, self.poster(), self.writer());
        let count = amo.blocks();
        let result_fits = match result {
            Some(at) => self.ptr.word_fits(at, 8),
            None => true,
        };
        let too_long = count > 1 && count > self.ptr.depth();
        if !self.ptr.word_fits(dst, amo.bytes() as u64) || !result_fits || too_long {
            return Posted::refused(FaultKind::BadAddress);
        }
        if !self.ptr.has_atomic(amo.is_masked()) {
            return Posted::refused(FaultKind::NoMaskedAtomics);
        }
        let word = poster.take_bound(count);
        if is_none(word) {
            return Posted::from_raw(word);
        }
        let word = Word(word);
        let queue = SendQueue::of(self.ptr, word.slot());
        let answer = match result {
            Some(at) => Answer {
                at: state.local_address(at),
                lkey_be: state.lkey(queue.local_rail, at.0),
                tag: FETCH_TAG,
            },
            None => writer.unwanted(&queue, ADD_TAG),
        };
        if count == 2 {
            self.multi_block().count_one(word.slot());
        }
        writer.amo(&queue, queue.place(word, 0), dst, amo, answer);
        let end = result.map_or(0, |at| at.0 + size_of::<u64>() as u64);
        poster.publish_with_doorbell(word, count, &queue, (end, true))
    }
}
