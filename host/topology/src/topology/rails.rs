//! Which ports are rails, which are set aside and why. Pure.

use super::gid::{self, GidChoice};
use super::select::{HcaName, Selection};
use crate::discover::{Inventory, LinkLayer, Port, PortState, Rate, RdmaDevice};
use thiserror::Error;

/// PCI vendor id of Mellanox, now NVIDIA networking: ConnectX and BlueField.
const MELLANOX: u32 = 0x15b3;

/// The environment leaves nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{variable}={met} leaves no RDMA port: expected one of {}", have.join(", "))]
pub struct NothingSelected {
    /// Variable.
    pub variable: &'static str,
    /// What it holds.
    pub met: String,
    /// Ports that are there.
    pub have: Vec<String>,
}

/// A port that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rail {
    /// Which device, in [`Inventory::rdma`].
    pub device: usize,
    /// Port.
    pub port: u32,
    /// `mlx5_0:1`.
    pub name: String,
    /// Which card: rails of one card share it.
    pub card: usize,
    /// Place on its card.
    pub seat_on_card: usize,
    /// Link layer.
    pub link: LinkLayer,
    /// Rate.
    pub rate: Option<Rate>,
    /// Logical state.
    pub state: PortState,
    /// Why it cannot be used now.
    pub trouble: Option<String>,
    /// Its GID.
    pub gid: Option<GidChoice>,
}

impl Rail {
    /// Rate in Mb/s; 0 if it is not known.
    pub fn mbps(&self) -> u32 {
        self.rate.as_ref().map_or(0, |rate| rate.mbps)
    }

    /// Whether an entry of the environment means it.
    pub fn is_named(&self, name: &HcaName) -> bool {
        let device = self.name.rsplit_once(':').map_or(self.name.as_str(), |(device, _)| device);
        name.names(device, self.port)
    }
}

/// A port that may not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// `mlx5_bond_0:1`, or the device where it has no port.
    pub name: String,
    /// Why.
    pub why: String,
    /// What to do about it; empty where nothing is wrong.
    pub fix: String,
    /// Whether it was refused although it was wanted: a bond.
    pub refused: bool,
}

/// All ports: rails, and the others.
pub(super) fn rails(inventory: &Inventory, selection: &Selection) -> (Vec<Rail>, Vec<SetAside>) {
    let (mut rails, mut aside) = (Vec::new(), Vec::new());
    for (index, device) in inventory.rdma.iter().enumerate() {
        for port in &device.ports {
            match objection(inventory, index, port, selection) {
                Some((why, fix, refused)) => {
                    aside.push(SetAside {
                        name: format!("{}:{}", device.name, port.number),
                        why,
                        fix,
                        refused,
                    });
                }
                None => rails.push(rail(index, device, port, selection)),
            }
        }
        if device.ports.is_empty() {
            let why = "no port could be read".into();
            aside.push(SetAside { name: device.name.clone(), why, fix: String::new(), refused: false });
        }
    }
    one_link_layer(&mut rails, &mut aside);
    number_cards(inventory, &mut rails);
    (rails, aside)
}

fn rail(index: usize, device: &RdmaDevice, port: &Port, selection: &Selection) -> Rail {
    let chosen = gid::choose(port, &selection.gid);
    let trouble = trouble(device, port).or_else(|| chosen.as_ref().err().map(|none| none.0.clone()));
    Rail {
        device: index,
        port: port.number,
        name: format!("{}:{}", device.name, port.number),
        card: 0,
        seat_on_card: 0,
        link: port.link,
        rate: port.rate.clone(),
        state: port.state,
        trouble,
        gid: chosen.ok(),
    }
}

/// Why a port cannot carry traffic now.
fn trouble(device: &RdmaDevice, port: &Port) -> Option<String> {
    if port.state == PortState::Active {
        return None;
    }
    let physical = if port.physical.is_empty() { "?" } else { &port.physical };
    let hint = match (port.link, port.state) {
        (LinkLayer::InfiniBand, PortState::Init | PortState::Armed) => {
            ": no subnet manager has set it up (sm_lid 0)"
        }
        (_, PortState::Down) if physical == "Disabled" => ": switched off",
        (_, PortState::Down) if physical == "Polling" => ": no partner on the cable",
        _ => "",
    };
    let hint = if hint.ends_with("(sm_lid 0)") && port.sm_lid != 0 { "" } else { hint };
    let netdev = device.netdevs.iter().find(|netdev| netdev.port == port.number);
    let netdev = netdev.map_or(String::new(), |netdev| format!(", {}", netdev.name));
    Some(format!("port {} ({physical}{netdev}){hint}", port.state))
}

/// Why a port is no rail: the reason, what to do, and whether it is a refusal.
fn objection(
    inventory: &Inventory,
    index: usize,
    port: &Port,
    selection: &Selection,
) -> Option<(String, String, bool)> {
    let device = &inventory.rdma[index];
    let plain = |why: String| Some((why, String::new(), false));
    if device.vendor != MELLANOX && (device.vendor != 0 || !device.name.starts_with("mlx5")) {
        return plain(format!("no ConnectX: PCI vendor {:#06x}", device.vendor));
    }
    if port.link == LinkLayer::Unknown {
        return plain("its link layer is neither InfiniBand nor Ethernet".into());
    }
    if !selection.prefix_allows(&device.name) {
        return plain("left out by NVSHMEM_HCA_PREFIX".into());
    }
    if !selection.allows(&device.name, port.number) {
        let by = if selection.list.is_some() { "NVSHMEM_HCA_LIST" } else { "NVSHMEM_HCA_PE_MAPPING" };
        return plain(format!("left out by {by}"));
    }
    if let Some(same) = same_port(inventory, index) {
        return plain(format!("a virtual function on the same port as {same}"));
    }
    let bond = device.bond()?;
    let members = if bond.members.is_empty() { "its members".into() } else { bond.members.join(", ") };
    let why = format!(
        "{} ({}) of {members}: a bond moves queue pairs between ports unseen, so a path could be neither named nor \
         fenced",
        bond.name, bond.mode
    );
    let apart = bond.members.iter().map(|member| format!("ip link set {member} nomaster"));
    let apart: Vec<String> = apart.collect();
    let fix = format!(
        "take the bond apart ({}) and give each port an address of its own: Shunt does what the bond was for; or \
         name other ports in NVSHMEM_HCA_LIST",
        if apart.is_empty() { "ip link set MEMBER nomaster".into() } else { apart.join("; ") }
    );
    Some((why, fix, true))
}

/// The device seen earlier, or the physical function, that sends through the same port as a virtual function.
fn same_port(inventory: &Inventory, index: usize) -> Option<&str> {
    let physical = inventory.rdma[index].virtual_of?;
    let mut others = inventory.rdma.iter().enumerate();
    let same = others.find(|(other, device)| {
        device.address() == Some(physical) || (*other < index && device.virtual_of == Some(physical))
    });
    same.map(|(_, device)| device.name.as_str())
}

/// A path has one link layer at both ends: the one most ports that are up have, as in NVSHMEM 3.8.
fn one_link_layer(rails: &mut Vec<Rail>, aside: &mut Vec<SetAside>) {
    let count = |link| rails.iter().filter(|rail| rail.link == link && rail.trouble.is_none()).count();
    let (infiniband, ethernet) = (count(LinkLayer::InfiniBand), count(LinkLayer::Ethernet));
    let first = rails.iter().find(|rail| rail.trouble.is_none()).or(rails.first()).map(|rail| rail.link);
    let keep = match infiniband.cmp(&ethernet) {
        std::cmp::Ordering::Greater => LinkLayer::InfiniBand,
        std::cmp::Ordering::Less => LinkLayer::Ethernet,
        std::cmp::Ordering::Equal => first.unwrap_or(LinkLayer::Unknown),
    };
    let (kept, others): (Vec<Rail>, Vec<Rail>) = rails.drain(..).partition(|rail| rail.link == keep);
    *rails = kept;
    aside.extend(others.into_iter().map(|rail| SetAside {
        why: format!("{}, and most ports that are up are {keep}: no path joins the two", rail.link),
        fix: "to use it and its like instead, name them in NVSHMEM_HCA_LIST".into(),
        refused: false,
        name: rail.name,
    }));
}

fn number_cards(inventory: &Inventory, rails: &mut [Rail]) {
    let mut cards: Vec<(usize, usize)> = Vec::new();
    for rail in rails {
        let device = &inventory.rdma[rail.device];
        let found = cards.iter_mut().enumerate();
        let mut same = found.filter(|(_, (first, _))| inventory.rdma[*first].same_card(device));
        (rail.card, rail.seat_on_card) = match same.next() {
            Some((card, (_, seats))) => {
                *seats += 1;
                (card, *seats - 1)
            }
            None => {
                cards.push((rail.device, 1));
                (cards.len() - 1, 0)
            }
        };
    }
}

/// A list or mapping that leaves nothing of the ports that are there is a mistake in it.
pub(super) fn refuse_nothing(
    inventory: &Inventory,
    selection: &Selection,
    rails: &[Rail],
    aside: &[SetAside],
) -> Result<(), NothingSelected> {
    let left_out = aside.iter().any(|port| port.why.starts_with("left out by NVSHMEM_"));
    if !rails.is_empty() || !left_out || aside.iter().any(|port| port.refused) {
        return Ok(());
    }
    let ports = |device: &RdmaDevice| -> Vec<String> {
        device.ports.iter().map(|port| format!("{}:{}", device.name, port.number)).collect()
    };
    let have = inventory.rdma.iter().flat_map(ports).collect();
    let names =
        |names: Vec<String>, exclude: bool| format!("{}{}", if exclude { "^" } else { "" }, names.join(","));
    let (variable, met) = if let Some(list) = &selection.list {
        ("NVSHMEM_HCA_LIST", names(list.names.iter().map(HcaName::to_string).collect(), list.exclude))
    } else if !selection.mapping.is_empty() {
        let slots = selection.mapping.iter().map(|slot| format!("{}:{}", slot.name, slot.count));
        ("NVSHMEM_HCA_PE_MAPPING", names(slots.collect(), false))
    } else {
        ("NVSHMEM_HCA_PREFIX", selection.prefix.clone().unwrap_or_default())
    };
    Err(NothingSelected { variable, met, have })
}

/// What is said of the rails as a whole.
pub(super) fn notes(inventory: &Inventory, selection: &Selection, rails: &[Rail]) -> Vec<String> {
    let mut notes = Vec::new();
    let list = selection.list.iter().flat_map(|list| &list.names).map(|name| ("NVSHMEM_HCA_LIST", name));
    let mapping = selection.mapping.iter().map(|slot| ("NVSHMEM_HCA_PE_MAPPING", &slot.name));
    for (variable, name) in list.chain(mapping) {
        let named =
            |device: &RdmaDevice| device.ports.iter().any(|port| name.names(&device.name, port.number));
        if !inventory.rdma.iter().any(named) {
            notes.push(format!("{variable} names {name}, which is not here"));
        }
    }
    if selection.mapping_ignored {
        notes.push("NVSHMEM_HCA_PE_MAPPING is not read: NVSHMEM_HCA_LIST is set".into());
    }
    let restricted = selection.list.is_some() || !selection.mapping.is_empty();
    if restricted && !selection.by_rank && !rails.is_empty() {
        notes.push(
            "NVSHMEM_ENABLE_NIC_PE_MAPPING is not set: the list says which ports are used, distance says by which PE"
                .into(),
        );
    }
    for rail in rails {
        let short = rail.gid.as_ref().filter(|gid| !gid.short_of.is_empty());
        if let Some(gid) = short.filter(|_| rail.trouble.is_none()) {
            notes.push(format!("{}: GID {} is not {}", rail.name, gid.index, gid.short_of.join(" nor ")));
        }
    }
    notes
}
