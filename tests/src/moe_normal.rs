//! Ranks of a simulated cluster, some of which share a node, each with a buffer of normal mode.

use crate::cluster::Cluster;
use crate::kernel::Kernel;
use crate::moe::{BASE, Lane};
use crate::sim::Task;
use crate::spec::RunSpec;
use crate::traffic::Traffic;
use shunt_deep_ep_bridge::normal::reference::NormalCase;
use shunt_deep_ep_bridge::normal::{NormalBuffer, NormalRunner};
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::runner::blocks_in_turn;
use shunt_deep_ep_bridge::{Format, PathName, Patience, Runner};
use shunt_device::{Fault, Solo};
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_layout::moe::Shape;
use shunt_layout::moe_normal::NormalShape;

/// Two nodes of two ranks, with rings so small that all of them wrap.
pub const SMALL: NormalShape = NormalShape {
    nodes: 2,
    locals: 2,
    local_experts: 2,
    tokens: 9,
    hidden: 512,
    topk: 4,
    channels: 2,
    chunk: 2,
    slots: 4,
    near_slots: 3,
};

/// One lane of a rank, which reaches the memory of the ranks of its node.
pub struct NodeLane {
    lane: Lane,
    kernel: Kernel,
}

impl Runner for NodeLane {
    fn rank(&self) -> u32 {
        self.lane.rank()
    }
    fn ranks(&self) -> u32 {
        self.lane.ranks()
    }
    fn heap_bytes(&self) -> u64 {
        self.lane.heap_bytes()
    }
    fn address(&self, at: u64) -> u64 {
        self.lane.address(at)
    }
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome {
        self.lane.run(stage, call)
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        self.lane.path(fault)
    }
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        self.lane.near(rank, at)
    }
}

impl NormalRunner for NodeLane {
    fn run_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome {
        blocks_in_turn(call.blocks, |block| kernel.run(self.kernel.device(), Solo, block, call))
    }
}

/// What a rank does with its buffer.
pub type NodeBuffer = NormalBuffer<NodeLane>;

/// What a run needs of a cluster.
pub fn spec(shape: &NormalShape, seed: u64) -> RunSpec {
    let ranks = shape.ranks();
    // No streams run: this is room in the heap.
    let streams = u64::from(ranks * (ranks - 1) / 2).max(1);
    RunSpec {
        seed,
        pes: ranks,
        // One for what a channel sends, one for the heads that it returns.
        channels: 2 * shape.channels,
        stream_channels: 1,
        traffic: Traffic {
            slots: 1,
            slot_bytes: (BASE + shape.bytes()).div_ceil(streams).next_multiple_of(4096),
            ..Traffic::default()
        },
        ..RunSpec::default()
    }
}

/// Patience of tests: of a run on virtual time.
pub fn patience(spec: &RunSpec) -> Patience {
    Patience {
        timeout_ns: 10_000_000_000,
        slice_ns: 4 * spec.suspect_ns.max(2_500_000),
        blocks: 1 + (spec.seed % 3) as u32,
        ..Patience::default()
    }
}

/// Starts `body` on a rank, with a buffer of `shape`.
pub fn start<T: 'static>(
    cluster: &Cluster,
    shape: NormalShape,
    rank: u32,
    patience: Patience,
    body: impl FnOnce(&mut NodeBuffer, &Kernel) -> T + 'static,
) -> Task<T> {
    let heap_bytes = cluster.pe(rank).heap().bytes;
    cluster.spawn("moe", rank, move |kernel| {
        let lane = Lane::of(kernel, rank, (shape.ranks(), shape.locals), heap_bytes);
        let lane = NodeLane { lane, kernel: kernel.clone() };
        let mut buffer = NormalBuffer::new(lane, BASE, shape, patience).expect("there is room");
        body(&mut buffer, kernel)
    })
}

/// Cases of one run, a case a layer.
pub fn cases(shape: NormalShape, topk: u32, format: Format, seed: u64, count: u64) -> Vec<NormalCase> {
    let low = Shape::new(shape.ranks(), shape.experts() as u32, shape.tokens, shape.hidden).expect("sizes");
    let case = |number| Case::random(low, topk, format, seed.wrapping_mul(1000) + number);
    (0..count).map(|number| NormalCase { case: case(number), shape }).collect()
}
