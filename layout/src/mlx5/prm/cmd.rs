//! What every command shares: header, opcodes, status codes.

use crate::fields;

/// Header of an input mailbox.
pub mod input {
    use super::*;
    fields! { 16;
        /// Command opcode.
        OPCODE: 0x0 [31:16];
        /// User context; the kernel overwrites it.
        UID: 0x0 [15:0];
        /// Operation modifier.
        OP_MOD: 0x4 [15:0];
        /// Object number, where the command names one object.
        OBJECT: 0x8 [23:0];
    }
}

/// Header of an output mailbox.
pub mod output {
    use super::*;
    fields! { 16;
        /// Status, see [`super::Status`].
        STATUS: 0x0 [31:24];
        /// Firmware syndrome; its numbers are not published.
        SYNDROME: 0x4 [31:0];
        /// Number of the created object.
        OBJECT: 0x8 [23:0];
    }
}

/// Command opcodes.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names are the PRM's own
pub enum Opcode {
    QueryHcaCap = 0x100,
    QueryAdapter = 0x101,
    CreateMkey = 0x200,
    QueryMkey = 0x201,
    DestroyMkey = 0x202,
    QuerySpecialContexts = 0x203,
    CreateCq = 0x400,
    DestroyCq = 0x401,
    QueryCq = 0x402,
    CreateQp = 0x500,
    DestroyQp = 0x501,
    Rst2InitQp = 0x502,
    Init2RtrQp = 0x503,
    Rtr2RtsQp = 0x504,
    Rts2RtsQp = 0x505,
    Qp2Err = 0x507,
    Qp2Rst = 0x50a,
    QueryQp = 0x50b,
    Init2InitQp = 0x50e,
    CreateDct = 0x710,
    DestroyDct = 0x711,
    QueryDct = 0x713,
    QueryVportState = 0x750,
    QueryNicVportContext = 0x754,
    QueryRoceAddress = 0x760,
    QueryHcaVportContext = 0x762,
    QueryHcaVportGid = 0x764,
    QueryHcaVportPkey = 0x765,
    AllocPd = 0x800,
    DeallocPd = 0x801,
    Nop = 0x80d,
    CreateRmp = 0x90c,
    ModifyRmp = 0x90d,
    DestroyRmp = 0x90e,
    QueryRmp = 0x90f,
}

impl Opcode {
    /// Every opcode here, in order.
    pub const ALL: &[Self] = &[
        Self::QueryHcaCap,
        Self::QueryAdapter,
        Self::CreateMkey,
        Self::QueryMkey,
        Self::DestroyMkey,
        Self::QuerySpecialContexts,
        Self::CreateCq,
        Self::DestroyCq,
        Self::QueryCq,
        Self::CreateQp,
        Self::DestroyQp,
        Self::Rst2InitQp,
        Self::Init2RtrQp,
        Self::Rtr2RtsQp,
        Self::Rts2RtsQp,
        Self::Qp2Err,
        Self::Qp2Rst,
        Self::QueryQp,
        Self::Init2InitQp,
        Self::CreateDct,
        Self::DestroyDct,
        Self::QueryDct,
        Self::QueryVportState,
        Self::QueryNicVportContext,
        Self::QueryRoceAddress,
        Self::QueryHcaVportContext,
        Self::QueryHcaVportGid,
        Self::QueryHcaVportPkey,
        Self::AllocPd,
        Self::DeallocPd,
        Self::Nop,
        Self::CreateRmp,
        Self::ModifyRmp,
        Self::DestroyRmp,
        Self::QueryRmp,
    ];

    /// The opcode of a raw number.
    pub fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| *op as u16 == raw)
    }
}

/// Command status (PRM: "Command Status Codes").
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the PRM's own
pub enum Status {
    Ok = 0x00,
    InternalErr = 0x01,
    BadOp = 0x02,
    BadParam = 0x03,
    BadSysState = 0x04,
    BadRes = 0x05,
    ResBusy = 0x06,
    NotReady = 0x07,
    ExceedLim = 0x08,
    BadResState = 0x09,
    BadIndex = 0x0a,
    NoResources = 0x0f,
    BadQpState = 0x10,
    BadPkt = 0x30,
    BadSizeOutsCqes = 0x40,
    BadInputLen = 0x50,
    BadOutputLen = 0x51,
}

impl Status {
    /// The PRM's name of a raw status byte.
    pub fn name(raw: u8) -> &'static str {
        match raw {
            0x00 => "OK",
            0x01 => "INTERNAL_ERR",
            0x02 => "BAD_OP",
            0x03 => "BAD_PARAM",
            0x04 => "BAD_SYS_STATE",
            0x05 => "BAD_RES",
            0x06 => "RES_BUSY",
            0x07 => "NOT_READY",
            0x08 => "EXCEED_LIM",
            0x09 => "BAD_RES_STATE",
            0x0a => "BAD_INDEX",
            0x0f => "NO_RESOURCES",
            0x10 => "BAD_QP_STATE",
            0x30 => "BAD_PKT",
            0x40 => "BAD_SIZE_OUTS_CQES",
            0x50 => "BAD_INPUT_LEN",
            0x51 => "BAD_OUTPUT_LEN",
            _ => "unknown status",
        }
    }
}
