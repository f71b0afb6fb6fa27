//! The public calls of a channel: who does what in a group of lanes, and what the answers are. No bit work.
//!
//! Collective over `lanes`: every lane passes the same arguments. The leader, lane 0, does the work, once all lanes
//! have come: what they stored before the call is what a put sends. `put_nbi` and its like tell all lanes the same
//! answer. Below them is a raw layer, `try_put` and its like: the answer is one register, and only the leader has it.
//! A kernel that looks at an answer in one lane saves the telling, and the typed fault is read from memory when there
//! is one: [`Channel::why`].

use crate::access::{Channel, Device};
use crate::patience::Patience;
use crate::platform::{Lanes, Platform};
use crate::root::root;
use crate::types::{Amo, CqCheck, Deadline, Fault, FaultKind, Get, HeapOffset, Posted, Put, Signal, Ticket};
use crate::wqe_write;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::Step;

impl<P: Platform> Channel<'_, P> {
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
        if self.leads(lanes) { self.put_led(put, None) } else { Posted::at(0) }
    }

    /// [`try_put`](Self::try_put) that rings the doorbell if `ring`. What was not rung is told to the NIC by the next
    /// post on this channel that rings, or by whoever waits for something or looks at the channel: it is not lost and
    /// not overdue, only late.
    #[inline(always)]
    pub fn try_put_rung<L: Lanes>(self, lanes: L, put: Put, ring: bool) -> Posted {
        let posted = if self.leads(lanes) { self.put_rung(put, None, ring) } else { Posted::at(0) };
        if Mutant::PutAwaited.on() {
            let _ = self.quiet(lanes, Deadline::after(self.now_ns(), 1_000_000_000));
        }
        posted
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
        self.tell(lanes, self.try_put_signal(lanes, put, at, signal))
    }

    /// [`put_signal_nbi`](Self::put_signal_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_put_signal<L: Lanes>(self, lanes: L, put: Put, at: HeapOffset, signal: Signal) -> Posted {
        if self.leads(lanes) { self.put_led(put, Some((at, signal))) } else { Posted::at(0) }
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
        if self.leads(lanes) { self.signal_led(at, signal) } else { Posted::at(0) }
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
        if self.leads(lanes) { self.get_led(get) } else { Posted::at(0) }
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
        if self.leads(lanes) { self.p_led(dst, value, bytes) } else { Posted::at(0) }
    }

    /// An atomic whose answer nobody wants (kind 3). All writers of a word use channels of one index: rule 16 binds
    /// channels of that index to one NIC of the receiver.
    ///
    /// # Errors
    /// As [`put_nbi`](Self::put_nbi). `Overdue`: there was no path to that NIC for the first operation of kind 3 on
    /// this channel; nothing was posted.
    #[inline(always)]
    pub fn amo_nbi<L: Lanes>(self, lanes: L, dst: HeapOffset, amo: Amo) -> Result<Ticket, Fault> {
        self.tell(lanes, self.try_amo(lanes, dst, amo))
    }

    /// [`amo_nbi`](Self::amo_nbi), answered to the leader alone.
    #[inline(always)]
    pub fn try_amo<L: Lanes>(self, lanes: L, dst: HeapOffset, amo: Amo) -> Posted {
        if self.leads(lanes) { self.amo_led(dst, amo, None) } else { Posted::at(0) }
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
        if self.leads(lanes) { self.amo_led(dst, amo, Some(result)) } else { Posted::at(0) }
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
        let place = view.place(ticket, 0);
        self.write_wqe(&view, place.index, &wqe_write::placeholder(place));
        self.leave(ticket, 1, &view).ticket().is_some()
    }

    /// One look at what is outstanding, for a kernel whose own waits look at nothing: an error completion, a doorbell
    /// that was left. Hints, which lie in host memory on a GPU, are the agent's to act on. A switch that is under way,
    /// or begins here, is carried on until `deadline`; true if none is left. Without a switch it does not wait.
    ///
    /// # Errors
    /// The kind of the channel's fault once it is dead; `Uncertain` while it asks its owner.
    #[inline(always)]
    pub fn progress(self, deadline: Deadline) -> Result<bool, FaultKind> {
        if self.at_work() {
            return Ok(true);
        }
        match Self::progress_slow(self.device, self.row(), deadline.at_ns) {
            0 => Ok(true),
            kind if kind == FaultKind::Overdue as u64 => Ok(false),
            kind => Err(FaultKind::from_raw(kind as u32).unwrap_or(FaultKind::PeerLost)),
        }
    }

    #[inline(never)]
    fn progress_slow(device: Device<'_, P>, row: u32, until_ns: u64) -> u64 {
        let channel = device.row(row);
        let mut patience = Patience::new(channel.platform().now_ns());
        let _first = patience.hint_due();
        loop {
            if let Err(fault) = channel.attend(&mut patience) {
                return fault.kind as u64;
            }
            if channel.asks() {
                // Only its owner's answer carries it on.
                return FaultKind::Uncertain as u64;
            }
            if matches!(channel.load_step(), Step::Idle) && !channel.load_ticket().flag() {
                return 0;
            }
            if channel.platform().now_ns() > until_ns {
                return FaultKind::Overdue as u64;
            }
            channel.platform().relax();
        }
    }

    /// Whether a post of `count` entries would begin at once, as the channel stands: for callers with a deadline of
    /// their own, which posts do not know.
    #[inline(always)]
    pub fn has_room(self, count: u64) -> bool {
        self.admits(self.load_ticket(), count)
    }

    /// Waits until a post of `count` entries would begin at once. Nothing is reserved, so leaving is free; another
    /// poster may be faster.
    ///
    /// # Errors
    /// `Overdue` when the deadline passes; `Uncertain` while the channel asks its owner; the kind of its fault once
    /// it is dead.
    #[inline(never)]
    pub fn wait_for_room(self, count: u64, deadline: Deadline) -> Result<(), FaultKind> {
        let mut patience = Patience::new(self.platform().now_ns());
        while !self.has_room(count) {
            if let Err(fault) = self.attend(&mut patience) {
                return Err(fault.kind);
            }
            if self.asks() {
                return Err(FaultKind::Uncertain);
            }
            if self.platform().now_ns() > deadline.at_ns {
                return Err(FaultKind::Overdue);
            }
            self.platform().relax();
        }
        Ok(())
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
        if lanes.rank() == 0 && !self.glance() {
            // None is published where there is no last ticket, and then the glance saw it.
            code = self.wait_slow(self.load_ready().index().saturating_sub(1), deadline.at_ns);
        }
        self.tell_waited(lanes, code)
    }

    /// The first look of a [`quiet`](Self::quiet), a few microseconds long, and nearly always the only one. True to the
    /// leader if all is done; the others come back at once.
    #[inline(always)]
    pub fn try_quiet<L: Lanes>(self, lanes: L) -> bool {
        lanes.sync();
        lanes.rank() != 0 || self.glance()
    }

    /// Now, in nanoseconds.
    #[inline(always)]
    pub fn now_ns(self) -> u64 {
        self.platform().now_ns()
    }

    /// The fault behind an answer that is no ticket.
    #[inline(always)]
    pub fn why(self, posted: Posted) -> Fault {
        self.fault(self.why_kind(posted))
    }

    #[inline(always)]
    fn why_kind(self, posted: Posted) -> FaultKind {
        match posted.kind() {
            Some(FaultKind::BadAddress) => FaultKind::BadAddress,
            Some(kind) if !matches!(self.load_step(), Step::Dead) => kind,
            _ => self.dead_kind(),
        }
    }

    /// The kind of fault behind an answer that is no ticket, as the leader sees it. The channel's words may change
    /// between the looks of two lanes; lanes that took different kinds could then wait at different barriers.
    #[inline(never)]
    fn kind_of_leader_slow<L: Lanes>(device: Device<'_, P>, row: u32, lanes: L, posted: u64) -> u64 {
        let kind =
            if lanes.rank() == 0 { device.row(row).why_kind(Posted::from_raw(posted)) as u64 } else { 0 };
        lanes.broadcast(kind, 0)
    }

    #[inline(always)]
    fn fault_of_leader<L: Lanes>(self, lanes: L, posted: Posted) -> Fault {
        let kind = Self::kind_of_leader_slow(self.device, self.row(), lanes, posted.raw());
        self.fault(FaultKind::from_raw(kind as u32).unwrap_or(FaultKind::PeerLost))
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
            code if code == FaultKind::Overdue as u64 => Err(self.fault(FaultKind::Overdue)),
            code if code == FaultKind::Uncertain as u64 => Err(self.fault(FaultKind::Uncertain)),
            _ => Err(self.fault_of_leader(lanes, Posted::DEAD)),
        }
    }

    #[inline(always)]
    pub(crate) fn depth(self) -> u64 {
        root!(self.device, ring_mask) as u64 + 1
    }

    /// `bytes` is a power of two.
    #[inline(always)]
    pub(crate) fn word_fits(self, at: HeapOffset, bytes: u64) -> bool {
        // An aligned word lies in the heap if it begins in the part that is whole words.
        at.0 & (bytes - 1) == 0 && at.0 < root!(self.device, heap_bytes) & !(bytes - 1)
    }
}
