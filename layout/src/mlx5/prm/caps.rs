//! QUERY_HCA_CAP: the capabilities that Shunt reads.

use crate::fields;

/// Offset of the capability union in the output mailbox.
pub const CAPABILITY_OFFSET: usize = 0x10;
/// Output bytes.
pub const OUT_BYTES: usize = 4112;

/// `op_mod` of a query: capability type, current values.
pub const fn op_mod_current(kind: u32) -> u32 {
    kind << 1 | 1
}
/// General device capabilities.
pub const GENERAL: u32 = 0;
/// Atomic capabilities.
pub const ATOMIC: u32 = 3;
/// RoCE capabilities.
pub const ROCE: u32 = 4;

/// Groups of what a NIC may have besides: Ethernet, IPoIB and flow offloads, paging on demand, e-switch, quality of
/// service, debugging, device memory, TLS, VDPA, events, IPsec, crypto.
pub const OTHERS: &[u32] = &[0x1, 0x2, 0x5, 0x6, 0x7, 0x8, 0x9, 0xc, 0xd, 0xf, 0x11, 0x13, 0x14, 0x15, 0x1a];

/// General capabilities, relative to the union.
pub mod general {
    use super::*;
    fields! { 4096;
        /// Largest QP, log2 of blocks.
        LOG_MAX_QP_SZ: 0x10 [23:16];
        /// Largest shared receive queue, log2 of WQEs.
        LOG_MAX_SRQ_SZ: 0x10 [31:24];
        /// Shared receive queues, log2.
        LOG_MAX_SRQ: 0x14 [20:16];
        /// Most QPs, log2.
        LOG_MAX_QP: 0x10 [4:0];
        /// Largest CQ, log2 of entries.
        LOG_MAX_CQ_SZ: 0x18 [23:16];
        /// Most CQs, log2.
        LOG_MAX_CQ: 0x18 [4:0];
        /// Relaxed ordering writes.
        RELAXED_ORDERING_WRITE: 0x1c [23:23];
        /// Outstanding READs as requester, log2.
        LOG_MAX_RA_REQ_QP: 0x28 [21:16];
        /// Outstanding READs as responder, log2.
        LOG_MAX_RA_RES_QP: 0x28 [5:0];
        /// Encoded GID table size.
        GID_TABLE_SIZE: 0x2c [15:0];
        /// 0 InfiniBand, 1 Ethernet.
        PORT_TYPE: 0x34 [9:8];
        /// Ports.
        NUM_PORTS: 0x34 [7:0];
        /// Largest message, log2.
        LOG_MAX_MSG: 0x38 [28:24];
        /// CQE version; must be 1.
        CQE_VERSION: 0x3c [3:0];
        /// RoCE.
        ROCE: 0x40 [2:2];
        /// Atomics.
        ATOMIC: 0x40 [1:1];
        /// CQ overrun ignore.
        CQ_OI: 0x44 [31:31];
        /// Unreliable datagrams.
        UD: 0x44 [2:2];
        /// Reliable connections.
        RC: 0x44 [0:0];
        /// 4 KiB UAR pages.
        UAR_4K: 0x48 [31:31];
        /// BlueFlame.
        BF: 0x4c [31:31];
        /// BlueFlame register, log2 bytes.
        LOG_BF_REG_SIZE: 0x4c [20:16];
        /// Largest send WQE in bytes.
        MAX_WQE_SZ_SQ: 0x50 [15:0];
        /// Largest receive WQE in bytes.
        MAX_WQE_SZ_RQ: 0x54 [15:0];
        /// Most umems, log2.
        LOG_MAX_UMEM: 0x8c [20:16];
    }
}

/// Atomic capabilities, relative to the union.
pub mod atomic {
    use super::*;
    fields! { 4096;
        /// 8-byte results: 0 big-endian, 1 host order.
        REQ_8B_ENDIANNESS_MODE: 0x08 [31:30];
        /// Bit 0 CS, 1 FA, 2 masked CS, 3 masked FA.
        ATOMIC_OPERATIONS: 0x10 [15:0];
        /// Sizes over RC; bit n is 2^n bytes.
        ATOMIC_SIZE_QP: 0x14 [15:0];
    }
}
