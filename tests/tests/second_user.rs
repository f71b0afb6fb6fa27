//! The recovery engine with another user than channels: processes that post SENDs and WRITEs themselves.

use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;
use shunt_tests::second_user::{TalkReport, TalkSpec, run};

fn two(seed: u64, faults: Vec<(u64, RailAt, FaultKind)>) -> TalkSpec {
    TalkSpec {
        seed,
        numbers: 1_000,
        joins: vec![0, 0],
        leaves: Vec::new(),
        faults,
        repeats: false,
        panics: false,
    }
}

/// Once numbers are on their way.
const DOWN: (u64, RailAt, FaultKind) =
    (1_000_000, RailAt { pe: 0, rail: 0 }, FaultKind::Down { for_ns: Some(10_000_000) });

fn clean(report: &TalkReport) {
    assert_eq!(report.wrong(), Vec::<String>::new());
}

#[test]
fn two_processes_talk_without_a_fault() {
    let report = run(&two(1, Vec::new()));
    clean(&report);
    assert_eq!((report.failovers(), report.revivals()), (0, 0));
}

#[test]
fn a_port_that_goes_down_loses_nothing_and_doubles_nothing() {
    let report = run(&two(2, vec![DOWN]));
    clean(&report);
    assert_eq!(report.hits, 1);
    assert!(report.failovers() >= 2, "both directions leave: {report:?}");
}

#[test]
fn a_cut_that_is_one_too_early_is_seen() {
    for seed in 0..8 {
        let report = run(&TalkSpec { repeats: true, ..two(seed, vec![DOWN]) });
        assert!(!report.wrong().is_empty(), "seed {seed}: {report:?}");
    }
}

/// What a machine had decided and nobody had carried out was lost with the panic: a half that its NIC still had.
#[test]
fn a_half_that_is_given_up_before_a_panic_is_kept_until_it_is_gone() {
    clean(&run(&TalkSpec { panics: true, ..two(4, Vec::new()) }));
}

#[test]
fn processes_join_and_leave_while_others_talk() {
    let spec = TalkSpec {
        joins: vec![0, 0, 6_000_000],
        leaves: vec![2],
        faults: vec![
            (2_000_000, RailAt { pe: 0, rail: 0 }, FaultKind::Down { for_ns: Some(3_000_000) }),
            (10_000_000, RailAt { pe: 2, rail: 0 }, FaultKind::Down { for_ns: Some(5_000_000) }),
        ],
        ..two(3, Vec::new())
    };
    let report = run(&spec);
    clean(&report);
    assert_eq!(report.hits, 2);
    assert!(report.processes.iter().all(|told| told.failovers > 0), "{report:?}");
}

/// `SHUNT_TALK_SEEDS` of them; a few where nobody says how many.
#[test]
fn talks_of_many_seeds() {
    let seeds = std::env::var("SHUNT_TALK_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let (mut failovers, mut revivals, mut replayed) = (0, 0, 0);
    let first = std::env::var("SHUNT_TALK_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        let report = run(&TalkSpec::random(seed));
        assert_eq!(report.wrong(), Vec::<String>::new(), "seed {seed}");
        failovers += report.failovers();
        revivals += report.revivals();
        replayed += report.processes.iter().map(|told| told.replayed).sum::<u64>();
    }
    println!(
        "{seeds} seeds: {failovers} paths left, {revivals} gone back to, {replayed} numbers posted again"
    );
    assert!(failovers > seeds && revivals > 0 && replayed > 0, "the faults hit");
}
