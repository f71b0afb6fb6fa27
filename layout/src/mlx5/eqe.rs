//! Event queue entries as a DEVX event channel delivers them. PRM: "Event Queue Entry".

use crate::fields;

fields! { 64;
    /// Event type.
    EVENT_TYPE: 0x00 [23:16];
    /// Sub type (port events).
    SUB_TYPE: 0x00 [7:0];
    /// Port of a port change event.
    PORT_NUM: 0x28 [31:28];
    /// QPN of a QP event, CQN of a completion event.
    OBJECT: 0x38 [23:0];
    /// Queue type of a QP event: 0 QP, 1 RQ, 2 SQ.
    QUEUE_TYPE: 0x34 [31:24];
    /// CQN of a CQ error.
    CQ_ERROR_CQN: 0x20 [23:0];
    /// Owner bit.
    OWNER: 0x3c [0:0];
}

/// Event types.
pub mod event {
    /// A completion event.
    pub const COMPLETION: u8 = 0x00;
    /// CQ error.
    pub const CQ_ERROR: u8 = 0x04;
    /// A work queue failed: the QP is in ERR.
    pub const WQ_CATASTROPHIC: u8 = 0x05;
    /// The NIC itself failed.
    pub const INTERNAL_ERROR: u8 = 0x08;
    /// Port state changed.
    pub const PORT_CHANGE: u8 = 0x09;
    /// A failed QP takes nothing more from its shared receive queue.
    pub const LAST_WQE: u8 = 0x13;
    /// A shared receive queue holds fewer WQEs than its limit.
    pub const RQ_LIMIT: u8 = 0x14;
    /// Responder: invalid request.
    pub const WQ_INVALID_REQUEST: u8 = 0x10;
    /// Responder: access error.
    pub const WQ_ACCESS: u8 = 0x11;
}

/// Sub types of a port change.
pub mod port {
    /// Link lost.
    pub const DOWN: u8 = 1;
    /// Link up and usable.
    pub const ACTIVE: u8 = 4;
}
