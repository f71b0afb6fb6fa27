//! The send queue read back as a journal (pure): what a WQE was, and what it becomes on another path. Rule
//! 14.

use crate::cut::Shape;
use crate::wqe_write::{Place, SIGNAL_TAG};
use shunt_layout::mlx5::wqe::{Ctrl, DataSegment, Opcode, Segment, Wqebb, remote_address};

/// What a slot of the journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// It is an RDMA READ: executed is not delivered, it is always issued again.
    pub is_read: bool,
    /// It is a kind 1 signal.
    pub is_signal: bool,
    /// Segments that count.
    pub ds: u8,
    /// Remote address; meaningless when `moves_nothing`.
    pub remote: u64,
    /// A placeholder: no keys, no data.
    pub moves_nothing: bool,
    /// Local address, if the data is not inline.
    pub local: Option<u64>,
    /// The value of an inline payload of up to eight bytes.
    pub value: u64,
}

#[inline(always)]
const fn segment(wqe: &Wqebb, number: usize) -> Segment {
    [wqe.0[number * 4], wqe.0[number * 4 + 1], wqe.0[number * 4 + 2], wqe.0[number * 4 + 3]]
}

/// Reads one slot of the journal.
#[inline(always)]
pub const fn read(wqe: &Wqebb) -> Entry {
    let ctrl = Ctrl::read(segment(wqe, 0));
    let moves_nothing = ctrl.ds < 3;
    let payload = DataSegment::read(segment(wqe, 2));
    let local = match payload {
        DataSegment::Pointer { address, .. } if !moves_nothing => Some(address),
        _ => None,
    };
    Entry {
        is_read: ctrl.opcode == Opcode::RdmaRead as u8,
        is_signal: ctrl.opcode == Opcode::RdmaWrite as u8 && ctrl.imm == SIGNAL_TAG && !moves_nothing,
        ds: ctrl.ds,
        remote: remote_address(segment(wqe, 1)),
        moves_nothing,
        local,
        value: wqe.0[9] as u64 | (wqe.0[10] as u64) << 32,
    }
}

/// What the WQE that starts here is to the queue and to the responder's count. An opcode that is none of ours counts
/// nothing: a count that includes it then fails its cross-check.
#[inline(always)]
pub const fn shape(wqe: &Wqebb) -> Shape {
    let ctrl = Ctrl::read(segment(wqe, 0));
    let counts = match Opcode::from_raw(ctrl.opcode) {
        Some(Opcode::Nop) | None => false,
        Some(_) => true,
    };
    Shape { blocks: (ctrl.ds as u64).div_ceil(4), counts }
}

/// The same operation at another place with other keys. Payload and addresses stay as they are: zero-copy.
#[inline(always)]
pub const fn relocate(wqe: &Wqebb, place: Place, rkey_be: u32, lkey_be: Option<u32>) -> Wqebb {
    let mut out = *wqe;
    let opcode = u32::from_be(wqe.0[0]) & 0xff00_00ff;
    out.0[0] = (opcode | (place.index as u16 as u32) << 8).to_be();
    out.0[1] = (place.qpn_shifted | (u32::from_be(wqe.0[1]) & 0x3f)).to_be();
    out.0[6] = rkey_be;
    if let Some(lkey_be) = lkey_be {
        out.0[9] = lkey_be;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wqe_write::{self, Segments};

    fn block(segments: Segments) -> Wqebb {
        let mut words = [0xa5a5_a5a5; 16];
        for (i, word) in segments.segments.iter().take(segments.ds as usize).flatten().enumerate() {
            words[i] = *word;
        }
        Wqebb(words)
    }

    const OLD: Place = Place { index: 0x1_fffe, qpn_shifted: 0x123 << 8 };
    const NEW: Place = Place { index: 3, qpn_shifted: 0x456 << 8 };

    #[test]
    fn a_moved_write_is_the_write_written_there() {
        let old = block(wqe_write::write(OLD, 0x9000, 7, 0x8000, 8, 4096));
        let new = block(wqe_write::write(NEW, 0x9000, 17, 0x8000, 18, 4096));
        assert_eq!(relocate(&old, NEW, 17, Some(18)), new);
    }

    #[test]
    fn a_moved_signal_keeps_its_payload_and_tag() {
        let old = block(wqe_write::signal(OLD, 0x9000, 7, 0xfeed_f00d_1234_5678));
        let new = block(wqe_write::signal(NEW, 0x9000, 17, 0xfeed_f00d_1234_5678));
        let entry = read(&old);
        assert!(entry.is_signal && entry.local.is_none());
        assert_eq!((entry.value, entry.remote), (0xfeed_f00d_1234_5678, 0x9000));
        assert_eq!(relocate(&old, NEW, 17, None), new);
    }

    #[test]
    fn an_inline_put_is_no_signal() {
        assert!(!read(&block(wqe_write::write_inline(OLD, 0x10, 0, 5, 8))).is_signal);
        assert!(read(&block(wqe_write::placeholder(OLD))).moves_nothing);
        assert!(read(&block(wqe_write::read(OLD, 0x10, 0, 0x20, 0, 8))).is_read);
    }
}
