//! The ranking as one JSON object. Lists are in rank; a rail is named as in the text.

use super::text::role;
use serde_json::{Value, json};
use shunt_host::discover::{GidKind, Inventory, RdmaDevice};
use shunt_host::topology::rails::Rail;
use shunt_host::topology::{GpuRails, Topology};

pub fn write(inventory: &Inventory, topology: &Topology) -> String {
    let rail = |rail: &Rail| rail_json(&inventory.rdma[rail.device], rail);
    let aside = topology.set_aside.iter();
    let object = json!({
        "backups": topology.backups,
        "gpus": topology.gpus.iter().map(|gpu| gpu_json(inventory, topology, gpu)).collect::<Vec<_>>(),
        "rails": topology.rails.iter().map(rail).collect::<Vec<_>>(),
        "not_used": aside.map(|port| json!({
            "name": port.name, "why": port.why, "fix": port.fix, "refused": port.refused,
        })).collect::<Vec<_>>(),
        "notes": topology.notes,
        "odd": inventory.odd.iter().map(|odd| json!({ "path": odd.path, "found": odd.met })).collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
}

fn gpu_json(inventory: &Inventory, topology: &Topology, gpu: &GpuRails) -> Value {
    let device = &inventory.gpus[gpu.gpu];
    let rails: Vec<Value> = gpu
        .rails
        .iter()
        .enumerate()
        .map(|(rank, ranked)| {
            json!({
                "rail": topology.rails[ranked.rail].name,
                "role": role(rank, ranked, topology.backups),
                "distance": ranked.distance.to_string(),
                "why": ranked.why.to_string(),
            })
        })
        .collect();
    json!({
        "gpu": gpu.gpu,
        "address": device.address.to_string(),
        "numa": device.place.numa,
        "model": device.model,
        "rails": rails,
        "notes": gpu.notes,
    })
}

fn rail_json(device: &RdmaDevice, rail: &Rail) -> Value {
    let gid = rail.gid.as_ref().map(|gid| {
        let kind = match gid.kind {
            GidKind::Roce2 => "RoCE v2",
            GidKind::InfiniBandOrRoce1 => "IB/RoCE v1",
            GidKind::Unknown => "?",
        };
        json!({ "index": gid.index, "gid": gid.gid.to_string(), "kind": kind, "short_of": gid.short_of })
    });
    let port = device.ports.iter().find(|port| port.number == rail.port);
    let netdevs = device.netdevs.iter().filter(|netdev| netdev.port == rail.port);
    json!({
        "name": rail.name,
        "address": device.address().map(|address| address.to_string()),
        "numa": device.place.numa,
        "card": rail.card,
        "hca_type": device.hca_type,
        "firmware": device.firmware,
        "node_guid": device.node_guid.map(|guid| guid.to_string()),
        "virtual_function": device.virtual_of.is_some(),
        "link": rail.link.to_string(),
        "state": rail.state.to_string(),
        "usable": rail.trouble.is_none(),
        "trouble": rail.trouble,
        "rate_mbps": rail.rate.as_ref().map(|rate| rate.mbps),
        "lid": port.map(|port| port.lid),
        "gid": gid,
        "netdevs": netdevs.map(|netdev| netdev.name.as_str()).collect::<Vec<_>>(),
        "uverbs": device.uverbs,
    })
}
