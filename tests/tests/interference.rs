//! A warp stopped between any two of its accesses: the points between reserve and doorbell, and inside a switch.

use std::collections::BTreeSet;
use std::rc::Rc;

use shunt_tests::cluster::Cluster;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::sim::Interference;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// Points of a switch at which somebody is stopped for a moment.
const STOPS: usize = 80;
/// Points at which an owner is stopped for long; each costs seconds of virtual time.
const RETURNS: usize = 6;

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
            backoff_ns: 200_000,
            ..shunt_host::agent::AgentOptions::default()
        },
        recovery_ns: 1_000_000,
        ..RunSpec::default()
    }
}

fn disturbed(spec: &RunSpec, interference: Interference) -> (Outcome, Rc<Interference>) {
    let mut cluster = Cluster::start(spec);
    let interference = Rc::new(interference);
    cluster.interference = interference.clone();
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    outcome.assert_clean();
    (outcome, interference)
}

/// Stops the actor that makes access number `at` for `ns`.
fn stopped(spec: &RunSpec, at: u64, ns: u64) {
    disturbed(spec, Interference::stop_at(at, ns));
}

/// Asleep across one switch.
#[test]
fn a_warp_stopped_for_three_milliseconds_anywhere() {
    for step in 0..150 {
        stopped(&spec(step), step * 37, 3_000_000);
    }
}

/// Asleep across a switch, a revival and a switch-back: the path it knew was recycled (F8, F11).
#[test]
fn a_warp_stopped_for_thirty_milliseconds_anywhere() {
    for step in 0..100 {
        stopped(&spec(step), step * 53 + 11, 30_000_000);
    }
}

/// Accesses made at the very instants at which a switch moves: between them lie its steps.
fn accesses_of_switches(spec: &RunSpec) -> Vec<u64> {
    let (outcome, recorded) = disturbed(spec, Interference::recording());
    let stamps: BTreeSet<u64> = outcome.records.iter().flat_map(|(_, record)| record.stamps).collect();
    let times = recorded.times.borrow();
    let times = times.as_ref().expect("this run records");
    (0..times.len()).filter(|number| stamps.contains(&times[*number])).map(|number| number as u64).collect()
}

/// The owner of a switch, or another that gets in its way, stopped between two accesses of any step, for a moment.
#[test]
fn a_switch_stopped_at_each_of_its_accesses() {
    let mut spec = spec(7);
    spec.warps = 10;
    spec.agent.looks = 0;
    spec.traffic.pace_ns = 9_000;
    let accesses = accesses_of_switches(&spec);
    assert!(accesses.len() > 500, "only {} accesses", accesses.len());
    // A moment; and longer than a path rests before it is recreated, so that the other direction goes ahead.
    for (number, at) in accesses.iter().step_by(accesses.len().div_ceil(STOPS)).enumerate() {
        stopped(&spec, *at, if number % 2 == 0 { 40_000 } else { 6_000_000 });
    }
}

/// Its owner gone for seconds, within its lease: everybody waits for it. Longer than its lease: scenario
/// `owner_back_after_its_lease`.
#[test]
fn an_owner_that_comes_back_within_its_lease() {
    let mut spec = spec(8);
    spec.agent.looks = 0;
    let accesses = accesses_of_switches(&spec);
    for at in accesses.iter().step_by(accesses.len().div_ceil(RETURNS)) {
        stopped(&spec, *at, 2_500_000_000);
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
