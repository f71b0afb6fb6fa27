//! One path of one channel: where its rings are, how it maps tickets, and who is at its ends.

/// What the agent says of a path.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathState {
    /// Never made.
    Absent = 0,
    /// Connected and usable: the active path or a standby.
    Ready = 1,
    /// One half at least is in ERR; its truth is kept.
    Fenced = 2,
    /// Both directions left it; waiting for the packet lifetime and for its ports.
    Released = 3,
    /// Recreated, connecting or being probed.
    Probing = 4,
    /// Taken out by the operator.
    Retired = 5,
    /// Works, and is to be left by a drain: the operator takes it out.
    Leaving = 6,
}

impl PathState {
    /// The state of a raw word; anything unknown reads as absent.
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Ready,
            2 => Self::Fenced,
            3 => Self::Released,
            4 => Self::Probing,
            5 => Self::Retired,
            6 => Self::Leaving,
            _ => Self::Absent,
        }
    }
}

/// Both ends of a path, for fault records and pictures.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathIdentity {
    /// Local GID.
    pub local_gid: [u8; 16],
    /// Remote GID.
    pub remote_gid: [u8; 16],
    /// Local rail's name, zero padded, e.g. `mlx5_0:1`.
    pub local_rail_name: [u8; 16],
    /// Remote rail's name.
    pub remote_rail_name: [u8; 16],
    /// Local LID; 0 on RoCE.
    pub local_lid: u16,
    /// Remote LID; 0 on RoCE.
    pub remote_lid: u16,
    /// Local QPN.
    pub local_qpn: u32,
    /// Remote QPN.
    pub remote_qpn: u32,
    /// Local rail.
    pub local_rail: u32,
    /// Remote rail.
    pub remote_rail: u32,
    /// Incarnation of the pair.
    pub incarnation: u32,
}

impl PathIdentity {
    /// All zero.
    pub const EMPTY: Self = Self {
        local_gid: [0; 16],
        remote_gid: [0; 16],
        local_rail_name: [0; 16],
        remote_rail_name: [0; 16],
        local_lid: 0,
        remote_lid: 0,
        local_qpn: 0,
        remote_qpn: 0,
        local_rail: 0,
        remote_rail: 0,
        incarnation: 0,
    };
}

/// How the tickets of a path's occupant map to its completion queue.
///
/// A WQE of two blocks has two tickets and one completion, so behind it completions run behind blocks: `lag` is by how
/// many. Low 24 bits: those of `base`; then eight of the generation of the channel, so that a poller that slept cannot
/// raise the lag of a later occupant; high half: the lag. One word, so that all are read by one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqMap(pub u64);

impl CqMap {
    /// The map of an occupant that starts at `base` in `generation`, on a path that has seen `lag` wide WQEs.
    #[inline(always)]
    pub const fn new(base: u64, lag: u32, generation: u64) -> Self {
        Self((lag as u64) << 32 | (generation & 0xff) << 24 | Self::index(base as u32) as u64)
    }

    /// What a map says of a physical index: its low 24 bits, enough for positions, owner bits and WQE counters.
    #[inline(always)]
    pub const fn index(physical: u32) -> u32 {
        physical & 0xff_ffff
    }

    /// Physical index of a ticket in the low 24 bits; what is above them means nothing (see [`CqMap::index`]).
    #[inline(always)]
    pub const fn physical(self, ticket: u64) -> u32 {
        (ticket as u32).wrapping_sub(self.0 as u32)
    }

    /// Wide WQEs completed on this path, as far as pollers have noted.
    #[inline(always)]
    pub const fn lag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The map behind one more wide WQE.
    #[inline(always)]
    pub const fn behind_one_more(self) -> Self {
        Self(self.0.wrapping_add(1 << 32))
    }
}

/// What a post, and a look at its completions, read of a path: in pairs and fours that one load of 16 bytes takes. It
/// lies where the rings do. The switch that enters a path takes it over from the agent's [`PathRow`].
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct HotPath {
    /// Send queue, `depth` blocks of 64 bytes.
    pub send_queue: u64,
    /// Ticket of physical index 0, modulo 2^64: `physical = ticket - base`.
    pub base: u64,
    /// The send counter of the doorbell record (its second word).
    pub doorbell_record: u64,
    /// The doorbell register.
    pub doorbell_register: u64,
    /// `qpn << 8`.
    pub qpn_shifted: u32,
    /// log2 of the depth, of both rings.
    pub log_depth: u32,
    /// Local rail: row of the lkey table.
    pub local_rail: u32,
    /// Remote rail: row of the rkey table.
    pub remote_rail: u32,
    /// Completion queue, `depth` entries of 64 bytes: every WQE is signalled, so entry n is that of WQE n (not block n,
    /// see [`CqMap`]).
    pub completion_queue: u64,
    /// Maps tickets to completions: [`CqMap`]. The switcher sets it, pollers raise its lag.
    pub cq_map: u64,
    /// WQEs of two blocks ever posted to this incarnation. Zero nearly always.
    pub wide: u64,
    /// Incarnation of the path that all this is of; written last.
    pub incarnation: u32,
    /// Unused, zero.
    pub reserved: u32,
    /// Unused, zero.
    pub pad: [u64; 6],
}

impl HotPath {
    /// That of a path that nobody has used.
    pub const fn of(row: &PathRow) -> Self {
        Self {
            send_queue: row.send_queue,
            base: 0,
            doorbell_record: row.doorbell_record,
            doorbell_register: row.doorbell_register,
            qpn_shifted: row.qpn_shifted,
            log_depth: row.log_depth,
            local_rail: row.local_rail,
            remote_rail: row.remote_rail,
            completion_queue: row.completion_queue,
            cq_map: 0,
            wide: 0,
            incarnation: row.incarnation,
            reserved: 0,
            pad: [0; 6],
        }
    }
}

/// One path of one channel, as the agent says it is; in memory of the host.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct PathRow {
    /// Send queue.
    pub send_queue: u64,
    /// [`HotPath::base`] of the last occupant, for reports; written by the switcher.
    pub base: u64,
    /// The send counter of the doorbell record (its second word).
    pub doorbell_record: u64,
    /// The doorbell register.
    pub doorbell_register: u64,
    /// `qpn << 8`.
    pub qpn_shifted: u32,
    /// log2 of the depth, of both rings.
    pub log_depth: u32,
    /// Local rail.
    pub local_rail: u32,
    /// Remote rail.
    pub remote_rail: u32,
    /// Completion queue.
    pub completion_queue: u64,
    /// Unused, zero.
    pub reserved1: u64,
    /// [`PathState`]. Written by the agent, and by a switch that fenced the path by time.
    pub state: u32,
    /// Incarnation. Written by the agent.
    pub incarnation: u32,
    /// Physical index the next occupant starts at: after probes, or where a drain left it.
    pub next_index: u64,
    /// When the path became ready, nanoseconds.
    pub ready_since_ns: u64,
    /// First cause that failed it: syndrome, vendor syndrome << 8, [`super::CauseKind`] << 16.
    pub first_cause: u32,
    /// Unused, zero.
    pub reserved: u32,
    /// Unused, zero.
    pub pad0: [u64; 4],
    /// Who is at its ends.
    pub identity: PathIdentity,
    /// Unused, zero.
    pub pad1: [u64; 5],
}

const _: () = {
    assert!(size_of::<PathIdentity>() == 88);
    assert!(size_of::<PathRow>() == 256 && align_of::<PathRow>() == 128);
    assert!(core::mem::offset_of!(PathRow, identity) == 128);
    assert!(core::mem::offset_of!(PathRow, doorbell_record) == 16);
    assert!(core::mem::offset_of!(PathRow, qpn_shifted) == 32);
    assert!(core::mem::offset_of!(PathRow, completion_queue) == 48);
    assert!(size_of::<HotPath>() == 128 && align_of::<HotPath>() == 128);
    assert!(core::mem::offset_of!(HotPath, doorbell_record) == 16);
    assert!(core::mem::offset_of!(HotPath, qpn_shifted) == 32);
    assert!(core::mem::offset_of!(HotPath, completion_queue) == 48);
};
