//! Paths that an operator takes out, and words about them that get lost. Rules 10 and 17, H7.

use std::cell::Cell;
use std::rc::Rc;

use shunt_host::agent::health::Health;
use shunt_host::agent::message::Message;
use shunt_host::agent::words::Place;
use shunt_layout::state::SwitchKind;

use super::kit::{Wrongs, both_ways, brisk, faults_of_kernels, idle_faults, judged, promises, wrong_if};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::outcome::Outcome;
use crate::run::{finish, start_streams};
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_path_that_is_out_and_a_word_that_was_lost", seeds: 4, run: word_lost },
    Scenario { name: "a_path_that_is_left_and_gone_back_to", seeds: 2, run: gone_back_to },
    Scenario { name: "a_path_taken_out_again_and_again", seeds: 2, run: again_and_again },
];

/// Two rails, a word each 40 us, both ways, for `ms`.
fn steady(seed: u64, ms: u64, faults: &[&str]) -> RunSpec {
    let mut spec = brisk(both_ways(seed, faults));
    spec.traffic = Traffic { messages: ms * 25, pace_ns: 40_000, ..spec.traffic };
    spec
}

fn primary_of(pe: u32) -> Place {
    Place { peer: 1 - pe, channel: 0, slot: 0 }
}

/// The health of the primary as the agent of `pe` has it.
fn health(cluster: &Cluster, pe: u32) -> Option<Health> {
    let seen = Rc::new(Cell::new(None));
    let kept = seen.clone();
    cluster.order(pe, move |agent, _| kept.set(Some(agent.health(primary_of(pe)))));
    cluster.sim.run_until(|| seen.get().is_some());
    seen.get().flatten()
}

/// True once the primary's health at `pe` is `wanted`, within `ns`.
fn becomes(cluster: &Cluster, pe: u32, wanted: Health, ns: u64) -> bool {
    let until = cluster.sim.now() + ns;
    loop {
        if health(cluster, pe) == Some(wanted) {
            return true;
        }
        if cluster.sim.now() > until {
            return false;
        }
        cluster.sim.run_for(50_000);
    }
}

/// Has the agent of `pe` take the primary out, or bring it back.
fn order(cluster: &Cluster, pe: u32, out: bool) {
    cluster.order(pe, move |agent, now| {
        let at = primary_of(pe);
        assert!(if out { agent.retire(now, at) } else { agent.readmit(now, at) }, "a path that exists");
    });
}

fn well(outcome: &Outcome) -> Wrongs {
    [promises(outcome), faults_of_kernels(outcome), idle_faults(outcome)].concat()
}

/// One end has the path out, and the other never heard that its direction has left; perhaps its agent dies in between,
/// too. Who asks is answered.
fn word_lost(seed: u64) -> Wrongs {
    judged(|| {
        let (quiet, restarts) = ((seed % 2) as u32, seed / 2 == 1);
        let spec = steady(seed, 60, &[]);
        let cluster = Cluster::start(&spec);
        let streams = start_streams(&cluster);
        cluster.sim.run_for(2_000_000);
        cluster.oob.lose(move |from, _, bytes| {
            from == quiet && matches!(Message::from_bytes(bytes), Ok(Message::Left(_)))
        });
        // The end that orders is not always the one that is not heard.
        order(&cluster, (seed / 2 % 2) as u32, true);
        let out = becomes(&cluster, quiet, Health::Retired, 2_500_000_000);
        let waits = health(&cluster, 1 - quiet);
        cluster.oob.lose(|_, _, _| false);
        if restarts {
            let now = cluster.sim.now() - cluster.began_ns();
            cluster.inject(&format!("{now}ns:{quiet}:agent-restart").parse().expect("a fault"));
        }
        let both = becomes(&cluster, 1 - quiet, Health::Retired, 400_000_000);
        let outcome = finish(&cluster, streams);
        let mut wrongs = well(&outcome);
        wrongs.extend(wrong_if(!out, || "the path is not out".into()));
        wrongs.extend(wrong_if(waits == Some(Health::Retired), || "nothing was lost".into()));
        wrongs.extend(wrong_if(!both, || format!("PE {} was not told: {waits:?}", 1 - quiet)));
        wrongs
    })
}

/// One direction has left the path when the only other one fails, and goes back to it. It has to leave it once more
/// before anybody fences it: nothing is ever cut off on it.
fn gone_back_to(seed: u64) -> Wrongs {
    judged(|| {
        let (one, other) = ((seed % 2) as u32, (1 - seed % 2) as u32);
        // What is drained takes its time: of one direction from the start, of the other one when it is back.
        let late = format!("100us:{other}.0:late-cqe=2ms");
        let later = format!("2600us:{one}.0:late-cqe=5ms");
        let faults = [late.as_str(), &later, &format!("3ms:{one}.1:down=1ms")];
        let spec = RunSpec { backups: 1, ..steady(seed, 40, &faults) };
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        cluster.sim.run_for(2_000_000);
        order(&cluster, one, true);
        let out = becomes(&cluster, one, Health::Retired, 100_000_000);
        let outcome = finish(&cluster, streams);
        let cut = |record: &&shunt_layout::state::SwitchRecord| record.from == 0;
        let cut = outcome.of_kind(SwitchKind::Failover).filter(cut).count();
        let mut wrongs = well(&outcome);
        wrongs.extend(wrong_if(!out, || "the path is not out".into()));
        wrongs.extend(wrong_if(cut > 0, || format!("{cut} directions were cut off on the path\n{outcome}")));
        wrongs
    })
}

/// What an operator takes out has not failed: when he brings it back it is gone back to as soon as ever.
fn again_and_again(seed: u64) -> Wrongs {
    judged(|| {
        let taker = (seed % 2) as u32;
        let spec = steady(seed, 100, &[]);
        let cluster = Cluster::start(&spec);
        let streams = start_streams(&cluster);
        let mut wrongs = Wrongs::new();
        for round in 0..4 {
            cluster.sim.run_for(1_000_000);
            order(&cluster, taker, true);
            let out = becomes(&cluster, taker, Health::Retired, 50_000_000);
            order(&cluster, taker, false);
            let ready = becomes(&cluster, taker, Health::Ready, 50_000_000);
            cluster.sim.run_for(5_000_000);
            let slots = [cluster.active_slot(0, 1, 0), cluster.active_slot(1, 0, 0)];
            wrongs.extend(wrong_if(!out || !ready || slots != [0, 0], || {
                format!("round {round}: out {out}, ready {ready}, channels on {slots:?}")
            }));
        }
        wrongs.extend(well(&finish(&cluster, streams)));
        wrongs
    })
}
