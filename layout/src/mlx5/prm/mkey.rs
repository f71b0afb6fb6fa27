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
        /// Size of the translations behind the command or in its umem, in units of 16 bytes: two pages each.
        TRANSLATIONS_OCTWORD_ACTUAL_SIZE: 0x60 [31:0];
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
        /// Size of the key's translation table, in units of 16 bytes: two pages each.
        TRANSLATIONS_OCTWORD_SIZE: 0x34 [31:0];
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

/// Units of 16 bytes that the translations of a region fill: an 8-byte entry for every page it touches.
pub const fn translation_octwords(start: u64, bytes: u64, log_page: u32) -> u32 {
    let page = 1u128 << log_page;
    let pages = (start as u128 % page + bytes as u128).div_ceil(page);
    let octwords = pages.div_ceil(2);
    if octwords > u32::MAX as u128 { u32::MAX } else { octwords as u32 }
}

/// The 32-bit key of an mkey index: `index << 8 | low byte`. lkey and rkey are the same number.
pub const fn key(index: u32, low_byte: u8) -> u32 {
    index << 8 | low_byte as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translations_cover_every_page_that_is_touched() {
        for (start, bytes, want) in
            [(0, 4096, 1), (0, 8192, 1), (0, 8193, 2), (4095, 2, 1), (4095, 8192, 2), (0x7000, 1 << 20, 128)]
        {
            assert_eq!(translation_octwords(start, bytes, 12), want, "{start:#x}+{bytes:#x}");
        }
        assert_eq!(translation_octwords(u64::MAX, u64::MAX, 12), u32::MAX);
        assert_eq!(translation_octwords(0, 1 << 30, 21), 256);
    }
}
