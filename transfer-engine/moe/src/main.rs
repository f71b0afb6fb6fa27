//! `moe_proxy`: MoE layers over the transfer engine, rank by rank, while ports fail, with a verdict.

mod options;
mod run;
mod sweep;
mod verdict;

use anyhow::{Context, Result};
use options::Options;
use shunt_json::Document;
use shunt_moe_proxy::model::Model;
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
    let place = take("moe_proxy", source, options.alike(), options.ranks)?;
    let (clock, rail_gbps, is_first) = (place.nics.time_label(), place.rail_gbps, place.is_first());
    let buffers = options.buffers().map_err(anyhow::Error::msg)?;
    let nodes = Node::start(place, options.nics.rails())?;
    let here: Vec<u32> = nodes.iter().map(Node::end).collect();
    let model = Model::new(buffers.shape, buffers.topk, options.seed, &here);
    if is_first {
        let (ranks, rails) = (options.ranks, options.nics.rails());
        shunt::host::complain!("moe_proxy: {ranks} ranks are connected, {rails} rails each");
    }
    let shared = Arc::new((options.clone(), buffers, model));
    let ranks = nodes.into_iter().map(|node| {
        let (shared, rank, node) = (shared.clone(), node.end(), Arc::new(node));
        let run = move || {
            let (options, buffers, model) = (&shared.0, shared.1, &shared.2);
            if options.private_sweep {
                let (table, is_first) = sweep::measure(options, buffers, model, &node, (clock, rail_gbps))?;
                // Its row has said why it is not clean.
                let (status, why) = (start::exit_status(table.verdict), String::new());
                return Ok((Document::new(table).pretty(), status, why, is_first));
            }
            let parts = run::run(options, buffers, model, &node)?;
            let verdict = Verdict::of(options, clock, rail_gbps, &parts);
            let (status, why) = (verdict.exit_status(), verdict.why());
            let is_first = verdict.is_said_by(rank, is_first);
            Ok((Document::new(verdict).pretty(), status, why, is_first))
        };
        (rank, std::thread::spawn(run))
    });
    // All are begun before the first is waited for.
    let all = joined(ranks.collect::<Vec<_>>())?;
    let (text, status, why, is_first) = all.into_iter().next().context("no rank lives here")?;
    Ok(Outcome { text, is_first, is_printed: !options.private_sweep, status, why })
}
