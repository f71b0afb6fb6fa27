//! Preemptions: a warp, or the owner of a switch, stopped before any of its accesses, and before any two.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use shunt_tests::sim::Interference;
use shunt_tests::spec::RunSpec;

use super::round::each;
use super::{Bounds, Round, run, spec};

/// How long the stopped one sleeps: the others take dozens of steps.
const STOP_NS: u64 = 15_000;
/// Faults under which accesses are preempted: none; a port that goes down and comes back; completions that do not come.
const UNDER: &[&[&str]] = &[&[], &["5us:0.0:down", "2ms:0.0:up"], &["5us:0.0:drop-acks=1ms"]];

/// One preemption before each access, and two before each pair.
pub fn preemptions(bounds: &Bounds, say: impl Fn(&str, usize, usize) + Sync) -> Vec<Round> {
    let mut once = Vec::new();
    let mut twice = Vec::new();
    let mut failed = Vec::new();
    for faults in UNDER {
        let mut spec = spec(bounds);
        spec.warps = 2;
        spec.agent.looks = 0;
        spec.faults = faults.iter().map(|fault| fault.parse().expect("a fault of the list")).collect();
        let plain = run(&spec, Interference::recording());
        if !plain.wrongs.is_empty() {
            failed.push((spec.clone(), plain.wrongs));
        }
        let moving: HashSet<u64> = plain.stamps.into_iter().collect();
        let of_switch = |number: &usize| moving.contains(&plain.accesses[*number]);
        let accesses = 0..plain.accesses.len();
        once.extend(accesses.clone().map(|number| (spec.clone(), number as u64, None)));
        // Pairs are of accesses between which a switch moves; without one, all of them.
        let chosen: Vec<usize> =
            if moving.is_empty() { accesses.collect() } else { accesses.filter(of_switch).collect() };
        for (place, first) in chosen.iter().enumerate() {
            let later = chosen[place + 1..].iter();
            twice.extend(later.map(|second| (spec.clone(), *first as u64, Some(*second as u64))));
        }
    }
    let mut rounds =
        vec![play("one preemption", once, bounds, &say), play("two preemptions", twice, bounds, &say)];
    rounds[0].failed.extend(failed);
    rounds
}

type Stopped = (RunSpec, u64, Option<u64>);

fn play(name: &str, all: Vec<Stopped>, bounds: &Bounds, say: &(impl Fn(&str, usize, usize) + Sync)) -> Round {
    let start = Instant::now();
    let placements = all.len();
    let every = placements.div_ceil(bounds.preempted.max(1)).max(1) | 1;
    let chosen: Vec<Stopped> = all.into_iter().step_by(every).collect();
    let work = |(spec, first, second): &Stopped| {
        let interference = match second {
            Some(second) => Interference::stop_twice(*first, *second, STOP_NS),
            None => Interference::stop_at(*first, STOP_NS),
        };
        let mut seen = run(spec, interference);
        if !seen.wrongs.is_empty() {
            seen.wrongs.insert(0, format!("stopped before access {first} and {second:?} for {STOP_NS} ns"));
        }
        (seen.digest, seen.wrongs)
    };
    let results = each(&chosen, bounds.threads, |done| say(name, done, chosen.len()), work);
    let distinct: HashSet<u64> = results.iter().map(|(digest, _)| *digest).collect();
    let mut round = Round {
        name: name.into(),
        placements,
        runs: chosen.len(),
        distinct: distinct.len(),
        hits: chosen.len(),
        failed: Vec::new(),
        took: Duration::ZERO,
    };
    for ((spec, _, _), (_, wrongs)) in chosen.into_iter().zip(results) {
        if !wrongs.is_empty() {
            round.failed.push((spec, wrongs));
        }
    }
    round.took = start.elapsed();
    round
}
