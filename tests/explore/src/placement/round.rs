//! Rounds of placements: one fault everywhere, then a second one in each run that came of it, and so on.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shunt_soft_nic::Injection;
use shunt_tests::sim::Interference;
use shunt_tests::spec::RunSpec;

use super::{Bounds, run, spec};

/// Faults that are placed first, at each NIC or PE: one of each way to fail, for ever and for a while.
const FIRST: &[&str] = &[
    "down",
    "down=1ms",
    "blackhole-tx",
    "blackhole-rx=1ms",
    "drop-acks",
    "drop-acks=1ms",
    "nic-gone",
    "cqe-error=0x15",
    "lost-doorbell",
    "lost-doorbell=1ms",
    "late-cqe=600us",
    "placement-delay=300us",
    "delay=600us/1ms",
    "dup=1/1ms",
    "reorder=2/1ms",
    "gid-change",
];

/// Faults of a whole PE that are placed first.
const FIRST_PE: &[&str] = &[
    "agent-killed",
    "agent-restart",
    "agent-stalled=2ms",
    "oob-cut",
    "oob-cut=2ms",
    "peer-killed",
    "clock-jump=5ms",
];

/// Faults that are placed behind others, at every NIC: what a switch is disturbed by.
const LATER: &[&str] = &["down", "drop-acks=1ms", "nic-gone", "fw-timeout=2ms", "placement-delay=300us"];

/// The same, of a whole PE.
const LATER_PE: &[&str] = &["agent-killed", "agent-stalled=2ms", "oob-cut=2ms"];

/// What came of a round.
#[derive(Clone, Debug)]
pub struct Round {
    /// What was placed.
    pub name: String,
    /// Placements there are.
    pub placements: usize,
    /// Runs that were made: all of them, or every so manyeth.
    pub runs: usize,
    /// Runs that were no two the same.
    pub distinct: usize,
    /// Runs in which every fault hit something.
    pub hits: usize,
    /// Runs that broke a promise: the spec and what was wrong.
    pub failed: Vec<(RunSpec, Vec<String>)>,
    /// How long it took.
    pub took: Duration,
}

/// A run to go on from.
struct Node {
    spec: RunSpec,
    instants: Vec<u64>,
}

/// Every placement of up to `bounds.faults` faults. `say` hears of runs done and to do.
pub fn placements(bounds: &Bounds, say: impl Fn(&str, usize, usize) + Sync) -> Vec<Round> {
    let spec = spec(bounds);
    let plain = run(&spec, Interference::default());
    let mut rounds = vec![Round {
        name: "placement, no fault".into(),
        placements: 1,
        runs: 1,
        distinct: 1,
        hits: 1,
        failed: if plain.wrongs.is_empty() { Vec::new() } else { vec![(spec.clone(), plain.wrongs)] },
        took: Duration::ZERO,
    }];
    let mut seen = HashSet::from([plain.digest]);
    let mut nodes = vec![Node { spec, instants: plain.instants }];
    for number in 1..=bounds.faults {
        let first = number == 1;
        let (nics, pes) = if first { (FIRST, FIRST_PE) } else { (LATER, LATER_PE) };
        let kinds = Kinds { nics, pes };
        let name = format!("placement, fault {number} of {}", bounds.faults);
        let most = if first { bounds.first } else { bounds.later };
        let goes_on = number < bounds.faults;
        let (round, next) = play(&name, (&nodes, &kinds), (most, bounds.threads, goes_on), &mut seen, &say);
        rounds.push(round);
        nodes = next;
    }
    rounds
}

impl Node {
    /// Instants after the last fault.
    fn later(&self) -> &[u64] {
        let last = self.spec.faults.last().map_or(0, |fault| fault.at_ns);
        &self.instants[self.instants.partition_point(|at| *at < last)..]
    }

    /// Placements of one more fault of `kinds`.
    fn placements(&self, kinds: &Kinds) -> usize {
        self.later().len() * kinds.at_an_instant(&self.spec)
    }

    /// The run with the fault of placement `number`.
    fn place(&self, kinds: &Kinds, number: usize) -> RunSpec {
        let each = kinds.at_an_instant(&self.spec);
        let (at_ns, kind) = (self.later()[number / each], number % each);
        let nics = kinds.nics.len() * (self.spec.pes * self.spec.rails) as usize;
        let text = if kind < nics {
            let (place, fault) = (kind / kinds.nics.len(), kinds.nics[kind % kinds.nics.len()]);
            let rails = self.spec.rails as usize;
            format!("{at_ns}ns:{}.{}:{fault}", place / rails, place % rails)
        } else {
            let kind = kind - nics;
            format!("{at_ns}ns:{}:{}", kind / kinds.pes.len(), kinds.pes[kind % kinds.pes.len()])
        };
        let fault: Injection = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut spec = self.spec.clone();
        spec.faults.push(fault);
        spec
    }
}

/// Faults of one round.
struct Kinds {
    nics: &'static [&'static str],
    pes: &'static [&'static str],
}

impl Kinds {
    fn at_an_instant(&self, spec: &RunSpec) -> usize {
        self.nics.len() * (spec.pes * spec.rails) as usize + self.pes.len() * spec.pes as usize
    }
}

/// Runs all specs, or every so manyeth; the runs that nobody has seen are gone on from, unless this is the last round.
fn play(
    name: &str,
    (nodes, kinds): (&[Node], &Kinds),
    (most, threads, goes_on): (usize, usize, bool),
    seen: &mut HashSet<u64>,
    say: &(impl Fn(&str, usize, usize) + Sync),
) -> (Round, Vec<Node>) {
    let start = Instant::now();
    let placements = nodes.iter().map(|node| node.placements(kinds)).sum();
    // The shortest distance that keeps to the bound, and shares no factor with the number of kinds: all of them come.
    let mut every = usize::div_ceil(placements, most.max(1)).max(1);
    while every > 1
        && (every % 2 == 0 || every % 3 == 0 || every % 5 == 0 || every % 7 == 0 || every % 19 == 0)
    {
        every += 1;
    }
    let (mut specs, mut next_one, mut before) = (Vec::new(), 0, 0);
    for node in nodes {
        let end = before + node.placements(kinds);
        while next_one < end {
            specs.push(node.place(kinds, next_one - before));
            next_one += every;
        }
        before = end;
    }
    let work = |spec: &RunSpec| {
        let mut seen = run(spec, Interference::default());
        if !goes_on {
            seen.instants = Vec::new();
        }
        seen
    };
    let results = each(&specs, threads, |done| say(name, done, specs.len()), work);
    let mut round = Round {
        name: name.into(),
        placements,
        runs: specs.len(),
        distinct: 0,
        hits: 0,
        failed: Vec::new(),
        took: Duration::ZERO,
    };
    let mut next = Vec::new();
    for (spec, result) in specs.into_iter().zip(results) {
        round.hits += usize::from(result.hit);
        if !result.wrongs.is_empty() {
            round.failed.push((spec, result.wrongs));
        } else if seen.insert(result.digest) {
            round.distinct += 1;
            if goes_on {
                next.push(Node { spec, instants: result.instants });
            }
        }
    }
    round.took = start.elapsed();
    (round, next)
}

/// `work` on each of `items`, on some threads; the answers in the order of the items.
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    say: impl Fn(usize) + Sync,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { break };
                    let result = work(item);
                    results.lock().expect("no panic under this lock").push((number, result));
                    say(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no panic under this lock");
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
