//! Numbers of objects, methods, attributes, commands and bits.
#![allow(missing_docs)] // the names are those of the kernel's headers

/// Attribute flag: refuse the call rather than ignore this.
pub const ATTRIBUTE_MANDATORY: u16 = 1;
/// Attribute flag: the kernel wrote it.
pub const ATTRIBUTE_VALID_OUTPUT: u16 = 2;

/// First number of what is a driver's own.
pub const DRIVER: u16 = 0x1000;
/// Attribute: driver data in.
pub const UHW_IN: u16 = DRIVER;
/// Attribute: driver data out.
pub const UHW_OUT: u16 = DRIVER + 1;

/// Object types.
pub mod object {
    pub const DEVICE: u16 = 0;
    pub const PD: u16 = 1;
    pub const CQ: u16 = 3;
    pub const QP: u16 = 4;
    pub const SRQ: u16 = 5;
    pub const AH: u16 = 6;
    pub const MR: u16 = 7;
    pub const ASYNC_EVENT: u16 = 16;
}

/// Methods of the device.
pub mod device {
    pub const INVOKE_WRITE: u16 = 0;
    pub const QUERY_PORT: u16 = 2;
    pub const GET_CONTEXT: u16 = 3;
    pub const QUERY_CONTEXT: u16 = 4;
    pub const QUERY_GID_TABLE: u16 = 5;
    pub const QUERY_GID_ENTRY: u16 = 6;
    /// The mlx5 provider's own query of a port.
    pub const MLX5_QUERY_PORT: u16 = super::DRIVER;
}

/// Methods of PD and AH.
pub const ONLY_DESTROY: u16 = 0;

/// Methods of CQ, QP and SRQ.
pub mod queue {
    pub const CREATE: u16 = 0;
    pub const DESTROY: u16 = 1;
}

/// Methods of MR.
pub mod mr {
    pub const DESTROY: u16 = 1;
    pub const ADVISE: u16 = 2;
    pub const QUERY: u16 = 3;
    pub const REG_DMABUF: u16 = 4;
}

/// Attributes of INVOKE_WRITE.
pub mod write {
    pub const CORE_IN: u16 = 0;
    pub const CORE_OUT: u16 = 1;
    pub const COMMAND: u16 = 2;
    /// Bit of an extended command.
    pub const EXTENDED: u32 = 0x8000_0000;
}

/// Commands of INVOKE_WRITE.
pub mod command {
    pub const QUERY_DEVICE: u32 = 1;
    pub const QUERY_PORT: u32 = 2;
    pub const ALLOC_PD: u32 = 3;
    pub const DEALLOC_PD: u32 = 4;
    pub const CREATE_AH: u32 = 5;
    pub const DESTROY_AH: u32 = 8;
    pub const REG_MR: u32 = 9;
    pub const REREG_MR: u32 = 0xb;
    pub const DEREG_MR: u32 = 0xd;
    pub const CREATE_COMP_CHANNEL: u32 = 0x11;
    pub const RESIZE_CQ: u32 = 0x13;
    pub const DESTROY_CQ: u32 = 0x14;
    pub const QUERY_QP: u32 = 0x19;
    pub const MODIFY_QP: u32 = 0x1a;
    pub const DESTROY_QP: u32 = 0x1b;
    pub const MODIFY_SRQ: u32 = 0x21;
    pub const QUERY_SRQ: u32 = 0x22;
}

/// Attributes of QUERY_PORT, the common one.
pub mod query_port {
    pub const PORT: u16 = 0;
    pub const RESPONSE: u16 = 1;
}

/// Attributes of GET_CONTEXT and QUERY_CONTEXT.
pub mod get_context {
    pub const COMP_VECTORS: u16 = 0;
    pub const CORE_SUPPORT: u16 = 1;
    /// Core support: optional access bits of memory regions.
    pub const OPTIONAL_MR_ACCESS: u64 = 1;
}

/// Attributes of QUERY_GID_TABLE.
pub mod gid_table {
    pub const ENTRY_BYTES: u16 = 0;
    pub const FLAGS: u16 = 1;
    pub const ENTRIES: u16 = 2;
    pub const COUNT: u16 = 3;
}

/// Attributes of QUERY_GID_ENTRY.
pub mod gid_entry {
    pub const PORT: u16 = 0;
    pub const INDEX: u16 = 1;
    pub const FLAGS: u16 = 2;
    pub const RESPONSE: u16 = 3;
}

/// The handle is the first attribute of every destroy and of most creates.
pub const HANDLE: u16 = 0;
/// What a destroy answers.
pub const DESTROY_RESPONSE: u16 = 1;

/// Attributes of CQ create.
pub mod create_cq {
    pub const CQE: u16 = 1;
    pub const USER_HANDLE: u16 = 2;
    pub const CHANNEL: u16 = 3;
    pub const VECTOR: u16 = 4;
    pub const FLAGS: u16 = 5;
    pub const RESPONSE_CQE: u16 = 6;
    pub const EVENT_FD: u16 = 7;
    /// Flag: timestamps, which every CQE has.
    pub const TIMESTAMPS: u32 = 1;
    /// Flag: no overrun is looked for.
    pub const IGNORE_OVERRUN: u32 = 2;
}

/// Attributes of QP create.
pub mod create_qp {
    pub const XRCD: u16 = 1;
    pub const PD: u16 = 2;
    pub const SRQ: u16 = 3;
    pub const SEND_CQ: u16 = 4;
    pub const RECEIVE_CQ: u16 = 5;
    pub const TABLE: u16 = 6;
    pub const USER_HANDLE: u16 = 7;
    pub const CAP: u16 = 8;
    pub const TYPE: u16 = 9;
    pub const FLAGS: u16 = 10;
    pub const SOURCE_QPN: u16 = 11;
    pub const EVENT_FD: u16 = 12;
    pub const RESPONSE_CAP: u16 = 13;
    pub const RESPONSE_QPN: u16 = 14;
    /// Flag: every WQE is signalled; the library sees to it.
    pub const SIGNAL_ALL: u32 = 1 << 12;
    /// Type: reliable connection.
    pub const RC: u8 = 2;
    /// Type: unreliable datagrams.
    pub const UD: u8 = 4;
    /// Type: what the driver's own flags say.
    pub const DRIVER: u8 = 0xff;
}

/// Attributes of SRQ create.
pub mod create_srq {
    pub const PD: u16 = 1;
    pub const XRCD: u16 = 2;
    pub const CQ: u16 = 3;
    pub const USER_HANDLE: u16 = 4;
    pub const MAX_WR: u16 = 5;
    pub const MAX_SGE: u16 = 6;
    pub const LIMIT: u16 = 7;
    pub const MAX_TAGS: u16 = 8;
    pub const TYPE: u16 = 9;
    pub const EVENT_FD: u16 = 10;
    pub const RESPONSE_MAX_WR: u16 = 11;
    pub const RESPONSE_MAX_SGE: u16 = 12;
    pub const RESPONSE_NUMBER: u16 = 13;
    /// Type: one without connections of its own.
    pub const BASIC: u32 = 0;
    /// Attribute mask of MODIFY_SRQ: the limit.
    pub const MODIFIES_LIMIT: u32 = 2;
}

/// Attributes of QUERY_MR.
pub mod query_mr {
    pub const LKEY: u16 = 1;
    pub const RKEY: u16 = 2;
    pub const LENGTH: u16 = 3;
    pub const IOVA: u16 = 4;
}

/// Attributes of REG_DMABUF_MR.
pub mod dmabuf_mr {
    pub const PD: u16 = 1;
    pub const OFFSET: u16 = 2;
    pub const LENGTH: u16 = 3;
    pub const IOVA: u16 = 4;
    pub const FD: u16 = 5;
    pub const ACCESS: u16 = 6;
    pub const LKEY: u16 = 7;
    pub const RKEY: u16 = 8;
}

/// Access bits of memory regions and queue pairs.
pub mod access {
    pub const LOCAL_WRITE: u32 = 1;
    pub const REMOTE_WRITE: u32 = 2;
    pub const REMOTE_READ: u32 = 4;
    pub const REMOTE_ATOMIC: u32 = 8;
    pub const MW_BIND: u32 = 0x10;
    pub const ZERO_BASED: u32 = 0x20;
    pub const ON_DEMAND: u32 = 0x40;
    pub const HUGETLB: u32 = 0x80;
    pub const RELAXED_ORDERING: u32 = 1 << 20;
    /// Bits that a kernel may ignore.
    pub const OPTIONAL: u32 = 0x3ff << 20;
}

/// Queue pair attribute masks.
pub mod attribute {
    pub const STATE: u32 = 1;
    pub const CURRENT_STATE: u32 = 1 << 1;
    pub const SQD_NOTIFY: u32 = 1 << 2;
    pub const ACCESS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const ADDRESS: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRIES: u32 = 1 << 10;
    pub const RNR_RETRIES: u32 = 1 << 11;
    pub const RECEIVE_PSN: u32 = 1 << 12;
    pub const READS_OUT: u32 = 1 << 13;
    pub const ALTERNATE_PATH: u32 = 1 << 14;
    pub const RNR_TIMER: u32 = 1 << 15;
    pub const SEND_PSN: u32 = 1 << 16;
    pub const READS_IN: u32 = 1 << 17;
    pub const MIGRATION: u32 = 1 << 18;
    pub const CAP: u32 = 1 << 19;
    pub const DESTINATION: u32 = 1 << 20;
}

/// Asynchronous events.
pub mod event {
    pub const CQ_ERROR: u32 = 0;
    pub const QP_FATAL: u32 = 1;
    pub const QP_REQUEST: u32 = 2;
    pub const QP_ACCESS: u32 = 3;
    pub const ESTABLISHED: u32 = 4;
    pub const SQ_DRAINED: u32 = 5;
    pub const DEVICE_FATAL: u32 = 8;
    pub const PORT_ACTIVE: u32 = 9;
    pub const PORT_ERROR: u32 = 10;
    pub const SRQ_LIMIT: u32 = 15;
    pub const LAST_WQE: u32 = 16;
}
