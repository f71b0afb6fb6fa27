//! One rank and its loop.

use shunt_deep_ep_bridge::layer::{self, Manner, Wrongs};
use shunt_deep_ep_bridge::normal::reference::NormalCase;
use shunt_deep_ep_bridge::normal::{self, NormalBuffer, NormalHandle};
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::{Buffer, MoeError, Patience, Runner};
use shunt_deep_ep_job::{Job, Lane};
use shunt_device::FaultKind;
use shunt_device::platform::host::World;
use shunt_figures::timeline::Timeline;
use shunt_layout::moe_normal::NormalShape;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all ranks of a run share.
pub struct Shared<'r> {
    /// Layers, which take turns in an order of the seed's.
    pub cases: &'r [Case],
    /// Layers of the run.
    pub iterations: u64,
    /// Ranks of a node.
    pub locals: u32,
    /// Seed of the order.
    pub seed: u64,
    /// Payload that came.
    pub timeline: &'r Timeline,
    /// The clock of the process.
    pub clock: &'r dyn World,
    /// Ranks that still run.
    pub running: AtomicU64,
    /// Layers that rank 0 ended: for who watches.
    pub ended: AtomicU64,
}

/// A rank that runs; see [`Shared::running`].
pub struct Running<'r>(&'r AtomicU64);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What came of a rank.
#[derive(Debug, Default)]
pub struct Ended {
    /// Layers that it ended.
    pub layers: u64,
    /// Layers in which something was wrong.
    pub mismatches: u64,
    /// The first of that.
    pub wrongs: Vec<String>,
    /// The fault that ended it.
    pub fault: Option<MoeError>,
    /// Ranks that it leaves out.
    pub masked: u64,
    /// Bytes that went by memory that ranks of its node share, and came back so.
    pub mapped: u64,
    /// Bytes that it has for other nodes.
    pub crossing: u64,
    /// Nanoseconds of each layer.
    pub layer_ns: Vec<u64>,
}

impl Ended {
    /// Of a thread that panicked: it has said why.
    pub fn panicked() -> Self {
        Self { mismatches: 1, wrongs: vec!["its thread panicked".to_owned()], ..Self::default() }
    }

    /// The kind of the fault that ended it.
    pub fn kind(&self) -> Option<FaultKind> {
        match &self.fault {
            Some(MoeError::Fault(fault)) => Some(fault.fault.kind),
            _ => None,
        }
    }
}

/// Bytes of a layer of normal mode: of the rows that came to `rank` by memory of its node, and of its tokens for other
/// nodes, there and back. A row comes over a rail to the rank of the node that has its source's number, and from there,
/// unless it is for that one, by memory.
fn normal_ways(case: &NormalCase, rank: u32, handle: &NormalHandle) -> (u64, u64) {
    let shape = &case.shape;
    let bytes = shape.dispatch_message(case.case.format.bytes() == 1) + shape.combine_stride();
    let by_memory = (0..shape.ranks()).filter(|source| source % shape.locals != rank % shape.locals);
    let rows: usize = by_memory.map(|source| handle.rows_from(source as usize).len()).sum();
    let others = (0..shape.nodes).filter(|node| *node != rank / shape.locals);
    let tokens: u32 =
        others.map(|node| case.count(rank, node * shape.locals..(node + 1) * shape.locals)).sum();
    (rows as u64 * bytes, u64::from(tokens) * bytes)
}

impl Shared<'_> {
    /// The case of a layer.
    fn case(&self, layer: u64) -> &Case {
        let number = layer.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.seed) >> 20;
        &self.cases[number as usize % self.cases.len()]
    }

    /// All layers of one rank.
    ///
    /// # Panics
    /// If the heap does not hold the buffer: who made the heap made it for one.
    pub fn run(&self, lane: Lane, patience: Patience) -> Ended {
        let shape = self.cases[0].shape;
        let (experts, rank) = (shape.experts() as u32, lane.rank());
        let buffer = Buffer::new(lane, Job::BASE, shape.tokens, shape.hidden, experts, patience);
        let mut buffer = buffer.expect("the heap was made for it");
        let (mut mapped, mut crossing) = (0, 0);
        let mut ended = self.layers(
            rank,
            |case| {
                let (near, far) = self.ways(case, rank);
                near + far
            },
            |layer, case| {
                let wrongs = layer::run(&mut buffer, case, Manner::zero_copy_if(layer % 5 == 4))?;
                let (near, far) = self.ways(case, rank);
                (mapped, crossing) = (mapped + near, crossing + far);
                Ok(wrongs)
            },
        );
        (ended.mapped, ended.crossing) = (mapped, crossing);
        ended.masked = buffer.mask().iter().filter(|masked| **masked).count() as u64;
        ended
    }

    /// All layers of one rank in normal mode: every fifth is repeated with other tokens that go the same ways.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_normal(&self, lane: Lane, shape: NormalShape, patience: Patience) -> Ended {
        let rank = lane.rank();
        let buffer = NormalBuffer::new(lane, Job::BASE, shape, patience);
        let mut buffer = buffer.expect("the heap was made for it");
        let bytes = |case: &Case| {
            let case = NormalCase { case: case.clone(), shape };
            let others = (0..shape.ranks()).filter(|to| *to != rank);
            let messages: u32 = others.map(|to| case.count(rank, to..to + 1)).sum();
            u64::from(messages)
                * (shape.dispatch_message(case.case.format.bytes() == 1) + shape.combine_stride())
        };
        let (mut mapped, mut crossing) = (0, 0);
        let mut ended = self.layers(rank, bytes, |layer, case| {
            let case = NormalCase { case: case.clone(), shape };
            let (mut wrongs, handle) = normal::layer::run(&mut buffer, &case)?;
            let mut times = 1;
            if layer % 5 == 4 {
                let again = NormalCase { case: case.case.again(layer), shape };
                wrongs.extend(normal::layer::run_cached(&mut buffer, &again, &handle)?);
                times = 2;
            }
            let (near, far) = normal_ways(&case, rank, &handle);
            (mapped, crossing) = (mapped + times * near, crossing + times * far);
            Ok(wrongs)
        });
        (ended.mapped, ended.crossing) = (mapped, crossing);
        ended
    }

    /// Runs layer after layer, until one ends with a fault.
    fn layers(
        &self,
        rank: u32,
        payload: impl Fn(&Case) -> u64,
        mut one: impl FnMut(u64, &Case) -> Result<Wrongs, MoeError>,
    ) -> Ended {
        let mut ended = Ended::default();
        while ended.layers < self.iterations {
            let case = self.case(ended.layers);
            let began = self.clock.now_ns();
            match one(ended.layers, case) {
                Ok(wrongs) => {
                    ended.mismatches += u64::from(!wrongs.is_empty());
                    let of = |wrong| format!("layer {}: {wrong}", ended.layers);
                    let room = 4usize.saturating_sub(ended.wrongs.len());
                    ended.wrongs.extend(wrongs.into_iter().take(room).map(of));
                }
                Err(error) => {
                    ended.fault = Some(error);
                    break;
                }
            }
            let now = self.clock.now_ns();
            ended.layer_ns.push(now - began);
            self.timeline.add(now, payload(case));
            ended.layers += 1;
            if rank == 0 {
                self.ended.store(ended.layers, Ordering::Relaxed);
            }
        }
        ended
    }

    /// Counts a rank as running until the answer is dropped, however its thread ends.
    pub fn running(&self) -> Running<'_> {
        Running(&self.running)
    }

    /// Bytes that a rank sends to others and gets back from them in a layer of low latency: to those of its node, by
    /// memory, and to those of other nodes.
    fn ways(&self, case: &Case, rank: u32) -> (u64, u64) {
        let shape = &case.shape;
        let bytes = shape.dispatch_message(case.format.bytes() == 1) + shape.bf16_bytes();
        let (mut near, mut far) = (0, 0);
        for expert in 0..shape.experts() {
            let home = (expert / u64::from(shape.local_experts)) as u32;
            let sent = case.chosen(rank, expert).len() as u64 * bytes;
            match (home == rank, home / self.locals == rank / self.locals) {
                (true, _) => {}
                (false, true) => near += sent,
                (false, false) => far += sent,
            }
        }
        (near, far)
    }
}
