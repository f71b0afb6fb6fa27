//! When nothing happens any more agents say next to nothing: what they repeat ends, or becomes ever more seldom. And
//! what they say once only may get lost.

use shunt_device::Solo;
use shunt_host::agent::message::Message;
use shunt_host::events::{Event, Told};
use shunt_host::nic::short_in;
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_tests::cluster::Cluster;
use shunt_tests::lies::Lies;
use shunt_tests::sim::ActorOptions;
use shunt_tests::spec::RunSpec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MINUTE_NS: u64 = 60_000_000_000;
const MS: u64 = 1_000_000;

/// A job in which little happens for long.
fn spec(pes: u32) -> RunSpec {
    RunSpec { pes, idle_ns: MS, time_limit_ns: 20 * MINUTE_NS, step_limit: u64::MAX, ..RunSpec::default() }
}

fn inject(cluster: &Cluster, faults: &[&str]) {
    faults.iter().for_each(|fault| cluster.inject(&fault.parse().expect("a fault")));
}

/// Messages of the agents' own link, and packets that any NIC has sent, in a virtual minute.
fn said_in_a_minute(cluster: &Cluster) -> (u64, u64) {
    let count = || {
        let rails = (0..cluster.spec.pes).flat_map(|pe| (0..cluster.spec.rails).map(move |rail| (pe, rail)));
        let packets: u64 = rails.map(|(pe, rail)| cluster.counters(pe, rail).packets_tx).sum();
        (cluster.oob.counts().0, packets)
    };
    let before = count();
    cluster.sim.run_for(MINUTE_NS);
    let after = count();
    (after.0 - before.0, after.1 - before.1)
}

/// Takes the NICs, the agent and perhaps the link of PE 1 away, while a kernel has something outstanding to it.
fn kill(cluster: &Cluster, closed: bool) {
    let (stream, traffic) = (cluster.streams()[0], cluster.spec.traffic.clone());
    cluster.spawn("send", 0, move |kernel| kernel.send(Solo, stream, &traffic));
    inject(cluster, &["0ns:1.0:nic-gone", "0ns:1.1:nic-gone"]);
    cluster.kill_agent(1);
    if closed {
        cluster.oob.close(1);
    }
}

/// A port that flapped once, and agents that doubted their link meanwhile.
#[test]
fn after_a_flap_the_agents_fall_silent() {
    let cluster = Cluster::start(&spec(3));
    inject(&cluster, &["5ms:0.0:down=30ms", "300ms:0.0:down=30ms"]);
    cluster.oob.cut(0, 1);
    cluster.sim.run_for(400 * MS);
    cluster.oob.join(0, 1);
    cluster.sim.run_for(MINUTE_NS);
    let (messages, packets) = said_in_a_minute(&cluster);
    // The word of one port, to two peers, every ten seconds.
    assert!((2..=20).contains(&messages), "{messages} messages in the second minute");
    assert_eq!(packets, 0, "and nothing over the rails");
}

/// A rail whose datagrams are taken by another queue pair now: peers are told that ever more seldom as well.
#[test]
fn after_a_rail_was_renewed_the_agents_fall_silent() {
    let cluster = Cluster::start(&spec(3));
    cluster.sim.run_for(MS);
    let rail = cluster.pe(0).rails()[0].clone();
    let command = short_in(Opcode::Qp2Err, rail.datagram_qpn());
    let ended = cluster.sim.spawn("firmware", ActorOptions::host(), move || {
        rail.devx.command(&command, &mut [0; 16]).expect("2ERR of a datagram queue pair");
    });
    cluster.sim.finish(&ended);
    // What is posted there shows that it has ended.
    cluster.oob.cut(0, 1);
    inject(&cluster, &["5ms:0.1:down=1ms"]);
    cluster.sim.run_for(300 * MS);
    cluster.oob.join(0, 1);
    cluster.sim.run_for(MINUTE_NS);
    let renewed = |told: &Told| matches!(told.event, Event::AgentRailRenewed { .. });
    assert!(cluster.events(0).iter().any(renewed), "it was recreated");
    let (messages, packets) = said_in_a_minute(&cluster);
    // The word of the port and that of the rail, to two peers, every ten seconds.
    assert!((4..=40).contains(&messages), "{messages} messages in the second minute");
    assert_eq!(packets, 0, "and nothing over the rails");
}

/// A peer that is gone is asked ever more seldom, whether or not its link shows it, and not at all once it is lost.
#[test]
fn a_peer_that_is_gone_is_not_written_to_for_ever() {
    for (closed, give_up_ns) in [(true, 100 * MS), (false, 100 * MS), (false, 600_000 * MS)] {
        let cluster = Cluster::start(&RunSpec { give_up_ns, ..spec(2) });
        kill(&cluster, closed);
        cluster.sim.run_for(MINUTE_NS);
        let lost = cluster.events(0).iter().any(|told| matches!(told.event, Event::PeerLost { .. }));
        assert_eq!(lost, give_up_ns < MINUTE_NS);
        let (messages, packets) = said_in_a_minute(&cluster);
        let most = if lost { 0 } else { 100 };
        assert!(messages <= most, "{messages} messages, closed {closed}, lost {lost}");
        assert!(packets <= 1_000, "{packets} packets, closed {closed}, lost {lost}");
    }
}

/// Each word of a revival is lost once. It is said again, and the path is back long before the attempt would have
/// ended.
#[test]
fn a_word_of_a_revival_that_gets_lost_is_said_again() {
    type Which = fn(&Message) -> bool;
    let words: [(&str, u32, Which); 5] = [
        ("Make", 0, |word| matches!(word, Message::Make(..))),
        ("Made", 1, |word| matches!(word, Message::Made(..))),
        ("Up", 0, |word| matches!(word, Message::Up(_))),
        ("Proved", 0, |word| matches!(word, Message::Proved(_))),
        ("Proved", 1, |word| matches!(word, Message::Proved(_))),
    ];
    for (name, from, which) in words {
        let cluster = Cluster::start(&spec(2));
        let lost = Arc::new(AtomicU64::new(0));
        let count = lost.clone();
        cluster.oob.lose(move |sender, _, bytes| {
            let first = sender == from
                && count.load(Ordering::Relaxed) == 0
                && Message::from_bytes(bytes).is_ok_and(|word| which(&word));
            count.fetch_add(first as u64, Ordering::Relaxed);
            first
        });
        inject(&cluster, &["5ms:0.0:down=20ms"]);
        cluster.sim.run_for(600 * MS);
        assert_eq!(lost.load(Ordering::Relaxed), 1, "{name} of PE {from}");
        for pe in 0..2 {
            let events = cluster.events(pe);
            let admitted =
                events.iter().filter(|told| matches!(told.event, Event::PathAdmitted { .. })).count();
            assert!(admitted > 0, "PE {pe} without {name} of PE {from}\n{events:?}");
            let failed = events.iter().any(|told| {
                matches!(told.event, Event::RevivalFailed { .. } | Event::PathFencing { why: "failed", .. })
            });
            assert!(!failed, "PE {pe} without {name} of PE {from}\n{events:?}");
        }
    }
}

/// A NIC whose events cannot be read is told of once, counts as down, and is up again on firmware's word.
#[test]
fn a_nic_whose_events_cannot_be_read_is_told_of_once() {
    let lies = Lies::default();
    let cluster = Cluster::start_lying(&spec(2), lies.clone());
    cluster.sim.run_for(5 * MS);
    lies.deafen(0, 0);
    cluster.sim.run_for(1_000 * MS);
    let events = cluster.events(0);
    let count = |which: fn(&Event) -> bool| events.iter().filter(|told| which(&told.event)).count();
    assert_eq!(count(|event| matches!(event, Event::NicSilent { rail: 0, .. })), 1);
    assert_eq!(count(|event| matches!(event, Event::RailDown { rail: 0 })), 1);
    assert_eq!(count(|event| matches!(event, Event::RailUp { rail: 0, .. })), 1, "firmware still answers");
    // Nobody hears of this one but by asking.
    inject(&cluster, &["1100ms:0.0:down=500ms"]);
    cluster.sim.run_for(2_000 * MS);
    let events = cluster.events(0);
    let count = |which: fn(&Event) -> bool| events.iter().filter(|told| which(&told.event)).count();
    assert_eq!(count(|event| matches!(event, Event::RailDown { rail: 0 })), 2);
    assert_eq!(count(|event| matches!(event, Event::RailUp { rail: 0, .. })), 2);
}

/// A rail of this PE is suspected over one peer, which then ends: another one clears it.
#[test]
fn an_own_rail_is_cleared_by_the_side_that_answers() {
    for gone in [1, 2] {
        let mut spec = RunSpec { idle_ns: 50_000, ..spec(3) };
        spec.traffic.messages = 400;
        spec.traffic.pace_ns = 100_000;
        let cluster = Cluster::start(&spec);
        inject(&cluster, &["5ms:0.0:blackhole-tx=60ms"]);
        for stream in cluster.streams().iter().copied().filter(|stream| stream.from == 0) {
            let traffic = spec.traffic.clone();
            cluster
                .spawn(&format!("send{}", stream.id), 0, move |kernel| kernel.send(Solo, stream, &traffic));
            let traffic = spec.traffic.clone();
            cluster.spawn(&format!("receive{}", stream.id), stream.to, move |kernel| {
                kernel.receive(Solo, stream, &traffic)
            });
        }
        cluster.sim.run_for(40 * MS);
        let own = |which: fn(&Event) -> bool| cluster.events(0).iter().any(|told| which(&told.event));
        assert!(
            own(|event| matches!(event, Event::RailSuspected { of: 0, rail: 0 })),
            "{:?}",
            cluster.events(0)
        );
        inject(&cluster, &[&format!("40ms:{gone}.0:nic-gone"), &format!("40ms:{gone}.1:nic-gone")]);
        cluster.kill_agent(gone);
        cluster.oob.close(gone);
        // Events wait two seconds for a switch that finds no path any more.
        cluster.sim.run_for(3_000 * MS);
        assert!(own(|event| matches!(event, Event::RailCleared { of: 0, rail: 0, .. })), "PE {gone} is gone");
    }
}
