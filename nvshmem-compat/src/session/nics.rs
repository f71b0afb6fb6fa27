//! This PE's NICs: RDMA devices, or soft NICs on the fabric that the processes of one machine share.

use crate::failure::{Failure, InitError};
use shunt::machine::MachinePorts;
use shunt::queues::Carrier;
use shunt::{LINK_NS, OpenNics, SoftNics};
use shunt_device::platform::host::World;
use shunt_host::gpu::cuda::Mover;
use shunt_soft_nic::uplink::{UnixUplink, UplinkError};
use shunt_soft_nic::{Fabric, FabricConfig, FaultKind, NicConfig, RailAt};
use std::sync::Arc;
use std::time::Duration;

/// The NICs of this process.
pub struct Nics {
    pe: u32,
    open: OpenNics,
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
    /// So many soft NICs for a PE, on the fabric of that name; by how much kernels' clock is `ahead` of theirs.
    ///
    /// # Errors
    /// The fabric cannot be joined, or kernels' clock cannot be read.
    pub fn soft(
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
        Self::new(pe, OpenNics::Soft(soft), ahead)
    }

    /// The ports of a PE that shares this machine's with its `mates`.
    ///
    /// # Errors
    /// The interposer's control socket is gone, or kernels' clock cannot be read.
    pub fn mlx5(
        pe: u32,
        machine: &MachinePorts,
        mates: &[u32],
        ahead: impl FnOnce(&dyn World) -> Result<u64, InitError>,
    ) -> Result<Self, InitError> {
        let own = machine.take(mates, |mate| mate == pe)?;
        Self::new(pe, OpenNics::Mlx5(own), ahead)
    }

    fn new(
        pe: u32,
        open: OpenNics,
        ahead: impl FnOnce(&dyn World) -> Result<u64, InitError>,
    ) -> Result<Self, InitError> {
        let below = open.clock();
        let ahead_ns = ahead(&*below)?;
        Ok(Self { pe, open, world: Arc::new(Ahead { below, ahead_ns }) })
    }

    /// The clock, and how to wait.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// Those NICs, for bring-up.
    pub fn rails(&self) -> Arc<dyn shunt::Nics> {
        self.open.rails()
    }

    /// Whether software moves the packets, in this process or behind libibverbs: it has times of its own.
    pub fn are_soft(&self) -> bool {
        self.open.are_soft()
    }

    /// What carries the packets.
    pub fn carrier(&self) -> Carrier {
        self.open.carrier()
    }

    /// Who reads what kernels ring.
    pub fn mover(&self) -> Mover {
        if self.are_soft() { Mover::SoftNic } else { Mover::Hardware }
    }

    /// What they are, for people.
    pub fn describe(&self) -> String {
        self.open.describe()
    }

    fn count(&self) -> usize {
        self.open.count(self.pe)
    }

    /// Makes a NIC fail now.
    ///
    /// # Errors
    /// There is no such NIC or fault, or the NICs are hardware.
    pub fn inject(&self, rail: i32, fault: &str) -> Result<(), Failure> {
        let kind: FaultKind = fault.parse().map_err(|error| Failure::Fault(format!("{error}")))?;
        let there = u32::try_from(rail).ok().filter(|rail| (*rail as usize) < self.count());
        let none = || {
            Failure::Fault(format!(
                "rail: expected one of this PE's NICs, 0 to {}, got {rail}",
                self.count().saturating_sub(1)
            ))
        };
        let at = RailAt { pe: self.pe, rail: there.ok_or_else(none)? };
        self.open.inject(at, kind).map(|_| ()).map_err(Failure::Fault)
    }
}

impl Drop for Nics {
    /// The PE is gone by now, and took what it had made along. Nobody counts what lies on others' NICs.
    fn drop(&mut self) {
        let left = self.open.objects();
        if left > 0 {
            shunt_host::complain!("shunt: PE {}: {left} objects are left on its soft NICs", self.pe);
        }
    }
}
