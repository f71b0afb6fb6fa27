//! What the four atomics compute, and how they read and write their word.

use crate::memory::Span;
use crate::step_context::StepContext;
use shunt_soft_fault::{FaultKind, Faults};
use shunt_soft_wire::packet::{AtomicOp, AtomicRequest};

/// An atomic that has read its word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtomicWrite {
    /// The value before.
    pub(crate) original: u64,
    bytes: u32,
    /// What is written, one after the other: one word, but for sabotage.
    words: [Option<u64>; 2],
}

impl AtomicWrite {
    /// Reads the word of an atomic, and says what is to be written. Atomic among the requests of one NIC, not with
    /// others.
    pub(crate) fn begin(span: Span, request: AtomicRequest, faults: &mut Faults) -> Self {
        let bytes = request.bytes;
        let original = load_word(span, bytes);
        let new = apply(request.op, original, bytes);
        let mut words = [Some(new), None];
        if faults.any() {
            let again = apply(request.op, new, bytes);
            if new != original && faults.strikes(|kind| matches!(kind, FaultKind::SkipAtomic)) {
                words = [None, None];
            } else if again != new && faults.strikes(|kind| matches!(kind, FaultKind::DoubleAtomic)) {
                words = [Some(new), Some(again)];
            }
        }
        Self { original, bytes, words }
    }

    /// Writes it.
    pub(crate) fn land(&self, span: Span, cx: &mut StepContext) {
        for word in self.words.iter().flatten() {
            cx.land(span, &word.to_le_bytes()[..self.bytes as usize]);
        }
    }
}

/// Writes what the requester gets: 8-byte results in host order (endianness mode 1) or big-endian (mode 0), 4-byte
/// results big-endian always.
pub(crate) fn write_result(original: u64, big_endian: bool, into: &mut [u8]) {
    match into.len() {
        4 => into.copy_from_slice(&(original as u32).to_be_bytes()),
        _ if big_endian => into.copy_from_slice(&original.to_be_bytes()),
        _ => into.copy_from_slice(&original.to_le_bytes()),
    }
}

/// The word of an atomic's width that lies there.
fn load_word(span: Span, bytes: u32) -> u64 {
    let mut word = [0; 8];
    span.load(&mut word[..bytes as usize]);
    u64::from_le_bytes(word)
}

/// The word's new value. `bytes` is 4 or 8; for 4 the upper halves are zero and stay so.
fn apply(op: AtomicOp, old: u64, bytes: u32) -> u64 {
    let width = if bytes == 4 { u32::MAX as u64 } else { u64::MAX };
    let new = match op {
        AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask } => {
            if (old ^ compare) & compare_mask & width == 0 {
                old & !swap_mask | swap & swap_mask
            } else {
                old
            }
        }
        AtomicOp::FetchAdd { add, boundary } => fielded_add(old, add, boundary),
    };
    new & width
}

/// Addition in which no carry leaves a bit that is set in `boundary`.
///
/// Without the boundary bits no carry can cross a field; they are then added by hand, dropping their carry.
fn fielded_add(a: u64, b: u64, boundary: u64) -> u64 {
    let low = (a & !boundary).wrapping_add(b & !boundary);
    low ^ (a ^ b) & boundary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(old: u64, add: u64, boundary: u64, bytes: u32) -> u64 {
        apply(AtomicOp::FetchAdd { add, boundary }, old, bytes)
    }

    #[test]
    fn plain_add_wraps() {
        assert_eq!(add(u64::MAX, 2, 0, 8), 1);
        assert_eq!(add(0xffff_ffff, 2, 0, 4), 1);
    }

    #[test]
    fn all_boundaries_is_xor() {
        assert_eq!(add(0b1100, 0b1010, u64::MAX, 8), 0b0110);
    }

    #[test]
    fn carry_stops_at_a_boundary() {
        // Two 32-bit fields, boundary bit 31: the low field's overflow does not reach the high one.
        assert_eq!(add(0x0000_0001_ffff_ffff, 0x0000_0001_0000_0001, 1 << 31, 8), 0x0000_0002_0000_0000);
    }

    #[test]
    fn compare_swap_masks() {
        let op = AtomicOp::CompareSwap { compare: 0x12, swap: 0xff, compare_mask: 0xff, swap_mask: 0x0f };
        assert_eq!(apply(op, 0x12, 8), 0x1f);
        assert_eq!(apply(op, 0x13, 8), 0x13);
        let set = AtomicOp::CompareSwap { compare: 9, swap: 7, compare_mask: 0, swap_mask: u64::MAX };
        assert_eq!(apply(set, 0xffff, 8), 7);
    }
}
