//! The machine as nested boxes, for pictures: NUMA nodes, in them the PCIe trees, in them GPUs and ports. Pure.

use shunt_host::discover::{Inventory, Place};
use shunt_host::topology::Topology;

/// What sits in a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A GPU, by its number.
    Gpu(usize),
    /// A rail, by its number.
    Rail(usize),
    /// A port that is set aside, by its number.
    Aside(usize),
}

/// What hangs on one root port: a switch, or one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// `switch 0000:16:00.0`, `root port 0000:15:01.0`, or what is known instead.
    pub label: String,
    /// Its contents.
    pub items: Vec<Item>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number, if the kernel names one.
    pub numa: Option<u32>,
    /// Its trees.
    pub trees: Vec<Tree>,
}

/// The key of a tree: host bridge and root port.
fn key(place: &Place) -> (String, String) {
    match &place.path {
        Some(path) => {
            let root = path.bridges.first().unwrap_or(&path.device);
            (path.host_bridge.clone(), root.to_string())
        }
        None => (String::new(), String::new()),
    }
}

fn label(place: &Place) -> String {
    match &place.path {
        // Root port, a switch's upstream and downstream port, device.
        Some(path) if path.bridges.len() >= 3 => format!("PCIe switch {}", path.bridges[1]),
        Some(path) if !path.bridges.is_empty() => format!("root port {}", path.bridges[0]),
        Some(path) => path.host_bridge.clone(),
        None => "place not known".into(),
    }
}

/// Sorts everything into boxes; nodes by number, trees by address.
pub fn nodes(inventory: &Inventory, topology: &Topology) -> Vec<Node> {
    let mut placed: Vec<(&Place, Item)> = Vec::new();
    placed.extend(inventory.gpus.iter().enumerate().map(|(i, gpu)| (&gpu.place, Item::Gpu(i))));
    let rails = topology.rails.iter().enumerate();
    placed.extend(rails.map(|(i, rail)| (&inventory.rdma[rail.device].place, Item::Rail(i))));
    for (i, aside) in topology.set_aside.iter().enumerate() {
        let device = aside.name.rsplit_once(':').map_or(aside.name.as_str(), |(device, _)| device);
        if let Some(device) = inventory.rdma.iter().find(|have| have.name == device) {
            placed.push((&device.place, Item::Aside(i)));
        }
    }
    // Known nodes first, each tree in one piece.
    placed.sort_by_cached_key(|(place, _)| (place.numa.is_none(), place.numa, key(place)));
    let mut nodes: Vec<Node> = Vec::new();
    let mut last = None;
    for (place, item) in placed {
        if nodes.last().is_none_or(|node| node.numa != place.numa) {
            nodes.push(Node { numa: place.numa, trees: Vec::new() });
            last = None;
        }
        let trees = &mut nodes.last_mut().expect("pushed above").trees;
        if last != Some(key(place)) {
            trees.push(Tree { label: label(place), items: Vec::new() });
            last = Some(key(place));
        }
        trees.last_mut().expect("pushed above").items.push(item);
    }
    nodes
}
