//! What is known of the last fence of a path: the truths of both halves, and when each came. Pure. Rules 10, 13, 18.

use crate::nanos::Nanos;
use crate::truth::SideTruth;
use crate::verdict::{Sent, tells_more};
use shunt_layout::mutant::Mutant;

/// The last fence of a path, or the one under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FenceRecord {
    /// Truth of this half, once fenced.
    pub mine: Option<SideTruth>,
    /// Truth of the other half, once it said so.
    pub theirs: Option<SideTruth>,
    /// What this half had sent when it was fenced.
    pub sent: Option<Sent>,
    /// When this half was fenced.
    pub fenced: Nanos,
    /// When the fence began, as the engine was awake.
    pub begun_awake: Nanos,
    /// When anything was first known of this half, likewise.
    pub fenced_awake: Nanos,
    /// When the peer last said that it has this fence in hand, likewise.
    pub in_hand_there: Option<Nanos>,
    /// The engine's age when this half was fenced: what the packet lifetime is counted by.
    pub fenced_age: Nanos,
    /// The engine's age when this half, which was counted first, was moved to ERR.
    pub stopped_age: Option<Nanos>,
    /// The engine's age when the last half that nobody fenced was destroyed.
    pub destroyed_age: Option<Nanos>,
    /// The engine's age when the other half was first known to be fenced.
    pub theirs_age: Nanos,
    /// When the NIC, which did not fence this half, is to try again.
    pub again: Nanos,
    /// How often it failed since the fence began.
    pub failed: u32,
    /// This direction has left, and the peer was told.
    pub left_here: bool,
    /// The peer's direction has left.
    pub left_there: bool,
    /// It is fenced because its port is down, and no owner has asked for it.
    pub bulk: bool,
    /// An earlier agent may have fenced this incarnation: what it executed is not known.
    pub unknown: bool,
}

impl FenceRecord {
    /// A fence begins.
    pub(super) fn begin(&mut self, awake: Nanos, bulk: bool) {
        self.bulk = bulk;
        self.stopped_age = None;
        self.mine = None;
        self.in_hand_there = None;
        self.failed = 0;
        self.begun_awake = awake;
        (self.left_here, self.left_there) = (false, false);
    }

    /// The next incarnation begins: nothing of the last one counts.
    pub(super) fn forget(&mut self) {
        (self.mine, self.theirs, self.sent) = (None, None, None);
        self.stopped_age = None;
        self.unknown = false;
    }

    /// A word about the other half. What was said of an incarnation stays: a peer that lost its store knows less than
    /// it did (rule 18). True if it says more than was known.
    pub(super) fn hear(&mut self, age: Nanos, truth: SideTruth) -> bool {
        let more = tells_more(self.theirs, truth);
        if more {
            (self.theirs, self.theirs_age) = (Some(truth), age);
        }
        more
    }

    /// The peer's direction has left, and its half was fenced before: what was said of that may have got lost.
    pub(super) fn peer_left(&mut self, age: Nanos) {
        if !self.left_there && matches!(self.theirs, None | Some(SideTruth::Dead | SideTruth::Unused)) {
            self.theirs_age = age;
        }
        self.left_there = true;
    }

    /// The peer's half is fenced and both directions have left, by what the peer says of the next incarnation.
    pub(super) fn peer_moved_on(&mut self, age: Nanos) {
        self.left_there = true;
        if self.theirs.is_none() {
            (self.theirs, self.theirs_age) = (Some(SideTruth::Unknown), age);
        }
    }

    /// What this half may say of itself: a count that was read before, perhaps long ago, perhaps told and acted upon,
    /// is nobody's truth any more.
    pub(super) fn said_of(&self, mine: SideTruth) -> SideTruth {
        match mine {
            SideTruth::Exact { next_rcv_psn, .. } if self.unknown && Mutant::RestartTruthZero.on() => {
                SideTruth::Exact { executed: 0, next_rcv_psn }
            }
            SideTruth::Exact { .. } | SideTruth::Fenced if self.unknown => SideTruth::Unknown,
            known => known,
        }
    }

    /// True if this fence is proof: what came through this half has landed, and nothing comes any more. Of a path that
    /// has no half and was never fenced: `made` is false.
    pub(super) fn is_proof(&self, age: Nanos, lifetime: Nanos, made: bool) -> bool {
        let over = |since: Nanos| age >= since + lifetime;
        match (self.mine, self.theirs) {
            (Some(SideTruth::Exact { .. } | SideTruth::Fenced | SideTruth::Unknown), _) => true,
            (Some(SideTruth::Unflushed), _) => over(self.fenced_age),
            (Some(SideTruth::Dead | SideTruth::Unused), Some(SideTruth::Dead) | None) => false,
            // Nothing was ever sent from there, and nothing will be.
            (Some(SideTruth::Dead | SideTruth::Unused), Some(SideTruth::Unused)) => true,
            // The NIC says nothing; but nothing new leaves the other half, and what had left is gone.
            (Some(SideTruth::Dead | SideTruth::Unused), Some(_)) => over(self.theirs_age),
            (None, _) => !made,
        }
    }

    /// The age that the packet lifetime counts from: that of the half which is proven to be in ERR, here if it is both.
    pub(super) fn quiet_since(&self) -> Nanos {
        match self.mine {
            Some(SideTruth::Dead) => self.theirs_age.max(self.fenced_age),
            _ => self.fenced_age,
        }
    }

    /// The age that the rest of a released path counts from: whichever half may have sent last. The peer's may be
    /// fenced long after this one, and what it sent until then is still on its way to the number of this half.
    pub(super) fn rests_since(&self) -> Nanos {
        let here = self.fenced_age.max(self.stopped_age.unwrap_or_default());
        here.max(self.destroyed_age.unwrap_or_default()).max(self.theirs_age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: SideTruth = SideTruth::Exact { executed: 42, next_rcv_psn: 1 };

    #[test]
    fn only_what_is_proven_is_proof() {
        let proof = |mine, theirs, age| {
            let at = FenceRecord {
                fenced_age: Nanos::new(100),
                theirs_age: Nanos::new(200),
                ..Default::default()
            };
            FenceRecord { mine, theirs, ..at }.is_proof(Nanos::new(age), Nanos::new(50), true)
        };
        assert!(!proof(None, Some(EXACT), 1_000), "its own half may still take requests");
        assert!(proof(Some(EXACT), None, 0), "a peer that is gone does not matter");
        assert!(proof(Some(SideTruth::Fenced), None, 0));
        let unflushed = Some(SideTruth::Unflushed);
        assert!(!proof(unflushed, Some(EXACT), 149));
        assert!(proof(unflushed, Some(EXACT), 150), "what it had accepted has landed");
        let dead = Some(SideTruth::Dead);
        assert!(!proof(dead, Some(EXACT), 249));
        assert!(proof(dead, Some(EXACT), 250), "nothing new leaves the other half");
        for theirs in [None, dead] {
            assert!(!proof(dead, theirs, u64::MAX), "nothing is proved");
        }
        assert!(proof(dead, Some(SideTruth::Unused), 0), "the other half never sent");
        assert!(!proof(None, Some(SideTruth::Unused), 1_000), "this half is not fenced yet");
        assert!(FenceRecord::default().is_proof(Nanos::ZERO, Nanos::ZERO, false), "it was never made");
    }

    /// The rest was counted from the fence of this half alone. The peer's half, fenced later, sent to it until then.
    #[test]
    fn a_path_rests_from_the_later_of_both_fences() {
        let own = FenceRecord { fenced_age: Nanos::new(100), ..Default::default() };
        assert_eq!(own.rests_since(), Nanos::new(100));
        let mut told = own;
        told.hear(Nanos::new(300), EXACT);
        told.peer_left(Nanos::new(400));
        assert_eq!(told.rests_since(), Nanos::new(300), "fenced when it said so");
        for unsaid in [None, Some(SideTruth::Dead)] {
            let mut left = FenceRecord { theirs: unsaid, ..own };
            left.peer_left(Nanos::new(400));
            left.peer_left(Nanos::new(500));
            assert_eq!(
                left.rests_since(),
                Nanos::new(400),
                "{unsaid:?}: a fenced half alone is left, and once"
            );
        }
    }
}
