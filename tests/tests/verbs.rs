//! Verbs programs through the library that makes them outlive a NIC, in virtual time, while ports and links fail.

use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;
use shunt_tests::verbs::{VerbsReport, VerbsSpec, run};

/// Requests of both ends, slow enough that a port comes back in the middle of them.
fn spec(seed: u64, faults: Vec<(u64, RailAt, FaultKind)>) -> VerbsSpec {
    VerbsSpec { requests: 300, pace_ns: 100_000, faults, ..VerbsSpec::quiet(seed) }
}

fn down(at_ns: u64, pe: u32, rail: u32) -> (u64, RailAt, FaultKind) {
    (at_ns, RailAt { pe, rail }, FaultKind::Down { for_ns: Some(3_000_000) })
}

fn clean(report: &VerbsReport) {
    assert_eq!(report.wrong(), Vec::<String>::new());
}

#[test]
fn without_a_fault_everything_comes_once_and_nothing_moves() {
    for one_queue in [false, true] {
        let report = run(&VerbsSpec { one_queue, pairs: 2, ..VerbsSpec::quiet(1) });
        clean(&report);
        assert_eq!((report.sum(|told| told.switches), report.sum(|told| told.completed)), (0, 800));
    }
}

#[test]
fn a_port_of_either_end_goes_down_and_both_directions_leave_it_and_come_back() {
    for pe in 0..2 {
        // The program needs no answers, so that it goes back though it posts atomics.
        let report = run(&spec(2, vec![down(2_000_000, pe, 0)]));
        clean(&report);
        assert_eq!((report.hits, report.sum(|told| told.completed)), (1, 600));
        assert_eq!(report.sum(|told| told.switches), 4, "each direction leaves and comes back: {report:?}");
        assert_eq!(report.sum(|told| told.at_home), 2, "{report:?}");
    }
}

#[test]
fn what_was_executed_and_not_acknowledged_is_not_executed_again() {
    let mut again = 0;
    for seed in 0..6 {
        let lost = FaultKind::DropAcks { for_ns: Some(8_000_000) };
        let mut faulty = spec(seed, vec![(1_000_000, RailAt { pe: 0, rail: 0 }, lost)]);
        faulty.pace_ns = 10_000;
        let report = run(&faulty);
        clean(&report);
        assert!(report.hits == 1 && report.sum(|told| told.switches) > 0, "{report:?}");
        again += report.sum(|told| told.replayed);
    }
    assert!(again > 0, "something was under way that was not executed");
}

#[test]
fn an_atomic_whose_answer_is_lost_ends_the_connection_where_answers_are_needed() {
    let mut lost = 0;
    for seed in 0..6 {
        let faults =
            vec![(1_000_000, RailAt { pe: 0, rail: 0 }, FaultKind::LostAtomicResponse { for_ns: None })];
        let report = run(&VerbsSpec { needs_answers: true, posts: [true, false], ..spec(seed, faults) });
        clean(&report);
        lost += report.sum(|told| told.lost);
    }
    assert!(lost > 0, "an answer was lost");
}

/// Keys of the other end's memory were told 8 ms after the last connection, and WRITEs on the backup waited for them.
#[test]
fn a_port_that_goes_down_right_after_the_connection_is_outlived_at_once() {
    let lasting = FaultKind::Down { for_ns: Some(1_000_000_000) };
    let faults = vec![(500_000, RailAt { pe: 0, rail: 0 }, lasting)];
    let report = run(&VerbsSpec { atomics: false, look_ns: 4_000, faults, ..VerbsSpec::quiet(3) });
    clean(&report);
    let gaps: Vec<u64> = report.processes.iter().flat_map(|told| told.gaps_ns.clone()).collect();
    assert!(!gaps.is_empty() && gaps.iter().all(|gap| *gap < 2_000_000), "virtual time: {gaps:?}");
}

#[test]
fn a_second_failure_during_the_replay_and_both_ports_at_once_are_outlived() {
    for second in [down(2_300_000, 1, 1), down(2_000_000, 1, 0), down(2_600_000, 0, 1)] {
        let report = run(&spec(4, vec![down(2_000_000, 0, 0), second]));
        clean(&report);
        assert_eq!((report.hits, report.sum(|told| told.completed)), (2, 600), "{report:?}");
    }
}

/// Requests stayed on a queue pair that had failed: one place held the failed queue pair of both directions, and what
/// was flushed on the one that received hid the other.
#[test]
fn both_directions_fail_at_once_on_two_queue_pairs() {
    let at = |pe| RailAt { pe, rail: 0 };
    let faults = vec![
        (2_193_879, at(0), FaultKind::Down { for_ns: Some(6_500_592) }),
        (4_641_219, at(0), FaultKind::DropAcks { for_ns: Some(3_612_600) }),
        (8_819_538, at(0), FaultKind::BlackholeRx { for_ns: Some(6_295_603) }),
        (9_151_668, at(1), FaultKind::BlackholeRx { for_ns: Some(4_899_326) }),
    ];
    let (ack_timeout, retries, pace_ns) = (9, 2, 40_000);
    let spec = VerbsSpec {
        pairs: 3,
        requests: 242,
        ack_timeout,
        retries,
        pace_ns,
        faults,
        ..VerbsSpec::quiet(7602)
    };
    let report = run(&spec);
    clean(&report);
    assert!(report.sum(|told| told.switches) >= 12, "each direction moves: {report:?}");
}

/// Neither fault ends: one end's first NIC hears no answers, the other's is down. No atomic holds a direction there.
#[test]
fn answers_lost_at_one_end_and_a_port_down_at_the_other_are_outlived_on_the_second_nics() {
    for apart_ns in [100_000, 300_000, 700_000, 3_000_000] {
        let deaf = (2_000_000, RailAt { pe: 0, rail: 0 }, FaultKind::DropAcks { for_ns: None });
        let gone = (2_000_000 + apart_ns, RailAt { pe: 1, rail: 0 }, FaultKind::Down { for_ns: None });
        let report = run(&VerbsSpec { pace_ns: 60_000, atomics: false, ..spec(9, vec![deaf, gone]) });
        clean(&report);
        assert!(report.hits == 2 && report.sum(|told| told.switches) >= 2, "{apart_ns}: {report:?}");
    }
}

#[test]
fn what_an_end_posts_outlives_its_own_nic() {
    let gone = FaultKind::NicGone { for_ns: None };
    let mut one_way = spec(5, vec![(2_000_000, RailAt { pe: 0, rail: 0 }, gone)]);
    (one_way.posts, one_way.atomics) = ([true, false], false);
    let report = run(&one_way);
    clean(&report);
    assert_eq!((report.hits, report.sum(|told| told.completed)), (1, 300), "{report:?}");
    assert!(report.sum(|told| told.switches) > 0, "{report:?}");
}

/// No completion and no event told of it before retries ran out, which takes a program's 20 and 7 half a minute.
#[test]
fn a_network_that_answers_nothing_is_left_long_before_the_retries_run_out() {
    let for_ns = Some(40_000_000);
    let kinds = [
        FaultKind::BlackholeRx { for_ns },
        FaultKind::BlackholeTx { for_ns },
        FaultKind::DropAcks { for_ns },
    ];
    for kind in kinds {
        let faulty = spec(5, vec![(2_000_000, RailAt { pe: 0, rail: 0 }, kind)]);
        let report = run(&VerbsSpec { ack_timeout: 20, retries: 7, ..faulty });
        clean(&report);
        assert_eq!((report.hits, report.sum(|told| told.completed)), (1, 600), "{kind:?}");
        assert!(report.sum(|told| told.switches) > 0 && report.took_ns < 200_000_000, "{kind:?}: {report:?}");
    }
}

/// A path that was left in silence took the answer of an atomic with it, which the NIC would have had sent again.
#[test]
fn who_needs_the_answers_of_atomics_waits_for_the_retries() {
    let lost = FaultKind::DropAcks { for_ns: Some(8_000_000) };
    let faulty = spec(7, vec![(2_000_000, RailAt { pe: 0, rail: 0 }, lost)]);
    let report = run(&VerbsSpec { needs_answers: true, ack_timeout: 14, retries: 7, ..faulty });
    clean(&report);
    assert_eq!((report.hits, report.sum(|told| told.completed)), (1, 600));
    assert_eq!((report.sum(|told| told.switches), report.sum(|told| told.lost)), (0, 0), "{report:?}");
}

/// A message that waits for a receive is not acknowledged either, and its network is well.
#[test]
fn a_receiver_without_a_receive_is_waited_for_and_nothing_moves() {
    for pairs in [1, 3] {
        let posts = [true, false];
        let slow = VerbsSpec { pairs, posts, stall_ns: 40_000_000, atomics: false, ..spec(6, Vec::new()) };
        let report = run(&slow);
        clean(&report);
        assert_eq!(report.sum(|told| told.completed), u64::from(pairs) * 300);
        assert_eq!(report.sum(|told| told.switches), 0, "{report:?}");
    }
}

#[test]
fn an_agent_that_is_stopped_for_a_while_is_waited_for() {
    for process in 0..2 {
        // It is back before the port is: what came first is not known to it then.
        let pauses = vec![(1_900_000, process, 2_000_000)];
        let report = run(&VerbsSpec { pauses, ..spec(6, vec![down(2_000_000, 0, 0)]) });
        clean(&report);
        assert!(report.hits == 1 && report.sum(|told| told.switches) >= 2, "{report:?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    let digest = || run(&VerbsSpec::random(21)).digest;
    assert_eq!(digest(), digest());
}
