//! The send queue read back as a journal (pure): what a WQE was, and what it becomes on another path. Rule
//! 14.

use crate::cut::Shape;
use crate::types::Operation;
use crate::wqe_write::{ADD_TAG, CLEARED_TAG, LEDGER_TAG, Place, SIGNAL_TAG};
use shunt_layout::mlx5::wqe::{CqeWhen, Ctrl, DataSegment, Opcode, Segment, Wqebb, remote_address};

/// What a slot of the journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it was.
    pub operation: Operation,
    /// It is a ledger word; `operation` is a put.
    pub is_ledger: bool,
    /// Blocks it takes: 1, or 2 for an atomic with masks of 64 bits.
    pub blocks: u64,
    /// Remote address; meaningless when `moves_nothing`.
    pub remote: u64,
    /// A placeholder: no keys, no data.
    pub moves_nothing: bool,
    /// Local address, if the data is not inline and does not stand in a second block.
    pub local: Option<u64>,
    /// The value of an inline payload of up to eight bytes, or what a wide atomic stores.
    pub value: u64,
}

impl Entry {
    /// It is an RDMA READ: executed is not delivered, it is always issued again.
    #[inline(always)]
    pub const fn is_read(self) -> bool {
        matches!(self.operation, Operation::Get)
    }

    /// A word that its writer only raises: what it holds tells whether this write of it was executed.
    #[inline(always)]
    pub const fn is_evidence(self) -> bool {
        self.is_ledger || matches!(self.operation, Operation::Monotone)
    }

    /// Data of a put.
    #[inline(always)]
    pub const fn is_data(self) -> bool {
        matches!(self.operation, Operation::Put) && !self.is_ledger && !self.moves_nothing
    }

    /// Neither the receiver's memory nor a repetition tells whether it was executed.
    #[inline(always)]
    pub const fn is_unprovable(self) -> bool {
        matches!(self.operation, Operation::Cleared | Operation::Add | Operation::Fetch)
    }
}

#[inline(always)]
const fn segment(wqe: &Wqebb, number: usize) -> Segment {
    [wqe.0[number * 4], wqe.0[number * 4 + 1], wqe.0[number * 4 + 2], wqe.0[number * 4 + 3]]
}

/// Segment that names the local memory of a WQE of one block.
#[inline(always)]
const fn data_segment(operation: Operation) -> usize {
    match operation {
        Operation::Cleared | Operation::Add | Operation::Fetch => 3,
        _ => 2,
    }
}

#[inline(always)]
const fn operation(ctrl: Ctrl) -> Operation {
    match Opcode::from_raw(ctrl.opcode) {
        Some(Opcode::RdmaRead) => Operation::Get,
        Some(Opcode::RdmaWrite) if ctrl.imm == SIGNAL_TAG && ctrl.ds > 2 => Operation::Monotone,
        Some(Opcode::AtomicCs | Opcode::AtomicFa | Opcode::AtomicMaskedCs | Opcode::AtomicMaskedFa) => {
            match ctrl.imm {
                CLEARED_TAG => Operation::Cleared,
                ADD_TAG => Operation::Add,
                SIGNAL_TAG => Operation::Monotone,
                LEDGER_TAG => Operation::Put,
                _ => Operation::Fetch,
            }
        }
        _ => Operation::Put,
    }
}

/// Reads one slot of the journal, at which a WQE starts.
#[inline(always)]
pub const fn read(wqe: &Wqebb) -> Entry {
    let ctrl = Ctrl::read(segment(wqe, 0));
    let moves_nothing = ctrl.ds < 3;
    let operation = operation(ctrl);
    let blocks = shape(wqe).blocks;
    let local = match DataSegment::read(segment(wqe, data_segment(operation))) {
        DataSegment::Pointer { address, .. } if !moves_nothing && blocks == 1 => Some(address),
        _ => None,
    };
    // Both are read before one is chosen: a choice of words to read would put the block on a GPU's stack.
    let inline = wqe.0[9] as u64 | (wqe.0[10] as u64) << 32;
    let stored = (u32::from_be(wqe.0[8]) as u64) << 32 | u32::from_be(wqe.0[9]) as u64;
    Entry {
        operation,
        is_ledger: ctrl.opcode != Opcode::RdmaRead as u8 && ctrl.imm == LEDGER_TAG && !moves_nothing,
        blocks,
        remote: remote_address(segment(wqe, 1)),
        moves_nothing,
        local,
        value: if blocks == 1 { inline } else { stored },
    }
}

/// True if a WQE of queue pair `qpn_shifted` starts at the block of physical index `physical`. If not, the block is the
/// second one of the WQE before it: it begins with a data segment, which names neither.
#[inline(always)]
pub const fn starts_at(wqe: &Wqebb, physical: u64, qpn_shifted: u32) -> bool {
    let ctrl = Ctrl::read(segment(wqe, 0));
    // The byte count of a second block is eight, which reads as a WRITE at index 0, and its key may be the number of
    // the queue pair. Then its address would have to read as the flags and the tag of a WRITE as well.
    let flags = wqe.0[2] == u32::to_be(CqeWhen::Always as u32);
    ctrl.index == physical as u16 && ctrl.qpn << 8 == qpn_shifted && flags
}

/// The local address in the second block of a wide WQE.
#[inline(always)]
pub const fn second_local(second: &Wqebb) -> u64 {
    match DataSegment::read(segment(second, 0)) {
        DataSegment::Pointer { address, .. } => address,
        DataSegment::Inline { .. } => 0,
    }
}

/// The second block of a wide WQE with another key.
#[inline(always)]
pub const fn relocate_second(second: &Wqebb, lkey_be: u32) -> Wqebb {
    let mut out = *second;
    out.0[1] = lkey_be;
    out
}

/// Bytes that a WQE moves, by its first two words and by that of its third segment. An atomic moves none to speak of,
/// and a placeholder none at all: what lies behind its segments is of the WQE that stood there before.
#[inline(always)]
pub const fn bytes_moved(first: u32, second: u32, third: u32) -> u32 {
    let opcode = u32::from_be(first) as u8;
    let has_data = u32::from_be(second) & 0x3f >= 3;
    let moves = has_data && (opcode == Opcode::RdmaWrite as u8 || opcode == Opcode::RdmaRead as u8);
    let inline = u32::from_be(third) >> 31 != 0;
    if moves && !inline { u32::from_be(third) } else { 0 }
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
    let blocks = (ctrl.ds as u64).div_ceil(4);
    Shape { blocks: if blocks == 0 { 1 } else { blocks }, counts }
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
        // Each word by its own number: one that is only known at run time would put the block on a GPU's stack.
        let behind_operands = data_segment(operation(Ctrl::read(segment(wqe, 0)))) == 3;
        out.0[9] = if behind_operands { out.0[9] } else { lkey_be };
        out.0[13] = if behind_operands { lkey_be } else { out.0[13] };
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
    fn bytes_are_those_of_the_data() {
        let bytes = |segments: Segments| {
            let block = block(segments);
            bytes_moved(block.0[0], block.0[1], block.0[8])
        };
        assert_eq!(bytes(wqe_write::write(OLD, 0x9000, 7, 0x8000, 8, 1 << 30)), 1 << 30);
        assert_eq!(bytes(wqe_write::signal(OLD, 0x9000, 7, u64::MAX)), 0, "inline");
        let mut stood = block(wqe_write::write(OLD, 0x9000, 7, 0x8000, 8, 1 << 30));
        stood.0[..8].copy_from_slice(&block(wqe_write::placeholder(OLD)).0[..8]);
        assert_eq!(
            bytes_moved(stood.0[0], stood.0[1], stood.0[8]),
            0,
            "a placeholder where a large put stood"
        );
    }

    #[test]
    fn a_moved_signal_keeps_its_payload_and_tag() {
        let old = block(wqe_write::signal(OLD, 0x9000, 7, 0xfeed_f00d_1234_5678));
        let new = block(wqe_write::signal(NEW, 0x9000, 17, 0xfeed_f00d_1234_5678));
        let entry = read(&old);
        assert!(entry.operation == Operation::Monotone && entry.local.is_none());
        assert_eq!((entry.value, entry.remote), (0xfeed_f00d_1234_5678, 0x9000));
        assert_eq!(relocate(&old, NEW, 17, None), new);
    }

    #[test]
    fn an_inline_put_is_no_signal() {
        assert_eq!(read(&block(wqe_write::write_inline(OLD, 0x10, 0, 5, 8))).operation, Operation::Put);
        assert!(read(&block(wqe_write::placeholder(OLD))).moves_nothing);
        assert!(read(&block(wqe_write::read(OLD, 0x10, 0, 0x20, 0, 8))).is_read());
    }

    /// The blocks of an atomic, as they lie in the ring.
    fn blocks(wqe: wqe_write::AtomicSegments) -> [Wqebb; 2] {
        let mut words = [0; 32];
        for (i, word) in wqe.segments.iter().take(wqe.ds as usize).flatten().enumerate() {
            words[i] = *word;
        }
        let (mut first, mut second) = ([0; 16], [0; 16]);
        first.copy_from_slice(&words[..16]);
        second.copy_from_slice(&words[16..]);
        [Wqebb(first), Wqebb(second)]
    }

    #[test]
    fn a_moved_atomic_is_the_atomic_written_there() {
        use crate::types::Amo;
        let tags = [
            (CLEARED_TAG, Operation::Cleared),
            (ADD_TAG, Operation::Add),
            (wqe_write::FETCH_TAG, Operation::Fetch),
        ];
        for (tag, operation) in tags {
            for amo in [Amo::Add64(5), Amo::Xor32(6), Amo::Set64(7), Amo::CompareSwap64 { expect: 1, new: 2 }]
            {
                let answer = |lkey_be| wqe_write::Answer { at: 0x8000, lkey_be, tag };
                let [old, second] = blocks(wqe_write::atomic(OLD, 0x9000, 7, amo, answer(8)));
                let [new, new_second] = blocks(wqe_write::atomic(NEW, 0x9000, 17, amo, answer(18)));
                let entry = read(&old);
                assert_eq!((entry.operation, entry.remote, entry.blocks), (operation, 0x9000, amo.blocks()));
                assert!(starts_at(&old, OLD.index, OLD.qpn_shifted), "{amo:?}");
                if amo.blocks() == 2 {
                    assert_eq!((entry.local, second_local(&second)), (None, 0x8000));
                    assert!(!starts_at(&second, OLD.index + 1, OLD.qpn_shifted), "{amo:?}");
                    assert_eq!(relocate(&old, NEW, 17, None), new, "{amo:?}");
                    assert_eq!(relocate_second(&second, 18), new_second, "{amo:?}");
                } else {
                    assert_eq!(entry.local, Some(0x8000));
                    assert_eq!(relocate(&old, NEW, 17, Some(18)), new, "{amo:?}");
                }
            }
        }
    }

    #[test]
    fn words_that_atomics_store_are_evidence() {
        const VALUE: u64 = 0xfeed_f00d_1234_5678;
        for (tag, is_ledger, operation) in
            [(SIGNAL_TAG, false, Operation::Monotone), (LEDGER_TAG, true, Operation::Put)]
        {
            let answer = wqe_write::Answer { at: 0x8000, lkey_be: 8, tag };
            let [first, _] =
                blocks(wqe_write::atomic(OLD, 0x9000, 7, crate::types::Amo::Set64(VALUE), answer));
            let entry = read(&first);
            assert_eq!((entry.operation, entry.is_ledger), (operation, is_ledger));
            assert_eq!((entry.value, entry.remote, entry.blocks), (VALUE, 0x9000, 2));
            assert!(entry.is_evidence() && !entry.is_unprovable() && entry.local.is_none());
        }
    }

    #[test]
    fn a_ledger_word_is_evidence_and_no_signal() {
        let entry = read(&block(wqe_write::ledger(OLD, 0x10, 0, 5)));
        assert!(entry.is_ledger && entry.is_evidence() && !entry.is_unprovable());
        assert_eq!((entry.operation, entry.value), (Operation::Put, 5));
    }
}
