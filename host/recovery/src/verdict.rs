//! What follows from the truths of a pair's two halves. Pure. Rules 10 and 13.

use super::truth::SideTruth;
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::AnswerStatus;
use shunt_mlx5::nic::qp::{MASK_24, QpTruth};

/// What the agent answers a switcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// Status of the answer.
    pub status: AnswerStatus,
    /// Messages the receiver executed, modulo 2^24; 0 without truth.
    pub executed: u32,
}

/// The PSNs this side's requester may have had executed, from its own QUERY_QP after 2ERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sent {
    /// Oldest PSN not acknowledged.
    pub oldest: u32,
    /// First PSN never sent.
    pub next: u32,
}

impl Sent {
    /// By what the requester of a half says of itself.
    pub fn of(truth: &QpTruth) -> Self {
        Self { oldest: truth.last_acked_psn.wrapping_add(1) & MASK_24, next: truth.next_send_psn }
    }

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
        SideTruth::Unused => 2,
        SideTruth::Unflushed => 3,
        SideTruth::Unknown => 4,
        // The count of one and the same half: the first word stays.
        SideTruth::Fenced | SideTruth::Exact { .. } => 5,
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
    // What was forgotten is as good as a count that is not to be trusted. What the other side never sent says nothing
    // of what this one did.
    let plain = |truth| match truth {
        SideTruth::Unknown => SideTruth::Fenced,
        SideTruth::Unused => SideTruth::Dead,
        known => known,
    };
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
        (SideTruth::Unused, _) | (_, Some(SideTruth::Unused)) => Some(unprovable),
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
pub fn may_count(theirs: Option<SideTruth>, quiet_ns: Nanos, lifetime_ns: Nanos) -> bool {
    let in_error = matches!(theirs, Some(SideTruth::Exact { .. } | SideTruth::Fenced));
    in_error && (quiet_ns >= lifetime_ns || Mutant::CountedTooSoon.on())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: SideTruth = SideTruth::Exact { executed: 42, next_rcv_psn: 1 };
    /// Across the wrap of the PSN.
    const SENT: Option<Sent> = Some(Sent { oldest: 0xff_fffe, next: 5 });

    const fn ns(ns: u64) -> Nanos {
        Nanos::new(ns)
    }

    fn status(mine: SideTruth, theirs: Option<SideTruth>, over: bool) -> Option<AnswerStatus> {
        verdict(mine, theirs, SENT, over).map(|verdict| verdict.status)
    }

    #[test]
    fn what_proves_less_takes_nothing_back() {
        let order =
            [SideTruth::Dead, SideTruth::Unused, SideTruth::Unflushed, SideTruth::Unknown, EXACT].map(Some);
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
            assert!(may_count(Some(theirs), ns(50), ns(50)));
            assert!(!may_count(Some(theirs), ns(49), ns(50)), "something may still be on its way");
        }
        for theirs in [None, Some(SideTruth::Dead), Some(SideTruth::Unknown), Some(SideTruth::Unflushed)] {
            assert!(!may_count(theirs, ns(1_000), ns(50)), "{theirs:?}: not known to be in ERR");
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
            for theirs in [Some(SideTruth::Dead), Some(SideTruth::Unused), None] {
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
