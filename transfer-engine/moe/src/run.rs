//! The run of a rank, with its faults, and what it tells the others at its end.

use crate::options::Options;
use crate::verdict::Part;
use anyhow::{Context, Result};
use shunt_moe_proxy::buffers::Buffers;
use shunt_moe_proxy::model::Model;
use shunt_moe_proxy::rank::{Rank, Times, doubled};
use shunt_transfer::Node;
use shunt_transfer_program::faults::Planned;
use shunt_transfer_program::lost::Lost;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A rank goes on for so long after its last layer: what comes twice comes in that time.
const REST: Duration = Duration::from_millis(200);
/// Lines of progress, at most so often.
const LINE: Duration = Duration::from_secs(1);

/// Runs a rank. All ranks answer with the same; where one is gone, each with what it saw itself.
///
/// # Errors
/// A rank does not answer, or a call is refused.
pub fn run(options: &Options, buffers: Buffers, model: &Model, node: &Arc<Node>) -> Result<Vec<Part>> {
    let (number, rails) = (node.end(), options.nics.rails());
    let rank = Rank::new(node.clone(), rails, buffers)?;
    let ground = rank.ground();
    let before = node.counts()?;
    let planned = Planned::begin(&options.nics.inject, number, &node.place().nics);
    let planned = planned.map_err(anyhow::Error::msg)?;
    let (began, said) = (Instant::now(), std::cell::Cell::new(Instant::now()));
    let each = |layer: u64| {
        if number == 0
            && !options.private_sweep
            && (said.get().elapsed() >= LINE || layer == u64::from(options.layers))
        {
            said.set(Instant::now());
            let seconds = began.elapsed().as_secs_f64();
            shunt::host::complain!("moe_proxy: layer {layer} of {}, {seconds:.1} s", options.layers);
        }
    };
    let ran = rank.layers(model, options.layers.into(), &mut |_, _, _, _| {}, &each);
    std::thread::sleep(REST);
    let counts = node.counts()?;
    let of = |time: fn(&Times) -> u64| ran.times.iter().map(time).collect::<Vec<u64>>();
    let mut part = Part {
        imm_doubled: if ran.failure.is_none() { doubled(node, ran.seen.layers)? } else { 0 },
        layers_rail_down: ran.layers_rail_down,
        dispatch: of(|times| times.dispatch_ns).into(),
        combine: of(|times| times.combine_ns).into(),
        layer: of(|times| times.layer_ns).into(),
        seen: ran.seen,
        failovers: counts.closed - before.closed,
        returns: counts.returned - before.returned,
        pieces_again: counts.again - before.again,
        faults: planned.struck(&node.place().nics).map_err(anyhow::Error::msg)?,
        ..Part::default()
    };
    // A NIC that is dead to commands takes nothing back; without faults all do.
    let goes_on = options.private_sweep && ran.failure.is_none();
    if let Some(failure) = ran.failure {
        (part.peer_lost, part.uncertain) = (failure.is_lost, failure.is_uncertain);
        part.failure = failure.why;
    }
    let all = node.exchange(&serde_json::to_vec(&part)?).map_err(anyhow::Error::from);
    if let Some(lost) = all.as_ref().err().and_then(Lost::of) {
        if part.failure.is_empty() {
            part.failure = lost.to_string();
        }
        (part.peer_lost, part.alone) = (true, Some(lost));
        return Ok(vec![part]);
    }
    if goes_on {
        // What a busy machine's NIC does not take back stays until the node has ended.
        let _ = ground.give_back(node);
    }
    all?.iter().map(|bytes| serde_json::from_slice(bytes).context("what another rank said")).collect()
}
