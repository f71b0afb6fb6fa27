//! NICs of the PEs of this process, whatever they are: to bring PEs up on, to name, to make fail.

use crate::machine::OwnPorts;
use crate::nics::Nics;
use crate::queues::Carrier;
use crate::soft::SoftNics;
use shunt_device::platform::host::World;
use shunt_soft_nic::{FaultKind, RailAt};
use std::sync::Arc;

/// NICs of this process.
pub enum OpenNics {
    /// Software of this process.
    Soft(Arc<SoftNics>),
    /// Devices of libibverbs: hardware, or the interposer's soft NICs.
    Mlx5(OwnPorts),
}

impl OpenNics {
    /// Those NICs, for bring-up.
    pub fn rails(&self) -> Arc<dyn Nics> {
        match self {
            Self::Soft(soft) => soft.clone(),
            Self::Mlx5(own) => own.nics(),
        }
    }

    /// Their clock.
    pub fn clock(&self) -> Arc<dyn World> {
        self.rails().clock()
    }

    /// Whether software moves the packets, in this process or behind libibverbs: it has times of its own.
    pub fn are_soft(&self) -> bool {
        match self {
            Self::Soft(_) => true,
            Self::Mlx5(own) => own.control().is_some(),
        }
    }

    /// What carries the packets.
    pub fn carrier(&self) -> Carrier {
        match self {
            Self::Soft(_) => Carrier::Software,
            Self::Mlx5(_) if self.are_soft() => Carrier::Interposed,
            Self::Mlx5(_) => Carrier::Hardware,
        }
    }

    /// What they are, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Soft(_) => "soft NICs of this machine".to_owned(),
            Self::Mlx5(own) => {
                let ports = own.rails().values().flatten();
                let devices: Vec<&str> = ports.map(|port| port.device.as_str()).collect();
                format!("RDMA devices (here {})", devices.join(", "))
            }
        }
    }

    /// What times are that were measured on them, in one phrase.
    pub fn time_label(&self) -> &'static str {
        match self {
            Self::Soft(_) => "soft NIC, wall time",
            Self::Mlx5(own) if own.control().is_some() => "soft NIC (interposer), wall time",
            Self::Mlx5(_) => "ConnectX, wall time",
        }
    }

    /// Rails of a PE; 0 if it does not live here.
    pub fn count(&self, pe: u32) -> usize {
        match self {
            Self::Soft(soft) => soft.nics().iter().filter(|(at, _)| at.pe == pe).count(),
            Self::Mlx5(own) => own.rails().get(&pe).map_or(0, Vec::len),
        }
    }

    /// Makes a NIC fail now. Answers with the number of the fault in [`OpenNics::hits`].
    ///
    /// # Errors
    /// There is no such NIC here, or it is hardware.
    pub fn inject(&self, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        self.inject_in(0, at, kind)
    }

    /// The same, so many nanoseconds from now.
    ///
    /// # Errors
    /// As above.
    pub fn inject_in(&self, from_now_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        match self {
            Self::Soft(soft) if (at.rail as usize) < self.count(at.pe) => {
                let clock = soft.clock();
                let number = soft.plan(clock.now_ns() + from_now_ns, at, kind);
                clock.doorbell();
                Ok(number)
            }
            Self::Soft(_) => Err(format!("there is no rail {at} in this process")),
            Self::Mlx5(own) => own.inject(at, from_now_ns, kind),
        }
    }

    /// How often each fault has struck, in the order of injection; none where nobody counts.
    ///
    /// # Errors
    /// The interposer does not answer.
    pub fn hits(&self) -> Result<Vec<u64>, String> {
        match self {
            Self::Soft(soft) => Ok(soft.hits()),
            Self::Mlx5(own) => own.control().map_or_else(|| Ok(Vec::new()), |control| control.hits()),
        }
    }

    /// Objects that nobody has freed, on software of this process.
    pub fn objects(&self) -> usize {
        let Self::Soft(soft) = self else { return 0 };
        let nics = soft.nics().iter();
        soft.fabric().with(|fabric| nics.map(|(_, nic)| fabric.nic(*nic).live_objects()).sum())
    }
}
