//! Completions: one look, the progress of `done`, and what a waiter does between looks.
//!
//! "My ticket is done" is decided by the done word alone (rule 4). A poller reads it, then CQEs, and advances
//! it by compare-and-swap from the value it read: frozen or late, it does nothing.

use crate::access::Channel;
use crate::patience::Patience;
use crate::platform::Platform;
use crate::root::root;
use crate::switch::Trigger;
use crate::types::{Fault, FaultKind, Ticket};
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::{Tail, opcode};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CauseKind, CqMap, PathState, ReadyWord, Step, Word};

/// CQEs one look goes over at most: bounds the look, not the progress.
const SCAN_MAX: u64 = 64;

/// Looks at one CQE before a waiter looks at everything else that may have happened.
const LOOKS: u32 = 16;

/// What one look at the completion queue saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// `done` stands here now.
    At(Word),
    /// The first unfinished WQE of this generation has an error completion.
    Failed { at: Word, syndrome: u32 },
}

impl<P: Platform> Channel<'_, P> {
    /// One look: advances `done` over completed WQEs, finds the first error.
    ///
    /// Ring CQ, every WQE signalled: the first error CQE *is* the first cause, flushes behind it hide
    /// nothing.
    #[inline(always)]
    pub(crate) fn look(self) -> Look {
        let done = self.load_done();
        if done.flag() {
            return Look::At(done);
        }
        if self.wide_posted(done.slot()) != 0 {
            return self.look_behind_wide();
        }
        let view = self.completions(done.slot());
        let first = done.index();
        let mut count = 0;
        let mut failed = false;
        while count < SCAN_MAX {
            match self.tail(&view, first.wrapping_add(count)) {
                Some(tail) if tail.opcode == opcode::REQ || Mutant::ErrorTakenForDone.on() => count += 1,
                Some(_) => {
                    failed = true;
                    break;
                }
                None => break,
            }
        }
        let mut at = done;
        if count > 0 {
            self.platform().cqe_before_data();
            at = done.with_index(done.index() + count);
            if Mutant::DoneByStore.on() {
                // SAFETY: a channel word.
                unsafe { self.platform().store_release(self.done_word(), at.0) };
                return Look::At(at);
            }
            // SAFETY: a channel word.
            if unsafe { self.platform().compare_swap(self.done_word(), done.0, at.0) } != done.0 {
                return Look::At(self.load_done());
            }
        }
        if failed {
            self.platform().cqe_before_data(); // the body of an error completion is data, too
            let syndrome = self.syndrome(&view, view.map.physical(at.index()), view.map.lag());
            // A view of another generation reads nonsense: believe it only if `done` still stands where it
            // did.
            if self.load_done() == at || Mutant::LateLookBelieved.on() {
                return Look::Failed { at, syndrome };
            }
        }
        Look::At(at)
    }

    /// The same on a path with WQEs of two blocks.
    #[inline(always)]
    fn look_behind_wide(self) -> Look {
        let failed = self.look_wide();
        let at = self.load_done();
        if !failed || at.flag() {
            return Look::At(at);
        }
        let view = self.completions(at.slot());
        self.platform().cqe_before_data();
        let syndrome = self.syndrome(&view, view.map.physical(at.index()), view.map.lag());
        if self.load_done() == at { Look::Failed { at, syndrome } } else { Look::At(at) }
    }

    /// True if `ticket` is done. The no-fault path of a wait: its own CQE, one load, without walking the
    /// others.
    #[inline(always)]
    pub(crate) fn is_done(self, ticket: Ticket) -> bool {
        let done = self.load_done();
        if done.index() > ticket.0 {
            return true;
        }
        if done.flag() {
            return false;
        }
        let view = self.completions(done.slot());
        match self.tail(&view, ticket.0) {
            Some(tail) if tail.opcode == opcode::REQ => {}
            _ => return false,
        }
        self.platform().cqe_before_data();
        // SAFETY: a channel word. RC completes in order, so this CQE vouches for all before it.
        unsafe { self.platform().compare_swap(self.done_word(), done.0, done.with_index(ticket.0 + 1).0) };
        self.load_done().index() > ticket.0
    }

    /// The no-fault path of [`progress`](Channel::progress): true if nothing failed so far, nothing is switched and
    /// no doorbell was left. Completions come in order, so the last of them is found by halves, and `done` goes there.
    #[inline(always)]
    pub(crate) fn at_work(self) -> bool {
        let (done, ready) = (self.load_done(), self.load_ready().index());
        let open = !done.flag() && !self.load_ticket().flag() && matches!(self.load_step(), Step::Idle);
        if !open || self.load_posted() < ready || self.wide_posted(done.slot()) != 0 {
            return false;
        }
        let view = self.completions(done.slot());
        let (mut low, mut high) = (done.index(), ready);
        let mut failed = false;
        // Ends: a ring's depth is halved at each turn.
        while low < high {
            let middle = low + (high - low) / 2;
            match self.tail(&view, middle) {
                Some(tail) => (low, failed) = (middle + 1, tail.opcode != opcode::REQ),
                None => high = middle,
            }
        }
        if failed {
            return false;
        }
        if low > done.index() {
            self.platform().cqe_before_data();
            // SAFETY: a channel word. RC completes in order, so the last completion vouches for all before it.
            unsafe { self.platform().compare_swap(self.done_word(), done.0, done.with_index(low).0) };
        }
        true
    }

    /// The no-fault path of a quiet: waits a little for what is published, by the CQE of its last ticket; true if it is
    /// done. In 32 bits: published and done tickets lie no further apart than the ring is deep.
    #[inline(always)]
    pub(crate) fn glance(self) -> bool {
        let p = self.platform();
        // A number, no more: nothing is read on the strength of it.
        // SAFETY: a channel word.
        let published = ReadyWord(unsafe { p.load(self.ready_word()) }).index();
        let done = self.load_done();
        if (done.0 as u32).wrapping_sub(published as u32) as i32 >= 0 || Mutant::QuietAtPublish.on() {
            return true;
        }
        if done.flag() {
            return false;
        }
        let view = self.completions(done.slot());
        let physical = view.map.physical(published.wrapping_sub(1));
        let number = physical.wrapping_sub(view.map.lag());
        let due =
            Tail { wqe_counter: physical as u16, opcode: opcode::REQ, owner: view.owner(number) }.to_memory();
        // Success or failure: once the counter agrees, the entry is that of the WQE.
        // SAFETY: inside the path's completion queue, which is as deep as its send queue.
        let wrong_bits = unsafe { p.poll_cqe(view.tail_address(number), due, Tail::COUNTER, LOOKS) };
        let wrong = CqMap::index(physical) > u16::MAX as u32 && Mutant::CounterNotWrapped.on();
        if wrong_bits & Tail::ALL != 0 || wrong {
            return false;
        }
        p.cqe_before_data();
        // SAFETY: a channel word. RC completes in order, so this CQE vouches for all before it. A swap that fails was
        // overtaken: by another waiter, or by a switch.
        let met =
            unsafe { p.compare_swap_behind_barrier(self.done_word(), done.0, done.with_index(published).0) };
        met == done.0
    }

    /// What every waiter does between looks: polls, notices failures, carries a switch on. One pass, no
    /// waiting.
    ///
    /// # Errors
    /// Only when the channel is dead.
    #[inline(always)]
    pub(crate) fn attend(self, patience: &mut Patience) -> Result<(), Fault> {
        let now = self.platform().now_ns();
        // Closed without a step: an owner that was gone before it got so far.
        if !matches!(self.load_step(), Step::Idle) || self.load_ticket().flag() {
            return self.drive(None, now);
        }
        let (at, trigger) = match self.look() {
            Look::Failed { at, syndrome } => {
                (at, Some(Trigger { at, cause: CauseKind::Completion, syndrome }))
            }
            Look::At(at) => (at, None),
        };
        let ready = self.load_ready().index();
        let outstanding = ready > at.index();
        if outstanding && ready > self.load_posted() {
            Self::ring_left_slow(self.device, self.row());
        }
        let tolerant = self.device.tolerant();
        // Without fault tolerance RC retries, and the syndrome it ends in is the report; silence for much
        // longer than any retry takes ends the channel all the same (invariant 6).
        let silence_ns = if tolerant { patience.limit_ns(self.limits()) } else { self.chain_bound_ns() };
        let stalled = patience.stalled(at.0, outstanding, now, silence_ns);
        let hint_due = patience.hint_due();
        let excused = stalled && tolerant && self.is_moving_slow(at.slot(), at, patience.beyond(silence_ns));
        let trigger = match trigger {
            Some(trigger) => Some(trigger),
            None if at.flag() => None,
            // Bytes excuse a silence of which no rail is suspected: hints are read all the same.
            None if stalled && !excused => Some(Trigger { at, cause: self.silence(at.slot()), syndrome: 0 }),
            None if hint_due && tolerant && !(excused && Mutant::BytesHideHints.on()) => {
                self.hinted(at, now, patience.doubts(silence_ns))
            }
            None => None,
        };
        match trigger {
            Some(trigger) => self.drive(Some(trigger), now),
            None => Ok(()),
        }
    }

    /// Answers with 0 or with the kind of the fault: one register, see `admit_slow`.
    #[inline(never)]
    pub(crate) fn wait_slow(self, ticket: u64, until_ns: u64) -> u64 {
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

    /// What the agent's words say of the active path: leave it, or go back to the primary. `waited` in vain so far:
    /// suspicion moves nothing that works (invariant 7).
    #[inline(always)]
    fn hinted(self, at: Word, now: u64, waited: bool) -> Option<Trigger> {
        let slot = at.slot();
        let state = self.path_state(slot);
        if matches!(state, PathState::Leaving) && self.next_slot(slot, 0).is_some() && !self.port_down(slot) {
            return Some(Trigger { at, cause: CauseKind::SwitchBack, syndrome: 0 });
        }
        if !matches!(state, PathState::Ready | PathState::Leaving) {
            // The agents leave a dead port at once, and may be quicker than this waiter.
            let cause = if self.port_down(slot) { CauseKind::PortDown } else { CauseKind::FencedByPeer };
            return Some(Trigger { at, cause, syndrome: 0 });
        }
        // With nowhere to go the path is kept: RC retries, and the port may come back before they run out.
        if self.port_down(slot) && self.next_slot(slot, 0).is_some() && !Mutant::PortHintIgnored.on() {
            return Some(Trigger { at, cause: CauseKind::PortDown, syndrome: 0 });
        }
        if (waited || Mutant::SuspicionMasks.on())
            && self.suspect(slot)
            && self.next_slot(slot, 0).is_some_and(|next| !self.suspect(next))
        {
            return Some(Trigger { at, cause: CauseKind::Overdue, syndrome: 0 });
        }
        let home = self.home_rail();
        // Bound while it stood elsewhere: a kind 3 operation waits for it (rule 16).
        let away = !self.leads_to(slot, home) && self.next_slot(slot, 0).is_some();
        if away || self.is_better_back(slot, home, now) {
            return Some(Trigger { at, cause: CauseKind::SwitchBack, syndrome: 0 });
        }
        None
    }

    /// True if a better path than `slot` has been ready for the recovery window: the primary, or, of a channel that is
    /// bound to a home, the best one that leads there.
    #[inline(always)]
    fn is_better_back(self, slot: u32, home: Option<u32>, now: u64) -> bool {
        let end = if home.is_some() || slot == 0 { slot } else { 1 };
        let mut better = 0;
        while better < end {
            if self.path_state(better) == PathState::Ready
                && self.leads_to(better, home)
                && !self.port_down(better)
                && !self.suspect(better)
                && !Mutant::NoWayBack.on()
            {
                // SAFETY: a field of a valid row, written before `Ready`.
                let since =
                    unsafe { self.platform().load(addr_of_mut!((*self.path(better)).ready_since_ns)) };
                let window_ns = root!(self.device, policy.recovery_window_ns);
                if now.saturating_sub(since) >= window_ns || Mutant::NoRecoveryWindow.on() {
                    return true;
                }
            }
            better += 1;
        }
        false
    }

    /// Why a path is silent, as far as the agent's hints tell.
    #[inline(always)]
    fn silence(self, slot: u32) -> CauseKind {
        if self.port_down(slot) { CauseKind::PortDown } else { CauseKind::Overdue }
    }

    /// True if the agent's hints say that a port of this path is down.
    #[inline(always)]
    pub(crate) fn port_down(self, slot: u32) -> bool {
        let view = self.view(slot);
        self.device.hint(None, view.local_rail).down()
            || self.device.hint(Some(self.peer()), view.remote_rail).down()
    }

    /// True if an end of this path is suspected of carrying nothing.
    #[inline(always)]
    pub(crate) fn suspect(self, slot: u32) -> bool {
        let view = self.view(slot);
        self.device.hint(None, view.local_rail).suspect()
            || self.device.hint(Some(self.peer()), view.remote_rail).suspect()
    }

    /// The typed failure of this channel as it stands.
    #[inline(always)]
    pub(crate) fn fault(self, kind: FaultKind) -> Fault {
        let (done, ticket) = (self.load_done(), self.load_ticket());
        let switch = self.words();
        // SAFETY: fields of a valid channel; they are for the report only.
        let (cause, syndrome) = unsafe {
            (
                self.platform().load32(addr_of_mut!((*switch).switch.cause)),
                self.platform().load32(addr_of_mut!((*switch).switch.syndrome)),
            )
        };
        let (at, op, address) = match kind {
            FaultKind::Uncertain => self.uncertain_operation(),
            _ => (done.index(), 0, 0),
        };
        let unfinished = match Mutant::UnfinishedUnnamed.on() {
            true => 0,
            false => ticket.index().saturating_sub(done.index()),
        };
        Fault {
            kind,
            cause: CauseKind::from_raw(cause),
            peer: self.peer(),
            channel: self.index(),
            slot: done.slot(),
            at: Ticket(at),
            unfinished,
            syndrome,
            op,
            address,
        }
    }
}
