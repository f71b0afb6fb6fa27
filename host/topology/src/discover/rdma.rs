//! RDMA devices, from `/sys/class/infiniband`, with the network interfaces that lie on them.

use super::gpu::{driver, place};
use super::pci::{PciAddress, Place};
use super::sysroot::SysRoot;
use super::text::{Gid, Guid, Rate, decimal, hex};
use std::fmt;

/// A port's logical state (`IB_PORT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of sysfs
pub enum PortState {
    Nop,
    Down,
    Init,
    Armed,
    Active,
    ActiveDefer,
    Unknown,
}

impl PortState {
    /// Reads `4: ACTIVE`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match decimal(text.split_once(':')?.0)? {
            0 => Self::Nop,
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            _ => return None,
        })
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nop => "NOP",
            Self::Down => "DOWN",
            Self::Init => "INIT",
            Self::Armed => "ARMED",
            Self::Active => "ACTIVE",
            Self::ActiveDefer => "ACTIVE_DEFER",
            Self::Unknown => "?",
        })
    }
}

/// What a port's packets travel in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// RoCE.
    Ethernet,
    /// Neither was said.
    Unknown,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "RoCE",
            Self::Unknown => "?",
        })
    }
}

/// What a GID is good for (`gid_attrs/types`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// `IB/RoCE v1`: InfiniBand, or Ethernet frames that no router passes on.
    InfiniBandOrRoce1,
    /// `RoCE v2`: UDP.
    Roce2,
    /// The file is missing or says something else.
    Unknown,
}

/// An entry of a port's GID table that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Index.
    pub index: u32,
    /// Value.
    pub gid: Gid,
    /// Kind.
    pub kind: GidKind,
    /// Network interface it was made from; RoCE only.
    pub netdev: Option<String>,
}

/// A bond of network interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bond {
    /// Its interface, such as `bond0`.
    pub name: String,
    /// Mode, such as `802.3ad`.
    pub mode: String,
    /// Its members.
    pub members: Vec<String>,
}

/// A network interface on an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netdev {
    /// Name.
    pub name: String,
    /// Its port of the device, from 1.
    pub port: u32,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// `up`, `down`, ..
    pub state: Option<String>,
    /// The bond it belongs to.
    pub bond: Option<Bond>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Number, from 1.
    pub number: u32,
    /// Logical state.
    pub state: PortState,
    /// Physical state, as it is written (`LinkUp`, `Polling`, `Disabled`).
    pub physical: String,
    /// Rate.
    pub rate: Option<Rate>,
    /// Link layer.
    pub link: LinkLayer,
    /// Local identifier; InfiniBand.
    pub lid: u32,
    /// Identifier of the subnet manager; 0: none was met.
    pub sm_lid: u32,
    /// Partition keys that are set.
    pub pkeys: Vec<u16>,
    /// GIDs.
    pub gids: Vec<GidEntry>,
}

/// An RDMA device: a PCI function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Name, such as `mlx5_0`.
    pub name: String,
    /// GUID of the function.
    pub node_guid: Option<Guid>,
    /// GUID of the card: the same for all functions and ports of one.
    pub card_guid: Option<Guid>,
    /// `MT4129` for ConnectX-7.
    pub hca_type: String,
    /// Firmware version.
    pub firmware: String,
    /// PCI vendor; 0 if it could not be read.
    pub vendor: u32,
    /// Where it sits.
    pub place: Place,
    /// Kernel driver.
    pub driver: Option<String>,
    /// The physical function, if this is a virtual one and the physical one is seen.
    pub virtual_of: Option<PciAddress>,
    /// Ports.
    pub ports: Vec<Port>,
    /// Network interfaces.
    pub netdevs: Vec<Netdev>,
    /// Name of its device node below `/dev/infiniband`.
    pub uverbs: Option<String>,
}

impl RdmaDevice {
    /// PCI address.
    pub fn address(&self) -> Option<PciAddress> {
        Some(self.place.path.as_ref()?.device)
    }

    /// Whether both are functions of one card: one firmware, one PCIe slot, one fate.
    pub fn same_card(&self, other: &Self) -> bool {
        match (self.card_guid, other.card_guid) {
            (Some(a), Some(b)) if a.0 != 0 && b.0 != 0 => a == b,
            _ => match (self.address(), other.address()) {
                (Some(a), Some(b)) => a.same_slot(&b),
                _ => self.name == other.name,
            },
        }
    }

    /// The bond that holds this device's ports together or apart, if there is one: a RoCE LAG device (`mlx5_bond_0`,
    /// or GIDs made from a bonding interface), or a member of a bond.
    pub fn bond(&self) -> Option<Bond> {
        let member = self.netdevs.iter().find_map(|netdev| netdev.bond.clone());
        member.or_else(|| {
            let unknown = |name: &str| Bond { name: name.to_owned(), mode: "?".into(), members: Vec::new() };
            self.name.contains("bond").then(|| unknown(&self.name))
        })
    }
}

const CLASS: &str = "sys/class/infiniband";

pub(super) fn discover(root: &SysRoot) -> Vec<RdmaDevice> {
    let uverbs: Vec<(String, Option<String>)> = root
        .list("sys/class/infiniband_verbs")
        .into_iter()
        .filter(|name| name.starts_with("uverbs"))
        .map(|name| (root.read(&format!("sys/class/infiniband_verbs/{name}/ibdev")), name))
        .map(|(device, name)| (name, device))
        .collect();
    let find = |device: &str| {
        let mut nodes = uverbs.iter();
        nodes.find(|(_, of)| of.as_deref() == Some(device)).map(|(name, _)| name.clone())
    };
    root.list(CLASS).iter().map(|name| device(root, name, find(name))).collect()
}

fn device(root: &SysRoot, name: &str, uverbs: Option<String>) -> RdmaDevice {
    let base = format!("{CLASS}/{name}");
    let text = |file: &str| root.read(&format!("{base}/{file}"));
    let guid = |file: &str| {
        let text = text(file)?;
        let guid = Guid::parse(&text);
        if guid.is_none() {
            root.odd(&format!("{base}/{file}"), format!("\"{text}\" is no GUID"));
        }
        guid
    };
    let pci = format!("{base}/device");
    let physical = format!("{pci}/physfn");
    let virtual_of = root.real(&physical).filter(|real| *real != physical);
    let virtual_of = virtual_of.and_then(|real| PciAddress::parse(real.rsplit('/').next()?));
    let ports = root.list(&format!("{base}/ports"));
    RdmaDevice {
        node_guid: guid("node_guid"),
        card_guid: guid("sys_image_guid"),
        hca_type: text("hca_type").unwrap_or_default(),
        firmware: text("fw_ver").unwrap_or_default(),
        vendor: text("device/vendor").and_then(|text| hex(&text)).unwrap_or_default(),
        place: place(root, &pci),
        driver: driver(root, &pci),
        virtual_of,
        ports: ports.iter().filter_map(|number| port(root, &base, number)).collect(),
        netdevs: netdevs(root, &pci),
        uverbs,
        name: name.to_owned(),
    }
}

fn port(root: &SysRoot, base: &str, number: &str) -> Option<Port> {
    let base = format!("{base}/ports/{number}");
    let Some(number) = decimal(number) else {
        root.odd(&base, "a port whose name is no number");
        return None;
    };
    let text = |file: &str| root.read(&format!("{base}/{file}"));
    let known =
        |file: &str, met: &str| root.odd(&format!("{base}/{file}"), format!("\"{met}\" is not known"));
    let state = text("state").unwrap_or_default();
    let state = PortState::parse(&state).unwrap_or_else(|| {
        known("state", &state);
        PortState::Unknown
    });
    let link = match text("link_layer").as_deref() {
        Some("InfiniBand") => LinkLayer::InfiniBand,
        Some("Ethernet") => LinkLayer::Ethernet,
        other => {
            known("link_layer", other.unwrap_or(""));
            LinkLayer::Unknown
        }
    };
    let rate = text("rate");
    let parsed = rate.as_deref().and_then(Rate::parse);
    if let (Some(met), None) = (&rate, &parsed) {
        known("rate", met);
    }
    let physical = text("phys_state").unwrap_or_default();
    let pkeys = root.list(&format!("{base}/pkeys"));
    let pkeys = pkeys.iter().filter_map(|index| hex(&text(&format!("pkeys/{index}"))?)).map(|key| key as u16);
    Some(Port {
        number,
        state,
        physical: physical.split_once(": ").map_or(physical.as_str(), |(_, word)| word).to_owned(),
        rate: parsed,
        link,
        lid: text("lid").and_then(|text| hex(&text)).unwrap_or_default(),
        sm_lid: text("sm_lid").and_then(|text| hex(&text)).unwrap_or_default(),
        pkeys: pkeys.filter(|key| *key != 0).collect(),
        gids: gids(root, &base),
    })
}

/// The entries that are set. The kernel answers EINVAL for type and interface of an empty one, so these are not asked.
fn gids(root: &SysRoot, base: &str) -> Vec<GidEntry> {
    let mut out = Vec::new();
    for name in root.list(&format!("{base}/gids")) {
        let path = format!("{base}/gids/{name}");
        let (Some(index), Some(text)) = (decimal(&name), root.read(&path)) else { continue };
        let Some(gid) = Gid::parse(&text) else {
            root.odd(&path, format!("\"{text}\" is no GID"));
            continue;
        };
        if gid.is_zero() {
            continue;
        }
        let kind = match root.read(&format!("{base}/gid_attrs/types/{index}")).as_deref() {
            Some("IB/RoCE v1") => GidKind::InfiniBandOrRoce1,
            Some("RoCE v2") => GidKind::Roce2,
            _ => GidKind::Unknown,
        };
        let netdev = root.read(&format!("{base}/gid_attrs/ndevs/{index}")).filter(|name| !name.is_empty());
        out.push(GidEntry { index, gid, kind, netdev });
    }
    out
}

fn netdevs(root: &SysRoot, pci: &str) -> Vec<Netdev> {
    let names = root.list(&format!("{pci}/net"));
    names
        .into_iter()
        .map(|name| {
            let text = |file: &str| root.read(&format!("sys/class/net/{name}/{file}"));
            let port = text("dev_port").and_then(|text| decimal(&text)).unwrap_or_default();
            Netdev {
                // dev_port counts from 0, the device's ports from 1.
                port: port.saturating_add(1),
                mtu: text("mtu").and_then(|text| decimal(&text)),
                state: text("operstate"),
                bond: bond(root, &name),
                name,
            }
        })
        .collect()
}

/// The bond an interface is a member of: `master` leads to an interface with a `bonding` directory. Members of a
/// bridge or a VRF have a master too, and are left alone.
fn bond(root: &SysRoot, netdev: &str) -> Option<Bond> {
    let link = format!("sys/class/net/{netdev}/master");
    let real = root.real(&link).filter(|real| *real != link)?;
    let name = real.rsplit('/').next()?.to_owned();
    let text = |file: &str| root.read(&format!("sys/class/net/{name}/bonding/{file}"));
    let mode = text("mode")?;
    let members = text("slaves").unwrap_or_default();
    Some(Bond {
        mode: mode.split_whitespace().next().unwrap_or("?").to_owned(),
        members: members.split_whitespace().map(str::to_owned).collect(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn port_states() {
        assert_eq!(PortState::parse("4: ACTIVE"), Some(PortState::Active));
        assert_eq!(PortState::parse("1: DOWN"), Some(PortState::Down));
        for bad in ["", "ACTIVE", "9: ?", "-1: X"] {
            assert_eq!(PortState::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn odd_files_are_noted_and_the_rest_is_kept() {
        let text = "sys/class/infiniband/mlx5_0/node_guid = not a guid\n\
                    sys/class/infiniband/mlx5_0/ports/1/state = 9: WEIRD\n\
                    sys/class/infiniband/mlx5_0/ports/1/rate ! Input/output error\n\
                    sys/class/infiniband/mlx5_0/ports/x/state = 4: ACTIVE\n";
        let root = SysRoot::from_listing(text).unwrap();
        let devices = discover(&root);
        assert_eq!((devices.len(), devices[0].ports.len()), (1, 1));
        assert_eq!(devices[0].ports[0].state, PortState::Unknown);
        let odd: Vec<String> = root.take_odd().into_iter().map(|odd| odd.met).collect();
        for part in
            ["\"not a guid\" is no GUID", "\"9: WEIRD\" is not known", "Input/output error", "no number"]
        {
            assert!(odd.iter().any(|met| met.contains(part)), "{part} is not in {odd:?}");
        }
    }

    proptest! {
        /// A tree with any text in its files gives an inventory, never a panic.
        #[test]
        fn any_tree_has_an_inventory(values in proptest::collection::vec("[\\x20-\\x7eé]{0,24}", 16)) {
            const FILES: [&str; 16] = [
                "node_guid", "sys_image_guid", "fw_ver", "hca_type", "device/numa_node", "device/vendor",
                "ports/1/state", "ports/1/phys_state", "ports/1/rate", "ports/1/link_layer", "ports/1/lid",
                "ports/1/sm_lid", "ports/1/gids/0", "ports/1/gids/1", "ports/1/gid_attrs/types/1", "ports/1/pkeys/0",
            ];
            let lines: Vec<String> = FILES
                .iter()
                .zip(&values)
                .map(|(file, value)| format!("{CLASS}/mlx5_0/{file} = {}", value.replace('\\', "/")))
                .collect();
            let root = SysRoot::from_listing(&lines.join("\n")).unwrap();
            prop_assert_eq!(discover(&root).len(), 1);
        }
    }
}
