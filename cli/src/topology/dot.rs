//! The machine as a Graphviz graph: boxes for NUMA nodes and PCIe trees, an edge for each rail of each GPU.

use super::groups::{Item, nodes};
use super::text::role;
use shunt_host::discover::Inventory;
use shunt_host::topology::{Topology, Why};
use std::fmt::Write;

pub fn write(inventory: &Inventory, topology: &Topology) -> String {
    let mut out =
        String::from("graph shunt {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for (n, node) in nodes(inventory, topology).iter().enumerate() {
        let numa = node.numa.map_or("NUMA node not known".into(), |numa| format!("NUMA {numa}"));
        let _ = writeln!(out, "  subgraph cluster_{n} {{\n    label=\"{numa}\";");
        for (t, tree) in node.trees.iter().enumerate() {
            let _ = writeln!(out, "    subgraph cluster_{n}_{t} {{\n      label=\"{}\";", quote(&tree.label));
            for item in &tree.items {
                let _ = writeln!(out, "      {};", vertex(inventory, topology, item));
            }
            out.push_str("    }\n");
        }
        out.push_str("  }\n");
    }
    for gpu in &topology.gpus {
        for (rank, ranked) in gpu.rails.iter().enumerate().take(1 + topology.backups as usize) {
            if ranked.why == Why::Unusable {
                continue;
            }
            let style = if rank == 0 { "bold" } else { "dashed" };
            let label = role(rank, ranked, topology.backups);
            let _ = writeln!(
                out,
                "  gpu{} -- rail{} [style={style}, label=\"{label} {}\"];",
                gpu.gpu, ranked.rail, ranked.distance
            );
        }
    }
    out + "}\n"
}

fn vertex(inventory: &Inventory, topology: &Topology, item: &Item) -> String {
    match item {
        Item::Gpu(i) => format!("gpu{i} [label=\"GPU {i}\\n{}\", style=filled]", inventory.gpus[*i].address),
        Item::Rail(i) => {
            let rail = &topology.rails[*i];
            let color = if rail.trouble.is_some() { ", color=red" } else { "" };
            format!("rail{i} [label=\"{}\\n{}\"{color}]", quote(&rail.name), rail.state)
        }
        Item::Aside(i) => {
            format!("aside{i} [label=\"{}\\nnot used\", style=dotted]", quote(&topology.set_aside[*i].name))
        }
    }
}

fn quote(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
