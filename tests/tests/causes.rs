//! First causes: which fail over, and which are the program's own and are reported as they are. H12.

use shunt_device::{Deadline, FaultKind, HeapOffset, Put, Solo};
use shunt_layout::state::SwitchKind;
use shunt_tests::cluster::Cluster;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn with(faults: &[String]) -> RunSpec {
    RunSpec {
        traffic: Traffic { messages: 200, pace_ns: 30_000, wait_ns: 2_000_000_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

#[test]
fn transport_errors_fail_over() {
    for syndrome in [0x14u8, 0x15, 0x16, 0x22, 0x10, 0x7f] {
        let outcome = run(&with(&[format!("2ms:0.0:cqe-error={syndrome:#x}")]));
        outcome.assert_clean();
        outcome.assert_exercised();
        let seen = outcome.records.iter().any(|(_, record)| record.syndrome as u8 == syndrome);
        assert!(seen, "the first cause {syndrome:#x} is in no record\n{outcome}");
    }
}

#[test]
fn program_errors_are_reported_and_never_chained() {
    for syndrome in [0x01u8, 0x02, 0x04, 0x12, 0x13] {
        let outcome = run(&with(&[format!("2ms:0.0:cqe-error={syndrome:#x}")]));
        outcome.assert_kept();
        outcome.assert_exercised();
        let fault =
            outcome.senders[0].fault.unwrap_or_else(|| panic!("{syndrome:#x} was survived\n{outcome}"));
        assert_eq!((fault.kind, fault.syndrome as u8), (FaultKind::Completion, syndrome), "{outcome}");
        let chained =
            outcome.records.iter().any(|(pe, record)| *pe == 0 && record.kind == SwitchKind::Failover as u32);
        assert!(!chained, "{outcome}");
    }
}

#[test]
fn a_revoked_key_is_the_programs_error() {
    let outcome = run(&with(&["2ms:1.0:rkey-revoked".into()]));
    outcome.assert_kept();
    let fault = outcome.senders[0].fault.expect("every access is refused");
    assert_eq!((fault.kind, fault.syndrome as u8, fault.peer), (FaultKind::Completion, 0x13, 1), "{outcome}");
}

#[test]
fn an_address_outside_the_heap_is_refused_before_anything_is_posted() {
    let cluster = Cluster::start(&RunSpec::default());
    let end = cluster.pe(0).heap().bytes;
    let task = cluster.spawn("bad", 0, move |kernel| {
        let channel = kernel.device().channel(1, 0);
        let refused = |dst, src, bytes| {
            let put = Put { dst: HeapOffset(dst), src: HeapOffset(src), bytes };
            channel.put_nbi(Solo, put).err().map(|fault| fault.kind)
        };
        for (dst, src, bytes) in [(end - 8, 0, 16), (0, end - 8, 16), (u64::MAX - 4, 0, 8), (0, 0, u64::MAX)]
        {
            assert_eq!(refused(dst, src, bytes), Some(FaultKind::BadAddress), "{dst} {src} {bytes}");
        }
        assert_eq!(refused(end - 16, 0, 16), None, "the last bytes of the heap are in it");
        let misaligned = channel
            .signal_nbi(Solo, HeapOffset(12), shunt_device::Signal::Monotone(1))
            .err()
            .map(|fault| fault.kind);
        assert_eq!(misaligned, Some(FaultKind::BadAddress));
        channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000))
    });
    assert_eq!(cluster.sim.finish(&task), Ok(()));
}

/// Puts that no signal covers: done means delivered all the same.
#[test]
fn puts_without_signals_are_there_after_quiet() {
    for fault in ["0.0:down", "1.0:down", "0.0:drop-acks", "1.0:blackhole-tx"] {
        let mut spec = with(&[format!("40us:{fault}")]);
        spec.log_depth = 4;
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        const WORDS: u64 = 512;
        let task = cluster.spawn("puts", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            for word in 0..WORDS / 2 {
                shunt_tests::oracle::store(kernel.heap + word * 8, 7_000 + word);
                let put =
                    Put { dst: HeapOffset((WORDS / 2 + word) * 8), src: HeapOffset(word * 8), bytes: 8 };
                channel.put_nbi(Solo, put)?;
                if word % 8 == 0 {
                    kernel.world.sleep(3_000);
                }
            }
            channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000_000))
        });
        assert_eq!(cluster.sim.finish(&task), Ok(()), "{fault}");
        cluster.sim.run_for(1_000_000);
        let heap = cluster.pe(1).heap().address;
        for word in 0..WORDS / 2 {
            let seen = shunt_tests::oracle::load(heap + (WORDS / 2 + word) * 8);
            assert_eq!(seen, 7_000 + word, "{fault}: word {word}");
        }
        assert!(!cluster.records().is_empty(), "{fault} switched nothing");
    }
}

#[test]
fn large_messages_cross_a_failover_whole() {
    for fault in ["0.0:down", "1.0:blackhole-rx", "1.0:partial-write=2", "0.0:drop-acks=30ms"] {
        let mut spec = with(&[format!("600us:{fault}")]);
        spec.both_ways = true;
        spec.traffic = Traffic { messages: 60, slots: 4, slot_bytes: 100_000, puts: 2, ..spec.traffic };
        let outcome = run(&spec);
        outcome.assert_clean();
        outcome.assert_exercised();
        assert!(outcome.failovers() >= 1, "{fault}\n{outcome}");
    }
}

#[test]
fn the_same_over_infiniband() {
    let mut spec = with(&["2ms:0.0:down".into(), "12ms:0.0:up".into()]);
    spec.infiniband = true;
    spec.both_ways = true;
    spec.traffic.messages = 3_000;
    let outcome = run(&spec);
    outcome.assert_clean();
    assert!(outcome.failovers() >= 2 && outcome.switchbacks() >= 2, "{outcome}");
}

/// Congestion is no failure: a slow rail is waited for as long as it makes progress.
#[test]
fn a_slow_rail_is_not_a_dead_one() {
    let mut spec = with(&["500us:0.0:slow=0.1".into()]);
    spec.traffic = Traffic { messages: 60, slots: 8, slot_bytes: 8192, ..spec.traffic };
    let outcome = run(&spec);
    outcome.assert_clean();
    outcome.assert_exercised();
    assert_eq!(outcome.failovers(), 0, "{outcome}");
}
