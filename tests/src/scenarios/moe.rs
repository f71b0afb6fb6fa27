//! MoE layers: each expert gets exactly the tokens that chose it, whatever is lost and whoever is late.

use super::Scenario;
use super::kit::{Wrongs, judged};
use crate::cluster::Cluster;
use crate::moe::{RankBuffer, all, cases, patience, pause, spec, start};
use crate::workload::Kernel;
use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::{Format, MoeError, Signals};
use shunt_layout::moe::Shape;
use std::rc::Rc;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "moe_counts_applied_and_not_answered", seeds: 8, run: not_answered },
    Scenario { name: "moe_a_rank_that_receives_late", seeds: 4, run: late },
];

const LAYERS: u64 = 4;
/// Far above what it takes to notice and to leave.
const SWITCH_NS: u64 = 60_000_000;

fn shape() -> Shape {
    Shape::new(2, 4, 3, 512).expect("sizes that can be")
}

/// Counts and flags are added at the receiver, the answers are lost, and the path is left: none is added again.
fn not_answered(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(&shape(), seed);
        // Within the first layers.
        let at = seed / 2;
        let lost = ["lost-atomic-response", "drop-acks"][seed as usize % 2];
        for rank in 0..2 {
            spec.faults.push(format!("{at}us:{rank}.0:{lost}").parse().expect("a fault"));
        }
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let cases = Rc::new(cases(shape(), 2, Format::Bf16, seed, LAYERS));
        let tasks: Vec<_> = (0..2)
            .map(|rank| {
                let cases = cases.clone();
                let mut patience = patience(&spec);
                patience.signals = Signals::Cleared;
                start(&cluster, shape(), rank, patience, move |buffer, kernel| layers(buffer, kernel, &cases))
            })
            .collect();
        let mut wrongs = all(cluster.sim.finish_all(&tasks));
        let idle = cluster.faults().into_iter().filter(|(_, hits)| *hits == 0);
        wrongs.extend(idle.map(|(fault, _)| format!("{fault} struck nothing")));
        wrongs
    })
}

fn layers(buffer: &mut RankBuffer, kernel: &Kernel, cases: &[Case]) -> Result<Wrongs, MoeError> {
    let mut wrongs = Vec::new();
    for case in cases {
        wrongs.extend(layer::run(buffer, case, Manner::default())?);
        // The path is left meanwhile, after the words were cleared: what is added again would be there later.
        pause(kernel, SWITCH_NS);
    }
    Ok(wrongs)
}

/// A rank sends two calls and receives them late; its peer, which has received both, sends a third meanwhile.
fn late(seed: u64) -> Wrongs {
    judged(|| {
        let spec = spec(&shape(), seed);
        let cluster = Cluster::start(&spec);
        let cases = Rc::new(cases(shape(), 4, Format::Bf16, seed, 3));
        let tasks: Vec<_> = (0..2)
            .map(|rank| {
                let (cases, late) = (cases.clone(), rank == 1);
                start(&cluster, shape(), rank, patience(&spec), move |buffer, kernel| {
                    dispatches(buffer, kernel, &cases, late)
                })
            })
            .collect();
        all(cluster.sim.finish_all(&tasks))
    })
}

/// Three dispatches, two of them under way at a time.
fn dispatches(
    buffer: &mut RankBuffer,
    kernel: &Kernel,
    cases: &[Case],
    late: bool,
) -> Result<Wrongs, MoeError> {
    let first = layer::send(buffer, &cases[0])?;
    let second = layer::send(buffer, &cases[1])?;
    if late {
        pause(kernel, 3_000_000);
    }
    let received = buffer.receive_dispatch(first)?;
    let mut wrongs = layer::check_received(buffer, &cases[0], &received);
    let received = buffer.receive_dispatch(second)?;
    wrongs.extend(layer::check_received(buffer, &cases[1], &received));
    let third = layer::send(buffer, &cases[2])?;
    let received = buffer.receive_dispatch(third)?;
    wrongs.extend(layer::check_received(buffer, &cases[2], &received));
    Ok(wrongs)
}
