//! Rings that are small, full or wrap: F7, rules 2, 5 and 14, invariant 11.

use shunt_tests::cluster::Cluster;
use shunt_tests::run::{finish, run, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn with(faults: &[&str]) -> RunSpec {
    RunSpec {
        both_ways: true,
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// F7: rings of four and many warps, so that a switch nearly always finds warps that wait for room.
#[test]
fn a_ring_of_four_is_full_when_the_switch_closes_it() {
    for (seed, puts) in [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3)] {
        let mut spec = with(&["300us:0.0:down", "20ms:0.0:up"]);
        spec.seed = seed;
        spec.log_depth = 2;
        spec.warps = 8;
        spec.traffic = Traffic { messages: 200, puts, pace_ns: 0, ..Traffic::default() };
        let outcome = run(&spec);
        outcome.assert_clean();
        outcome.assert_exercised();
        assert!(outcome.failovers() >= 1, "{outcome}");
    }
}

#[test]
fn a_ring_of_two_with_groups_as_deep_as_the_ring() {
    for fault in ["300us:0.0:down", "300us:1.0:down", "300us:0.0:blackhole-tx", "300us:1.0:drop-acks"] {
        let mut spec = with(&[fault]);
        spec.log_depth = 1;
        spec.warps = 4;
        spec.traffic = Traffic { messages: 100, puts: 1, ..Traffic::default() };
        let outcome = run(&spec);
        outcome.assert_clean();
        assert!(outcome.failovers() >= 1, "{outcome}");
    }
}

/// More than 65536 WQEs on one path: the NIC's 16-bit counters wrap, one failover lies close to the wrap.
#[test]
fn sixteen_bit_counters_wrap() {
    let mut spec = with(&[]);
    spec.both_ways = false;
    spec.log_depth = 7;
    spec.traffic = Traffic {
        messages: 18_000,
        slots: 64,
        slot_bytes: 32,
        puts: 3,
        credit_lag: 30,
        ..Traffic::default()
    };
    let cluster = Cluster::start(&spec);
    let streams = start_streams(&cluster);
    // Four WQEs a message: the wrap is at message 16384.
    let signal = cluster.streams()[0].signal();
    while cluster.watched(1, signal).last < 16_383 && !streams.done() {
        cluster.sim.run_for(5_000);
    }
    let now = cluster.sim.now() - cluster.began_ns();
    cluster.inject(&format!("{now}ns:0.0:down").parse().expect("a fault"));
    let outcome = finish(&cluster, streams);
    outcome.assert_clean();
    let (_, first) = outcome.records.iter().find(|(pe, _)| *pe == 0).expect("PE 0 switched");
    assert!(first.done_at_close > 65_000 && first.journal_end < 66_500, "close to the wrap\n{outcome}");
}

/// Tickets pass 2^32 while a failover is under way.
#[test]
fn tickets_pass_two_to_the_thirty_two() {
    for lead in [3, 40, 150] {
        let mut spec = with(&[]);
        spec.traffic = Traffic { messages: 300, pace_ns: 10_000, ..Traffic::default() };
        let cluster = Cluster::start(&spec);
        for (pe, peer) in [(0, 1), (1, 0)] {
            cluster.preset_tickets(pe, peer, 0, (1 << 32) - lead, 0);
        }
        cluster.inject(&"500us:0.0:down".parse().expect("a fault"));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        outcome.assert_clean();
        assert!(outcome.failovers() >= 2, "{outcome}");
    }
}

/// The generation has eight bits: it wraps between the failovers of this run.
#[test]
fn the_generation_wraps() {
    for generation in [255, 254, 253, 252] {
        let mut spec = with(&["3ms:0.0:down", "40ms:0.0:up", "200ms:1.0:down", "300ms:1.0:up"]);
        spec.recovery_ns = 5_000_000;
        spec.traffic = Traffic { messages: 3_000, pace_ns: 200_000, ..Traffic::default() };
        let cluster = Cluster::start(&spec);
        for (pe, peer) in [(0, 1), (1, 0)] {
            cluster.preset_tickets(pe, peer, 0, 17, generation);
        }
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        outcome.assert_clean();
        assert_eq!((outcome.failovers(), outcome.switchbacks()), (4, 4), "{outcome}");
    }
}
