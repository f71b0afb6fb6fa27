//! The agents' own link is cut, one way or both, while both agents live: they go on over the rails (rule 10, H16;
//! scenario 22).

use shunt_device::{Deadline, Fault, FaultKind, HeapOffset, Signal, Solo};
use shunt_host::events::Event;
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::state::{SwitchKind, SwitchRecord};
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::oracle::load;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, run, start_streams};
use shunt_tests::sim::ActorOptions;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// Two PEs, two rails, both ways for 20 ms or more.
fn steady(faults: &[&str]) -> RunSpec {
    RunSpec {
        both_ways: true,
        channels: 2,
        traffic: Traffic { messages: 500, pace_ns: 40_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// From the close of a switch to the answer of the agents.
fn fence_ns(record: &SwitchRecord) -> u64 {
    record.stamps[2] - record.stamps[1]
}

/// Every failover was cut by truth: by the strict fence of both halves, and not by time and ledger.
fn assert_truth(outcome: &Outcome) {
    outcome.assert_clean();
    outcome.assert_exercised();
    assert!(outcome.failovers() >= 2, "{outcome}");
    for record in outcome.of_kind(SwitchKind::Failover) {
        assert_eq!(record.ledger, 0, "a cut by ledger\n{outcome}");
        // The packet lifetime is 50 ms: nobody waited for it.
        assert!(fence_ns(record) < 20_000_000, "{} ns\n{outcome}", fence_ns(record));
    }
}

/// Ways to cut the link of PE 0.
const CUTS: [&str; 3] = ["oob-cut", "oob-cut-tx", "oob-cut-rx"];

#[test]
fn a_port_that_fails_behind_a_cut_link_is_fenced_exactly() {
    for cut in CUTS {
        for fault in ["0.0:down", "1.0:down", "0.1:blackhole-tx", "1.0:blackhole-rx", "0.0:drop-acks"] {
            let spec = steady(&[&format!("1ms:0:{cut}"), &format!("3ms:{fault}")]);
            assert_truth(&run(&spec));
        }
    }
}

#[test]
fn the_same_over_infiniband() {
    for cut in CUTS {
        let spec = RunSpec { infiniband: true, ..steady(&[&format!("1ms:0:{cut}"), "3ms:1.0:down"]) };
        assert_truth(&run(&spec));
    }
}

/// Without a cut the fence takes no rail: it is as fast as ever, and no datagram is sent but the news of the port.
#[test]
fn a_whole_link_is_enough() {
    let outcome = run(&steady(&["3ms:0.0:down"]));
    assert_truth(&outcome);
    assert!(outcome.of_kind(SwitchKind::Failover).all(|record| fence_ns(record) < 2_000_000), "{outcome}");
}

/// The news that a port is down passes over the rails at once: the peer does not wait for its suspect time.
#[test]
fn a_peer_hears_of_a_port_over_the_rails() {
    let mut spec = steady(&["1ms:1:oob-cut", "3ms:1.0:down"]);
    spec.suspect_ns = 200_000_000;
    let outcome = run(&spec);
    assert_truth(&outcome);
    for (pe, record) in
        outcome.records.iter().filter(|(_, record)| record.kind == SwitchKind::Failover as u32)
    {
        let noticed = record.stamps[0] - outcome.began_ns;
        assert!((3_000_000..4_500_000).contains(&noticed), "PE {pe} noticed at {noticed} ns\n{outcome}");
    }
}

/// The link cut and all rails but one dead: what is left carries the agents and the traffic.
#[test]
fn one_rail_is_left() {
    for cut in CUTS {
        let mut spec = steady(&[&format!("1ms:0:{cut}"), "3ms:0.0:down", "6ms:0.1:down", "9ms:1.0:down"]);
        (spec.rails, spec.backups) = (3, 7);
        assert_truth(&run(&spec));
    }
}

/// The link comes back: before the fault, during the fence, later.
#[test]
fn the_link_comes_back() {
    for cut in CUTS {
        for (at, span) in [("1ms", "1900us"), ("2900us", "300us"), ("2900us", "2ms"), ("2900us", "9ms")] {
            let mut spec = steady(&[&format!("{at}:0:{cut}={span}"), "3ms:0.0:down", "5ms:0.0:up"]);
            spec.recovery_ns = 2_000_000;
            spec.agent.lifetime_ns = 2_000_000;
            let outcome = run(&spec);
            outcome.assert_clean();
            assert!(outcome.failovers() >= 2, "{cut} {at} {span}\n{outcome}");
            assert!(outcome.of_kind(SwitchKind::Failover).all(|record| record.ledger == 0), "{outcome}");
            // A cut that ends before anybody has something to say loses nothing, and nothing is what it may change.
            let said = at == "2900us";
            let hits =
                |name: &str| outcome.faults.iter().find(|(one, _)| one.fault.name() == name).map(|one| one.1);
            assert_eq!(hits(cut).is_some_and(|hits| hits > 0), said, "{cut} {at} {span}\n{outcome}");
            assert!(hits("down").is_some_and(|hits| hits > 0) && hits("up") == Some(1), "{outcome}");
        }
    }
}

/// A pair is recreated, probed and gone back to with no link but the rails.
#[test]
fn a_pair_is_recreated_over_the_rails() {
    for cut in CUTS {
        let mut spec = steady(&[&format!("1ms:0:{cut}"), "3ms:0.0:down", "6ms:0.0:up"]);
        spec.traffic.messages = 2_000;
        spec.recovery_ns = 5_000_000;
        spec.agent.lifetime_ns = 5_000_000;
        let outcome = run(&spec);
        assert_truth(&outcome);
        assert!(outcome.switchbacks() >= 2, "{cut}\n{outcome}");
    }
}

/// An agent that is dead answers over no link: time and ledger decide, as without a cut.
#[test]
fn an_agent_dies_behind_a_cut_link() {
    let outcome = run(&steady(&["1ms:1:oob-cut", "2ms:1:agent-killed", "3ms:0.0:down"]));
    outcome.assert_held();
    let of_zero: Vec<_> = outcome.records.iter().filter(|(pe, _)| *pe == 0).collect();
    assert!(!of_zero.is_empty() && of_zero.iter().all(|(_, record)| record.ledger == 1), "{outcome}");
}

/// A peer that is killed answers over no link, and is lost in bounded time.
#[test]
fn a_peer_dies_behind_a_cut_link() {
    for cut in CUTS {
        let mut spec = steady(&[&format!("1ms:0:{cut}"), "3ms:1:peer-killed"]);
        spec.give_up_ns = 100_000_000;
        let outcome = run(&spec);
        outcome.assert_held();
        assert!(outcome.ended_with(FaultKind::PeerLost) >= 4, "{outcome}");
    }
}

/// Traffic that ends, and agents that find nothing more to do, while the link is cut: the end of a job.
#[test]
fn the_end_of_the_traffic_behind_a_cut_link() {
    for cut in CUTS {
        for at in ["17ms", "19ms", "20ms"] {
            let outcome = run(&steady(&[&format!("{at}:0:{cut}"), &format!("{at}:0.0:down")]));
            outcome.assert_clean();
            outcome.assert_exercised();
            assert!(outcome.failovers() >= if at == "20ms" { 0 } else { 2 }, "{cut} {at}\n{outcome}");
            assert!(outcome.of_kind(SwitchKind::Failover).all(|record| record.ledger == 0), "{outcome}");
        }
    }
}

/// Datagrams that are lost, late, doubled and out of order; the news of a port comes in any order.
#[test]
fn rails_that_lose_and_double() {
    let troubles = ["0.1:drop=0.3", "1.1:dup=0.5", "1.1:delay=3ms", "0.1:reorder=2", "1.0:delay=5ms"];
    for (seed, trouble) in troubles.iter().cycle().take(15).enumerate() {
        let mut spec = steady(&["1ms:0:oob-cut", &format!("1ms:{trouble}"), "3ms:0.0:flap=2ms/4"]);
        spec.seed = seed as u64 + 1;
        spec.recovery_ns = 1_000_000;
        spec.agent.lifetime_ns = 10_000_000;
        let outcome = run(&spec);
        outcome.assert_clean();
        outcome.assert_exercised();
        assert!(outcome.failovers() >= 1, "{outcome}");
    }
}

/// Both ends see their ports go at the same instant, and neither hears the other out of band.
#[test]
fn both_ends_leave_at_once() {
    for (mine, theirs) in [("0.0:down", "1.0:down"), ("0.0:down", "1.1:down"), ("0.1:down", "1.1:down")] {
        let mut spec = steady(&["1ms:0:oob-cut", &format!("3ms:{mine}"), &format!("3ms:{theirs}")]);
        (spec.rails, spec.backups) = (3, 7);
        assert_truth(&run(&spec));
    }
}

/// The hint is lost: the event of the port never comes, and its peer is told nothing.
#[test]
fn no_event_and_no_link() {
    for pe in 0..2 {
        let lost = format!("1ms:{pe}.0:event-lost");
        let outcome = run(&steady(&["1ms:0:oob-cut", &lost, &format!("3ms:{pe}.0:down")]));
        assert_truth(&outcome);
    }
}

/// Nothing but silence joins the agents: no copy of a message is ever taken for one of another job.
#[test]
fn nobody_is_a_stranger_here() {
    let spec = steady(&["1ms:0:oob-cut", "3ms:0.0:down"]);
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    assert_truth(&outcome);
    assert!(!outcome.notes.iter().any(|note| note.contains("datagram")), "{outcome}");
}

/// Moves a rail's datagram queue pair to ERR by its NIC's firmware, as a fault of the NIC's own would.
fn end_datagrams(cluster: &Cluster, pe: u32, rail: u32) {
    let qpn = cluster.pe(pe).rails()[rail as usize].datagram_qpn();
    let mut answer = [0; 16];
    let command = shunt_host::nic::short_in(Opcode::Qp2Err, qpn);
    let rail = cluster.pe(pe).rails()[rail as usize].clone();
    let task = cluster.sim.spawn("firmware", ActorOptions::host(), move || {
        rail.devx.command(&command, &mut answer).expect("2ERR of a datagram queue pair");
    });
    cluster.sim.finish(&task);
}

/// How often a PE's agent made a datagram queue pair again.
fn renewed(cluster: &Cluster, pe: u32) -> usize {
    let events = cluster.events(pe);
    events.iter().filter(|told| matches!(told.event, Event::AgentRailRenewed { .. })).count()
}

/// Every queue pair of one PE's datagrams ends and is recreated under another number, which its peers learn: then the
/// link is cut, and fences go over the rails as ever.
#[test]
fn datagram_queue_pairs_that_end_are_recreated() {
    let spec = steady(&["60ms:1:oob-cut", "65ms:0.0:down"]);
    let spec = RunSpec { traffic: Traffic { messages: 2_500, ..spec.traffic }, ..spec };
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    cluster.sim.run_for(1_000_000);
    (0..2).for_each(|rail| end_datagrams(&cluster, 1, rail));
    cluster.sim.run_for(58_000_000);
    assert_eq!((renewed(&cluster, 0), renewed(&cluster, 1)), (0, 2));
    assert_truth(&finish(&cluster, streams));
}

/// The same behind a cut link: the other rail carries the news of the first, and the other way round.
#[test]
fn datagram_queue_pairs_end_one_after_the_other_behind_a_cut_link() {
    let spec = steady(&["500us:1:oob-cut", "110ms:0.0:down"]);
    let spec = RunSpec { traffic: Traffic { messages: 4_000, ..spec.traffic }, ..spec };
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    cluster.sim.run_for(1_000_000);
    cluster.inject(&"2ms:0.1:down=1ms".parse().expect("a fault"));
    cluster.sim.run_for(4_000_000);
    end_datagrams(&cluster, 1, 0);
    cluster.sim.run_for(50_000_000);
    end_datagrams(&cluster, 1, 1);
    cluster.sim.run_for(50_000_000);
    assert_eq!(renewed(&cluster, 1), 2);
    assert_truth(&finish(&cluster, streams));
}

/// Words of a barrier, one a PE that comes to it, and of how often it came.
const ARRIVALS: u64 = 64;

/// A barrier is a kind 1 signal to each other PE and a wait for one of each; the last one is followed by the end of the
/// job: quiet on every channel.
fn barriers(kernel: &Kernel, rounds: u64) -> Result<(), Fault> {
    let device = kernel.device();
    let me = device.my_pe();
    let others = || (0..device.pe_count()).filter(|pe| *pe != me);
    let word = |pe: u32| HeapOffset(ARRIVALS + u64::from(pe) * 8);
    for round in 1..=rounds {
        for pe in others() {
            device.channel(pe, 0).signal_nbi(Solo, word(me), Signal::Monotone(round))?;
        }
        for pe in others() {
            let deadline = Deadline::after(kernel.world.now(), 2_000_000_000);
            device.wait_until_ge(Solo, word(pe), round, deadline)?;
            // Nobody is two barriers ahead of another.
            let met = load(kernel.heap + word(pe).0);
            assert!(met <= round + 1, "PE {pe} came to barrier {met} while PE {me} left {round}");
        }
        kernel.world.sleep(20_000);
    }
    others().try_for_each(|pe| {
        let deadline = Deadline::after(kernel.world.now(), 2_000_000_000);
        device.channel(pe, 0).quiet(Solo, deadline)
    })
}

/// Barriers, and the end of a job, during each cut of one PE's link, while a port of another fails.
#[test]
fn scenario_22_barriers_and_the_end_during_each_cut() {
    for cut in CUTS {
        // Ten milliseconds of barriers: the fault in the middle, and at the end.
        for (seed, fault) in [(1, "3ms:1.0:down"), (2, "3ms:0.0:down"), (3, "9500us:1.0:blackhole-tx")] {
            let spec = RunSpec { pes: 3, seed, ..steady(&[&format!("1ms:0:{cut}"), fault]) };
            let cluster = Cluster::start(&spec);
            (0..3).for_each(|pe| cluster.watch(pe, ARRIVALS + u64::from((pe + 1) % 3) * 8));
            spec.faults.iter().for_each(|fault| cluster.inject(fault));
            let rounds = 400;
            let tasks: Vec<_> = (0..3)
                .map(|pe| cluster.spawn("barriers", pe, move |kernel| barriers(kernel, rounds)))
                .collect();
            assert_eq!(cluster.sim.finish_all(&tasks), [Ok(()); 3], "{cut}, {fault}");
            for pe in 0..3 {
                let watched = cluster.watched(pe, ARRIVALS + u64::from((pe + 1) % 3) * 8);
                assert_eq!((watched.writes, watched.not_increasing), (rounds, 0), "{cut}, {fault}");
            }
            assert!(cluster.records().iter().all(|(_, record)| record.ledger == 0), "{cut}, {fault}");
        }
    }
}
