//! The RDMA ports of this machine: found, ranked, and opened for the PEs that live in this process.

use crate::choice::{Chosen, NoDevice, Seen, choose};
#[cfg(feature = "interposer")]
use crate::control::{Control, Unclear};
use crate::mlx5::Mlx5Nics;
use crate::ports::{NoPorts, Port, Ports};
use shunt_host::config::NicKind;
use shunt_host::devx::ibverbs::{self, IbverbsDevx, Opening};
use shunt_host::discover::{Inventory, SysRoot, discover};
use shunt_host::error::{ConfigError, IbverbsError};
use shunt_host::topology::select::Selection;
use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(feature = "interposer")]
use std::time::Duration;
use thiserror::Error;

/// A command of a soft NIC that takes longer than this counts as unanswered: they take microseconds, but on a machine
/// with far more threads than cores up to some hundred milliseconds. What waits for a fence (2 s) has to find out in
/// time that a NIC is gone.
#[cfg(feature = "interposer")]
const SOFT_COMMAND: Duration = Duration::from_millis(500);

/// What tells this machine from others: its name, and the number of its start.
pub fn id() -> Vec<u8> {
    let read = |path: &str| std::fs::read(path).unwrap_or_default();
    [read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id")].concat()
}

/// Why this machine's ports cannot be used.
#[derive(Debug, Error)]
pub enum NoMachine {
    /// A variable that names devices.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `SHUNT_NIC=mlx5`, and there is no device.
    #[error(transparent)]
    NoDevice(#[from] NoDevice),
    /// libibverbs, or a device that it does not open.
    #[error(transparent)]
    Ibverbs(#[from] IbverbsError),
    /// Too few ports.
    #[error(transparent)]
    Ports(#[from] NoPorts),
    /// Whether they are soft NICs.
    #[cfg(feature = "interposer")]
    #[error(transparent)]
    Unclear(#[from] Unclear),
}

/// How many rails a PE takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rails {
    /// So many: a machine with fewer ports is refused.
    Exactly(u32),
    /// So many at most, one at least.
    AtMost(u32),
}

/// What `SHUNT_NIC` has come to.
pub enum Found {
    /// NICs in software, and why.
    Soft(String),
    /// Ports of this machine.
    Mlx5(Box<MachinePorts>),
}

impl Found {
    /// What `asked` comes to here. Devices are opened and closed again; nothing is left open.
    ///
    /// # Errors
    /// What was asked for is not there, or the variables that name ports leave none.
    pub fn find(
        asked: NicKind,
        rails: Rails,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, NoMachine> {
        if asked == NicKind::Soft {
            return Ok(Self::Soft("SHUNT_NIC=soft asks for them".to_owned()));
        }
        let inventory = discover(&SysRoot::machine());
        let devices: Vec<Seen> = inventory.rdma.iter().map(Seen::from).collect();
        match choose(asked, &devices, &opens_one(&devices))? {
            Chosen::Soft(why) => Ok(Self::Soft(why)),
            Chosen::Mlx5 => {
                let selected = Selection::from_lookup(lookup)? != Selection::default();
                Self::settle(asked, selected, MachinePorts::of(inventory, rails, lookup))
            }
        }
    }

    /// Ports that are up may be no rails, such as those of a bond. Where variables `selected` some, software in their
    /// place would reach no other machine.
    fn settle(
        asked: NicKind,
        selected: bool,
        ports: Result<MachinePorts, NoMachine>,
    ) -> Result<Self, NoMachine> {
        match ports {
            Err(NoMachine::Ports(few @ NoPorts::TooFew { .. })) if asked == NicKind::Auto && !selected => {
                Ok(Self::Soft(few.to_string()))
            }
            ports => Ok(Self::Mlx5(Box::new(ports?))),
        }
    }
}

/// Whether libibverbs opens one of the devices that carry packets.
fn opens_one(devices: &[Seen]) -> Result<(), String> {
    ibverbs::list().map_err(|error| error.to_string())?;
    let mut refused = Ok(());
    for device in devices.iter().filter(|device| device.is_active()) {
        match IbverbsDevx::open(&device.name) {
            Ok(_) => return Ok(()),
            Err(error) => refused = refused.and(Err(error.to_string())),
        }
    }
    refused
}

/// The ports of this machine, ranked.
#[derive(Debug)]
pub struct MachinePorts {
    ports: Ports,
    interposed: bool,
}

impl MachinePorts {
    /// Finds and ranks them.
    ///
    /// # Errors
    /// What is missing.
    pub fn find(rails: Rails, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, NoMachine> {
        ibverbs::list()?;
        Self::of(discover(&SysRoot::machine()), rails, lookup)
    }

    fn of(
        inventory: Inventory,
        rails: Rails,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, NoMachine> {
        let selection = Selection::from_lookup(lookup)?;
        let ports = match rails {
            Rails::Exactly(rails) => Ports::rank(inventory, selection, rails)?,
            Rails::AtMost(most) => Ports::rank_at_most(inventory, selection, most)?,
        };
        // The interposer makes its control socket when a device is looked at.
        #[cfg(feature = "interposer")]
        let interposed = Control::find()?.is_some();
        #[cfg(not(feature = "interposer"))]
        let interposed = false;
        Ok(Self { ports, interposed })
    }

    /// The ports.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Whether they are soft NICs that an interposer shows to libibverbs. Never without the feature `interposer`.
    pub fn is_interposed(&self) -> bool {
        self.interposed
    }

    /// The devices that so many PEs of this machine take, each once, by name.
    pub fn devices(&self, pes: usize) -> Vec<String> {
        let ports = self.ports.of_pes(pes);
        let mut devices: Vec<String> = ports.into_iter().flatten().map(|port| port.device).collect();
        devices.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        devices.dedup();
        devices
    }

    /// Opens each of these once and closes it again: that one cannot be opened is known before anybody waits.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn try_open(&self, devices: &[String]) -> Result<(), NoMachine> {
        devices.iter().try_for_each(|device| Ok(IbverbsDevx::open(device).map(|_| ())?))
    }

    /// Ports for PEs of this process. `mates`: all PEs that share the machine's ports, in the order of their numbers;
    /// `own`: those that live here.
    ///
    /// # Errors
    /// The control socket of the interposer is gone.
    pub fn take(&self, mates: &[u32], own: impl Fn(u32) -> bool) -> Result<OwnPorts, NoMachine> {
        let rails = mates.iter().copied().zip(self.ports.of_pes(mates.len()));
        let rails: BTreeMap<u32, Vec<Port>> = rails.filter(|(pe, _)| own(*pe)).collect();
        #[cfg(feature = "interposer")]
        let control = if self.interposed { Control::find()? } else { None };
        let opened = |port: &Port| (port.device.clone(), self.opening(port));
        let named = rails.iter().map(|(pe, ports)| (*pe, ports.iter().map(opened).collect())).collect();
        Ok(OwnPorts {
            nics: Arc::new(Mlx5Nics::new(named)),
            rails,
            #[cfg(feature = "interposer")]
            control,
        })
    }

    fn opening(&self, port: &Port) -> Opening {
        let usual = Opening { gid_index: port.gid_index, ..Opening::default() };
        #[cfg(feature = "interposer")]
        if self.interposed {
            return Opening { command: SOFT_COMMAND, ..usual };
        }
        usual
    }
}

/// Ports of the PEs that live in this process.
pub struct OwnPorts {
    nics: Arc<Mlx5Nics>,
    rails: BTreeMap<u32, Vec<Port>>,
    #[cfg(feature = "interposer")]
    control: Option<Control>,
}

impl OwnPorts {
    /// Those ports, for bring-up.
    pub fn nics(&self) -> Arc<Mlx5Nics> {
        self.nics.clone()
    }

    /// Ports by PE, primary first.
    pub fn rails(&self) -> &BTreeMap<u32, Vec<Port>> {
        &self.rails
    }

    /// The way to make them fail, where they are the interposer's.
    #[cfg(feature = "interposer")]
    pub fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    /// Makes a NIC fail, so many nanoseconds from now. Answers with the number of the fault in [`Control::hits`].
    ///
    /// # Errors
    /// It is hardware, or there is no such rail.
    #[cfg(feature = "interposer")]
    pub fn inject(
        &self,
        at: shunt_soft_nic::RailAt,
        from_now_ns: u64,
        kind: shunt_soft_nic::FaultKind,
    ) -> Result<usize, String> {
        let port = self.rails.get(&at.pe).and_then(|ports| ports.get(at.rail as usize));
        match (&self.control, port) {
            (Some(control), Some(port)) => control.inject(&port.device, from_now_ns, kind),
            (None, _) => Err("the NICs are hardware, only soft NICs fail on request".to_owned()),
            (_, None) => Err(format!("there is no rail {at} in this process")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index that no GID table has made a job on a cluster take software NICs.
    #[test]
    fn ports_that_were_selected_are_not_replaced_by_software() {
        let few = || {
            let (usable, unusable) =
                (Vec::new(), vec!["mlx5_0:1: NVSHMEM_IB_GID_INDEX=99 is empty here".into()]);
            Err(NoMachine::Ports(NoPorts::TooFew { rails: 1, usable, unusable, down: false }))
        };
        let Ok(Found::Soft(why)) = Found::settle(NicKind::Auto, false, few()) else {
            panic!("auto takes what works");
        };
        assert_eq!(
            why,
            "rails of a PE: expected a port for each of 1, got none: no port can be used; \
             not mlx5_0:1: NVSHMEM_IB_GID_INDEX=99 is empty here"
        );
        for (asked, selected) in [(NicKind::Auto, true), (NicKind::Mlx5, false), (NicKind::Mlx5, true)] {
            assert!(matches!(Found::settle(asked, selected, few()), Err(NoMachine::Ports(_))), "{asked:?}");
        }
    }
}
