//! Requests and answers.

use serde::{Deserialize, Serialize};
use shunt_soft_nic::{Counters, WordWatch};

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A fault, for one NIC.
    Inject {
        /// The NIC's index.
        nic: u32,
        /// When, in nanoseconds from now.
        #[serde(default)]
        at_ns: u64,
        /// What happens, as fault plans have it.
        fault: String,
    },
    /// All faults, planned and past.
    Faults {},
    /// The process and its NICs.
    Nics {},
    /// Watch a word from now on.
    Watch {
        /// Its address in the process.
        address: u64,
    },
    /// What was placed on a watched word.
    Watched {
        /// Its address in the process.
        address: u64,
    },
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer<T> {
    /// It was done.
    Ok(T),
    /// It was not, and why.
    Error(String),
}

/// A fault was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its number in the list of faults.
    pub id: u64,
}

/// A fault of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FaultView {
    /// Its number.
    pub id: u64,
    /// The NIC.
    pub nic: u32,
    /// When it starts, in nanoseconds of the process's clock; the largest number while it waits for packets.
    pub at_ns: u64,
    /// What it is.
    pub fault: String,
    /// The name alone.
    pub kind: String,
    /// How often it changed anything.
    pub hits: u64,
}

/// A process that has soft devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessView {
    /// Its number.
    pub pid: u32,
    /// Name of its program.
    pub program: String,
    /// Its number in the fabric.
    pub slot: u32,
    /// Nanoseconds of its clock: what `at_ns` of faults counts in.
    pub now_ns: u64,
    /// Its NICs.
    pub nics: Vec<NicView>,
}

/// A NIC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NicView {
    /// `mlx5_0`.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its GID, as an IPv6 address.
    pub gid: String,
    /// Its MAC.
    pub mac: String,
    /// It has a link.
    pub up: bool,
    /// Bytes of a packet's payload at most.
    pub mtu: u32,
    /// Rate, in words.
    pub rate: String,
    /// What it counted.
    pub counters: CounterReport,
}

/// Declares the counters once.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a NIC counted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct CounterReport {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl From<Counters> for CounterReport {
            fn from(counted: Counters) -> Self {
                Self { $($name: counted.$name,)* }
            }
        }

        impl CounterReport {
            /// By name.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Packets that left a queue pair.
    packets_tx,
    /// Packets that reached the NIC.
    packets_rx,
    /// Payload bytes sent.
    bytes_tx,
    /// Payload bytes received.
    bytes_rx,
    /// Request packets sent again.
    retransmits,
    /// Times a retry timer expired.
    timeouts,
    /// NAKs sent.
    naks,
    /// NAKs sent because a receiver was not ready.
    rnr_naks,
    /// Requests received again.
    duplicates,
    /// Packets dropped.
    dropped,
    /// Dropped packets that had no route.
    unroutable,
    /// Firmware commands executed.
    commands,
    /// Doorbells seen.
    doorbells,
    /// Doorbells whose index made no sense.
    bad_doorbells,
    /// WQEs fetched.
    wqes,
    /// CQEs written.
    cqes,
    /// Messages executed as responder.
    messages,
    /// Events raised.
    events,
    /// Messages that came behind a newer one of their sender.
    reordered,
}

/// What was placed on a watched word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// 8-byte placements.
    pub writes: u64,
    /// The last value placed, as a little-endian number.
    pub last: u64,
    /// Placements whose value was not above the one before.
    pub not_increasing: u64,
}

impl From<WordWatch> for Watched {
    fn from(seen: WordWatch) -> Self {
        Self { writes: seen.writes, last: seen.last, not_increasing: seen.not_increasing }
    }
}
