//! The switch: one caller at a time moves a channel from one path to another, step by step, from memory.
//!
//! Nothing here waits. Every waiter of a channel calls [`Switch::drive`] between its looks; who holds
//! the owner word does the steps that can be done now and lets go, so a switch outlives any of its owners
//! (rule 7). The steps and their order are those of docs/FAILOVER.md, rules 7 to 15 and 19; 16 stands in
//! `atomic_owner.rs`.
//!
//! Each step is a file: `close` begins a switch, `fence` leaves the old path, `choose` takes the next one, `ledger` and
//! `uncertain` settle what the receiver executed, `replay` and `open` end it; `switch_back` goes to a better path.
//! Below them `state` has what all steps need, `lease` says who may do them.

mod choose;
mod close;
mod cut;
mod fence;
mod lease;
mod ledger;
mod mailbox;
mod old_ring;
mod oldest;
mod open;
mod record;
mod replay;
mod report;
mod state;
mod switch_back;
mod uncertain;
mod words;

pub(crate) use oldest::OldestMessage;
pub(crate) use report::Report;
pub(crate) use state::Trigger;

use crate::part::part;
use crate::platform::Platform;
use crate::stall::Limits;
use crate::types::{Fault, FaultKind};
use choose::Choose;
use close::Close;
use fence::Fence;
use lease::Lease;
use ledger::Ledger;
use replay::Replay;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CauseKind, LEASE_NS, Step, Word};
use state::{Next, State};
use switch_back::SwitchBack;
use uncertain::Uncertainty;

/// Steps one call does at most; each moves the switch on, so this only bounds a call.
const STEPS_MAX: u32 = 16;
part! {
    /// The switch of a channel, as its callers see it.
    pub(crate) Switch {
        state: State, lease: Lease, report: Report, close: Close, fence: Fence, choose: Choose, ledger: Ledger,
        replay: Replay, switch_back: SwitchBack, uncertainty: Uncertainty,
    }
}

impl<P: Platform> Switch<'_, P> {
    /// Carries the switch on as far as it goes now, or begins one for `trigger`.
    ///
    /// # Errors
    /// Only when the channel is dead.
    #[inline(always)]
    pub(crate) fn drive(self, trigger: Option<Trigger>, now: u64) -> Result<(), Fault> {
        let none = Trigger { at: Word(0), cause: CauseKind::None, syndrome: 0 };
        let trigger = trigger.unwrap_or(none);
        let alive = self.drive_slow(trigger.at.0, trigger.cause as u32, trigger.syndrome, now);
        if alive { Ok(()) } else { Err(self.report().dead_fault()) }
    }

    /// `drive` with its trigger in registers (no cause: no trigger), so that a GPU's caller needs no stack
    /// for it and a kernel holds one copy of the whole switch. False when the channel is dead.
    #[inline(never)]
    fn drive_slow(self, at: u64, cause: u32, syndrome: u32, now: u64) -> bool {
        let trigger = match CauseKind::from_raw(cause) {
            CauseKind::None => None,
            cause => Some(Trigger { at: Word(at), cause, syndrome }),
        };
        let state = self.state();
        let met = state.word();
        if matches!(met.step(), Step::Dead) {
            state.pass_lock_once(met);
            return false;
        }
        let Some(lease) = self.lease().take(now) else { return true };
        // Read before each look at the lease: who is the owner then has what no other owner changed before.
        let mut at = state.word();
        state.show(at); // the owner before may be gone, with a change that it did not show
        let mut steps = 0;
        while steps < STEPS_MAX && self.lease().is_still(lease) {
            let next = match at.step() {
                Step::Idle => match trigger {
                    Some(trigger) if steps == 0 => self.close().begin(trigger, at, now),
                    _ => self.close().resume_close(at, now),
                },
                Step::Settle => self.fence().settle(at, now),
                Step::Fence => self.fence().fence(at, now),
                Step::Choose => self.choose().choose(at, now),
                Step::Ledger => self.ledger().query(at, now),
                Step::Replay => self.replay().replay(at, now),
                Step::Drain => self.switch_back().drain(at, now),
                Step::DrainFlush => self.switch_back().await_flush(at, now),
                Step::Uncertain => self.uncertainty().await_answer(at, now),
                Step::Dead => Next::Wait,
            };
            if next == Next::Wait {
                break;
            }
            steps += 1;
            at = state.word();
        }
        self.lease().let_go(lease);
        !self.is_dead()
    }

    /// Gives the channel up from outside a switch: a caller between reserve and publish has no other exit
    /// (rule 2).
    pub(crate) fn abandon(self, now: u64) {
        if let Some(lease) = self.lease().take(now) {
            let at = self.state().word();
            if !matches!(at.step(), Step::Dead) && self.lease().is_still(lease) {
                self.state().die(at, FaultKind::PeerLost, now);
            }
            self.lease().let_go(lease);
        }
    }

    /// Shows the agent where the switch stands, unless it knows.
    #[inline(always)]
    pub(crate) fn remind(self) {
        self.state().show(self.state().word());
    }

    #[inline(always)]
    pub(crate) fn step(self) -> Step {
        self.state().step()
    }

    #[inline(always)]
    pub(crate) fn is_dead(self) -> bool {
        matches!(self.step(), Step::Dead)
    }

    /// True while the channel waits for a resolution.
    #[inline(always)]
    pub(crate) fn asks(self) -> bool {
        matches!(self.step(), Step::Uncertain)
    }

    /// The longest a whole chain of switches may take.
    #[inline(always)]
    pub(crate) fn chain_bound_ns(self) -> u64 {
        self.state().chain_bound_ns()
    }

    /// How long others may have to wait for such a chain: where a switch is under way its owner may be gone, and is
    /// followed by another one.
    #[inline(always)]
    pub(crate) fn chain_bound_with_owners_ns(self) -> u64 {
        let under_way = !self.lease().owner().is_free() || !matches!(self.step(), Step::Idle);
        let lease_ns = if under_way && !Mutant::LeaseNotAwaited.on() { LEASE_NS } else { 0 };
        self.chain_bound_ns().saturating_add(lease_ns)
    }

    /// Between what the active path may be silent.
    #[inline(always)]
    pub(crate) fn limits(self) -> Limits {
        self.state().limits()
    }

    /// Takes an answer to an `Uncertain` fault and carries the switch on. Answers with 0 or with the kind of the
    /// fault: one register, see `Poster::admit_slow`.
    #[inline(never)]
    pub(crate) fn resolve_slow(self, at: u64, applied: bool) -> u64 {
        if self.is_dead() {
            return self.report().dead_kind() as u64;
        }
        if !self.uncertainty().answer(at, applied) {
            return FaultKind::BadResolution as u64;
        }
        match self.drive(None, self.ptr.now_ns()) {
            Ok(()) => 0,
            Err(fault) => fault.kind as u64,
        }
    }
}
