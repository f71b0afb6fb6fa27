//! MoE layers: each expert gets exactly the tokens that chose it, whatever is lost and whichever rank is late.

use super::kit::{Wrongs, judged};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::kernel::Kernel;
use crate::moe::{BASE, RankBuffer, all, cases, patience, pause, spec, start};
use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::{Format, MoeError, Runner, Signals};
use shunt_device::FaultKind;
use shunt_device::platform::host::World;
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_layout::moe::{CALLS_MAX, Shape};
use std::rc::Rc;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "moe_counts_applied_and_not_answered", seeds: 8, run: not_answered },
    Scenario { name: "moe_a_rank_that_receives_late", seeds: 4, run: late },
    Scenario { name: "moe_posts_that_find_no_room", seeds: 4, run: no_room },
    Scenario { name: "moe_a_replay_behind_the_last_number", seeds: 1, run: behind_the_last },
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

/// A phase that sends waits for nobody, but its posts find a channel that a switch holds, or whose ring is full: the
/// kernel's deadline ends them, long before a chain of switches would.
fn no_room(seed: u64) -> Wrongs {
    const TIMEOUT_NS: u64 = 200_000_000;
    judged(|| {
        let mut spec = spec(&shape(), seed);
        (spec.give_up_ns, spec.log_depth) = (20 * TIMEOUT_NS, 3);
        (spec.suspect_ns, spec.suspect_floor_ns) = (2_000_000, 2_000_000);
        let cluster = Cluster::start(&spec);
        // Of a port that goes dark nothing tells the end: the ring fills, and silence is what is found.
        let (kind, pause_ns) = [("down", 50_000_000), ("blackhole-tx", 0)][seed as usize % 2];
        for port in ["0.0", "0.1"] {
            cluster.inject(&format!("0us:{port}:{kind}").parse().expect("a fault"));
        }
        let mut patience = patience(&spec);
        (patience.timeout_ns, patience.slice_ns, patience.blocks) = (TIMEOUT_NS, 10_000_000, 1);
        let ended = start(&cluster, shape(), 0, patience, move |buffer, kernel| {
            let cases = cases(shape(), 4, Format::Fp8, seed, 2);
            // The first goes where there is room.
            let early = layer::send(buffer, &cases[1]).map(|_| ());
            pause(kernel, pause_ns);
            let began_ns = kernel.world.now_ns();
            let sent = layer::send(buffer, &cases[0]).map(|_| ());
            (early, sent, kernel.world.now_ns() - began_ns)
        });
        let (early, sent, took_ns) = cluster.sim.finish(&ended);
        let overdue = matches!(&sent, Err(MoeError::Fault(fault)) if fault.fault.kind == FaultKind::Overdue);
        let mut wrongs = Vec::new();
        if early.is_err() || !overdue {
            wrongs.push(format!("{kind}: {early:?}, then {sent:?}"));
        }
        // The last look at a channel is beyond it.
        if !(TIMEOUT_NS..2 * TIMEOUT_NS).contains(&took_ns) {
            wrongs.push(format!("{kind}: ended after {took_ns} ns"));
        }
        wrongs
    })
}

/// What a graph replays has its number in memory that no host looks at: behind the last one the kernel refuses it.
fn behind_the_last(seed: u64) -> Wrongs {
    judged(|| {
        let spec = spec(&shape(), seed);
        let cluster = Cluster::start(&spec);
        let ended = start(&cluster, shape(), 0, patience(&spec), |buffer, _| {
            [CALLS_MAX - 1, CALLS_MAX].map(|before| {
                let call = MoeCall {
                    shape: shape(),
                    base: BASE,
                    call: 1,
                    before: &raw const before as u64,
                    // Nobody is waited for.
                    floor: before,
                    timeout_ns: 1_000_000,
                    slice_ns: 1_000_000,
                    blocks: 1,
                    ..MoeCall::default()
                };
                buffer.runner().run(Stage::Room, &call).as_fault().map(|fault| fault.kind)
            })
        });
        match cluster.sim.finish(&ended) {
            [None, Some(FaultKind::BadAddress)] => Vec::new(),
            met => vec![format!("the last number and the one behind it: {met:?}")],
        }
    })
}
