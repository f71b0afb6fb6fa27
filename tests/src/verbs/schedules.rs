//! Every schedule of one queue pair that is moved, up to a bound: what ships, from the start each time.
//!
//! A run of a few requests each way is recorded: every step of programs, agents, workers, messages and NICs. A
//! schedule is that run with a few changes: a fault at an instant, or a step that comes late. Each change makes a run
//! of its own, with steps of its own, and the next change is made at each of its later steps. Of runs whose steps have
//! one order the first alone is gone on from. The oracle of the simulator's programs judges each.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;

use super::requests::{Does, Request};
use super::steps::{Step, Who};
use super::{VerbsSpec, run};
use crate::rng::mix;
use crate::swarm::or_panic;

/// How far the search goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Schedules of each round at most: of more, every so manyeth is run.
    pub most: usize,
    /// Every fault of both runs with a late step, and every two faults, in place of those that are few.
    pub large: bool,
    /// Threads.
    pub threads: usize,
}

/// What came of a round.
#[derive(Debug, Default)]
pub struct Round {
    /// What was changed.
    pub name: &'static str,
    /// Schedules there are.
    pub schedules: usize,
    /// Those that were run: all of them, or every so manyeth.
    pub runs: usize,
    /// Different orders of steps among them.
    pub distinct: usize,
    /// Runs in which every fault hit something.
    pub hits: usize,
    /// Runs in which a direction moved.
    pub moved: usize,
    /// What was wrong, by run.
    pub failed: Vec<Vec<String>>,
    /// How long it took.
    pub took: Duration,
}

/// A step comes so much later: behind the next turn of everybody else, or behind all of a move.
const LATE_NS: [u64; 2] = [120_000, 1_500_000];

/// A fault lasts so long: it ends in the middle of a move, or behind it.
const FOR_NS: [u64; 2] = [600_000, 4_000_000];

/// Faults that come first, at the first NIC of either end.
fn first_faults() -> Vec<(RailAt, FaultKind)> {
    let [short, long] = FOR_NS.map(Some);
    let kinds = [
        FaultKind::Down { for_ns: short },
        FaultKind::Down { for_ns: long },
        FaultKind::DropAcks { for_ns: long },
        FaultKind::BlackholeRx { for_ns: long },
    ];
    let at = |pe| kinds.map(|kind| (RailAt { pe, rail: 0 }, kind));
    (0..2).flat_map(at).collect()
}

/// Those that come second, at any NIC.
fn second_faults() -> Vec<(RailAt, FaultKind)> {
    let at = |pe, rail| (RailAt { pe, rail }, FaultKind::Down { for_ns: Some(FOR_NS[0]) });
    vec![at(0, 0), at(0, 1), at(1, 0), at(1, 1)]
}

/// The runs that are changed: requests that come at once, whose answers the program needs; and some that come while it
/// is moved and goes back. Retries run out after half a millisecond.
fn setups() -> [VerbsSpec; 2] {
    let request = |does, signaled| Request { does, signaled, inline: false };
    let spec = |few: Vec<Request>, pace_ns| VerbsSpec {
        requests: few.len() as u64,
        few,
        ack_timeout: 6,
        retries: 1,
        pace_ns,
        quiet_ns: 5_000_000,
        counts_steps: true,
        ..VerbsSpec::quiet(1)
    };
    let at_once = vec![request(Does::Read, true), request(Does::Add, true), request(Does::Send, true)];
    let (add, write) = (request(Does::Add, true), request(Does::WriteImmediate, false));
    let slowly = vec![add, write, request(Does::Read, true), request(Does::Send, true)];
    [VerbsSpec { needs_answers: true, ..spec(at_once, 3_000) }, spec(slowly, 2_200_000)]
}

/// What one run came to.
struct Seen {
    /// Those that others can tell of, by number.
    steps: Vec<(usize, Step)>,
    order: u64,
    hit: bool,
    moved: bool,
    wrong: Vec<String>,
}

fn play(spec: &VerbsSpec) -> Seen {
    let ended = or_panic(|| run(spec));
    let Ok(report) = ended else {
        let said = ended.err().unwrap_or_default();
        return Seen { steps: Vec::new(), order: 0, hit: true, moved: true, wrong: vec![said] };
    };
    let number = |who| match who {
        Who::Program(at) => u64::from(at),
        Who::Agent(at) => 2 + u64::from(at),
        Who::Worker(at) => 4 + u64::from(at),
        Who::Message(at) => 6 + u64::from(at),
        Who::Network => 8,
    };
    let moved = report.steps.iter().filter(|step| step.moved);
    let order = moved.fold(0, |order, step| mix(order ^ number(step.who) << 32));
    let mut wrong = report.wrong();
    if !wrong.is_empty() {
        wrong.push(format!("{spec:?}"));
    }
    Seen {
        order,
        hit: report.hits as usize == spec.faults.len(),
        moved: report.sum(|told| told.switches) > 0,
        steps: report.steps.into_iter().enumerate().filter(|(_, step)| step.moved).collect(),
        wrong,
    }
}

/// A run to go on from: changes are made from this step on.
struct Node {
    spec: VerbsSpec,
    steps: Vec<(usize, Step)>,
    from: usize,
}

/// A kind of change.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Fault(&'a [(RailAt, FaultKind)]),
    Late(&'a [u64]),
}

impl Node {
    /// Steps at which a change of a kind makes a difference.
    fn places(&self, kind: Kind<'_>) -> Vec<(usize, Step)> {
        let open = self.steps.iter().filter(|(number, _)| *number >= self.from).copied();
        match kind {
            Kind::Late(_) => open.filter(|(_, step)| step.who != Who::Network).collect(),
            Kind::Fault(_) => {
                let mut places: Vec<(usize, Step)> = open.collect();
                places.dedup_by_key(|(_, step)| step.at_ns);
                places
            }
        }
    }

    /// One of requests that come at once, whose port goes down for a moment, or which loses acknowledgements.
    fn is_small(&self) -> bool {
        let short = FaultKind::Down { for_ns: Some(FOR_NS[0]) };
        let fault = self.spec.faults.first().map(|(.., kind)| *kind);
        let few = fault.is_some_and(|kind| kind == short || matches!(kind, FaultKind::DropAcks { .. }));
        self.spec.needs_answers && few
    }

    fn schedules(&self, kind: Kind<'_>) -> usize {
        let each = match kind {
            Kind::Fault(kinds) => kinds.len(),
            Kind::Late(lengths) => lengths.len(),
        };
        self.places(kind).len() * each
    }

    /// The run with that change.
    fn change(&self, places: &[(usize, Step)], kind: Kind<'_>, number: usize) -> VerbsSpec {
        let mut spec = self.spec.clone();
        match kind {
            Kind::Fault(kinds) => {
                let (place, fault) = kinds[number % kinds.len()];
                spec.faults.push((places[number / kinds.len()].1.at_ns, place, fault));
            }
            Kind::Late(lengths) => {
                spec.put_off.push((places[number / lengths.len()].0, lengths[number % lengths.len()]));
            }
        }
        spec
    }
}

/// Where the next change may be made: behind the last one.
fn from(spec: &VerbsSpec, steps: &[(usize, Step)]) -> usize {
    let behind =
        |at_ns: u64| steps.iter().find(|(_, step)| step.at_ns >= at_ns).map_or(usize::MAX, |step| step.0);
    let fault = spec.faults.last().map_or(0, |(at_ns, ..)| behind(*at_ns));
    let late = spec.put_off.last().map_or(0, |(step, _)| step + 1);
    fault.max(late)
}

/// The search: which orders of steps were seen.
struct Search {
    threads: usize,
    /// The first schedule of a sample.
    offset: usize,
    seen: HashSet<u64>,
}

impl Search {
    /// The specs of a round: every change of a kind to each of these runs, or every so manyeth. How many there are.
    fn specs(&self, nodes: &[Node], kind: Kind<'_>, most: usize) -> (usize, Vec<VerbsSpec>) {
        let schedules: usize = nodes.iter().map(|node| node.schedules(kind)).sum();
        // No multiple of 2 or 3, so that all kinds of changes come.
        let mut every = schedules.div_ceil(most.max(1)).max(1);
        while every > 1 && (every.is_multiple_of(2) || every.is_multiple_of(3)) {
            every += 1;
        }
        let (mut specs, mut before) = (Vec::new(), 0);
        for node in nodes {
            let (places, count) = (node.places(kind), node.schedules(kind));
            let chosen = (0..count).filter(|number| (before + number) % every == self.offset % every);
            specs.extend(chosen.map(|number| node.change(&places, kind, number)));
            before += count;
        }
        (schedules, specs)
    }

    /// Runs a round. Its runs of a new order, if one goes on from them.
    fn round(
        &mut self,
        name: &'static str,
        nodes: &[Node],
        kind: Kind<'_>,
        (most, goes_on): (usize, bool),
    ) -> (Round, Vec<Node>) {
        let start = Instant::now();
        let (schedules, specs) = self.specs(nodes, kind, most);
        let mut round = Round { name, schedules, runs: specs.len(), ..Round::default() };
        let mut next = Vec::new();
        let results = each(&specs, self.threads, goes_on);
        for (spec, result) in specs.into_iter().zip(results) {
            round.hits += usize::from(result.hit);
            round.moved += usize::from(result.moved);
            if !result.wrong.is_empty() {
                round.failed.push(result.wrong);
            } else if self.seen.insert(result.order) {
                round.distinct += 1;
                if goes_on {
                    let from = from(&spec, &result.steps);
                    next.push(Node { spec, steps: result.steps, from });
                }
            }
        }
        if round.runs > 0 && (round.hits == 0 || round.moved == 0) {
            round.failed.push(vec!["not exercised: no fault hit, or nothing moved".into()]);
        }
        round.took = start.elapsed();
        (round, next)
    }

    /// Runs without a change.
    fn plain(&mut self, specs: &[VerbsSpec]) -> (Round, Vec<Node>) {
        let start = Instant::now();
        let count = specs.len();
        let mut round = Round { name: "verbs, no fault", schedules: count, runs: count, ..Round::default() };
        let mut nodes = Vec::new();
        for (spec, result) in specs.iter().zip(each(specs, self.threads, true)) {
            round.hits += usize::from(result.hit);
            round.distinct += usize::from(self.seen.insert(result.order));
            if !result.wrong.is_empty() {
                round.failed.push(result.wrong);
            }
            nodes.push(Node { spec: spec.clone(), steps: result.steps, from: 0 });
        }
        round.took = start.elapsed();
        (round, nodes)
    }
}

/// Every schedule up to these bounds.
pub fn explore(bounds: &Bounds) -> Vec<Round> {
    let Bounds { most, large, threads } = *bounds;
    let mut search = Search { threads, offset: 0, seen: HashSet::new() };
    let (plain, roots) = search.plain(&setups());
    let (first, second, late) = (first_faults(), second_faults(), Kind::Late(&LATE_NS));
    let (one, moved) = search.round("verbs, a fault", &roots, Kind::Fault(&first), (most, true));
    let (few, rest) = moved.into_iter().partition::<Vec<Node>, _>(Node::is_small);
    let (held, _) = search.round("verbs, a fault, a step late", &few, late, (most, false));
    let (two, _) = search.round("verbs, two faults", &few, Kind::Fault(&second), (most, false));
    let mut rounds = vec![plain, one, held, two];
    if large {
        let (held, _) = search.round("verbs, any fault, a step late", &rest, late, (most, false));
        let (two, _) = search.round("verbs, any two faults", &rest, Kind::Fault(&second), (most, false));
        rounds.extend([held, two]);
    }
    rounds
}

/// A sample of the same and of two late steps, another for each number: what was wrong.
pub fn sample(number: u64) -> Vec<String> {
    let mut search = Search { threads: 1, offset: number as usize, seen: HashSet::new() };
    let (plain, roots) = search.plain(&setups());
    let (one, moved) = search.round("a fault", &roots, Kind::Fault(&first_faults()), (60, true));
    let late = Kind::Late(&LATE_NS);
    let (held, later) = search.round("a step late", &moved, late, (60, true));
    let (both, _) = search.round("two steps late", &later, late, (60, false));
    [plain, one, held, both].into_iter().flat_map(|round| round.failed).flatten().collect()
}

/// Runs all of them on some threads; the answers in their order. One thread is the caller's: its breaks count.
fn each(specs: &[VerbsSpec], threads: usize, keep: bool) -> Vec<Seen> {
    let play = |spec: &VerbsSpec| {
        let mut seen = play(spec);
        if !keep {
            seen.steps = Vec::new();
        }
        seen
    };
    if threads < 2 {
        return specs.iter().map(play).collect();
    }
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, specs.len().max(1)) {
            scope.spawn(|| {
                while let Some((number, spec)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    specs.get(number).map(|spec| (number, spec))
                } {
                    let seen = play(spec);
                    results.lock().expect("no panic under this lock").push((number, seen));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no panic under this lock");
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, seen)| seen).collect()
}
