//! Ranks of this process on soft NICs: what a buffer's kernels run on, by calls of its rank's own thread.

use crate::cluster::{Cluster, UpError, oversubscribed, suspect_ns};
use crate::heap::HeapMap;
use crate::job::threads::Threads;
use crate::nics::source::Source;
use crate::options::{Options, Usage};
use shunt_deep_ep_bridge::normal::NormalRunner;
use shunt_deep_ep_bridge::runner::{blocks_in_turn, in_turn};
use shunt_deep_ep_bridge::{Agreement, PathName, Runner};
use shunt_device::{Fault, HeapOffset, Solo};
use shunt_host::agent::words::Place;
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_kernels::moe::{MoeCall, Stage};
use std::sync::Arc;

/// Rails of each rank, unless somebody says otherwise.
pub const RAILS: u32 = 2;

/// What a job is made of.
#[derive(Clone, Copy, Debug)]
pub struct JobOptions {
    /// Ranks.
    pub ranks: u32,
    /// Rails of each.
    pub rails: u32,
    /// Channels to each peer: one for each local expert, or experts share them.
    pub channels: u32,
    /// Bytes of the heap from [`Job::BASE`] on.
    pub bytes: u64,
    /// The largest message.
    pub message: u64,
    /// Seed of the NICs.
    pub seed: u64,
    /// Fault tolerance.
    pub tolerant: bool,
}

/// Why there is no job.
#[derive(Debug, thiserror::Error)]
pub enum NoJob {
    /// PEs did not come up.
    #[error("the ranks did not come up: {0}")]
    Up(#[from] UpError),
    /// What the options ask of the parts.
    #[error(transparent)]
    Parts(#[from] Usage),
}

/// Ranks, NICs, agents. Everything ends with the last of its lanes.
pub struct Job {
    cluster: Cluster,
    ranks: u32,
    heap_bytes: u64,
    slice_ns: u64,
    oversubscribed: bool,
}

impl Job {
    /// Where a buffer begins in the heap.
    pub const BASE: u64 = 4096;

    /// Brings all ranks up.
    ///
    /// # Errors
    /// As [`NoJob`] says.
    pub fn start(options: &JobOptions) -> Result<Arc<Self>, NoJob> {
        let parts = options.parts()?;
        // Offsets below the buffer are nobody's.
        let map = HeapMap::plain(Self::BASE + options.bytes);
        let source = Source::Soft;
        let cluster = Cluster::start(&parts, &source, &Threads::new(options.ranks), map, options.message)?;
        Ok(Arc::new(Self {
            cluster,
            ranks: options.ranks,
            heap_bytes: map.bytes(),
            slice_ns: (4 * suspect_ns(&parts, &source, options.message)).max(100_000_000),
            oversubscribed: oversubscribed(&parts),
        }))
    }

    /// Its parts.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Between two looks at whether a peer is lost: longer than the device's own patience.
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// More threads than cores.
    pub fn oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// What runs the kernels of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn lane(self: &Arc<Self>, rank: u32) -> Lane {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        Lane { job: self.clone(), rank }
    }
}

impl JobOptions {
    /// What the parts of `shmem_put_bw` are told: PEs, rails, channels, no stream.
    fn parts(&self) -> Result<Options, Usage> {
        // Its streams run between pairs of PEs; ranks of a job here need no partner.
        let pes = self.ranks.next_multiple_of(2).to_string();
        let (rails, seed) = (self.rails.to_string(), self.seed.to_string());
        let ft = if self.tolerant { "on" } else { "off" };
        let words = ["moe", "--pes", &pes, "--rails", &rails, "--seed", &seed, "--ft", ft, "-n", "0"];
        let mut parts = Options::from_arguments(words)?;
        parts.pes = Some(self.ranks);
        parts.ctas = self.channels;
        Ok(parts)
    }
}

/// One rank's kernels.
pub struct Lane {
    job: Arc<Job>,
    rank: u32,
}

impl Runner for Lane {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn ranks(&self) -> u32 {
        self.job.ranks
    }
    fn heap_bytes(&self) -> u64 {
        self.job.heap_bytes
    }
    fn address(&self, at: u64) -> u64 {
        self.job.cluster.unit(self.rank).address(HeapOffset(at))
    }
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome {
        in_turn(call, |block| stage.run(self.job.cluster.unit(self.rank).device(), Solo, block, call))
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        let place = Place { peer: fault.peer, channel: fault.channel, slot: fault.slot };
        let row = || self.job.cluster.unit(self.rank).path(place);
        (fault.peer != self.rank).then(|| PathName::of(&row(), fault.at.0))
    }
    fn agreement(&self) -> Option<Agreement> {
        Some(Agreement::of(self.job.cluster.unit(self.rank).pe()))
    }
}

/// Ranks of this process reach each other's memory: which of them share a node is the buffer's business.
impl NormalRunner for Lane {
    fn run_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome {
        let device = || self.job.cluster.unit(self.rank).device();
        blocks_in_turn(call.blocks, |block| kernel.run(device(), Solo, block, call))
    }
    fn near(&self, rank: u32, at: u64) -> u64 {
        self.job.cluster.unit(rank).address(HeapOffset(at))
    }
}
