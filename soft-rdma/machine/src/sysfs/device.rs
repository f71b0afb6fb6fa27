//! What the files of one device say.

use crate::kind::{Identity, Kind};
use crate::port::PortView;
use shunt_soft_nic::Counters;

/// Firmware version, as the verbs have it: major, minor, sub-minor.
pub const FIRMWARE: (u16, u16, u16) = (28, 39, 1002);
/// Board identifier; QUERY_ADAPTER tells it too.
pub const BOARD: &str = "SHUNT";
/// Major and first minor number of device nodes.
pub const DEVICE_NUMBER: (u32, u32) = (231, 192);

/// Major and minor number of the device node of connections: of those that the kernel gives to any that ask.
pub const CONNECTIONS_NUMBER: (u32, u32) = (10, 252);
/// Version of its interface.
pub const CONNECTIONS_ABI: u32 = 4;

/// A device, as its files describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Whose device it is.
    pub kind: Kind,
    /// `mlx5_0`.
    pub name: String,
    /// N of uverbsN.
    pub index: u32,
    /// GUID of the function, and of the card: each NIC is a card of its own.
    pub guid: u64,
    /// The entry of the GID table.
    pub gid: [u8; 16],
    /// The network interface that it was made from.
    pub interface: String,
    /// Its number.
    pub interface_index: u32,
    /// The port.
    pub port: PortView,
    /// What it counted.
    pub counters: Counters,
}

impl Device {
    /// Its PCI address: one slot each, in a domain that no machine has.
    pub fn pci(&self) -> String {
        format!("5348:00:{:02x}.0", self.index)
    }

    /// Its directory in the PCI tree.
    pub(super) fn home(&self) -> String {
        format!("sys/devices/pci5348:00/{}", self.pci())
    }

    /// Directory of the RDMA device.
    fn rdma(&self) -> String {
        format!("{}/infiniband/{}", self.home(), self.name)
    }

    /// Links, with where they lead.
    pub(super) fn links(&self) -> Vec<(String, String)> {
        let (pci, name, index, home) = (self.pci(), &self.name, self.index, self.home());
        let pci_home = format!("../../../devices/pci5348:00/{pci}");
        let class = |kind: &str, name: &str| {
            (format!("sys/class/{kind}/{name}"), format!("../../devices/pci5348:00/{pci}/{kind}/{name}"))
        };
        let verbs = format!("uverbs{index}");
        vec![
            class("infiniband", name),
            class("infiniband_verbs", &verbs),
            (format!("{home}/infiniband/{name}/device"), "../..".into()),
            (format!("{home}/infiniband_verbs/{verbs}/device"), "../..".into()),
            (format!("{home}/driver"), format!("../../../bus/pci/drivers/{}", self.kind.identity().driver)),
            (format!("{home}/subsystem"), "../../../bus/pci".into()),
            (format!("sys/bus/pci/devices/{pci}"), pci_home),
        ]
    }

    /// Files that never change.
    pub(super) fn constant(&self) -> Vec<(String, String)> {
        let (major, minor) = (DEVICE_NUMBER.0, DEVICE_NUMBER.1 + self.index);
        let (rdma, home) = (self.rdma(), self.home());
        let verbs = format!("{home}/infiniband_verbs/uverbs{}", self.index);
        let &Identity { vendor, part, subsystem, driver, node, .. } = self.kind.identity();
        let modalias = format!("pci:v{vendor:08X}d{part:08X}sv{vendor:08X}sd{subsystem:08X}bc02sc00i00");
        let uevent = format!(
            "DRIVER={driver}\nPCI_CLASS=20000\nPCI_ID={vendor:04X}:{part:04X}\n\
             PCI_SUBSYS_ID={vendor:04X}:{subsystem:04X}\nPCI_SLOT_NAME={}\nMODALIAS={modalias}",
            self.pci()
        );
        let files = [
            (&home, "vendor", format!("{vendor:#06x}")),
            (&home, "device", format!("{part:#06x}")),
            (&home, "subsystem_vendor", format!("{vendor:#06x}")),
            (&home, "subsystem_device", format!("{subsystem:#06x}")),
            (&home, "class", "0x020000".into()),
            (&home, "revision", "0x00".into()),
            (&home, "enable", "1".into()),
            // It sits at no node of the machine.
            (&home, "numa_node", "-1".into()),
            (&home, "modalias", modalias),
            (&home, "uevent", uevent),
            (&home, "current_link_speed", "32.0 GT/s PCIe".into()),
            (&home, "current_link_width", "16".into()),
            (&home, "max_link_speed", "32.0 GT/s PCIe".into()),
            (&home, "max_link_width", "16".into()),
            (&verbs, "ibdev", self.name.clone()),
            (&verbs, "dev", format!("{major}:{minor}")),
            (&verbs, "abi_version", "1".into()),
            (
                &verbs,
                "uevent",
                format!("MAJOR={major}\nMINOR={minor}\nDEVNAME=infiniband/uverbs{}", self.index),
            ),
            (&rdma, "node_type", node.into()),
            (&rdma, "node_guid", guid_text(self.guid)),
            (&rdma, "sys_image_guid", guid_text(self.guid)),
            (&rdma, "fw_ver", self.firmware()),
            (&rdma, "hw_rev", "0".into()),
            (&rdma, "node_desc", format!("soft {}", self.name)),
            (&rdma, "uevent", format!("NAME={}", self.name)),
        ];
        let below = |(directory, file, text): (&String, &str, String)| (format!("{directory}/{file}"), text);
        let of_port = |(file, text): (&str, &str)| (format!("{rdma}/ports/1/{file}"), text.to_owned());
        let port = self.port_files().into_iter().map(of_port);
        files.into_iter().chain(self.board_files(&rdma)).map(below).chain(port).collect()
    }

    /// Files that the drivers of some kinds have.
    fn board_files<'a>(&self, rdma: &'a String) -> Vec<(&'a String, &'static str, String)> {
        match self.kind {
            Kind::Mlx5 => vec![
                (rdma, "board_id", BOARD.into()),
                (rdma, "hca_type", format!("MT{}", self.kind.identity().part)),
            ],
            Kind::Efa => Vec::new(),
        }
    }

    /// Files of the port that never change.
    fn port_files(&self) -> Vec<(&'static str, &str)> {
        let &Identity { link_layer, gid_type, port_caps, .. } = self.kind.identity();
        let mut files = vec![
            ("link_layer", link_layer),
            ("lid", "0x0"),
            ("lid_mask_count", "0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("cap_mask", port_caps),
            ("pkeys/0", "0xffff"),
            ("gid_attrs/types/0", gid_type),
        ];
        if self.kind == Kind::Mlx5 {
            files.push(("gid_attrs/ndevs/0", &self.interface));
        }
        files
    }

    /// Version of the firmware, in words.
    pub fn firmware(&self) -> String {
        let (a, b, c) = FIRMWARE;
        match self.kind {
            Kind::Mlx5 => format!("{a}.{b}.{c:04}"),
            // Two numbers for the interface of administration, two for that of the controller: there is none.
            Kind::Efa => "0.0.0.0".into(),
        }
    }

    /// Files that follow the NIC.
    pub(super) fn changing(&self) -> Vec<(String, String)> {
        let port = format!("{}/ports/1", self.rdma());
        let (state, physical) = match self.port.up {
            true => ("4: ACTIVE", "5: LinkUp"),
            false => ("1: DOWN", "3: Disabled"),
        };
        let text = [
            ("state", state.into()),
            ("phys_state", physical.into()),
            ("rate", self.port.rate.into()),
            ("gids/0", gid_text(&self.gid)),
        ];
        let count = self.counts().map(|(file, value)| (file, value.to_string()));
        let all = text.into_iter().chain(count);
        all.map(|(file, text): (&str, String)| (format!("{port}/{file}"), text)).collect()
    }

    /// Counters of the port, under the names that real ones have.
    fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let counted = self.counters;
        [
            // In units of four bytes.
            ("counters/port_xmit_data", counted.bytes_tx / 4),
            ("counters/port_rcv_data", counted.bytes_rx / 4),
            ("counters/port_xmit_packets", counted.packets_out()),
            ("counters/port_rcv_packets", counted.packets_rx),
            ("counters/unicast_xmit_packets", counted.packets_out()),
            ("counters/unicast_rcv_packets", counted.packets_rx),
            ("counters/multicast_xmit_packets", 0),
            ("counters/multicast_rcv_packets", 0),
            ("counters/port_rcv_errors", 0),
            ("counters/port_xmit_discards", counted.unroutable),
            ("counters/port_xmit_wait", 0),
            ("counters/symbol_error", 0),
            ("counters/link_error_recovery", 0),
            ("counters/link_downed", 0),
            ("hw_counters/local_ack_timeout_err", counted.timeouts),
            ("hw_counters/duplicate_request", counted.duplicates),
            ("hw_counters/packet_seq_err", counted.naks),
            ("hw_counters/out_of_buffer", counted.rnr_naks),
            ("hw_counters/rx_dropped", counted.dropped),
            ("hw_counters/retransmits", counted.retransmits),
            ("hw_counters/lifespan", 0),
        ]
        .into_iter()
    }
}

/// Eight groups of four digits.
fn gid_text(gid: &[u8; 16]) -> String {
    groups(gid)
}

/// Four groups of four digits.
fn guid_text(guid: u64) -> String {
    groups(&guid.to_be_bytes())
}

fn groups(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join(":")
}
