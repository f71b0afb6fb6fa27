//! Doorbell records and the doorbell registers of a UAR page. PRM: "UAR Page Format", "Doorbell Records".

/// Bytes of a doorbell record.
pub const RECORD_BYTES: usize = 8;
/// Offset of a QP's send counter inside its record; the receive counter is at 0.
pub const SEND_COUNTER_OFFSET: usize = 4;
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
