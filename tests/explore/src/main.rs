//! `shunt-explore`: runs the explorations of the suite and prints one table. `cargo xtask explore` builds and runs it.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use shunt_explore::placement::{Bounds, Round, placements, preemptions};
use shunt_explore::search::{Ending, Found};
use shunt_explore::suite::{Case, Expect, Scale, cases};

/// What the command line asks for.
struct Options {
    scale: Scale,
    only: Option<String>,
    bounds: Bounds,
    traces: bool,
    list: bool,
}

fn options() -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let bounds = Bounds { faults: 2, messages: 3, first: 10_000, later: 8_000, preempted: 700, threads };
    let mut options = Options { scale: Scale::Ci, only: None, bounds, traces: false, list: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--small" => options.scale = Scale::Small,
            "--night" => options.scale = Scale::Night,
            "--only" => options.only = Some(value()?),
            "--faults" => options.bounds.faults = number(&value()?)?,
            "--ops" => options.bounds.messages = number(&value()?)? as u64,
            "--runs" => {
                let runs = number(&value()?)?;
                (options.bounds.first, options.bounds.later, options.bounds.preempted) = (runs, runs, runs);
            }
            "--threads" => options.bounds.threads = number(&value()?)?,
            "--traces" => options.traces = true,
            "--list" => options.list = true,
            other => return Err(format!("unknown argument '{other}'")),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or(format!("expected a number above zero, got '{text}'"))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
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
    let cases: Vec<Case> = cases(options.scale).into_iter().filter(wanted).collect();
    let system = SYSTEM.map(|name| options.only.as_ref().is_none_or(|part| name.contains(part.as_str())));
    if cases.is_empty() && system == [false; 2] {
        let only = options.only.as_deref().unwrap_or_default();
        eprintln!(
            "no exploration has '{only}' in its name; --list names them, some are run with --night alone"
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
        rounds.extend(placements(&options.bounds, progress));
    }
    if system[1] {
        rounds.extend(preemptions(&options.bounds, progress));
    }
    rounds.iter().for_each(report_round);
    failed += rounds.iter().filter(|round| !round.failed.is_empty()).count();
    let runs: usize = rounds.iter().map(|round| round.runs).sum();
    let seconds = start.elapsed().as_secs_f64();
    let all = cases.len() + rounds.len();
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).tv_sec;
    println!("{cpu} s of CPU time, {} threads", options.bounds.threads);
    println!("{all} explorations, {states} states, {runs} runs, {seconds:.1} s, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explorations of the whole system.
const SYSTEM: [&str; 2] = ["placements of faults", "preemptions"];

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

/// Runs all cases, some at a time; states told apart, and how many cases failed.
fn explore(cases: &[Case], options: &Options) -> (usize, usize) {
    let next = AtomicUsize::new(0);
    let totals = Mutex::new((0usize, 0usize));
    std::thread::scope(|scope| {
        for _ in 0..options.bounds.threads.min(cases.len()) {
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
