//! A fault during each step of a switch, put there by the step and not by the clock; a third after it. With a path
//! left all goes on; with none, every kernel ends with a fault that names every unfinished ticket. Invariant 10.

use std::cell::Cell;
use std::rc::Rc;

use shunt_device::{Fault, FaultKind};
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::state::Step;
use shunt_soft_nic::Injection;

use super::kit::{Wrongs, both_ways, brisk, faults_of_kernels, idle_faults, judged, promises, wrong_if};
use super::scenario::Scenario;
use crate::cluster::{Cluster, step_at};
use crate::lies::{Heard, Lies};
use crate::oracle::load;
use crate::outcome::Outcome;
use crate::run::{finish, start_streams};
use crate::sim::{Access, Interference};
use crate::spec::RunSpec;
use crate::traffic::Traffic;
use crate::workload::{Report, is_final};

/// When a fault is put in.
#[derive(Clone, Copy, Debug)]
enum During {
    /// Before access number `.1` of a kernel of PE 0 while its switch stands at this step.
    Step(Step, u64),
    /// Before the flag of the ready word is cleared: ring and tickets are open, the done word is not.
    Open,
    /// When the NIC of rail 0 of PE `.0` has begun, or ended, a command.
    Command { pe: u32, opcode: Opcode, ended: bool },
}

macro_rules! during {
    ($($name:ident: $text:literal, $lost:literal, $when:expr;)*) => {
        pub const SCENARIOS: &[Scenario] = &[$(
            Scenario { name: $text, seeds: 12, run: |seed| $name(seed, false) },
            Scenario { name: $lost, seeds: 3, run: |seed| $name(seed, true) },
        )*];
        $(fn $name(seed: u64, no_path_left: bool) -> Wrongs {
            let when: fn(u64) -> During = $when;
            if no_path_left { without_a_path(seed, when(seed)) } else { with_a_path(seed, when(seed)) }
        })*
    };
}

during! {
    settle: "fault_during_settle", "last_path_lost_during_settle", |seed| During::Step(Step::Settle, 1 + seed * 3);
    fence: "fault_during_fence", "last_path_lost_during_fence", |seed| {
        During::Command { pe: (seed % 2) as u32, opcode: Opcode::Qp2Err, ended: false }
    };
    truth: "fault_during_truth", "last_path_lost_during_truth", |seed| {
        During::Command { pe: (seed % 2) as u32, opcode: Opcode::QueryQp, ended: false }
    };
    flush: "fault_during_flush", "last_path_lost_during_flush", |seed| {
        During::Command { pe: (seed % 2) as u32, opcode: Opcode::QueryQp, ended: true }
    };
    cut: "fault_during_cut", "last_path_lost_during_cut", |seed| During::Step(Step::Choose, seed);
    replay: "fault_during_replay", "last_path_lost_during_replay", |seed| {
        During::Step(Step::Replay, 3 + seed * 11)
    };
    open: "fault_during_open", "last_path_lost_during_open", |_| During::Open;
    drain: "fault_during_drain", "last_path_lost_during_drain", |seed| During::Step(Step::Drain, 2 + seed * 4);
    drain_flush: "fault_during_drain_flush", "last_path_lost_during_drain_flush", |seed| {
        During::Step(Step::DrainFlush, seed)
    };
    revive: "fault_during_revive", "last_path_lost_during_revive", |seed| {
        During::Command { pe: (seed % 2) as u32, opcode: Opcode::CreateQp, ended: seed / 2 % 2 == 1 }
    };
    probe: "fault_during_probe", "last_path_lost_during_probe", |seed| {
        During::Command { pe: (seed % 2) as u32, opcode: Opcode::Rtr2RtsQp, ended: true }
    };
}

/// The second fault: what the switch is working with, at either end.
const SECOND: [&str; 12] = [
    "0.1:down",
    "1.1:down",
    "0.1:blackhole-tx",
    "0.1:drop-acks",
    "1.0:nic-gone=20ms",
    "0.0:fw-timeout=30ms",
    "1.0:fw-timeout=30ms",
    "1:agent-stalled=5ms",
    "0:oob-cut=3ms",
    "1.1:placement-delay=900us/5ms",
    "0:agent-restart",
    "1:agent-restart",
];

/// The third, a moment later.
const THIRD: [&str; 3] = ["0.2:down", "1.2:down", "0.0:gid-change"];

/// Primary down and, where the way back matters, up again.
fn base(seed: u64, rails: u32) -> RunSpec {
    let mut spec = brisk(both_ways(seed, &["400us:0.0:down", "1500us:0.0:up"]));
    (spec.rails, spec.backups, spec.warps, spec.log_depth, spec.agent.looks) = (rails, 7, 2, 5, 0);
    spec.give_up_ns = 100_000_000;
    spec.traffic = Traffic { messages: 150, slots: 12, pace_ns: 40_000, ..spec.traffic };
    spec
}

/// Runs `spec`; puts `second` in when `during` says, `third` so much later. What happened, and the cluster afterwards.
fn run(
    spec: &RunSpec,
    during: During,
    second: &[String],
    third: &[(u64, String)],
) -> (Outcome, Cluster, bool) {
    let lies = Lies::default();
    let mut cluster = Cluster::start_lying(spec, lies.clone());
    let reached = Rc::new(Cell::new(false));
    let (word, hit) = (cluster.step_word(0, 1, 0), reached.clone());
    let before = cluster.began_ns();
    let world = cluster.sim.world();
    let mut left = if let During::Step(_, number) = during { number + 1 } else { 1 };
    let chosen = move |access: Access| {
        let there = match during {
            During::Step(step, _) => step_at(word) == step,
            During::Open => step_at(word) == Step::Replay && access.method == "fetch_and",
            During::Command { .. } => false,
        };
        left -= u64::from(there && left > 0);
        let now = left == 0 && world.now() > before;
        hit.set(hit.get() | now);
        now
    };
    // Held up for longer than a packet travels: the fault acts before the step goes on.
    cluster.interference = Rc::new(Interference::stop_when(chosen, 5_000));
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    cluster.sim.run_for(300_000);
    lies.listen();
    let until = cluster.sim.now() + 60_000_000;
    let commanded = || match during {
        During::Command { pe, opcode, ended } => {
            let wanted = Heard { pe, rail: 0, opcode: opcode as u32, ended };
            lies.heard(|heard| *heard == wanted) > 0
        }
        _ => false,
    };
    cluster.sim.run_until(|| reached.get() || commanded() || streams.done() || cluster.sim.now() > until);
    let hit = reached.get() || commanded();
    let now = cluster.sim.now() - cluster.began_ns();
    let at = |after: u64, fault: &str| format!("{}ns:{fault}", now + after).parse::<Injection>();
    let all =
        second.iter().map(|fault| at(0, fault)).chain(third.iter().map(|(after, fault)| at(*after, fault)));
    all.for_each(|fault| cluster.inject(&fault.unwrap_or_else(|error| panic!("{error}"))));
    let outcome = finish(&cluster, streams);
    (outcome, cluster, hit)
}

/// The same fault where it hits something. A pair that is being probed has had all its commands; a drain needs none,
/// and all that follows it goes over the primary.
fn fitting(during: During, second: String) -> String {
    let probing = matches!(during, During::Command { opcode: Opcode::Rtr2RtsQp, .. });
    let draining = matches!(during, During::Step(Step::Drain | Step::DrainFlush, _));
    let second = if probing || draining { second.replace("fw-timeout", "lost-doorbell") } else { second };
    if !draining {
        return second;
    }
    let second = second.replace("oob-cut=3ms", "oob-cut=30ms");
    if second.contains("placement-delay") { second.replace(".1:", ".0:") } else { second }
}

/// Four rails: whatever fails, one is left.
fn with_a_path(seed: u64, during: During) -> Wrongs {
    judged(|| {
        let second = SECOND[seed as usize % SECOND.len()].to_owned();
        let second = fitting(during, second);
        let third = (20_000 + 130_000 * (seed % 4), THIRD[seed as usize % THIRD.len()].to_owned());
        let (outcome, _cluster, hit) = run(&base(seed, 4), during, &[second], &[third]);
        let mut wrongs = wrong_if(!hit, || format!("{during:?} was never reached"));
        wrongs.extend(promises(&outcome));
        wrongs.extend(faults_of_kernels(&outcome));
        wrongs.extend(idle_faults(&outcome));
        wrongs
    })
}

/// Two rails: the second fault takes one of them, the third the other, for good.
fn without_a_path(seed: u64, during: During) -> Wrongs {
    judged(|| {
        let second = ["0.1:down", "1.1:down", "0.1:blackhole-tx"][seed as usize % 3].to_owned();
        // Ports that are up until then: a port that is down goes down no more.
        let last = if second == "1.1:down" { ["1.0:down", "0.1:down"] } else { ["1.0:down", "1.1:down"] };
        let last: Vec<_> =
            last.iter().zip(1u64..).map(|(fault, after)| (after * 40_000, fault.to_string())).collect();
        let (outcome, cluster, hit) = run(&base(seed, 2), during, &[second], &last);
        let mut wrongs = wrong_if(!hit, || format!("{during:?} was never reached"));
        wrongs.extend(promises(&outcome));
        wrongs.extend(idle_faults(&outcome));
        for (pe, peer) in [(0, 1), (1, 0)] {
            let senders = || outcome.senders.iter().filter(|report| report.stream.from == pe);
            let faults: Vec<Fault> = senders().filter_map(|report| report.fault.filter(is_final)).collect();
            wrongs.extend(unnamed(&cluster, pe, peer, &faults));
            let others = senders().filter(|report| !report.fault.is_some_and(|fault| is_final(&fault)));
            let other =
                |report: &Report| format!("{} ended with {:?} without a path", report.stream, report.fault);
            wrongs.extend(others.map(other));
        }
        wrongs.extend(wrong_if(outcome.ended_with(FaultKind::PeerLost) == 0, || "no peer was lost".into()));
        wrongs
    })
}

/// Faults of one channel that do not name every ticket that was handed out and is not done: each names those that were
/// when its kernel had its answer, the last one all.
fn unnamed(cluster: &Cluster, pe: u32, peer: u32, faults: &[Fault]) -> Wrongs {
    let words = cluster.step_word(pe, peer, 0)
        - std::mem::offset_of!(shunt_layout::state::Channel, switch.word) as u64;
    let word = |offset: usize| shunt_layout::state::Word(load(words + offset as u64)).index();
    let done = word(std::mem::offset_of!(shunt_layout::state::Channel, done));
    let next = word(std::mem::offset_of!(shunt_layout::state::Channel, ticket));
    let end = |fault: &Fault| fault.at.0 + fault.unfinished;
    let each = faults.iter().all(|fault| fault.at.0 == done && fault.unfinished > 0 && end(fault) <= next);
    let named = each && faults.iter().map(end).max() == Some(next);
    wrong_if(!named, || format!("tickets {done} to {next} are unfinished, the faults name {faults:?}"))
}
