//! Completion queue contexts.

use crate::fields;

/// Offset of the CQ context in CREATE_CQ and in QUERY_CQ's output.
pub const CQC_OFFSET: usize = 0x10;
/// `cqc.st`: the next solicited completion raises an event.
pub const ST_SOLICITED_ARMED: u32 = 6;
/// `cqc.st`: the next completion raises an event.
pub const ST_ARMED: u32 = 9;
/// `cqc.st`: not armed, or its event was raised.
pub const ST_FIRED: u32 = 0xa;
/// Input bytes of CREATE_CQ.
pub const CREATE_IN_BYTES: usize = 272;

/// CREATE_CQ's fields outside the context.
pub mod create {
    use super::*;
    fields! { 272;
        /// Umem that holds the entries.
        CQ_UMEM_ID: 0x58 [31:0];
        /// Set by the kernel on hardware.
        CQ_UMEM_VALID: 0x5c [31:31];
        @wide
        /// Offset of the entries in their umem.
        CQ_UMEM_OFFSET: 0x50;
    }
}

/// The CQ context, 64 bytes.
pub mod cqc {
    use super::*;
    fields! { 64;
        /// 0 good, 9 overflow, 0xa write failed.
        STATUS: 0x00 [31:28];
        /// The doorbell record lies in a umem.
        DBR_UMEM_VALID: 0x00 [25:25];
        /// 0 for 64-byte entries.
        CQE_SZ: 0x00 [23:21];
        /// Collapsed: every CQE goes to entry 0.
        CC: 0x00 [20:20];
        /// Overrun ignore: no consumer index is kept.
        OI: 0x00 [17:17];
        /// Compression; stays off.
        CQE_COMP_EN: 0x00 [14:14];
        /// 6 armed for solicited events, 9 armed, 0xa fired.
        ST: 0x00 [11:8];
        /// Umem of the doorbell record.
        DBR_UMEM_ID: 0x04 [31:0];
        /// Offset of the entries in their page, 64-byte units.
        PAGE_OFFSET: 0x08 [11:6];
        /// Entries, log2.
        LOG_CQ_SIZE: 0x0c [28:24];
        /// UAR page for arming.
        UAR_PAGE: 0x0c [23:0];
        /// Event queue.
        C_EQN: 0x14 [7:0];
        /// Page size, log2 over 4 KiB.
        LOG_PAGE_SIZE: 0x18 [28:24];
        /// Consumer index as last read.
        CONSUMER_COUNTER: 0x28 [23:0];
        /// Entries written so far.
        PRODUCER_COUNTER: 0x2c [23:0];
        @wide
        /// Doorbell record: offset in its umem, or an address.
        DBR_ADDR: 0x38;
    }
}
