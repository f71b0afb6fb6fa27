//! What agents tell of faults, in virtual time: which events, in which order, at which instants.

use shunt_host::events::{Event, Told, line};
use shunt_layout::state::SwitchKind;
use shunt_tests::cluster::Cluster;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn spec(faults: &[&str]) -> RunSpec {
    RunSpec {
        both_ways: true,
        // One path a channel and a backup with rails of its own: what is told of it is what is told of any.
        backups: 1,
        traffic: Traffic { messages: 400, pace_ns: 200_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// A run, and what each PE told.
fn told(spec: &RunSpec) -> (Outcome, Vec<Vec<Told>>) {
    let cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    outcome.assert_clean();
    let events = (0..spec.pes).map(|pe| cluster.events(pe)).collect();
    (outcome, events)
}

fn names(events: &[Told]) -> Vec<String> {
    let is_step = |told: &&Told| matches!(told.event, Event::Step { .. });
    let name = |told: &Told| match &told.event {
        Event::Step { step, .. } => format!("step {step}"),
        event => event.name().to_owned(),
    };
    events.iter().filter(|told| !is_step(told)).map(name).collect()
}

const SWITCH: [&str; 4] = ["switch_fenced", "switch_cut", "switch_replayed", "failover"];
const WAY_BACK: [&str; 12] = [
    "path_released",
    "rail_up",
    "path_revived",
    "path_probing",
    "path_admitted",
    "switch_noticed",
    "switch_closed",
    "switch_fenced",
    "switch_cut",
    "switch_replayed",
    "traffic_moved",
    "switch_back",
];

/// Scenario 13: NICs that miscount atomics are named at the start, each with what was seen.
#[test]
fn a_count_that_is_refused_is_told_at_the_start() {
    let (_, events) = told(&RunSpec { atomic_count: 1, ..spec(&[]) });
    for events in events {
        let refused = |told: &Told| match &told.event {
            Event::CountRefused { rail, why } if why.contains("rmsn counts 0 atomics, 7 of 7") => Some(*rail),
            _ => None,
        };
        assert_eq!(events.iter().filter_map(refused).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(names(&events)[..3], ["agent_started", "count_refused", "count_refused"]);
    }
}

/// The whole story of one port that goes down and comes back, at both ends.
#[test]
fn a_port_down_and_up_is_told_event_by_event() {
    let (outcome, events) = told(&spec(&["5100us:0.0:down", "30ms:0.0:up"]));
    assert_eq!((outcome.failovers(), outcome.switchbacks()), (2, 2), "{outcome}");
    let story = |begin: &[&str], rail_up: &str| {
        let way_back = WAY_BACK.iter().map(|name| if *name == "rail_up" { rail_up } else { name });
        let end = SWITCH.into_iter().chain(way_back).chain(["recovered"]);
        begin.iter().copied().chain(end).map(str::to_owned).collect::<Vec<_>>()
    };
    let noticed = ["switch_noticed", "switch_closed", "fence_asked"];
    let fenced = ["half_fenced", "path_fenced", "fence_answered"];
    // Agents fence a path that its channel is on before the channel has noticed anything.
    let story = |rail: &str, rail_up: &str| {
        story(&[&["agent_started", rail, "path_fencing"], &noticed[..], &fenced[..]].concat(), rail_up)
    };
    assert_eq!(names(&events[0]), story("rail_down", "rail_up"));
    assert_eq!(names(&events[1]), story("peer_rail_down", "peer_rail_up"));
}

/// Numbers without holes, time that does not go back, one trouble from the port to the way back, and instants that
/// are those of the faults and of the records.
#[test]
fn the_stream_is_in_order_and_its_instants_are_those_of_the_run() {
    let (outcome, events) = told(&spec(&["5ms:0.0:down", "30ms:0.0:up"]));
    for (pe, events) in events.iter().enumerate() {
        assert!(events.iter().enumerate().all(|(number, told)| told.number == number as u64));
        assert!(events.is_sorted_by_key(|told| told.at_ns));
        assert!(events.iter().all(|told| told.pe == pe as u32));
        assert_eq!(events.iter().filter(|told| told.fault == 0).count(), 1, "all but the start");
        assert!(events.iter().all(|told| told.fault <= 1));
        let back = events.iter().find_map(|told| match told.event {
            Event::SwitchBack { drain_ns, flush_ns, open_ns, .. } => {
                Some((told.at_ns, drain_ns + flush_ns + open_ns))
            }
            _ => None,
        });
        let mut records = outcome.records.iter().filter(|(at, _)| *at == pe as u32);
        let record = &records
            .rfind(|(_, record)| record.kind == SwitchKind::SwitchBack as u32)
            .expect("it went back")
            .1;
        assert_eq!(back, Some((record.stamps[5], record.stamps[5] - record.stamps[0])));
    }
    let down = events[0].iter().find(|told| told.event == Event::RailDown { rail: 0 }).expect("told");
    let since = down.at_ns - outcome.began_ns - 5_000_000;
    assert!(since < 100_000, "the port's event took {since} ns");
}

/// Two runs of a seed tell the same, word for word.
#[test]
fn a_seed_tells_the_same_story_twice() {
    let spec = spec(&["5ms:0.0:drop-acks=12ms", "40ms:1.1:down", "45ms:1.1:up"]);
    let lines = || told(&spec).1.concat().iter().map(|told| line(told, None)).collect::<Vec<_>>();
    let first = lines();
    assert!(first.iter().any(|line| line.contains("\"event\":\"suspected\"")), "{first:#?}");
    assert_eq!(first, lines());
}

/// An agent that is cut off and comes back, a peer that is gone: what the operator must see.
#[test]
fn a_lost_link_and_a_lost_peer_are_told() {
    let (_, events) = told(&spec(&["5ms:0:oob-cut=700ms"]));
    assert!(names(&events[1]).iter().all(|name| name != "channel_dead"));
    let mut lost = spec(&["5ms:1:peer-killed"]);
    lost.both_ways = false;
    let cluster = Cluster::start(&lost);
    lost.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    outcome.assert_kept();
    let told = names(&cluster.events(0));
    let first = |name: &str| told.iter().position(|told| told == name);
    let (link, dead, gone) = (first("agent_link_lost"), first("channel_dead"), first("peer_lost"));
    assert!(link.is_some() && link < dead && dead < gone, "{told:#?}");
    assert_eq!(told.iter().filter(|name| *name == "peer_lost").count(), 1);
}
