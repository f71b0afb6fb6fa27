//! NICs in software: a fabric, the thread that steps it, and its NICs as devices.

use crate::nics::{Nics, NoNic};
use shunt_device::platform::host::World;
use shunt_host::devx::Devx;
use shunt_host::silence::Silence;
use shunt_soft_devx::{SoftClock, SoftDevx};
use shunt_soft_nic::{
    Clock, Engine, Fabric, FabricConfig, FaultKind, NicConfig, NicId, RailAt, SharedFabric, SoftNic,
};
use std::ops::Range;
use std::sync::Arc;

/// Latency of the link between two NICs.
pub const LINK_NS: u64 = 2_000;
/// Threads of several PEs share few cores with soft NICs: no peer is lost that has no core for so long, nanoseconds.
const GIVE_UP_NS: u64 = 10_000_000_000;
/// A command that takes longer counts as unanswered. Well below what a switcher waits for a fence: it must find out
/// within that time that a NIC is gone.
const COMMAND_NS: u64 = 50_000_000;

/// How long every path to a peer stays dead on soft NICs before it is lost, nanoseconds: as `asked`, where somebody
/// said it, else no less than 10 s, whatever is `usual`.
pub fn soft_give_up_ns(asked: Option<u64>, usual: u64) -> u64 {
    asked.unwrap_or(usual.max(GIVE_UP_NS))
}

/// All soft NICs of this process. The engine's thread ends with the last device and the last clock.
pub struct SoftNics {
    fabric: SharedFabric,
    nics: Vec<(RailAt, NicId)>,
    slowest_gbps: Option<f64>,
    clock: Arc<SoftClock>,
}

impl SoftNics {
    /// `rails` NICs for each of these PEs, joined to each other and to nobody else.
    pub fn new(pes: Range<u32>, rails: u32) -> Self {
        let at = pes.flat_map(|pe| (0..rails).map(move |rail| RailAt { pe, rail }));
        let nics = at.map(|at| (at, NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail)));
        let config = FabricConfig { link_ns: LINK_NS, seed: 0 };
        Self::with(config, nics, |_| Ok::<_, std::convert::Infallible>(()))
            .unwrap_or_else(|never| match never {})
    }

    /// These NICs. `attach` may connect the fabric, with all NICs in it, to those of other processes.
    ///
    /// # Errors
    /// What `attach` answers.
    pub fn with<E>(
        config: FabricConfig,
        nics: impl IntoIterator<Item = (RailAt, NicConfig)>,
        attach: impl FnOnce(&mut Fabric) -> Result<(), E>,
    ) -> Result<Self, E> {
        let clock = Clock::new();
        let mut fabric = Fabric::new(config);
        let mut slowest_gbps: Option<f64> = None;
        let add = |(at, config): (RailAt, NicConfig)| {
            let rate = config.rail_gbps;
            slowest_gbps = slowest_gbps.map_or(rate, |slowest| Some(rate?.min(slowest))).or(slowest_gbps);
            (at, fabric.add(SoftNic::new(config), at))
        };
        let nics = nics.into_iter().map(add).collect();
        attach(&mut fabric)?;
        let engine = Arc::new(Engine::spawn(fabric, clock));
        let fabric = engine.fabric();
        Ok(Self { fabric, nics, slowest_gbps, clock: Arc::new(SoftClock::new(clock, engine)) })
    }

    /// The fabric, for faults that are planned and for counters.
    pub fn fabric(&self) -> &SharedFabric {
        &self.fabric
    }

    /// Which NICs there are.
    pub fn nics(&self) -> &[(RailAt, NicId)] {
        &self.nics
    }

    /// Gb/s of the slowest rail, if a rate was set.
    pub fn slowest_gbps(&self) -> Option<f64> {
        self.slowest_gbps
    }

    /// Makes a NIC fail now.
    pub fn fail(&self, at: RailAt, kind: FaultKind) {
        self.plan(self.clock.now_ns(), at, kind);
        self.clock.doorbell();
    }

    /// Makes a NIC fail at a time of the clock. Answers with the number of the fault in [`SoftNics::hits`].
    pub fn plan(&self, at_ns: u64, at: RailAt, kind: FaultKind) -> usize {
        self.fabric.with(|fabric| {
            let number = fabric.faults().len();
            fabric.plan(at_ns, at, kind);
            number
        })
    }

    /// How often each fault has struck, in the order they were planned.
    pub fn hits(&self) -> Vec<u64> {
        self.fabric.with(|fabric| fabric.faults()).into_iter().map(|report| report.hits).collect()
    }
}

impl Nics for SoftNics {
    fn clock(&self) -> Arc<dyn World> {
        self.clock.clone()
    }

    fn open(&self, pe: u32) -> Result<Vec<Arc<dyn Devx>>, NoNic> {
        let own = self.nics.iter().filter(|(at, _)| at.pe == pe);
        let open = |(_, nic): &(RailAt, NicId)| {
            // A NIC's time is the process's, whatever clock its PE has.
            let devx = SoftDevx::new(self.fabric.clone(), *nic, self.clock.clone(), COMMAND_NS);
            Arc::new(devx) as Arc<dyn Devx>
        };
        Ok(own.map(open).collect())
    }

    fn silence(&self) -> Silence {
        Silence::SOFT
    }
}
