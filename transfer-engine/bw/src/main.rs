//! `transfer_bw`: pages and writes between two ends while ports fail, with a verdict.

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
use std::process::ExitCode;
use verdict::{Part, Verdict};

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(error) = options.check() {
        eprintln!("transfer_bw: {error}");
        return ExitCode::from(2);
    }
    match run(&options) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("transfer_bw: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(options: &Options) -> Result<u8> {
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
    let text = serde_json::to_string_pretty(&verdict)?;
    if net.is_none_or(|net| net.rank() == 0) {
        println!("{text}");
        if let Some(file) = &options.json {
            std::fs::write(file, &text).with_context(|| format!("--json {}", file.display()))?;
        }
    }
    Ok(verdict.exit_status())
}
