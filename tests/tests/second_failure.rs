//! A second failure at every instant of a switch: invariant 10, F6.

use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// Three rails, so that a third path is left when two have failed.
fn twice(seed: u64, first: &str, second: &str) -> RunSpec {
    RunSpec {
        seed,
        rails: 3,
        backups: 7,
        both_ways: true,
        traffic: Traffic { messages: 60, slots: 16, pace_ns: 15_000, ..Traffic::default() },
        faults: [first, second].iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// Every 20 us over 2 ms after the first fault; failovers of each run.
fn sweep(first: &str, second: &str) -> Vec<usize> {
    let once = |step: u64| {
        let at = 200 + 20 * step;
        let outcome = run(&twice(step, &format!("200us:{first}"), &format!("{at}us:{second}")));
        outcome.assert_clean();
        outcome.failovers()
    };
    (0..100).map(once).collect()
}

/// Every run left its primary, and some left the backup as well.
fn twice_each(failovers: &[usize]) {
    assert!(failovers.iter().all(|count| *count >= 2), "{failovers:?}");
    assert!(failovers.iter().any(|count| *count >= 4), "{failovers:?}");
}

#[test]
fn the_backup_port_goes_down_at_the_sender() {
    twice_each(&sweep("0.0:down", "0.1:down"));
}

#[test]
fn the_backup_port_goes_down_at_the_receiver() {
    twice_each(&sweep("0.0:down", "1.1:down"));
}

#[test]
fn the_backup_goes_silent() {
    twice_each(&sweep("1.0:down", "0.1:blackhole-tx"));
}

#[test]
fn the_acks_of_the_backup_are_lost() {
    twice_each(&sweep("1.0:down", "1.1:drop-acks"));
}

#[test]
fn the_primary_comes_back_in_the_middle() {
    let failovers = sweep("0.0:down", "0.0:up");
    assert!(failovers.iter().any(|count| *count >= 1), "{failovers:?}");
}
