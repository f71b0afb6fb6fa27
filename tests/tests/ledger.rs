//! Without truth: NICs whose count is cleared by 2ERR, so the signal words decide. Rules 12 and 13, H2.

use shunt_device::{Deadline, Fault, HeapOffset, Signal, Solo};
use shunt_host::events::Event;
use shunt_tests::cluster::Cluster;
use shunt_tests::run::{finish, run, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn blind(seed: u64, faults: &[&str]) -> RunSpec {
    RunSpec {
        seed,
        both_ways: true,
        rmsn_cleared: true,
        traffic: Traffic { messages: 300, pace_ns: 20_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

#[test]
fn a_count_that_2err_clears_is_not_believed_and_the_ledger_serves() {
    for fault in ["0.0:down", "1.0:down", "0.0:blackhole-tx", "1.0:drop-acks", "0.0:drop-acks"] {
        for seed in 0..4 {
            let outcome = run(&blind(seed, &[&format!("2ms:{fault}")]));
            outcome.assert_clean();
            assert!(outcome.failovers() >= 1, "{outcome}");
            assert!(outcome.records.iter().all(|(_, record)| record.ledger == 1), "{fault}\n{outcome}");
        }
    }
}

#[test]
fn the_path_the_ledger_is_read_over_fails_too() {
    let mut in_vain = 0;
    for step in 0..40u64 {
        let second = format!("{}us:0.1:down", 2_000 + 50 * step);
        let mut spec = blind(step, &["2ms:0.0:down", &second]);
        spec.rails = 3;
        spec.backups = 7;
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let outcome = finish(&cluster, start_streams(&cluster));
        outcome.assert_clean();
        outcome.assert_exercised();
        in_vain += (0..2).map(|pe| ledgers_in_vain(&cluster, pe)).sum::<usize>();
    }
    assert!(in_vain > 0, "no ledger was read over a path that failed meanwhile");
}

/// How often a channel of a PE was reading a ledger when it had to choose another path for that.
fn ledgers_in_vain(cluster: &Cluster, pe: u32) -> usize {
    let steps = cluster.events(pe).into_iter().filter_map(|told| match told.event {
        Event::Step { step, .. } => Some(step),
        _ => None,
    });
    let steps: Vec<_> = steps.collect();
    steps.windows(2).filter(|pair| *pair == ["ledger", "choose"]).count()
}

/// Scenario 17: a word that the receiver polls and acts on without any other signal is posted as a kind 1 signal, which
/// without truth is exact: never written twice, never backwards, whatever way it was lost.
#[test]
fn scenario_17_a_polled_word_is_exact_without_truth() {
    const WORD: u64 = 64;
    const COUNT: u64 = 500;
    for fault in ["0.0:down", "0.0:drop-acks", "0.0:blackhole-tx", "0.0:blackhole-rx"] {
        for seed in 0..3 {
            let spec = blind(seed, &[&format!("2ms:{fault}"), "30ms:0.1:drop-acks"]);
            let spec = RunSpec { rails: 3, backups: 7, suspect_ns: 2_000_000, ..spec };
            let cluster = Cluster::start(&spec);
            cluster.watch(1, WORD);
            spec.faults.iter().for_each(|fault| cluster.inject(fault));
            let task = cluster.spawn("poll", 0, |kernel| {
                let channel = kernel.device().channel(1, 0);
                for value in 1..=COUNT {
                    channel.signal_nbi(Solo, HeapOffset(WORD), Signal::Monotone(value))?;
                    kernel.world.sleep(if value % 10 == 0 { 900_000 } else { 2_000 });
                }
                channel.quiet(Solo, Deadline::after(kernel.world.now(), 2_000_000_000))?;
                Ok::<_, Fault>(())
            });
            cluster.sim.finish(&task).expect("one path works");
            cluster.sim.run_for(100_000_000);
            let watched = cluster.watched(1, WORD);
            assert_eq!((watched.writes, watched.not_increasing, watched.last), (COUNT, 0, COUNT), "{fault}");
            assert!(cluster.records().iter().any(|(_, record)| record.ledger == 1), "{fault}: truth decided");
        }
    }
}
