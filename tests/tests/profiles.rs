//! Jobs on every kind of device: the same promises, or the weaker row of the README's table.

use shunt_layout::state::{OrderPolicy, SwitchKind};
use shunt_soft_nic::profile::PROFILES;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// Devices on which signals go as atomics: they keep no order, or do not say that they do.
const UNORDERED: [&str; 2] = ["cx5", "ib-ar"];
/// Devices whose count does not outlive 2ERR: the ledger cuts.
const WITHOUT_TRUTH: [&str; 1] = ["cx5"];

fn on(profile: &str, signals: u32, faults: &[&str]) -> Outcome {
    let order = if UNORDERED.contains(&profile) { OrderPolicy::Unordered } else { OrderPolicy::Strict };
    run(&RunSpec {
        profile: profile.into(),
        ordering: order as u32,
        both_ways: true,
        channels: 2,
        traffic: Traffic { messages: 300, pace_ns: 40_000, signals, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    })
}

#[test]
fn every_device_survives_a_port_and_lost_acknowledgements() {
    for profile in PROFILES {
        for signals in [1, 2] {
            for fault in ["3ms:0.0:down", "3ms:1.0:drop-acks"] {
                let outcome = on(profile.name, signals, &[fault]);
                let said = format!("{} signals {signals} {fault}", profile.name);
                assert!(outcome.wrongs().is_empty(), "{said}: {:?}", outcome.wrongs());
                outcome.assert_exercised();
                assert!(outcome.failovers() > 0, "{said}: nothing switched");
                let by_ledger = outcome.of_kind(SwitchKind::Failover).any(|record| record.ledger != 0);
                assert_eq!(by_ledger, WITHOUT_TRUTH.contains(&profile.name), "{said}: cut by ledger");
            }
        }
    }
}
