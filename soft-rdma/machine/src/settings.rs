//! What the environment says about this process's devices. `shunt soft-rdma run` writes it, a shell may.

use crate::kind::Kind;
use crate::log::{self, Level};
use shunt_soft_nic::fault::parse_time;
use shunt_soft_nic::{FaultKind, ParseFaultError, Profile};
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// NICs of a process at most.
pub const MOST_NICS: u32 = 8;

/// Number of NICs.
pub const NICS: &str = "SHUNT_SOFT_RDMA_NICS";
/// Whose devices the NICs are.
pub const KIND: &str = "SHUNT_SOFT_RDMA_KIND";
/// Name of the fabric.
pub const FABRIC: &str = "SHUNT_FABRIC";
/// IPv4 addresses, one a NIC: RoCE v2 instead of the machine's fabric.
pub const ROCE: &str = "SHUNT_SOFT_RDMA_ROCE";
/// Rate of each port.
pub const RAIL_GBPS: &str = "SHUNT_SOFT_RDMA_RAIL_GBPS";
/// What kind of device each NIC is.
pub const PROFILE: &str = "SHUNT_SOFT_RDMA_PROFILE";
/// What goes wrong, where and when.
pub const FAULTS: &str = "SHUNT_SOFT_RDMA_FAULTS";
/// File that packets are written to.
pub const PCAP: &str = "SHUNT_SOFT_RDMA_PCAP";
/// Where `shunt soft-rdma run` finds the library that is preloaded.
pub const LIBRARY: &str = "SHUNT_SOFT_RDMA_LIB";
/// How much is told on stderr.
pub const LOG: &str = "SHUNT_SOFT_RDMA_LOG";

/// What a variable is for.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// What it may hold.
    pub values: &'static str,
    /// What holds where it is not set; empty: nothing.
    pub default: &'static str,
}

const fn variable(
    name: &'static str,
    meaning: &'static str,
    values: &'static str,
    default: &'static str,
) -> Variable {
    Variable { name, meaning, values, default }
}

/// All of them but the name of the fabric, which is not ours alone.
pub const VARIABLES: [Variable; 9] = [
    variable(NICS, "soft RDMA: NICs of each process", "a number from 1 to 8", "1"),
    variable(KIND, "soft RDMA: whose devices the NICs are", KINDS, "mlx5"),
    variable(ROCE, "soft RDMA: RoCE v2 over UDP at these addresses", ADDRESSES, ""),
    variable(RAIL_GBPS, "soft RDMA: rate of each port in Gb/s", RATE, ""),
    variable(PROFILE, "soft RDMA: what kind of device each NIC is", DEVICES, "soft"),
    variable(FAULTS, "soft RDMA: what goes wrong, and when", "WHEN:NIC:FAULT;..", ""),
    variable(PCAP, "soft RDMA: file that packets are written to", "a path; %p is the process's number", ""),
    variable(LIBRARY, "soft RDMA: library that is preloaded, if not next to shunt", "a path", ""),
    variable(LOG, "soft RDMA: how much is told on stderr", log::WANTED, "warn"),
];

const ADDRESSES: &str = "1 to 8 different IPv4 addresses separated by commas, such as 127.0.0.2,127.0.0.3";
const DEVICES: &str = "one of soft, cx5, cx6dx, cx7, bf3, vf, ib-ar, strict";
const KINDS: &str = "one of mlx5, efa; how many there are is another matter (--nics)";
const RATE: &str = "a rate in Gb/s above 0, such as 25";

/// When a planned fault starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Nanoseconds after the first open of a device.
    After(u64),
    /// When so many packets have left its port.
    Packets(u64),
}

/// A fault and when it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedFault {
    /// When it starts.
    pub when: When,
    /// The NIC.
    pub nic: u32,
    /// What happens to it.
    pub kind: FaultKind,
}

/// What a process's devices are made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// NICs.
    pub nics: u32,
    /// Whose devices they are.
    pub kind: Kind,
    /// Fabric.
    pub fabric: String,
    /// Addresses of the NICs for RoCE v2; empty for the machine's fabric.
    pub roce: Vec<Ipv4Addr>,
    /// Rate of each port, if limited.
    pub rail_gbps: Option<f64>,
    /// What kind of device each NIC is.
    pub profile: Profile,
    /// Planned faults.
    pub faults: Vec<PlannedFault>,
    /// Where packets are written.
    pub pcap: Option<PathBuf>,
    /// What is told.
    pub level: Level,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nics: 1,
            kind: Kind::default(),
            fabric: "default".into(),
            roce: Vec::new(),
            rail_gbps: None,
            profile: Profile::default(),
            faults: Vec::new(),
            pcap: None,
            level: Level::Warn,
        }
    }
}

/// A variable that does not say what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// It does not read.
    #[error("{name}: expected {want}, got {met:?}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What was met.
        met: String,
        /// What would be right.
        want: &'static str,
    },
    /// A fault does not read.
    #[error("{name}: {whole:?}: {cause}")]
    Fault {
        /// The variable.
        name: &'static str,
        /// The whole entry.
        whole: String,
        /// Why.
        cause: ParseFaultError,
    },
    /// A place where no NIC is.
    #[error("{name}: {whole:?} names NIC {nic}; this process has {nics}: {want}")]
    NoSuchNic {
        /// The variable.
        name: &'static str,
        /// The whole entry.
        whole: String,
        /// The NIC that was named.
        nic: u32,
        /// NICs there are.
        nics: u32,
        /// Names that would be right.
        want: String,
    },
    /// A soft EFA stands in the machine's fabric only.
    #[error(
        "{KIND}: expected mlx5 where {ROCE} is set, got efa; a soft EFA stands in the machine's fabric only"
    )]
    EfaOverRoce,
    /// Not as many addresses as NICs.
    #[error("{ROCE}: expected one address for each of {nics} NICs ({NICS}), got {addresses}")]
    Addresses {
        /// Addresses met.
        addresses: usize,
        /// NICs there are.
        nics: u32,
    },
}

fn bad(name: &'static str, met: &str, want: &'static str) -> SettingError {
    SettingError::Value { name, met: met.into(), want }
}

impl Settings {
    /// Reads this process's environment.
    pub fn from_environment() -> Result<Self, SettingError> {
        Self::read(std::env::var_os)
    }

    /// Whether one variable may hold what it holds, whatever the others do.
    pub fn check(name: &str, value: &str) -> Result<(), SettingError> {
        // A fault may be of any NIC there can be.
        let lookup = |asked: &str| match asked {
            asked if asked == name => Some(value.into()),
            NICS if name == FAULTS => Some(MOST_NICS.to_string().into()),
            _ => None,
        };
        Self::read(lookup).map(|_| ())
    }

    /// Reads variables. One that is empty counts as not set.
    pub fn read(lookup: impl Fn(&'static str) -> Option<OsString>) -> Result<Self, SettingError> {
        let text = |name| match lookup(name).filter(|value| !value.is_empty()).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(raw)) => Err(bad(name, &raw.to_string_lossy(), "text in UTF-8")),
        };
        let mut settings = Self::default();
        if let Some(met) = text(LOG)? {
            settings.level = met.parse().map_err(|()| bad(LOG, &met, log::WANTED))?;
        }
        settings.roce = text(ROCE)?.map_or(Ok(Vec::new()), |met| parse_addresses(&met))?;
        settings.nics = match text(NICS)? {
            Some(met) => parse_nics(&met)?,
            None if settings.roce.is_empty() => 1,
            None => settings.roce.len() as u32,
        };
        if !settings.roce.is_empty() && settings.roce.len() != settings.nics as usize {
            return Err(SettingError::Addresses { addresses: settings.roce.len(), nics: settings.nics });
        }
        if let Some(met) = text(KIND)? {
            settings.kind = met.parse().map_err(|()| bad(KIND, &met, KINDS))?;
        }
        if settings.kind == Kind::Efa && !settings.roce.is_empty() {
            return Err(SettingError::EfaOverRoce);
        }
        if let Some(met) = text(FABRIC)? {
            settings.fabric = met;
        }
        if let Some(met) = text(RAIL_GBPS)? {
            settings.rail_gbps = Some(parse_rate(&met)?);
        }
        if let Some(met) = text(PROFILE)? {
            settings.profile = met.parse().map_err(|_| bad(PROFILE, &met, DEVICES))?;
        }
        if let Some(met) = text(FAULTS)? {
            let entries = met.split(';').map(str::trim).filter(|entry| !entry.is_empty());
            settings.faults = entries
                .map(|entry| parse_fault(entry, settings.nics, settings.kind))
                .collect::<Result<_, _>>()?;
        }
        settings.pcap = lookup(PCAP).filter(|value| !value.is_empty()).map(PathBuf::from);
        Ok(settings)
    }
}

fn parse_nics(met: &str) -> Result<u32, SettingError> {
    let count = met.parse().ok().filter(|count| (1..=MOST_NICS).contains(count));
    count.ok_or_else(|| bad(NICS, met, "a number of NICs from 1 to 8"))
}

/// Reads `10.0.0.1,10.0.0.2`: each address once, none of them nobody's or everybody's.
pub fn parse_addresses(met: &str) -> Result<Vec<Ipv4Addr>, SettingError> {
    let want = ADDRESSES;
    let mut addresses = Vec::new();
    for part in met.split(',') {
        let address: Ipv4Addr = part.trim().parse().map_err(|_| bad(ROCE, met, want))?;
        let usable = !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast();
        if !usable || addresses.contains(&address) || addresses.len() >= MOST_NICS as usize {
            return Err(bad(ROCE, met, want));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// Reads a rate above zero.
pub fn parse_rate(met: &str) -> Result<f64, SettingError> {
    let rate = met.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| bad(RAIL_GBPS, met, RATE))
}

/// Reads a NIC: its number or its name.
pub fn parse_nic(text: &str) -> Option<u32> {
    let prefixed = |kind: Kind| text.strip_prefix(kind.name())?.strip_prefix('_');
    let digits = Kind::ALL.into_iter().find_map(prefixed).unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Reads `500ms`, or `4000packets`.
fn parse_when(text: &str) -> Option<When> {
    match text.strip_suffix("packets") {
        Some(count) => {
            count.bytes().all(|byte| byte.is_ascii_digit()).then(|| count.parse().ok())?.map(When::Packets)
        }
        None => parse_time(text).map(When::After),
    }
}

/// Reads `<when>:<nic>:<fault>` for a process with so many NICs of this kind.
pub fn parse_fault(whole: &str, nics: u32, kind: Kind) -> Result<PlannedFault, SettingError> {
    let want = "<when>:<nic>:<fault>, such as 500ms:mlx5_0:down=300ms or 4000packets:mlx5_0:down";
    let mut parts = whole.splitn(3, ':');
    let (Some(when), Some(nic), Some(fault)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(bad(FAULTS, whole, want));
    };
    let (Some(when), Some(nic)) = (parse_when(when), parse_nic(nic)) else {
        return Err(bad(FAULTS, whole, want));
    };
    if nic >= nics {
        let (first, last) = (kind.device(0), kind.device(nics - 1));
        let want = if nics == 1 { first } else { format!("{first} to {last}") };
        return Err(SettingError::NoSuchNic { name: FAULTS, whole: whole.into(), nic, nics, want });
    }
    let kind =
        fault.parse().map_err(|cause| SettingError::Fault { name: FAULTS, whole: whole.into(), cause })?;
    Ok(PlannedFault { when, nic, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, SettingError> {
        Settings::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn nothing_set_is_one_nic_in_the_default_fabric() {
        assert_eq!(read(&[]), Ok(Settings::default()));
        assert_eq!(read(&[(NICS, ""), (FAULTS, " ; ")]), Ok(Settings::default()));
    }

    #[test]
    fn everything_set() {
        let pairs = [
            (NICS, "2"),
            (FABRIC, "lab"),
            (ROCE, "127.0.0.2, 127.0.0.3"),
            (RAIL_GBPS, "2.5"),
            (PROFILE, "vf"),
            (FAULTS, "500ms:mlx5_1:down=300ms;0:0:drop=0.5/1s;70packets:0:up"),
            (PCAP, "/tmp/x.pcap"),
            (LOG, "trace"),
        ];
        let settings = read(&pairs).unwrap();
        assert_eq!((settings.nics, settings.fabric.as_str(), settings.roce.len()), (2, "lab", 2));
        assert_eq!((settings.rail_gbps, settings.level), (Some(2.5), Level::Trace));
        assert_eq!(settings.profile.name, "vf");
        let down = FaultKind::Down { for_ns: Some(300_000_000) };
        assert_eq!(settings.faults[0], PlannedFault { when: When::After(500_000_000), nic: 1, kind: down });
        assert_eq!(settings.faults[2].when, When::Packets(70));
        assert_eq!(settings.faults.len(), 3);
        assert_eq!(settings.pcap, Some("/tmp/x.pcap".into()));
        assert_eq!(read(&[(ROCE, "10.0.0.1,10.0.0.2")]).unwrap().nics, 2);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (name, met, words) in [
            (NICS, "9", "from 1 to 8"),
            (NICS, "-1", "from 1 to 8"),
            (ROCE, "fe80::1", "IPv4"),
            (ROCE, "10.0.0.1,10.0.0.1", "different"),
            (ROCE, "0.0.0.0", "IPv4"),
            (RAIL_GBPS, "inf", "above 0"),
            (RAIL_GBPS, "0", "above 0"),
            (FAULTS, "down", "<when>:<nic>:<fault>"),
            (FAULTS, "5:0:down", "<when>:<nic>:<fault>"),
            (FAULTS, "packets:0:down", "<when>:<nic>:<fault>"),
            (FAULTS, "+7packets:0:down", "<when>:<nic>:<fault>"),
            (FAULTS, "5s:+0:down", "<when>:<nic>:<fault>"),
            (FAULTS, "5s:mlx5_1:down", "this process has 1: mlx5_0"),
            (FAULTS, "5s:0:dwon", "no fault is called `dwon`"),
            (FAULTS, "5s:0:peer-killed", "no fault is called `peer-killed`"),
            (PROFILE, "cx8", "one of soft, cx5"),
            (KIND, "mlx4", "one of mlx5, efa"),
            (LOG, "loud", "one of off, error"),
        ] {
            let message = read(&[(name, met)]).unwrap_err().to_string();
            assert!(message.starts_with(name) && message.contains(words), "{message}");
        }
        let message = read(&[(ROCE, "10.0.0.1"), (NICS, "2")]).unwrap_err().to_string();
        assert!(message.contains("one address for each of 2 NICs") && message.contains("got 1"), "{message}");
    }

    #[test]
    fn every_profile_is_said_to_be_right() {
        assert_eq!(DEVICES.strip_prefix("one of "), Some(Profile::names().as_str()));
    }

    #[test]
    fn every_variable_is_listed() {
        let listed = VARIABLES.map(|variable| variable.name);
        assert_eq!(listed, [NICS, KIND, ROCE, RAIL_GBPS, PROFILE, FAULTS, PCAP, LIBRARY, LOG]);
        for name in listed {
            let value = [(name, VARIABLES.iter().find(|variable| variable.name == name).unwrap().default)];
            assert_eq!(read(&value), Ok(Settings::default()), "{name}");
        }
    }
}
