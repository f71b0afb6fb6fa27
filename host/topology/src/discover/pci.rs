//! PCI addresses, paths in the PCIe tree, and the distance of two devices in it.

use super::text::hex;
use std::fmt;

/// `domain:bus:device.function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Segment; more than 16 bits behind some controllers (`10000:01:00.0`).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, up to 31.
    pub device: u8,
    /// Function, up to 7.
    pub function: u8,
}

impl PciAddress {
    /// Reads `0000:18:00.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (front, function) = text.rsplit_once('.')?;
        let mut front = front.split(':');
        let (domain, bus, device) = (front.next()?, front.next()?, front.next()?);
        let sized = (4..=8).contains(&domain.len())
            && (bus.len(), device.len(), function.len()) == (2, 2, 1)
            && !text.contains('x');
        if front.next().is_some() || !sized {
            return None;
        }
        let small = |text: &str, most: u32| hex(text).filter(|value| *value <= most).map(|value| value as u8);
        Some(Self {
            domain: hex(domain)?,
            bus: small(bus, 255)?,
            device: small(device, 31)?,
            function: small(function, 7)?,
        })
    }

    /// Whether both are functions of one device in one slot.
    pub fn same_slot(&self, other: &Self) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// The way from a host bridge down to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciPath {
    /// `pci0000:15`.
    pub host_bridge: String,
    /// Root port, then the switches' ports: everything between host bridge and device.
    pub bridges: Vec<PciAddress>,
    /// The device.
    pub device: PciAddress,
}

impl PciPath {
    /// Reads the resolved path of a device: `sys/devices/pci0000:15/0000:15:01.0/.../0000:18:00.0`. On some machines
    /// the host bridge lies below a platform device.
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/').skip_while(|part| !is_host_bridge(part));
        let host_bridge = parts.next()?.to_owned();
        let mut bridges: Vec<PciAddress> = parts.map(PciAddress::parse).collect::<Option<_>>()?;
        let device = bridges.pop()?;
        Some(Self { host_bridge, bridges, device })
    }
}

fn is_host_bridge(part: &str) -> bool {
    let Some((domain, bus)) = part.strip_prefix("pci").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    domain.len() >= 4 && bus.len() == 2 && hex(domain).is_some() && hex(bus).is_some()
}

/// Where a device sits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its way in the PCIe tree; `None` if it could not be read.
    pub path: Option<PciPath>,
    /// Its NUMA node; `None` if the kernel names none.
    pub numa: Option<u32>,
}

/// How far two devices are apart, in the words of `nvidia-smi topo -m`; nearer is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// At most one PCIe bridge, or one switch, between them.
    Pix,
    /// Several PCIe bridges, but no host bridge.
    Pxb,
    /// One PCIe host bridge (the CPU's).
    Phb,
    /// Host bridges of one NUMA node.
    Node,
    /// NUMA nodes.
    Sys,
    /// The place of one of them is not known.
    Unknown,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
            Self::Unknown => "?",
        })
    }
}

/// The distance of two devices.
pub fn distance(a: &Place, b: &Place) -> Distance {
    let (Some(from), Some(to)) = (&a.path, &b.path) else { return Distance::Unknown };
    if from.host_bridge != to.host_bridge {
        // A kernel that names no node for either has one node.
        return if a.numa == b.numa { Distance::Node } else { Distance::Sys };
    }
    let shared = from.bridges.iter().zip(&to.bridges).take_while(|(a, b)| a == b).count();
    if shared == 0 {
        return Distance::Phb;
    }
    // Below the lowest shared port: a switch's own downstream port on either side is one switch still.
    let below = from.bridges.len().max(to.bridges.len()) - shared;
    if below <= 1 { Distance::Pix } else { Distance::Pxb }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(path: &str, numa: u32) -> Place {
        Place { path: Some(PciPath::parse(path).unwrap()), numa: Some(numa) }
    }

    #[test]
    fn distances_are_named_as_nvidia_smi_does() {
        let gpu = place("sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1b:00.0", 0);
        let cases = [
            ("sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:18:00.0", 0, Distance::Pix),
            ("sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1b:00.1", 0, Distance::Pix),
            (
                "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1c:00.0/0000:1d:00.0/0000:1e:00.0",
                0,
                Distance::Pxb,
            ),
            ("sys/devices/pci0000:15/0000:15:05.0/0000:29:00.0", 0, Distance::Phb),
            ("sys/devices/pci0000:37/0000:37:01.0/0000:40:00.0", 0, Distance::Node),
            ("sys/devices/pci0000:97/0000:97:01.0/0000:9a:00.0", 1, Distance::Sys),
        ];
        for (path, numa, want) in cases {
            assert_eq!(distance(&gpu, &place(path, numa)), want, "{path}");
            assert_eq!(distance(&place(path, numa), &gpu), want, "{path}");
        }
        assert_eq!(distance(&gpu, &Place::default()), Distance::Unknown);
    }

    #[test]
    fn paths_below_a_platform_device() {
        let path = "sys/devices/platform/soc/40000000.pcie/pci0002:00/0002:00:00.0/0002:01:00.0";
        let path = PciPath::parse(path).unwrap();
        assert_eq!((path.host_bridge.as_str(), path.bridges.len()), ("pci0002:00", 1));
        for bad in [
            "",
            "sys/devices/pci0000:15",
            "sys/devices/virtual/net/lo",
            "sys/devices/pci0000:15/x/0000:18:00.0",
        ] {
            assert_eq!(PciPath::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses() {
        for good in ["0000:18:00.0", "10000:01:1f.7", "ffff:ff:00.1"] {
            assert_eq!(PciAddress::parse(good).map(|address| address.to_string()).as_deref(), Some(good));
        }
        for bad in
            ["", "18:00.0", "0000:18:20.0", "0000:18:00.8", "0000:18:00", "0x00:18:00.0", "0:0000:18:00.0"]
        {
            assert_eq!(PciAddress::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn addresses_come_back(domain in 0u32..0x10000, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(PciAddress::parse(&address.to_string()), Some(address));
        }

        #[test]
        fn any_text_is_a_value_or_none(text in "\\PC{0,40}|[0-9a-f:./pcid]{0,60}") {
            let _ = (PciAddress::parse(&text), PciPath::parse(&text));
        }

        #[test]
        fn distance_has_no_direction(
            a in proptest::collection::vec(0u8..3, 1..5),
            b in proptest::collection::vec(0u8..3, 1..5),
            numa in proptest::array::uniform2(proptest::option::of(0u32..2)),
        ) {
            let make = |buses: &[u8], numa| {
                let parts: Vec<String> = buses.iter().map(|bus| format!("0000:{bus:02x}:00.0")).collect();
                let path = format!("sys/devices/pci0000:{:02x}/{}", buses[0], parts.join("/"));
                Place { path: PciPath::parse(&path), numa }
            };
            let (a, b) = (make(&a, numa[0]), make(&b, numa[1]));
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
        }
    }
}
