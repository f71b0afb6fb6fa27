//! Every wait ends, and every bound is met from both sides.

use shunt_device::FaultKind;
use shunt_layout::state::{CauseKind, SwitchKind};
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;
use shunt_tests::workload::is_final;

fn steady(faults: &[String]) -> RunSpec {
    RunSpec {
        both_ways: true,
        traffic: Traffic { messages: 300, pace_ns: 50_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// Completions late by less than the suspect time fail nobody over; by more, they do.
#[test]
fn the_suspect_time_from_both_sides() {
    const MARGIN_NS: u64 = 30_000; // a round trip, and the widest gap between two looks
    for (late, expected) in [(-1, false), (1, true)] {
        let spec = steady(&[]);
        let delay = spec.suspect_ns.saturating_add_signed(late * MARGIN_NS as i64);
        let mut spec = steady(&[format!("3ms:0.0:late-cqe={delay}ns")]);
        spec.both_ways = false;
        spec.traffic.messages = 60;
        let outcome = run(&spec);
        outcome.assert_clean();
        outcome.assert_exercised();
        let overdue = outcome.records.iter().any(|(_, record)| record.cause == CauseKind::Overdue as u32);
        assert_eq!(overdue, expected, "completions {delay} ns late\n{outcome}");
    }
}

/// A path that usually completes fast is suspected sooner than the bound, and never sooner than the floor. One that is
/// always slow is not suspected for it.
#[test]
fn the_suspect_time_follows_what_is_usual() {
    const SILENT_NS: u64 = 20_000_000;
    for (floor_ns, most_ns) in [(1_000_000, 2_000_000), (4_000_000, 5_000_000), (10_000_000, 11_000_000)] {
        let mut spec = steady(&["20ms:0.0:blackhole-tx".into()]);
        (spec.traffic.messages, spec.suspect_floor_ns) = (800, floor_ns);
        let outcome = run(&spec);
        outcome.assert_clean();
        let record = outcome.of_kind(SwitchKind::Failover).next().expect("a switch");
        let after_ns = record.stamps[0] - outcome.began_ns - SILENT_NS;
        assert!((floor_ns..most_ns).contains(&after_ns), "noticed after {after_ns} ns\n{outcome}");
    }
    let mut spec = steady(&["0ns:0.0:late-cqe=900us".into()]);
    spec.suspect_floor_ns = 1_000_000;
    let outcome = run(&spec);
    outcome.assert_clean();
    outcome.assert_exercised();
    assert!(outcome.records.is_empty(), "slow is usual here\n{outcome}");
}

/// Dead for less than the give-up time: found again. For more: `PeerLost`, and not before the time has passed.
#[test]
fn the_give_up_time_from_both_sides() {
    for (back_ms, lost) in [(300, false), (800, true)] {
        let mut spec = steady(&[
            "2ms:0.0:down".into(),
            "2ms:0.1:down".into(),
            format!("{back_ms}ms:0.0:up"),
            format!("{back_ms}ms:0.1:up"),
        ]);
        spec.give_up_ns = 500_000_000;
        spec.traffic.wait_ns = 2_000_000_000;
        let outcome = run(&spec);
        outcome.assert_kept();
        if !lost {
            outcome.assert_clean();
            continue;
        }
        for report in &outcome.senders {
            let fault = report.fault.expect("no path, no sender");
            assert_eq!(fault.kind, FaultKind::PeerLost, "{outcome}");
            assert!(report.ended_ns - outcome.began_ns >= 502_000_000, "{outcome}");
        }
    }
}

#[test]
fn all_paths_down_ends_every_wait_and_names_the_tickets() {
    let mut spec = steady(&["2ms:0.0:down".into(), "2ms:0.1:down".into()]);
    spec.warps = 3;
    spec.log_depth = 2;
    spec.traffic.wait_ns = 3_000_000_000;
    let outcome = run(&spec);
    outcome.assert_kept();
    for report in outcome.senders.iter().chain(&outcome.receivers) {
        let fault =
            report.fault.unwrap_or_else(|| panic!("{} ended well without a path\n{outcome}", report.stream));
        assert!(matches!(fault.kind, FaultKind::PeerLost | FaultKind::Overdue), "{fault:?}\n{outcome}");
        if is_final(&fault) {
            assert!(fault.unfinished > 0, "{fault:?}\n{outcome}");
            let until = outcome.began_ns + 2_000_000 + spec.give_up_ns + 400_000_000;
            assert!(report.ended_ns < until, "{} held until {}\n{outcome}", report.stream, report.ended_ns);
        }
    }
    assert!(outcome.ended_with(FaultKind::PeerLost) >= outcome.senders.len(), "{outcome}");
}

#[test]
fn give_up_zero_reports_at_once() {
    let mut spec = steady(&["2ms:0.0:down".into(), "2ms:0.1:down".into()]);
    spec.give_up_ns = 0;
    spec.traffic.wait_ns = 1_000_000_000;
    let outcome = run(&spec);
    outcome.assert_kept();
    for report in &outcome.senders {
        assert_eq!(report.fault.map(|fault| fault.kind), Some(FaultKind::PeerLost), "{outcome}");
        assert!(report.ended_ns - outcome.began_ns < 30_000_000, "{outcome}");
    }
}

/// Fault tolerance off: the first error completion is the answer, with the syndrome the NIC gave.
#[test]
fn without_fault_tolerance_the_error_names_peer_and_syndrome() {
    let mut spec = steady(&["2ms:0.0:blackhole-tx".into()]);
    spec.ft_off = true;
    spec.both_ways = false;
    spec.suspect_ns = 20_000_000_000;
    spec.traffic.wait_ns = 20_000_000_000;
    let outcome = run(&spec);
    outcome.assert_kept();
    let fault = outcome.senders[0].fault.expect("nothing gets through");
    assert_eq!(
        (fault.kind, fault.peer, fault.syndrome & 0xff),
        (FaultKind::Completion, 1, 0x15),
        "{outcome}"
    );
    assert_eq!(outcome.failovers(), 0);
}
