//! This PE's soft NICs, on the fabric that the processes of one machine share.

use crate::failure::{Failure, InitError};
use shunt::{LINK_NS, Nics as _, SoftNics};
use shunt_device::platform::host::World;
use shunt_soft_nic::uplink::{UnixUplink, UplinkError};
use shunt_soft_nic::{Fabric, FabricConfig, FaultKind, NicConfig, RailAt};
use std::sync::Arc;
use std::time::Duration;

/// The NICs of this process.
pub struct Nics {
    pe: u32,
    soft: Arc<SoftNics>,
    world: Arc<dyn World>,
}

/// The world of host calls and agents where kernels have a clock of their own: times that both write into the device
/// state are of one clock.
struct Ahead {
    below: Arc<dyn World>,
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
        let at = (0..rails).map(|rail| RailAt { pe, rail });
        let own = at.map(|at| (at, NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail)));
        let refuse = |error: UplinkError| InitError::Fabric { name: name.to_owned(), why: error.to_string() };
        let attach = |fabric: &mut Fabric| {
            let uplink = UnixUplink::open(name, &[]).map_err(refuse)?;
            fabric.attach(Box::new(uplink.with_lifetime(lifetime))).map_err(refuse)
        };
        let config = FabricConfig { link_ns: LINK_NS, seed: u64::from(pe) };
        let soft = Arc::new(SoftNics::with(config, own, attach)?);
        let ahead_ns = ahead(&*soft.clock())?;
        let world = Arc::new(Ahead { below: soft.clock(), ahead_ns });
        Ok(Self { pe, soft, world })
    }

    /// The clock, and how to wait.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// Those NICs, for bring-up.
    pub fn rails(&self) -> Arc<dyn shunt::Nics> {
        self.soft.clone()
    }

    /// Makes a NIC fail now.
    ///
    /// # Errors
    /// There is no such NIC or fault.
    pub fn inject(&self, rail: i32, fault: &str) -> Result<(), Failure> {
        let rail = u32::try_from(rail).ok().filter(|rail| (*rail as usize) < self.soft.nics().len());
        let Some(rail) = rail else {
            return Err(Failure::Fault(format!("this PE has soft NICs 0 to {}", self.soft.nics().len() - 1)));
        };
        let kind: FaultKind = fault.parse().map_err(|error| Failure::Fault(format!("{error}")))?;
        self.soft.fail(RailAt { pe: self.pe, rail }, kind);
        Ok(())
    }
}

impl Drop for Nics {
    /// The PE is gone by now, and took what it had made along.
    fn drop(&mut self) {
        let nics = self.soft.nics().iter();
        let left = self
            .soft
            .fabric()
            .with(|fabric| -> usize { nics.map(|(_, nic)| fabric.nic(*nic).live_objects()).sum() });
        if left > 0 {
            eprintln!("shunt: PE {}: {left} objects are left on its soft NICs", self.pe);
        }
    }
}
