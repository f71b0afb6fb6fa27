//! Switches that once went round in circles, died with healthy paths left, or forgot what an earlier path proved.

use shunt_tests::cluster::Cluster;
use shunt_tests::run::{finish, run, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn steady(faults: &[&str]) -> RunSpec {
    RunSpec {
        traffic: Traffic { messages: 300, pace_ns: 50_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// Completions take longer than the suspect time, on the only path: each switch must still move the channel on.
#[test]
fn a_suspect_time_below_the_completion_time_still_moves_on() {
    let spec = RunSpec {
        rails: 1,
        backups: 0,
        warps: 2,
        log_depth: 2,
        suspect_ns: 1_000_000,
        traffic: Traffic { messages: 20, slots: 4, credit_lag: 2, ..Traffic::default() },
        ..steady(&["0ns:0.0:late-cqe=2ms"])
    };
    let outcome = run(&spec);
    outcome.assert_clean();
    assert!(outcome.failovers() > 0, "the suspect time was below the completion time\n{outcome}");
}

/// The primary executes all and acknowledges nothing, the backup executes nothing: the third path is cut by what
/// the first one proved (F6).
#[test]
fn the_first_cut_outlives_a_backup_that_executes_nothing() {
    for seed in 0..4 {
        let spec = RunSpec {
            seed,
            rails: 3,
            backups: 7,
            both_ways: true,
            traffic: Traffic { messages: 300, slots: 16, pace_ns: 20_000, ..Traffic::default() },
            ..steady(&["2ms:0.0:drop-acks", "2ms:0.1:blackhole-tx"])
        };
        let outcome = run(&spec);
        outcome.assert_clean();
        let of_sender = |from: u32| outcome.records.iter().filter(move |(pe, r)| *pe == 0 && r.from == from);
        let proved = of_sender(0).map(|(_, record)| record.executed).max().expect("the primary was left");
        let kept = of_sender(1).map(|(_, record)| record.executed).max().expect("the backup was left");
        assert!(proved > 0 && kept >= proved, "proved {proved}, later {kept}\n{outcome}");
    }
}

/// A count that 2ERR clears looks right while nothing was completed on the path. Only the proof at start tells that
/// it is none (H2).
#[test]
fn a_cleared_count_of_a_path_without_a_completion_is_no_truth() {
    for seed in 0..4 {
        let spec = RunSpec {
            seed,
            both_ways: true,
            rmsn_cleared: true,
            traffic: Traffic { messages: 60, slots: 16, pace_ns: 20_000, ..Traffic::default() },
            ..steady(&["0ns:0.0:drop-acks"])
        };
        let outcome = run(&spec);
        outcome.assert_clean();
        let first = outcome.records.iter().find(|(pe, _)| *pe == 0).expect("PE 0 switched").1;
        assert!(first.ledger == 1 && first.executed > 0, "{outcome}");
    }
}

/// Two requests overlap: the older one's answer comes late, between the newer one's and its reading (H8).
#[test]
fn a_late_answer_does_not_hide_a_newer_one() {
    for at_us in (131_238..131_262).step_by(6) {
        let down = format!("{at_us}us:0.2:down");
        let spec = RunSpec {
            rails: 3,
            backups: 7,
            traffic: Traffic { messages: 3000, pace_ns: 50_000, ..Traffic::default() },
            ..steady(&["1ms:1.0:nic-gone", "1ms:1.1:nic-gone", "500us:0.1:lost-doorbell=80ms", &down])
        };
        run(&spec).assert_clean();
    }
}

/// A primary that probes survive and traffic does not is not gone back to at every window.
#[test]
fn a_gray_primary_is_damped() {
    let spec = RunSpec {
        traffic: Traffic { messages: 10_000, pace_ns: 100_000, ..Traffic::default() },
        ..steady(&["1ms:0.0:delay=6ms"])
    };
    let outcome = run(&spec);
    outcome.assert_clean();
    let seconds = outcome.lasted_ns as f64 / 1e9;
    assert!(outcome.switchbacks() <= 8, "{} ways back in {seconds} s\n{outcome}", outcome.switchbacks());
}

/// The peer is not told that the port is up again: it hears of it later, and the only path is used.
#[test]
fn a_port_that_came_back_unheard_is_used() {
    for pe in 0..2 {
        let spec = RunSpec {
            rails: 1,
            backups: 0,
            both_ways: true,
            traffic: Traffic { messages: 3000, pace_ns: 50_000, ..Traffic::default() },
            ..steady(&[&format!("1ms:{pe}.0:down"), &format!("30ms:{pe}.0:up")])
        };
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        cluster.sim.run_for(29_900_000);
        cluster.oob.cut(0, 1);
        cluster.sim.run_for(400_000);
        cluster.oob.join(0, 1);
        finish(&cluster, streams).assert_clean();
    }
}
