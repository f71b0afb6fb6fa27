//! Backups that the agents make once the PEs are up: bring-up returns when the first paths are connected.

use shunt_tests::outcome::Outcome;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

const MS: u64 = 1_000_000;

/// Two rails, four paths of which three are made later; traffic both ways for 300 ms.
fn later(faults: &[String]) -> RunSpec {
    RunSpec {
        backups: 3,
        backups_later: true,
        both_ways: true,
        traffic: Traffic { messages: 300, pace_ns: MS, ..Traffic::default() },
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

#[test]
fn a_backup_made_later_takes_over() {
    let outcome = clean(&later(&["100ms:0.0:down".into()]));
    assert!(outcome.records.iter().any(|(_, record)| record.to != 0), "{outcome}");
}

#[test]
fn a_port_that_fails_before_there_is_a_backup_is_waited_out() {
    // While nothing is made, while halves are made, while they are connected, while they are probed.
    for at_us in [0, 50, 150, 250, 400, 700, 1_000, 1_700, 2_500, 4_000] {
        for pe in 0..2 {
            let outcome = clean(&later(&[format!("{at_us}us:{pe}.0:down")]));
            assert!(outcome.records.iter().any(|(_, record)| record.to != 0), "{at_us} us\n{outcome}");
        }
    }
}

#[test]
fn an_agent_that_dies_while_it_makes_backups_leaves_the_rest_to_the_next() {
    for at_us in [0, 50, 150, 250, 400, 700, 1_000, 1_700, 2_500, 4_000] {
        for pe in 0..2 {
            let down = format!("{at_us}us:{pe}:agent-restart");
            let outcome = clean(&later(&[down, "150ms:0.0:down".into()]));
            assert!(outcome.records.iter().any(|(_, record)| record.to != 0), "{at_us} us\n{outcome}");
        }
    }
}
