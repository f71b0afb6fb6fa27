//! A path in use or on standby that is to be left without a fault: by an operator's order, or because its slot is
//! wanted.
//!
//! A path that works is drained first: its state says "leaving", both directions move to another path as on a way back,
//! and it is fenced when both are gone. Nothing is sent again.

use super::io::{Handle, Step, Word};
use super::pair::Pair;
use crate::nanos::Nanos;
use crate::slot_release::ReleaseRequest;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::PathState;

/// A path that is not left by then is fenced, used or not.
const LEAVE: Nanos = Nanos::secs(2);

/// The phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ready {
    /// Both directions are to leave it by a drain: since when.
    pub(super) leaving: Option<Nanos>,
    /// Its slot is wanted for another pair of rails, and the peer was asked to do without it.
    pub(super) wanted: Option<ReleaseRequest>,
}

/// What became of a path that is being left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Nothing.
    Waits,
    /// Something was said, or the owner is just marking the path.
    Busy,
    /// Nobody uses it any more: it is to be fenced.
    Gone,
    /// Its time is over: it is to be fenced, used or not.
    Late,
}

impl Ready {
    /// It is to be left by both directions; the other one has already, if `there_left`.
    pub(super) fn leave<H>(&mut self, pair: &mut Pair<H>, now: Nanos, there_left: bool) {
        self.leaving = Some(now);
        (pair.fence.left_here, pair.fence.left_there) = (false, there_left);
        pair.telling.at = now;
    }

    /// Carries on with leaving it. `standby`: its owner has another path that is ready.
    pub(super) fn carry_on<H: Handle>(
        &mut self,
        pair: &mut Pair<H>,
        cx: &mut Step<'_, H>,
        standby: bool,
    ) -> Leaving {
        let Some(since) = self.leaving else { return Leaving::Waits };
        // An owner that has nowhere to go keeps it, and the time to leave begins once there is somewhere.
        let state = if standby { PathState::Leaving } else { PathState::Ready };
        let before = cx.facts.row_state();
        // A mark that the owner makes just now stays: the next look finds it.
        let ours = matches!(before, PathState::Ready | PathState::Leaving);
        if !ours || before != state && !cx.facts.change_row(before, state) {
            return Leaving::Busy;
        }
        let left = state == PathState::Leaving && cx.facts.has_left();
        if !standby && !Mutant::LeftStaysLeft.on() {
            // Who left may be back on it: nothing else is there. A slot that is wanted alone is asked for again.
            self.leaving = pair.is_out().then_some(cx.now);
            (pair.fence.left_here, pair.fence.left_there) = (false, false);
        }
        let again = cx.now >= pair.telling.at + cx.timing.resend;
        let first = left && !std::mem::replace(&mut pair.fence.left_here, left);
        if again || first {
            pair.telling.at = cx.now;
            if again {
                pair.tell_order(cx);
            }
            if left {
                pair.tell(cx, Word::Left);
            }
        }
        let both = pair.fence.left_here && pair.fence.left_there;
        let gone = both && (standby || Mutant::LeftStaysLeft.on());
        match () {
            () if gone => Leaving::Gone,
            () if standby && cx.now >= since + LEAVE => Leaving::Late,
            () if again || first => Leaving::Busy,
            () => Leaving::Waits,
        }
    }

    /// Its slot is wanted for another pair of rails: the other end is asked to do without it. Called for as long as it
    /// is. True if it had its time: then it is fenced under it.
    pub(super) fn is_wanted<H: Handle>(&mut self, pair: &Pair<H>, cx: &mut Step<'_, H>) -> bool {
        if self.wanted.is_some_and(|asked| asked.is_recent(cx.now)) {
            return false;
        }
        let asked = ReleaseRequest::again(self.wanted, cx.now);
        self.wanted = Some(asked);
        if asked.is_over(cx.now) {
            return true;
        }
        pair.tell(cx, Word::Vacate);
        false
    }

    /// True if somebody wants it left who says nothing against its rails.
    pub(super) fn is_ordered(&self, now: Nanos) -> bool {
        self.leaving.is_some() || self.wanted.is_some_and(|asked| asked.is_fresh(now))
    }
}
