//! Agents that die and come back. Rules 9, 10, 17, 18: what the next one finds lies in memory and in NICs, what the
//! last one knew is gone.

use std::collections::BTreeSet;

use shunt_host::agent::words::Place;
use shunt_host::events::Event;
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_soft_nic::Injection;

use super::kit::{
    Wrongs, both_ways, brisk, clean, failovers_of, faults_of_kernels, gap_below, idle_faults, judged,
    promises, spec, ways_back, wrong_if,
};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::lies::Lies;
use crate::outcome::Outcome;
use crate::run::{finish, start_streams};
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "agent_restart_between_fence_and_answer", seeds: 16, run: between_fence_and_answer },
    Scenario { name: "agent_restart_after_the_truth_was_told", seeds: 6, run: after_the_truth_was_told },
    Scenario { name: "agent_restart_before_the_truth_is_told", seeds: 6, run: before_the_truth_is_told },
    Scenario { name: "agent_restart_with_fences_not_begun", seeds: 6, run: fences_not_begun },
    Scenario { name: "agent_dead_while_a_fence_is_asked", seeds: 4, run: while_a_fence_is_asked },
    Scenario { name: "agent_restart_during_a_revival", seeds: 16, run: during_a_revival },
    Scenario { name: "agent_restart_during_a_drain", seeds: 6, run: during_a_drain },
    Scenario { name: "agent_restart_with_the_link_cut", seeds: 6, run: with_the_link_cut },
    Scenario { name: "agent_restarts_three_in_a_row", seeds: 6, run: three_in_a_row },
    Scenario { name: "agent_dead_while_a_port_goes_down", seeds: 4, run: while_a_port_goes_down },
    Scenario { name: "agent_restart_while_all_is_well", seeds: 2, run: while_all_is_well },
];

/// A firmware command at rail 0.
#[derive(Clone, Copy, Debug)]
struct At {
    pe: u32,
    opcode: Opcode,
    ended: bool,
    /// The how manyeth from when the traffic was under way.
    number: usize,
}

/// Runs `spec`; when the NIC has begun or ended a command, `faults` strike.
fn struck(spec: &RunSpec, at: At, faults: &[String], also: impl FnOnce(&Outcome) -> Wrongs) -> Wrongs {
    judged(|| {
        let lies = Lies::default();
        let cluster = Cluster::start_lying(spec, lies.clone());
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        cluster.sim.run_for(100_000);
        lies.listen();
        let heard = || {
            let here = |heard: &crate::lies::Heard| heard.pe == at.pe && heard.rail == 0;
            lies.heard(|heard| here(heard) && heard.opcode == at.opcode as u32 && heard.ended == at.ended)
        };
        let until = cluster.sim.now() + 100_000_000;
        cluster.sim.run_until(|| heard() >= at.number || streams.done() || cluster.sim.now() > until);
        let reached = heard() >= at.number;
        let now = cluster.sim.now() - cluster.began_ns();
        for fault in faults {
            let injection = format!("{now}ns:{fault}").parse::<Injection>();
            cluster.inject(&injection.unwrap_or_else(|error| panic!("{error}")));
        }
        let outcome = finish(&cluster, streams);
        let mut wrongs = wrong_if(!reached, || format!("{at:?} never happened"));
        wrongs.extend(promises(&outcome));
        wrongs.extend(faults_of_kernels(&outcome));
        wrongs.extend(idle_faults(&outcome));
        wrongs.extend(numbers_used_once(&cluster));
        wrongs.extend(also(&outcome));
        wrongs
    })
}

/// No incarnation of a pair was begun twice, whatever its agents forgot.
fn numbers_used_once(cluster: &Cluster) -> Wrongs {
    let mut wrongs = Vec::new();
    for pe in 0..cluster.spec.pes {
        let mut seen: BTreeSet<(u32, u32, u32, u32)> = BTreeSet::new();
        for told in cluster.events(pe) {
            let Event::PathRevived { at } = told.event else { continue };
            let Place { peer, channel, slot } = at.place;
            if !seen.insert((peer, channel, slot, at.incarnation)) {
                wrongs.push(format!("PE {pe} began incarnation {} of slot {slot} twice", at.incarnation));
            }
        }
    }
    wrongs
}

/// Both ways, three rails, a port that goes down for a moment.
fn base(seed: u64) -> RunSpec {
    let mut spec = brisk(both_ways(seed, &["600us:0.0:down", "2500us:0.0:up"]));
    (spec.rails, spec.backups, spec.log_depth) = (3, 3, 5);
    spec.traffic = Traffic { messages: 500, slots: 12, pace_ns: 40_000, ..spec.traffic };
    spec
}

/// Each command of a fence, begun and ended, at either end; the agent of either end. Kinds of signals in turn.
fn between_fence_and_answer(seed: u64) -> Wrongs {
    let mut spec = base(seed);
    spec.traffic.signals = 1 + (seed / 4 % 3) as u32;
    let at = At {
        pe: (seed & 1) as u32,
        opcode: if seed & 4 == 0 { Opcode::Qp2Err } else { Opcode::QueryQp },
        ended: seed & 8 != 0,
        number: 1 + (seed & 4) as usize / 4,
    };
    let who = seed >> 1 & 1;
    struck(&spec, at, &[format!("{who}:agent-restart")], |outcome| failovers_of(outcome, 2))
}

/// The peer has the truth, and perhaps used it: what the next agent says of it changes nothing.
fn after_the_truth_was_told(seed: u64) -> Wrongs {
    let mut spec = base(seed);
    spec.traffic.signals = 1 + (seed / 2 % 3) as u32;
    let pe = (seed & 1) as u32;
    // Past the second query by less than a round of messages.
    let at = At { pe, opcode: Opcode::QueryQp, ended: true, number: 2 };
    struck(&spec, at, &[format!("{pe}:agent-dead=150us")], |outcome| failovers_of(outcome, 2))
}

/// Nothing was acknowledged, all of it was executed, and the receiver's agent dies before it says so: its successor
/// does not know, and the ledger does.
fn before_the_truth_is_told(seed: u64) -> Wrongs {
    let mut spec = spec(seed, &["0ns:0.0:drop-acks"]);
    (spec.suspect_ns, spec.log_depth) = (2_000_000, 6);
    spec.traffic = Traffic { messages: 200, slots: 8, signals: 1 + (seed % 3) as u32, ..spec.traffic };
    let at = At { pe: 1, opcode: Opcode::Qp2Err, ended: seed >= 3, number: 1 };
    struck(&spec, at, &["1:agent-restart".into()], |outcome| failovers_of(outcome, 1))
}

/// Eight channels are fenced by one NIC when the agent dies, most of which its NIC has not begun; their packets are
/// on their way.
fn fences_not_begun(seed: u64) -> Wrongs {
    let mut spec = both_ways(seed, &["200us:0.0:delay=3ms", "1500us:0.0:down"]);
    spec.channels = 8;
    let traffic = Traffic { messages: 300, slots: 4, pace_ns: 0, credit_lag: 0, ..spec.traffic };
    spec.traffic = traffic;
    let at = At { pe: 1, opcode: Opcode::Qp2Err, ended: false, number: 1 + seed as usize % 3 };
    struck(&spec, at, &["1:agent-restart".into()], |outcome| failovers_of(outcome, 8))
}

/// A switcher asks an agent that is dead; the next one answers.
fn while_a_fence_is_asked(seed: u64) -> Wrongs {
    let span = ["4ms", "12ms", "60ms", "150ms"][seed as usize % 4];
    let mut spec = both_ways(seed, &[&format!("2ms:0:agent-dead={span}"), "2100us:0.0:blackhole-tx"]);
    spec.suspect_ns = 2_000_000;
    clean(&spec, |outcome| {
        let most = 300_000_000;
        [failovers_of(outcome, 2), gap_below(outcome, most)].concat()
    })
}

/// Commands of a pair that is recreated, at the end that leads and at the one that follows; either agent dies.
fn during_a_revival(seed: u64) -> Wrongs {
    let opcode =
        [Opcode::CreateQp, Opcode::CreateQp, Opcode::Rst2InitQp, Opcode::Rtr2RtsQp][seed as usize / 4];
    let at = At { pe: (seed & 1) as u32, opcode, ended: seed & 4 != 0, number: 1 };
    let who = seed >> 1 & 1;
    struck(&base(seed), at, &[format!("{who}:agent-restart")], |outcome| {
        let mut wrongs = failovers_of(outcome, 2);
        wrongs.extend(wrong_if(ways_back(outcome).count() < 2, || "a channel did not go back".into()));
        wrongs
    })
}

/// The way back: the primary is ready again, the backup drains.
fn during_a_drain(seed: u64) -> Wrongs {
    let mut spec = base(seed);
    spec.traffic.messages = 700;
    let who = seed % 2;
    // The backup's placement is late, so that a drain lasts.
    let again = 6_000 + 700 * (seed / 2);
    for fault in
        [format!("1ms:{}.1:placement-delay=400us", seed % 2), format!("{again}us:{who}:agent-restart")]
    {
        spec.faults.push(fault.parse().expect("a fault"));
    }
    clean(&spec, |outcome| wrong_if(ways_back(outcome).count() < 2, || "a channel did not go back".into()))
}

/// Agents that hear each other over the rails alone: who comes back begins with numbers above its predecessor's.
fn with_the_link_cut(seed: u64) -> Wrongs {
    let mut spec = base(seed);
    spec.faults.push("100us:1:oob-cut".parse().expect("a fault"));
    spec.traffic.wait_ns = 3_000_000_000;
    let at = At { pe: (seed & 1) as u32, opcode: Opcode::Qp2Err, ended: seed & 4 != 0, number: 1 };
    let who = seed >> 1 & 1;
    struck(&spec, at, &[format!("{who}:agent-restart")], |outcome| failovers_of(outcome, 2))
}

/// Three agents in a row at one end, or at both in turns, from the first command of a fence on.
fn three_in_a_row(seed: u64) -> Wrongs {
    let spec = base(seed);
    let at = At { pe: (seed & 1) as u32, opcode: Opcode::Qp2Err, ended: false, number: 1 };
    judged(|| {
        let lies = Lies::default();
        let cluster = Cluster::start_lying(&spec, lies.clone());
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let heard = |heard: &crate::lies::Heard| heard.pe == at.pe && heard.opcode == at.opcode as u32;
        cluster.sim.run_for(100_000);
        lies.listen();
        cluster.sim.run_until(|| lies.heard(heard) > 0 || streams.done());
        let now = cluster.sim.now() - cluster.began_ns();
        for number in 0..3 {
            let who = if seed < 4 { seed >> 1 & 1 } else { number % 2 };
            let at_ns = now + number * (90_000 + 110_000 * (seed % 3));
            let fault = format!("{at_ns}ns:{who}:agent-restart").parse::<Injection>();
            cluster.inject(&fault.unwrap_or_else(|error| panic!("{error}")));
        }
        let outcome = finish(&cluster, streams);
        [
            promises(&outcome),
            faults_of_kernels(&outcome),
            failovers_of(&outcome, 2),
            numbers_used_once(&cluster),
            idle_faults(&outcome),
        ]
        .concat()
    })
}

/// Events of a port wait for the next agent, whichever end it is.
fn while_a_port_goes_down(seed: u64) -> Wrongs {
    let who = seed % 2;
    let mut spec = base(seed);
    spec.faults
        .push(format!("400us:{who}:agent-dead={}ms", [3, 30][seed as usize / 2]).parse().expect("a fault"));
    spec.traffic.messages = 900;
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// Nothing is fenced, nothing moves.
fn while_all_is_well(seed: u64) -> Wrongs {
    let spec = both_ways(seed, &["1ms:0:agent-restart", "2ms:1:agent-dead=1ms", "4ms:0:agent-restart"]);
    clean(&spec, |outcome| {
        wrong_if(!outcome.records.is_empty(), || {
            format!("{} switches without a fault", outcome.records.len())
        })
    })
}
