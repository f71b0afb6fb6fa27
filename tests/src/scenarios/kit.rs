//! What scenarios are made of.

use shunt_layout::state::{SwitchKind, SwitchRecord};
use shunt_soft_nic::Injection;

use crate::cluster::Cluster;
use crate::lies::{Lie, Lies};
use crate::outcome::Outcome;
use crate::run::{Streams, finish, start_streams};
use crate::spec::RunSpec;
use crate::swarm::or_panic;
use crate::traffic::Traffic;

/// What is wrong with a run, a line or a few each; nothing if it is as it must be.
pub type Wrongs = Vec<String>;

/// A run of a scenario ends far below these; one that does not is a hang.
const TIME_LIMIT_NS: u64 = 20_000_000_000;
const STEP_LIMIT: u64 = 1_500_000;

/// Steady traffic one way on two rails, and `faults`.
pub fn spec(seed: u64, faults: &[&str]) -> RunSpec {
    RunSpec {
        seed,
        time_limit_ns: TIME_LIMIT_NS,
        step_limit: STEP_LIMIT,
        traffic: Traffic { messages: 300, pace_ns: 20_000, wait_ns: 1_500_000_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().unwrap_or_else(|error| panic!("{error}"))).collect(),
        ..RunSpec::default()
    }
}

/// The same both ways.
pub fn both_ways(seed: u64, faults: &[&str]) -> RunSpec {
    RunSpec { both_ways: true, ..spec(seed, faults) }
}

/// Agents that recreate a path within a few milliseconds, and a recovery window as short.
pub fn brisk(mut spec: RunSpec) -> RunSpec {
    spec.agent.lifetime_ns = 1_000_000;
    spec.agent.probe_ns = 100_000;
    spec.agent.backoff_ns = 200_000;
    spec.recovery_ns = 1_000_000;
    spec
}

/// Runs `spec` and judges it: every promise kept, every kernel ended well, every fault struck, and `also`.
pub fn clean(spec: &RunSpec, also: impl FnOnce(&Outcome) -> Wrongs) -> Wrongs {
    clean_lying(spec, Lie::None, also)
}

/// The same on NICs that begin to lie once they are up.
pub fn clean_lying(spec: &RunSpec, lie: Lie, also: impl FnOnce(&Outcome) -> Wrongs) -> Wrongs {
    steered(spec, lie, |_, _| {}, also)
}

/// The same, with what `steer` does to the cluster once its traffic has begun.
pub fn steered(
    spec: &RunSpec,
    lie: Lie,
    steer: impl FnOnce(&Cluster, &Streams),
    also: impl FnOnce(&Outcome) -> Wrongs,
) -> Wrongs {
    judged(|| {
        let outcome = run(spec, lie, steer);
        let mut wrongs = promises(&outcome);
        wrongs.extend(faults_of_kernels(&outcome));
        wrongs.extend(idle_faults(&outcome));
        wrongs.extend(also(&outcome));
        wrongs
    })
}

/// Runs `spec`: every promise kept, every fault struck, and faults of kernels only where something justifies them.
pub fn held(spec: &RunSpec, lie: Lie, also: impl FnOnce(&Outcome) -> Wrongs) -> Wrongs {
    judged(|| {
        let outcome = run(spec, lie, |_, _| {});
        [outcome.wrongs(), idle_faults(&outcome), also(&outcome)].concat()
    })
}

/// As [`clean`], but a fault may hit nothing.
pub fn unexercised(spec: &RunSpec, also: impl FnOnce(&Outcome) -> Wrongs) -> Wrongs {
    judged(|| {
        let outcome = run(spec, Lie::None, |_, _| {});
        [promises(&outcome), faults_of_kernels(&outcome), also(&outcome)].concat()
    })
}

/// Every promise kept, every fault struck; kernels may end with any typed fault, which is for `also` to judge.
pub fn kept(spec: &RunSpec, lie: Lie, also: impl FnOnce(&Outcome) -> Wrongs) -> Wrongs {
    judged(|| {
        let outcome = run(spec, lie, |_, _| {});
        [promises(&outcome), idle_faults(&outcome), also(&outcome)].concat()
    })
}

/// A run that panics is wrong by what it says.
pub fn judged(run: impl FnOnce() -> Wrongs) -> Wrongs {
    or_panic(run).unwrap_or_else(|said| vec![said])
}

fn run(spec: &RunSpec, lie: Lie, steer: impl FnOnce(&Cluster, &Streams)) -> Outcome {
    let lies = Lies::default();
    let cluster = Cluster::start_lying(spec, lies.clone());
    lies.tell(lie);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    steer(&cluster, &streams);
    finish(&cluster, streams)
}

/// Broken promises.
pub fn promises(outcome: &Outcome) -> Wrongs {
    if outcome.oracle.total() > 0 { vec![outcome.oracle.describe()] } else { Vec::new() }
}

/// Faults that kernels ended with.
pub fn faults_of_kernels(outcome: &Outcome) -> Wrongs {
    let reports = outcome.senders.iter().chain(&outcome.receivers);
    let faults =
        reports.filter_map(|report| Some(format!("{} ended with {:?}", report.stream, report.fault?)));
    faults.take(3).collect()
}

/// Planned faults that hit nothing: the run shows nothing of them.
pub fn idle_faults(outcome: &Outcome) -> Wrongs {
    idle(&outcome.faults)
}

/// The same of a cluster's faults and their hits.
pub fn idle(faults: &[(Injection, u64)]) -> Wrongs {
    let idle = faults.iter().filter(|(_, hits)| *hits == 0);
    idle.map(|(injection, _)| not_exercised(&format!("planned fault {injection} hit nothing"))).collect()
}

/// What a wrong begins with that breaks no promise: the run did not come to what it is there for.
const NOT_EXERCISED: &str = "not exercised: ";

/// A wrong of a run that shows nothing, because what it is there for did not happen.
pub fn not_exercised(why: &str) -> String {
    format!("{NOT_EXERCISED}{why}")
}

/// True if a wrong is a promise broken. With a mutant a run that was not exercised is no catch: the break only moved it
/// elsewhere.
pub fn is_broken(wrong: &str) -> bool {
    !wrong.starts_with(NOT_EXERCISED)
}

/// A wrong, if `bad`.
pub fn wrong_if(bad: bool, what: impl FnOnce() -> String) -> Wrongs {
    if bad { vec![what()] } else { Vec::new() }
}

/// Fewer failovers than `least`.
pub fn failovers_of(outcome: &Outcome, least: usize) -> Wrongs {
    let count = outcome.failovers();
    wrong_if(count < least, || format!("{count} failovers, at least {least} were wanted"))
}

/// A receiver saw nothing for longer than `most_ns`.
pub fn gap_below(outcome: &Outcome, most_ns: u64) -> Wrongs {
    let gap = outcome.max_gap_ns();
    wrong_if(gap > most_ns, || format!("nothing was delivered for {gap} ns, expected at most {most_ns}"))
}

/// Switches back of a run.
pub fn ways_back(outcome: &Outcome) -> impl Iterator<Item = &SwitchRecord> {
    outcome.of_kind(SwitchKind::SwitchBack)
}
