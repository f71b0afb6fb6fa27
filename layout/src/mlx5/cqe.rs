//! Completion queue entries of 64 bytes. PRM: "Completion Queue Entry"; `struct mlx5_cqe64` in `mlx5dv.h`.

/// Bytes of a CQE.
pub const CQE_BYTES: usize = 64;
/// Offset of the word that tells everything a poller needs: `wqe_counter`, `signature`, `op_own`.
pub const TAIL_OFFSET: usize = 0x3c;
/// Offset of `vendor_err_synd` in an error CQE.
pub const VENDOR_SYNDROME_OFFSET: usize = 0x36;
/// Offset of `syndrome` in an error CQE.
pub const SYNDROME_OFFSET: usize = 0x37;
/// Offset of the word `vendor`, `syndrome` lie in.
pub const SYNDROME_WORD_OFFSET: usize = 0x34;
/// Offset of the word that holds the send opcode `31:24` and the QPN `23:0`.
pub const OPCODE_QPN_OFFSET: usize = 0x38;
/// Offset of the user index (CQE version 1).
pub const USER_INDEX_OFFSET: usize = 0x20;
/// Offset of the source LID.
pub const SOURCE_LID_OFFSET: usize = 0x16;
/// Offset of the word that holds the GRH flag `29:28`, the service level `27:24` and the QPN a datagram came from
/// `23:0`.
pub const FLAGS_REMOTE_QPN_OFFSET: usize = 0x18;
/// In that word: a GRH lies in front of the data.
pub const GRH_FLAG: u32 = 1 << 28;
/// In that word, at the place of the service level: the datagram came over UDP (bit 3), behind an IPv4 header (2). Zero
/// on Ethernet is RoCE v1, behind a GRH.
pub const OVER_UDP_IPV4: u32 = 0xa << 24;
/// Offset of the immediate data.
pub const IMMEDIATE_OFFSET: usize = 0x24;
/// Offset of the byte count.
pub const BYTE_COUNT_OFFSET: usize = 0x2c;
/// Software fills a fresh CQ with this byte: opcode INVALID, owner 1, so no entry reads as complete.
pub const FRESH_BYTE: u8 = 0xff;

/// `op_own` bit 1: the sender asked for a solicited event.
pub const SOLICITED: u8 = 0x02;

/// CQE opcodes (`op_own` bits 7..4).
pub mod opcode {
    /// Requester completion.
    pub const REQ: u8 = 0x0;
    /// Responder, WRITE with immediate.
    pub const RESP_WRITE_IMM: u8 = 0x1;
    /// Responder, SEND.
    pub const RESP_SEND: u8 = 0x2;
    /// Responder, SEND with immediate.
    pub const RESP_SEND_IMM: u8 = 0x3;
    /// Requester error.
    pub const REQ_ERR: u8 = 0xd;
    /// Responder error.
    pub const RESP_ERR: u8 = 0xe;
    /// Entry never written.
    pub const INVALID: u8 = 0xf;
}

/// The last word of a CQE, decoded from one 32-bit load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Index of the first block of the completed WQE.
    pub wqe_counter: u16,
    /// Opcode, `op_own` bits 7..4.
    pub opcode: u8,
    /// Owner bit.
    pub owner: bool,
}

impl Tail {
    /// Bits of the counter, as the word lies in memory.
    pub const COUNTER: u32 = 0xffff_0000u32.to_be();
    /// Bits of counter, opcode and owner, as the word lies in memory.
    pub const ALL: u32 = 0xffff_00f1u32.to_be();

    /// Decodes the word at [`TAIL_OFFSET`] as a little-endian machine loads it.
    #[inline(always)]
    pub const fn from_memory(word: u32) -> Self {
        let word = u32::from_be(word);
        Self { wqe_counter: (word >> 16) as u16, opcode: (word >> 4) as u8 & 0xf, owner: word & 1 != 0 }
    }

    /// The word as it lies in memory. The signature byte is zero.
    #[inline(always)]
    pub const fn to_memory(self) -> u32 {
        ((self.wqe_counter as u32) << 16 | (self.opcode as u32) << 4 | self.owner as u32).to_be()
    }

    /// True if this entry belongs to the CQ's pass that holds running index `index` (`log_entries` is log2 of
    /// the CQ's size): the opcode is valid and the owner bit is that of the pass.
    #[inline(always)]
    pub const fn belongs_to(self, index: u64, log_entries: u32) -> bool {
        self.opcode != opcode::INVALID && self.owner == ((index >> log_entries) & 1 != 0)
    }
}

/// Error syndromes (`struct mlx5_err_cqe`, byte 0x37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u8);

impl Syndrome {
    /// Message longer than a buffer.
    pub const LOCAL_LENGTH: Self = Self(0x01);
    /// Malformed WQE.
    pub const LOCAL_QP_OPERATION: Self = Self(0x02);
    /// Local key, range or permission.
    pub const LOCAL_PROTECTION: Self = Self(0x04);
    /// Flushed: the QP was in ERR.
    pub const FLUSHED: Self = Self(0x05);
    /// Unexpected response.
    pub const BAD_RESPONSE: Self = Self(0x10);
    /// Responder-local access error.
    pub const LOCAL_ACCESS: Self = Self(0x11);
    /// NAK 0x61.
    pub const REMOTE_INVALID_REQUEST: Self = Self(0x12);
    /// NAK 0x62.
    pub const REMOTE_ACCESS: Self = Self(0x13);
    /// NAK 0x63.
    pub const REMOTE_OPERATION: Self = Self(0x14);
    /// Transport retries exhausted.
    pub const RETRY_EXCEEDED: Self = Self(0x15);
    /// RNR retries exhausted.
    pub const RNR_RETRY_EXCEEDED: Self = Self(0x16);
    /// Aborted by the remote side.
    pub const REMOTE_ABORTED: Self = Self(0x22);

    /// True if, as a *first* cause, it says the program is wrong: it would fail on every path alike.
    #[inline(always)]
    pub const fn is_program_error(self) -> bool {
        matches!(self.0, 0x01 | 0x02 | 0x04 | 0x12 | 0x13)
    }

    /// What it means, in the words of `ibv_wc_status_str`'s domain.
    pub const fn meaning(self) -> &'static str {
        match self.0 {
            0x00 => "no error completion",
            0x01 => "local length error",
            0x02 => "local QP operation error",
            0x04 => "local protection error",
            0x05 => "flushed",
            0x06 => "memory window bind error",
            0x10 => "bad response",
            0x11 => "local access error",
            0x12 => "remote invalid request",
            0x13 => "remote access error",
            0x14 => "remote operation error",
            0x15 => "transport retries exceeded",
            0x16 => "RNR retries exceeded",
            0x22 => "aborted by the remote side",
            _ => "unknown syndrome",
        }
    }
}

/// Vendor syndromes seen in the field beside a syndrome. Not published by the vendor: a set for
/// compatibility.
pub mod vendor {
    /// With 0x15: local ACK timeout, retries used up.
    pub const ACK_TIMEOUT: u8 = 0x81;
    /// With 0x13.
    pub const REMOTE_ACCESS: u8 = 0x88;
    /// With 0x12.
    pub const REMOTE_INVALID: u8 = 0x89;
    /// With 0x04.
    pub const LOCAL_KEY: u8 = 0x51;
    /// With 0x02.
    pub const MALFORMED: u8 = 0x32;
    /// With 0x05 on a send queue.
    pub const REQUESTER_FLUSH: u8 = 0xf5;
    /// With 0x05 on a receive queue.
    pub const RECEIVER_FLUSH: u8 = 0xf9;
}
