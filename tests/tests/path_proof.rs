//! The start-up proof on real paths: idle backups show what their NICs showed on loopback, or are not believed.

use shunt_host::agent::AgentOptions;
use shunt_host::events::{Event, Told};
use shunt_layout::state::PathState;
use shunt_tests::cluster::Cluster;
use shunt_tests::lies::{Lie, Lies};
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;
use std::cell::Cell;
use std::rc::Rc;

/// A run without faults whose agents prove idle backups from 10 ms on, on NICs that tell `lie` once they have shown
/// themselves on loopback; and what was refused: rail and reason.
fn proved(lie: Lie) -> (Outcome, Vec<(u32, String)>, usize) {
    let spec = RunSpec {
        both_ways: true,
        backups: 3,
        backups_later: true,
        agent: AgentOptions { prove_ns: 10_000_000, ..AgentOptions::default() },
        traffic: Traffic { messages: 600, pace_ns: 500_000, ..Traffic::default() },
        ..RunSpec::default()
    };
    let lies = Lies::default();
    let cluster = Cluster::start_lying(&spec, lies.clone());
    lies.tell(lie);
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    let (mut refused, mut fenced) = (Vec::new(), 0);
    for told in (0..spec.pes).flat_map(|pe| cluster.events(pe)) {
        match told.event {
            Event::CountRefused { rail, why } => refused.push((rail, why)),
            Event::PathFenced { .. } => fenced += 1,
            _ => {}
        }
    }
    (outcome, refused, fenced)
}

#[test]
fn idle_backups_are_proved_beside_traffic_that_does_not_notice() {
    let (outcome, refused, fenced) = proved(Lie::None);
    outcome.assert_clean();
    assert_eq!((outcome.failovers(), refused), (0, Vec::new()), "{outcome}");
    assert!(fenced > 0, "no backup was proved\n{outcome}");
}

/// A network, or a virtual function, may spoil a count that loopback shows to be right.
#[test]
fn a_path_that_disagrees_with_loopback_is_named_once_and_not_believed() {
    for (lie, words) in [(Lie::CountZero, "rmsn is 0 after"), (Lie::CountAhead, "rmsn is 4 after 3")] {
        let (outcome, mut refused, _) = proved(lie);
        outcome.assert_clean();
        assert!(!refused.is_empty(), "{lie:?} was believed\n{outcome}");
        for (_, why) in &refused {
            assert!(why.contains("unlike on loopback") && why.contains(words), "{why}");
        }
        let all = refused.len();
        refused.sort();
        refused.dedup();
        assert!(all <= 2 * refused.len(), "told more than once by an end: {refused:?}");
    }
}

/// Who waits for the agents before it posts finds every backup proved, and as ready as before.
#[test]
fn an_agent_is_settled_when_its_backups_are_ready_and_proved() {
    let spec = RunSpec {
        backups: 3,
        backups_later: true,
        agent: AgentOptions { prove_ns: 0, ..AgentOptions::default() },
        ..RunSpec::default()
    };
    let cluster = Cluster::start(&spec);
    let settled = || {
        let all = Rc::new(Cell::new(0));
        for pe in 0..spec.pes {
            let all = all.clone();
            cluster.order(pe, move |agent, _| all.set(all.get() + agent.is_settled() as u32));
        }
        cluster.sim.run_for(1_000_000);
        all.get() == spec.pes
    };
    assert!(!settled(), "before any backup is there");
    assert!((0..1_000).any(|_| settled()), "not within a second");
    for slot in 1..4 {
        // The second incarnation is the first that is made behind a proof.
        let row = cluster.path_row(0, 1, 0, slot);
        assert!(row.state == PathState::Ready as u32 && row.incarnation >= 2, "slot {slot}: {row:?}");
    }
    let fenced = |told: &Told| matches!(told.event, Event::PathFenced { .. });
    let fences = cluster.events(0).iter().filter(|told| fenced(told)).count();
    assert_eq!(fences, 3, "each pair of rails but the one in use, once");
    let asked = |note: &String| note.ends_with("why=asked");
    assert!(cluster.notes().iter().all(asked), "nothing failed: {:?}", cluster.notes());
}
