//! `shunt-explore`: runs the explorations of the suite and prints one table. `cargo xtask explore` builds and runs it.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use shunt_explore::search::{Ending, Found};
use shunt_explore::suite::{Case, Expect, Scale, cases};

/// What the command line asks for.
struct Options {
    scale: Scale,
    only: Option<String>,
    threads: usize,
    traces: bool,
    list: bool,
}

fn options() -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options { scale: Scale::Ci, only: None, threads, traces: false, list: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--night" => options.scale = Scale::Night,
            "--only" => options.only = Some(value()?),
            "--threads" => options.threads = number(&value()?)?,
            "--traces" => options.traces = true,
            "--list" => options.list = true,
            other => return Err(format!("unknown argument '{other}'")),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or(format!("'{text}' is no number above zero"))
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
    let cases: Vec<Case> = cases(options.scale).into_iter().filter(wanted).collect();
    if options.list {
        cases.iter().for_each(|case| println!("{:36} {:?}", case.name, case.scale));
        return ExitCode::SUCCESS;
    }
    if cases.is_empty() {
        eprintln!("no exploration is called so");
        return ExitCode::from(2);
    }
    if explore(&cases, &options) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all cases, some at a time; how many failed.
fn explore(cases: &[Case], options: &Options) -> usize {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let totals = Mutex::new((0usize, 0usize));
    println!("{:36} {:>12} {:>6} {:>8}  result", "exploration", "states", "depth", "s");
    std::thread::scope(|scope| {
        for _ in 0..options.threads.min(cases.len()) {
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
    let (states, failed) = totals.into_inner().expect("all threads have ended well");
    let seconds = start.elapsed().as_secs_f64();
    println!("{} explorations, {states} states, {seconds:.1} s, {failed} failed", cases.len());
    failed
}

fn report(case: &Case, found: &Found, traces: bool) {
    let passed = case.passed(found);
    let mut line = match (&found.ending, case.expect) {
        (Ending::Holds, Expect::Holds) => "holds".to_owned(),
        (Ending::Broken(trace), Expect::Broken) => {
            format!("found in {} steps: {}", trace.steps.len(), trace.what)
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
