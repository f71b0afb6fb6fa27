//! One rank and its loop.

use super::job::{Job, Lane};
use crate::timeline::Timeline;
use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::{Buffer, MoeError, Patience, Runner};
use shunt_device::FaultKind;
use shunt_device::platform::host::World;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all ranks of a run share.
pub struct Shared<'r> {
    /// Layers, which take turns in an order of the seed's.
    pub cases: &'r [Case],
    /// Layers of the run.
    pub iterations: u64,
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
    /// Nanoseconds of each layer.
    pub layer_ns: Vec<u64>,
}

impl Ended {
    /// The kind of the fault that ended it.
    pub fn kind(&self) -> Option<FaultKind> {
        match &self.fault {
            Some(MoeError::Fault(fault)) => Some(fault.fault.kind),
            _ => None,
        }
    }
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
        let mut ended = Ended::default();
        while ended.layers < self.iterations {
            let case = self.case(ended.layers);
            let began = self.clock.now_ns();
            match layer::run(&mut buffer, case, Manner { zero_copy: ended.layers % 5 == 4 }) {
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
            self.timeline.add(now, self.payload(case, rank));
            ended.layers += 1;
            if rank == 0 {
                self.ended.store(ended.layers, Ordering::Relaxed);
            }
        }
        ended.masked = buffer.mask().iter().filter(|masked| **masked).count() as u64;
        self.running.fetch_sub(1, Ordering::AcqRel);
        ended
    }

    /// Bytes that a rank sends to others and gets back from them in a layer.
    fn payload(&self, case: &Case, rank: u32) -> u64 {
        let shape = &case.shape;
        let away = |expert: &u64| expert / u64::from(shape.local_experts) != u64::from(rank);
        let messages: usize =
            (0..shape.experts()).filter(away).map(|expert| case.chosen(rank, expert).len()).sum();
        let fp8 = case.format.bytes() == 1;
        messages as u64 * (shape.dispatch_message(fp8) + shape.bf16_bytes())
    }
}
