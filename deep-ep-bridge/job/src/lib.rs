//! Ranks of this process on soft NICs: what a buffer's kernels run on, by calls of its rank's own thread.

use shunt::{LINK_NS, Members, Nics as _, Runtime, Settings, SoftNics, start_together};
use shunt_deep_ep_bridge::normal::NormalRunner;
use shunt_deep_ep_bridge::runner::{blocks_in_turn, in_turn};
use shunt_deep_ep_bridge::{Agreement, PathName, Runner};
use shunt_device::platform::host::World;
use shunt_device::{Fault, Solo};
use shunt_host::agent::words::Place;
use shunt_host::pe::PeConfig;
use shunt_host::silence::Silence;
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_layout::state::SLOTS_MAX;
use shunt_soft_nic::{FabricConfig, NicConfig, RailAt};
use std::sync::Arc;

/// Rails of each rank, unless somebody says otherwise.
pub const RAILS: u32 = 2;
/// What a port carries.
const RAIL_GBPS: f64 = 4.0;
/// Where threads wait for cores, a healthy path is silent for as long as this.
const CROWDED_NS: u64 = 50_000_000;
/// log2 of the rings' depth, unless the environment says otherwise.
const LOG_DEPTH: u32 = 8;

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
#[error("the ranks did not come up: {0}")]
pub struct NoJob(#[from] shunt::Error);

/// Ranks, NICs, agents. Everything ends with the last of its lanes.
pub struct Job {
    ranks: Vec<Runtime>,
    nics: Arc<SoftNics>,
    clock: Arc<dyn World>,
    slice_ns: u64,
    oversubscribed: bool,
}

impl Job {
    /// Where a buffer begins in the heap. Offsets below it are nobody's.
    pub const BASE: u64 = 4096;

    /// Brings all ranks up.
    ///
    /// # Errors
    /// As [`NoJob`] says.
    pub fn start(options: &JobOptions) -> Result<Arc<Self>, NoJob> {
        let settings = options.settings().map_err(shunt::Error::Config)?;
        let all = (0..options.ranks).flat_map(|pe| (0..options.rails).map(move |rail| RailAt { pe, rail }));
        let own = all.map(|at| {
            let config = NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail);
            (at, NicConfig { rail_gbps: Some(RAIL_GBPS), ..config })
        });
        let config = FabricConfig { link_ns: LINK_NS, seed: options.seed };
        let nics = SoftNics::with(config, own, |_| Ok::<_, shunt::Error>(()))?;
        let nics = Arc::new(nics);
        let clock = nics.clock();
        let silence = options.silence(&settings);
        let adjust = move |config: &mut PeConfig| {
            // A switch goes to a backup that is there.
            config.backups_later = false;
            (config.policy.suspect_ns, config.policy.suspect_floor_ns) =
                (silence.suspect_ns, silence.floor_ns);
        };
        let heap_bytes = Self::BASE + options.bytes.next_multiple_of(128);
        let builders = Members::in_process(options.ranks, &clock).members.into_iter().map(|member| {
            let builder = Runtime::builder(nics.clone(), member).settings(settings);
            builder.heap_bytes(heap_bytes).adjust(adjust)
        });
        let ranks = start_together(builders)?;
        Ok(Arc::new(Self {
            ranks,
            nics,
            clock,
            slice_ns: (4 * silence.suspect_ns).max(100_000_000),
            oversubscribed: options.oversubscribed(),
        }))
    }

    /// The NICs: to make one fail.
    pub fn nics(&self) -> &SoftNics {
        &self.nics
    }

    /// The clock of all ranks.
    pub fn clock(&self) -> &dyn World {
        &*self.clock
    }

    /// Ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Between two looks at whether a peer is lost: longer than the device's own patience.
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// More threads than cores.
    pub fn oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// Switches because of a fault, and back, over all channels of all ranks.
    pub fn switches(&self) -> (u64, u64) {
        let each = self.ranks.iter().map(Runtime::switches);
        each.fold((0, 0), |(failovers, back), (more, more_back)| (failovers + more, back + more_back))
    }

    /// What runs the kernels of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn lane(self: &Arc<Self>, rank: u32) -> Lane {
        assert!(rank < self.ranks(), "rank {rank} of {}", self.ranks());
        Lane { job: self.clone(), rank }
    }

    fn rank(&self, rank: u32) -> &Runtime {
        &self.ranks[rank as usize]
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.ranks.iter().for_each(Runtime::ask_to_stop);
    }
}

impl JobOptions {
    /// The environment's settings, and what these options mean where it says nothing.
    fn settings(&self) -> Result<Settings, shunt_host::error::ConfigError> {
        let mut settings = Settings::from_env()?;
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let env = &mut settings.env;
        env.fault_tolerance = self.tolerant;
        if !is_set("NVSHMEM_IBGDA_NUM_RC_PER_PE") {
            env.channels_per_pe = self.channels;
        }
        if !is_set("NVSHMEM_QP_DEPTH") {
            env.log_depth = LOG_DEPTH;
        }
        // The whole chain: any local rail with any remote one, as far as a channel has slots for it.
        if !is_set("SHUNT_BACKUPS") {
            env.backups = (self.rails * self.rails).min(SLOTS_MAX as u32) - 1;
        }
        Ok(settings)
    }

    /// Threads of kernels, agents, the engine and the one that waits, against cores.
    fn oversubscribed(&self) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        self.ranks * (self.channels + 1) + 2 > cores
    }

    /// How long a path may be silent. A completion comes once a put, and a rail needs its time for the largest.
    fn silence(&self, settings: &Settings) -> Silence {
        let (usual, crowded) = (Silence::SOFT, self.oversubscribed());
        let base = if crowded { usual.suspect_ns.max(CROWDED_NS) } else { usual.suspect_ns };
        let put_ns = (self.message as f64 * 8.0 / RAIL_GBPS) as u64;
        let suspect_ns = settings.suspect_ns.unwrap_or(base) + 2 * put_ns;
        let floor_ns = match settings.suspect_floor_ns {
            Some(floor_ns) => floor_ns,
            // Silence is not told from what is usual where threads wait, or where a time was asked for.
            None if crowded || settings.suspect_ns.is_some() => suspect_ns,
            None => usual.floor_ns,
        };
        Silence { suspect_ns, floor_ns: floor_ns.min(suspect_ns) }
    }
}

/// One rank's kernels.
pub struct Lane {
    job: Arc<Job>,
    rank: u32,
}

impl Lane {
    fn own(&self) -> &Runtime {
        self.job.rank(self.rank)
    }
}

impl Runner for Lane {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn ranks(&self) -> u32 {
        self.job.ranks()
    }
    fn heap_bytes(&self) -> u64 {
        self.own().pe().heap().bytes
    }
    fn address(&self, at: u64) -> u64 {
        self.own().pe().heap().address + at
    }
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome {
        in_turn(call, |block| stage.run(self.own().device(), Solo, block, call))
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        let place = Place { peer: fault.peer, channel: fault.channel, slot: fault.slot };
        (fault.peer != self.rank).then(|| PathName::of(&self.own().path(place), fault.at.0))
    }
    fn agreement(&self) -> Option<Agreement> {
        Some(Agreement::of(self.own().pe()))
    }
}

/// Ranks of this process reach each other's memory: which of them share a node is the buffer's business.
impl NormalRunner for Lane {
    fn run_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome {
        blocks_in_turn(call.blocks, |block| kernel.run(self.own().device(), Solo, block, call))
    }
    fn near(&self, rank: u32, at: u64) -> u64 {
        self.job.rank(rank).pe().heap().address + at
    }
}
