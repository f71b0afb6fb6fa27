//! `weight_sync`: weights of trainers in the memory of servers, step by step, while ports fail, with a verdict.

mod end;
mod holding;
mod model;
mod options;
mod phase;
mod run;
mod seen;
mod verdict;
mod wire;

use anyhow::{Context, Result};
use options::Options;
use shunt_json::Document;
use shunt_transfer::{Node, Source};
use shunt_transfer_program::place::{joined, take};
use shunt_transfer_program::start::{self, Checked as _, Outcome};
use std::process::ExitCode;
use std::sync::Arc;
use verdict::Verdict;

fn main() -> ExitCode {
    start::main(run)
}

fn run(options: &Options, source: &Source) -> Result<Outcome> {
    let place = take("weight_sync", source, options.alike(), options.ends())?;
    let (clock, rail_gbps, is_first) = (place.nics.time_label(), place.rail_gbps, place.is_first());
    let shared = Arc::new((options.clone(), model::params(options)));
    let ends = Node::start(place, options.nics.rails())?.into_iter().map(|node| {
        let (shared, end) = (shared.clone(), node.end());
        (end, std::thread::spawn(move || Ok((end, run::run(&shared.0, &shared.1, node)?))))
    });
    // All are begun before the first is waited for.
    let all = joined(ends.collect::<Vec<_>>())?;
    let (end, ran) = all.into_iter().next().context("no end lives here")?;
    let is_first = ran.alone.as_ref().map_or(is_first, |lost| lost.speaks(end));
    let verdict = Verdict::of(options, clock, rail_gbps, ran);
    let (status, why) = (verdict.exit_status(), verdict.why());
    Ok(Outcome { text: Document::new(verdict).pretty(), is_first, is_printed: true, status, why })
}
