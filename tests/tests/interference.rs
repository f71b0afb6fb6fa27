//! A warp stopped between any two of its accesses: the points between reserve and doorbell, and inside a switch.

use shunt_tests::cluster::Cluster;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::sim::Interference;
use shunt_tests::spec::RunSpec;
use shunt_tests::workload::Traffic;

fn spec(seed: u64) -> RunSpec {
    RunSpec {
        seed,
        both_ways: true,
        warps: 3,
        log_depth: 2,
        traffic: Traffic { messages: 40, slots: 4, pace_ns: 5_000, credit_lag: 1, ..Traffic::default() },
        faults: ["150us:0.0:down", "4ms:0.0:up"]
            .iter()
            .map(|fault| fault.parse().expect("a fault"))
            .collect(),
        agent: shunt_host::agent::AgentOptions {
            lifetime_ns: 1_000_000,
            probe_ns: 100_000,
            ..shunt_host::agent::AgentOptions::default()
        },
        recovery_ns: 1_000_000,
        ..RunSpec::default()
    }
}

/// Stops whoever makes access number `at` for `ns`.
fn stopped(at: u64, ns: u64) {
    let spec = spec(at);
    let mut cluster = Cluster::start(&spec);
    cluster.interference = std::rc::Rc::new(Interference::stop_at(at, ns));
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    finish(&cluster, streams).assert_clean();
}

/// Asleep across one switch.
#[test]
fn a_warp_stopped_for_three_milliseconds_anywhere() {
    for step in 0..150 {
        stopped(step * 37, 3_000_000);
    }
}

/// Asleep across a switch, a revival and a switch-back: the path it knew was recycled (F8, F11).
#[test]
fn a_warp_stopped_for_thirty_milliseconds_anywhere() {
    for step in 0..100 {
        stopped(step * 53 + 11, 30_000_000);
    }
}

#[test]
fn everybody_gets_in_between_everywhere() {
    for seed in 0..40 {
        let mut spec = spec(seed);
        spec.interference = 16;
        let outcome = shunt_tests::run::run(&spec);
        outcome.assert_clean();
    }
}
