//! The oracle against NICs that break the promises on purpose: each sabotage must be caught.

use shunt_tests::oracle::Kind;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn sabotaged(kind: &str) -> shunt_tests::outcome::Outcome {
    let spec = RunSpec {
        traffic: Traffic { messages: 300, pace_ns: 20_000, ..Traffic::default() },
        faults: vec![format!("2ms:1.0:{kind}").parse().expect("a fault")],
        ..RunSpec::default()
    };
    let outcome = run(&spec);
    outcome.assert_exercised();
    outcome
}

#[test]
fn a_flipped_byte_is_caught() {
    let outcome = sabotaged("corrupt");
    assert!(outcome.oracle.count(Kind::Corrupt) > 0, "{}\n{outcome}", outcome.oracle.describe());
}

#[test]
fn a_doubled_signal_is_caught() {
    let outcome = sabotaged("double-signal");
    assert!(outcome.oracle.count(Kind::Duplicate) > 0, "{}\n{outcome}", outcome.oracle.describe());
}

#[test]
fn a_put_behind_its_signal_is_caught() {
    let outcome = sabotaged("swap-signal");
    let caught = outcome.oracle.count(Kind::Order) + outcome.oracle.count(Kind::Ghost);
    assert!(caught > 0, "{}\n{outcome}", outcome.oracle.describe());
}
