//! Which network interface bootstrap and agents use, and whether it belongs to a rail.

use super::error::JoinError;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Once;

/// What an interface specification looks like.
pub use shunt_settings::syntax::INTERFACE as SYNTAX;
/// Interfaces stacked deeper than this are not looked through.
const DEPTH_MAX: u32 = 8;

/// A choice of interfaces, in NVSHMEM's and NCCL's syntax: a list of prefixes split by commas; `^` in front of the
/// list excludes them, `=` (behind `^`, if both) takes names exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceSpec {
    exclude: bool,
    exact: bool,
    names: Vec<String>,
}

impl FromStr for InterfaceSpec {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (exclude, text) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (exact, text) = text.strip_prefix('=').map_or((false, text), |rest| (true, rest));
        let names: Vec<String> = text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        // Names of interfaces hold no blanks and no slash, and have 15 letters at most.
        let good = |name: &String| {
            name.len() <= 15 && name.bytes().all(|b| b.is_ascii_graphic() && !b"/^=".contains(&b))
        };
        match !names.is_empty() && names.iter().all(good) {
            true => Ok(Self { exclude, exact, names }),
            false => Err(SYNTAX),
        }
    }
}

impl fmt::Display for InterfaceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |on: bool, sign| if on { sign } else { "" };
        write!(f, "{}{}{}", sign(self.exclude, "^"), sign(self.exact, "="), self.names.join(","))
    }
}

impl InterfaceSpec {
    /// True if it takes this interface.
    pub fn takes(&self, name: &str) -> bool {
        let hit = |want: &String| if self.exact { name == want } else { name.starts_with(want.as_str()) };
        self.names.iter().any(hit) != self.exclude
    }
}

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// One of its addresses.
    pub ip: IpAddr,
}

/// The addresses of this machine's interfaces that are up, in the system's order.
pub fn interfaces() -> Result<Vec<Interface>, JoinError> {
    use nix::net::if_::InterfaceFlags;
    let all = nix::ifaddrs::getifaddrs()
        .map_err(|error| JoinError::Interfaces { detail: error.desc().to_owned() })?;
    let up = all.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP));
    let found = up.filter_map(|one| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = || address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        let ip = v4.or_else(v6)?;
        // A link-local address means nothing without its interface, which a peer does not have.
        let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        (!link_local).then_some(Interface { name: one.interface_name, ip })
    });
    Ok(found.collect())
}

/// The address to listen on: of the first interface that `spec` takes and that speaks as `like` does.
pub fn choose(spec: &InterfaceSpec, all: &[Interface], like: IpAddr) -> Result<Interface, JoinError> {
    let fits = |one: &&Interface| one.ip.is_ipv4() == like.is_ipv4();
    // What is excluded says nothing of loopback, which no other machine reaches.
    let reachable = |one: &&Interface| like.is_loopback() || !one.ip.is_loopback();
    let mut taken = all.iter().filter(|one| spec.takes(&one.name)).filter(fits).filter(reachable);
    taken.next().cloned().ok_or_else(|| JoinError::NoInterface {
        spec: spec.to_string(),
        have: BTreeSet::from_iter(all.iter().map(|one| one.name.clone())).into_iter().collect(),
    })
}

/// The interface of the IPv4 default route with the smallest metric, from the text of `/proc/net/route`.
pub fn default_route(table: &str) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (name, to, flags, metric, mask) =
            (fields.first()?, fields.get(1)?, fields.get(3)?, fields.get(6)?, fields.get(7)?);
        let up = u32::from_str_radix(flags, 16).ok()? & 1 != 0;
        let default = *to == "00000000" && *mask == "00000000";
        (up && default).then_some((metric.parse::<u32>().ok()?, (*name).to_owned()))
    });
    routes.min().map(|(_, name)| name)
}

/// Interfaces of this machine's containers and virtual machines, by how their names begin: their addresses lead to no
/// other machine, and are often the same on all.
const INSIDE: [&str; 9] = ["docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxc"];

/// The address that other machines are told, where `route` names the interface of the default route. Without one: the
/// first that is not loopback, those that lead out of this machine first, IPv4 before IPv6. None: loopback alone is up.
fn reachable(all: &[Interface], route: Option<&str>) -> Option<IpAddr> {
    let routed = all.iter().find(|one| one.ip.is_ipv4() && Some(one.name.as_str()) == route);
    let inside = |one: &Interface| INSIDE.iter().any(|prefix| one.name.starts_with(prefix));
    let others = all.iter().filter(|one| !one.ip.is_loopback());
    routed.or_else(|| others.min_by_key(|one| (inside(one), !one.ip.is_ipv4()))).map(|one| one.ip)
}

/// The address of a root that has no address yet: the interface of `spec`, else that of the default route, else another
/// that is up. Where there is loopback alone, that is taken, and said once.
pub fn own_address(spec: Option<&InterfaceSpec>) -> Result<IpAddr, JoinError> {
    let all = interfaces()?;
    if let Some(spec) = spec {
        return choose(spec, &all, IpAddr::V4(Ipv4Addr::UNSPECIFIED)).map(|one| one.ip);
    }
    let route = std::fs::read_to_string("/proc/net/route").ok().and_then(|table| default_route(&table));
    Ok(reachable(&all, route.as_deref()).unwrap_or_else(|| {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            shunt_settings::complain!(
                "shunt: address of the job: expected an interface besides loopback, got none that is up: 127.0.0.1 is \
                 taken, which no other machine reaches; NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME names an interface"
            );
        });
        Ipv4Addr::LOCALHOST.into()
    }))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The RDMA device that `interface` belongs to, itself or through what lies below it (a bond, a VLAN, a bridge).
/// `sysfs` is `/sys`, or a fixture.
pub fn rail_of(sysfs: &Path, interface: &str) -> Option<String> {
    let class = sysfs.join("class/infiniband");
    let devices: Vec<(String, Vec<String>)> = names(&class)
        .into_iter()
        .map(|device| {
            let own = names(&class.join(&device).join("device/net"));
            (device, own)
        })
        .collect();
    find_rail(sysfs, interface, &devices, DEPTH_MAX)
}

fn find_rail(sysfs: &Path, interface: &str, devices: &[(String, Vec<String>)], depth: u32) -> Option<String> {
    if let Some((device, _)) = devices.iter().find(|(_, own)| own.iter().any(|name| name == interface)) {
        return Some(device.clone());
    }
    let below = depth.checked_sub(1)?;
    let links = names(&sysfs.join("class/net").join(interface));
    let mut lower = links.iter().filter_map(|name| name.strip_prefix("lower_"));
    lower.find_map(|name| find_rail(sysfs, name, devices, below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    fn at(name: &str, ip: &str) -> Interface {
        Interface { name: name.to_owned(), ip: ip.parse().unwrap() }
    }

    #[test]
    fn prefixes_exclusions_and_exact_names() {
        let cases = [
            ("eth", "eth1", true),
            ("eth", "weth1", false),
            ("eth,ib", "ib0", true),
            ("=eth", "eth1", false),
            ("=eth1", "eth1", true),
            ("^docker,lo", "lo", false),
            ("^docker,lo", "eth0", true),
            ("^=eth1", "eth1", false),
            ("^=eth1", "eth10", true),
        ];
        for (spec, name, takes) in cases {
            let parsed: InterfaceSpec = spec.parse().unwrap();
            assert_eq!((parsed.takes(name), parsed.to_string().as_str()), (takes, spec), "{spec} {name}");
        }
        for spec in ["", "^", "=", "^=", ",", "a b", "=^eth0", "a/b", "a-name-of-sixteen"] {
            assert_eq!(spec.parse::<InterfaceSpec>(), Err(SYNTAX), "{spec}");
        }
    }

    #[test]
    fn the_first_that_fits_is_chosen() {
        let all =
            [at("lo", "127.0.0.1"), at("eth0", "fd00::1"), at("eth0", "10.0.0.1"), at("ib0", "10.1.0.1")];
        let out: IpAddr = "10.9.9.9".parse().unwrap();
        let choose = |spec: &str, like| choose(&spec.parse().unwrap(), &all, like);
        assert_eq!(choose("^ib", out).unwrap(), all[2]);
        assert_eq!(choose("ib", out).unwrap(), all[3]);
        assert_eq!(choose("eth", "fd00::9".parse().unwrap()).unwrap(), all[1]);
        assert_eq!(choose("lo", "127.0.0.1".parse().unwrap()).unwrap(), all[0]);
        let error = choose("wlan", out).unwrap_err().to_string();
        assert!(error.contains("wlan") && error.contains("eth0") && error.contains("ib0"), "{error}");
    }

    #[test]
    fn the_default_route_with_the_smallest_metric() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth9\t00000000\t0101A8C0\t0002\t0\t0\t1\t00000000\t0\t0\t0\n\
                     eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";
        assert_eq!(default_route(table).as_deref(), Some("eth0"));
        assert_eq!(default_route("Iface\nshort line\n"), None);
        assert_eq!(default_route(""), None);
    }

    /// Nothing but loopback is announced to other machines only where there is nothing else.
    #[test]
    fn without_a_default_route_another_address_than_loopback_is_told() {
        let [lo, docker] = [at("lo", "127.0.0.1"), at("docker0", "172.17.0.1")];
        let [six, ib, eth] = [at("eth0", "fd00::1"), at("ib0", "10.1.0.1"), at("eth1", "10.0.0.1")];
        let all = [lo.clone(), docker.clone(), six.clone(), ib.clone(), eth.clone()];
        assert_eq!(reachable(&all, Some("eth1")), Some(eth.ip), "that of the default route");
        assert_eq!(reachable(&all, None), Some(ib.ip), "the first that leads out");
        assert_eq!(reachable(&all, Some("eth0")), Some(ib.ip), "a route over an interface without IPv4");
        assert_eq!(reachable(&all[..3], None), Some(six.ip));
        assert_eq!(reachable(&all[..2], None), Some(docker.ip));
        assert_eq!(reachable(&all[..1], None), None);
    }

    #[test]
    fn this_machine_has_loopback() {
        let all = interfaces().unwrap();
        assert!(all.iter().any(|one| one.ip.is_loopback()), "{all:?}");
    }

    struct Fixture(PathBuf);

    impl Fixture {
        fn new() -> Self {
            let secret = super::super::secret::hex(&std::process::id().to_le_bytes());
            let path = std::env::temp_dir().join(format!("shunt-sysfs-{secret}"));
            for (device, net) in [("mlx5_0", "eth1"), ("mlx5_bond_0", "eth2")] {
                fs::create_dir_all(path.join("class/infiniband").join(device).join("device/net").join(net))
                    .unwrap();
            }
            for lower in
                ["bond0/lower_eth2", "bond0.7/lower_bond0", "eth0", "eth0.5/lower_eth0", "loop/lower_loop"]
            {
                fs::create_dir_all(path.join("class/net").join(lower)).unwrap();
            }
            Self(path)
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn rails_are_seen_through_bonds_and_vlans() {
        let fixture = Fixture::new();
        let cases = [
            ("eth1", Some("mlx5_0")),
            ("bond0", Some("mlx5_bond_0")),
            ("bond0.7", Some("mlx5_bond_0")),
            ("eth0", None),
            ("eth0.5", None),
            ("loop", None),
            ("gone", None),
        ];
        for (name, rail) in cases {
            assert_eq!(rail_of(&fixture.0, name).as_deref(), rail, "{name}");
        }
        assert_eq!(rail_of(Path::new("/nonexistent"), "eth1"), None);
    }
}
