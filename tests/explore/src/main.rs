//! `shunt-explore`: runs the explorations of the suite and prints one table. `cargo xtask explore` builds and runs it.

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use shunt_explore::placement::{Bounds, Round, placements, preemptions};
use shunt_explore::search::{Ending, Found};
use shunt_explore::suite::{Case, Expect, Scale, cases};
use shunt_tests::verbs;

/// Explores models of the switch, both ends of one path, and every placement of faults in the whole system.
///
/// Exit status: 0 all holds, 1 a promise is broken or a wrong design is not found, 2 bad usage.
#[derive(Parser)]
#[command(name = "shunt-explore", version)]
struct Options {
    /// Of the models only those with few states, and those that must be found wrong
    #[arg(long, conflicts_with = "night")]
    small: bool,
    /// The larger bounds of the models and of a verbs queue pair as well; of that all schedules, whatever --runs says
    #[arg(long)]
    night: bool,
    /// Explorations whose name has this in it
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Faults of a run of the whole system
    #[arg(long, value_name = "K", default_value_t = 2, value_parser = number)]
    faults: usize,
    /// Its messages, each a put and a signal
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number)]
    ops: usize,
    /// Runs of each round at most [default: 10000 of one fault, 8000 of each further one, 700 of preemptions, all of a
    /// verbs queue pair]
    #[arg(long, value_name = "R", value_parser = number)]
    runs: Option<usize>,
    /// Rings and channels of the whole system lie in memory of the host, or of a device; agents leave switches to
    /// kernels in both
    #[arg(long, value_name = "WHERE")]
    queues: Option<Queues>,
    /// Explorations at a time [default: the cores]
    #[arg(long, value_name = "N", value_parser = number)]
    threads: Option<usize>,
    /// Print the shortest trace of every wrong design
    #[arg(long)]
    traces: bool,
    /// Print the names and exit
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Queues {
    Host,
    Device,
}

impl Options {
    fn scale(&self) -> Scale {
        match (self.small, self.night) {
            (true, _) => Scale::Small,
            (_, true) => Scale::Night,
            _ => Scale::Ci,
        }
    }

    fn bounds(&self) -> Bounds {
        let runs = |otherwise| self.runs.unwrap_or(otherwise);
        Bounds {
            faults: self.faults,
            messages: self.ops as u64,
            on_device: self.queues.map(|queues| queues == Queues::Device),
            first: runs(10_000),
            later: runs(8_000),
            preempted: runs(700),
            threads: self.threads(),
        }
    }

    fn verbs(&self) -> verbs::Bounds {
        let large = self.night;
        // At night all are run.
        let most = if large { None } else { self.runs.or(self.small.then_some(300)) };
        verbs::Bounds { most: most.unwrap_or(usize::MAX), large, threads: self.threads() }
    }

    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }
}

fn number(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("expected a whole number above 0, got {text:?}"))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let wanted = |case: &Case| options.only.as_ref().is_none_or(|part| case.name.contains(part.as_str()));
    if options.list {
        for case in cases(Scale::Night).iter().filter(|case| wanted(case)) {
            let when = match case.scale {
                Scale::Small => "always",
                Scale::Ci => "unless --small",
                Scale::Night => "with --night",
            };
            println!("{:36} {when}", case.name);
        }
        SYSTEM.iter().for_each(|name| println!("{name:36} always"));
        return ExitCode::SUCCESS;
    }
    let cases: Vec<Case> = cases(options.scale()).into_iter().filter(wanted).collect();
    let system = SYSTEM.map(|name| options.only.as_ref().is_none_or(|part| name.contains(part.as_str())));
    if cases.is_empty() && system == [false; 3] {
        let only = options.only.as_deref().unwrap_or_default();
        eprintln!(
            "error: --only: no exploration has {only:?} in its name; --list names them, some are run with --night alone"
        );
        return ExitCode::from(2);
    }
    let start = Instant::now();
    println!("{:36} {:>12} {:>6} {:>8}  result", "exploration of models", "states", "depth", "s");
    let (states, mut failed) = explore(&cases, &options);
    let head = ["placements", "runs", "distinct", "hits"];
    println!(
        "\n{:36} {:>12} {:>8} {:>8} {:>8} {:>8}  result",
        "whole system", head[0], head[1], head[2], head[3], "s"
    );
    let mut rounds = Vec::new();
    if system[0] {
        rounds.extend(placements(&options.bounds(), progress));
    }
    if system[1] {
        rounds.extend(preemptions(&options.bounds(), progress));
    }
    rounds.iter().for_each(report_round);
    failed += rounds.iter().filter(|round| !round.failed.is_empty()).count();
    let schedules = if system[2] { verbs::explore(&options.verbs()) } else { Vec::new() };
    report_schedules(&schedules);
    failed += schedules.iter().filter(|round| !round.failed.is_empty()).count();
    let runs = rounds.iter().map(|round| round.runs).chain(schedules.iter().map(|round| round.runs));
    let runs: usize = runs.sum();
    let seconds = start.elapsed().as_secs_f64();
    let all = cases.len() + rounds.len() + schedules.len();
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).tv_sec;
    println!("{cpu} s of CPU time, {} threads", options.threads());
    println!("{all} explorations, {states} states, {runs} runs, {seconds:.1} s, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explorations of the whole system.
const SYSTEM: [&str; 3] = ["placements of faults", "preemptions", "verbs"];

/// Says how far a round is, a few times.
fn progress(name: &str, done: usize, all: usize) {
    if done.is_multiple_of((all / 8).max(1)) {
        eprintln!("  {name}: {done} of {all} runs");
    }
}

fn report_round(round: &Round) {
    let every = round.placements.div_ceil(round.runs.max(1));
    let result = match round.failed.len() {
        0 if every > 1 => format!("holds, one placement in {every}"),
        0 => "holds, all placements".to_owned(),
        failed => format!("FAILED: {failed} runs broke a promise"),
    };
    let Round { name, placements, runs, distinct, hits, took, .. } = round;
    let seconds = took.as_secs_f64();
    println!("{name:36} {placements:>12} {runs:>8} {distinct:>8} {hits:>8} {seconds:>8.1}  {result}");
    for (_, wrongs) in round.failed.iter().take(3) {
        println!("{}", wrongs.join("\n"));
    }
}

/// Schedules of verbs programs.
fn report_schedules(rounds: &[verbs::Round]) {
    let head = ["schedules", "runs", "orders", "hits", "moved"];
    if !rounds.is_empty() {
        println!(
            "\n{:36} {:>12} {:>8} {:>8} {:>8} {:>8} {:>8}  result",
            "one queue pair that is moved", head[0], head[1], head[2], head[3], head[4], "s"
        );
    }
    for round in rounds {
        let every = round.schedules.div_ceil(round.runs.max(1));
        let result = match round.failed.len() {
            0 if every > 1 => format!("holds, one schedule in {every}"),
            0 => "holds, all schedules".to_owned(),
            failed => format!("FAILED: {failed} runs broke a promise"),
        };
        let verbs::Round { name, schedules, runs, distinct, hits, moved, took, .. } = round;
        let seconds = took.as_secs_f64();
        println!(
            "{name:36} {schedules:>12} {runs:>8} {distinct:>8} {hits:>8} {moved:>8} {seconds:>8.1}  {result}"
        );
        round.failed.iter().take(3).for_each(|wrong| println!("{}", wrong.join("\n")));
    }
}

/// Runs all cases, some at a time; states told apart, and how many cases failed.
fn explore(cases: &[Case], options: &Options) -> (usize, usize) {
    let next = AtomicUsize::new(0);
    let totals = Mutex::new((0usize, 0usize));
    std::thread::scope(|scope| {
        for _ in 0..options.threads().min(cases.len()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = case.run(|states, depth| {
                        eprintln!("  {}: {states} states, {depth} steps deep", case.name);
                    });
                    report(case, &found, options.traces);
                    let mut totals = totals.lock().expect("no thread panics while it holds this");
                    totals.0 += found.states;
                    totals.1 += usize::from(!case.passed(&found));
                }
            });
        }
    });
    totals.into_inner().expect("all threads have ended well")
}

fn report(case: &Case, found: &Found, traces: bool) {
    let passed = case.passed(found);
    let mut line = match (&found.ending, case.expect) {
        (Ending::Holds, Expect::Holds) => "holds".to_owned(),
        (Ending::Broken(trace), Expect::Broken) => {
            let what = trace.what.lines().next().unwrap_or_default();
            format!("found in {} steps: {what}", trace.steps.len())
        }
        (Ending::Holds, Expect::Broken) => "FAILED: a broken design is not found".to_owned(),
        (Ending::Broken(_), Expect::Holds) => "FAILED: a promise is broken".to_owned(),
        (Ending::Bounded, _) => "FAILED: more states than the bound".to_owned(),
    };
    if let Ending::Broken(trace) = &found.ending
        && (traces || !passed)
    {
        line = format!("{line}\n{trace}");
    }
    let seconds = found.took.as_secs_f64();
    println!("{:36} {:>12} {:>6} {seconds:>8.1}  {line}", case.name, found.states, found.depth);
}
