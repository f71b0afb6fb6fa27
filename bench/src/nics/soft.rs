//! Soft NICs in this process, and what a run asks of them.

use super::{Nics, RailCounters};
use crate::job::{Job, JobError};
use crate::options::Options;
use shunt::{LINK_NS, Nics as _, SoftNics as Fabric};
use shunt_device::platform::host::World;
use shunt_soft_nic::{FabricConfig, FaultKind, NicConfig, RailAt, WordWatch};
use std::sync::Arc;

/// All soft NICs of this process.
pub struct SoftNics {
    soft: Arc<Fabric>,
    rails: Arc<dyn shunt::Nics>,
    world: Arc<dyn World>,
}

impl SoftNics {
    /// NICs for every PE that lives here, connected to those of the other processes.
    ///
    /// # Errors
    /// The others cannot be reached.
    pub fn start(options: &Options, job: &dyn Job) -> Result<Self, JobError> {
        let all = job.own().flat_map(|pe| (0..options.rails).map(move |rail| RailAt { pe, rail }));
        let nics = all.map(|at| {
            let mut config = NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail);
            config.rail_gbps = Some(options.soft_gbps());
            // The port stays one of RoCE, as packets to other processes are.
            (at, config.with_profile(options.profile.unwrap_or_default()))
        });
        let config = FabricConfig { link_ns: LINK_NS, seed: options.seed };
        let soft = Arc::new(Fabric::with(config, nics, |fabric| job.attach(fabric))?);
        Ok(Self { rails: soft.clone(), world: soft.clock(), soft })
    }
}

impl Nics for SoftNics {
    fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    fn rails(&self) -> &Arc<dyn shunt::Nics> {
        &self.rails
    }

    fn inject(&self, at_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        Ok(self.soft.plan(at_ns, at, kind))
    }

    fn hits(&self) -> Vec<u64> {
        self.soft.hits()
    }

    fn watch(&self, addresses: &[u64]) {
        self.soft.fabric().with(|fabric| addresses.iter().for_each(|address| fabric.watch_word(*address)));
    }

    fn watched(&self, addresses: &[u64]) -> Option<Vec<WordWatch>> {
        Some(
            self.soft
                .fabric()
                .with(|fabric| addresses.iter().map(|address| fabric.watched(*address)).collect()),
        )
    }

    fn counters(&self) -> Vec<(RailAt, RailCounters)> {
        let nics = self.soft.nics().iter();
        self.soft
            .fabric()
            .with(|fabric| nics.map(|(at, nic)| (*at, fabric.nic(*nic).counters().into())).collect())
    }
}
