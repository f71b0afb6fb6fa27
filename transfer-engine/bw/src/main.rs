//! `transfer_bw`: pages and writes between two ends while ports fail, with a verdict.

mod cancels;
mod end;
mod options;
mod pattern;
mod place;
mod receiver;
mod run;
mod sender;
mod verdict;

use anyhow::{Context, Result};
use clap::Parser;
use options::Options;
use place::Place;
use shunt_figures::outputs::Outputs;
use shunt_figures::say;
use shunt_figures::stdout::stdout_error;
use shunt_json::Document;
use std::process::ExitCode;
use verdict::{Part, Verdict};

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
    match run(&options, files) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            shunt::host::complain!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(options: &Options, files: Outputs) -> Result<u8> {
    let Place { nics, members, net } = Place::take(options)?;
    let ends = members.into_iter().map(|member| {
        let (options, nics) = (options.clone(), nics.clone());
        (member.pe, std::thread::spawn(move || run::run(&options, member, &nics)))
    });
    let ends: Vec<_> = ends.collect();
    let (mut all, mut failed) = (Vec::<Vec<Part>>::new(), Vec::new());
    for (pe, end) in ends {
        match end.join() {
            Ok(Ok(parts)) => all.push(parts),
            Ok(Err(error)) => failed.push(format!("end {pe}: {error:#}")),
            Err(_) => failed.push(format!("end {pe} panicked")),
        }
    }
    if !failed.is_empty() {
        anyhow::bail!("{}", failed.join("; "));
    }
    let parts = all.first().context("no end lives here")?;
    let [sender, receiver] = &parts[..] else { anyhow::bail!("ends: expected 2, got {}", parts.len()) };
    let verdict = Verdict::of(options, sender, receiver);
    let status = verdict.exit_status();
    if net.is_none_or(|net| net.rank() == 0) {
        let text = Document::new(verdict).pretty();
        say!("{text}");
        if let Some(lost) = stdout_error() {
            anyhow::bail!("stdout: {lost}");
        }
        let lost = files.write(|_| format!("{text}\n"));
        anyhow::ensure!(lost.is_empty(), "--json {}", lost.join("; "));
    }
    Ok(status)
}
