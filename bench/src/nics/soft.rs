//! Soft NICs in this process: a fabric, the thread that runs it, and what a run asks of them.

use super::{Nics, RailCounters};
use crate::job::{Job, JobError};
use crate::options::Options;
use shunt_device::platform::host::World;
use shunt_host::devx::{Devx, SoftDevx};
use shunt_host::world::RealWorld;
use shunt_soft_nic::{
    Clock, Engine, Fabric, FabricConfig, FaultKind, NicConfig, NicId, RailAt, SharedFabric, SoftNic,
    WordWatch,
};
use std::sync::Arc;

/// Latency of the link between two NICs.
const LINK_NS: u64 = 2_000;
/// A command of a soft NIC that takes longer than this counts as unanswered. Well below what a switcher waits
/// for a fence: a NIC that is gone has to be found out within it.
const COMMAND_NS: u64 = 50_000_000;

/// All soft NICs of this process.
pub struct SoftNics {
    fabric: SharedFabric,
    nics: Vec<(RailAt, NicId)>,
    /// Holds the engine.
    world: Arc<dyn World>,
}

impl SoftNics {
    /// NICs for every PE that lives here, connected to those of the other processes.
    ///
    /// # Errors
    /// The others cannot be reached.
    pub fn start(options: &Options, job: &dyn Job) -> Result<Self, JobError> {
        let clock = Clock::new();
        let mut fabric = Fabric::new(FabricConfig { link_ns: LINK_NS, seed: options.seed });
        let mut nics = Vec::new();
        for (pe, rail) in job.own().flat_map(|pe| (0..options.rails).map(move |rail| (pe, rail))) {
            let mut config = NicConfig::new(format!("mlx5_{rail}"), pe, rail);
            config.rail_gbps = Some(options.soft_gbps());
            // The port stays one of RoCE, as packets to other processes are.
            let config = config.with_profile(options.profile.unwrap_or_default());
            let at = RailAt { pe, rail };
            nics.push((at, fabric.add(SoftNic::new(config), at)));
        }
        job.attach(&mut fabric)?;
        let engine = Arc::new(Engine::spawn(fabric, clock));
        let fabric = engine.fabric();
        Ok(Self { fabric, nics, world: Arc::new(RealWorld::new(clock, engine)) })
    }
}

impl Nics for SoftNics {
    fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    fn open(&self, pe: u32) -> Result<Vec<Arc<dyn Devx>>, String> {
        let own = self.nics.iter().filter(|(at, _)| at.pe == pe);
        let open = |(_, nic): &(RailAt, NicId)| {
            // A NIC's time is the process's: a PE's clock that jumps is none of its business.
            let devx = SoftDevx::new(self.fabric.clone(), *nic, self.world.clone(), COMMAND_NS);
            Arc::new(devx) as Arc<dyn Devx>
        };
        Ok(own.map(open).collect())
    }

    fn inject(&self, at_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        self.fabric.with(|fabric| {
            let number = fabric.faults().len();
            fabric.plan(at_ns, at, kind);
            Ok(number)
        })
    }

    fn hits(&self) -> Vec<u64> {
        let reports = self.fabric.with(|fabric| fabric.faults());
        reports.into_iter().map(|report| report.hits).collect()
    }

    fn watch(&self, addresses: &[u64]) {
        self.fabric.with(|fabric| addresses.iter().for_each(|address| fabric.watch_word(*address)));
    }

    fn watched(&self, addresses: &[u64]) -> Option<Vec<WordWatch>> {
        Some(self.fabric.with(|fabric| addresses.iter().map(|address| fabric.watched(*address)).collect()))
    }

    fn counters(&self) -> Vec<(RailAt, RailCounters)> {
        let nics = self.nics.iter();
        self.fabric.with(|fabric| nics.map(|(at, nic)| (*at, fabric.nic(*nic).counters().into())).collect())
    }
}
