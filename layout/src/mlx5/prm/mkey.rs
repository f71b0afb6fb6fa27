//! Memory keys.

use crate::fields;

/// Offset of the mkey context in CREATE_MKEY and in QUERY_MKEY's output.
pub const MKC_OFFSET: usize = 0x10;
/// Input bytes of CREATE_MKEY without a translation list.
pub const CREATE_IN_BYTES: usize = 272;
/// `mkc.access_mode_1_0`: translation by pages.
pub const ACCESS_MODE_MTT: u32 = 1;

/// CREATE_MKEY's fields outside the context.
pub mod create {
    use super::*;
    fields! { 272;
        /// Translate through a umem.
        MKEY_UMEM_VALID: 0x0c [30:30];
        /// Umem that holds the memory.
        MKEY_UMEM_ID: 0x64 [31:0];
        @wide
        /// Offset of the region in its umem.
        MKEY_UMEM_OFFSET: 0x68;
    }
}

/// The mkey context, 64 bytes.
pub mod mkc {
    use super::*;
    fields! { 64;
        /// Free, so unusable.
        FREE: 0x00 [30:30];
        /// Writes may pass earlier writes.
        RELAXED_ORDERING_WRITE: 0x00 [18:18];
        /// Remote atomics.
        A: 0x00 [14:14];
        /// Remote write.
        RW: 0x00 [13:13];
        /// Remote read.
        RR: 0x00 [12:12];
        /// Local write.
        LW: 0x00 [11:11];
        /// Local read.
        LR: 0x00 [10:10];
        /// Low bits of the access mode.
        ACCESS_MODE_1_0: 0x00 [9:8];
        /// QP allowed, 0xffffff for any.
        QPN: 0x04 [31:8];
        /// Low byte of the key, chosen by software.
        MKEY_7_0: 0x04 [7:0];
        /// Whole address space.
        LENGTH64: 0x0c [31:31];
        /// Protection domain.
        PD: 0x0c [23:0];
        /// Reads may be answered out of order.
        RELAXED_ORDERING_READ: 0x38 [6:6];
        /// Page size, log2.
        LOG_PAGE_SIZE: 0x38 [5:0];
        @wide
        /// First address.
        START_ADDR: 0x10;
        /// Length in bytes.
        LEN: 0x18;
    }
}

/// The 32-bit key of an mkey index: `index << 8 | low byte`. lkey and rkey are the same number.
pub const fn key(index: u32, low_byte: u8) -> u32 {
    index << 8 | low_byte as u32
}
