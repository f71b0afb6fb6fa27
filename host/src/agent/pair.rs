//! One pair as its agent knows it, and what follows from the two truths (pure). Rules 10, 13, 17, 18; table H1.

use super::chain::Offer;
use super::kept::Holding;
use super::message::SideTruth;
use super::vacate::Asked;
use crate::connect::card::HalfCard;
use crate::nic::half::HalfPath;
use crate::nic::qp::MASK_24;
use crate::nic::queue::{Producer, RingSpan};
use crate::slots::RailPair;
use shunt_device::health::Health;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::AnswerStatus;
use std::sync::Arc;

/// What the agent answers a switcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Status of the answer.
    pub status: AnswerStatus,
    /// Messages the receiver executed, modulo 2^24; 0 without truth.
    pub executed: u32,
}

/// The PSNs this side's requester may have had executed, from its own QUERY_QP after 2ERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Oldest PSN not acknowledged.
    pub oldest: u32,
    /// First PSN never sent.
    pub next: u32,
}

impl Sent {
    /// True if a responder that expects `psn` next can have got there by what was sent. Counters of 24 bits.
    pub fn allows(self, psn: u32) -> bool {
        let ahead = |psn: u32| psn.wrapping_sub(self.oldest) & MASK_24;
        ahead(psn) <= ahead(self.next)
    }
}

/// True if a word about the other half proves more than what is known of it: words come late, doubled and out of order,
/// and the time since which that half is proven is that of the first that proved it.
pub fn tells_more(known: Option<SideTruth>, word: SideTruth) -> bool {
    let proves = |truth| match truth {
        SideTruth::Dead => 1,
        SideTruth::Unflushed => 2,
        SideTruth::Unknown => 3,
        // The count of one and the same half: the first word stays.
        SideTruth::Fenced | SideTruth::Exact { .. } => 4,
    };
    proves(word) > known.map_or(0, proves)
}

/// What follows from what the two sides say of their halves, for the direction that sends from here. `None`: wait.
///
/// `mine` is about this side's half, `theirs` about the other's (or that it cannot be had); `sent` is what this
/// side's requester did, for the cross-check (H2 b); `lifetime_over` says that the packet lifetime has passed since
/// this half was proven to be in ERR, or since theirs was.
pub fn verdict(
    mine: SideTruth,
    theirs: Option<SideTruth>,
    sent: Option<Sent>,
    lifetime_over: bool,
) -> Option<Verdict> {
    let no_truth = Verdict { status: AnswerStatus::FencedNoTruth, executed: 0 };
    let unprovable = Verdict { status: AnswerStatus::Unprovable, executed: 0 };
    // A truth that fails its cross-check is no truth (invariant 12); the fence stands all the same.
    let exact = |executed, psn| match sent {
        Some(sent) if !sent.allows(psn) && !Mutant::PsnNotChecked.on() => no_truth,
        _ => Verdict { status: AnswerStatus::Truth, executed },
    };
    // What was forgotten is as good as a count that is not to be trusted.
    let plain = |truth| if truth == SideTruth::Unknown { SideTruth::Fenced } else { truth };
    match (plain(mine), theirs.map(plain)) {
        // Both halves in ERR: nothing of this incarnation can change memory at either end.
        (SideTruth::Exact { .. } | SideTruth::Fenced, Some(SideTruth::Exact { executed, next_rcv_psn })) => {
            Some(exact(executed, next_rcv_psn))
        }
        (SideTruth::Exact { .. } | SideTruth::Fenced, Some(SideTruth::Fenced)) => Some(no_truth),
        // Their NIC is dead to commands, or nobody answers: our half is in ERR, so nothing new leaves; what already
        // left is gone after the lifetime (row 2 of the table).
        (
            SideTruth::Exact { .. } | SideTruth::Fenced | SideTruth::Unflushed,
            Some(SideTruth::Dead | SideTruth::Unflushed) | None,
        ) => lifetime_over.then_some(no_truth),
        // Ours is dead, theirs is fenced: their count is final; late READ responses are gone after the lifetime.
        (SideTruth::Dead | SideTruth::Unflushed, Some(SideTruth::Exact { executed, next_rcv_psn })) => {
            lifetime_over.then(|| exact(executed, next_rcv_psn))
        }
        (SideTruth::Dead | SideTruth::Unflushed, Some(SideTruth::Fenced)) => {
            lifetime_over.then_some(no_truth)
        }
        // Theirs takes nothing new and ours cannot be asked: as good as theirs fenced, once all posted writes landed.
        (SideTruth::Dead, Some(SideTruth::Unflushed)) => lifetime_over.then_some(no_truth),
        (SideTruth::Dead, Some(SideTruth::Dead) | None) if Mutant::UnprovenGoesOn.on() => Some(no_truth),
        (SideTruth::Dead, Some(SideTruth::Dead) | None) => Some(unprovable),
        (SideTruth::Unknown, _) | (_, Some(SideTruth::Unknown)) => Some(no_truth),
    }
}

/// True if a query alone counts for good what a half of this side executed, though nobody has moved it to ERR.
///
/// `quiet_ns` is how long the other half has been known to be in ERR, by the agent's age. It sends nothing from then
/// on, neither requests nor the answers to this half's, and after the packet lifetime nothing that it sent before can
/// arrive: the time fence of rule 13 with the receiver's own count, in both directions. ERR follows before this side
/// says that it has left (rule 17), because the other end may then destroy its half and its number may be given to
/// another.
pub fn may_count(theirs: Option<SideTruth>, quiet_ns: u64, lifetime_ns: u64) -> bool {
    let in_error = matches!(theirs, Some(SideTruth::Exact { .. } | SideTruth::Fenced));
    in_error && (quiet_ns >= lifetime_ns || Mutant::CountedTooSoon.on())
}

/// What the NIC of a pair is doing for it, by the number of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// Nothing that matters.
    #[default]
    None,
    /// Fencing this half.
    Fence(u64),
    /// Counting what this half executed.
    Count(u64),
    /// Moving this half to ERR, which was counted before.
    Stop(u64),
    /// Making this half.
    Make(u64),
    /// Connecting this half.
    Connect(u64),
    /// Reading the queue pair of a path that the last agent left ready.
    Look(u64),
}

/// One pair, this side of it.
pub struct Pair {
    /// Health.
    pub health: Health,
    /// Incarnation; never used twice.
    pub incarnation: u32,
    /// Local rail.
    pub local_rail: u32,
    /// Remote rail.
    pub remote_rail: u32,
    /// Memory of the rings, for all incarnations.
    pub rings: RingSpan,
    /// This half, while there is one. Its NIC's worker may hold it as well.
    pub half: Option<Arc<HalfPath>>,
    /// What its NIC is doing.
    pub task: Task,
    /// It was given to its rails and has not been made there yet.
    pub untried: bool,
    /// The other half's card.
    pub remote: Option<HalfCard>,
    /// Truth of this half, once fenced.
    pub mine: Option<SideTruth>,
    /// Truth of the other half, once it said so.
    pub theirs: Option<SideTruth>,
    /// What this half had sent when it was fenced.
    pub sent: Option<Sent>,
    /// The request to answer when the fence is complete.
    pub asked: Option<u64>,
    /// How often it was said of it that it is in hand: when, in pauses of the agent's life awake.
    pub in_hand: u64,
    /// When the peer last said that it has this pair's fence in hand, as the agent was awake.
    pub in_hand_there_ns: Option<u64>,
    /// When the present state was entered.
    pub since_ns: u64,
    /// When this half was fenced.
    pub fenced_ns: u64,
    /// When its fence began, as the agent was awake.
    pub begun_awake_ns: u64,
    /// When anything was first known of this half, likewise.
    pub fenced_awake_ns: u64,
    /// The agent's age at that time: what the packet lifetime is counted by.
    pub fenced_age_ns: u64,
    /// The agent's age when this half, which was counted first, was moved to ERR.
    pub stopped_age_ns: Option<u64>,
    /// The agent's age when the last half that nobody fenced was destroyed.
    pub buried_age_ns: Option<u64>,
    /// The agent's age when the other half was first known to be fenced.
    pub theirs_age_ns: u64,
    /// When its NIC, which did not fence this half, is to try again, and how often it failed since the fence began.
    pub again_ns: u64,
    /// See `again_ns`.
    pub failed: u32,
    /// When the peer was last told of the fence, and how often since it began.
    pub told_ns: u64,
    /// See `told_ns`.
    pub told: u32,
    /// This direction has left, and the peer was told.
    pub left_here: bool,
    /// The peer's direction has left.
    pub left_there: bool,
    /// Failures to revive in a row.
    pub failures: u32,
    /// Times in a row that it was left soon after it was admitted.
    pub relapses: u32,
    /// When the path was last made anew and admitted; `None` for a path as it was made at start.
    pub admitted_ns: Option<u64>,
    /// The incarnation whose probes were all answered, both ways; 0 if none was.
    pub probed: u32,
    /// PSN the next incarnation starts at.
    pub next_psn: u32,
    /// A `Make` that came before this side was done resting.
    pub offered: Option<Offer>,
    /// The operators' last order of either end: odd if the pair is to be out. The larger number is the later order.
    pub orders: u32,
    /// It works, and both directions are to leave it by a drain: since when.
    pub leaving_ns: Option<u64>,
    /// Its slot is wanted for another pair, and the peer was asked to do without it.
    pub vacate: Option<Asked>,
    /// It was brought back, and the peer, which leads, does not seem to know.
    pub readmitted: bool,
    /// It is fenced because its port is down, and no switcher of this PE has asked for it.
    pub bulk: bool,
    /// The last agent may have fenced this incarnation: what it executed is not known.
    pub unknown: bool,
    /// Probes under way.
    pub probes: Option<Probes>,
    /// The peer's probes were answered.
    pub proved_there: bool,
}

impl Pair {
    /// A pair as its agent finds it: ready, unless the rows of an earlier agent say otherwise. One that bring-up left
    /// to the agents was never made, so there is nothing to fence and nobody to leave it.
    pub(super) fn found(held: Holding, now_ns: u64) -> Self {
        let to_make = held.incarnation == 0;
        let begun_ns = if to_make { now_ns } else { 0 };
        let fenced = to_make.then_some(SideTruth::Fenced);
        Self {
            health: match held.half {
                Some(_) => Health::Ready,
                None if to_make => Health::Released,
                None => Health::Retired,
            },
            incarnation: held.incarnation,
            local_rail: held.local_rail,
            remote_rail: held.remote_rail,
            rings: held.rings,
            half: held.half,
            task: Task::None,
            untried: false,
            remote: None,
            mine: fenced,
            theirs: fenced,
            sent: None,
            asked: None,
            in_hand: 0,
            in_hand_there_ns: None,
            since_ns: begun_ns,
            fenced_ns: begun_ns,
            begun_awake_ns: 0,
            fenced_awake_ns: 0,
            fenced_age_ns: 0,
            stopped_age_ns: None,
            buried_age_ns: None,
            theirs_age_ns: 0,
            again_ns: 0,
            failed: 0,
            told_ns: 0,
            told: 0,
            left_here: to_make,
            left_there: to_make,
            failures: 0,
            relapses: 0,
            admitted_ns: None,
            probed: 0,
            next_psn: held.next_psn,
            offered: None,
            orders: held.orders,
            leaving_ns: None,
            vacate: None,
            readmitted: false,
            bulk: false,
            unknown: false,
            probes: None,
            proved_there: false,
        }
    }

    /// True if it was never made: nothing of it can be in the network, or wait to be left.
    pub fn is_fresh(&self) -> bool {
        self.incarnation == 0
    }

    /// Its rails, as this end sees them.
    pub fn rails(&self) -> RailPair {
        RailPair { local: self.local_rail, remote: self.remote_rail }
    }

    /// True if an operator wants it out.
    pub fn is_out(&self) -> bool {
        self.orders & 1 == 1
    }

    /// True if somebody wants it left who says nothing against its rails: an operator, or another pair that is to have
    /// its slot.
    pub fn is_ordered(&self, now_ns: u64) -> bool {
        let wanted = self.vacate.is_some_and(|asked| asked.is_fresh(now_ns));
        let ordered = self.leaving_ns.is_some() || wanted || self.is_out();
        ordered && !Mutant::OrderIsFailure.on()
    }

    /// An operator of this end wants it out, or back. What it is already needs no new number.
    pub fn order(&mut self, out: bool) {
        self.orders = self.orders.saturating_add((self.is_out() != out) as u32);
    }

    /// True if this incarnation is connected here and being probed.
    pub fn is_probing(&self, incarnation: u32) -> bool {
        self.health == Health::Probing && self.incarnation == incarnation
    }

    /// True if this side's probes of this incarnation were answered.
    pub fn has_proved(&self, incarnation: u32) -> bool {
        let told = self.probes.as_ref().is_some_and(|probes| probes.told);
        self.incarnation == incarnation
            && (self.health == Health::Ready || self.health == Health::Probing && told)
    }

    /// The age that the packet lifetime counts from: that of the half which is proven to be in ERR, here if it is both.
    pub fn quiet_since_ns(&self) -> u64 {
        match self.mine {
            Some(SideTruth::Dead) => self.theirs_age_ns.max(self.fenced_age_ns),
            _ => self.fenced_age_ns,
        }
    }
}

/// Probes of one direction: zero-length WRITEs on the path's own ring, which hands its index over afterwards.
pub struct Probes {
    /// Posts on the ring; the agent is its only user before the path is ready.
    pub producer: Producer,
    /// Probes posted.
    pub posted: u32,
    /// Probes answered.
    pub answered: u32,
    /// When the next one is due.
    pub next_ns: u64,
    /// True once the peer was told.
    pub told: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: SideTruth = SideTruth::Exact { executed: 42, next_rcv_psn: 1 };
    /// Across the wrap of the PSN.
    const SENT: Option<Sent> = Some(Sent { oldest: 0xff_fffe, next: 5 });

    fn status(mine: SideTruth, theirs: Option<SideTruth>, over: bool) -> Option<AnswerStatus> {
        verdict(mine, theirs, SENT, over).map(|verdict| verdict.status)
    }

    #[test]
    fn what_proves_less_takes_nothing_back() {
        let order = [SideTruth::Dead, SideTruth::Unflushed, SideTruth::Unknown, EXACT].map(Some);
        for (at, known) in order.iter().enumerate() {
            assert!(known.is_some_and(|word| tells_more(None, word)), "the first word counts");
            for (than, word) in order.iter().flatten().enumerate() {
                assert_eq!(tells_more(*known, *word), than > at, "{word:?} after {known:?}");
            }
        }
        assert!(!tells_more(Some(SideTruth::Fenced), EXACT) && !tells_more(Some(EXACT), SideTruth::Fenced));
    }

    #[test]
    fn a_half_is_counted_a_lifetime_after_the_other_was_fenced() {
        for theirs in [EXACT, SideTruth::Fenced] {
            assert!(may_count(Some(theirs), 50, 50));
            assert!(!may_count(Some(theirs), 49, 50), "something may still be on its way");
        }
        for theirs in [None, Some(SideTruth::Dead), Some(SideTruth::Unknown), Some(SideTruth::Unflushed)] {
            assert!(!may_count(theirs, 1_000, 50), "{theirs:?}: not known to be in ERR");
        }
    }

    #[test]
    fn both_fenced_is_exact_at_once() {
        for mine in [EXACT, SideTruth::Fenced] {
            let got = verdict(mine, Some(EXACT), SENT, false);
            assert_eq!(got, Some(Verdict { status: AnswerStatus::Truth, executed: 42 }));
        }
    }

    #[test]
    fn a_silent_peer_costs_the_packet_lifetime() {
        for theirs in [Some(SideTruth::Dead), None] {
            assert_eq!(status(EXACT, theirs, false), None, "a deadline alone is never a fence");
            assert_eq!(status(EXACT, theirs, true), Some(AnswerStatus::FencedNoTruth));
        }
    }

    #[test]
    fn a_half_in_err_that_cannot_be_flushed_waits_for_what_it_may_still_write() {
        for theirs in [Some(EXACT), Some(SideTruth::Fenced), Some(SideTruth::Dead), None] {
            assert_eq!(status(SideTruth::Unflushed, theirs, false), None, "{theirs:?}");
            assert!(
                status(SideTruth::Unflushed, theirs, true).is_some_and(|s| s != AnswerStatus::Unprovable)
            );
        }
        assert_eq!(status(SideTruth::Unflushed, Some(EXACT), true), Some(AnswerStatus::Truth));
        assert_eq!(status(EXACT, Some(SideTruth::Unflushed), false), None);
    }

    #[test]
    fn nothing_known_is_an_error() {
        for over in [false, true] {
            for theirs in [Some(SideTruth::Dead), None] {
                assert_eq!(status(SideTruth::Dead, theirs, over), Some(AnswerStatus::Unprovable));
            }
        }
    }

    #[test]
    fn a_count_not_to_be_trusted_is_no_truth() {
        assert_eq!(status(EXACT, Some(SideTruth::Fenced), false), Some(AnswerStatus::FencedNoTruth));
        assert_eq!(status(SideTruth::Dead, Some(EXACT), false), None);
        assert_eq!(verdict(SideTruth::Dead, Some(EXACT), None, true).map(|v| v.executed), Some(42));
    }

    #[test]
    fn a_count_at_a_psn_never_sent_is_no_truth() {
        for (psn, expected) in [
            (0xff_fffd, AnswerStatus::FencedNoTruth),
            (0xff_fffe, AnswerStatus::Truth),
            (5, AnswerStatus::Truth),
            (6, AnswerStatus::FencedNoTruth),
        ] {
            let theirs = SideTruth::Exact { executed: 42, next_rcv_psn: psn };
            assert_eq!(status(EXACT, Some(theirs), false), Some(expected), "next_rcv_psn {psn:#x}");
        }
    }
}
