//! The status page: what the agent of a PE tells any process of the machine, in shared memory.
//!
//! One writer, any number of readers. Everything from [`StatusPage::summary`] on may change; `sequence` is odd while it
//! does. The C form is `include/shunt/status.h`; `tests/status_header.rs` holds one against the other.

/// First word of a page: "SHUNTSTS" as little-endian bytes.
pub const STATUS_MAGIC: u64 = u64::from_le_bytes(*b"SHUNTSTS");
/// Version of the page. A reader refuses any other.
pub const STATUS_VERSION: u32 = 3;
/// Rails a page has room for.
pub const STATUS_RAILS: usize = 64;
/// PEs a page has room for.
pub const STATUS_PEERS: usize = 4096;

/// How a rail stands.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailState {
    /// There is no such rail.
    Absent = 0,
    /// Its port is up.
    Up = 1,
    /// Its port is down, or its NIC failed.
    Down = 2,
}

impl RailState {
    /// The state of a raw word.
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Up,
            2 => Self::Down,
            _ => Self::Absent,
        }
    }

    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// How the worst channel to a peer stands. Larger is worse.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerState {
    /// On its primary, every backup ready.
    Fine = 0,
    /// On its primary; a backup is missing.
    Thin = 1,
    /// On a backup.
    Backup = 2,
    /// Inside a switch.
    Switching = 3,
    /// Inside a switch that finds no path.
    Pathless = 4,
    /// Ended.
    Lost = 5,
}

impl PeerState {
    /// The state of a raw byte; anything unknown reads as lost.
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Fine,
            1 => Self::Thin,
            2 => Self::Backup,
            3 => Self::Switching,
            4 => Self::Pathless,
            _ => Self::Lost,
        }
    }

    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Thin => "thin",
            Self::Backup => "backup",
            Self::Switching => "switching",
            Self::Pathless => "pathless",
            Self::Lost => "lost",
        }
    }
}

/// How the PE's rank stands among those that agreed on a mask.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody asked for a mask.
    Off = 0,
    /// It is one of those that go on.
    Member = 1,
    /// The others go on without it, and told it so.
    Out = 2,
    /// It lost a peer and found no majority: it masked itself.
    Alone = 3,
}

impl Standing {
    /// The standing of a raw word; anything unknown reads as none.
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Member,
            2 => Self::Out,
            3 => Self::Alone,
            _ => Self::Off,
        }
    }

    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Member => "member",
            Self::Out => "out",
            Self::Alone => "alone",
        }
    }
}

/// The last switch that a fault made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusFault {
    /// When it was noticed, ns since 1970; 0: there was none.
    pub noticed_unix_ns: u64,
    /// From noticed to open, or to the end of the channel.
    pub lasted_ns: u64,
    /// Peer of the channel.
    pub peer: u32,
    /// Channel at the peer.
    pub channel: u32,
    /// Local rail of the path that was left.
    pub local_rail: u32,
    /// Remote rail of the path that was left.
    pub remote_rail: u32,
    /// [`crate::state::CauseKind`].
    pub cause: u32,
    /// Syndrome, vendor syndrome << 8.
    pub syndrome: u32,
    /// [`crate::state::SwitchKind`].
    pub kind: u32,
    /// Unused, zero.
    pub reserved: u32,
}

/// What a framework looks at in passing. Counters are sums over all channels since the start.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusSummary {
    /// When the agent last wrote, ns since 1970: older than a second means that it is gone or held up.
    pub updated_unix_ns: u64,
    /// Changes with everything but `updated_unix_ns`.
    pub generation: u64,
    /// Since when there is trouble, ns since 1970; 0: all is well.
    pub trouble_unix_ns: u64,
    /// When every backup was ready for the first time, ns since 1970; 0: not yet.
    pub armed_unix_ns: u64,
    /// Worst [`PeerState`] of all peers.
    pub worst_peer: u32,
    /// Rails of this PE whose port is down.
    pub rails_down: u32,
    /// Channels.
    pub channels: u32,
    /// Of these, on a backup.
    pub on_backup: u32,
    /// Of these, inside a switch.
    pub switching: u32,
    /// Of these, ended.
    pub dead: u32,
    /// Generations opened because of a fault.
    pub failovers: u64,
    /// Generations opened by a switch-back.
    pub switchbacks: u64,
    /// Switches started because of silence only.
    pub suspicions: u64,
    /// Fences asked of the agent.
    pub fences_asked: u64,
    /// Operations sent again.
    pub replayed: u64,
    /// Operations that a placeholder stood in for.
    pub placeholders: u64,
    /// Tickets that waited for a switch.
    pub late_tickets: u64,
    /// Cuts from the ledger.
    pub ledger_cuts: u64,
    /// Times no path was usable.
    pub pathless: u64,
    /// Operations that may or may not have been applied.
    pub uncertain: u64,
    /// Events told.
    pub events: u64,
    /// Events lost.
    pub events_lost: u64,
    /// Decisions about who is left out, so far.
    pub epoch: u64,
    /// Ranks that are left out, for this PE.
    pub masked: u32,
    /// [`Standing`].
    pub standing: u32,
    /// The last switch that a fault made.
    pub last_fault: StatusFault,
}

/// One rail of the PE.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRail {
    /// [`RailState`].
    pub state: u32,
    /// Times its port went down.
    pub downs: u32,
    /// When it last changed, ns since 1970; 0: never.
    pub changed_unix_ns: u64,
    /// Paths over it that an operator took out.
    pub retired: u32,
    /// Paths over it that are being taken out, and are drained first.
    pub leaving: u32,
    /// Its name, zero padded, e.g. `mlx5_0:1`.
    pub name: [u8; 16],
}

/// One page, one PE.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct StatusPage {
    /// [`STATUS_MAGIC`]; written last when the page is made.
    pub magic: u64,
    /// [`STATUS_VERSION`].
    pub version: u32,
    /// `size_of::<StatusPage>()`.
    pub bytes: u32,
    /// Process.
    pub pid: u32,
    /// PE.
    pub pe: u32,
    /// PEs of the job.
    pub pe_count: u32,
    /// Rails of the PE.
    pub rails: u32,
    /// When the page was made, ns since 1970.
    pub started_unix_ns: u64,
    /// The job's name, zero padded.
    pub job: [u8; 48],
    /// Unused, zero.
    pub reserved0: [u64; 4],
    /// Odd while what follows changes.
    pub sequence: u64,
    /// What changes.
    pub summary: StatusSummary,
    /// Rails, by rank.
    pub rail: [StatusRail; STATUS_RAILS],
    /// [`PeerState`] of each PE; this PE's own is `Fine`.
    pub peer: [u8; STATUS_PEERS],
    /// Ranks that are left out, for this PE: a bit each, rank 0 in the lowest bit of the first word.
    pub mask: [u64; STATUS_PEERS / 64],
    /// Unused, zero.
    pub reserved1: [u64; 5],
}

const _: () = {
    assert!(size_of::<StatusFault>() == 48);
    assert!(size_of::<StatusSummary>() == 216);
    assert!(size_of::<StatusRail>() == 40);
    assert!(core::mem::offset_of!(StatusPage, sequence) == 120);
    assert!(core::mem::offset_of!(StatusPage, summary) == 128);
    assert!(core::mem::offset_of!(StatusPage, rail) == 344);
    assert!(core::mem::offset_of!(StatusPage, peer) == 2904);
    assert!(core::mem::offset_of!(StatusPage, mask) == 7000);
    assert!(size_of::<StatusPage>() == 7552);
};
