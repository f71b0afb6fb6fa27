//! Doorbell records and the doorbell registers of a UAR page. PRM: "UAR Page Format", "Doorbell Records".

/// Bytes of a doorbell record.
pub const RECORD_BYTES: usize = 8;
/// Offset of a QP's receive counter inside its record.
pub const RECEIVE_COUNTER_OFFSET: usize = 0;
/// Offset of a QP's send counter inside its record.
pub const SEND_COUNTER_OFFSET: usize = 4;
/// Offset of a CQ's arm word inside its record; the consumer index is at 0.
pub const ARM_WORD_OFFSET: usize = 4;
/// Bytes of a UAR page.
pub const UAR_PAGE_BYTES: usize = 4096;
/// Offset of the first BlueFlame (send doorbell) register in a UAR page.
pub const BLUEFLAME_OFFSET: usize = 0x800;
/// Offset of the CQ arm register.
pub const CQ_ARM_OFFSET: usize = 0x20;

/// The send counter of a doorbell record: the *next* index, 16 bits, in memory order.
#[inline(always)]
pub const fn send_counter(next_index: u64) -> u32 {
    (next_index as u16 as u32).to_be()
}

/// The eight bytes a GPU stores to the register: `next_index << 8`, then `qpn << 8`, in memory order.
///
/// IBGDA and GPUNetIO write the next free index with `ds` zero; libmlx5 writes the last WQE's own control
/// words.
#[inline(always)]
pub const fn register(next_index: u64, qpn_shifted: u32) -> u64 {
    ((next_index as u16 as u32) << 8).to_be() as u64 | (qpn_shifted.to_be() as u64) << 32
}

/// A send doorbell, read back from the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// First index not to be fetched.
    pub next_index: u16,
    /// Queue pair.
    pub qpn: u32,
}

impl Doorbell {
    /// Decodes a register value loaded on a little-endian machine.
    ///
    /// With `ds` zero the index is the next one (GPU producers); otherwise it is that of the last WQE, `ds`
    /// segments long (libmlx5). Bits above the 16-bit index are not trusted: one producer lets them overflow.
    pub const fn from_register(value: u64) -> Self {
        let (dw0, dw1) = (u32::from_be(value as u32), u32::from_be((value >> 32) as u32));
        let (index, ds) = ((dw0 >> 8) as u16, (dw1 & 0x3f) as u16);
        let next_index = if ds == 0 { index } else { index.wrapping_add(ds.div_ceil(4)) };
        Self { next_index, qpn: dw1 >> 8 }
    }
}

/// A request for the next completion event of a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Counts the events software has taken, modulo 4: a request older than the last event is void.
    pub sequence: u8,
    /// Only a solicited completion or an error raises the event.
    pub solicited_only: bool,
    /// Completions software has consumed, 24 bits: the event is due at once if there are newer ones.
    pub consumed: u32,
}

impl Arm {
    /// The request as a number: the record's word, and the upper half of the register.
    const fn word(self) -> u32 {
        (self.sequence as u32 & 3) << 28 | (self.solicited_only as u32) << 24 | self.consumed & 0xff_ffff
    }

    const fn from_word(word: u32) -> Self {
        Self {
            sequence: (word >> 28) as u8 & 3,
            solicited_only: word & 1 << 24 != 0,
            consumed: word & 0xff_ffff,
        }
    }

    /// The arm word of a CQ's record, in memory order.
    pub const fn to_record(self) -> u32 {
        self.word().to_be()
    }

    /// Decodes the arm word of a record loaded on a little-endian machine.
    pub const fn from_record(word: u32) -> Self {
        Self::from_word(u32::from_be(word))
    }

    /// The eight bytes to store to the register, in memory order.
    pub const fn to_register(self, cqn: u32) -> u64 {
        self.word().to_be() as u64 | (cqn.to_be() as u64) << 32
    }

    /// Decodes a register value loaded on a little-endian machine: the request and the CQN.
    pub const fn from_register(value: u64) -> (Self, u32) {
        (Self::from_word(u32::from_be(value as u32)), u32::from_be((value >> 32) as u32) & 0xff_ffff)
    }
}
