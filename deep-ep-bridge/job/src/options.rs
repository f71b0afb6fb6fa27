//! What a job is made of, and what follows from it and the environment.

use shunt::{OpenNics, Settings};
use shunt_host::config::NicKind;
use shunt_host::error::ConfigError;
use shunt_host::silence::Silence;
use shunt_layout::state::SLOTS_MAX;

/// Rails of each rank, unless somebody says otherwise.
pub const RAILS: u32 = 2;
/// What a port of a soft NIC carries, and what is counted on where the rate is not known.
pub(crate) const RAIL_GBPS: f64 = 4.0;
/// Where threads wait for cores, a healthy path is silent for as long as this.
const CROWDED_NS: u64 = 50_000_000;
/// log2 of the rings' depth, unless the environment says otherwise.
const LOG_DEPTH: u32 = 8;

/// What a job is made of; on all ranks alike.
#[derive(Clone, Copy, Debug)]
pub struct JobOptions {
    /// Ranks.
    pub ranks: u32,
    /// Rails of each, where NICs are software; else as many at most.
    pub rails: u32,
    /// Channels to each peer: one for each local expert, or experts share them.
    pub channels: u32,
    /// Bytes of the heap from [`Job::BASE`](crate::Job::BASE) on.
    pub bytes: u64,
    /// The largest message.
    pub message: u64,
    /// Seed of soft NICs.
    pub seed: u64,
    /// Fault tolerance.
    pub tolerant: bool,
    /// What carries the packets.
    pub nic: NicKind,
    /// Ranks of a node, whose kernels reach each other's memory. `None`: as many as divide the ranks of each machine, 8
    /// at most, where each rank is a process; else each is a node of its own.
    pub locals: Option<u32>,
}

impl JobOptions {
    /// The environment's settings, and what these options mean where it says nothing.
    pub(crate) fn settings(&self) -> Result<Settings, ConfigError> {
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

    /// What a rank says of itself, for all ranks to have it alike.
    pub(crate) fn line(&self, nics: &str) -> String {
        format!(
            "{} ranks on {nics}, {} rails at most, {} channels, a heap of {} bytes, fault tolerance {}, {}",
            self.ranks,
            self.rails,
            self.channels,
            self.bytes,
            if self.tolerant { "on" } else { "off" },
            self.locals.map_or("nodes as machines".to_owned(), |locals| format!("nodes of {locals}"))
        )
    }

    /// Whether threads of kernels, agents, the engines and the one that waits, of so many ranks, are more than cores.
    pub(crate) fn oversubscribed(&self, ranks_here: u32) -> bool {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        ranks_here * (self.channels + 1) + 2 > cores
    }

    /// How long a path may be silent. A completion comes once a put, and a rail needs its time for the largest.
    pub(crate) fn silence(&self, settings: &Settings, nics: &OpenNics, gbps: f64, crowded: bool) -> Silence {
        let usual = Silence::usual(!nics.are_soft());
        let base = if crowded { usual.suspect_ns.max(CROWDED_NS) } else { usual.suspect_ns };
        let put_ns = (self.message as f64 * 8.0 / gbps) as u64;
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
