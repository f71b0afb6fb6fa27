//! Packets that are still in the network when the path is given up: invariant 4, F2, F9.

use shunt_layout::state::CauseKind;
use shunt_tests::late::{Between, DELAYS, late_puts};
use shunt_tests::outcome::Outcome;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// Dense traffic, small windows: slots are reused as fast as credit allows.
fn dense(seed: u64, faults: &[String]) -> RunSpec {
    RunSpec {
        seed,
        both_ways: true,
        warps: 2,
        traffic: Traffic { messages: 4_000, slots: 4, credit_lag: 0, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

fn clean(spec: &RunSpec) -> Outcome {
    let outcome = run(spec);
    outcome.assert_clean();
    outcome.assert_exercised();
    outcome
}

/// What the port sent before it went down arrives milliseconds after the backup was entered.
#[test]
fn packets_on_their_way_when_the_port_goes_down() {
    for (seed, delay) in [(1, "300us"), (2, "700us"), (3, "1ms"), (4, "2ms"), (5, "5ms")] {
        for place in ["0.0", "1.0"] {
            let faults = [format!("200us:{place}:delay={delay}"), format!("3ms:{place}:down")];
            assert!(clean(&dense(seed, &faults)).failovers() >= 1);
        }
    }
}

/// A path that is only slow: suspected by the deadline while all its packets are on their way.
#[test]
fn a_deadline_is_no_fence() {
    for (seed, delay) in [(1, "2500us"), (2, "3ms"), (3, "7ms"), (4, "15ms")] {
        let mut spec = dense(seed, &[format!("200us:0.0:delay={delay}")]);
        spec.suspect_ns = 2_000_000;
        let outcome = clean(&spec);
        let overdue = outcome.records.iter().any(|(_, record)| record.cause == CauseKind::Overdue as u32);
        assert!(overdue, "{outcome}");
    }
}

/// ACKs are late, not lost: everything was executed, nothing is known.
#[test]
fn late_acks_of_a_path_that_was_left() {
    for (seed, delay) in [(1, "2500us"), (2, "6ms"), (3, "12ms")] {
        let mut spec = dense(seed, &[format!("200us:1.0:delay={delay}/3ms")]);
        spec.suspect_ns = 2_000_000;
        clean(&spec);
    }
}

/// Doubled and overtaken packets of an incarnation that is gone.
#[test]
fn doubles_across_a_revival() {
    for seed in 0..6 {
        let faults =
            ["500us:0.0:dup=0.5", "500us:0.0:delay=800us", "4ms:0.0:down", "5ms:0.0:up", "20ms:1.0:down"];
        let mut spec = dense(seed, &faults.map(String::from));
        spec.agent.lifetime_ns = 5_000_000;
        spec.agent.probe_ns = 200_000;
        spec.agent.backoff_ns = 200_000;
        spec.recovery_ns = 2_000_000;
        spec.traffic.messages = 400;
        spec.traffic.pace_ns = 60_000;
        clean(&spec);
    }
}

/// F9: the receiver's firmware is silent, its data path is not, and packets live long. Our half is proven in ERR; only
/// the packet lifetime says when the last of them is gone.
#[test]
fn packets_outlive_a_receiver_that_does_not_answer_commands() {
    for (seed, delay) in [(1, "25ms"), (2, "32ms"), (3, "40ms"), (4, "47ms")] {
        let faults = ["100us:1.0:fw-timeout=60ms".to_owned(), format!("200us:0.0:delay={delay}/4ms")];
        let mut spec = dense(seed, &faults);
        spec.both_ways = false;
        spec.suspect_ns = 2_000_000;
        // A wide window, so that plenty is on its way.
        spec.traffic =
            Traffic { messages: 1_500, slots: 64, pace_ns: 20_000, credit_lag: 0, ..Traffic::default() };
        let outcome = clean(&spec);
        let by_ledger = outcome.records.iter().any(|(pe, record)| *pe == 0 && record.ledger == 1);
        assert!(by_ledger, "{outcome}");
    }
}

/// Packets 2 s, 20 s, 59 s and 60 s late, against the strict fence, against the fence by time with a packet lifetime
/// that they outlive, and against none: the same seeds.
/// docs/FAILOVER.md says what the fence by time does not promise.
#[test]
fn late_packets_are_visible_only_where_nothing_stands_between() {
    let mut seen = [0; 3];
    for (place, between) in [Between::Strict, Between::Time, Between::Nothing].into_iter().enumerate() {
        for delay in DELAYS {
            let (mut arrived, mut visible) = (0, 0);
            for seed in 0..4 {
                let late = late_puts(seed, delay, between);
                assert!(late.0 > 0, "nothing was late: {between:?} {delay}, seed {seed}");
                (arrived, visible) = (arrived + late.0, visible + late.1);
            }
            println!("{between:?} {delay}: {arrived} packets came late, {visible} words hold an old value");
            seen[place] += visible;
        }
    }
    assert_eq!(seen[0], 0, "the strict fence lets nothing through");
    assert!(seen[1] > 0 && seen[2] > 0, "{seen:?}: the test sees nothing where there is something to see");
}
