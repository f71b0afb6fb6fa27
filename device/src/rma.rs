//! Puts and gets, as the leader of a group posts them: a transfer in pieces that one message carries.
//!
//! Each piece is a group of its own, so one loop does for a put of any length: pieces end at key chunks and are long,
//! and a doorbell for each costs nothing beside them.

use crate::part::part;
use crate::platform::Platform;
use crate::poster::{Poster, is_none};
use crate::root::root;
use crate::send_queue::SendQueue;
use crate::signal_group::SignalGroup;
use crate::types::{FaultKind, Get, HeapOffset, Posted, Put, Signal};
use crate::wqe_write::{self, Place, Segments};
use shunt_layout::state::Word;

/// Longest message. A path that completes nothing for the suspect time is suspected, so a message must take much less:
/// 16 MiB are 1.3 ms at 100 Gb/s. Slower rails need a longer suspect time.
const MESSAGE_BYTES_MAX: u32 = 16 << 20;
/// Chunks above count as of this many bytes (log2), so that a piece is reckoned in 32 bits.
const LOG2_CHUNK_MAX: u32 = 31;

/// Bytes still to be moved: heap offsets at both ends.
#[derive(Clone, Copy)]
struct Transfer {
    remote: u64,
    local: u64,
    rest: u64,
}

part! {
    /// Moves bytes between the heaps.
    pub(crate) Rma { poster: Poster, signal_group: SignalGroup }
}

impl<'s, P: Platform> Rma<'s, P> {
    /// A put, and what follows its last piece in the same group.
    #[inline(always)]
    pub(crate) fn post_put(self, put: Put, signal: Option<(HeapOffset, Signal)>) -> Posted {
        self.post_put_with_doorbell(put, signal, true)
    }

    /// The same, whose doorbell is rung if `ring`.
    #[inline(always)]
    pub(crate) fn post_put_with_doorbell(
        self,
        put: Put,
        signal: Option<(HeapOffset, Signal)>,
        ring: bool,
    ) -> Posted {
        let tails = match signal {
            None => 0,
            Some((_, signal)) if !self.ptr.has_atomic(signal.is_masked()) => {
                return Posted::refused(FaultKind::NoMaskedAtomics);
            }
            Some((at, signal)) if self.ptr.word_fits(at, signal.bytes()) => {
                self.signal_group().tickets(signal)
            }
            Some(_) => return Posted::refused(FaultKind::BadAddress),
        };
        let transfer = match self.transfer(put.dst, put.src, put.bytes) {
            Some(transfer) if tails == 0 || tails < self.ptr.depth() => transfer,
            _ => return Posted::refused(FaultKind::BadAddress),
        };
        if matches!(signal, Some((_, Signal::Add(_)))) && !self.poster().bind() {
            return Posted::UNBOUND;
        }
        self.post_all::<true>(transfer, (tails, ring), wqe_write::write, |queue, word, first| {
            if let Some((at, signal)) = signal {
                self.signal_group().write(queue, word, first, at, signal);
            }
        })
    }

    /// A get is a put the other way.
    #[inline(always)]
    pub(crate) fn post_get(self, get: Get) -> Posted {
        match self.transfer(get.src, get.dst, get.bytes) {
            Some(transfer) => self.post_all::<false>(transfer, (0, true), wqe_write::read, |_, _, _| ()),
            None => Posted::refused(FaultKind::BadAddress),
        }
    }

    /// Up to eight bytes, inline.
    #[inline(always)]
    pub(crate) fn post_p(self, dst: HeapOffset, value: u64, bytes: u32) -> Posted {
        if bytes == 0
            || bytes > 8
            || !self.ptr.state.heap_contains(dst, bytes as u64)
            || self.crosses_chunk(dst.0, bytes as u64)
        {
            return Posted::refused(FaultKind::BadAddress);
        }
        let word = self.poster().take(1);
        if is_none(word) {
            return Posted::from_raw(word);
        }
        let queue = SendQueue::of(self.ptr, Word(word).slot());
        let place = queue.place(Word(word), 0);
        let (remote, rkey) = self.ptr.remote_data(queue.remote_rail, dst.0);
        queue.write(place.index, &wqe_write::write_inline(place, remote, rkey, value, bytes));
        self.poster().publish(Word(word), 1, &queue)
    }

    /// A put of the library's own, behind the heap, and a kind 1 signal of this word and value behind it.
    pub(crate) fn post_record(self, remote: u64, local: u64, bytes: u64, (at, value): (u64, u64)) -> Posted {
        let signal = Signal::Monotone(value);
        let tails = self.signal_group().tickets(signal);
        if tails >= self.ptr.depth() {
            return Posted::refused(FaultKind::BadAddress);
        }
        let transfer = Transfer { remote, local, rest: bytes };
        self.post_all::<true>(transfer, (tails, true), wqe_write::write, |queue, word, first| {
            self.signal_group().write(queue, word, first, HeapOffset(at), signal);
        })
    }

    /// A get of the library's own, behind the heap.
    pub(crate) fn read_record(self, remote: u64, local: u64, bytes: u64) -> Posted {
        self.post_all::<false>(
            Transfer { remote, local, rest: bytes },
            (0, true),
            wqe_write::read,
            |_, _, _| (),
        )
    }

    /// A transfer whose two ends lie in the heap. One of no bytes may stand at its very end, where there is a key as
    /// well: that of the ledger words behind the heap.
    #[inline(always)]
    fn transfer(self, remote: HeapOffset, local: HeapOffset, bytes: u64) -> Option<Transfer> {
        let heap = root!(self.ptr.state, heap_bytes);
        if bytes > heap || remote.0 > heap - bytes || local.0 > heap - bytes {
            return None;
        }
        Some(Transfer { remote: remote.0, local: local.0, rest: bytes })
    }

    /// Posts a transfer piece by piece, the last one with `tails` tickets behind it that `tail` writes. `DATA`: a put.
    /// What goes with the number of tickets says whether the doorbell is rung.
    #[inline(always)]
    fn post_all<const DATA: bool>(
        self,
        mut transfer: Transfer,
        (tails, ring): (u64, bool),
        encode: impl Fn(Place, u64, u32, u64, u32, u32) -> Segments,
        tail: impl Fn(&SendQueue<'s, P>, Word, u64),
    ) -> Posted {
        let (ptr, poster) = (self.ptr, self.poster());
        loop {
            let bytes = self.piece(transfer);
            let last = bytes as u64 == transfer.rest;
            let count = if last { 1 + tails } else { 1 };
            let word = poster.take(count);
            if is_none(word) {
                return Posted::from_raw(word);
            }
            let word = Word(word);
            let queue = SendQueue::of(ptr, word.slot());
            let place = queue.place(word, 0);
            let (remote, rkey) = match DATA {
                true => ptr.remote_data(queue.remote_rail, transfer.remote),
                false => ptr.remote(queue.remote_rail, transfer.remote),
            };
            let local = ptr.state.local_address(HeapOffset(transfer.local));
            let lkey = ptr.state.lkey(queue.local_rail, transfer.local);
            queue.write(place.index, &encode(place, remote, rkey, local, lkey, bytes));
            if last {
                tail(&queue, word, 1);
            }
            let end = transfer.local + bytes as u64;
            let posted = poster.publish_with_doorbell(word, count, &queue, (end, ring));
            if last || is_none(posted.raw()) {
                return posted;
            }
            transfer = Transfer {
                remote: transfer.remote + bytes as u64,
                local: transfer.local + bytes as u64,
                rest: transfer.rest - bytes as u64,
            };
        }
    }

    /// Bytes of the next piece: to the nearer chunk end of the two sides, or to the end.
    #[inline(always)]
    fn piece(self, transfer: Transfer) -> u32 {
        let chunk = root!(self.ptr.state, log2_chunk).min(LOG2_CHUNK_MAX);
        let inside = (1u32 << chunk) - 1;
        let room = |at: u64| (!(at as u32) & inside) + 1;
        let most = transfer.rest > MESSAGE_BYTES_MAX as u64;
        let rest = if most { MESSAGE_BYTES_MAX } else { transfer.rest as u32 };
        rest.min(room(transfer.remote)).min(room(transfer.local))
    }

    #[inline(always)]
    fn crosses_chunk(self, at: u64, bytes: u64) -> bool {
        let chunk = root!(self.ptr.state, log2_chunk);
        at >> chunk != (at + bytes - 1) >> chunk
    }
}
