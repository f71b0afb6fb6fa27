//! This PE's soft NICs, on the fabric that the processes of one machine share.

use crate::failure::{Failure, InitError};
use shunt_device::platform::host::World;
use shunt_host::devx::{Devx, SoftDevx};
use shunt_host::world::RealWorld;
use shunt_soft_nic::uplink::{UnixUplink, UplinkError};
use shunt_soft_nic::{
    Clock, Engine, Fabric, FabricConfig, FaultKind, NicConfig, NicId, RailAt, SharedFabric, SoftNic,
};
use std::sync::Arc;
use std::time::Duration;

/// Latency of the link between two NICs.
const LINK_NS: u64 = 2_000;
/// A command that takes longer counts as unanswered.
const COMMAND_NS: u64 = 50_000_000;

/// The NICs of this process.
pub struct Nics {
    pe: u32,
    fabric: SharedFabric,
    nics: Vec<NicId>,
    /// The NICs' own clock.
    clock: Arc<RealWorld>,
    world: Arc<dyn World>,
}

/// The world of host calls and agents where kernels have a clock of their own: times that both write into the device
/// state are of one clock.
struct Ahead {
    below: Arc<RealWorld>,
    ahead_ns: u64,
}

impl World for Ahead {
    fn now_ns(&self) -> u64 {
        self.below.now_ns() + self.ahead_ns
    }

    fn relax(&self) {
        self.below.relax();
    }

    fn doorbell(&self) {
        self.below.doorbell();
    }
}

impl Nics {
    /// So many NICs for a PE, on the fabric of that name; by how much kernels' clock is `ahead` of theirs.
    ///
    /// # Errors
    /// The fabric cannot be joined, or kernels' clock cannot be read.
    pub fn start(
        pe: u32,
        rails: u32,
        name: &str,
        lifetime: Duration,
        ahead: impl FnOnce(&dyn World) -> Result<u64, InitError>,
    ) -> Result<Self, InitError> {
        let clock = Clock::new();
        let mut fabric = Fabric::new(FabricConfig { link_ns: LINK_NS, seed: u64::from(pe) });
        let mut nics = Vec::new();
        for rail in 0..rails {
            let nic = SoftNic::new(NicConfig::new(format!("mlx5_{rail}"), pe, rail));
            nics.push(fabric.add(nic, RailAt { pe, rail }));
        }
        let refuse = |error: UplinkError| InitError::Fabric { name: name.to_owned(), why: error.to_string() };
        let uplink = UnixUplink::open(name, &[]).map_err(refuse)?;
        fabric.attach(Box::new(uplink.with_lifetime(lifetime))).map_err(refuse)?;
        let engine = Arc::new(Engine::spawn(fabric, clock));
        let fabric = engine.fabric();
        let clock = Arc::new(RealWorld::new(clock, engine));
        let ahead_ns = ahead(&*clock)?;
        let world = Arc::new(Ahead { below: clock.clone(), ahead_ns });
        Ok(Self { pe, fabric, nics, clock, world })
    }

    /// The clock, and how to wait.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// Opens all, by rank.
    pub fn open(&self) -> Vec<Arc<dyn Devx>> {
        let open = |nic: &NicId| {
            // Commands are of the NICs' own time.
            let devx = SoftDevx::new(self.fabric.clone(), *nic, self.clock.clone(), COMMAND_NS);
            Arc::new(devx) as Arc<dyn Devx>
        };
        self.nics.iter().map(open).collect()
    }

    /// Makes a NIC fail now.
    ///
    /// # Errors
    /// There is no such NIC or fault.
    pub fn inject(&self, rail: i32, fault: &str) -> Result<(), Failure> {
        let rail = u32::try_from(rail).ok().filter(|rail| (*rail as usize) < self.nics.len());
        let Some(rail) = rail else {
            return Err(Failure::Fault(format!("this PE has soft NICs 0 to {}", self.nics.len() - 1)));
        };
        let kind: FaultKind = fault.parse().map_err(|error| Failure::Fault(format!("{error}")))?;
        let now = self.clock.now_ns();
        self.fabric.with(|fabric| fabric.plan(now, RailAt { pe: self.pe, rail }, kind));
        self.world.doorbell();
        Ok(())
    }
}

impl Drop for Nics {
    /// The PE is gone by now, and took what it had made along.
    fn drop(&mut self) {
        let live =
            |fabric: &mut Fabric| self.nics.iter().map(|nic| fabric.nic(*nic).live_objects()).sum::<usize>();
        let left = self.fabric.with(live);
        if left > 0 {
            eprintln!("shunt: PE {}: {left} objects are left on its soft NICs", self.pe);
        }
    }
}
