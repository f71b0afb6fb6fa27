//! Which kind of device the soft NICs of a process are: whose driver finds them, and what they say they are.

use std::str::FromStr;

/// A kind of device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// ConnectX, for libmlx5.
    #[default]
    Mlx5,
    /// EFA, for libefa.
    Efa,
}

/// What a kind of device is to those who look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor at the PCI bus.
    pub vendor: u32,
    /// Device at the PCI bus.
    pub part: u32,
    /// Subsystem at the PCI bus.
    pub subsystem: u32,
    /// PCI class.
    pub class: u32,
    /// The kernel's driver.
    pub driver: &'static str,
    /// The driver's number in `rdma_driver_id`.
    pub driver_number: u32,
    /// Kind of node, as verbs number it.
    pub node_type: u8,
    /// The same in words.
    pub node: &'static str,
    /// Link layer, in words.
    pub link_layer: &'static str,
    /// Kind of the GID, in words.
    pub gid_type: &'static str,
    /// Protocol, if netlink tells one.
    pub protocol: Option<&'static str>,
    /// Capabilities of the port, as its file has them.
    pub port_caps: &'static str,
}

/// ConnectX-7.
const MLX5: Identity = Identity {
    vendor: 0x15b3,
    part: 4129,
    subsystem: 0x41,
    class: 0x02_0000,
    driver: "mlx5_core",
    driver_number: 1,
    node_type: 1,
    node: "1: CA",
    link_layer: "Ethernet",
    gid_type: "RoCE v2",
    protocol: Some("roce"),
    port_caps: "0x04010000",
};

/// The second of EFA's generations: the first that reads remote memory.
const EFA: Identity = Identity {
    vendor: 0x1d0f,
    part: 0xefa1,
    subsystem: 0xefa1,
    class: 0x02_0000,
    driver: "efa",
    driver_number: 17,
    node_type: 7,
    node: "7: unspecified",
    link_layer: "Unspecified",
    gid_type: "IB/RoCE v1",
    protocol: None,
    port_caps: "0x00000000",
};

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Mlx5, Self::Efa];

    /// As it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mlx5 => "mlx5",
            Self::Efa => "efa",
        }
    }

    /// Name of the NIC with this index.
    pub fn device(self, index: u32) -> String {
        format!("{}_{index}", self.name())
    }

    /// What it says it is.
    pub fn identity(self) -> &'static Identity {
        match self {
            Self::Mlx5 => &MLX5,
            Self::Efa => &EFA,
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert_eq!("mlx4".parse::<Kind>(), Err(()));
        assert_eq!(Kind::Efa.device(3), "efa_3");
        assert_ne!(Kind::Mlx5.identity().driver_number, Kind::Efa.identity().driver_number);
    }
}
