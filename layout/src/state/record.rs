//! What a switch leaves behind for the host: one record, with both ends of both paths.

use super::PathIdentity;

/// Why a path was left.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseKind {
    /// Nothing happened.
    None = 0,
    /// An error completion.
    Completion = 1,
    /// No completion for too long.
    Overdue = 2,
    /// The agent's hint: a port of the path is down.
    PortDown = 3,
    /// The other end fenced the pair.
    FencedByPeer = 4,
    /// The primary is back.
    SwitchBack = 5,
    /// A drain did not end in time.
    DrainFailed = 6,
    /// The ledger could not be read.
    LedgerFailed = 7,
    /// Nobody writes it. It keeps the numbers of a cause wider than those of a fault's kind: a `Result` tells a fault
    /// by its kind, which a leader hands out, and not by its cause. Each lane reads the cause at an instant of its own,
    /// and lanes would part ways by it in front of a barrier.
    Unknown = 255,
}

impl CauseKind {
    /// The cause of a raw word.
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Completion,
            2 => Self::Overdue,
            3 => Self::PortDown,
            4 => Self::FencedByPeer,
            5 => Self::SwitchBack,
            6 => Self::DrainFailed,
            7 => Self::LedgerFailed,
            _ => Self::None,
        }
    }

    /// Short name for tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Completion => "completion",
            Self::Overdue => "overdue",
            Self::PortDown => "port-down",
            Self::FencedByPeer => "fenced-by-peer",
            Self::SwitchBack => "switch-back",
            Self::DrainFailed => "drain-failed",
            Self::LedgerFailed => "ledger-failed",
            Self::Unknown => "unknown",
        }
    }
}

/// What a record tells of.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// A generation opened because of a fault.
    Failover = 1,
    /// A generation opened by a drain.
    SwitchBack = 2,
    /// The channel died: no path left.
    Dead = 3,
}

/// One switch. 384 bytes; `sequence` is written last and is the record's number plus one.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct SwitchRecord {
    /// Number of the record plus one; 0 while never written.
    pub sequence: u64,
    /// [`SwitchKind`].
    pub kind: u32,
    /// [`CauseKind`].
    pub cause: u32,
    /// Peer of the channel.
    pub peer: u32,
    /// Index of the channel at the peer.
    pub channel: u32,
    /// Slots left and entered.
    pub from: u32,
    /// Slot entered.
    pub to: u32,
    /// Syndrome, vendor syndrome << 8.
    pub syndrome: u32,
    /// 1 if the cut came from the ledger and not from the truth.
    pub ledger: u32,
    /// D, X and L of the switch.
    pub done_at_close: u64,
    /// X.
    pub executed: u64,
    /// L.
    pub journal_end: u64,
    /// Generation opened.
    pub generation: u64,
    /// Stamps in nanoseconds: noticed, closed, fenced, cut known, replayed, opened.
    pub stamps: [u64; 6],
    /// The path that was left.
    pub left: PathIdentity,
    /// The path that was entered.
    pub entered: PathIdentity,
    /// Unused, zero.
    pub reserved: [u64; 11],
}

const _: () = assert!(size_of::<SwitchRecord>() == 384);
