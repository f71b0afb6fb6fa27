//! Work queue entries, of send queues and receive queues. PRM: "Work Queue Elements"; sizes and bits as in
//! rdma-core's `mlx5dv.h`.
//!
//! A WQE is a row of 16-byte segments. Each constructor here returns one segment as four words in memory
//! order (already big-endian). Keys are taken pre-swapped, as the key tables hold them, because the hot path
//! writes them on every put.

/// Bytes of a basic block: a WQE takes whole blocks, the send queue index counts them.
pub const WQEBB_BYTES: usize = 64;
/// Bytes of a segment; the `ds` field of the control segment counts these.
pub const SEGMENT_BYTES: usize = 16;
/// Largest send queue, in blocks. The 16-bit index allows 65536; half of it keeps comparisons signed.
pub const SQ_DEPTH_MAX: u32 = 32768;
/// Inline bytes that fit one block behind a control and a remote address segment.
pub const INLINE_MAX: usize = WQEBB_BYTES - 2 * SEGMENT_BYTES - 4;

/// One segment, in memory order.
pub type Segment = [u32; 4];

/// One 64-byte block of a send queue, in memory order.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wqebb(pub [u32; 16]);

const _: () = assert!(size_of::<Wqebb>() == WQEBB_BYTES && align_of::<Wqebb>() == WQEBB_BYTES);

/// Send queue opcodes (control segment, dword 0, bits 7..0).
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// No operation; Shunt does not post it, a zero-length WRITE stands in.
    Nop = 0x00,
    /// SEND with invalidate.
    SendInval = 0x01,
    /// RDMA WRITE.
    RdmaWrite = 0x08,
    /// RDMA WRITE with immediate.
    RdmaWriteImm = 0x09,
    /// SEND.
    Send = 0x0a,
    /// SEND with immediate.
    SendImm = 0x0b,
    /// RDMA READ.
    RdmaRead = 0x10,
    /// 8-byte compare and swap.
    AtomicCs = 0x11,
    /// 8-byte fetch and add.
    AtomicFa = 0x12,
    /// Masked compare and swap; size in opmod.
    AtomicMaskedCs = 0x14,
    /// Masked fetch and add; size in opmod.
    AtomicMaskedFa = 0x15,
}

impl Opcode {
    /// The opcode of a raw byte, if the IBGDA path knows it.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0x00 => Self::Nop,
            0x01 => Self::SendInval,
            0x08 => Self::RdmaWrite,
            0x09 => Self::RdmaWriteImm,
            0x0a => Self::Send,
            0x0b => Self::SendImm,
            0x10 => Self::RdmaRead,
            0x11 => Self::AtomicCs,
            0x12 => Self::AtomicFa,
            0x14 => Self::AtomicMaskedCs,
            0x15 => Self::AtomicMaskedFa,
            _ => return None,
        })
    }
}

/// When the NIC writes a CQE for a WQE (bits 3..2 of `fm_ce_se`).
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqeWhen {
    /// Only if it fails.
    OnError = 0x00,
    /// Always: what every stack calls signalled, and what Shunt posts.
    Always = 0x08,
    /// Always, with an event.
    Event = 0x0c,
}

/// `fm_ce_se` bit 1: the receiver's completion is a solicited event.
pub const SOLICITED_EVENT: u8 = 0x02;
/// `fm_ce_se` bits 7..5 = 4: wait for earlier READs and atomics (what `IBV_SEND_FENCE` sets).
pub const FENCE_BEFORE: u8 = 0x80;
/// Top bit of an inline header.
pub const INLINE_FLAG: u32 = 0x8000_0000;

/// Control segment: `opmod | index | opcode`, `qpn | ds`, flags, immediate.
///
/// `qpn_shifted` is `qpn << 8`, as path rows hold it.
#[inline(always)]
pub const fn ctrl(opcode: Opcode, index: u16, qpn_shifted: u32, ds: u8, fm_ce_se: u8) -> Segment {
    [
        ((index as u32) << 8 | opcode as u32).to_be(),
        (qpn_shifted | ds as u32).to_be(),
        (fm_ce_se as u32).to_be(),
        0,
    ]
}

/// The same control segment with immediate data, a number.
#[inline(always)]
pub const fn with_immediate(ctrl: Segment, imm: u32) -> Segment {
    [ctrl[0], ctrl[1], ctrl[2], imm.to_be()]
}

/// The same control segment with an operation modifier.
#[inline(always)]
pub const fn with_opmod(ctrl: Segment, opmod: u8) -> Segment {
    [ctrl[0] | ((opmod as u32) << 24).to_be(), ctrl[1], ctrl[2], ctrl[3]]
}

/// Operation modifier of a masked atomic on four bytes.
pub const OPMOD_MASKED_4: u8 = 0x08;
/// Operation modifier of a masked atomic on eight bytes.
pub const OPMOD_MASKED_8: u8 = 0x09;

/// Atomic segment of two 64-bit operands: `swap_or_add, compare` of the plain atomics, `add, field boundary` of a
/// masked add, `swap, compare` and then `swap mask, compare mask` of a masked compare-and-swap.
#[inline(always)]
pub const fn operands8(first: u64, second: u64) -> Segment {
    [
        ((first >> 32) as u32).to_be(),
        (first as u32).to_be(),
        ((second >> 32) as u32).to_be(),
        (second as u32).to_be(),
    ]
}

/// Atomic segment of 32-bit operands: `add, field boundary, 0, 0` of a masked add, `swap, compare, swap mask, compare
/// mask` of a masked compare-and-swap.
#[inline(always)]
pub const fn operands4(operands: [u32; 4]) -> Segment {
    [operands[0].to_be(), operands[1].to_be(), operands[2].to_be(), operands[3].to_be()]
}

/// Key that ends the scatter list of a receive WQE.
pub const TERMINATE_SCATTER_LIST_KEY: u32 = 0x100;

/// Segment that ends the scatter list of a receive WQE which has room for more.
pub const fn scatter_end() -> Segment {
    [0, TERMINATE_SCATTER_LIST_KEY.to_be(), 0, 0]
}

/// Remote address segment. `rkey_be` is the key as stored in the key table.
#[inline(always)]
pub const fn remote(address: u64, rkey_be: u32) -> Segment {
    [((address >> 32) as u32).to_be(), (address as u32).to_be(), rkey_be, 0]
}

/// Data pointer segment. `bytes` is 1 to 2^31-1: zero means 2^31 to hardware, so it is never written.
#[inline(always)]
pub const fn data(address: u64, lkey_be: u32, bytes: u32) -> Segment {
    [bytes.to_be(), lkey_be, ((address >> 32) as u32).to_be(), (address as u32).to_be()]
}

/// Inline segment that carries the eight bytes of `value` as they lie in memory on a little-endian host.
#[inline(always)]
pub const fn inline8(value: u64) -> Segment {
    [(8 | INLINE_FLAG).to_be(), value as u32, (value >> 32) as u32, 0]
}

/// Inline segment that carries the low `bytes` (1 to 8) bytes of `value`, little-endian.
#[inline(always)]
pub const fn inline_small(value: u64, bytes: u32) -> Segment {
    [(bytes | INLINE_FLAG).to_be(), value as u32, (value >> 32) as u32, 0]
}

/// Fields of a control segment, read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ctrl {
    /// Operation modifier.
    pub opmod: u8,
    /// Index of the WQE's first block.
    pub index: u16,
    /// Opcode byte, not yet judged.
    pub opcode: u8,
    /// Queue pair number.
    pub qpn: u32,
    /// Segments of the WQE, control segment included.
    pub ds: u8,
    /// Fence, completion and solicited bits.
    pub fm_ce_se: u8,
    /// Immediate data, as a number.
    pub imm: u32,
}

impl Ctrl {
    /// Reads a control segment in memory order.
    #[inline(always)]
    pub const fn read(segment: Segment) -> Self {
        let (dw0, dw1, dw2) = (u32::from_be(segment[0]), u32::from_be(segment[1]), u32::from_be(segment[2]));
        Self {
            opmod: (dw0 >> 24) as u8,
            index: (dw0 >> 8) as u16,
            opcode: dw0 as u8,
            qpn: dw1 >> 8,
            ds: dw1 as u8 & 0x3f,
            fm_ce_se: dw2 as u8,
            imm: u32::from_be(segment[3]),
        }
    }

    /// True if the NIC writes a CQE when the WQE succeeds.
    pub const fn signalled(self) -> bool {
        self.fm_ce_se & 0x08 != 0
    }
}

/// The address of a remote address segment.
#[inline(always)]
pub const fn remote_address(segment: Segment) -> u64 {
    (u32::from_be(segment[0]) as u64) << 32 | u32::from_be(segment[1]) as u64
}

/// The key of a remote address segment, as a number.
pub const fn remote_key(segment: Segment) -> u32 {
    u32::from_be(segment[2])
}

/// What a data or inline segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSegment {
    /// `bytes` at `address` under `lkey`.
    Pointer {
        /// Length in bytes, below 2^31.
        bytes: u32,
        /// Local key.
        lkey: u32,
        /// Virtual address.
        address: u64,
    },
    /// `bytes` of payload follow the four-byte header.
    Inline {
        /// Payload length; hardware and rdma-core use ten bits.
        bytes: u32,
    },
}

impl DataSegment {
    /// Reads a data or inline segment in memory order.
    #[inline(always)]
    pub const fn read(segment: Segment) -> Self {
        let count = u32::from_be(segment[0]);
        if count & INLINE_FLAG != 0 {
            return Self::Inline { bytes: count & 0x3ff };
        }
        Self::Pointer {
            bytes: count,
            lkey: u32::from_be(segment[1]),
            address: (u32::from_be(segment[2]) as u64) << 32 | u32::from_be(segment[3]) as u64,
        }
    }
}

/// Address vector of a datagram: three segments behind the control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// Key of the queue pair it goes to; with bit 31 set, the sender's own key is sent instead.
    pub qkey: u32,
    /// Queue pair it goes to.
    pub qpn: u32,
    /// The vector is 48 bytes long, not 16. Always set where compact vectors are not supported.
    pub full: bool,
    /// Destination LID (InfiniBand), or UDP source port (RoCE v2).
    pub rlid: u16,
    /// Service level (InfiniBand); on Ethernet twice the priority.
    pub service_level: u8,
    /// Destination MAC (RoCE).
    pub rmac: [u8; 6],
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// A GRH follows (InfiniBand); zero on RoCE, which uses the GID all the same.
    pub grh: bool,
    /// Index of the source GID in the port's table.
    pub source_gid_index: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Destination GID.
    pub rgid: [u8; 16],
}

impl AddressVector {
    /// Its three segments, in memory order.
    pub fn segments(&self) -> [Segment; 3] {
        let [m0, m1, m2, m3, m4, m5] = self.rmac;
        let gid = |n: usize| {
            u32::from_ne_bytes([self.rgid[n], self.rgid[n + 1], self.rgid[n + 2], self.rgid[n + 3]])
        };
        let label =
            (self.grh as u32) << 30 | (self.source_gid_index as u32) << 20 | self.flow_label & 0xf_ffff;
        [
            [
                self.qkey.to_be(),
                0,
                ((self.full as u32) << 31 | self.qpn & 0xff_ffff).to_be(),
                ((self.service_level as u32 & 0xf) << 24 | self.rlid as u32).to_be(),
            ],
            [
                0,
                u32::from_be_bytes([m0, m1, m2, m3]).to_be(),
                u32::from_be_bytes([m4, m5, self.tclass, self.hop_limit]).to_be(),
                label.to_be(),
            ],
            [gid(0), gid(4), gid(8), gid(12)],
        ]
    }

    /// Reads three segments in memory order.
    pub fn read(segments: [Segment; 3]) -> Self {
        let [key, path, gid] = segments;
        let number = key.map(u32::from_be);
        let [m0, m1, m2, m3] = u32::from_be(path[1]).to_be_bytes();
        let [m4, m5, tclass, hop_limit] = u32::from_be(path[2]).to_be_bytes();
        let label = u32::from_be(path[3]);
        let mut rgid = [0; 16];
        for (bytes, word) in rgid.chunks_exact_mut(4).zip(gid) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Self {
            qkey: number[0],
            qpn: number[2] & 0xff_ffff,
            full: number[2] >> 31 != 0,
            rlid: number[3] as u16,
            service_level: (number[3] >> 24) as u8 & 0xf,
            rmac: [m0, m1, m2, m3, m4, m5],
            tclass,
            hop_limit,
            grh: label >> 30 & 1 != 0,
            source_gid_index: (label >> 20) as u8,
            flow_label: label & 0xf_ffff,
            rgid,
        }
    }
}
