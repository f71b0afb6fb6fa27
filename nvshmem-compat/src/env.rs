//! What the environment asks of this library, and what becomes of it. Pure.
//!
//! Every variable is known by name: it is honoured, has no effect here for a reason, or holds a value that is refused
//! for a reason. What the host side reads itself stands in its own table, [`shunt_host::config::VARIABLES`].

use crate::env_table::{Effect, Known, Refused, TABLE, Values};
use crate::heap_home::HeapKind;
use shunt_host::config::{EnvConfig, FetchMode, NicKind, parse_duration};
use shunt_host::error::ConfigError;
use shunt_host::events::Logging;
use thiserror::Error;

/// Ports of a PE, where nobody says: one that carries, and one to go to.
const PORTS: u32 = 2;
/// Room for small allocations beside what is asked for: NVSHMEM's, 24 times its alignment.
const HEAP_ROOM: u64 = 24 * 512;
/// The heap is a multiple of this, or of the bytes of a key where they are fewer.
const HEAP_UNIT: u64 = 2 << 20;
/// Most ports of a PE, as of soft NICs.
const PORTS_MAX: u32 = 8;

/// A variable that cannot be honoured.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EnvError {
    /// The host side's parser refused it.
    #[error(transparent)]
    Host(#[from] ConfigError),
    /// It holds what makes no sense.
    #[error("{name}: expected {want}, got {met:?}")]
    Value {
        /// Variable.
        name: &'static str,
        /// What it holds.
        met: String,
        /// What would be right.
        want: String,
    },
    /// It asks for what this library does not do.
    #[error("{name}={met} is refused: {reason}")]
    Refused {
        /// Variable.
        name: &'static str,
        /// What it holds.
        met: String,
        /// Why not.
        reason: &'static str,
    },
}

/// What a job is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the host side reads.
    pub host: EnvConfig,
    /// Bytes that are asked for, for `nvshmem_malloc` to give away, on each PE.
    pub heap_bytes: u64,
    /// log2 of the bytes that one key covers.
    pub log2_chunk: u32,
    /// Teams at a time, the six built-in ones among them.
    pub max_teams: u32,
    /// Whether more than one port is used; not set: where failures switch paths.
    pub multi_port: Option<bool>,
    /// What carries the packets.
    pub nic: NicKind,
    /// In which memory the heap lies.
    pub heap_kind: HeapKind,
    /// Whether GDRCopy may map memory of the GPU.
    pub gdrcopy: bool,
    /// Soft NICs of each PE.
    pub soft_rails: u32,
    /// Ports of each PE at most, where they are RDMA devices.
    pub most_ports: u32,
    /// Longest silence of a path, if it was set.
    pub suspect_ns: Option<u64>,
    /// Shortest, if it was set.
    pub suspect_floor_ns: Option<u64>,
    /// How long all paths stay dead before a peer is lost, if it was set.
    pub give_up_ns: Option<u64>,
    /// Longest wait of one call.
    pub call_deadline_ns: u64,
    /// Whether PEs of a node map each other's heaps.
    pub p2p: bool,
    /// Whether PE 0 says which library this is.
    pub says_version: bool,
    /// What is said of switches and rails.
    pub logging: Logging,
}

impl Settings {
    /// Reads all of it.
    ///
    /// # Errors
    /// The first variable that holds what makes no sense, or what is refused.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, EnvError> {
        for known in TABLE {
            if let Some(value) = lookup(known.name) {
                known.check(&value)?;
            }
        }
        let text = |name: &str| lookup(name).map(|value| value.trim().to_owned());
        // The new name wins over the old one.
        let multi_port =
            text("NVSHMEM_ENABLE_MULTI_PORT").or_else(|| text("NVSHMEM_IBGDA_ENABLE_MULTI_PORT"));
        let size = |name| text(name).and_then(|value| parse_size(&value));
        let number = |name| text(name).and_then(|value| value.parse::<u32>().ok());
        let chunk = size("NVSHMEM_CUMEM_GRANULARITY").unwrap_or(512 << 20);
        let host = EnvConfig::from_lookup(lookup)?;
        if host.fetch == FetchMode::Exact && !host.fault_tolerance {
            let reason = "expected auto, nic or no value where NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE=0 turns off what \
                          makes them exact";
            return Err(EnvError::Refused { name: "SHUNT_FETCH", met: "exact".into(), reason });
        }
        Ok(Self {
            nic: NicKind::from_lookup(lookup)?.unwrap_or_default(),
            most_ports: match number("NVSHMEM_MAX_NICS_PER_PE").unwrap_or(0) {
                0 => PORTS,
                most => most.min(PORTS_MAX),
            },
            suspect_ns: lookup("SHUNT_SUSPECT").map(|_| host.suspect_ns),
            suspect_floor_ns: lookup("SHUNT_SUSPECT_FLOOR").map(|_| host.suspect_floor_ns),
            p2p: !text("NVSHMEM_DISABLE_P2P").is_some_and(|value| parse_bool(&value)),
            give_up_ns: lookup("SHUNT_GIVE_UP").map(|_| host.give_up_ns),
            host,
            heap_kind: text("SHUNT_HEAP").and_then(|name| HeapKind::from_name(&name)).unwrap_or_default(),
            gdrcopy: !text("NVSHMEM_DISABLE_GDRCOPY").is_some_and(|value| parse_bool(&value)),
            heap_bytes: size("NVSHMEM_SYMMETRIC_SIZE").unwrap_or(1 << 30),
            log2_chunk: chunk.next_power_of_two().ilog2(),
            max_teams: number("NVSHMEM_MAX_TEAMS").unwrap_or(128),
            multi_port: multi_port.map(|value| parse_bool(&value)),
            soft_rails: number("SHUNT_SOFT_RAILS").unwrap_or(2),
            call_deadline_ns: text("SHUNT_CALL_DEADLINE")
                .and_then(|value| parse_duration(&value))
                .unwrap_or(600_000_000_000),
            says_version: text("NVSHMEM_DEBUG").is_some_and(|level| {
                ["VERSION", "INFO", "TRACE"].iter().any(|loud| level.eq_ignore_ascii_case(loud))
            }),
            logging: Logging::from_lookup(lookup)?,
        })
    }

    /// Bytes that `nvshmem_malloc` has to give away. NVSHMEM adds room for a dozen allocations, with 512 bytes before
    /// and behind each, and rounds up to its granularity: programs that ask for exactly what their buffer takes
    /// allocate more. Here it is rounded up to what CUDA maps at the least.
    pub fn heap(&self) -> u64 {
        (self.heap_bytes + HEAP_ROOM).next_multiple_of(HEAP_UNIT.min(1 << self.log2_chunk))
    }

    /// Soft NICs a PE has: all, unless one port is asked for.
    pub fn rails(&self) -> u32 {
        if self.has_many_ports() { self.soft_rails } else { 1 }
    }

    /// RDMA ports that a PE takes at most.
    pub fn ports(&self) -> u32 {
        if self.has_many_ports() { self.most_ports } else { 1 }
    }

    fn has_many_ports(&self) -> bool {
        self.multi_port.unwrap_or(self.host.fault_tolerance)
    }

    /// What all PEs must agree on, a line each; whether the program has device functions, and what its NICs are
    /// (`nics`), is a part of it.
    pub fn shared_lines(&self, kernels: bool, nics: &str) -> String {
        let host = &self.host;
        format!(
            "library {} layout {}\nNVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE {}\nNVSHMEM_SYMMETRIC_SIZE {}\n\
             NVSHMEM_CUMEM_GRANULARITY {}\nNVSHMEM_MAX_TEAMS {}\nNVSHMEM_IBGDA_NUM_RC_PER_PE {}\n\
             NVSHMEM_QP_DEPTH {}\nSHUNT_BACKUPS {}\nSHUNT_FENCE {:?}\nSHUNT_FETCH {}\nSHUNT_NIC {nics}\n{}",
            env!("CARGO_PKG_VERSION"),
            shunt_layout::ABI_VERSION,
            u32::from(host.fault_tolerance),
            self.heap_bytes,
            1u64 << self.log2_chunk,
            self.max_teams,
            host.channels_per_pe,
            1u32 << host.log_depth,
            host.backups,
            host.fence,
            if host.fetch == FetchMode::Nic { "nic" } else { "auto or exact" },
            if kernels { "libnvshmem_device.a" } else { "no libnvshmem_device.a" },
        )
    }
}

/// The first line in which a PE differs from PE 0: that PE, its line, PE 0's.
pub fn difference(all: &[Vec<u8>]) -> Option<(u32, String, String)> {
    let lines =
        |bytes: &[u8]| -> Vec<String> { String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect() };
    let ours = lines(all.first()?);
    (0..).zip(all).skip(1).find_map(|(pe, theirs)| {
        let theirs = lines(theirs);
        let line = |of: &[String], at: usize| of.get(at).cloned().unwrap_or_else(|| "less".to_owned());
        let at = (0..ours.len().max(theirs.len())).find(|at| line(&ours, *at) != line(&theirs, *at))?;
        Some((pe, line(&theirs, at), line(&ours, at)))
    })
}

impl Known {
    /// Whether the variable may hold a value.
    ///
    /// # Errors
    /// It makes no sense, or asks for what is refused.
    pub fn check(&self, value: &str) -> Result<(), EnvError> {
        let met = value.trim();
        if !self.values.holds(met) {
            return Err(EnvError::Value { name: self.name, met: value.to_owned(), want: self.values.text() });
        }
        match self.refused.reason(met) {
            Some(reason) => Err(EnvError::Refused { name: self.name, met: met.to_owned(), reason }),
            None => Ok(()),
        }
    }

    /// What becomes of it, in a sentence for people.
    pub fn outcome(&self) -> String {
        let refused = match self.refused {
            Refused::Never => String::new(),
            refused => format!("; refused {}", refused.text()),
        };
        match self.effect {
            Effect::Honoured => format!("honoured{refused}"),
            Effect::SameAs(other) => format!("honoured as {other}{refused}"),
            Effect::None(why) => format!("no effect: {why}{refused}"),
        }
    }
}

/// The variable of that name, if this library knows it.
pub fn known(name: &str) -> Option<&'static Known> {
    TABLE.iter().find(|known| known.name == name)
}

impl Values {
    fn holds(self, met: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Boolean => !met.is_empty(),
            Self::Number(low, high) => met.parse::<i64>().is_ok_and(|value| (low..=high).contains(&value)),
            Self::Size(low) => parse_size(met).is_some_and(|bytes| (low..=1 << 46).contains(&bytes)),
            Self::Word(words) => words.iter().any(|word| word.eq_ignore_ascii_case(met)),
            Self::Duration => parse_duration(met).is_some_and(|ns| ns > 0),
        }
    }
}

impl Refused {
    fn reason(self, met: &str) -> Option<&'static str> {
        let number = || met.parse::<i64>().unwrap_or(0);
        let (hit, reason) = match self {
            Self::Never => return None,
            Self::True(reason) => (parse_bool(met), reason),
            Self::False(reason) => (!parse_bool(met), reason),
            Self::AboveZero(reason) => (number() > 0, reason),
            Self::Set(reason) => (!met.is_empty(), reason),
            Self::Words(words, reason) => (words.iter().any(|word| word.eq_ignore_ascii_case(met)), reason),
        };
        hit.then_some(reason)
    }

    fn text(self) -> String {
        match self {
            Self::Never => String::new(),
            Self::True(reason) => format!("where true: {reason}"),
            Self::False(reason) => format!("where false: {reason}"),
            Self::AboveZero(reason) => format!("above 0: {reason}"),
            Self::Set(reason) => format!("where set: {reason}"),
            Self::Words(words, reason) => format!("{}: {reason}", words.join(", ")),
        }
    }
}

/// NVSHMEM's reading: by the first letter, and anything else is true.
pub fn parse_bool(text: &str) -> bool {
    !matches!(text.chars().next(), None | Some('0' | 'n' | 'N' | 'f' | 'F'))
}

/// Bytes: a whole or decimal number, alone or with K, M, G or T (powers of 1024), and a B behind it or not.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
    let (number, shift) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits =
        |text: &str| !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    let part = u128::from(fraction.parse::<u64>().ok()?) << shift;
    let scale = 10u128.pow(fraction.len() as u32);
    // Half a byte is none.
    (part % scale == 0 || shift > 0).then_some(())?;
    whole.checked_add(u64::try_from(part / scale).ok()?)
}

#[cfg(test)]
#[path = "env_tests.rs"]
mod tests;
