//! The transfer engine over RC queue pairs of soft NICs, in virtual time, while ports and links fail.

use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;
use shunt_tests::transfers::timing::{self, Case, TimingReport, TimingSpec};
use shunt_tests::transfers::{TransferReport, TransferSpec, run};

fn spec(seed: u64, faults: Vec<(u64, RailAt, FaultKind)>) -> TransferSpec {
    TransferSpec { seed, rails: 2, transfers: 40, cancels: 0, faults, hasty: false }
}

fn down(at_ns: u64, pe: u32, rail: u32) -> (u64, RailAt, FaultKind) {
    (at_ns, RailAt { pe, rail }, FaultKind::Down { for_ns: Some(5_000_000) })
}

fn clean(report: &TransferReport) {
    assert_eq!(report.wrong(), Vec::<String>::new());
    let other: Vec<_> = report.processes.iter().flat_map(|told| told.other.clone()).collect();
    assert_eq!(other, Vec::<String>::new(), "transfers that ended otherwise");
}

#[test]
fn transfers_without_a_fault_use_every_rail_and_leave_none() {
    // So many that every ring wraps, and each receive is posted again and again.
    let report = run(&TransferSpec { transfers: 200, ..spec(1, Vec::new()) });
    clean(&report);
    assert_eq!(report.sum(|told| told.written), 400);
    assert_eq!(report.sum(|told| told.lanes.closed), 0);
    assert_eq!(report.sum(|told| told.lanes.opened), 4);
}

#[test]
fn a_port_of_either_end_that_goes_down_costs_no_byte_and_no_immediate() {
    for pe in 0..2 {
        let report = run(&spec(2, vec![down(100_000, pe, 0)]));
        clean(&report);
        assert_eq!((report.hits, report.sum(|told| told.written)), (1, 80));
        assert!(report.sum(|told| told.lanes.closed) >= 2, "both directions leave: {report:?}");
        assert!(report.sum(|told| told.lanes.opened) >= 6, "and come back: {report:?}");
        assert!(report.sum(|told| told.lanes.again) > 0, "something was under way: {report:?}");
    }
}

#[test]
fn pieces_whose_acknowledgements_were_lost_are_not_written_again() {
    let lost = FaultKind::DropAcks { for_ns: Some(12_000_000) };
    let report = run(&spec(3, vec![(100_000, RailAt { pe: 1, rail: 1 }, lost)]));
    clean(&report);
    assert_eq!((report.hits, report.sum(|told| told.written)), (1, 80));
    assert!(report.sum(|told| told.lanes.closed) > 0, "{report:?}");
}

#[test]
fn all_rails_that_fail_within_a_millisecond_are_outlived() {
    let report = run(&spec(4, vec![down(100_000, 0, 0), down(900_000, 1, 1)]));
    clean(&report);
    assert_eq!((report.hits, report.sum(|told| told.written)), (2, 80));
}

#[test]
fn memory_of_what_was_cancelled_is_free_when_that_is_proven_and_not_before() {
    let cancelled = |hasty, seed| {
        let slow = FaultKind::Delay { by_ns: 200_000, for_ns: None };
        let faults = vec![(0, RailAt { pe: 0, rail: 0 }, slow), (0, RailAt { pe: 1, rail: 0 }, slow)];
        run(&TransferSpec { cancels: 3, hasty, ..spec(seed, faults) })
    };
    let mut late = 0;
    for seed in 0..6 {
        let report = cancelled(false, seed);
        clean(&report);
        assert!(report.sum(|told| told.cancelled) > 0, "{report:?}");
        late += cancelled(true, seed).wrong().iter().filter(|text| text.contains("written after")).count();
    }
    assert!(late > 0, "the judge sees what lands late where the proof is not waited for");
}

#[test]
fn memory_that_is_taken_back_before_the_proof_is_written_late() {
    for case in [Case::Cancel, Case::Revoke] {
        let hasty = |seed| timing::run(&TimingSpec { hasty: true, ..TimingSpec::new(seed, case) });
        let late = |report: TimingReport| report.wrong.iter().any(|text| text.contains("written after"));
        assert!((0..20).map(hasty).any(late), "{case:?}: the judge sees what lands late");
    }
}

/// `SHUNT_TRANSFER_SEEDS` of them from `SHUNT_TRANSFER_FIRST` on; a few where nobody says how many.
#[test]
fn transfers_of_many_seeds() {
    let number = |name, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (first, seeds) = (number("SHUNT_TRANSFER_FIRST", 0), number("SHUNT_TRANSFER_SEEDS", 30));
    let (mut closed, mut again, mut cancelled, mut hits) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        let report = run(&TransferSpec::random(seed));
        assert_eq!(report.wrong(), Vec::<String>::new(), "seed {seed}");
        closed += report.sum(|told| told.lanes.closed);
        again += report.sum(|told| told.lanes.again);
        cancelled += report.sum(|told| told.cancelled);
        hits += report.hits;
    }
    println!(
        "{seeds} seeds: {hits} faults hit, {closed} lanes fenced, {again} pieces again, {cancelled} cancelled"
    );
    assert!(hits > 0 && closed > seeds && again > 0 && cancelled > 0, "the faults hit");
}
