//! Where a PE's NICs come from, found before anybody is waited for, and what is said of them.

use super::ports::{Ports, shortages};
use crate::env::Settings;
use crate::failure::InitError;
use shunt::choice::{software, through_libibverbs};
use shunt::machine::{Found, MachinePorts, Rails};
use shunt_host::config::NicKind;

/// Where NICs come from.
pub enum Source {
    /// Software.
    Soft {
        /// NICs of this PE.
        rails: u32,
        /// Why.
        why: String,
    },
    /// Ports of this machine.
    Mlx5(Box<MachinePorts>),
}

impl Source {
    /// What the settings ask for, as far as this machine has it. `lookup` knows the variables that name ports.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(settings: &Settings, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, InitError> {
        Ok(match Found::find(settings.nic, Rails::AtMost(settings.ports()), lookup)? {
            Found::Soft(why) => Self::Soft { rails: settings.rails(), why },
            Found::Mlx5(machine) => Self::Mlx5(machine),
        })
    }

    /// Whether they are software of this process.
    pub fn is_soft(&self) -> bool {
        matches!(self, Self::Soft { .. })
    }

    /// As `SHUNT_NIC` has it.
    pub fn name(&self) -> &'static str {
        if self.is_soft() { "soft" } else { "mlx5" }
    }

    /// What this PE tells of its ports.
    pub fn ports(&self) -> Ports {
        match self {
            Self::Soft { rails, .. } => Ports { rails: *rails, identity: String::new() },
            Self::Mlx5(machine) => {
                let ports = machine.ports();
                Ports { rails: ports.rails(), identity: ports.identity() }
            }
        }
    }

    /// The variable that says which ports there are.
    pub fn wish(&self) -> &'static str {
        if self.is_soft() { "SHUNT_SOFT_RAILS" } else { "NVSHMEM_HCA_LIST, NVSHMEM_MAX_NICS_PER_PE" }
    }

    /// What is said of them, where so many PEs share the machine's ports: nothing of soft NICs that were asked for.
    pub fn lines(&self, asked: NicKind, pes: usize) -> Vec<String> {
        match self {
            Self::Soft { .. } if asked == NicKind::Soft => Vec::new(),
            Self::Soft { why, .. } => vec![software(why)],
            Self::Mlx5(machine) => {
                let notes = machine.ports().notes().iter().cloned();
                notes.chain([through_libibverbs(&machine.devices(pes))]).collect()
            }
        }
    }
}

/// Says once for each set of ports what the NICs are, and once for the job what it is short of.
pub fn tell(settings: &Settings, source: &Source, me: u32, mates: &[u32], nodes: &[u32], ports: &[Ports]) {
    let mut lines = Vec::new();
    if mates.first() == Some(&me) {
        lines = source.lines(settings.nic, mates.len());
    }
    if me == 0 {
        if source.is_soft() && nodes.iter().any(|node| *node != nodes[0]) {
            lines.push(
                "NICs: software, and PEs are on several machines: they do not reach each other; SHUNT_NIC=mlx5 takes \
                 RDMA devices"
                    .to_owned(),
            );
        }
        let rails: Vec<u32> = ports.iter().map(|ports| ports.rails).collect();
        lines.extend(shortages(settings.host.fault_tolerance, &rails, source.wish()));
    }
    lines.iter().for_each(|line| shunt_host::complain!("shunt: {line}"));
}
