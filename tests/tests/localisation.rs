//! A rail that carries nothing, and says nothing: agents find out whose it is, and who waits on it leaves it sooner.

use shunt_device::Solo;
use shunt_host::events::Event;
use shunt_layout::state::{SwitchKind, SwitchRecord};
use shunt_tests::cluster::Cluster;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

const SUSPECT_NS: u64 = 10_000_000;

fn spec(pes: u32, rails: u32, channels: u32, faults: &[&str]) -> RunSpec {
    RunSpec {
        pes,
        rails,
        channels,
        suspect_ns: SUSPECT_NS,
        traffic: Traffic { messages: 10, pace_ns: 9_000_000, puts: 1, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// Runs senders that begin one after another, so that no two channels have something outstanding at one time.
fn staggered(spec: &RunSpec) -> (Vec<(u32, SwitchRecord)>, u64) {
    let cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let mut tasks = Vec::new();
    for stream in cluster.streams().iter().copied() {
        let traffic = spec.traffic.clone();
        let after_ns = u64::from(stream.id) * traffic.pace_ns / cluster.streams().len() as u64;
        tasks.push(cluster.spawn(&format!("send{}", stream.id), stream.from, move |kernel| {
            kernel.world.sleep(after_ns);
            kernel.send(Solo, stream, &traffic)
        }));
        let traffic = spec.traffic.clone();
        let receive = move |kernel: &shunt_tests::kernel::Kernel| kernel.receive(Solo, stream, &traffic);
        tasks.push(cluster.spawn(&format!("receive{}", stream.id), stream.to, receive));
    }
    for report in cluster.sim.finish_all(&tasks) {
        assert_eq!(report.fault, None, "{}", report.stream);
        assert_eq!(report.messages, spec.traffic.messages, "{}", report.stream);
    }
    assert_eq!(cluster.oracle.total(), 0, "{}", cluster.oracle.describe());
    (cluster.records(), cluster.began_ns())
}

/// Eight channels on the rail that dies, none of which has anything outstanding when another does: when the last of
/// them left it, after the fault.
fn last_to_leave_ns() -> u64 {
    let (records, began) = staggered(&spec(2, 2, 16, &["40ms:0.0:blackhole-tx"]));
    let left: Vec<u64> = records
        .iter()
        .filter(|(pe, record)| *pe == 0 && record.kind == SwitchKind::Failover as u32 && record.from == 0)
        .map(|(_, record)| record.stamps[0] - began - 40_000_000)
        .collect();
    assert!(left.len() >= 8, "{left:?}");
    left.into_iter().max().unwrap_or(0)
}

/// The first channel waits its suspect time, and the others hardly longer than it.
#[test]
fn eight_channels_wait_for_one_suspect_time() {
    let last = last_to_leave_ns();
    assert!(last < SUSPECT_NS * 3 / 2, "the last of eight channels left after {last} ns");
}

#[cfg(feature = "mutants")]
#[test]
fn without_localisation_each_waits_for_its_own() {
    shunt_layout::mutant::Mutant::choose(&[shunt_layout::mutant::Mutant::NobodyAsked]);
    let last = last_to_leave_ns();
    assert!(last > SUSPECT_NS * 3 / 2, "the last of eight channels left after {last} ns");
}

fn outcome(spec: &RunSpec) -> (Outcome, Vec<Event>) {
    let cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    let events = (0..spec.pes).flat_map(|pe| cluster.events(pe)).map(|told| told.event).collect();
    outcome.assert_clean();
    (outcome, events)
}

/// Whose rails were suspected, each once.
fn suspected(events: &[Event]) -> Vec<(u32, u32)> {
    let mut all: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::RailSuspected { of, rail } => Some((*of, *rail)),
            _ => None,
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn busy(pes: u32, rails: u32, channels: u32, faults: &[&str]) -> RunSpec {
    let mut spec = spec(pes, rails, channels, faults);
    spec.both_ways = true;
    spec.traffic = Traffic { messages: 600, pace_ns: 100_000, ..Traffic::default() };
    spec
}

/// One peer's NIC dies in silence: its rail is the one that is suspected, by everybody, and nobody's own. Channels over
/// the same local rail to the third PE stay where they are.
#[test]
fn a_peers_dead_nic_makes_nobody_blame_his_own() {
    for fault in ["blackhole-tx", "blackhole-rx", "drop=1"] {
        let mut spec = busy(3, 2, 2, &[&format!("5ms:1.0:{fault}")]);
        spec.traffic.messages = 300;
        let (outcome, events) = outcome(&spec);
        assert_eq!(suspected(&events), [(1, 0)], "{fault}\n{outcome}");
        for (pe, record) in &outcome.records {
            assert!(*pe == 1 || record.peer == 1, "PE {pe} left a path to PE {}\n{outcome}", record.peer);
        }
    }
}

/// What is suspected is acquitted once it answers.
#[test]
fn a_rail_that_answers_again_is_cleared() {
    let mut spec = busy(2, 2, 2, &["5ms:1.0:blackhole-rx=30ms"]);
    spec.traffic.messages = 800;
    let (outcome, events) = outcome(&spec);
    assert_eq!(suspected(&events), [(1, 0)], "{outcome}");
    let cleared = events.iter().filter(|event| matches!(event, Event::RailCleared { of: 1, rail: 0, .. }));
    assert!(cleared.count() >= 2, "both ends have suspected it, and both clear it\n{events:?}");
}

/// Suspicion masks nothing: with every rail of the peer under suspicion in turn, those that carry something are used.
#[test]
fn a_suspect_rail_is_used_where_there_is_no_other() {
    let mut spec = busy(2, 2, 2, &["5ms:1.0:blackhole-rx=25ms", "40ms:1.1:down"]);
    spec.traffic.messages = 1_000;
    outcome(&spec);
}

/// All of a peer's rails are silent: nobody is blamed, and nothing is lost.
#[test]
fn silence_everywhere_convicts_nobody() {
    let (outcome, events) =
        outcome(&busy(2, 2, 2, &["5ms:1.0:blackhole-rx=40ms", "5ms:1.1:blackhole-rx=40ms"]));
    assert!(suspected(&events).iter().all(|(of, _)| *of == 1), "{events:?}\n{outcome}");
}

/// Paths that lose some packets and work otherwise: a suspicion may come, and never stops a channel that works.
#[test]
fn loss_is_no_silence() {
    for seed in 0..4 {
        let mut spec = busy(2, 2, 4, &["5ms:1.0:drop=0.2/40ms", "5ms:0.1:drop=0.1/40ms"]);
        spec.seed = seed;
        outcome(&spec);
    }
}
