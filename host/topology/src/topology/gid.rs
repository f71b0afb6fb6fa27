//! Which entry of a port's GID table is used. Pure.
//!
//! On RoCE: RoCE v2 made from an IPv4 address, unless the environment wishes otherwise; the lowest index of the best
//! kind. NVSHMEM's search prefers the same. An index may move when a port flaps (NVIDIA/nccl#2183), so the agent asks
//! for it again by value; this is the choice at start.

use super::select::GidWish;
use crate::discover::{Gid, GidEntry, GidKind, LinkLayer, Port};
use std::net::{IpAddr, Ipv6Addr};

/// A chosen entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidChoice {
    /// Index.
    pub index: u32,
    /// Value.
    pub gid: Gid,
    /// Kind.
    pub kind: GidKind,
    /// What it lacks of the wish; empty if nothing.
    pub short_of: Vec<&'static str>,
}

/// A port without a GID that can be used: what was met, and what would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoGid(pub String);

fn address(gid: &Gid) -> IpAddr {
    gid.ipv4().map_or(IpAddr::V6(Ipv6Addr::from(gid.0)), IpAddr::V4)
}

/// What an entry lacks, worst first.
fn lacks(entry: &GidEntry, wish: &GidWish) -> Vec<&'static str> {
    let version = match wish.roce_version {
        1 => GidKind::InfiniBandOrRoce1,
        _ => GidKind::Roce2,
    };
    let address = address(&entry.gid);
    let mut out = Vec::new();
    if entry.kind != version {
        out.push(if wish.roce_version == 1 { "RoCE v1" } else { "RoCE v2" });
    }
    if address.is_ipv6() != wish.ipv6 {
        out.push(if wish.ipv6 { "an IPv6 address" } else { "an IPv4 address" });
    }
    if wish.range.is_some_and(|range| !range.holds(address)) {
        out.push("an address in NVSHMEM_IB_ADDR_RANGE");
    }
    // Made from the MAC alone: works inside one broadcast domain only.
    if out.is_empty() && wish.ipv6 && entry.gid.is_link_local() {
        out.push("an address that is routed");
    }
    out
}

/// Chooses.
pub fn choose(port: &Port, wish: &GidWish) -> Result<GidChoice, NoGid> {
    let choice = |entry: &GidEntry, short_of| GidChoice {
        index: entry.index,
        gid: entry.gid,
        kind: entry.kind,
        short_of,
    };
    if let Some(index) = wish.index {
        let entry = port.gids.iter().find(|entry| entry.index == index).ok_or_else(|| {
            let have: Vec<String> = port.gids.iter().map(|entry| entry.index.to_string()).collect();
            NoGid(format!(
                "NVSHMEM_IB_GID_INDEX={index} is empty here: expected one of {}",
                if have.is_empty() { "none".into() } else { have.join(", ") }
            ))
        })?;
        return Ok(choice(entry, Vec::new()));
    }
    if port.link != LinkLayer::Ethernet {
        // InfiniBand: entry 0 is the port's own, and needed only where a global route header is.
        let entry = port.gids.iter().min_by_key(|entry| entry.index);
        return entry
            .map(|entry| choice(entry, Vec::new()))
            .ok_or_else(|| NoGid("the GID table is empty".into()));
    }
    let best = port.gids.iter().min_by_key(|entry| {
        let lacks = lacks(entry, wish);
        // The version first: a v1 and a v2 end do not understand each other.
        (
            entry.kind == GidKind::Unknown,
            lacks.first().is_some_and(|what| what.starts_with("RoCE")),
            lacks.len(),
            entry.index,
        )
    });
    let entry = best.ok_or_else(|| {
        NoGid("the GID table is empty: give the port's network interface an address, or set it up".into())
    })?;
    Ok(choice(entry, lacks(entry, wish)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::PortState;
    use crate::topology::select::AddressRange;

    fn port(link: LinkLayer, gids: &[(u32, &str, GidKind)]) -> Port {
        let entry = |(index, gid, kind): &(u32, &str, GidKind)| GidEntry {
            index: *index,
            gid: Gid(gid.parse::<Ipv6Addr>().unwrap().octets()),
            kind: *kind,
            netdev: None,
        };
        Port {
            number: 1,
            state: PortState::Active,
            physical: "LinkUp".into(),
            rate: None,
            link,
            lid: 0,
            sm_lid: 0,
            pkeys: Vec::new(),
            gids: gids.iter().map(entry).collect(),
        }
    }

    const V1: GidKind = GidKind::InfiniBandOrRoce1;
    const V2: GidKind = GidKind::Roce2;

    /// What mlx5 shows for one interface with an IPv4 and a routed IPv6 address.
    fn usual() -> Port {
        let (mac, v4, v6) = ("fe80::a288:c2ff:fe3d:3f7a", "::ffff:10.0.0.1", "fd00::1");
        let gids = [(0, mac, V1), (1, mac, V2), (2, v4, V1), (3, v4, V2), (4, v6, V1), (5, v6, V2)];
        port(LinkLayer::Ethernet, &gids)
    }

    #[test]
    fn version_2_over_ipv4_is_preferred() {
        let chosen = choose(&usual(), &GidWish::default()).unwrap();
        assert_eq!((chosen.index, chosen.short_of.len()), (3, 0));
    }

    #[test]
    fn wishes_are_followed() {
        let wish = GidWish::default();
        let range = |text| AddressRange::parse(text);
        let cases = [
            (GidWish { roce_version: 1, ..wish }, 2),
            (GidWish { ipv6: true, range: range("fd00::/8"), ..wish }, 5),
            (GidWish { ipv6: true, ..wish }, 5),
            (GidWish { index: Some(1), ..wish }, 1),
        ];
        for (wish, want) in cases {
            assert_eq!(choose(&usual(), &wish).unwrap().index, want, "{wish:?}");
        }
        let out = choose(&usual(), &GidWish { range: range("192.168.0.0/16"), ..wish }).unwrap();
        assert_eq!((out.index, out.short_of), (3, vec!["an address in NVSHMEM_IB_ADDR_RANGE"]));
    }

    #[test]
    fn less_than_the_wish_is_said() {
        let only_v1 = port(LinkLayer::Ethernet, &[(0, "fe80::1", V1), (1, "::ffff:10.0.0.1", V1)]);
        let chosen = choose(&only_v1, &GidWish::default()).unwrap();
        assert_eq!((chosen.index, chosen.short_of), (1, vec!["RoCE v2"]));
        let error = choose(&usual(), &GidWish { index: Some(9), ..GidWish::default() }).unwrap_err();
        assert!(error.0.contains("NVSHMEM_IB_GID_INDEX=9") && error.0.contains("0, 1, 2"), "{error:?}");
        assert!(choose(&port(LinkLayer::Ethernet, &[]), &GidWish::default()).is_err());
    }

    #[test]
    fn infiniband_takes_its_first_entry() {
        let port = port(LinkLayer::InfiniBand, &[(0, "fe80::1", V1), (1, "fec0::1", V1)]);
        assert_eq!(choose(&port, &GidWish::default()).unwrap().index, 0);
    }
}
