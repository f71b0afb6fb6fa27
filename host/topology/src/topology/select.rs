//! Which devices a job may use and how a GID is chosen: NVSHMEM's variables of the same meaning. Pure.
//!
//! Syntax and defaults are those of NVSHMEM's public documentation ("Environment Variables"): `NVSHMEM_HCA_LIST` is a
//! list of `hca_name:port` where a `^` in front excludes, `NVSHMEM_HCA_PE_MAPPING` a list of `hca_name:port:count`. A
//! port or a count may be left out: any port, 1. NVSHMEM reads a bad number as 0 and goes on; here it is an error.

use crate::discover::decimal;
use shunt_settings::{ConfigError, Lookup, parse_bool};
use std::net::IpAddr;

/// A device, or one port of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HcaName {
    /// Name of the device.
    pub device: String,
    /// Port; `None`: all.
    pub port: Option<u32>,
}

impl HcaName {
    /// Whether a port is meant.
    pub fn names(&self, device: &str, port: u32) -> bool {
        self.device == device && self.port.is_none_or(|want| want == port)
    }

    fn parse(text: &str) -> Option<Self> {
        let (device, port) = match text.split_once(':') {
            Some((device, port)) => (device, Some(decimal(port).filter(|port| (1..=255).contains(port))?)),
            None => (text, None),
        };
        let right = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let named = !device.is_empty() && device.len() < 64 && device.chars().all(right);
        named.then(|| Self { device: device.to_owned(), port })
    }
}

impl std::fmt::Display for HcaName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.device),
            None => f.write_str(&self.device),
        }
    }
}

/// `NVSHMEM_HCA_LIST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HcaList {
    /// Whether the named are left out, and not the others.
    pub exclude: bool,
    /// Names.
    pub names: Vec<HcaName>,
}

impl HcaList {
    /// Reads the variable's value.
    pub fn parse(text: &str) -> Option<Self> {
        let exclude = text.starts_with('^');
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        // A caret counts for the whole list; one on a later entry alone is no list NVSHMEM documents.
        let names = entries.map(|entry| match entry.strip_prefix('^') {
            Some(rest) => exclude.then(|| HcaName::parse(rest))?,
            None => HcaName::parse(entry),
        });
        let names: Vec<HcaName> = names.collect::<Option<_>>()?;
        (!names.is_empty()).then_some(Self { exclude, names })
    }
}

/// An entry of `NVSHMEM_HCA_PE_MAPPING`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HcaSlot {
    /// Port.
    pub name: HcaName,
    /// PEs that get it.
    pub count: u32,
}

/// Most PEs that one entry may name.
const COUNT_MAX: u32 = 64;

/// Reads `NVSHMEM_HCA_PE_MAPPING`.
pub fn parse_pe_mapping(text: &str) -> Option<Vec<HcaSlot>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let slots = entries.map(|entry| {
        let (name, count) = match entry.match_indices(':').nth(1) {
            Some((at, _)) => (&entry[..at], decimal(&entry[at + 1..])?),
            None => (entry, 1),
        };
        let fits = (1..=COUNT_MAX).contains(&count);
        fits.then(|| Some(HcaSlot { name: HcaName::parse(name)?, count }))?
    });
    let slots: Vec<HcaSlot> = slots.collect::<Option<_>>()?;
    (!slots.is_empty()).then_some(slots)
}

/// Addresses that a GID may be made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// Network.
    pub network: IpAddr,
    /// Bits of it that count.
    pub bits: u32,
}

impl AddressRange {
    /// Reads `10.0.0.0/8` or `fd00::/16`.
    pub fn parse(text: &str) -> Option<Self> {
        let (network, bits) = text.split_once('/')?;
        let network: IpAddr = network.parse().ok()?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = decimal(bits).filter(|bits| *bits <= most)?;
        Some(Self { network, bits })
    }

    /// Whether an address lies in it. `::/0` is any address, as it was NVSHMEM's default up to 3.5.
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            _ if self.bits == 0 => true,
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()) >> (32 - self.bits) == 0,
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()) >> (128 - self.bits) == 0,
            _ => false,
        }
    }
}

/// How a GID is chosen on RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidWish {
    /// `NVSHMEM_IB_GID_INDEX`, if not negative: this entry and no other.
    pub index: Option<u32>,
    /// `NVSHMEM_IB_ADDR_FAMILY` is `AF_INET6`.
    pub ipv6: bool,
    /// `NVSHMEM_IB_ADDR_RANGE`.
    pub range: Option<AddressRange>,
    /// `NVSHMEM_IB_ROCE_VERSION_NUM`: 1 or 2.
    pub roce_version: u32,
}

impl Default for GidWish {
    fn default() -> Self {
        Self { index: None, ipv6: false, range: None, roce_version: 2 }
    }
}

/// What the environment says of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// `NVSHMEM_HCA_LIST`.
    pub list: Option<HcaList>,
    /// `NVSHMEM_HCA_PE_MAPPING`; not read where there is a list, as in NVSHMEM.
    pub mapping: Vec<HcaSlot>,
    /// `NVSHMEM_ENABLE_NIC_PE_MAPPING`: by rank and not by distance.
    pub by_rank: bool,
    /// `NVSHMEM_HCA_PREFIX`: part of a name, excluded with `^`; `None` is NVSHMEM's own `^smi`.
    pub prefix: Option<String>,
    /// GID.
    pub gid: GidWish,
    /// Both list and mapping were given, and the list won.
    pub mapping_ignored: bool,
}

impl Selection {
    /// Reads the variables through `lookup`. An empty value counts as not set.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let env = Lookup(&set);
        let list = env.parse("NVSHMEM_HCA_LIST", HcaList::parse)?;
        let mapping = env.parse("NVSHMEM_HCA_PE_MAPPING", parse_pe_mapping)?.unwrap_or_default();
        let mapping_ignored = list.is_some() && !mapping.is_empty();
        let wish = GidWish::default();
        let index = env.parse("NVSHMEM_IB_GID_INDEX", |text| match text {
            "-1" => Some(None),
            text => decimal(text).filter(|index| *index <= 255).map(Some),
        })?;
        let ipv6 = env.parse("NVSHMEM_IB_ADDR_FAMILY", |text| match text {
            "AF_INET" => Some(false),
            "AF_INET6" => Some(true),
            _ => None,
        })?;
        let version = |text: &str| decimal(text).filter(|version| (1..=2).contains(version));
        Ok(Self {
            list,
            mapping: if mapping_ignored { Vec::new() } else { mapping },
            by_rank: env.parse("NVSHMEM_ENABLE_NIC_PE_MAPPING", parse_bool)?.unwrap_or(false),
            prefix: env.parse("NVSHMEM_HCA_PREFIX", |text| (text != "^").then(|| text.to_owned()))?,
            gid: GidWish {
                index: index.flatten(),
                ipv6: ipv6.unwrap_or(wish.ipv6),
                range: env.parse("NVSHMEM_IB_ADDR_RANGE", AddressRange::parse)?,
                roce_version: env.parse("NVSHMEM_IB_ROCE_VERSION_NUM", version)?.unwrap_or(wish.roce_version),
            },
            mapping_ignored,
        })
    }

    /// Whether device names let this one through (`NVSHMEM_HCA_PREFIX`; `^smi` where it is not set).
    pub fn prefix_allows(&self, device: &str) -> bool {
        let prefix = self.prefix.as_deref().unwrap_or("^smi");
        match prefix.strip_prefix('^') {
            Some(excluded) => !device.contains(excluded),
            None => device.contains(prefix),
        }
    }

    /// Whether list or mapping let a port through. NVSHMEM applies both also where ranks do not choose the NIC.
    pub fn allows(&self, device: &str, port: u32) -> bool {
        match (&self.list, self.mapping.is_empty()) {
            (Some(list), _) => list.names.iter().any(|name| name.names(device, port)) != list.exclude,
            (None, false) => self.mapping.iter().any(|slot| slot.name.names(device, port)),
            (None, true) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Selection, ConfigError> {
        Selection::from_lookup(&|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn nothing_set_lets_everything_through() {
        let selection = with(&[("NVSHMEM_HCA_LIST", ""), ("NVSHMEM_IB_GID_INDEX", "-1")]).unwrap();
        assert_eq!(selection, Selection::default());
        assert!(selection.allows("mlx5_0", 1) && selection.prefix_allows("mlx5_0"));
        assert!(!selection.prefix_allows("smi0"));
    }

    #[test]
    fn lists_name_or_leave_out() {
        let only = with(&[("NVSHMEM_HCA_LIST", "mlx5_1:1, mlx5_2:2,mlx5_7,")]).unwrap();
        for (device, port, want) in
            [("mlx5_1", 1, true), ("mlx5_1", 2, false), ("mlx5_2", 2, true), ("mlx5_7", 9, true)]
        {
            assert_eq!(only.allows(device, port), want, "{device}:{port}");
        }
        let without = with(&[("NVSHMEM_HCA_LIST", "^mlx5_1:1,^mlx5_2")]).unwrap();
        assert!(without.allows("mlx5_0", 1) && without.allows("mlx5_1", 2) && !without.allows("mlx5_2", 3));
    }

    #[test]
    fn a_list_beats_a_mapping() {
        let both = [("NVSHMEM_HCA_LIST", "mlx5_0"), ("NVSHMEM_HCA_PE_MAPPING", "mlx5_1:1:2")];
        let selection = with(&both).unwrap();
        assert!(selection.mapping_ignored && selection.mapping.is_empty());
        let mapping = with(&[("NVSHMEM_HCA_PE_MAPPING", "mlx5_0:1:2,mlx5_0:2:3")]).unwrap().mapping;
        assert_eq!((mapping.len(), mapping[1].name.port, mapping[1].count), (2, Some(2), 3));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        let cases = [
            ("NVSHMEM_HCA_LIST", "mlx5_0:one"),
            ("NVSHMEM_HCA_LIST", "mlx5_0:0"),
            ("NVSHMEM_HCA_LIST", "mlx5_0,^mlx5_1"),
            ("NVSHMEM_HCA_LIST", "mlx5_0:1:2"),
            ("NVSHMEM_HCA_LIST", "^"),
            ("NVSHMEM_HCA_LIST", "mlx5 0"),
            ("NVSHMEM_HCA_PE_MAPPING", "mlx5_0:1:0"),
            ("NVSHMEM_HCA_PE_MAPPING", "mlx5_0:1:2:3"),
            ("NVSHMEM_HCA_PE_MAPPING", "mlx5_0:1:many"),
            ("NVSHMEM_HCA_PE_MAPPING", ","),
            ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "maybe"),
            ("NVSHMEM_HCA_PREFIX", "^"),
            ("NVSHMEM_IB_GID_INDEX", "-2"),
            ("NVSHMEM_IB_GID_INDEX", "256"),
            ("NVSHMEM_IB_ADDR_FAMILY", "inet"),
            ("NVSHMEM_IB_ADDR_RANGE", "10.0.0.0"),
            ("NVSHMEM_IB_ADDR_RANGE", "10.0.0.0/33"),
            ("NVSHMEM_IB_ROCE_VERSION_NUM", "3"),
        ];
        for (name, value) in cases {
            let error = with(&[(name, value)]).unwrap_err();
            assert_eq!((error.variable.as_str(), error.met.as_str()), (name, value));
            assert!(error.to_string().contains(", got "), "{error}");
        }
    }

    #[test]
    fn ranges() {
        let range = AddressRange::parse("10.1.0.0/16").unwrap();
        assert!(range.holds("10.1.2.3".parse().unwrap()) && !range.holds("10.2.0.1".parse().unwrap()));
        assert!(!range.holds("fd00::1".parse().unwrap()));
        assert!(AddressRange::parse("::/0").unwrap().holds("10.2.0.1".parse().unwrap()));
        assert!(AddressRange::parse("fd00::/8").unwrap().holds("fd12::1".parse().unwrap()));
        assert!(!AddressRange::parse("fd00::1/128").unwrap().holds("fd00::2".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_none(text in "\\PC{0,40}|[mlx5_0-9:,^ ]{0,40}|[0-9a-f:./]{0,40}") {
            let _ = (HcaList::parse(&text), parse_pe_mapping(&text), AddressRange::parse(&text));
        }

        #[test]
        fn names_come_back(
            names in proptest::collection::vec(("[a-z][a-z0-9_]{0,9}", proptest::option::of(1u32..256)), 1..9),
        ) {
            let names: Vec<HcaName> =
                names.into_iter().map(|(device, port)| HcaName { device, port }).collect();
            let text: Vec<String> = names.iter().map(HcaName::to_string).collect();
            let list = HcaList::parse(&text.join(",")).unwrap();
            prop_assert_eq!(&list.names, &names);
            for name in &names {
                let meant = |entry: &HcaName| entry.names(&name.device, name.port.unwrap_or(1));
                prop_assert!(list.names.iter().any(meant));
            }
        }
    }
}
