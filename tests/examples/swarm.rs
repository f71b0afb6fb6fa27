//! Runs many seeds: `cargo run --release -p shunt-tests --example swarm -- 0..1000`, or one file of `regressions/`.
//!
//! A failing run is printed as a file for `regressions/`. The last line counts what the runs went through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;

#[derive(Default)]
struct Tally {
    runs: u64,
    failed: Vec<u64>,
    failovers: usize,
    switchbacks: usize,
    by_ledger: usize,
    replayed: u64,
    typed_faults: usize,
    steps: u64,
}

fn one(spec: &RunSpec, tally: &mut Tally) {
    tally.runs += 1;
    let held = catch_unwind(AssertUnwindSafe(|| {
        let outcome = run(spec);
        outcome.assert_held();
        outcome
    }));
    let Ok(outcome) = held else {
        eprintln!("--- seed {} failed; as a file for regressions/ ---\n{spec}---", spec.seed);
        tally.failed.push(spec.seed);
        return;
    };
    tally.failovers += outcome.failovers();
    tally.switchbacks += outcome.switchbacks();
    tally.by_ledger += outcome.records.iter().filter(|(_, record)| record.ledger == 1).count();
    let replayed =
        outcome.records.iter().map(|(_, record)| record.journal_end.saturating_sub(record.executed));
    tally.replayed += replayed.sum::<u64>();
    let reports = outcome.senders.iter().chain(&outcome.receivers);
    tally.typed_faults += reports.filter(|report| report.fault.is_some()).count();
    tally.steps += outcome.steps;
}

fn main() -> ExitCode {
    let usage = "swarm FIRST..END | swarm FILE.toml";
    let Some(argument) = std::env::args().nth(1) else {
        eprintln!("{usage}");
        return ExitCode::from(2);
    };
    let mut tally = Tally::default();
    if argument.ends_with(".toml") {
        let text = std::fs::read_to_string(&argument).map_err(|error| error.to_string());
        match text.and_then(|text| text.parse()) {
            Ok(spec) => one(&spec, &mut tally),
            Err(error) => {
                eprintln!("{argument}: {error}");
                return ExitCode::from(2);
            }
        }
    } else {
        let range = argument.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let Some((first, end)) = range else {
            eprintln!("{usage}");
            return ExitCode::from(2);
        };
        (first..end).for_each(|seed| one(&RunSpec::from_seed(seed), &mut tally));
    }
    println!(
        "{} runs, {} failed {:?}; {} failovers ({} by ledger, {} operations replayed), {} switch-backs, \
         {} kernels ended with a typed fault, {} steps",
        tally.runs,
        tally.failed.len(),
        tally.failed,
        tally.failovers,
        tally.by_ledger,
        tally.replayed,
        tally.switchbacks,
        tally.typed_faults,
        tally.steps,
    );
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
