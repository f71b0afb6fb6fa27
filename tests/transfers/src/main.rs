//! `transfer_virtual`: many seeds of faults, cancels and cuts of the transfer engine in virtual time; how long each
//! took, and whether all was as it must be.

mod options;
mod verdict;

use clap::Parser;
use options::{Options, Which};
use shunt_figures::outputs::Outputs;
use shunt_figures::say;
use shunt_figures::stdout::stdout_error;
use shunt_json::Document;
use shunt_tests::transfers::timing::{TimingReport, TimingSpec, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use verdict::Verdict;

/// A run that panics is wrong by that.
fn one(spec: &TimingSpec) -> TimingReport {
    catch_unwind(AssertUnwindSafe(|| run(spec))).unwrap_or_else(|said| {
        let text = said.downcast_ref::<String>().cloned();
        let text = text.or_else(|| said.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let wrong = vec![text.unwrap_or_else(|| "the run panicked".to_owned())];
        TimingReport { wrong, ..TimingReport::default() }
    })
}

/// Runs all, some at a time; what came of each, in order.
fn all(runs: &[(Which, TimingSpec)], threads: usize) -> Vec<(Which, u64, TimingReport)> {
    let (next, reports) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(runs.len()) {
            scope.spawn(|| {
                while let Some((which, spec)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = (*which, spec.seed, one(spec));
                    if let Ok(mut reports) = reports.lock() {
                        reports.push(report);
                    }
                }
            });
        }
    });
    let mut reports = reports.into_inner().unwrap_or_default();
    reports.sort_by_key(|(which, seed, _)| (*which as usize, *seed));
    reports
}

fn main() -> ExitCode {
    shunt_json::begin::<Options>();
    let options = Options::parse();
    // Many runs are not made for nothing: the file is tried before.
    let files = match Outputs::open(&[("--json", options.json.as_deref())], &[]) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let cores = || std::thread::available_parallelism().map_or(1, Into::into);
    let threads = options.threads.map_or_else(cores, |threads| threads as usize);
    let runs = options.runs();
    let reports = all(&runs, threads);
    let verdict = Verdict::of(&options, &reports);
    say!("{verdict}");
    let status = u8::from(verdict.verdict != "clean" || reports.len() != runs.len());
    let document = Document::new(verdict);
    let lost: Vec<_> = stdout_error().map(|lost| format!("stdout: {lost}")).into_iter().collect();
    let lost = [lost, files.write(|_| format!("{}\n", document.pretty()))].concat();
    if lost.is_empty() {
        return ExitCode::from(status);
    }
    eprintln!("error: {}", lost.join("; "));
    ExitCode::from(1)
}
