//! Which ports a PE takes as rails, of those that libibverbs may open. Pure.
//!
//! The ranking is the host's ([`shunt_host::topology`]): PE number `n` of the machine takes what GPU `n` would. On a
//! machine without GPUs nothing is nearer than anything else: each PE takes the next ports that nobody has, as long as
//! there are enough for all, and else begins one further than the one before.

use shunt_host::discover::{Gpu, Inventory, PciAddress, Place};
use shunt_host::topology::rails::Rail;
use shunt_host::topology::select::Selection;
use shunt_host::topology::{self, GpuRails, NothingSelected, Topology};

/// The port of a device that is opened: the host has no name for another one.
const PORT: u32 = 1;

/// A port that is a rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its device, such as `mlx5_0`.
    pub device: String,
    /// Rate in Mb/s; 0 if it is not known.
    pub mbps: u32,
    /// Entry of its GID table.
    pub gid_index: Option<u32>,
    /// GUID of the device: who has the same has the same device.
    pub guid: String,
}

/// Too few ports for what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPorts {
    /// The environment leaves none.
    #[error(transparent)]
    Selected(#[from] NothingSelected),
    /// There is no device at all.
    #[error(
        "no RDMA device was found (/sys/class/infiniband is empty); `shunt doctor` says what is missing, \
         `shunt soft-rdma run -- PROGRAM` makes some in software"
    )]
    NoDevice,
    /// Too few ports.
    #[error(
        "rails of a PE: {}: {} can be used{}",
        shortage(*rails, usable.len()),
        list(usable),
        but(unusable)
    )]
    TooFew {
        /// Asked for.
        rails: u32,
        /// Ports that could be rails.
        usable: Vec<String>,
        /// Ports that could not, and why.
        unusable: Vec<String>,
        /// With those that are down now there would be enough.
        down: bool,
    },
}

fn shortage(rails: u32, usable: usize) -> String {
    match usable {
        0 => format!("expected a port for each of {rails}, got none"),
        usable => format!("expected at most {usable}, got {rails}"),
    }
}

fn list(usable: &[String]) -> String {
    if usable.is_empty() { "no port".into() } else { format!("{} ({})", usable.len(), usable.join(", ")) }
}

fn but(unusable: &[String]) -> String {
    if unusable.is_empty() { String::new() } else { format!("; not {}", unusable.join("; not ")) }
}

/// The ports of a machine, ranked.
#[derive(Clone, Debug)]
pub struct Ports {
    inventory: Inventory,
    selection: Selection,
    topology: Topology,
    rails: u32,
}

/// A GPU that is nowhere: what NVSHMEM's mapping by rank needs of one is its number.
fn nowhere() -> Gpu {
    let address = PciAddress { domain: 0, bus: 0, device: 0, function: 0 };
    Gpu { address, place: Place::default(), device: 0, model: None, driver: None }
}

impl Ports {
    /// Ranks the ports, and refuses a machine that has too few.
    ///
    /// # Errors
    /// What was met.
    pub fn rank(inventory: Inventory, selection: Selection, rails: u32) -> Result<Self, NoPorts> {
        if inventory.rdma.is_empty() {
            return Err(NoPorts::NoDevice);
        }
        let topology = topology::rank(&inventory, &selection, rails - 1)?;
        let ports = Self { inventory, selection, topology, rails };
        if ports.usable().count() < rails as usize {
            return Err(ports.too_few());
        }
        Ok(ports)
    }

    /// The same for as many rails as there are ports, up to `most`.
    ///
    /// # Errors
    /// There is none.
    pub fn rank_at_most(inventory: Inventory, selection: Selection, most: u32) -> Result<Self, NoPorts> {
        match Self::rank(inventory.clone(), selection.clone(), most) {
            Err(NoPorts::TooFew { usable, .. }) => {
                Self::rank(inventory, selection, usable.len().max(1) as u32)
            }
            ranked => ranked,
        }
    }

    /// Rails of each PE.
    pub fn rails(&self) -> u32 {
        self.rails
    }

    fn usable(&self) -> impl Iterator<Item = &Rail> {
        self.topology.rails.iter().filter(|rail| rail.trouble.is_none() && rail.port == PORT)
    }

    fn too_few(&self) -> NoPorts {
        let other_port = |rail: &Rail| {
            let why = "only port 1 of a device is opened";
            (rail.port != PORT).then(|| format!("{}: {why}", rail.name))
        };
        let trouble = |rail: &Rail| {
            let trouble = rail.trouble.as_ref().map(|trouble| format!("{}: {trouble}", rail.name));
            trouble.or_else(|| other_port(rail))
        };
        let aside = self.topology.set_aside.iter().map(|port| {
            let fix = if port.fix.is_empty() { String::new() } else { format!("; {}", port.fix) };
            format!("{}: {}{fix}", port.name, port.why)
        });
        let opened = self.topology.rails.iter().filter(|rail| rail.port == PORT).count();
        NoPorts::TooFew {
            rails: self.rails,
            usable: self.usable().map(|rail| rail.name.clone()).collect(),
            unusable: self.topology.rails.iter().filter_map(trouble).chain(aside).collect(),
            down: opened >= self.rails as usize,
        }
    }

    /// The rails of each of `pes` PEs that share this machine's ports, primary first.
    pub fn of_pes(&self, pes: usize) -> Vec<Vec<Port>> {
        let mapped = (self.selection.by_rank && self.inventory.gpus.is_empty()).then(|| {
            let gpus = (0..pes).map(|_| nowhere()).collect();
            let inventory = Inventory { gpus, ..self.inventory.clone() };
            topology::rank(&inventory, &self.selection, self.rails - 1)
        });
        let topology = mapped.and_then(Result::ok);
        let topology = topology.as_ref().unwrap_or(&self.topology);
        (0..pes).map(|pe| self.of_pe(&topology.gpus, pe, pes)).collect()
    }

    fn of_pe(&self, gpus: &[GpuRails], pe: usize, pes: usize) -> Vec<Port> {
        let rails = self.rails as usize;
        let chosen: Vec<&Rail> = if gpus.is_empty() {
            let all: Vec<&Rail> = self.usable().collect();
            let first = if all.len() >= pes * rails { pe * rails } else { pe };
            (first..first + rails).map(|at| all[at % all.len()]).collect()
        } else {
            let chain = gpus[pe % gpus.len()].usable().map(|ranked| &self.topology.rails[ranked.rail]);
            chain.filter(|rail| rail.port == PORT).take(rails).collect()
        };
        chosen.into_iter().map(|rail| self.port(rail)).collect()
    }

    fn port(&self, rail: &Rail) -> Port {
        let device = &self.inventory.rdma[rail.device];
        Port {
            device: device.name.clone(),
            mbps: rail.mbps(),
            gid_index: rail.gid.as_ref().map(|gid| gid.index),
            guid: device.node_guid.map_or_else(|| device.name.clone(), |guid| guid.to_string()),
        }
    }

    /// Every port that can be used, as one text: processes with the same text share their ports.
    pub fn identity(&self) -> String {
        let guids: Vec<String> = self.usable().map(|rail| self.port(rail).guid).collect();
        guids.join(" ")
    }

    /// The slowest port that can be used, in Gb/s; 0 if it is not known.
    pub fn slowest_gbps(&self) -> f64 {
        f64::from(self.usable().map(Rail::mbps).min().unwrap_or(0)) / 1e3
    }

    /// What to know of the machine's ports.
    pub fn notes(&self) -> &[String] {
        &self.topology.notes
    }
}

#[cfg(test)]
#[path = "ports_tests.rs"]
mod tests;
