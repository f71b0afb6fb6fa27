//! QUERY_HCA_CAP: the capabilities that Shunt reads.
//!
//! Facts: `mlx5_ifc.h` of Linux and rdma-core (`cmd_hca_cap`, `cmd_hca_cap_2`, `atomic_caps`, `roce_cap`). Linux calls
//! the bits of `DP_ORDERING_OOO_RW_*` `multi_path_*_rdma`; their meaning is that of the PRM's "QP Ordering Semantics".

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

/// General device capabilities that came later.
pub const GENERAL_2: u32 = 0x20;

/// Groups of what a NIC may have besides: Ethernet, IPoIB and flow offloads, paging on demand, e-switch, quality of
/// service, debugging, device memory, TLS, VDPA, events, IPsec, crypto.
pub const OTHERS: &[u32] = &[0x1, 0x2, 0x5, 0x6, 0x7, 0x8, 0x9, 0xc, 0xd, 0xf, 0x11, 0x13, 0x14, 0x15, 0x1a];

/// General capabilities, relative to the union.
pub mod general {
    use super::*;
    fields! { 4096;
        /// There is the group [`GENERAL_2`].
        HCA_CAP_2: 0x04 [31:31];
        /// QUERY_QP in RTS tells `qpc.data_in_order`.
        QP_DATA_IN_ORDER: 0x0c [29:29];
        /// Largest QP, log2 of blocks.
        LOG_MAX_QP_SZ: 0x10 [23:16];
        /// Largest shared receive queue, log2 of WQEs.
        LOG_MAX_SRQ_SZ: 0x10 [31:24];
        /// Shared receive queues, log2.
        LOG_MAX_SRQ: 0x14 [20:16];
        /// Enhanced connection establishment: both ends agree on options by `ece` of the transitions.
        ECE_SUPPORT: 0x14 [28:28];
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
        /// Encoded P_Key table size: 128 << value entries.
        PKEY_TABLE_SIZE: 0x30 [15:0];
        /// 0 InfiniBand, 1 Ethernet.
        PORT_TYPE: 0x34 [9:8];
        /// Ports.
        NUM_PORTS: 0x34 [7:0];
        /// Largest message, log2.
        LOG_MAX_MSG: 0x38 [28:24];
        /// READs and WRITEs of an RC may be placed out of order (`dp_ordering` 1).
        DP_ORDERING_OOO_RW_RC: 0x38 [21:21];
        /// CQE version; must be 1.
        CQE_VERSION: 0x3c [3:0];
        /// Dynamically connected transport.
        DCT: 0x40 [5:5];
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
        /// Force loopback of RC works where RoCE is off; the RoCE group says the same.
        FL_RC_QP_WHEN_ROCE_DISABLED: 0x48 [23:23];
        /// BlueFlame.
        BF: 0x4c [31:31];
        /// BlueFlame register, log2 bytes.
        LOG_BF_REG_SIZE: 0x4c [20:16];
        /// Largest send WQE in bytes.
        MAX_WQE_SZ_SQ: 0x50 [15:0];
        /// Largest receive WQE in bytes.
        MAX_WQE_SZ_RQ: 0x54 [15:0];
        /// Everything of an RC may be placed out of order (`dp_ordering` 2).
        DP_ORDERING_OOO_ALL_RC: 0x64 [11:11];
        /// Clocks of a send queue that is no queue pair's: a [`TimestampCap`].
        SQ_TS_FORMAT: 0x88 [31:30];
        /// Clocks of a receive queue that is no queue pair's: a [`TimestampCap`].
        RQ_TS_FORMAT: 0x88 [29:28];
        /// Most umems, log2.
        LOG_MAX_UMEM: 0x8c [20:16];
    }
}

/// General capabilities 2, relative to the union.
pub mod general_2 {
    use super::*;
    fields! { 4096;
        /// A queue pair's `dp_ordering_force` wins over what the administrator set.
        DP_ORDERING_FORCE: 0x10 [23:23];
    }
}

/// Which clocks completions may be stamped by, as a capability says it.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampCap {
    /// The free-running one.
    FreeRunning = 0,
    /// Real time.
    RealTime = 1,
    /// Either.
    Both = 2,
}

impl TimestampCap {
    /// The value of a raw field; 3 is not defined.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            0 => Self::FreeRunning,
            1 => Self::RealTime,
            2 => Self::Both,
            _ => return None,
        })
    }
}

/// `atomic_operations`: compare and swap.
pub const ATOMIC_COMPARE_SWAP: u32 = 1;
/// `atomic_operations`: fetch and add.
pub const ATOMIC_FETCH_ADD: u32 = 1 << 1;
/// `atomic_operations`: masked compare and swap.
pub const ATOMIC_MASKED_COMPARE_SWAP: u32 = 1 << 2;
/// `atomic_operations`: masked fetch and add.
pub const ATOMIC_MASKED_FETCH_ADD: u32 = 1 << 3;

/// RoCE capabilities, relative to the union.
pub mod roce {
    use super::*;
    fields! { 4096;
        /// Force loopback of RC works where RoCE is off.
        FL_RC_QP_WHEN_ROCE_DISABLED: 0x00 [26:26];
        /// Force loopback of RC works where RoCE is on.
        FL_RC_QP_WHEN_ROCE_ENABLED: 0x00 [25:25];
        /// Clocks of a queue pair: a [`TimestampCap`].
        QP_TS_FORMAT: 0x00 [1:0];
        /// Versions of RoCE, a bit each; bit 2 is v2.
        ROCE_VERSION: 0x10 [7:0];
        /// UDP port that RoCE v2 packets go to.
        R_ROCE_DEST_UDP_PORT: 0x14 [15:0];
        /// Entries of the address table.
        ROCE_ADDRESS_TABLE_SIZE: 0x1c [15:0];
    }
}

/// Atomic capabilities, relative to the union.
pub mod atomic {
    use super::*;
    fields! { 4096;
        /// 8-byte results: 0 big-endian, 1 host order.
        REQ_8B_ENDIANNESS_MODE: 0x08 [31:30];
        /// The mode 1 can be set.
        SUPPORTED_REQ_8B_ENDIANNESS_MODE_1: 0x08 [25:25];
        /// Bit 0 CS, 1 FA, 2 masked CS, 3 masked FA.
        ATOMIC_OPERATIONS: 0x10 [15:0];
        /// Sizes over RC; bit n is 2^n bytes.
        ATOMIC_SIZE_QP: 0x14 [15:0];
        /// Sizes over DC.
        ATOMIC_SIZE_DC: 0x18 [15:0];
    }
}
