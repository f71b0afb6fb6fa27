//! Which NICs a process has: a number of its fabric that no other live process has gives their addresses.

use super::StartError;
use crate::devices::Interface;
use crate::settings::Settings;
use shunt_soft_nic::{NicConfig, RoceOptions, RoceUplink, UnixUplink, Uplink, UplinkError};
use std::net::Ipv4Addr;
use std::path::Path;

/// Processes of a fabric at most.
const MOST: u32 = 4096;
/// Latency of one firmware command: of the order of what a mailbox costs, so that set-up is not a matter of waiting.
const FIRMWARE_NS: u64 = 2_000;
/// From a cause to its event.
const EVENT_NS: u64 = 500;

/// What was claimed.
pub(super) struct Claim {
    /// The number.
    pub(super) slot: u32,
    /// The NICs, each with the network interface that its GID is made from.
    pub(super) nics: Vec<(NicConfig, Interface)>,
    /// The way to the others.
    pub(super) uplink: Box<dyn Uplink>,
}

/// The interface that reaches this machine alone, as the machine's fabric does.
fn loopback() -> Interface {
    ("lo".into(), 1)
}

/// The interface with an address.
fn interface_of(address: Ipv4Addr) -> Interface {
    let Ok(mut all) = nix::ifaddrs::getifaddrs() else { return loopback() };
    let has = |entry: &nix::ifaddrs::InterfaceAddress| {
        entry
            .address
            .as_ref()
            .and_then(|found| found.as_sockaddr_in())
            .is_some_and(|found| found.ip() == address)
    };
    let name = all.find(has).map(|entry| entry.interface_name);
    let numbered = name.and_then(|name| {
        let number = nix::net::if_::if_nametoindex(name.as_str()).ok()?;
        Some((name, number))
    });
    // An address of a whole loopback network stands at no interface of its own.
    numbered.unwrap_or_else(loopback)
}

/// What all NICs here have in common.
fn config(settings: &Settings, base: NicConfig) -> NicConfig {
    let rail_gbps = settings.rail_gbps;
    // The port stays one of RoCE: nothing here plays an InfiniBand subnet.
    NicConfig { firmware_ns: FIRMWARE_NS, event_ns: EVENT_NS, rail_gbps, ..base }
        .with_profile(settings.profile)
}

/// Claims the lowest number that is free. The sockets of its addresses are the claim: they tell a live process from
/// one that was killed.
pub(super) fn claim(settings: &Settings, runtime: &Path) -> Result<Claim, StartError> {
    if !settings.roce.is_empty() {
        return roce(settings);
    }
    for slot in 0..MOST {
        let nic = |rail| config(settings, NicConfig::new(settings.kind.device(rail), slot, rail));
        let nics: Vec<NicConfig> = (0..settings.nics).map(nic).collect();
        let gids: Vec<[u8; 16]> = nics.iter().map(|config| config.gid).collect();
        match UnixUplink::open_in(runtime, &settings.fabric, &gids) {
            Ok(uplink) => {
                let nics = nics.into_iter().map(|config| (config, loopback())).collect();
                return Ok(Claim { slot, nics, uplink: Box::new(uplink) });
            }
            Err(UplinkError::Taken { .. }) => continue,
            Err(error) => return Err(error.into()),
        }
    }
    Err(StartError::Full { fabric: settings.fabric.clone(), most: MOST })
}

/// NICs at addresses that were given: these tell processes apart, and no number is needed.
fn roce(settings: &Settings) -> Result<Claim, StartError> {
    let options =
        RoceOptions { pace_gbps: settings.rail_gbps, ..RoceOptions::new(settings.roce.iter().copied()) };
    let uplink = RoceUplink::open(options)?;
    let nic = |(rail, address): (u32, &Ipv4Addr)| {
        (
            config(settings, NicConfig::behind(&uplink, settings.kind.device(rail), *address)),
            interface_of(*address),
        )
    };
    let nics = (0..).zip(&settings.roce).map(nic).collect();
    Ok(Claim { slot: 0, nics, uplink: Box::new(uplink) })
}
