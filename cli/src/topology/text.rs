//! The ranking as text.

use crate::print::{columns, wrap};
use shunt_host::discover::{GidKind, Inventory, LinkLayer};
use shunt_host::topology::gid::GidChoice;
use shunt_host::topology::rails::Rail;
use shunt_host::topology::{GpuRails, RankedRail, Topology, Why};

/// `here`: it is the machine that this runs on.
pub fn write(inventory: &Inventory, topology: &Topology, here: bool) -> String {
    let mut out = head(inventory, topology, here);
    for gpu in &topology.gpus {
        out += &ranking(inventory, topology, gpu);
    }
    if topology.gpus.is_empty() && !topology.rails.is_empty() {
        out += "\nno GPU: ports in the order of their names\n";
        let rows: Vec<Vec<String>> =
            topology.rails.iter().map(|rail| rail_columns(inventory, rail)).collect();
        out += &columns(&rows, "  ");
    }
    if !topology.set_aside.is_empty() {
        out += "\nnot used\n";
        for port in &topology.set_aside {
            let refused = if port.refused { "refused: " } else { "" };
            out += &wrap(&format!("{refused}{}", port.why), &format!("  {}: ", port.name), "      ");
            if !port.fix.is_empty() {
                out += &wrap(&port.fix, "      -> ", "         ");
            }
        }
    }
    if !topology.notes.is_empty() {
        out += "\nnotes\n";
        out.extend(topology.notes.iter().map(|note| wrap(note, "  - ", "    ")));
    }
    if !inventory.odd.is_empty() {
        out += "\nmissing or not understood\n";
        out.extend(inventory.odd.iter().map(|odd| wrap(&odd.met, &format!("  {}: ", odd.path), "      ")));
    }
    out
}

fn head(inventory: &Inventory, topology: &Topology, here: bool) -> String {
    let count = |n: usize, what: &str| match n {
        0 => format!("no {what}"),
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    let up = topology.rails.iter().filter(|rail| rail.trouble.is_none()).count();
    let mut out = format!(
        "{}, {}, {} of {} can be used; backups made at start: {}\n",
        count(inventory.gpus.len(), "GPU"),
        count(inventory.rdma.len(), "RDMA device"),
        up,
        count(topology.rails.len() + topology.set_aside.len(), "port"),
        topology.backups
    );
    if inventory.rdma.is_empty() {
        let soft = if here { " Programs run on the soft NIC here." } else { "" };
        out = format!("{}, no RDMA device: nothing to rank.{soft}\n", count(inventory.gpus.len(), "GPU"));
    }
    out
}

fn ranking(inventory: &Inventory, topology: &Topology, gpu: &GpuRails) -> String {
    let device = &inventory.gpus[gpu.gpu];
    let numa = device.place.numa.map_or(String::new(), |node| format!("  NUMA {node}"));
    let model = device.model.as_deref().unwrap_or("NVIDIA GPU");
    let mut out = format!("\nGPU {}  {}{numa}  {model}\n", gpu.gpu, device.address);
    let rows: Vec<Vec<String>> = gpu
        .rails
        .iter()
        .enumerate()
        .map(|(rank, ranked)| {
            let rail = &topology.rails[ranked.rail];
            let mut row = vec![role(rank, ranked, topology.backups), format!("{}", ranked.distance)];
            row.extend(rail_columns(inventory, rail));
            if ranked.why != Why::Unusable {
                row.push(ranked.why.to_string());
            }
            row
        })
        .collect();
    out += &columns(&rows, "  ");
    out.extend(gpu.notes.iter().map(|note| wrap(note, "  ! ", "    ")));
    out
}

/// What a rail of this rank is for.
pub fn role(rank: usize, ranked: &RankedRail, backups: u32) -> String {
    match rank {
        _ if ranked.why == Why::Unusable => "unusable".into(),
        0 => "primary".into(),
        rank if rank <= backups as usize => format!("backup {rank}"),
        _ => "spare".into(),
    }
}

fn rail_columns(inventory: &Inventory, rail: &Rail) -> Vec<String> {
    let mut row = vec![
        rail.name.clone(),
        rail.rate.as_ref().map_or("? Gb/s".into(), |rate| rate.to_string()),
        rail.link.to_string(),
    ];
    match (&rail.trouble, &rail.gid) {
        (Some(trouble), _) => row.push(trouble.clone()),
        (None, Some(gid)) => row.push(address(inventory, rail, gid)),
        (None, None) => row.push(String::new()),
    }
    row
}

fn address(inventory: &Inventory, rail: &Rail, gid: &GidChoice) -> String {
    if rail.link == LinkLayer::InfiniBand {
        let ports = &inventory.rdma[rail.device].ports;
        let lid = ports.iter().find(|port| port.number == rail.port).map_or(0, |port| port.lid);
        return format!("lid {lid}");
    }
    let kind = match gid.kind {
        GidKind::Roce2 => "v2",
        GidKind::InfiniBandOrRoce1 => "v1",
        GidKind::Unknown => "v?",
    };
    let address = gid.gid.ipv4().map_or_else(|| gid.gid.to_string(), |ipv4| ipv4.to_string());
    format!("gid {} {kind} {address}", gid.index)
}
