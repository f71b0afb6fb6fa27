//! What a run needs of its NICs, whatever they are: opened, made to fail, watched, counted. One trait, two bodies.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`source`] | where they come from |
//! | [`error`] | why there are none |
//! | [`settle`] | what a command line means once they are known |
//! | [`mlx5`] | devices of libibverbs |
//! | [`soft`] | soft NICs in this process, and their engine |

pub mod error;
pub mod mlx5;
pub mod settle;
pub mod soft;
pub mod source;

use shunt_device::platform::host::World;
use shunt_soft_machine::control::CounterReport;
use shunt_soft_nic::{Counters, FaultKind, RailAt, WordWatch};
use std::sync::Arc;

/// What carries the packets: what figures are labelled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// Soft NICs of this process.
    #[default]
    Soft,
    /// Soft NICs behind libibverbs: the interposer's.
    Interposer,
    /// Hardware.
    ConnectX,
}

impl Medium {
    /// As figures are labelled.
    pub fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft NIC",
            Self::Interposer => "soft NIC (interposer)",
            Self::ConnectX => "ConnectX",
        }
    }

    /// What times are, in one phrase.
    pub fn clock(self) -> &'static str {
        match self {
            Self::Soft => "soft NIC, wall time",
            Self::Interposer => "soft NIC (interposer), wall time",
            Self::ConnectX => "ConnectX, wall time",
        }
    }

    /// Whether it is known what NICs write where: hardware does not tell.
    pub fn counts_placements(self) -> bool {
        self != Self::ConnectX
    }
}

/// What is counted at a rail; `None` where nobody counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailCounters {
    /// Packets sent.
    pub packets_tx: Option<u64>,
    /// Packets received.
    pub packets_rx: Option<u64>,
    /// Bytes sent: of payload at a soft NIC, of whole packets at a port of hardware.
    pub bytes_tx: Option<u64>,
    /// Request packets sent again.
    pub resent: Option<u64>,
    /// NAKs sent.
    pub naks: Option<u64>,
    /// Packets dropped.
    pub dropped: Option<u64>,
}

impl From<Counters> for RailCounters {
    fn from(c: Counters) -> Self {
        Self {
            packets_tx: Some(c.packets_tx),
            packets_rx: Some(c.packets_rx),
            bytes_tx: Some(c.bytes_tx),
            resent: Some(c.retransmits),
            naks: Some(c.naks),
            dropped: Some(c.dropped),
        }
    }
}

impl From<CounterReport> for RailCounters {
    fn from(c: CounterReport) -> Self {
        Self {
            packets_tx: Some(c.packets_tx),
            packets_rx: Some(c.packets_rx),
            bytes_tx: Some(c.bytes_tx),
            resent: Some(c.retransmits),
            naks: Some(c.naks),
            dropped: Some(c.dropped),
        }
    }
}

/// The NICs of the PEs that live in this process, for one phase of a run.
pub trait Nics: Send + Sync {
    /// The clock of this process, and how to wait.
    fn world(&self) -> &Arc<dyn World>;

    /// The rails of the PEs that live here.
    fn rails(&self) -> &Arc<dyn shunt::Nics>;

    /// Makes a NIC fail at a time of the process's clock, or now if that is past. Answers with a number that
    /// [`Nics::hits`] knows.
    ///
    /// # Errors
    /// It cannot be made to.
    fn inject(&self, at_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String>;

    /// How often each fault that was injected has struck, by its number.
    fn hits(&self) -> Vec<u64>;

    /// Counts what NICs place on these words from now on.
    fn watch(&self, addresses: &[u64]);

    /// What was placed on each, in the order they were named; nothing where nobody can know.
    fn watched(&self, addresses: &[u64]) -> Option<Vec<WordWatch>>;

    /// Counters of every rail that lives here.
    fn counters(&self) -> Vec<(RailAt, RailCounters)>;
}
