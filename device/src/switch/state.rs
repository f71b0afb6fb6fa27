//! Where a switch stands: its step, its clock, and what is known and may only grow.

use super::record::Records;
use super::words::words;
use crate::doorbell::Doorbell;
use crate::part::part;
use crate::platform::Platform;
use crate::root::root;
use crate::shared::Shared;
use crate::stall::Limits;
use crate::types::FaultKind;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{
    CLOSED, CauseKind, FROZEN, NO_SLOT, SUSPECT_DOUBLINGS_MAX, Step, SwitchKind, SwitchWord, Word,
};

/// Swaps of the ticket word that are tried before a step gives way: each one that fails is a caller that took a ticket,
/// and callers take one each while the channel is closed.
pub(super) const SWAPS_MAX: u32 = 1024;

/// `Switch::ledger`: the cut waits for the ledger.
pub(super) const LEDGER_TO_READ: u32 = 1;
/// `Switch::ledger`: the cut came from it.
pub(super) const LEDGER_READ: u32 = 2;

/// Why a path should be left, as a waiter saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trigger {
    /// The done word when it was seen: a trigger of an older generation is stale and ignored.
    pub at: Word,
    /// What was seen.
    pub cause: CauseKind,
    /// Of a completion: syndrome in the low byte, vendor syndrome in the next. 0 of anything else.
    pub syndrome: u32,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It ended; the next one may begin at once.
    Again,
    /// It waits for somebody else.
    Wait,
}

/// Stages whose end is stamped, in the order of the record's `stamps`.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Stamp {
    Noticed = 0,
    Closed = 1,
    Fenced = 2,
    Cut = 3,
    Replayed = 4,
    Opened = 5,
}

part! {
    /// The step of a switch, and what every step needs to go on, to wait or to end the channel.
    pub(super) State { records: Records, doorbell: Doorbell }
}

impl<P: Platform> State<'_, P> {
    /// Where the switch stands.
    #[inline(always)]
    pub(super) fn word(self) -> SwitchWord {
        SwitchWord(words(self.ptr).word().load_acquire())
    }

    #[inline(always)]
    pub(super) fn step(self) -> Step {
        self.word().step()
    }

    /// True if the switch stands where its owner saw it: what it has read of other words since is of that switch.
    #[inline(always)]
    pub(super) fn stands_at(self, at: SwitchWord) -> bool {
        self.word() == at || Mutant::ReturnedOwnerGoesOn.on()
    }

    /// Changes where the switch stands from `at`, which its owner read before it saw that it is the owner, and shows
    /// the agent. False if it stands elsewhere: an owner that comes back after its lease changes nothing that has gone
    /// on without it.
    #[inline(always)]
    pub(super) fn change(self, at: SwitchWord, next: SwitchWord) -> bool {
        let changed = self.change_untold(at, next);
        if changed {
            self.show(next);
        }
        changed
    }

    /// The same, and the agent is not shown yet.
    #[inline(always)]
    pub(super) fn change_untold(self, at: SwitchWord, next: SwitchWord) -> bool {
        let word = words(self.ptr).word();
        if Mutant::ReturnedOwnerGoesOn.on() {
            word.store(next.0);
            return true;
        }
        word.compare_swap(at.0, next.0) == at.0
    }

    /// Shows the agent where the switch stands, unless it was shown what is later.
    #[inline(always)]
    pub(super) fn show(self, word: SwitchWord) {
        self.raise(self.ptr.mirror().word(), word.0);
    }

    /// Moves from `at` to `step`, which may follow it.
    #[inline(always)]
    pub(super) fn enter(self, at: SwitchWord, step: Step, now: u64) -> Next {
        self.enter_as(at, at.at_step(step), now)
    }

    /// The same, to a word at another step. The clock is read again: an owner that was held up since `now` must not
    /// find the new step overdue before the agent has seen its request.
    #[inline(never)]
    pub(super) fn enter_as(self, at: SwitchWord, next: SwitchWord, now: u64) -> Next {
        let now = now.max(self.ptr.now_ns());
        debug_assert!(next.step().follows(at.step()));
        if !self.stands_at(at) {
            return Next::Wait;
        }
        words(self.ptr).step_since_ns().store(now);
        if !self.change(at, next) {
            return Next::Wait;
        }
        self.records().step(next, now);
        Next::Again
    }

    /// True if the present step has lasted longer than `limit_ns`.
    #[inline(always)]
    pub(super) fn overdue(self, now: u64, limit_ns: u64) -> bool {
        now.saturating_sub(words(self.ptr).step_since_ns().load()) > limit_ns
    }

    #[inline(always)]
    pub(super) fn stamp(self, stage: Stamp, now: u64) {
        words(self.ptr).stamps().element(stage as usize).store(now);
        match stage {
            Stamp::Noticed => self.ptr.mirror().noticed_ns().store(now),
            Stamp::Opened => self.ptr.mirror().opened_ns().store(now),
            _ => {}
        }
    }

    /// Why the path is left.
    pub(super) fn set_cause(self, cause: CauseKind, syndrome: u32) {
        words(self.ptr).cause().store(cause as u32);
        words(self.ptr).syndrome().store(syndrome);
        self.ptr.mirror().cause().store(cause as u32);
    }

    /// The longest a whole chain of switches may take: what a wait without a caller's deadline is bounded by.
    #[inline(always)]
    pub(super) fn chain_bound_ns(self) -> u64 {
        let policy = self.ptr.state.policy();
        // "Never" is a duration, too: no sum may wrap.
        let per_path = policy.suspect_ns.saturating_add(policy.fence_wait_ns);
        policy.give_up_ns.saturating_add(per_path.saturating_mul(root!(self.ptr.state, slots) as u64))
    }

    /// Between what the active path may be silent.
    #[inline(always)]
    pub(super) fn limits(self) -> Limits {
        let policy = self.ptr.state.policy();
        let doublings = words(self.ptr).rounds().load().min(SUSPECT_DOUBLINGS_MAX);
        Limits { floor_ns: policy.suspect_floor_ns << doublings, bound_ns: policy.suspect_ns << doublings }
    }

    /// D and X only grow: an owner that comes back after its lease must not take back what was known since.
    #[inline(always)]
    pub(super) fn raise_done_to(self, index: u64) {
        self.raise(words(self.ptr).done_at_close(), index);
    }

    /// As [`raise_done_to`](Self::raise_done_to), for X (rule 12).
    #[inline(always)]
    pub(super) fn raise_executed_to(self, index: u64) {
        self.raise(words(self.ptr).executed(), index);
        self.raise(self.ptr.mirror().executed(), index);
    }

    /// Only owners write these words, so a swap that fails met one that is back.
    #[inline(never)]
    fn raise(self, word: Shared<'_, P, u64>, value: u64) {
        let mut tries = 0;
        let mut met = word.load();
        while (met < value || Mutant::ReturnedOwnerGoesOn.on()) && tries < SWAPS_MAX {
            let seen = word.compare_swap(met, value);
            if seen == met {
                return;
            }
            met = seen;
            tries += 1;
        }
    }

    /// Keeps the first cause of a path for the report of a lost peer. The agent clears it when it recreates the path.
    #[inline(always)]
    pub(super) fn note_first_cause(self, slot: u32, cause: CauseKind, syndrome: u32) {
        let word = self.ptr.path(slot).first_cause();
        if word.load() == 0 {
            word.store(syndrome & 0xffff | (cause as u32) << 16);
        }
    }

    /// Physical index at which the next occupant of a path starts.
    pub(super) fn next_index(self, slot: u32) -> u64 {
        let next = self.ptr.path(slot).next_index().load();
        if Mutant::RingsBeginAtZero.on() { 0 } else { next }
    }

    /// Sets it. Nobody else does while a switch enters or leaves the path.
    pub(super) fn set_next_index(self, slot: u32, next: u64) {
        self.ptr.path(slot).next_index().store(next);
    }

    /// Ends the channel: every waiter leaves with a typed fault, tickets stay closed for good.
    #[inline(never)]
    pub(super) fn die(self, at: SwitchWord, kind: FaultKind, now: u64) -> Next {
        if !self.stands_at(at) {
            return Next::Wait; // another owner has gone on
        }
        // Closed and frozen, nothing moves any more.
        self.ptr.ticket_word().fetch_or(CLOSED);
        self.ptr.done_word().fetch_or(FROZEN);
        words(self.ptr).fault().store(kind as u32);
        self.stamp(Stamp::Opened, now);
        let dead = at.at_step(Step::Dead);
        if !self.change(at, dead) {
            return Next::Wait;
        }
        // What an earlier switch entered is nothing that this one did.
        let to = if matches!(at.step(), Step::Idle) { NO_SLOT } else { at.to() };
        self.records().step(dead, now);
        self.records().write(SwitchKind::Dead, to, self.ptr.load_ticket().generation());
        self.pass_lock_once(dead);
        Next::Wait
    }

    /// Of a channel that is dead at `at`: notes that the post lock was free. Who takes it from then on finds the ticket
    /// word closed, and rings nothing; so paths may be made again.
    #[inline(never)]
    pub(super) fn pass_lock_once(self, at: SwitchWord) {
        let seen = if !at.lock_passed() && self.doorbell().pass_lock() {
            let passed = at.passed();
            if self.change_untold(at, passed) { passed } else { at }
        } else {
            at
        };
        self.show(seen); // its owner may be gone that was to
    }

    /// Somebody holds the post lock: waits, as long as a whole chain of switches may take.
    pub(super) fn await_lock(self, at: SwitchWord, now: u64) -> Next {
        if self.overdue(now, self.chain_bound_ns()) {
            return self.die(at, FaultKind::PeerLost, now);
        }
        Next::Wait
    }
}
