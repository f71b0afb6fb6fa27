//! The way back: rules 17 to 19, and F1 on the return.

use shunt_host::agent::health::Health;
use shunt_host::agent::words::Place;
use shunt_layout::state::{CauseKind, PathIdentity, SwitchKind, SwitchRecord};
use shunt_tests::cluster::Cluster;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, run, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// `ms` milliseconds of steady traffic in both directions.
fn steady(ms: u64, faults: &[&str]) -> RunSpec {
    RunSpec {
        both_ways: true,
        traffic: Traffic { messages: ms * 5, pace_ns: 200_000, ..Traffic::default() },
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
fn the_primary_is_used_again_after_the_recovery_window() {
    let spec = steady(300, &["5ms:0.0:down", "30ms:0.0:up"]);
    let outcome = clean(&spec);
    assert_eq!(outcome.switchbacks(), 2, "one a direction\n{outcome}");
    for record in outcome.of_kind(SwitchKind::SwitchBack) {
        assert_eq!((record.from, record.to), (1, 0), "{outcome}");
        let since_up = record.stamps[5] - outcome.began_ns - 30_000_000;
        assert!(since_up >= spec.recovery_ns, "went back {since_up} ns after the port came up\n{outcome}");
        assert!(record.entered.incarnation > record.left.incarnation, "the primary was recreated\n{outcome}");
    }
}

#[test]
fn nothing_goes_back_before_the_port_is_up() {
    let outcome = clean(&steady(200, &["5ms:0.0:down"]));
    assert_eq!(outcome.switchbacks(), 0, "{outcome}");
}

/// F1 on the return: the backup's NIC places late, the primary's at once.
#[test]
fn placement_delay_across_a_switch_back() {
    for delay in ["50us", "700us", "5ms"] {
        for pe in ["0", "1"] {
            let slow = format!("0ns:{pe}.1:placement-delay={delay}");
            let outcome = clean(&steady(300, &[&slow, "5ms:0.0:down", "30ms:0.0:up"]));
            assert!(outcome.switchbacks() >= 1, "{outcome}");
        }
    }
}

/// Dense traffic that goes back within a few milliseconds: short lifetime, short window.
fn brisk(seed: u64, faults: &[&str]) -> RunSpec {
    let mut spec = steady(0, faults);
    spec.seed = seed;
    spec.traffic = Traffic { messages: 900, pace_ns: 20_000, ..Traffic::default() };
    spec.agent.lifetime_ns = 1_000_000;
    spec.agent.probe_ns = 200_000;
    spec.agent.backoff_ns = 200_000;
    spec.recovery_ns = 2_000_000;
    spec
}

const THERE_AND_BACK: [&str; 2] = ["1ms:0.0:down", "3ms:0.0:up"];

#[test]
fn the_backup_fails_while_it_is_drained() {
    // The drain begins somewhere after the port is up, the lifetime and the window: find it, then hit it.
    let plain = clean(&brisk(1, &THERE_AND_BACK));
    let record = plain.of_kind(SwitchKind::SwitchBack).next().expect("it goes back");
    let drained = record.stamps[1] - plain.began_ns;
    let mut failed_drains = 0;
    for offset in [-40_000i64, -5_000, -2_000, 0, 1_000, 2_000, 3_000, 4_000, 5_000, 8_000, 12_000, 40_000] {
        for fault in ["0.1:down", "1.1:down", "0.1:blackhole-tx", "1.1:blackhole-tx", "1.1:drop-acks"] {
            let at = drained.saturating_add_signed(offset);
            let second = format!("{at}ns:{fault}");
            let outcome = run(&brisk(1, &[THERE_AND_BACK[0], THERE_AND_BACK[1], &second]));
            outcome.assert_clean();
            failed_drains +=
                outcome.of_kind(SwitchKind::Failover).filter(|record| is_failed_drain(record)).count();
        }
    }
    assert!(failed_drains >= 5, "only {failed_drains} drains were hit");
}

/// A drain that turned into a switch: its cause is its own, or it left a backup that had failed meanwhile.
fn is_failed_drain(record: &SwitchRecord) -> bool {
    record.cause == CauseKind::DrainFailed as u32
}

#[test]
fn the_primary_fails_again_right_after_the_way_back() {
    let plain = clean(&brisk(2, &THERE_AND_BACK));
    let record = plain.of_kind(SwitchKind::SwitchBack).next().expect("it goes back");
    let opened = record.stamps[5] - plain.began_ns;
    for offset in [-30_000i64, -3_000, 0, 2_000, 10_000, 100_000] {
        let second = format!("{}ns:0.0:down", opened.saturating_add_signed(offset));
        let outcome = clean(&brisk(2, &[THERE_AND_BACK[0], THERE_AND_BACK[1], &second]));
        assert!(outcome.failovers() >= 3, "{outcome}");
    }
}

#[test]
fn a_flapping_primary_is_not_followed_at_every_flap() {
    let outcome = clean(&steady(1_500, &["5ms:0.0:flap=50ms/20"]));
    assert!(outcome.switchbacks() <= 20, "{outcome}");
    for pe in 0..2 {
        let of = |kind: SwitchKind| {
            outcome.records.iter().filter(move |(at, one)| *at == pe && one.kind == kind as u32)
        };
        let back: Vec<u64> = of(SwitchKind::SwitchBack).map(|(_, record)| record.stamps[5]).collect();
        let window_ns = outcome.spec.recovery_ns;
        assert!(
            back.windows(2).all(|two| two[1] - two[0] >= window_ns),
            "PE {pe} goes back twice a window\n{outcome}"
        );
        let left = of(SwitchKind::Failover).filter(|(_, record)| record.from == 0).count();
        assert!(left <= back.len() + 1, "PE {pe} leaves the primary only where it was\n{outcome}");
    }
    let mut last = std::collections::HashMap::new();
    for (pe, record) in &outcome.records {
        let id = &record.entered;
        let before = last.insert((*pe, id.local_rail, id.remote_rail), id.incarnation).unwrap_or(0);
        assert!(id.incarnation >= before, "an incarnation never comes back\n{outcome}");
    }
}

#[test]
fn what_the_operator_takes_out_stays_out_until_it_is_brought_back() {
    const PRIMARY: Place = Place { peer: 1, channel: 0, slot: 0 };
    for taker in [0, 1] {
        let at = Place { peer: 1 - taker, ..PRIMARY };
        let cluster = Cluster::start(&steady(900, &[]));
        let streams = start_streams(&cluster);
        cluster.sim.run_for(5_000_000);
        cluster.order(taker, move |agent, now| assert!(agent.retire(now, at), "a path that exists"));
        cluster.sim.run_for(300_000_000);
        let opened = cluster.records().len();
        assert_eq!(opened, 2, "both directions leave, none goes back: {:?}", cluster.records());
        cluster.order(taker, move |agent, now| {
            assert_eq!(agent.health(at), Some(Health::Retired));
            assert!(agent.readmit(now, at), "a path that exists");
        });
        let outcome = finish(&cluster, streams);
        outcome.assert_clean();
        // A path that works is left by a drain.
        assert_eq!((outcome.failovers(), outcome.switchbacks()), (0, 4), "{outcome}");
    }
}

/// GIDs are made again with the pair, by value: the other end is told the new one.
#[test]
fn a_primary_whose_address_changed_is_gone_back_to() {
    for end in ["0.0", "1.0"] {
        let outcome = clean(&steady(400, &[&format!("5ms:{end}:gid-change")]));
        assert_eq!(outcome.switchbacks(), 2, "{outcome}");
        let entered = outcome.of_kind(SwitchKind::SwitchBack).next().expect("it goes back").entered;
        let first = outcome.of_kind(SwitchKind::Failover).next().expect("it is left").left;
        let gids = |identity: &PathIdentity| [identity.local_gid, identity.remote_gid];
        assert_ne!(gids(&entered), gids(&first), "{outcome}");
    }
}
