//! `moe_proxy`: MoE layers over the transfer engine, rank by rank, while ports fail, with a verdict.

mod options;
mod run;
mod verdict;

use anyhow::{Context, Result};
use options::Options;
use shunt_json::Document;
use shunt_moe_proxy::model::Model;
use shunt_transfer::{Node, Source};
use shunt_transfer_program::place::{joined, take};
use shunt_transfer_program::start::{self, Outcome};
use std::process::ExitCode;
use std::sync::Arc;
use verdict::Verdict;

fn main() -> ExitCode {
    start::main(run)
}

fn run(options: &Options, source: &Source) -> Result<Outcome> {
    let place = take("moe_proxy", source, options.ranks)?;
    let (clock, rail_gbps, is_first) = (place.nics.time_label(), place.rail_gbps, place.is_first());
    let buffers = options.buffers().map_err(anyhow::Error::msg)?;
    let nodes = Node::start(place, options.nics.rails)?;
    let here: Vec<u32> = nodes.iter().map(Node::end).collect();
    let model = Model::new(buffers.shape, buffers.topk, options.seed, &here);
    let shared = Arc::new((options.clone(), buffers, model));
    let ranks = nodes.into_iter().map(|node| {
        let (shared, rank) = (shared.clone(), node.end());
        (rank, std::thread::spawn(move || run::run(&shared.0, shared.1, &shared.2, node)))
    });
    // All are begun before the first is waited for.
    let all = joined(ranks.collect::<Vec<_>>())?;
    let parts = all.into_iter().next().context("no rank lives here")?;
    let verdict = Verdict::of(options, clock, rail_gbps, &parts);
    let status = verdict.exit_status();
    Ok(Outcome { text: Document::new(verdict).pretty(), is_first, is_printed: true, status })
}
