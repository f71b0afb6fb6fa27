//! Settings of a PE.

use crate::config::{EnvConfig, FenceMode, FetchMode, policy};
use crate::error::StartError;
use crate::gpu::Split;
use crate::keys::chunks;
use crate::nic::qp::QpTuning;
use crate::rail::{HeapShape, RailOptions};
use shunt_layout::mlx5::wqe::SQ_DEPTH_MAX;
use shunt_layout::state::{HeapTail, Policy, SLOTS_MAX};

/// Whether rails and paths are made one after another or at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bringup {
    /// On the calling thread: for simulators, whose `relax` belongs to it.
    Sequential,
    /// On many threads.
    #[default]
    Parallel,
}

/// [`PeConfig::prove_ns`] where nothing else is asked for: a job's start is over by then.
pub const PROVE_NS: u64 = 2_000_000_000;

/// Settings of a PE. All PEs of a job agree on all but `tuning`, `policy` and `rail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeConfig {
    /// Bytes of the symmetric heap.
    pub heap_bytes: u64,
    /// log2 of the bytes one key covers.
    pub log2_chunk: u32,
    /// Where the heap's memory changes from a device's to the host's; `None`: it is one memory, whatever that is.
    pub split: Option<Split>,
    /// Chunks at the heap's start whose keys are made when all PEs ask for them (`Pe::reach`).
    /// Until then NICs pin nothing there, and refuse what is posted to it.
    pub late_chunks: u32,
    /// Channels to each peer.
    pub channels_per_pe: u32,
    /// Channels from this one on are kernels' alone. They, and all else that a put, a poll or a NIC touches, lie in the
    /// device's memory, which the host reaches by copies; so their switches are the kernels' business, and host calls
    /// take the channels before. `None`: everything lies in the host's memory, and every channel is everybody's.
    pub kernels_from: Option<u32>,
    /// log2 of the rings' depth.
    pub log_depth: u32,
    /// Backup paths of each channel.
    pub backups: u32,
    /// Whether the agents make them once the PE is up: bring-up returns when the first paths are connected.
    pub backups_later: bool,
    /// How long after its start the agent has idle backups proved on their real paths.
    pub prove_ns: u64,
    /// Timers and retries of QPs.
    pub tuning: QpTuning,
    /// Patience of device code. `fault_tolerance` is taken from `ft`.
    pub policy: Policy,
    /// Whether failures switch paths.
    pub ft: bool,
    /// Good probes wanted, each way, of a path that was recreated.
    pub probes: u32,
    /// How old paths are fenced.
    pub fence: FenceMode,
    /// Longest time a packet may live in the network.
    pub packet_lifetime_ns: u64,
    /// Who answers fetching atomics.
    pub fetch: FetchMode,
    /// Whether switchers leave a record of each step.
    pub step_records: bool,
    /// How rails are opened.
    pub rail: RailOptions,
    /// One after another or at once.
    pub bringup: Bringup,
    /// Which channels the agent may change by itself: carry a switch on, touch what is at rest. `None`: all. `Some`:
    /// the first so many to each peer, which kernels then leave alone; the others are kernels' on a GPU, which a CPU
    /// leaves alone: over PCIe what one changes is not changed atomically for the other. Fewer than
    /// [`channels_per_pe`](Self::channels_per_pe).
    pub host_channels: Option<u32>,
}

impl PeConfig {
    /// Settings from the environment's, for a heap of this size.
    pub fn new(env: &EnvConfig, heap_bytes: u64) -> Self {
        Self {
            heap_bytes,
            log2_chunk: 30,
            split: None,
            late_chunks: 0,
            channels_per_pe: env.channels_per_pe,
            kernels_from: None,
            log_depth: env.log_depth,
            // Nobody would leave a first path.
            backups: if env.fault_tolerance { env.backups } else { 0 },
            backups_later: true,
            prove_ns: PROVE_NS,
            tuning: env.tuning,
            policy: policy(env),
            ft: env.fault_tolerance,
            probes: env.probes,
            fence: env.fence,
            packet_lifetime_ns: env.packet_lifetime_ns,
            fetch: env.fetch,
            step_records: env.step_records,
            rail: RailOptions::from(env),
            bringup: Bringup::default(),
            host_channels: None,
        }
    }

    /// What lies behind the heap, for a job of `size` PEs; with room for exact fetching atomics, or without.
    pub(super) fn tail(&self, size: u32, exact: bool) -> HeapTail {
        HeapTail::new(self.heap_bytes, u64::from(size) * u64::from(self.channels_per_pe), exact)
    }

    /// Whether fetching atomics can be exact: somebody must survive a failure, and the agent must reach what lies
    /// behind the heap.
    ///
    /// # Errors
    /// They cannot be and are to be.
    pub(super) fn fetches_exactly(&self, reaches: bool) -> Result<bool, StartError> {
        match (self.fetch, self.ft && reaches) {
            (FetchMode::Nic, _) => Ok(false),
            (FetchMode::Exact, false) if self.ft => Err(StartError::Fetch),
            (_, can) => Ok(can),
        }
    }

    /// How the heap is registered.
    pub(super) fn heap_shape(&self) -> HeapShape {
        HeapShape { log2_chunk: self.log2_chunk, split: self.split, late: self.late_chunks }
    }

    pub(super) fn check(&self, rails: usize, size: u32, end: u64) -> Result<(), StartError> {
        let within = |what, met: u64, range: std::ops::RangeInclusive<u64>| {
            if range.contains(&met) {
                return Ok(());
            }
            let want = format!("{} to {}", range.start(), range.end());
            Err(StartError::Config { what, met, want })
        };
        within("number of PEs", size.into(), 1..=4096)?;
        within("number of rails", rails as u64, 1..=64)?;
        within("heap size in bytes", self.heap_bytes, 1..=1 << 46)?;
        within("log2 of the chunk size", self.log2_chunk.into(), 12..=40)?;
        within("number of chunks", chunks(end, self.log2_chunk).into(), 1..=1 << 16)?;
        within("chunks without a key", self.late_chunks.into(), 0..=(self.heap_bytes >> self.log2_chunk))?;
        if let Some(split) = self.split {
            within(
                "bytes of the heap in a device's memory",
                split.device,
                1..=self.heap_bytes.saturating_sub(1),
            )?;
            let host = Split::new(split.device, self.log2_chunk).host;
            within("offset of the heap's part in the host's memory", split.host, host..=host)?;
        }
        // As many as may be asked for, and one of the host's beside those of kernels.
        within("channels to each peer", self.channels_per_pe.into(), 1..=1025)?;
        within("log2 of the ring depth", self.log_depth.into(), 1..=SQ_DEPTH_MAX.ilog2().into())?;
        within("backups", self.backups.into(), 0..=SLOTS_MAX as u64 - 1)
    }
}
