//! Queue pair contexts and the commands that make, move and read them.

use crate::fields;

/// Offset of the QP context in CREATE_QP, the state transitions and QUERY_QP's output.
pub const QPC_OFFSET: usize = 0x18;
/// Input bytes of CREATE_QP and of each state transition that carries a context.
pub const CONTEXT_COMMAND_BYTES: usize = 272;
/// Output bytes of QUERY_QP, without the page list.
pub const QUERY_OUT_BYTES: usize = 272;
/// Input bytes of 2ERR, 2RST, DESTROY and QUERY.
pub const SHORT_COMMAND_BYTES: usize = 16;

/// CREATE_QP's fields outside the context.
pub mod create {
    use super::*;
    fields! { 272;
        /// Optional parameters; none is used.
        OPT_PARAM_MASK: 0x10 [31:0];
        /// Options of enhanced connection establishment ([`ece`]): [`ece::TRIGGER`]
        /// asks for those the queue pair can have.
        ECE: 0x14 [31:0];
        /// Umem that holds the work queue.
        WQ_UMEM_ID: 0x108 [31:0];
        /// Set by the kernel on hardware.
        WQ_UMEM_VALID: 0x10c [31:31];
        @wide
        /// Offset of the work queue inside its umem.
        WQ_UMEM_OFFSET: 0x100;
    }
}

/// A state transition's fields outside the context.
pub mod change {
    use super::*;
    fields! { 272;
        /// What else to change: bits of [`optional`].
        OPT_PARAM_MASK: 0x10 [31:0];
        /// Options of enhanced connection establishment ([`ece`]) that are wanted; 0 changes nothing.
        ECE: 0x14 [31:0];
    }
}

/// What CREATE_QP and the state transitions answer, besides the header. Linux `mlx5_ifc.h`: `create_qp_out`,
/// `init2rtr_qp_out` and their like.
pub mod answer {
    use super::*;
    fields! { 16;
        /// CREATE_QP: the options ([`ece`]) the queue pair can have. A transition: those in force.
        ECE: 0x0c [31:0];
    }
}

/// QUERY_QP's output outside the context. `mlx5_ifc.h` had `ece` at 0x0c until 2022, which was a mistake.
pub mod queried {
    use super::*;
    fields! { 272;
        /// Options ([`ece`]) in force.
        ECE: 0x14 [31:0];
    }
}

/// The options word of enhanced connection establishment (IBTA 1.4), 0 for none: how NICs of one vendor write it.
///
/// rdma-core and Linux hand it on as it is; that its upper bits are a version is in rdma-core's `mlx5_create_qp`. The
/// fields are those of NVIDIA's `mlx5_ece.h` (2021).
pub mod ece {
    use super::*;
    fields! { 4;
        /// Version. 1 has no options.
        VERSION: 0x00 [31:28];
        /// Algorithms of congestion control, a bit each. Version 3.
        CONGESTION_CONTROL: 0x00 [8:1];
        /// Retransmission of what was lost and no more. Version 2.
        SELECTIVE_REPEAT: 0x00 [0:0];
    }

    /// CREATE_QP's input: version 1.
    pub const TRIGGER: u32 = 1 << 28;
}

/// Queue pair states, `qpc.state`.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the PRM's own
pub enum State {
    Rst = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqer = 4,
    Sqd = 5,
    Err = 6,
}

impl State {
    /// The state of a raw field.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            0 => Self::Rst,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqer,
            5 => Self::Sqd,
            6 => Self::Err,
            _ => return None,
        })
    }
}

/// `qpc.pm_state`: migrated, the only value without alternate paths.
pub const PM_STATE_MIGRATED: u32 = 3;
/// Bits of `opt_param_mask`: fields that a transition changes only when asked. PRM: "QP Optional Parameters".
pub mod optional {
    /// READs allowed, as responder.
    pub const RRE: u32 = 1 << 1;
    /// Atomics allowed, as responder.
    pub const RAE: u32 = 1 << 2;
    /// WRITEs allowed, as responder.
    pub const RWE: u32 = 1 << 3;
    /// Index into the partition table.
    pub const PKEY_INDEX: u32 = 1 << 4;
    /// Key of a datagram queue pair.
    pub const Q_KEY: u32 = 1 << 5;
    /// Smallest time a sender is asked to wait for a receive WQE.
    pub const RNR_TIMEOUT: u32 = 1 << 6;
    /// The address path.
    pub const PRIMARY_ADDR_PATH: u32 = 1 << 7;
    /// The port.
    pub const PRIMARY_PORT: u32 = 1 << 16;
}

/// `qpc.ts_format`: the clock of a queue pair's timestamps.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamp {
    /// The free-running one.
    FreeRunning = 0,
    /// What the device stamps by.
    Default = 1,
    /// Real time.
    RealTime = 2,
}

/// `qpc.rq_type`: a receive queue of its own, in front of the send queue.
pub const RQ_TYPE_REGULAR: u32 = 0;
/// `qpc.rq_type`: a receive memory pool, shared with others.
pub const RQ_TYPE_SHARED: u32 = 1;
/// `qpc.rq_type`: no receive queue.
pub const RQ_TYPE_ZERO_SIZE: u32 = 3;
/// `qpc.atomic_mode`: up to 8 bytes, so 4 and 8.
pub const ATOMIC_MODE_UP_TO_8: u32 = 3;
/// `qpc.st`: reliable connection.
pub const SERVICE_RC: u32 = 0;
/// `qpc.st`: unreliable datagram.
pub const SERVICE_UD: u32 = 2;
/// `qpc.st`: initiator of dynamically connected transport.
pub const SERVICE_DC_INITIATOR: u32 = 5;

/// The QP context, 232 bytes.
pub mod qpc {
    use super::*;
    fields! { 232;
        /// State.
        STATE: 0x00 [31:28];
        /// Service type.
        ST: 0x00 [23:16];
        /// Path migration state.
        PM_STATE: 0x00 [12:11];
        /// Adaptive routing: out-of-order placement, low bit. Zero keeps placement in order.
        DP_ORDERING_0: 0x04 [25:25];
        /// The ordering bits win over what the administrator set (capability 2 `dp_ordering_force`).
        DP_ORDERING_FORCE: 0x04 [24:24];
        /// Protection domain.
        PD: 0x04 [23:0];
        /// Path MTU: 256 << (value - 1).
        MTU: 0x08 [31:29];
        /// Largest message, log2.
        LOG_MSG_MAX: 0x08 [28:24];
        /// Receive queue depth, log2.
        LOG_RQ_SIZE: 0x08 [22:19];
        /// Bytes of a receive WQE: 16 << value.
        LOG_RQ_STRIDE: 0x08 [18:16];
        /// No send queue.
        NO_SQ: 0x08 [15:15];
        /// Send queue depth in blocks, log2.
        LOG_SQ_SIZE: 0x08 [14:11];
        /// Clock of its timestamps: a [`Timestamp`]. Linux: `MLX5_QPC_TIMESTAMP_FORMAT_*`.
        TS_FORMAT: 0x08 [7:6];
        /// QUERY_QP in RTS, where the capability `qp_data_in_order` is there: data lands in the order of the wire, so
        /// the last byte of a message is placed last.
        DATA_IN_ORDER: 0x08 [5:5];
        /// UAR page of the doorbells.
        UAR_PAGE: 0x0c [23:0];
        /// Number a version 1 CQE carries.
        USER_INDEX: 0x10 [23:0];
        /// Page size of the work queue, log2 over 4 KiB.
        LOG_PAGE_SIZE: 0x14 [28:24];
        /// The other half's QPN.
        REMOTE_QPN: 0x14 [23:0];
        /// Ask for an ACK each 2^n packets.
        LOG_ACK_REQ_FREQ: 0x70 [31:28];
        /// Outstanding READs and atomics as requester, log2.
        LOG_SRA_MAX: 0x70 [23:21];
        /// Transport retries.
        RETRY_COUNT: 0x70 [18:16];
        /// RNR retries, 7 for ever.
        RNR_RETRY: 0x70 [15:13];
        /// First PSN to send.
        NEXT_SEND_PSN: 0x78 [23:0];
        /// CQ of the send queue.
        CQN_SND: 0x7c [23:0];
        /// Oldest PSN acknowledged.
        LAST_ACKED_PSN: 0x88 [23:0];
        /// Outstanding READs and atomics as responder, log2.
        LOG_RRA_MAX: 0x90 [23:21];
        /// Atomic operations the responder allows.
        ATOMIC_MODE: 0x90 [19:16];
        /// Remote READ allowed.
        RRE: 0x90 [15:15];
        /// Remote WRITE allowed.
        RWE: 0x90 [14:14];
        /// Remote atomics allowed.
        RAE: 0x90 [13:13];
        /// Offset of the work queue in its page, 64-byte units.
        PAGE_OFFSET: 0x90 [11:6];
        /// Adaptive routing: out-of-order placement, high bit.
        DP_ORDERING_1: 0x90 [3:3];
        /// RNR NAK timer.
        MIN_RNR_NAK: 0x94 [28:24];
        /// PSN the responder expects next.
        NEXT_RCV_PSN: 0x94 [23:0];
        /// CQ of the receive queue.
        CQN_RCV: 0x9c [23:0];
        /// Key a datagram must carry.
        Q_KEY: 0xa8 [31:0];
        /// Receive queue kind.
        RQ_TYPE: 0xac [26:24];
        /// The receive memory pool of `rq_type` 1.
        SRQN_RMPN_XRQN: 0xac [23:0];
        /// Messages the responder executed, 24 bits. That it survives 2ERR is not documented.
        RMSN: 0xb0 [23:0];
        /// Blocks the NIC consumed.
        HW_SQ_WQEBB_COUNTER: 0xb4 [31:16];
        /// Blocks software announced.
        SW_SQ_WQEBB_COUNTER: 0xb4 [15:0];
        /// Receive WQEs the NIC consumed.
        HW_RQ_COUNTER: 0xb8 [31:0];
        /// Receive WQEs software announced.
        SW_RQ_COUNTER: 0xbc [31:0];
        /// The doorbell record lies in a umem.
        DBR_UMEM_VALID: 0xd0 [28:28];
        /// Umem of the doorbell record.
        DBR_UMEM_ID: 0xe4 [31:0];
        @wide
        /// Doorbell record: offset in its umem, or an address.
        DBR_ADDR: 0xa0;
    }
}

/// Offset of the primary address path inside the QP context.
pub const ADS_OFFSET: usize = 0x18;

/// An address path (`ads`), 44 bytes; RoCE and InfiniBand fields both.
pub mod ads {
    use super::*;
    fields! { 44;
        /// Force loopback.
        FL: 0x00 [31:31];
        /// Partition key index (InfiniBand).
        PKEY_INDEX: 0x00 [15:0];
        /// A GRH follows (InfiniBand).
        GRH: 0x04 [23:23];
        /// Source path bits.
        MLID: 0x04 [22:16];
        /// Destination LID (InfiniBand).
        RLID: 0x04 [15:0];
        /// Local ACK timeout: 4.096 us << value.
        ACK_TIMEOUT: 0x08 [31:27];
        /// Index of the source GID.
        SRC_ADDR_INDEX: 0x08 [23:16];
        /// Hop limit.
        HOP_LIMIT: 0x08 [7:0];
        /// Traffic class.
        TCLASS: 0x0c [27:20];
        /// Flow label.
        FLOW_LABEL: 0x0c [19:0];
        /// Destination GID, bytes 0-3.
        RGID_0: 0x10 [31:0];
        /// Destination GID, bytes 4-7.
        RGID_1: 0x14 [31:0];
        /// Destination GID, bytes 8-11.
        RGID_2: 0x18 [31:0];
        /// Destination GID, bytes 12-15.
        RGID_3: 0x1c [31:0];
        /// DSCP (RoCE v2).
        DSCP: 0x20 [21:16];
        /// UDP source port (RoCE v2).
        UDP_SPORT: 0x20 [15:0];
        /// Ethernet priority (RoCE).
        ETH_PRIO: 0x24 [30:28];
        /// Service level (InfiniBand).
        SL: 0x24 [27:24];
        /// Port of the NIC.
        VHCA_PORT_NUM: 0x24 [23:16];
        /// Destination MAC, high 16 bits (RoCE).
        RMAC_47_32: 0x24 [15:0];
        /// Destination MAC, low 32 bits (RoCE).
        RMAC_31_0: 0x28 [31:0];
    }

    /// Writes a destination GID.
    pub fn set_rgid(bytes: &mut [u8], gid: [u8; 16]) {
        bytes[RGID_0.offset..RGID_0.offset + 16].copy_from_slice(&gid);
    }

    /// Reads a destination GID.
    pub fn rgid(bytes: &[u8]) -> [u8; 16] {
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[RGID_0.offset..RGID_0.offset + 16]);
        gid
    }
}
