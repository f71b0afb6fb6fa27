//! The paths of a channel as the agent describes them, and which of them to take.

use crate::atomic_owner::AtomicOwner;
use crate::part::part;
use crate::platform::Platform;
use crate::root::root;
use crate::shared::fields;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{PathRow, PathState};

fields!(PathRow { state: u32, incarnation: u32, ready_since_ns: u64 });

part! {
    /// State and hints of each slot. It changes nothing but the state of a path that its switch found useless.
    pub(crate) Paths { owner: AtomicOwner }
}

impl<P: Platform> Paths<'_, P> {
    #[inline(always)]
    pub(crate) fn state(self, slot: u32) -> PathState {
        PathState::from_raw(self.ptr.path(slot).state().load())
    }

    #[inline(always)]
    pub(crate) fn incarnation(self, slot: u32) -> u32 {
        self.ptr.path(slot).incarnation().load()
    }

    /// What the agent would have done: nobody goes back to the path before it is recreated. It was not yet, because
    /// the caller's switch has not left it.
    pub(crate) fn mark_fenced(self, slot: u32) {
        self.ptr.path(slot).state().store(PathState::Fenced as u32);
    }

    /// True if the agent's hints say that a port of this path is down.
    #[inline(always)]
    pub(crate) fn port_down(self, slot: u32) -> bool {
        let ((local, remote), state) = (self.owner().rails(slot), self.ptr.state);
        state.hint(None, local).down() || state.hint(Some(self.ptr.peer()), remote).down()
    }

    /// True if an end of this path is suspected of carrying nothing.
    #[inline(always)]
    pub(crate) fn suspect(self, slot: u32) -> bool {
        let ((local, remote), state) = (self.owner().rails(slot), self.ptr.state);
        state.hint(None, local).suspect() || state.hint(Some(self.ptr.peer()), remote).suspect()
    }

    /// True if nobody may be there to fence this path: both ends are suspected, or the NIC of one is mute.
    #[inline(always)]
    pub(crate) fn is_last_resort(self, slot: u32) -> bool {
        let ((local, remote), state) = (self.owner().rails(slot), self.ptr.state);
        let near = state.hint(None, local);
        let far = state.hint(Some(self.ptr.peer()), remote);
        let mute = (near.mute() || far.mute()) && !Mutant::MuteEntered.on();
        mute || near.suspect() && far.suspect()
    }

    /// The best usable slot other than the one being left: ranked by slot number, ports up, not tried in
    /// vain; one with a suspect rail only if there is no other. Of a bound channel, among those to its home (rule 16).
    pub(crate) fn next(self, leaving: u32, excluded: u32) -> Option<u32> {
        let home = if Mutant::AwayChosen.on() { None } else { self.owner().rail() };
        let mut second = None;
        let mut slot = 0;
        while slot < root!(self.ptr.state, slots) {
            let usable = slot != leaving
                && !(slot > 1 && Mutant::OneBackup.on())
                && excluded & (1 << slot) == 0
                && self.state(slot) == PathState::Ready
                && self.owner().leads_to(slot, home)
                && !self.port_down(slot);
            if usable && !self.suspect(slot) {
                return Some(slot);
            }
            if usable && second.is_none() {
                second = Some(slot);
            }
            slot += 1;
        }
        if Mutant::SuspicionMasks.on() { None } else { second }
    }

    /// True if a better path than `slot` has been ready for the recovery window: the primary, or, of a channel that is
    /// bound to a home, the best one that leads there.
    #[inline(always)]
    pub(crate) fn is_better_ready(self, slot: u32, home: Option<u32>, now: u64) -> bool {
        let end = if home.is_some() || slot == 0 { slot } else { 1 };
        let mut better = 0;
        while better < end {
            if self.state(better) == PathState::Ready
                && self.owner().leads_to(better, home)
                && !self.port_down(better)
                && !self.suspect(better)
                && !Mutant::NoWayBack.on()
            {
                // Written before `Ready`.
                let since = self.ptr.path(better).ready_since_ns().load();
                let window_ns = root!(self.ptr.state, policy.recovery_window_ns);
                if now.saturating_sub(since) >= window_ns || Mutant::NoRecoveryWindow.on() {
                    return true;
                }
            }
            better += 1;
        }
        false
    }
}
