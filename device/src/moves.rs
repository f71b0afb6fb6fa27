//! Puts and gets, as the leader of a group posts them: a run of bytes in pieces that one message carries.
//!
//! Each piece is a group of its own, so one loop does for a put of any length: pieces end at key chunks and are long,
//! and a doorbell for each costs nothing beside them.

use crate::access::{Channel, PathView};
use crate::platform::Platform;
use crate::post::is_none;
use crate::root::root;
use crate::types::{FaultKind, Get, HeapOffset, Posted, Put, Signal};
use crate::wqe_write::{self, Place, Segments};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::Word;

/// Longest message. A path that completes nothing for the suspect time is suspected, so a message must take much less:
/// 16 MiB are 1.3 ms at 100 Gb/s. Slower rails need a longer suspect time.
pub const MESSAGE_BYTES_MAX: u32 = 16 << 20;
/// Chunks above count as of this many bytes (log2), so that a piece is reckoned in 32 bits.
const LOG2_CHUNK_MAX: u32 = 31;

/// A run of bytes still to be moved: heap offsets at both ends.
#[derive(Clone, Copy)]
struct Run {
    remote: u64,
    local: u64,
    rest: u64,
}

impl<P: Platform> Channel<'_, P> {
    /// A put, and what follows its last piece in the same group.
    #[inline(always)]
    pub(crate) fn put_led(self, put: Put, signal: Option<(HeapOffset, Signal)>) -> Posted {
        self.put_rung(put, signal, true)
    }

    /// The same, whose doorbell is rung if `ring`.
    #[inline(always)]
    pub(crate) fn put_rung(self, put: Put, signal: Option<(HeapOffset, Signal)>, ring: bool) -> Posted {
        let tails = match signal {
            None => 0,
            Some((at, signal)) if self.word_fits(at, signal.bytes()) => self.signal_tickets(signal),
            Some(_) => return Posted::refused(FaultKind::BadAddress),
        };
        let run = match self.run(put.dst, put.src, put.bytes) {
            Some(run) if tails == 0 || tails < self.depth() => run,
            _ => return Posted::refused(FaultKind::BadAddress),
        };
        if matches!(signal, Some((_, Signal::Add(_)))) && !self.bound() {
            return Posted::UNBOUND;
        }
        self.move_all::<true>(run, (tails, ring), wqe_write::write, |view, word, first| {
            if let Some((at, signal)) = signal {
                self.write_signal_group(view, word, first, at, signal);
            }
        })
    }

    /// A get is a put the other way.
    #[inline(always)]
    pub(crate) fn get_led(self, get: Get) -> Posted {
        match self.run(get.src, get.dst, get.bytes) {
            Some(run) => self.move_all::<false>(run, (0, true), wqe_write::read, |_, _, _| ()),
            None => Posted::refused(FaultKind::BadAddress),
        }
    }

    /// Up to eight bytes, inline.
    #[inline(always)]
    pub(crate) fn p_led(self, dst: HeapOffset, value: u64, bytes: u32) -> Posted {
        if bytes == 0
            || bytes > 8
            || !self.device.heap_contains(dst, bytes as u64)
            || self.crosses_chunk(dst.0, bytes as u64)
        {
            return Posted::refused(FaultKind::BadAddress);
        }
        let word = self.take(1);
        if is_none(word) {
            return Posted::from_raw(word);
        }
        let view = self.view(Word(word).slot());
        let place = view.place(Word(word), 0);
        let (remote, rkey) = self.remote_data(&view, dst.0);
        self.write_wqe(&view, place.index, &wqe_write::write_inline(place, remote, rkey, value, bytes));
        self.leave(Word(word), 1, &view)
    }

    /// A run whose two ends lie in the heap. One of no bytes may stand at its very end, where there is a key as well:
    /// that of the ledger words behind the heap.
    #[inline(always)]
    fn run(self, remote: HeapOffset, local: HeapOffset, bytes: u64) -> Option<Run> {
        let heap = root!(self.device, heap_bytes);
        if bytes > heap || remote.0 > heap - bytes || local.0 > heap - bytes {
            return None;
        }
        Some(Run { remote: remote.0, local: local.0, rest: bytes })
    }

    /// Posts a run piece by piece, the last one with `tails` tickets behind it that `tail` writes. `DATA`: a put. What
    /// goes with the number of tickets says whether the doorbell is rung.
    #[inline(always)]
    fn move_all<const DATA: bool>(
        self,
        mut run: Run,
        (tails, ring): (u64, bool),
        encode: impl Fn(Place, u64, u32, u64, u32, u32) -> Segments,
        tail: impl Fn(&PathView, Word, u64),
    ) -> Posted {
        loop {
            let bytes = self.piece(run);
            let last = bytes as u64 == run.rest;
            let count = if last { 1 + tails } else { 1 };
            let word = self.take(count);
            if is_none(word) {
                return Posted::from_raw(word);
            }
            let word = Word(word);
            let view = self.view(word.slot());
            let place = view.place(word, 0);
            let (remote, rkey) = match DATA {
                true => self.remote_data(&view, run.remote),
                false => self.remote(&view, run.remote),
            };
            let local = self.device.local_address(HeapOffset(run.local));
            let lkey = self.device.lkey(view.local_rail, run.local);
            self.write_wqe(&view, place.index, &encode(place, remote, rkey, local, lkey, bytes));
            if last {
                tail(&view, word, 1);
            }
            let left = self.leave_rung(word, count, &view, ring);
            if last || is_none(left.raw()) {
                return left;
            }
            run = Run {
                remote: run.remote + bytes as u64,
                local: run.local + bytes as u64,
                rest: run.rest - bytes as u64,
            };
        }
    }

    /// Bytes of the next piece: to the nearer chunk end of the two sides, or to the end.
    #[inline(always)]
    fn piece(self, run: Run) -> u32 {
        let chunk = root!(self.device, log2_chunk).min(LOG2_CHUNK_MAX);
        let inside = (1u32 << chunk) - 1;
        let room = |at: u64| (!(at as u32) & inside) + 1;
        let rest = if run.rest > MESSAGE_BYTES_MAX as u64 { MESSAGE_BYTES_MAX } else { run.rest as u32 };
        rest.min(room(run.remote)).min(room(run.local))
    }

    #[inline(always)]
    fn crosses_chunk(self, at: u64, bytes: u64) -> bool {
        let chunk = root!(self.device, log2_chunk);
        at >> chunk != (at + bytes - 1) >> chunk
    }

    /// Remote address and rkey of a heap offset over a path.
    #[inline(always)]
    pub(crate) fn remote(self, view: &PathView, at: u64) -> (u64, u32) {
        let device = self.device;
        if Mutant::SignalsRelaxed.on() {
            return self.remote_data(view, at);
        }
        (device.peer_heap(self.peer()) + at, device.rkey(self.peer(), view.remote_rail, at))
    }

    /// The same for the data of puts.
    #[inline(always)]
    fn remote_data(self, view: &PathView, at: u64) -> (u64, u32) {
        let device = self.device;
        (device.peer_heap(self.peer()) + at, device.data_rkey(self.peer(), view.remote_rail, at))
    }
}
