//! Opcodes and what they mean.

use crate::packet::{AtomicOp, Body, Part};

/// Unreliable datagram, whole message.
const UD_SEND: u8 = 0x64;
/// The same with immediate data.
const UD_SEND_IMM: u8 = 0x65;
/// Masked compare and swap: ours, see the module.
const MASKED_COMPARE_SWAP: u8 = 0xc0;
/// Masked or 32-bit fetch and add: ours, see the module.
const MASKED_FETCH_ADD: u8 = 0xc1;
/// A dynamically connected path is set up: ours, see the module.
const DC_SETUP: u8 = 0xc2;

/// What an opcode says about the bytes behind the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Send { part: Part, imm: bool },
    Write { part: Part, imm: bool },
    ReadRequest,
    ReadResponse(Part),
    Ack,
    AtomicAck,
    CompareSwap,
    FetchAdd,
    Datagram { imm: bool },
    MaskedCompareSwap,
    MaskedFetchAdd,
    Dc,
}

impl Shape {
    /// What a body is sent as. Immediate data goes with the end of a message only.
    pub(super) fn of(body: &Body) -> Self {
        match body {
            Body::Write { part, .. } => Self::Write { part: *part, imm: false },
            Body::WriteImm { part, .. } => Self::Write { part: ending(*part), imm: true },
            Body::Send { part, imm, .. } => Self::Send { part: *part, imm: imm.is_some() && part.ends() },
            Body::Datagram(datagram) => Self::Datagram { imm: datagram.imm.is_some() },
            Body::Dc(_) => Self::Dc,
            Body::ReadRequest(_) => Self::ReadRequest,
            Body::ReadResponse { part, .. } => Self::ReadResponse(*part),
            Body::Ack { .. } => Self::Ack,
            Body::AtomicAck { .. } => Self::AtomicAck,
            Body::Atomic(request) => match request.op {
                AtomicOp::CompareSwap { compare_mask: u64::MAX, swap_mask: u64::MAX, .. }
                    if request.bytes == 8 =>
                {
                    Self::CompareSwap
                }
                AtomicOp::CompareSwap { .. } => Self::MaskedCompareSwap,
                AtomicOp::FetchAdd { boundary: 0, .. } if request.bytes == 8 => Self::FetchAdd,
                AtomicOp::FetchAdd { .. } => Self::MaskedFetchAdd,
            },
        }
    }

    /// The opcode.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Send { part: Part::First, .. } => 0x00,
            Self::Send { part: Part::Middle, .. } => 0x01,
            Self::Send { part: Part::Last, imm } => 0x02 + imm as u8,
            Self::Send { part: Part::Only, imm } => 0x04 + imm as u8,
            Self::Write { part: Part::First, .. } => 0x06,
            Self::Write { part: Part::Middle, .. } => 0x07,
            Self::Write { part: Part::Last, imm } => 0x08 + imm as u8,
            Self::Write { part: Part::Only, imm } => 0x0a + imm as u8,
            Self::ReadRequest => 0x0c,
            Self::ReadResponse(Part::First) => 0x0d,
            Self::ReadResponse(Part::Middle) => 0x0e,
            Self::ReadResponse(Part::Last) => 0x0f,
            Self::ReadResponse(Part::Only) => 0x10,
            Self::Ack => 0x11,
            Self::AtomicAck => 0x12,
            Self::CompareSwap => 0x13,
            Self::FetchAdd => 0x14,
            Self::Datagram { imm: false } => UD_SEND,
            Self::Datagram { imm: true } => UD_SEND_IMM,
            Self::MaskedCompareSwap => MASKED_COMPARE_SWAP,
            Self::MaskedFetchAdd => MASKED_FETCH_ADD,
            Self::Dc => DC_SETUP,
        }
    }

    /// What an opcode says; nothing if no queue pair here understands it.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::Send { part: Part::First, imm: false },
            0x01 => Self::Send { part: Part::Middle, imm: false },
            0x02 | 0x03 => Self::Send { part: Part::Last, imm: code == 0x03 },
            0x04 | 0x05 => Self::Send { part: Part::Only, imm: code == 0x05 },
            0x06 => Self::Write { part: Part::First, imm: false },
            0x07 => Self::Write { part: Part::Middle, imm: false },
            0x08 | 0x09 => Self::Write { part: Part::Last, imm: code == 0x09 },
            0x0a | 0x0b => Self::Write { part: Part::Only, imm: code == 0x0b },
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadResponse(Part::First),
            0x0e => Self::ReadResponse(Part::Middle),
            0x0f => Self::ReadResponse(Part::Last),
            0x10 => Self::ReadResponse(Part::Only),
            0x11 => Self::Ack,
            0x12 => Self::AtomicAck,
            0x13 => Self::CompareSwap,
            0x14 => Self::FetchAdd,
            UD_SEND | UD_SEND_IMM => Self::Datagram { imm: code == UD_SEND_IMM },
            MASKED_COMPARE_SWAP => Self::MaskedCompareSwap,
            MASKED_FETCH_ADD => Self::MaskedFetchAdd,
            DC_SETUP => Self::Dc,
            _ => return None,
        })
    }

    /// Bytes of its extended headers.
    pub(super) fn header_bytes(self) -> usize {
        match self {
            Self::Send { imm, .. } => 4 * imm as usize,
            Self::Write { part, imm } => 16 * part.starts() as usize + 4 * imm as usize,
            Self::ReadRequest => 16,
            Self::ReadResponse(Part::Middle) => 0,
            Self::ReadResponse(_) | Self::Ack => 4,
            Self::AtomicAck => 12,
            Self::CompareSwap | Self::FetchAdd => 28,
            Self::Datagram { imm } => 8 + 4 * imm as usize,
            Self::MaskedCompareSwap => 48,
            Self::MaskedFetchAdd | Self::Dc => 32,
        }
    }

    /// True if payload may follow.
    pub(super) fn has_payload(self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { .. } | Self::ReadResponse(_) | Self::Datagram { .. })
    }
}

/// The part that ends a message and begins as `part` does.
fn ending(part: Part) -> Part {
    if part.starts() { Part::Only } else { Part::Last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_that_is_understood_means_itself() {
        let known: Vec<u8> = (0..=0xff).filter(|code| Shape::from_code(*code).is_some()).collect();
        let rc = 0..=0x14;
        assert_eq!(known, rc.chain([0x64, 0x65, 0xc0, 0xc1, 0xc2]).collect::<Vec<u8>>());
        for code in known {
            assert_eq!(Shape::from_code(code).map(Shape::code), Some(code));
        }
    }
}
