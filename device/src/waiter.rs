//! What every waiter does between looks: polls, notices failures, carries a switch on.

use crate::atomic_owner::AtomicOwner;
use crate::doorbell::Doorbell;
use crate::part::part;
use crate::paths::Paths;
use crate::platform::Platform;
use crate::poller::{Polled, Poller};
use crate::shared::fields;
use crate::stall::StallDetector;
use crate::state_ptr::StatePtr;
use crate::switch::{OldestMessage, Switch, Trigger};
use crate::types::{Fault, FaultKind, Ticket};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CauseKind, Mirror, PathState, Step, Word};

fields!(Mirror { posted: u64 });

part! {
    /// Looks after a channel on a caller's time.
    pub(crate) Waiter {
        poller: Poller, doorbell: Doorbell, switch: Switch, oldest: OldestMessage, paths: Paths, owner: AtomicOwner,
    }
}

impl<P: Platform> Waiter<'_, P> {
    /// One pass, no waiting.
    ///
    /// # Errors
    /// Only when the channel is dead.
    #[inline(always)]
    pub(crate) fn attend(self, stall: &mut StallDetector) -> Result<(), Fault> {
        let (ptr, switch) = (self.ptr, self.switch());
        let now = ptr.now_ns();
        // Closed without a step: an owner that was gone before it got so far.
        if !matches!(switch.step(), Step::Idle) || ptr.load_ticket().flag() {
            return switch.drive(None, now);
        }
        let (at, trigger) = match self.poller().poll() {
            Polled::Failed { at, syndrome } => {
                (at, Some(Trigger { at, cause: CauseKind::Completion, syndrome }))
            }
            Polled::At(at) => (at, None),
        };
        let ready = ptr.load_ready().index();
        let outstanding = ready > at.index();
        if outstanding && ready > self.doorbell().posted() {
            Doorbell::ring_unrung_slow(ptr.state, ptr.row());
        }
        let tolerant = ptr.state.tolerant();
        // Without fault tolerance RC retries, and the syndrome it ends in is the report; silence for much
        // longer than any retry takes ends the channel all the same (invariant 6).
        let silence_ns = if tolerant { stall.limit_ns(switch.limits()) } else { switch.chain_bound_ns() };
        let stalled = stall.stalled(at.0, outstanding, now, silence_ns);
        let hint_due = stall.hint_due();
        if hint_due {
            self.remind_slow(ready);
        }
        let excused = stalled && tolerant && self.oldest().is_moving_slow(at, stall.beyond(silence_ns));
        let slot = at.slot();
        let trigger = match trigger {
            Some(trigger) => Some(trigger),
            None if at.flag() => None,
            // Bytes excuse a silence of which no rail is suspected: hints are read all the same.
            None if stalled && !excused => {
                Some(Trigger { at, cause: self.cause_of_silence(slot), syndrome: 0 })
            }
            None if hint_due && tolerant && !(excused && Mutant::BytesHideHints.on()) => {
                self.hinted(at, now, stall.doubts(silence_ns))
            }
            None => None,
        };
        match trigger {
            Some(trigger) => switch.drive(Some(trigger), now),
            None => Ok(()),
        }
    }

    /// Shows the agent how far the channel came, and where its switch stands: an owner may be gone that opened the
    /// channel and did not come to say so.
    #[inline(never)]
    fn remind_slow(self, ready: u64) {
        self.ptr.mirror().posted().store(ready);
        self.switch().remind();
    }

    /// Why a path is silent, as far as the agent's hints tell.
    #[inline(always)]
    fn cause_of_silence(self, slot: u32) -> CauseKind {
        if self.paths().port_down(slot) { CauseKind::PortDown } else { CauseKind::Overdue }
    }

    /// What the agent's words say of the active path: leave it, or go back to the primary. `waited` in vain so far:
    /// suspicion moves nothing that works (invariant 7).
    #[inline(always)]
    fn hinted(self, at: Word, now: u64, waited: bool) -> Option<Trigger> {
        let (slot, paths) = (at.slot(), self.paths());
        let state = paths.state(slot);
        if matches!(state, PathState::Leaving) && paths.next(slot, 0).is_some() && !paths.port_down(slot) {
            return Some(Trigger { at, cause: CauseKind::SwitchBack, syndrome: 0 });
        }
        if !matches!(state, PathState::Ready | PathState::Leaving) {
            // The agents leave a dead port at once, and may be quicker than this waiter.
            let cause = if paths.port_down(slot) { CauseKind::PortDown } else { CauseKind::FencedByPeer };
            return Some(Trigger { at, cause, syndrome: 0 });
        }
        // With nowhere to go the path is kept: RC retries, and the port may come back before they run out.
        if paths.port_down(slot) && paths.next(slot, 0).is_some() && !Mutant::PortHintIgnored.on() {
            return Some(Trigger { at, cause: CauseKind::PortDown, syndrome: 0 });
        }
        if (waited || Mutant::SuspicionMasks.on())
            && paths.suspect(slot)
            && paths.next(slot, 0).is_some_and(|next| !paths.suspect(next))
        {
            return Some(Trigger { at, cause: CauseKind::Overdue, syndrome: 0 });
        }
        let home = self.owner().rail();
        // Bound while it stood elsewhere: a kind 3 operation waits for it (rule 16).
        let away = !self.owner().leads_to(slot, home) && paths.next(slot, 0).is_some();
        if away || paths.is_better_ready(slot, home, now) {
            return Some(Trigger { at, cause: CauseKind::SwitchBack, syndrome: 0 });
        }
        None
    }

    /// Waits until a ticket is done. Answers with 0 or with the kind of the fault: one register, see
    /// `Poster::admit_slow`.
    #[inline(never)]
    pub(crate) fn wait_slow(self, ticket: u64, until_ns: u64) -> u64 {
        let mut stall = StallDetector::new(self.ptr.now_ns());
        loop {
            let attended = self.attend(&mut stall);
            if self.poller().is_done(Ticket(ticket)) {
                return 0;
            }
            if let Err(fault) = attended {
                return fault.kind as u64;
            }
            if self.switch().asks() {
                return FaultKind::Uncertain as u64;
            }
            if self.ptr.now_ns() > until_ns {
                return FaultKind::Overdue as u64;
            }
            self.ptr.platform().relax();
        }
    }

    /// True if a look finds no fault: what `progress` does nearly always.
    #[inline(always)]
    pub(crate) fn finds_no_fault(self) -> bool {
        self.poller().finds_no_fault(|| matches!(self.switch().step(), Step::Idle))
    }

    /// Carries a switch on until none is left. Answers as `wait_slow`.
    #[inline(never)]
    pub(crate) fn progress_slow(state: StatePtr<'_, P>, row: u32, until_ns: u64) -> u64 {
        let waiter = Waiter::of(state.row(row));
        let ptr = waiter.ptr;
        let mut stall = StallDetector::new(ptr.now_ns());
        let _first = stall.hint_due();
        loop {
            if let Err(fault) = waiter.attend(&mut stall) {
                return fault.kind as u64;
            }
            if waiter.switch().asks() {
                // Only its owner's answer carries it on.
                return FaultKind::Uncertain as u64;
            }
            if matches!(waiter.switch().step(), Step::Idle) && !ptr.load_ticket().flag() {
                return 0;
            }
            if ptr.now_ns() > until_ns {
                return FaultKind::Overdue as u64;
            }
            ptr.platform().relax();
        }
    }
}
