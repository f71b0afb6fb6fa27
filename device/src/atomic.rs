//! Signals of all kinds and atomics, as the leader of a group posts them.

use crate::access::{Channel, Device, PathView};
use crate::platform::Platform;
use crate::post::{UNRESERVED, is_none};
use crate::types::{Amo, FaultKind, HeapOffset, Posted, Signal};
use crate::wqe_write::{self, ADD_TAG, Answer, AtomicSegments, CLEARED_TAG, FETCH_TAG, Place};
use shunt_layout::state::Word;

impl<P: Platform> Device<'_, P> {
    /// The answer of a fetching atomic, once its ticket is done: the word's old value. A NIC writes answers of eight
    /// bytes as the host's numbers, but answers of four bytes big-endian.
    #[inline(always)]
    pub fn fetched(self, amo: Amo, result: HeapOffset) -> u64 {
        let word = self.load(result);
        if amo.bytes() == 4 { u32::from_be(word as u32) as u64 } else { word }
    }
}

impl<P: Platform> Channel<'_, P> {
    /// A signal alone. That of kind 1 is one WQE, unless it stands apart.
    #[inline(always)]
    pub(crate) fn signal_led(self, at: HeapOffset, signal: Signal) -> Posted {
        if !self.word_fits(at, signal.bytes()) {
            return Posted::refused(FaultKind::BadAddress);
        }
        match signal {
            Signal::Monotone(value) => self.post_monotone(at, value),
            _ => self.post_signal(at, signal),
        }
    }

    /// One call for all that may hold a kind 1 signal up, or make it an atomic: writes that land in any order, and a
    /// ring that is full or closed.
    #[inline(always)]
    fn post_monotone(self, at: HeapOffset, value: u64) -> Posted {
        let reserved = if self.unordered() { Word(UNRESERVED) } else { self.reserve(1) };
        if !self.admits(reserved, 1) {
            let posted = Self::monotone_slow(self.device, self.row(), reserved.0, at.0, value);
            return Posted::from_raw(posted);
        }
        let view = self.view(reserved.slot());
        self.write_monotone(&view, view.place(reserved, 0), at, value);
        self.leave(reserved, 1, &view)
    }

    #[inline(never)]
    fn monotone_slow(device: Device<'_, P>, row: u32, reserved: u64, at: u64, value: u64) -> u64 {
        let (channel, at) = (device.row(row), HeapOffset(at));
        if reserved == UNRESERVED {
            return channel.post_signal(at, Signal::Monotone(value)).raw();
        }
        let word = Self::admit_slow(device, row, Word(reserved), 1);
        if is_none(word) {
            return word;
        }
        let view = channel.view(Word(word).slot());
        channel.write_monotone(&view, view.place(Word(word), 0), at, value);
        channel.leave(Word(word), 1, &view).raw()
    }

    /// A signal at a word of the heap.
    #[inline(always)]
    fn post_signal(self, at: HeapOffset, signal: Signal) -> Posted {
        let count = self.signal_tickets(signal);
        if count > 1 && count > self.depth() {
            return Posted::refused(FaultKind::BadAddress);
        }
        let word = match signal {
            Signal::Add(_) => self.take_bound(count),
            _ => self.take(count),
        };
        if is_none(word) {
            return Posted::from_raw(word);
        }
        let view = self.view(Word(word).slot());
        self.write_signal_group(&view, Word(word), 0, at, signal);
        self.leave(Word(word), count, &view)
    }

    /// An atomic, whose answer goes to `result` or nowhere.
    #[inline(always)]
    pub(crate) fn amo_led(self, dst: HeapOffset, amo: Amo, result: Option<HeapOffset>) -> Posted {
        let count = amo.blocks();
        let result_fits = match result {
            Some(at) => self.word_fits(at, 8),
            None => true,
        };
        if !self.word_fits(dst, amo.bytes() as u64) || !result_fits || (count > 1 && count > self.depth()) {
            return Posted::refused(FaultKind::BadAddress);
        }
        let word = self.take_bound(count);
        if is_none(word) {
            return Posted::from_raw(word);
        }
        let word = Word(word);
        let view = self.view(word.slot());
        let answer = match result {
            Some(at) => Answer {
                at: self.device.local_address(at),
                lkey_be: self.device.lkey(view.local_rail, at.0),
                tag: FETCH_TAG,
            },
            None => self.unwanted(&view, ADD_TAG),
        };
        if count == 2 {
            self.note_wide(word.slot());
        }
        self.write_amo(&view, view.place(word, 0), dst, amo, answer);
        self.leave(word, count, &view)
    }

    /// An answer that goes where nobody looks.
    #[inline(always)]
    pub(crate) fn unwanted(self, view: &PathView, tag: u32) -> Answer {
        Answer { at: self.sink() as u64, lkey_be: self.device.scratch_lkey(view.local_rail), tag }
    }

    #[inline(always)]
    pub(crate) fn write_amo(self, view: &PathView, place: Place, dst: HeapOffset, amo: Amo, answer: Answer) {
        let (remote, rkey) = self.remote(view, dst.0);
        self.write_atomic(view, place.index, &wqe_write::atomic(place, remote, rkey, amo, answer));
    }

    /// Writes the one or two blocks of an atomic.
    #[inline(always)]
    fn write_atomic(self, view: &PathView, physical: u64, wqe: &AtomicSegments) {
        let block = self.block(view, physical).cast::<u32>();
        // SAFETY: the slots are this group's until it publishes: `admit` found room for them.
        unsafe {
            self.platform().store_segment(block, wqe.segments[0]);
            self.platform().store_segment(block.add(4), wqe.segments[1]);
            self.platform().store_segment(block.add(8), wqe.segments[2]);
            self.platform().store_segment(block.add(12), wqe.segments[3]);
            if wqe.ds > 4 {
                let second = self.block(view, physical.wrapping_add(1)).cast::<u32>();
                self.platform().store_segment(second, wqe.segments[4]);
            }
        }
    }

    /// Tickets of a signal: a bracketed one has a ledger word on either side.
    #[inline(always)]
    pub(crate) fn signal_tickets(self, signal: Signal) -> u64 {
        match signal {
            Signal::Cleared(_) | Signal::Cleared32(_) if self.brackets() => 1 + 2 * self.ledger_blocks(),
            Signal::Monotone(_) if self.signals_are_atomics() => 2,
            _ => 1,
        }
    }

    #[inline(always)]
    pub(crate) fn brackets(self) -> bool {
        let policy = self.device.policy();
        policy.bracket != 0 && self.device.tolerant()
    }

    /// Writes the WQEs of a signal, from number `first` of the group of `word` on. A bracketed one is
    /// `[A = n][signal][B = n]`, where `n` is the signal's ticket plus one: never zero, and always growing.
    #[inline(always)]
    pub(crate) fn write_signal_group(
        self,
        view: &PathView,
        word: Word,
        first: u64,
        at: HeapOffset,
        signal: Signal,
    ) {
        let place = |number: u64| view.place(word, (first + number) as u32);
        let (amo, tag) = match signal {
            Signal::Monotone(value) if self.unordered() => {
                return self.write_stored_signal_slow(word.0, first, at.0, value);
            }
            Signal::Cleared(add) if self.unordered() => {
                return self.write_stored_bracket_slow(word.0, first, at.0, add, false);
            }
            Signal::Cleared32(add) if self.unordered() => {
                return self.write_stored_bracket_slow(word.0, first, at.0, add as u64, true);
            }
            Signal::Monotone(value) => {
                return self.write_monotone(view, place(0), at, value);
            }
            Signal::Cleared(add) => (Amo::Add64(add), CLEARED_TAG),
            Signal::Cleared32(add) => (Amo::Add32(add), CLEARED_TAG),
            Signal::Add(add) => (Amo::Add64(add), ADD_TAG),
        };
        let answer = self.unwanted(view, tag);
        if self.signal_tickets(signal) == 1 {
            return self.write_amo(view, place(0), at, amo, answer);
        }
        let number = word.index() + first + 2;
        self.write_ledger(view, place(0), 0, number);
        self.write_amo(view, place(1), at, amo, answer);
        self.write_ledger(view, place(2), 1, number);
    }

    /// Writes a kind 1 signal where writes land in order.
    #[inline(always)]
    pub(crate) fn write_monotone(self, view: &PathView, place: Place, at: HeapOffset, value: u64) {
        let (remote, rkey) = self.remote(view, at.0);
        self.write_wqe(view, place.index, &wqe_write::signal(place, remote, rkey, value));
    }

    /// Writes ledger word A (0) or B (1) of this channel.
    #[inline(always)]
    pub(crate) fn write_ledger(self, view: &PathView, place: Place, which: u64, number: u64) {
        let (remote, rkey) = self.remote(view, self.ledger_words() + which * 8);
        self.write_wqe(view, place.index, &wqe_write::ledger(place, remote, rkey, number));
    }
}
