//! What one process tells the others of its ranks, for each to judge the whole run.

use crate::rank::Ended;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shunt_device::FaultKind;
use shunt_figures::lines::FaultLine;

/// How a rank ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum How {
    /// With its last layer.
    #[default]
    Through,
    /// It waited in vain.
    Overdue,
    /// No path was left.
    PeerLost,
    /// Nobody can know whether a signal was applied.
    Uncertain,
    /// An error completion, of a channel that nobody switches.
    Completion,
    /// Another fault.
    Other,
}

/// What came of a rank.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct End {
    /// The rank.
    pub rank: u32,
    /// Layers that it ended.
    pub layers: u64,
    /// Layers in which something was wrong.
    pub mismatches: u64,
    /// Ranks that it leaves out.
    pub masked: u64,
    /// Bytes that came by memory that ranks of its node share.
    pub mapped: u64,
    /// Bytes that it has for other nodes.
    pub crossing: u64,
    /// How it ended.
    pub how: How,
    /// The first of what was wrong, and the fault that ended it.
    pub wrongs: Vec<String>,
    /// Time of a layer in microseconds: half of all, 99 of 100, the longest.
    pub layer_us: [f64; 3],
}

/// What a rail sent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
pub struct NicBytes {
    /// Rank and rail.
    pub place: String,
    /// Bytes of payload.
    pub bytes: u64,
}

/// What came of the ranks of a process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Part {
    /// Entries that kernels posted to NICs for other ranks of their node.
    pub posted_on_node: u64,
    /// Its ranks.
    pub ends: Vec<End>,
    /// Switches because of a fault, and back.
    pub switches: (u64, u64),
    /// What its rails sent meanwhile, where NICs count that.
    pub nics: Vec<NicBytes>,
    /// Faults that struck its rails.
    pub faults: Vec<FaultLine>,
    /// Payload bytes of each bin.
    pub bins: Vec<u64>,
    /// Seconds from the first layer to the last.
    pub seconds: f64,
    /// More threads than cores.
    pub oversubscribed: bool,
    /// What times are.
    pub clock: String,
}

impl End {
    /// Of what a rank's thread left.
    pub fn of(rank: u32, ended: Ended) -> Self {
        let how = match (ended.kind(), &ended.fault) {
            (None, None) => How::Through,
            (Some(FaultKind::Overdue), _) => How::Overdue,
            (Some(FaultKind::PeerLost), _) => How::PeerLost,
            (Some(FaultKind::Uncertain), _) => How::Uncertain,
            (Some(FaultKind::Completion), _) => How::Completion,
            _ => How::Other,
        };
        let fault = ended.fault.iter().map(|fault| format!("rank {rank}: {fault}"));
        Self {
            rank,
            layers: ended.layers,
            mismatches: ended.mismatches,
            masked: ended.masked,
            mapped: ended.mapped,
            crossing: ended.crossing,
            how,
            wrongs: ended.wrongs.iter().cloned().chain(fault).collect(),
            layer_us: percentiles(ended.layer_ns),
        }
    }
}

fn percentiles(mut ns: Vec<u64>) -> [f64; 3] {
    ns.sort_unstable();
    let at = |part: f64| ns.get(((ns.len() as f64 * part) as usize).min(ns.len().saturating_sub(1)));
    [0.5, 0.99, 1.0].map(|part| at(part).map_or(0.0, |ns| *ns as f64 / 1e3))
}
