//! Signals of all kinds, atomics and gets.

use crate::access::{Channel, Device, PathView};
use crate::platform::{Lanes, Platform};
use crate::types::{Amo, Fault, FaultKind, Get, HeapOffset, Put, Signal, Ticket};
use crate::wqe_write::{self, ADD_TAG, Answer, AtomicSegments, CLEARED_TAG, FETCH_TAG, Place};

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
    /// A signal alone: covers every earlier put of this channel. Answers with the ticket after which it is applied.
    ///
    /// # Errors
    /// `BadAddress` before anything was posted; `PeerLost` and its like when the channel is dead.
    #[inline(always)]
    pub fn signal_nbi<L: Lanes>(self, lanes: L, at: HeapOffset, signal: Signal) -> Result<Ticket, Fault> {
        let count = self.signal_tickets(signal);
        if !self.word_fits(at, 8) || count > self.depth() {
            return Err(self.fault(FaultKind::BadAddress));
        }
        let shared = matches!(signal, Signal::Add(_));
        let word = if shared { self.enter_bound(lanes, count)? } else { self.enter_group(lanes, count)? };
        let view = self.view(word.slot());
        let first = word.index().wrapping_sub(view.base);
        let mut number = lanes.rank() as u64;
        while number < count {
            let place = Place { index: first.wrapping_add(number), qpn_shifted: view.qpn_shifted };
            self.write_signal(&view, place, at, signal, number);
            number += lanes.size() as u64;
        }
        self.leave_group(lanes, word, count, &view)
    }

    /// Reads `get.bytes` from the peer. They are there once a wait on the ticket returned; until then the buffer
    /// belongs to the library.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi).
    #[inline(always)]
    pub fn get_nbi<L: Lanes>(self, lanes: L, get: Get) -> Result<Ticket, Fault> {
        // The walk over key chunks is that of a put the other way.
        let walk = Put { dst: get.src, src: get.dst, bytes: get.bytes };
        if !self.device.heap_contains(get.dst, get.bytes) || !self.device.heap_contains(get.src, get.bytes) {
            return Err(self.fault(FaultKind::BadAddress));
        }
        let count = self.pieces(walk);
        if count > self.depth() {
            return Err(self.fault(FaultKind::BadAddress));
        }
        let word = self.enter_group(lanes, count)?;
        let view = self.view(word.slot());
        let first = word.index().wrapping_sub(view.base);
        let mut number = lanes.rank() as u64;
        while number < count {
            let place = Place { index: first.wrapping_add(number), qpn_shifted: view.qpn_shifted };
            let piece = self.piece(walk, number);
            let wqe = if piece.bytes == 0 {
                wqe_write::placeholder(place)
            } else {
                let (remote, rkey) = self.remote(&view, piece.dst);
                let local = self.device.local_address(HeapOffset(piece.src));
                let lkey = self.device.lkey(view.local_rail, piece.src);
                wqe_write::read(place, remote, rkey, local, lkey, piece.bytes as u32)
            };
            self.write_wqe(&view, place.index, &wqe);
            number += lanes.size() as u64;
        }
        self.leave_group(lanes, word, count, &view)
    }

    /// An atomic whose answer nobody wants (kind 3). All writers of a word use channels of one index: rule 16 binds
    /// channels of that index to one NIC of the receiver.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi). `Overdue`: there was no path to that NIC for the first operation of kind 3 on
    /// this channel; nothing was posted.
    #[inline(always)]
    pub fn amo_nbi<L: Lanes>(self, lanes: L, dst: HeapOffset, amo: Amo) -> Result<Ticket, Fault> {
        self.post_amo(lanes, dst, amo, None)
    }

    /// An atomic whose answer goes to the eight bytes at `result` in this PE's heap: see [`Device::fetched`].
    ///
    /// # Errors
    /// As [`amo_nbi`](Self::amo_nbi).
    #[inline(always)]
    pub fn amo_fetch_nbi<L: Lanes>(
        self,
        lanes: L,
        dst: HeapOffset,
        amo: Amo,
        result: HeapOffset,
    ) -> Result<Ticket, Fault> {
        self.post_amo(lanes, dst, amo, Some(result))
    }

    #[inline(always)]
    fn post_amo<L: Lanes>(
        self,
        lanes: L,
        dst: HeapOffset,
        amo: Amo,
        result: Option<HeapOffset>,
    ) -> Result<Ticket, Fault> {
        let count = amo.blocks();
        let result_fits = match result {
            Some(at) => self.word_fits(at, 8),
            None => true,
        };
        if !self.word_fits(dst, amo.bytes() as u64) || !result_fits || count > self.depth() {
            return Err(self.fault(FaultKind::BadAddress));
        }
        let word = self.enter_bound(lanes, count)?;
        let view = self.view(word.slot());
        if lanes.rank() == 0 {
            let index = word.index().wrapping_sub(view.base);
            let place = Place { index, qpn_shifted: view.qpn_shifted };
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
            self.write_amo(&view, place, dst, amo, answer);
        }
        self.leave_group(lanes, word, count, &view)
    }

    /// An answer that goes where nobody looks.
    #[inline(always)]
    fn unwanted(self, view: &PathView, tag: u32) -> Answer {
        Answer { at: self.sink() as u64, lkey_be: self.device.scratch_lkey(view.local_rail), tag }
    }

    #[inline(always)]
    fn write_amo(self, view: &PathView, place: Place, dst: HeapOffset, amo: Amo, answer: Answer) {
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
            Signal::Cleared(_) if self.brackets() => 3,
            _ => 1,
        }
    }

    #[inline(always)]
    fn brackets(self) -> bool {
        let policy = &self.device.state.policy;
        policy.bracket != 0 && policy.fault_tolerance != 0
    }

    /// Writes WQE `part` of a signal. A bracketed one is `[A = n][signal][B = n]`, where `n` is the signal's ticket
    /// plus one: never zero, and always growing.
    #[inline(always)]
    pub(crate) fn write_signal(
        self,
        view: &PathView,
        place: Place,
        at: HeapOffset,
        signal: Signal,
        part: u64,
    ) {
        let (add, tag) = match signal {
            Signal::Monotone(value) => {
                let (remote, rkey) = self.remote(view, at.0);
                return self.write_wqe(view, place.index, &wqe_write::signal(place, remote, rkey, value));
            }
            Signal::Cleared(_) if self.brackets() && part != 1 => {
                let (remote, rkey) = self.remote(view, self.ledger_words() + part / 2 * 8);
                let ticket = place.index.wrapping_add(view.base);
                let number = ticket + 2 - part;
                return self.write_wqe(view, place.index, &wqe_write::ledger(place, remote, rkey, number));
            }
            Signal::Cleared(add) => (add, CLEARED_TAG),
            Signal::Add(add) => (add, ADD_TAG),
        };
        self.write_amo(view, place, at, Amo::Add64(add), self.unwanted(view, tag));
    }
}
