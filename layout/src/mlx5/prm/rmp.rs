//! Receive memory pools: what a shared receive queue is in firmware. PRM: "CREATE_RMP", "RMP Context", "Work Queue".

use crate::fields;

/// Offset of the RMP context in CREATE_RMP, MODIFY_RMP and QUERY_RMP's output.
pub const RMPC_OFFSET: usize = 0x20;
/// Input bytes of CREATE_RMP and MODIFY_RMP, output bytes of QUERY_RMP.
pub const CONTEXT_COMMAND_BYTES: usize = 272;
/// `wq.wq_type`: WQEs are linked through their first segments.
pub const WQ_TYPE_LINKED_LIST: u32 = 0;
/// `rmpc.state`: ready.
pub const STATE_READY: u32 = 1;
/// Offset of the big-endian 16-bit index of the next WQE in a linked WQE.
pub const NEXT_WQE_OFFSET: u64 = 2;
/// Bytes in front of the scatter list of a linked WQE.
pub const NEXT_SEGMENT_BYTES: u64 = 16;

/// MODIFY_RMP's fields outside the context.
pub mod modify {
    use super::*;
    fields! { 272;
        /// State now.
        STATE: 0x8 [31:28];
        /// The pool.
        RMPN: 0x8 [23:0];
        /// Which fields to change: bit 0 is the limit.
        BITMASK_LOW: 0x14 [31:0];
    }
}

/// The RMP context with its work queue, 240 bytes.
pub mod rmpc {
    use super::*;
    fields! { 240;
        /// 1 ready, 3 error.
        STATE: 0x00 [23:20];
        /// 0 linked list, 1 cyclic.
        WQ_TYPE: 0x30 [31:28];
        /// Offset of the WQEs in their page, 64-byte units.
        PAGE_OFFSET: 0x34 [20:16];
        /// Limit: fewer WQEs than this raise one event; 0 is none.
        LWM: 0x34 [15:0];
        /// Protection domain.
        PD: 0x38 [23:0];
        /// Bytes of a WQE, log2.
        LOG_WQ_STRIDE: 0x50 [19:16];
        /// Page size, log2 over 4 KiB.
        LOG_WQ_PG_SZ: 0x50 [12:8];
        /// WQEs, log2.
        LOG_WQ_SZ: 0x50 [4:0];
        /// The doorbell record lies in a umem.
        DBR_UMEM_VALID: 0x54 [31:31];
        /// The WQEs lie in a umem; set by the kernel on hardware.
        WQ_UMEM_VALID: 0x54 [30:30];
        /// Umem of the doorbell record.
        DBR_UMEM_ID: 0x58 [31:0];
        /// Umem of the WQEs.
        WQ_UMEM_ID: 0x5c [31:0];
        @wide
        /// Doorbell record: offset in its umem.
        DBR_ADDR: 0x40;
        /// Offset of the WQEs in their umem.
        WQ_UMEM_OFFSET: 0x60;
    }
}
