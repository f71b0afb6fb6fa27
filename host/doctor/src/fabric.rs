//! What lies between machines: the interface of bootstrap and agents, flow control.

use crate::check::{Check, Machine, Verdict};
use shunt_bootstrap::tcp::interface::{InterfaceSpec, default_route};
use shunt_topology::discover::LinkLayer;

pub(super) fn checks(machine: &Machine<'_>) -> Vec<Check> {
    vec![bootstrap(machine), flow_control(machine)]
}

const VARIABLE: &str = "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME";

/// Agents must reach each other while a rail is down: their interface should not be a rail's.
fn bootstrap(machine: &Machine<'_>) -> Check {
    const NAME: &str = "agents' interface";
    let spec = (machine.lookup)(VARIABLE).and_then(|text| text.parse::<InterfaceSpec>().ok());
    let (names, from): (Vec<String>, &str) = match &spec {
        Some(spec) => {
            let all = machine.root.list("sys/class/net");
            (all.into_iter().filter(|name| name != "lo" && spec.takes(name)).collect(), VARIABLE)
        }
        None => {
            let route = machine.read("proc/net/route").and_then(|table| default_route(&table));
            (route.into_iter().collect(), "default route")
        }
    };
    let Some(first) = names.first() else {
        let met = if spec.is_some() { "none of that name".into() } else { "no default route".to_owned() };
        return Check::new(NAME, Verdict::Warn, format!("{met} ({from})"))
            .fix(format!("name one in {VARIABLE}; processes of one machine need none"));
    };
    let rails = machine.topology.rails.iter();
    let shared = rails.clone().find(|rail| {
        let netdevs = &machine.inventory.rdma[rail.device].netdevs;
        netdevs.iter().any(|netdev| netdev.name == *first && netdev.port == rail.port)
    });
    match shared {
        Some(rail) => {
            Check::new(NAME, Verdict::Warn, format!("{first} ({from}) is on the rail {}", rail.name))
                .fix(format!("a port that dies takes the agents' words with it: name another in {VARIABLE}"))
        }
        None => Check::ok(NAME, format!("{first} ({from})")),
    }
}

/// Priority flow control and DSCP lie in NIC and switch settings that sysfs does not show.
fn flow_control(machine: &Machine<'_>) -> Check {
    const NAME: &str = "PFC, DSCP";
    if !machine.topology.rails.iter().any(|rail| rail.link == LinkLayer::Ethernet) {
        return Check::not_applicable(NAME, "no RoCE port");
    }
    Check::new(NAME, Verdict::ByHand, "cannot be read from here")
        .fix("mlnx_qos -i NETDEV (trust state, PFC per priority); cma_roce_tos -d DEVICE; the switches alike")
}
