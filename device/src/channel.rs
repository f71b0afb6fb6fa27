//! The public calls of a channel: who does what in a group of lanes, and what the answers are. No bit work.
//!
//! Collective over `lanes`: every lane passes the same arguments. The leader, lane 0, does the work, once all lanes
//! have come: what they stored before the call is what a put sends. `put_nbi` and its like tell all lanes the same
//! answer. Below them is a raw layer, `try_put` and its like: the answer is one register, and only the leader has it.
//! A kernel that looks at an answer in one lane saves the telling, and the typed fault is read from memory when there
//! is one: [`Channel::why`].

use crate::exact_fetch::ExactFetch;
use crate::platform::{Lanes, Platform};
use crate::poller::Poller;
use crate::poster::Poster;
use crate::rma::Rma;
use crate::signal::Signals;
use crate::stall::StallDetector;
use crate::state_ptr::{ChannelPtr, StatePtr};
use crate::switch::{Report, Switch};
use crate::types::{
    Amo, CqCheck, Deadline, Fault, FaultKind, Get, HeapOffset, Posted, Put, Resolution, Signal, Ticket,
};
use crate::waiter::Waiter;
use shunt_layout::mutant::Mutant;

/// One ordered stream to one peer.
#[derive(Clone, Copy)]
pub struct Channel<'s, P: Platform> {
    ptr: ChannelPtr<'s, P>,
}

/// The parts behind the calls.
impl<'s, P: Platform> Channel<'s, P> {
    #[inline(always)]
    pub(crate) const fn of(ptr: ChannelPtr<'s, P>) -> Self {
        Self { ptr }
    }

    #[inline(always)]
    pub(crate) const fn state(self) -> StatePtr<'s, P> {
        self.ptr.state
    }

    #[inline(always)]
    const fn rma(self) -> Rma<'s, P> {
        Rma::of(self.ptr)
    }

    #[inline(always)]
    const fn signals(self) -> Signals<'s, P> {
        Signals::of(self.ptr)
    }

    #[inline(always)]
    const fn poster(self) -> Poster<'s, P> {
        Poster::of(self.ptr)
    }

    #[inline(always)]
    const fn poller(self) -> Poller<'s, P> {
        Poller::of(self.ptr)
    }

    #[inline(always)]
    const fn waiter(self) -> Waiter<'s, P> {
        Waiter::of(self.ptr)
    }

    #[inline(always)]
    const fn switch(self) -> Switch<'s, P> {
        Switch::of(self.ptr)
    }

    #[inline(always)]
    const fn report(self) -> Report<'s, P> {
        Report::of(self.ptr)
    }
}

impl<P: Platform> Channel<'_, P> {
    /// The channel's number among all of this PE: one register, where a channel takes two.
    #[inline(always)]
    pub fn number(self) -> u32 {
        self.ptr.row()
    }

    /// The peer at the other end.
    #[inline(always)]
    pub fn peer(self) -> u32 {
        self.ptr.peer()
    }

    /// The channel's index at its peer.
    #[inline(always)]
    pub fn index(self) -> u32 {
        self.ptr.index()
    }

    /// Writes `put.bytes` to the peer. The buffer belongs to the library until a wait on the ticket returns.
    ///
    /// A put that crosses a key chunk, or is longer than a message may be, goes in pieces, in order; the ticket is that
    /// of the last one.
    ///
    /// # Errors
    /// `BadAddress` before anything was posted; `PeerLost` and its like when the channel is dead.
    #[inline(always)]
    pub fn put_nbi<L: Lanes>(self, lanes: L, put: Put) -> Result<Ticket, Fault> {
        self.tell(lanes, self.try_put(lanes, put))
    }

    /// [`put_nbi`](Self::put_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_put<L: Lanes>(self, lanes: L, put: Put) -> Posted {
        if self.leads(lanes) { self.rma().post_put(put, None) } else { Posted::NOBODY }
    }

    /// [`try_put`](Self::try_put) that rings the doorbell if `ring`. What was not rung is told to the NIC by the next
    /// post on this channel that rings, or by a caller that waits for something or looks at the channel: it is not
    /// lost and not overdue, only late.
    #[inline(always)]
    pub fn try_put_rung<L: Lanes>(self, lanes: L, put: Put, ring: bool) -> Posted {
        let posted = if self.leads(lanes) {
            self.rma().post_put_with_doorbell(put, None, ring)
        } else {
            Posted::NOBODY
        };
        if Mutant::PutAwaited.on() {
            let _ = self.quiet(lanes, Deadline::after(self.now_ns(), 1_000_000_000));
        }
        posted
    }

    /// A put and, behind it on the same stream, a signal at `at`: who sees the signal sees the put. Answers with
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
        self.tell(lanes, self.try_put_signal(lanes, put, at, signal))
    }

    /// [`put_signal_nbi`](Self::put_signal_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_put_signal<L: Lanes>(self, lanes: L, put: Put, at: HeapOffset, signal: Signal) -> Posted {
        if self.leads(lanes) { self.rma().post_put(put, Some((at, signal))) } else { Posted::NOBODY }
    }

    /// A signal alone: covers every earlier put of this channel. Answers with the ticket after which it is applied.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi).
    #[inline(always)]
    pub fn signal_nbi<L: Lanes>(self, lanes: L, at: HeapOffset, signal: Signal) -> Result<Ticket, Fault> {
        self.tell(lanes, self.try_signal(lanes, at, signal))
    }

    /// [`signal_nbi`](Self::signal_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_signal<L: Lanes>(self, lanes: L, at: HeapOffset, signal: Signal) -> Posted {
        if self.leads(lanes) { self.signals().post_signal(at, signal) } else { Posted::NOBODY }
    }

    /// A signal of kind 3, between two ledger words as one of kind 2: where no NIC tells what was applied, they do.
    ///
    /// # Errors
    /// As [`amo_nbi`](Self::amo_nbi).
    #[inline(always)]
    pub fn bracketed_add_nbi<L: Lanes>(self, lanes: L, at: HeapOffset, add: u64) -> Result<Ticket, Fault> {
        let posted = match self.leads(lanes) {
            false => Posted::NOBODY,
            true if self.poster().bind() => self.signals().post_signal(at, Signal::Cleared(add)),
            true => Posted::UNBOUND,
        };
        self.tell(lanes, posted)
    }

    /// Reads `get.bytes` from the peer. They are there once a wait on the ticket returned; until then the buffer
    /// belongs to the library.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi).
    #[inline(always)]
    pub fn get_nbi<L: Lanes>(self, lanes: L, get: Get) -> Result<Ticket, Fault> {
        self.tell(lanes, self.try_get(lanes, get))
    }

    /// [`get_nbi`](Self::get_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_get<L: Lanes>(self, lanes: L, get: Get) -> Posted {
        if self.leads(lanes) { self.rma().post_get(get) } else { Posted::NOBODY }
    }

    /// Writes the low `bytes` (1 to 8) of `value`, carried in the WQE itself.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi).
    #[inline(always)]
    pub fn p_nbi<L: Lanes>(self, lanes: L, dst: HeapOffset, value: u64, bytes: u32) -> Result<Ticket, Fault> {
        self.tell(lanes, self.try_p(lanes, dst, value, bytes))
    }

    /// [`p_nbi`](Self::p_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_p<L: Lanes>(self, lanes: L, dst: HeapOffset, value: u64, bytes: u32) -> Posted {
        if self.leads(lanes) { self.rma().post_p(dst, value, bytes) } else { Posted::NOBODY }
    }

    /// An atomic whose answer nobody wants (kind 3). All writers of a word use channels of one index: rule 16 binds
    /// channels of that index to one NIC of the receiver.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi). `Overdue`: there was no path to that NIC for the first operation of kind 3 on
    /// this channel; nothing was posted. `NoMaskedAtomics`: it is masked, and a NIC of the job has none.
    #[inline(always)]
    pub fn amo_nbi<L: Lanes>(self, lanes: L, dst: HeapOffset, amo: Amo) -> Result<Ticket, Fault> {
        self.tell(lanes, self.try_amo(lanes, dst, amo))
    }

    /// [`amo_nbi`](Self::amo_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_amo<L: Lanes>(self, lanes: L, dst: HeapOffset, amo: Amo) -> Posted {
        if self.leads(lanes) { self.signals().post_amo(dst, amo, None) } else { Posted::NOBODY }
    }

    /// An atomic whose answer goes to the eight bytes at `result` in this PE's heap: see
    /// [`Device::fetched`](crate::Device::fetched).
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
        self.tell(lanes, self.try_amo_fetch(lanes, dst, amo, result))
    }

    /// [`amo_fetch_nbi`](Self::amo_fetch_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_amo_fetch<L: Lanes>(self, lanes: L, dst: HeapOffset, amo: Amo, result: HeapOffset) -> Posted {
        if self.leads(lanes) { self.signals().post_amo(dst, amo, Some(result)) } else { Posted::NOBODY }
    }

    /// An atomic whose answer no failure loses: the peer's agent executes it and keeps the answer until the next one of
    /// this channel. Answers with what the word was; one of four bytes is in the low half. Slower than
    /// [`amo_fetch_nbi`](Self::amo_fetch_nbi): two round trips and a look of the agent. It is atomic among all that
    /// comes through the word's home, as that is, and needs no path there.
    ///
    /// # Errors
    /// `Overdue`: the request may still be executed. `AnswerLost`: the peer's NIC failed in the middle of it.
    /// `FenceUnproven`: not executed, because the home's NIC answers nothing and the home cannot move.
    /// `FetchNotExact`: it was not set up. `NoMaskedAtomics`: a NIC of the job has none, and the word has four bytes.
    /// `BadAddress` for a word that is not one of the heap's. Else as [`wait`](Self::wait).
    #[inline(always)]
    pub fn fetch_exact<L: Lanes>(
        self,
        lanes: L,
        dst: HeapOffset,
        amo: Amo,
        deadline: Deadline,
    ) -> Result<u64, Fault> {
        lanes.sync();
        let mut answer = 0;
        if lanes.rank() == 0 {
            answer = ExactFetch::fetch(self.ptr.state, self.ptr.row(), dst.0, amo, deadline.at_ns);
        }
        lanes.sync();
        let value = lanes.broadcast(answer as u64, 0);
        match FaultKind::from_raw(lanes.broadcast((answer >> 64) as u64, 0) as u32) {
            None => Ok(value),
            Some(kind) => Err(self.told(kind)),
        }
    }

    /// Says whether the channel can still carry anything; looks at nothing else, never waits. Who waits for a
    /// word that the peer writes learns here that the peer is lost: such a wait has no ticket to ask about.
    ///
    /// # Errors
    /// The channel's fault once it is dead.
    #[inline(always)]
    pub fn alive(self) -> Result<(), Fault> {
        if self.switch().is_dead() { Err(self.report().dead_fault()) } else { Ok(()) }
    }

    /// Posts one zero-length write if the channel is at rest; true if it did. Never waits, so the agent may call it:
    /// a peer that is gone shows only where something is outstanding.
    pub fn touch(self) -> bool {
        self.poster().touch()
    }

    /// One look at what is outstanding, for a kernel whose own waits look at nothing: an error completion, a doorbell
    /// that was left. Hints, which lie in host memory on a GPU, are the agent's to act on. A switch that is under way,
    /// or begins here, is carried on until `deadline`; true if none is left. Without a switch it does not wait.
    ///
    /// # Errors
    /// The kind of the channel's fault once it is dead; `Uncertain` while it asks its owner.
    #[inline(always)]
    pub fn progress(self, deadline: Deadline) -> Result<bool, FaultKind> {
        if self.waiter().finds_no_fault() {
            return Ok(true);
        }
        match Waiter::progress_slow(self.ptr.state, self.ptr.row(), deadline.at_ns) {
            0 => Ok(true),
            kind if kind == FaultKind::Overdue as u64 => Ok(false),
            kind => Err(FaultKind::from_raw(kind as u32).unwrap_or(FaultKind::PeerLost)),
        }
    }

    /// Whether a post of `count` entries would begin at once, as the channel stands: for callers with a deadline of
    /// their own, which posts do not know.
    #[inline(always)]
    pub fn has_room(self, count: u64) -> bool {
        self.poster().has_room(count)
    }

    /// Waits until a post of `count` entries would begin at once. Nothing is reserved, so leaving is free; another
    /// poster may be faster.
    ///
    /// # Errors
    /// `Overdue` when the deadline passes; `Uncertain` while the channel asks its owner; the kind of its fault once
    /// it is dead.
    #[inline(always)]
    pub fn wait_for_room(self, count: u64, deadline: Deadline) -> Result<(), FaultKind> {
        self.poster().wait_for_room(count, deadline)
    }

    /// One look at a ticket; never waits.
    #[inline(always)]
    pub fn check(self, ticket: Ticket, deadline: Deadline) -> CqCheck {
        if self.poller().is_done(ticket) {
            return CqCheck::Done;
        }
        let now = self.ptr.now_ns();
        match self.waiter().attend(&mut StallDetector::new(now)) {
            _ if self.ptr.load_done().index() > ticket.0 => CqCheck::Done,
            Err(fault) => CqCheck::Failed(fault),
            Ok(()) if self.switch().asks() => CqCheck::Failed(self.told(FaultKind::Uncertain)),
            Ok(()) if now > deadline.at_ns => CqCheck::Overdue(self.told(FaultKind::Overdue)),
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
            code = match self.poller().is_done(ticket) {
                true => 0,
                false => self.waiter().wait_slow(ticket.0, deadline.at_ns),
            };
        }
        self.tell_waited(lanes, code)
    }

    /// Waits until everything published on this channel before the call is done.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[inline(always)]
    pub fn quiet<L: Lanes>(self, lanes: L, deadline: Deadline) -> Result<(), Fault> {
        lanes.sync();
        let mut code = 0;
        if lanes.rank() == 0 && !self.poller().poll_last() {
            // None is published where there is no last ticket, and then the first look saw it.
            let last = self.ptr.load_ready().index().saturating_sub(1);
            code = self.waiter().wait_slow(last, deadline.at_ns);
        }
        self.tell_waited(lanes, code)
    }

    /// The first look of a [`quiet`](Self::quiet), a few microseconds long, and nearly always the only one. True to the
    /// leader if all is done; the others come back at once.
    #[inline(always)]
    pub fn try_quiet<L: Lanes>(self, lanes: L) -> bool {
        lanes.sync();
        lanes.rank() != 0 || self.poller().poll_last()
    }

    /// Now, in nanoseconds.
    #[inline(always)]
    pub fn now_ns(self) -> u64 {
        self.ptr.now_ns()
    }

    /// What the channel asks about, if it does; looks at nothing else, never waits.
    #[inline(always)]
    pub fn uncertain(self) -> Option<Fault> {
        if self.switch().asks() { Some(self.told(FaultKind::Uncertain)) } else { None }
    }

    /// Answers an `Uncertain` fault: `at` is its ticket. The channel goes on; the next wait may find another one.
    ///
    /// What was applied is not repeated, and neither is anything before it; what was not is issued again, with all
    /// that is behind it. One answer counts, the first.
    ///
    /// # Errors
    /// `BadResolution` if the channel does not ask about `at`, if it was answered, or if the answer is against what is
    /// known: a fetching atomic whose answer was lost *was* applied. The channel's fault if it is dead.
    #[inline(always)]
    pub fn resolve(self, at: Ticket, resolution: Resolution) -> Result<(), Fault> {
        match self.switch().resolve_slow(at.0, matches!(resolution, Resolution::Applied)) {
            0 => Ok(()),
            code if code == FaultKind::BadResolution as u64 => Err(self.told(FaultKind::BadResolution)),
            _ => Err(self.report().dead_fault()),
        }
    }

    /// A fault of this kind, with what is known of the channel: for a kernel that found out by itself, as by a word
    /// that did not come.
    #[inline(always)]
    pub fn told(self, kind: FaultKind) -> Fault {
        self.report().fault(kind)
    }

    /// The fault behind an answer that is no ticket.
    #[inline(always)]
    pub fn why(self, posted: Posted) -> Fault {
        self.told(self.why_kind(posted))
    }

    #[inline(always)]
    fn why_kind(self, posted: Posted) -> FaultKind {
        match posted.kind() {
            Some(FaultKind::BadAddress) => FaultKind::BadAddress,
            Some(kind) if !self.switch().is_dead() => kind,
            _ => self.report().dead_kind(),
        }
    }

    /// The kind of fault behind an answer that is no ticket, as the leader sees it. The channel's words may change
    /// between the looks of two lanes; lanes that took different kinds could then wait at different barriers.
    #[inline(never)]
    fn kind_of_leader_slow<L: Lanes>(state: StatePtr<'_, P>, row: u32, lanes: L, posted: u64) -> u64 {
        let channel = Channel::of(state.row(row));
        let kind = if lanes.rank() == 0 { channel.why_kind(Posted::from_raw(posted)) as u64 } else { 0 };
        lanes.broadcast(kind, 0)
    }

    #[inline(always)]
    fn fault_of_leader<L: Lanes>(self, lanes: L, posted: Posted) -> Fault {
        let kind = Self::kind_of_leader_slow(self.ptr.state, self.ptr.row(), lanes, posted.raw());
        self.told(FaultKind::from_raw(kind as u32).unwrap_or(FaultKind::PeerLost))
    }

    /// True to the leader, who posts, once every lane is there: what they stored is there, too. Posts are no closures:
    /// the compiler may make a function of one, which takes what it captures over a stack.
    #[inline(always)]
    fn leads<L: Lanes>(self, lanes: L) -> bool {
        if !Mutant::LeaderDoesNotWait.on() {
            lanes.sync();
        }
        lanes.rank() == 0
    }

    /// Tells all lanes what the leader knows.
    #[inline(always)]
    fn tell<L: Lanes>(self, lanes: L, posted: Posted) -> Result<Ticket, Fault> {
        let posted = Posted::from_raw(lanes.broadcast(posted.raw(), 0));
        posted.ticket().ok_or_else(|| self.fault_of_leader(lanes, posted))
    }

    /// Tells all lanes what the leader waited for. It fenced for itself alone; the barrier is what hands its view on: a
    /// broadcast need not order anything.
    #[inline(always)]
    fn tell_waited<L: Lanes>(self, lanes: L, code: u64) -> Result<(), Fault> {
        lanes.sync();
        match lanes.broadcast(code, 0) {
            0 => Ok(()),
            code if code == FaultKind::Overdue as u64 => Err(self.told(FaultKind::Overdue)),
            code if code == FaultKind::Uncertain as u64 => Err(self.told(FaultKind::Uncertain)),
            _ => Err(self.fault_of_leader(lanes, Posted::DEAD)),
        }
    }
}
