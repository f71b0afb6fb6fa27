//! One fault, one failover: what each kind of fault does to streams that are under way.

use shunt_soft_nic::Injection;
use shunt_tests::cluster::Cluster;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// 20 ms of steady traffic in both directions, and `faults`.
fn steady(faults: &[&str]) -> RunSpec {
    RunSpec {
        both_ways: true,
        traffic: Traffic { messages: 400, pace_ns: 50_000, ..Traffic::default() },
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
fn without_a_fault_nothing_switches() {
    let outcome = clean(&steady(&[]));
    assert_eq!((outcome.failovers(), outcome.switchbacks()), (0, 0));
    assert!(outcome.max_gap_ns() < 1_000_000, "{outcome}");
}

#[test]
fn port_down_at_the_sender() {
    let outcome = clean(&steady(&["3ms:0.0:down"]));
    assert!(outcome.failovers() >= 2, "both directions leave a pair together\n{outcome}");
    assert!(
        outcome.max_gap_ns() < 5_000_000,
        "port down to delivery took {} ns\n{outcome}",
        outcome.max_gap_ns()
    );
}

#[test]
fn port_down_at_the_receiver() {
    let outcome = clean(&steady(&["3ms:1.0:down"]));
    assert!(outcome.failovers() >= 2, "{outcome}");
    assert!(
        outcome.max_gap_ns() < 5_000_000,
        "port down to delivery took {} ns\n{outcome}",
        outcome.max_gap_ns()
    );
}

#[test]
fn port_down_at_both_primaries_in_one_instant() {
    let outcome = clean(&steady(&["3ms:0.0:down", "3ms:1.0:down"]));
    assert!(outcome.failovers() >= 2, "{outcome}");
}

#[test]
fn one_way_traffic_with_a_port_down_at_either_end() {
    for place in ["0.0", "1.0"] {
        let mut spec = steady(&[&format!("3ms:{place}:down")]);
        spec.both_ways = false;
        assert!(clean(&spec).failovers() >= 1);
    }
}

#[test]
fn a_flapping_port() {
    let mut spec = steady(&["2ms:1.0:flap=4ms/5"]);
    spec.traffic.messages = 2_000;
    assert!(clean(&spec).failovers() >= 2);
}

#[test]
fn acks_dropped_for_a_while_and_for_ever() {
    let outcome = clean(&steady(&["3ms:0.0:drop-acks=12ms"]));
    assert!(outcome.failovers() >= 1, "{outcome}");
    let outcome = clean(&steady(&["3ms:0.0:drop-acks"]));
    assert!(outcome.failovers() >= 1, "{outcome}");
    let outcome = clean(&steady(&["3ms:1.0:drop-acks"]));
    assert!(outcome.failovers() >= 1, "{outcome}");
}

#[test]
fn silent_black_holes() {
    for fault in ["0.0:blackhole-tx", "0.0:blackhole-rx", "1.0:blackhole-tx", "1.0:blackhole-rx"] {
        let outcome = clean(&steady(&[&format!("3ms:{fault}")]));
        assert!(outcome.failovers() >= 1, "{fault}\n{outcome}");
        assert!(outcome.max_gap_ns() < 20_000_000, "{fault}: {} ns\n{outcome}", outcome.max_gap_ns());
    }
}

#[test]
fn lossy_slow_and_doubling_links_lose_nothing() {
    for fault in ["drop=0.05", "delay=40us", "dup=0.2", "reorder=4"] {
        clean(&steady(&[&format!("1ms:0.0:{fault}"), &format!("1ms:1.0:{fault}")]));
    }
}

#[test]
fn a_lost_doorbell_is_noticed() {
    let outcome = clean(&steady(&["3ms:0.0:lost-doorbell"]));
    assert!(outcome.max_gap_ns() < 30_000_000, "{outcome}");
}

#[test]
fn a_nic_that_is_gone() {
    for place in ["0.0", "1.0"] {
        let outcome = clean(&steady(&[&format!("3ms:{place}:nic-gone")]));
        assert!(outcome.failovers() >= 1, "{place}\n{outcome}");
    }
}

#[test]
fn a_port_event_that_is_lost_or_late() {
    for fault in ["event-lost", "event-late=30ms"] {
        let outcome = clean(&steady(&[&format!("1ms:0.0:{fault}"), "3ms:0.0:down"]));
        assert!(outcome.failovers() >= 1, "{fault}\n{outcome}");
    }
}

/// F1: the old NIC's writes are acknowledged long before they are visible; the new NIC's are not slow at all.
#[test]
fn placement_delay_across_a_failover() {
    for delay in ["30us", "400us", "3ms"] {
        for fault in ["0.0:down", "1.0:down", "0.0:blackhole-tx", "0.0:drop-acks"] {
            clean(&steady(&[&format!("0ns:1.0:placement-delay={delay}"), &format!("3ms:{fault}")]));
        }
    }
}

/// Only `0.1>1.0` is left.
#[test]
fn crossed_rails() {
    let outcome = clean(&steady(&["3ms:0.0:down", "3ms:1.1:down"]));
    let (_, last) = outcome.records.iter().rfind(|(pe, _)| *pe == 0).expect("PE 0 switched");
    assert_eq!((last.entered.local_rail, last.entered.remote_rail), (1, 0), "{outcome}");
}

#[test]
fn all_paths_of_a_peer_dead_for_less_than_the_give_up_time() {
    let mut spec = steady(&["3ms:0.0:down", "4ms:1.0:down", "5ms:0.1:down", "205ms:0.0:up"]);
    spec.traffic.messages = 1_000;
    let outcome = clean(&spec);
    assert!(outcome.max_gap_ns() > 190_000_000 && outcome.max_gap_ns() < 1_000_000_000, "{outcome}");
}

/// With one rail there is nowhere to go: the same pair is recreated, beside the journal of the switch that waits for
/// it.
#[test]
fn a_single_rail_is_recreated_under_its_own_journal() {
    for (seed, span) in [(1, "5ms"), (2, "30ms"), (3, "300ms")] {
        for warps in [1, 4] {
            let mut spec = steady(&[&format!("3ms:0.0:down={span}"), "400ms:1.0:down=20ms"]);
            spec.seed = seed;
            spec.rails = 1;
            spec.backups = 0;
            spec.warps = warps;
            spec.log_depth = 4;
            spec.traffic.messages = 3_000;
            spec.traffic.pace_ns = 200_000;
            assert!(clean(&spec).failovers() >= 2);
        }
    }
}

#[test]
fn many_warps_on_many_channels_of_three_pes() {
    let mut spec = steady(&["3ms:1.0:down", "9ms:2.1:down", "30ms:1.0:up"]);
    spec.pes = 3;
    spec.channels = 2;
    spec.warps = 3;
    clean(&spec);
}

/// H4: the kernels of the sender's PE have ended or never look; its agent carries the switch.
#[test]
fn work_in_flight_and_no_kernel_to_look_after_it() {
    use shunt_device::{HeapOffset, Put, Signal, Solo};
    let mut spec = steady(&[]);
    spec.both_ways = false;
    let cluster = Cluster::start(&spec);
    // Sent into a black hole, and the kernel ends at once.
    cluster.inject(&"0us:0.0:blackhole-tx".parse().expect("a fault"));
    cluster.inject(&"100us:0.0:down".parse().expect("a fault"));
    cluster.sim.run_for(10_000);
    let task = cluster.spawn("hook", 0, |kernel| {
        shunt_tests::oracle::store(kernel.heap, 77);
        let put = Put { dst: HeapOffset(8), src: HeapOffset(0), bytes: 8 };
        kernel
            .device()
            .channel(1, 0)
            .put_signal_nbi(Solo, put, HeapOffset(16), Signal::Monotone(5))
            .expect("room")
    });
    cluster.sim.finish(&task);
    let heap = cluster.pe(1).heap().address;
    cluster.sim.run_for(50_000_000);
    assert_eq!((shunt_tests::oracle::load(heap + 8), shunt_tests::oracle::load(heap + 16)), (77, 5));
}

/// The agent of one side dies before the fault: no truth can be had of it. Nothing may be lost or hang.
#[test]
fn without_an_agent_on_one_side_the_answer_is_typed() {
    for pe in 0..2 {
        let mut spec = steady(&["3ms:0.0:down", &format!("1ms:{pe}:agent-killed")]);
        spec.traffic.wait_ns = 4_000_000_000;
        run(&spec).assert_kept();
    }
}

/// Table H1, "no agent at B": our half is proven in ERR and the packet lifetime passes, then the ledger serves.
#[test]
fn without_an_agent_at_the_receiver_the_sender_goes_on_by_the_ledger() {
    let mut spec = steady(&["1ms:1:agent-killed", "3ms:0.0:down"]);
    spec.both_ways = false;
    // No credit is needed: the receiver's own direction has nobody to fence it.
    spec.traffic = Traffic { messages: 100, slots: 100, credit_lag: 99, ..spec.traffic };
    let outcome = run(&spec);
    outcome.assert_kept();
    assert_eq!((outcome.senders[0].fault, outcome.receivers[0].messages), (None, 100), "{outcome}");
    let (_, record) = outcome.records.iter().find(|(pe, _)| *pe == 0).expect("PE 0 switched");
    assert_eq!(record.ledger, 1, "{outcome}");
}

/// Agents that are late are only late: one side stalls around the fault.
#[test]
fn an_agent_that_stalls_around_the_fault() {
    for pe in 0..2 {
        for span in ["1ms", "20ms", "90ms"] {
            let stall = format!("2900us:{pe}:agent-stalled={span}");
            assert!(clean(&steady(&[&stall, "3ms:0.0:down"])).failovers() >= 2);
        }
    }
}

/// H16: what the agents say to each other may get lost while they need it most.
#[test]
fn the_agents_network_is_cut_around_the_fault() {
    for both_ways in [true, false] {
        for (cut, span) in [("2900us", "300us"), ("2900us", "5ms"), ("2950us", "200us"), ("3050us", "40ms")] {
            for fault in ["0.0:down", "1.0:down"] {
                let mut spec = steady(&[&format!("{cut}:0:oob-cut={span}"), &format!("3ms:{fault}")]);
                spec.both_ways = both_ways;
                assert!(clean(&spec).failovers() >= 1);
            }
        }
    }
}

/// The news that both directions have left may get lost too: the way back must not depend on it.
#[test]
fn the_agents_network_is_cut_while_a_path_is_released_or_recreated() {
    let mut lost = 0;
    for cut_us in (1_000..2_000).step_by(150).chain((2_500..8_000).step_by(500)) {
        let mut spec = steady(&["1ms:0.0:down", "3ms:0.0:up", &format!("{cut_us}us:0:oob-cut=3ms")]);
        spec.traffic.messages = 1_500;
        spec.recovery_ns = 2_000_000;
        spec.agent.lifetime_ns = 2_000_000;
        spec.agent.probe_ns = 200_000;
        spec.agent.backoff_ns = 200_000;
        spec.agent.revive_ns = 10_000_000;
        spec.agent.port_poll_ns = 10_000_000;
        let outcome = run(&spec);
        outcome.assert_clean();
        assert!(outcome.switchbacks() >= 2, "cut at {cut_us} us\n{outcome}");
        // A cut of which no message was lost changed nothing.
        let hit = |(fault, hits): &&(Injection, u64)| fault.fault.name() == "oob-cut" && *hits > 0;
        lost += outcome.faults.iter().filter(hit).count();
    }
    assert!(lost >= 6, "only {lost} of the cuts lost anything");
}
