//! `transfer_bw`: pages and writes between two ends while ports fail, with a verdict.

mod cancels;
mod end;
mod options;
mod pattern;
mod place;
mod rate;
mod receiver;
mod run;
mod sender;
mod table;
mod verdict;

use anyhow::Result;
use clap::Parser;
use options::Options;
use shunt_figures::outputs::Outputs;
use shunt_figures::say;
use shunt_figures::stdout::stdout_error;
use shunt_json::Document;
use shunt_transfer::Source;
use std::process::ExitCode;
use verdict::Verdict;

fn main() -> ExitCode {
    if let Some(status) = shunt_pages::answered::<Options>(std::env::args_os()) {
        return ExitCode::from(status);
    }
    shunt_json::begin::<Options>();
    let options = Options::parse();
    let refused = |error: &dyn std::fmt::Display| {
        shunt::host::complain!("{error}");
        ExitCode::from(2)
    };
    if let Err(error) = options.check() {
        return refused(&format!("error: {error}"));
    }
    // A run is not made for nothing: the file is tried before.
    let files = match Outputs::open(&[("--json", options.json.as_deref())]) {
        Ok(files) => files,
        Err(error) => return refused(&error),
    };
    let source = match place::source(&options) {
        Ok(source) => source,
        Err(error) => return refused(&format!("error: {error:#}")),
    };
    match run(&options, &source, files) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            shunt::host::complain!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(options: &Options, source: &Source, files: Outputs) -> Result<u8> {
    let place = place::take(source)?;
    let (text, status) = if options.table {
        let table = table::run(options, &place)?;
        let status = table.exit_status();
        (Document::new(table).pretty(), status)
    } else {
        let own = options.clone();
        let parts = place::both(&place, move |member, nics| run::run(&own, member, nics))?;
        let [sender, receiver] = &parts[..] else { anyhow::bail!("ends: expected 2, got {}", parts.len()) };
        let verdict = Verdict::of(options, place.nics.time_label(), sender, receiver);
        let status = verdict.exit_status();
        (Document::new(verdict).pretty(), status)
    };
    if place.is_first() {
        if !options.table {
            say!("{text}");
        }
        if let Some(lost) = stdout_error() {
            anyhow::bail!("stdout: {lost}");
        }
        let lost = files.write(|_| format!("{text}\n"));
        anyhow::ensure!(lost.is_empty(), "--json {}", lost.join("; "));
    }
    Ok(status)
}
