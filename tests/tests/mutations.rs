//! What the protocol rests on, taken away: the oracle must notice. And lies about the truth: the library must.
//!
//! Invariants 2, 3, 4 and 12 have their mutations here, made by NICs that misbehave, so the library under test is the
//! one that ships.

use shunt_layout::mutant::Mutant;
use shunt_layout::state::SwitchKind;
use shunt_tests::cluster::Cluster;
use shunt_tests::lies::{Lie, Lies};
use shunt_tests::mutations::TABLE;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::scenarios;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// Dense traffic both ways; a fault in the middle of it.
fn dense(seed: u64, faults: &[&str]) -> RunSpec {
    RunSpec {
        seed,
        both_ways: true,
        warps: 2,
        give_up_ns: 100_000_000,
        traffic: Traffic {
            messages: 3_000,
            slots: 4,
            credit_lag: 0,
            wait_ns: 1_000_000_000,
            ..Traffic::default()
        },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// A window so wide that the sender never waits for what is late.
fn steady() -> Traffic {
    Traffic { messages: 700, slots: 100, pace_ns: 15_000, wait_ns: 1_000_000_000, ..Traffic::default() }
}

/// A run on NICs that begin to lie once they are up.
fn lying(spec: &RunSpec, lie: Lie) -> Outcome {
    let lies = Lies::default();
    let cluster = Cluster::start_lying(spec, lies.clone());
    lies.tell(lie);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    finish(&cluster, streams)
}

/// Broken promises over a few seeds, with and without the lie.
fn compare(lie: Lie, faults: &[&str]) -> (usize, usize) {
    let broken = |lie| (0..6).map(|seed| lying(&dense(seed, faults), lie).oracle.total()).sum();
    (broken(Lie::None), broken(lie))
}

#[test]
fn without_a_fence_ghosts_are_seen() {
    let (honest, lying) = compare(Lie::NoFence, &["200us:0.0:delay=3ms", "5ms:0.0:down"]);
    assert!(honest == 0 && lying > 0, "{honest} broken promises with a fence, {lying} without");
}

#[test]
fn a_truth_that_is_too_low_repeats_what_was_executed() {
    let (honest, lying) = compare(Lie::Behind, &["1ms:0.0:drop-acks"]);
    assert!(honest == 0 && lying > 0, "{honest} broken promises with the truth, {lying} with one less");
}

#[test]
fn a_truth_that_is_too_high_loses_what_was_not_executed() {
    let (honest, lying) = compare(Lie::Ahead, &["1ms:0.0:blackhole-tx"]);
    assert!(honest == 0 && lying > 0, "{honest} broken promises with the truth, {lying} with one more");
}

#[test]
fn without_a_flush_a_signal_overtakes_its_put() {
    let broken = |reads_pass_writes| {
        let once = |seed| {
            let faults = ["0ns:1.0:placement-delay=900us", "3ms:0.0:down"];
            let spec = RunSpec { reads_pass_writes, traffic: steady(), ..dense(seed, &faults) };
            lying(&spec, Lie::None).oracle.total()
        };
        (0..6).map(once).sum::<usize>()
    };
    let (flushed, not) = (broken(false), broken(true));
    assert!(flushed == 0 && not > 0, "{flushed} broken promises with a flush, {not} without");
}

#[test]
fn without_a_flush_a_switch_back_is_overtaken() {
    let broken = |reads_pass_writes| {
        let once = |seed| {
            let faults = ["0ns:1.1:placement-delay=900us", "1ms:0.0:down", "2ms:0.0:up"];
            let traffic = steady();
            let mut spec =
                RunSpec { reads_pass_writes, recovery_ns: 1_000_000, traffic, ..dense(seed, &faults) };
            spec.agent.lifetime_ns = 1_000_000;
            spec.agent.probe_ns = 100_000;
            spec.agent.backoff_ns = 200_000;
            let outcome = lying(&spec, Lie::None);
            let back = outcome.of_kind(SwitchKind::SwitchBack).map(|record| record.stamps[5]).min();
            assert!(
                back.is_some_and(|back| back < outcome.began_ns + 8_000_000),
                "too late to matter\n{outcome}"
            );
            outcome.oracle.total()
        };
        (0..6).map(once).sum::<usize>()
    };
    let (flushed, not) = (broken(false), broken(true));
    assert!(flushed == 0 && not > 0, "{flushed} broken promises with a flush, {not} without");
}

/// Invariant 12: what can be refuted is refuted, and the run goes on without it or ends with a typed fault.
#[test]
fn a_truth_that_can_be_refuted_is_not_believed() {
    for lie in [Lie::CountZero, Lie::StillRts] {
        for fault in ["1ms:0.0:down", "1ms:0.0:blackhole-tx", "1ms:1.0:drop-acks"] {
            let outcome = lying(&dense(3, &[fault]), lie);
            outcome.assert_kept();
            if lie == Lie::CountZero {
                outcome.assert_clean();
            }
        }
    }
}

/// The start-up proof finds NICs that always lie about their count, and does without it: the ledger serves.
#[test]
fn the_start_up_proof_finds_a_count_that_is_always_wrong() {
    for lie in [Lie::Behind, Lie::Ahead, Lie::CountBehind, Lie::CountAhead, Lie::CountZero] {
        let spec = dense(4, &["1ms:0.0:down"]);
        let lies = Lies::default();
        lies.tell(lie);
        let cluster = Cluster::start_lying(&spec, lies);
        for pe in 0..spec.pes {
            assert!(cluster.pe(pe).rails().iter().all(|rail| !rail.truth_holds), "{lie:?} was believed");
        }
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        outcome.assert_clean();
        assert!(outcome.records.iter().all(|(_, record)| record.ledger == 1), "{lie:?}\n{outcome}");
    }
}

#[test]
fn every_break_is_caught_somewhere() {
    for mutant in Mutant::ALL {
        assert!(TABLE.iter().any(|row| row.mutant == *mutant), "{} is in no row", mutant.name());
    }
}

#[test]
fn every_row_names_scenarios() {
    for row in TABLE {
        assert!(!row.scenarios.is_empty(), "{} has no scenario", row.mutant.name());
        for name in row.scenarios {
            assert!(scenarios::named(name).is_some(), "{}: no scenario is called {name}", row.mutant.name());
        }
    }
}
