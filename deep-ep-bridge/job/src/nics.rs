//! The NICs of a job's ranks, by the same choice as the library in NVSHMEM's place makes it.

use crate::error::NoJob;
use crate::options::{JobOptions, RAIL_GBPS};
use shunt::choice::{software, through_libibverbs};
use shunt::machine::{Found, MachinePorts, Rails};
use shunt::{LINK_NS, OpenNics, SoftNics};
use shunt_host::config::NicKind;
use shunt_soft_nic::uplink::{UnixUplink, UplinkError};
use shunt_soft_nic::{Fabric, FabricConfig, NicConfig, RailAt};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What `SHUNT_NIC`, or an option, has come to; devices are opened once to see that they can be.
pub(crate) fn find(options: &JobOptions) -> Result<Found, NoJob> {
    let lookup = |name: &str| std::env::var(name).ok();
    Ok(Found::find(options.nic, Rails::AtMost(options.rails), &lookup)?)
}

/// Who has the same has the same ports; empty for software.
pub(crate) fn identity(found: &Found) -> String {
    match found {
        Found::Soft(_) => String::new(),
        Found::Mlx5(machine) => machine.ports().identity(),
    }
}

/// As `SHUNT_NIC` has it.
pub(crate) fn name(found: &Found) -> &'static str {
    if matches!(found, Found::Soft(_)) { "soft NICs" } else { "mlx5" }
}

/// Says what the NICs are that so many ranks share: nothing of software that was asked for.
pub(crate) fn tell(found: &Found, asked: NicKind, ranks: usize) {
    let lines = match found {
        Found::Soft(_) if asked == NicKind::Soft => Vec::new(),
        Found::Soft(why) => vec![software(why)],
        Found::Mlx5(machine) => {
            let notes = machine.ports().notes().iter().cloned();
            notes.chain([through_libibverbs(&machine.devices(ranks))]).collect()
        }
    };
    lines.iter().for_each(|line| shunt_host::complain!("shunt: {line}"));
}

/// Soft NICs of these ranks. `attach` may join them to those of other processes.
pub(crate) fn soft(
    options: &JobOptions,
    own: Range<u32>,
    attach: impl FnOnce(&mut Fabric) -> Result<(), NoJob>,
) -> Result<OpenNics, NoJob> {
    let seed = options.seed.wrapping_add(u64::from(own.start));
    let all = own.flat_map(|pe| (0..options.rails).map(move |rail| RailAt { pe, rail }));
    let nics = all.map(|at| {
        let config = NicConfig::new(format!("mlx5_{}", at.rail), at.pe, at.rail);
        (at, NicConfig { rail_gbps: Some(RAIL_GBPS), ..config })
    });
    let config = FabricConfig { link_ns: LINK_NS, seed };
    Ok(OpenNics::Soft(Arc::new(SoftNics::with(config, nics, attach)?)))
}

/// Joins the soft NICs of this process to those of the others of its machine.
pub(crate) fn attach(fabric: &mut Fabric, name: &str, lifetime: Duration) -> Result<(), NoJob> {
    let refuse = |error: UplinkError| NoJob::Fabric { name: name.to_owned(), why: error.to_string() };
    let uplink = UnixUplink::open(name, &[]).map_err(refuse)?;
    fabric.attach(Box::new(uplink.with_lifetime(lifetime))).map_err(refuse)
}

/// Ports of this machine for those of its `mates` that live here, and what a rail of them carries, in Gb/s.
pub(crate) fn ports(
    machine: &MachinePorts,
    mates: &[u32],
    own: &Range<u32>,
) -> Result<(OpenNics, f64), NoJob> {
    let open = OpenNics::Mlx5(machine.take(mates, |pe| own.contains(&pe))?);
    let named = machine.ports().slowest_gbps();
    // Soft NICs move what the cores give them, whatever rate their ports name.
    let gbps = if open.are_soft() || named == 0.0 { RAIL_GBPS } else { named };
    Ok((open, gbps))
}
