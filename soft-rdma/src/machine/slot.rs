//! Which NICs a process has: a number of its fabric that no other live process has gives their addresses.

use super::StartError;
use crate::settings::Settings;
use shunt_soft_nic::{NicConfig, UnixUplink, Uplink, UplinkError};
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
    /// The NICs.
    pub(super) configs: Vec<NicConfig>,
    /// The way to the others.
    pub(super) uplink: Box<dyn Uplink>,
}

/// The NICs that a process with this number has.
fn configs(settings: &Settings, slot: u32) -> Vec<NicConfig> {
    let config = |rail| NicConfig {
        firmware_ns: FIRMWARE_NS,
        event_ns: EVENT_NS,
        rail_gbps: settings.rail_gbps,
        ..NicConfig::new(format!("mlx5_{rail}"), slot, rail)
    };
    (0..settings.nics).map(config).collect()
}

/// Claims the lowest number that is free. The sockets of its addresses are the claim: they tell a live process from
/// one that was killed.
pub(super) fn claim(settings: &Settings, runtime: &Path) -> Result<Claim, StartError> {
    for slot in 0..MOST {
        let configs = configs(settings, slot);
        let gids: Vec<[u8; 16]> = configs.iter().map(|config| config.gid).collect();
        match UnixUplink::open_in(runtime, &settings.fabric, &gids) {
            Ok(uplink) => return Ok(Claim { slot, configs, uplink: Box::new(uplink) }),
            Err(UplinkError::Taken { .. }) => continue,
            Err(error) => return Err(error.into()),
        }
    }
    Err(StartError::Full { fabric: settings.fabric.clone(), most: MOST })
}
