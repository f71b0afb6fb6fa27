//! Without truth: NICs whose count is cleared by 2ERR, so the signal words decide. Rules 12 and 13, H2.

use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::workload::Traffic;

fn blind(seed: u64, faults: &[&str]) -> RunSpec {
    RunSpec {
        seed,
        both_ways: true,
        rmsn_cleared: true,
        traffic: Traffic { messages: 300, pace_ns: 20_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

#[test]
fn a_count_that_2err_clears_is_not_believed_and_the_ledger_serves() {
    for fault in ["0.0:down", "1.0:down", "0.0:blackhole-tx", "1.0:drop-acks", "0.0:drop-acks"] {
        for seed in 0..4 {
            let outcome = run(&blind(seed, &[&format!("2ms:{fault}")]));
            outcome.assert_clean();
            assert!(outcome.failovers() >= 1, "{outcome}");
            assert!(outcome.records.iter().all(|(_, record)| record.ledger == 1), "{fault}\n{outcome}");
        }
    }
}

#[test]
fn the_path_the_ledger_is_read_over_fails_too() {
    for step in 0..40u64 {
        let second = format!("{}us:0.1:down", 2_000 + 50 * step);
        let mut spec = blind(step, &["2ms:0.0:down", &second]);
        spec.rails = 3;
        spec.backups = 7;
        let outcome = run(&spec);
        outcome.assert_clean();
    }
}
