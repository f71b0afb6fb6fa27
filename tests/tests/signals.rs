//! Signals of kinds 2 and 3 on streams, across switches with and without truth: each counted once.

use shunt_tests::outcome::Outcome;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn spec(seed: u64, signals: u32, faults: &[&str]) -> RunSpec {
    RunSpec {
        seed,
        both_ways: true,
        recovery_ns: 5_000_000,
        traffic: Traffic { messages: 300, pace_ns: 20_000, signals, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

const FAULTS: [&[&str]; 6] = [
    &["2ms:0.0:down"],
    &["2ms:1.0:down", "6ms:1.0:up"],
    &["2ms:0.0:drop-acks=12ms"],
    &["2ms:1.0:drop-acks=12ms"],
    &["2ms:0.0:blackhole-tx", "40ms:0.1:blackhole-rx=3ms"],
    // NVIDIA/nccl#2383: the receiver applies an atomic, its answer is lost, the retries run out.
    &["2ms:0.0:lost-atomic-response"],
];

fn clean(spec: &RunSpec) -> Outcome {
    let outcome = run(spec);
    outcome.assert_clean();
    outcome
}

#[test]
fn adds_are_applied_once_where_the_receiver_can_be_asked() {
    for signals in [2, 3] {
        for faults in FAULTS {
            for seed in 0..2 {
                let outcome = clean(&spec(seed, signals, faults));
                assert!(outcome.failovers() >= 1, "{faults:?}\n{outcome}");
                assert_eq!(outcome.resolved, 0, "truth leaves nothing open: {faults:?}\n{outcome}");
            }
        }
    }
}

/// The receiver's NIC counts nothing that can be trusted: brackets decide nearly always, bare adds are asked about.
#[test]
fn adds_without_truth_are_bracketed_or_asked_about() {
    let mut resolved = [0, 0];
    for signals in [2, 3] {
        for faults in FAULTS {
            for seed in 0..3 {
                let outcome = clean(&RunSpec { rmsn_cleared: true, ..spec(seed, signals, faults) });
                assert!(outcome.failovers() >= 1, "{faults:?}\n{outcome}");
                resolved[signals as usize - 2] += outcome.resolved;
            }
        }
    }
    assert!(resolved[1] > resolved[0], "{} bracketed, {} bare adds were uncertain", resolved[0], resolved[1]);
}

#[test]
fn a_second_fault_forgets_nothing_of_the_ledger() {
    for signals in [2, 3] {
        for step in 0..12u64 {
            let second = format!("{}us:0.1:down", 2_000 + 80 * step);
            let mut spec = spec(step, signals, &["2ms:0.0:down", &second]);
            spec.rmsn_cleared = step % 2 == 0;
            spec.rails = 3;
            spec.backups = 7;
            clean(&spec);
        }
    }
}

/// What is posted of a bracket: three tickets, however many warps share the ring.
#[test]
fn brackets_of_many_warps_on_a_short_ring() {
    for seed in 0..4 {
        let faults = ["1ms:0.0:drop-acks=12ms", "30ms:1.0:down"];
        let mut spec = spec(seed, 2, &faults);
        spec.rmsn_cleared = seed % 2 == 0;
        spec.warps = 4;
        spec.log_depth = 3;
        spec.traffic.pace_ns = 0;
        clean(&spec);
    }
}
