//! The ranking as one JSON object. Lists are in rank; a rail is named as in the text.

use super::text::role;
use crate::print;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_host::discover::{GidKind, Inventory, RdmaDevice};
use shunt_host::topology::rails::Rail;
use shunt_host::topology::{GpuRails, Topology};
use shunt_json::Kind;

/// What `shunt topology --json` writes.
#[derive(JsonSchema, Serialize)]
pub struct Ranking {
    /// Backups of each peer.
    backups: u32,
    gpus: Vec<GpuJson>,
    rails: Vec<RailJson>,
    not_used: Vec<PortJson>,
    notes: Vec<String>,
    odd: Vec<OddJson>,
}

impl Kind for Ranking {
    const NAME: &'static str = "shunt-topology";
    const VERSION: u32 = 1;
}

#[derive(JsonSchema, Serialize)]
struct GpuJson {
    gpu: usize,
    /// PCI address.
    address: String,
    numa: Option<u32>,
    model: Option<String>,
    rails: Vec<RankedJson>,
    notes: Vec<String>,
}

/// A rail as a GPU ranks it.
#[derive(JsonSchema, Serialize)]
struct RankedJson {
    rail: String,
    /// Primary, backup or spare.
    role: String,
    distance: String,
    why: String,
}

#[derive(JsonSchema, Serialize)]
struct RailJson {
    name: String,
    /// PCI address.
    address: Option<String>,
    numa: Option<u32>,
    /// Rails with the same number share a card.
    card: usize,
    hca_type: String,
    firmware: String,
    node_guid: Option<String>,
    virtual_function: bool,
    link: String,
    state: String,
    usable: bool,
    trouble: Option<String>,
    /// Megabits per second.
    rate_mbps: Option<u32>,
    lid: Option<u32>,
    gid: Option<GidJson>,
    netdevs: Vec<String>,
    uverbs: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct GidJson {
    index: u32,
    gid: String,
    kind: &'static str,
    /// What it lacks of the best kind.
    short_of: Vec<&'static str>,
}

/// A port that is no rail.
#[derive(JsonSchema, Serialize)]
struct PortJson {
    name: String,
    why: String,
    fix: String,
    /// A variable excludes it.
    refused: bool,
}

/// A file of the machine that says what is not understood.
#[derive(JsonSchema, Serialize)]
struct OddJson {
    path: String,
    found: String,
}

pub fn write(inventory: &Inventory, topology: &Topology) -> String {
    print::document(Ranking {
        backups: topology.backups,
        gpus: topology.gpus.iter().map(|gpu| of_gpu(inventory, topology, gpu)).collect(),
        rails: topology.rails.iter().map(|rail| of_rail(&inventory.rdma[rail.device], rail)).collect(),
        not_used: topology
            .set_aside
            .iter()
            .map(|port| PortJson {
                name: port.name.clone(),
                why: port.why.clone(),
                fix: port.fix.clone(),
                refused: port.refused,
            })
            .collect(),
        notes: topology.notes.clone(),
        odd: inventory
            .odd
            .iter()
            .map(|odd| OddJson { path: odd.path.clone(), found: odd.met.clone() })
            .collect(),
    })
}

fn of_gpu(inventory: &Inventory, topology: &Topology, gpu: &GpuRails) -> GpuJson {
    let device = &inventory.gpus[gpu.gpu];
    let rails = gpu.rails.iter().enumerate().map(|(rank, ranked)| RankedJson {
        rail: topology.rails[ranked.rail].name.clone(),
        role: role(rank, ranked, topology.backups),
        distance: ranked.distance.to_string(),
        why: ranked.why.to_string(),
    });
    GpuJson {
        gpu: gpu.gpu,
        address: device.address.to_string(),
        numa: device.place.numa,
        model: device.model.clone(),
        rails: rails.collect(),
        notes: gpu.notes.clone(),
    }
}

fn of_rail(device: &RdmaDevice, rail: &Rail) -> RailJson {
    let gid = rail.gid.as_ref().map(|gid| GidJson {
        index: gid.index,
        gid: gid.gid.to_string(),
        kind: match gid.kind {
            GidKind::Roce2 => "RoCE v2",
            GidKind::InfiniBandOrRoce1 => "IB/RoCE v1",
            GidKind::Unknown => "?",
        },
        short_of: gid.short_of.clone(),
    });
    let port = device.ports.iter().find(|port| port.number == rail.port);
    let netdevs = device.netdevs.iter().filter(|netdev| netdev.port == rail.port);
    RailJson {
        name: rail.name.clone(),
        address: device.address().map(|address| address.to_string()),
        numa: device.place.numa,
        card: rail.card,
        hca_type: device.hca_type.clone(),
        firmware: device.firmware.clone(),
        node_guid: device.node_guid.map(|guid| guid.to_string()),
        virtual_function: device.virtual_of.is_some(),
        link: rail.link.to_string(),
        state: rail.state.to_string(),
        usable: rail.trouble.is_none(),
        trouble: rail.trouble.clone(),
        rate_mbps: rail.rate.as_ref().map(|rate| rate.mbps),
        lid: port.map(|port| port.lid),
        gid,
        netdevs: netdevs.map(|netdev| netdev.name.clone()).collect(),
        uverbs: device.uverbs.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Ranking::NAME, &shunt_json::schema::<Ranking>());
    }
}
