//! What one kind of device refuses, reports and does otherwise than another.
//!
//! A [`Profile`] is data: [`PROFILES`] has those with a name. Parts of the NIC that obey it ask it questions; nothing
//! here touches a queue. Which device does what is read from public drivers where they say it, and **invented but
//! plausible** where nobody does: above all the times of commands, which are virtual.

mod ece;
mod latency;
mod table;

pub use ece::Ece;
pub(crate) use latency::Latency;
pub use latency::{CommandTime, Share};
pub use table::PROFILES;

use shunt_layout::mlx5::prm::caps::TimestampCap;
use shunt_layout::mlx5::prm::qp::Timestamp;
use std::str::FromStr;

/// What the port speaks below the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// RoCE v2: routed by GID, next hop by MAC.
    Ethernet,
    /// InfiniBand: routed by GID when a GRH is present, by LID otherwise.
    InfiniBand,
}

/// In which order packets land, and what the device says of it. PRM: "QP Ordering Semantics".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Capability `qp_data_in_order`: QUERY_QP in RTS tells `data_in_order`.
    pub told: bool,
    /// Capability 2 `dp_ordering_force`: a queue pair's wish wins over the network's setting.
    pub force: bool,
    /// Capability `dp_ordering_ooo_rw_rc`: a queue pair may ask for READs and WRITEs out of order.
    pub out_of_order: bool,
    /// The network routes packets of queue pairs adaptively that do not force their order.
    pub routed: bool,
}

/// Where `ads.fl` may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForceLoopback {
    /// Capability `fl_rc_qp_when_roce_enabled`.
    pub with_roce: bool,
    /// Capability `fl_rc_qp_when_roce_disabled`: InfiniBand is that, too.
    pub without_roce: bool,
}

/// Atomics of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomics {
    /// `atomic_operations`.
    pub operations: u32,
    /// Answers of eight bytes land big-endian (`atomic_req_8B_endianness_mode` 0).
    pub big_endian: bool,
}

/// Doorbell pages that are not cached, as the kernel driver hands them out; those with BlueFlame registers it always
/// does. libmlx5 shares one among all that ask for a plain one, and asks for one more for each dedicated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncachedPages {
    /// Any number.
    Any,
    /// One for each context: from the second on, dedicated ones are refused.
    OneEach,
    /// None: BlueFlame is all there is.
    Refused,
}

impl UncachedPages {
    /// True if a context that has so many gets one more.
    pub fn allows(self, has: usize) -> bool {
        match self {
            Self::Any => true,
            Self::OneEach => has == 0,
            Self::Refused => false,
        }
    }
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// How `--profile` names it.
    pub name: &'static str,
    /// What it stands for, in one line.
    pub about: &'static str,
    /// Link layer of its port.
    pub link_layer: Option<LinkLayer>,
    /// Largest path MTU of its port in bytes.
    pub mtu: u32,
    /// Partition keys of its port.
    pub pkeys: &'static [u16],
    /// Subnet prefix of the GID of rail 0; each further rail is in a subnet of its own.
    pub subnet: Option<u64>,
    /// Order.
    pub order: Order,
    /// Force loopback.
    pub force_loopback: ForceLoopback,
    /// Atomics.
    pub atomics: Atomics,
    /// Clocks of queue pairs.
    pub clock: TimestampCap,
    /// What offsets of queues in a umem are multiples of: the page size that firmware deduces from the umem.
    pub umem_align: u64,
    /// Doorbell pages.
    pub uncached_pages: UncachedPages,
    /// What a command takes; `None`: always [`firmware_ns`](crate::config::NicConfig::firmware_ns).
    pub command_time: Option<CommandTime>,
    /// 2ERR clears `rmsn`.
    pub rmsn_cleared_by_2err: bool,
    /// Options of enhanced connection establishment.
    pub ece: Ece,
}

impl Default for Profile {
    /// What takes everything: [`PROFILES`]' first.
    fn default() -> Self {
        PROFILES[0]
    }
}

/// No profile has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("profile: expected one of {}, got {met:?}", Profile::names())]
pub struct NoSuchProfile {
    /// What was met.
    pub met: String,
}

impl FromStr for Profile {
    type Err = NoSuchProfile;

    fn from_str(text: &str) -> Result<Self, NoSuchProfile> {
        let found = PROFILES.iter().find(|profile| profile.name == text);
        found.copied().ok_or_else(|| NoSuchProfile { met: text.into() })
    }
}

impl Profile {
    /// All names, with commas.
    pub fn names() -> String {
        PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ")
    }

    /// True if a port with that link layer may be told to turn packets round (`ads.fl`).
    pub(crate) fn may_force_loopback(&self, link_layer: LinkLayer) -> bool {
        match link_layer {
            LinkLayer::Ethernet => self.force_loopback.with_roce,
            LinkLayer::InfiniBand => self.force_loopback.without_roce,
        }
    }

    /// True if a queue pair may be stamped by that clock (`qpc.ts_format`).
    pub(crate) fn has_clock(&self, ts_format: u32) -> bool {
        const FREE_RUNNING: u32 = Timestamp::FreeRunning as u32;
        const DEFAULT: u32 = Timestamp::Default as u32;
        const REAL_TIME: u32 = Timestamp::RealTime as u32;
        match ts_format {
            FREE_RUNNING => self.clock != TimestampCap::RealTime,
            DEFAULT => true,
            REAL_TIME => self.clock != TimestampCap::FreeRunning,
            _ => false,
        }
    }
}

impl Order {
    /// True if packets of a queue pair land in any order: it forced its order, or asked for none, or takes what the
    /// network does.
    pub(crate) fn scatters(self, forced: bool, asked: bool) -> bool {
        if forced && self.force { asked } else { asked || self.routed }
    }

    /// True if packets of some queue pair may land in any order.
    pub(crate) fn may_scatter(self) -> bool {
        self.routed || self.out_of_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_others_refused() {
        for profile in PROFILES {
            assert_eq!(profile.name.parse(), Ok(*profile));
        }
        let error = "cx8".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("cx6dx") && error.contains("\"cx8\""), "{error}");
    }

    #[test]
    fn a_forced_order_wins_only_with_the_capability() {
        let order = |force, routed| Order { told: true, force, out_of_order: true, routed };
        for (force, routed, forced, asked, scatters) in [
            (true, true, true, false, false),
            (false, true, true, false, true),
            (true, true, false, false, true),
            (true, false, false, false, false),
            (true, false, true, true, true),
            (false, false, true, false, false),
        ] {
            assert_eq!(
                order(force, routed).scatters(forced, asked),
                scatters,
                "{force} {routed} {forced} {asked}"
            );
        }
    }

    #[test]
    fn clocks_are_those_of_the_capability() {
        let with = |clock| Profile { clock, ..Profile::default() };
        let clocks = |clock| [0, 1, 2, 3].map(|format| with(clock).has_clock(format));
        assert_eq!(clocks(TimestampCap::FreeRunning), [true, true, false, false]);
        assert_eq!(clocks(TimestampCap::RealTime), [false, true, true, false]);
        assert_eq!(clocks(TimestampCap::Both), [true, true, true, false]);
    }
}
