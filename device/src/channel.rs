//! The public calls of a channel: argument checks and the order of things, no bit work.
//!
//! Collective over `lanes`: every lane passes the same arguments and gets the same answer. The leader is lane
//! 0.

use crate::access::{Channel, PathView};
use crate::patience::Patience;
use crate::platform::{Lanes, Platform, Solo};
use crate::post::{NO_WORD, UNBOUND};
use crate::types::{CqCheck, Deadline, Fault, FaultKind, HeapOffset, Put, Signal, Ticket};
use crate::wqe_write::{self, Place, Segments};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{Step, Word};

/// Longest message. A path that completes nothing for the suspect time is suspected, so a message must take much less:
/// 16 MiB are 1.3 ms at 100 Gb/s. Slower rails need a longer suspect time.
pub const MESSAGE_BYTES_MAX: u64 = 16 << 20;

/// What follows the put of a group.
#[derive(Clone, Copy)]
enum Tail {
    Nothing,
    Signal { at: HeapOffset, signal: Signal },
}

/// One piece of a put: a run of bytes inside one key chunk at both ends.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub dst: u64,
    pub src: u64,
    pub bytes: u64,
}

impl<P: Platform> Channel<'_, P> {
    /// Writes `put.bytes` to the peer. The buffer belongs to the library until a wait on the ticket returns.
    ///
    /// # Errors
    /// `BadAddress` before anything was posted; `PeerLost` and its like when the channel is dead.
    #[inline(always)]
    pub fn put_nbi<L: Lanes>(self, lanes: L, put: Put) -> Result<Ticket, Fault> {
        self.post(lanes, put, Tail::Nothing)
    }

    /// A put and, behind it on the same stream, a signal at `at`: whoever sees the signal sees the put. Answers with
    /// the ticket after which the signal is applied.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi).
    #[inline(always)]
    pub fn put_signal_nbi<L: Lanes>(
        self,
        lanes: L,
        put: Put,
        at: HeapOffset,
        signal: Signal,
    ) -> Result<Ticket, Fault> {
        self.post(lanes, put, Tail::Signal { at, signal })
    }

    /// Writes the low `bytes` (1 to 8) of `value`, carried in the WQE itself.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi).
    #[inline(always)]
    pub fn p_nbi<L: Lanes>(self, lanes: L, dst: HeapOffset, value: u64, bytes: u32) -> Result<Ticket, Fault> {
        if bytes == 0
            || bytes > 8
            || !self.device.heap_contains(dst, bytes as u64)
            || self.crosses_chunk(dst.0, bytes as u64)
        {
            return Err(self.fault(FaultKind::BadAddress));
        }
        self.post_inline(lanes, dst, value, bytes)
    }

    /// Says whether the channel can still carry anything; looks at nothing else, never waits. Who waits for a
    /// word that the peer writes learns here that the peer is lost: such a wait has no ticket to ask about.
    ///
    /// # Errors
    /// The channel's fault once it is dead.
    #[inline(always)]
    pub fn alive(self) -> Result<(), Fault> {
        if matches!(self.load_step(), Step::Dead) { Err(self.dead_fault()) } else { Ok(()) }
    }

    /// Posts one zero-length write if the channel is at rest; true if it did. Never waits, so the agent may call it:
    /// a peer that is gone shows only where something is outstanding.
    #[inline(never)]
    pub fn touch(self) -> bool {
        let (done, ticket, ready) = (self.load_done(), self.load_ticket(), self.load_ready());
        let at_rest = !done.flag() && ticket == done && ready.index() == ticket.index();
        if !at_rest || !matches!(self.load_step(), Step::Idle) {
            return false;
        }
        let next = ticket.with_index(ticket.index() + 1);
        // SAFETY: a channel word. A swap where others add: it takes the ticket only while all before it are done, so
        // there is room in the ring and nobody to wait for.
        if unsafe { self.platform().compare_swap(self.ticket_word(), ticket.0, next.0) } != ticket.0 {
            return false;
        }
        let view = self.view(ticket.slot());
        let place = Place { index: ticket.index().wrapping_sub(view.base), qpn_shifted: view.qpn_shifted };
        self.write_wqe(&view, place.index, &wqe_write::placeholder(place));
        self.leave_group(Solo, ticket, 1, &view).is_ok()
    }

    /// One look at a ticket; never waits.
    #[inline(always)]
    pub fn check(self, ticket: Ticket, deadline: Deadline) -> CqCheck {
        if self.is_done(ticket) {
            return CqCheck::Done;
        }
        let now = self.platform().now_ns();
        match self.attend(&mut Patience::new(now)) {
            _ if self.load_done().index() > ticket.0 => CqCheck::Done,
            Err(fault) => CqCheck::Failed(fault),
            Ok(()) if self.asks() => CqCheck::Failed(self.fault(FaultKind::Uncertain)),
            Ok(()) if now > deadline.at_ns => CqCheck::Overdue(self.fault(FaultKind::Overdue)),
            Ok(()) => CqCheck::Pending,
        }
    }

    /// Waits until `ticket` is done.
    ///
    /// # Errors
    /// `Overdue` when the deadline passes (the operation goes on); a fault of the channel when it is dead.
    #[inline(always)]
    pub fn wait<L: Lanes>(self, lanes: L, ticket: Ticket, deadline: Deadline) -> Result<(), Fault> {
        let mut code = 0;
        if lanes.rank() == 0 {
            code = if self.is_done(ticket) { 0 } else { self.wait_slow(ticket.0, deadline.at_ns) };
        }
        match lanes.broadcast(code, 0) {
            0 => Ok(()),
            code if code == FaultKind::Overdue as u64 => Err(self.fault(FaultKind::Overdue)),
            code if code == FaultKind::Uncertain as u64 => Err(self.fault(FaultKind::Uncertain)),
            _ => Err(self.dead_fault()),
        }
    }

    /// Waits until everything published on this channel before the call is done.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[inline(always)]
    pub fn quiet<L: Lanes>(self, lanes: L, deadline: Deadline) -> Result<(), Fault> {
        // Each lane reads for itself; the leader's reading counts.
        let published = lanes.broadcast(self.load_ready().index(), 0);
        if published == 0 || Mutant::QuietAtPublish.on() {
            return Ok(());
        }
        self.wait(lanes, Ticket(published - 1), deadline)
    }

    /// Answers with 0 or with the kind of the fault: one register, see `admit_slow`.
    #[inline(never)]
    fn wait_slow(self, ticket: u64, until_ns: u64) -> u64 {
        let mut patience = Patience::new(self.platform().now_ns());
        loop {
            let attended = self.attend(&mut patience);
            if self.is_done(Ticket(ticket)) {
                return 0;
            }
            if let Err(fault) = attended {
                return fault.kind as u64;
            }
            if self.asks() {
                return FaultKind::Uncertain as u64;
            }
            if self.platform().now_ns() > until_ns {
                return FaultKind::Overdue as u64;
            }
            self.platform().relax();
        }
    }

    #[inline(always)]
    fn post<L: Lanes>(self, lanes: L, put: Put, tail: Tail) -> Result<Ticket, Fault> {
        let tails = match tail {
            Tail::Nothing => 0,
            Tail::Signal { at, signal } if self.word_fits(at, 8) => self.signal_tickets(signal),
            Tail::Signal { .. } => return Err(self.fault(FaultKind::BadAddress)),
        };
        let shared = matches!(tail, Tail::Signal { signal: Signal::Add(_), .. });
        if !self.device.heap_contains(put.dst, put.bytes) || !self.device.heap_contains(put.src, put.bytes) {
            return Err(self.fault(FaultKind::BadAddress));
        }
        let pieces = self.pieces(put);
        let count = pieces + tails;
        if count > self.depth() {
            return Err(self.fault(FaultKind::BadAddress));
        }
        let word = if shared { self.enter_bound(lanes, count)? } else { self.enter_group(lanes, count)? };
        let view = self.view(word.slot());
        let first = word.index().wrapping_sub(view.base);
        let mut number = lanes.rank() as u64;
        while number < count {
            let place = Place { index: first.wrapping_add(number), qpn_shifted: view.qpn_shifted };
            match tail {
                Tail::Signal { at, signal } if number >= pieces => {
                    self.write_signal(&view, place, at, signal, number - pieces);
                }
                _ => {
                    self.write_wqe(&view, place.index, &self.piece_wqe(&view, place, self.piece(put, number)))
                }
            }
            number += lanes.size() as u64;
        }
        self.leave_group(lanes, word, count, &view)
    }

    #[inline(always)]
    fn post_inline<L: Lanes>(
        self,
        lanes: L,
        at: HeapOffset,
        value: u64,
        bytes: u32,
    ) -> Result<Ticket, Fault> {
        let word = self.enter_group(lanes, 1)?;
        let view = self.view(word.slot());
        if lanes.rank() == 0 {
            let index = word.index().wrapping_sub(view.base);
            let place = Place { index, qpn_shifted: view.qpn_shifted };
            let (remote, rkey) = self.remote(&view, at.0);
            self.write_wqe(&view, index, &wqe_write::write_inline(place, remote, rkey, value, bytes));
        }
        self.leave_group(lanes, word, 1, &view)
    }

    /// Reserves and waits for room; all lanes learn the word.
    #[inline(always)]
    pub(crate) fn enter_group<L: Lanes>(self, lanes: L, count: u64) -> Result<Word, Fault> {
        let word = if lanes.rank() == 0 { self.enter_alone(count) } else { 0 };
        match lanes.broadcast(word, 0) {
            NO_WORD => Err(self.dead_fault()),
            word => Ok(Word(word)),
        }
    }

    /// The same for operations of kind 3: the channel is bound to the words' home first (rule 16).
    #[inline(always)]
    pub(crate) fn enter_bound<L: Lanes>(self, lanes: L, count: u64) -> Result<Word, Fault> {
        let mut word = 0;
        if lanes.rank() == 0 {
            let code = if self.is_bound() { 0 } else { self.bind() };
            word = match code {
                0 => self.enter_alone(count),
                code if code == FaultKind::Overdue as u64 => UNBOUND,
                _ => NO_WORD,
            };
        }
        match lanes.broadcast(word, 0) {
            NO_WORD => Err(self.dead_fault()),
            UNBOUND => Err(self.fault(FaultKind::Overdue)),
            word => Ok(Word(word)),
        }
    }

    /// What the leader of a group does: a word, or [`NO_WORD`].
    #[inline(always)]
    fn enter_alone(self, count: u64) -> u64 {
        let reserved = self.reserve(count);
        match self.admit(reserved, count, self.depth()) {
            NO_WORD => NO_WORD,
            word => word & !shunt_layout::state::CLOSED,
        }
    }

    /// Publishes and rings once all lanes have written.
    #[inline(always)]
    pub(crate) fn leave_group<L: Lanes>(
        self,
        lanes: L,
        word: Word,
        count: u64,
        view: &PathView,
    ) -> Result<Ticket, Fault> {
        if !Mutant::LeaderDoesNotWait.on() {
            lanes.sync();
        }
        let mut published = 1;
        if lanes.rank() == 0 {
            if self.publish(word.index(), count) {
                self.ring(word, word.index() + count, view);
            } else {
                published = 0;
            }
        }
        if lanes.broadcast(published, 0) == 0 {
            return Err(self.dead_fault());
        }
        Ok(Ticket(word.index() + count - 1))
    }

    #[inline(always)]
    pub(crate) fn depth(self) -> u64 {
        1 << self.device.state.log_depth
    }

    #[inline(always)]
    pub(crate) fn word_fits(self, at: HeapOffset, bytes: u64) -> bool {
        at.0.is_multiple_of(bytes) && self.device.heap_contains(at, bytes)
    }

    #[inline(always)]
    fn crosses_chunk(self, at: u64, bytes: u64) -> bool {
        at >> self.device.state.log2_chunk != (at + bytes - 1) >> self.device.state.log2_chunk
    }

    /// Bytes from the start of a rest to the nearer chunk end of its two sides.
    #[inline(always)]
    fn step(self, dst: u64, src: u64, rest: u64) -> u64 {
        let chunk = 1u64 << self.device.state.log2_chunk;
        let room = (chunk - (dst & (chunk - 1))).min(chunk - (src & (chunk - 1)));
        rest.min(room).min(MESSAGE_BYTES_MAX)
    }

    #[inline(always)]
    pub(crate) fn pieces(self, put: Put) -> u64 {
        let (mut dst, mut src, mut rest, mut count) = (put.dst.0, put.src.0, put.bytes, 0);
        loop {
            let bytes = self.step(dst, src, rest);
            (dst, src, rest, count) = (dst + bytes, src + bytes, rest - bytes, count + 1);
            if rest == 0 {
                return count;
            }
        }
    }

    /// Walks to a piece: one step for a put inside a chunk, which is nearly every put.
    #[inline(always)]
    pub(crate) fn piece(self, put: Put, number: u64) -> Piece {
        let (mut dst, mut src, mut rest, mut left) = (put.dst.0, put.src.0, put.bytes, number);
        loop {
            let bytes = self.step(dst, src, rest);
            if left == 0 {
                return Piece { dst, src, bytes };
            }
            (dst, src, rest, left) = (dst + bytes, src + bytes, rest - bytes, left - 1);
        }
    }

    /// Remote address and rkey of a heap offset over a path.
    #[inline(always)]
    pub(crate) fn remote(self, view: &PathView, at: u64) -> (u64, u32) {
        let device = self.device;
        (device.peer_heap(self.peer()) + at, device.rkey(self.peer(), view.remote_rail, at))
    }

    #[inline(always)]
    fn piece_wqe(self, view: &PathView, place: Place, piece: Piece) -> Segments {
        if piece.bytes == 0 {
            return wqe_write::placeholder(place);
        }
        let (remote, rkey) = self.remote(view, piece.dst);
        let local = self.device.local_address(HeapOffset(piece.src));
        let lkey = self.device.lkey(view.local_rail, piece.src);
        wqe_write::write(place, remote, rkey, local, lkey, piece.bytes as u32)
    }
}
