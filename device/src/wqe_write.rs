//! Arguments to WQE segments (pure). Keys come pre-swapped from the key tables.

use crate::types::Amo;
use shunt_layout::mlx5::wqe::{
    CqeWhen, OPMOD_MASKED_4, OPMOD_MASKED_8, Opcode, Segment, data, inline_small, inline8, operands4,
    operands8, remote, with_opmod,
};

/// Marks a kind 1 signal in the control segment's immediate, which hardware ignores for an RDMA WRITE.
///
/// The send queue is the journal: a switch must tell a signal, whose word is its own ledger, from an inline
/// put of the same shape. "SIG1".
pub const SIGNAL_TAG: u32 = u32::from_be_bytes(*b"SIG1");
/// Marks a ledger word, which is a kind 1 word of the library's own. "LDG1".
pub const LEDGER_TAG: u32 = u32::from_be_bytes(*b"LDG1");
/// Marks the atomic of a kind 2 signal. "SIG2".
pub const CLEARED_TAG: u32 = u32::from_be_bytes(*b"SIG2");
/// Marks a kind 3 signal, and an atomic whose answer nobody wants. "AMO3".
pub const ADD_TAG: u32 = u32::from_be_bytes(*b"AMO3");
/// Marks a fetching atomic. "AMOF".
pub const FETCH_TAG: u32 = u32::from_be_bytes(*b"AMOF");

/// What a WQE needs besides its operation: where it stands and on which QP.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Physical index.
    pub index: u64,
    /// `qpn << 8`.
    pub qpn_shifted: u32,
}

/// Up to three segments; `ds` says how many count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Control, remote address, data or inline.
    pub segments: [Segment; 3],
    /// Segments that are written: 2 or 3.
    pub ds: u8,
}

#[inline(always)]
const fn control(place: Place, opcode: Opcode, ds: u8, tag: u32) -> Segment {
    let flags = CqeWhen::Always as u8;
    let mut segment = shunt_layout::mlx5::wqe::ctrl(opcode, place.index as u16, place.qpn_shifted, ds, flags);
    segment[3] = tag.to_be();
    segment
}

/// An RDMA WRITE of `bytes` (0 to 2^31 - 1) from local memory. One of no bytes has no data segment: the third stands
/// behind its end.
#[inline(always)]
pub const fn write(place: Place, to: u64, rkey_be: u32, from: u64, lkey_be: u32, bytes: u32) -> Segments {
    let ds = if bytes == 0 { 2 } else { 3 };
    Segments {
        segments: [control(place, Opcode::RdmaWrite, ds, 0), remote(to, rkey_be), data(from, lkey_be, bytes)],
        ds: 3,
    }
}

/// An RDMA WRITE of the low `bytes` (1 to 8) of `value`, inline.
#[inline(always)]
pub const fn write_inline(place: Place, to: u64, rkey_be: u32, value: u64, bytes: u32) -> Segments {
    Segments {
        segments: [control(place, Opcode::RdmaWrite, 3, 0), remote(to, rkey_be), inline_small(value, bytes)],
        ds: 3,
    }
}

/// A kind 1 signal: the absolute `value`, inline.
#[inline(always)]
pub const fn signal(place: Place, to: u64, rkey_be: u32, value: u64) -> Segments {
    Segments {
        segments: [control(place, Opcode::RdmaWrite, 3, SIGNAL_TAG), remote(to, rkey_be), inline8(value)],
        ds: 3,
    }
}

/// A ledger word: `value`, inline.
#[inline(always)]
pub const fn ledger(place: Place, to: u64, rkey_be: u32, value: u64) -> Segments {
    Segments {
        segments: [control(place, Opcode::RdmaWrite, 3, LEDGER_TAG), remote(to, rkey_be), inline8(value)],
        ds: 3,
    }
}

/// Where the answer of an atomic goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Local address.
    pub at: u64,
    /// Its key, big-endian.
    pub lkey_be: u32,
    /// What the atomic is to the journal: one of the tags.
    pub tag: u32,
}

/// Four or five segments: a wide one takes a second block of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicSegments {
    /// Control, remote address, operands, data; or control, remote address, operands, masks, data.
    pub segments: [Segment; 5],
    /// Segments that count: 4 or 5.
    pub ds: u8,
}

/// Opcode and operands of an atomic. NVSHMEM's choices, except that an 8-byte add is the plain one: the two plain
/// forms are what every NIC has.
#[inline(always)]
const fn operands(amo: Amo) -> (Opcode, Segment, Segment) {
    use Opcode::{AtomicCs, AtomicFa, AtomicMaskedCs as Cs, AtomicMaskedFa as Fa};
    const ALL4: u32 = u32::MAX;
    const ALL8: u64 = u64::MAX;
    const NONE: Segment = [0; 4];
    match amo {
        Amo::Add64(add) => (AtomicFa, operands8(add, 0), NONE),
        Amo::CompareSwap64 { expect, new } => (AtomicCs, operands8(new, expect), NONE),
        Amo::Add32(add) => (Fa, operands4([add, 0, 0, 0]), NONE),
        // A field boundary at every bit: nothing is carried.
        Amo::Xor32(bits) => (Fa, operands4([bits, ALL4, 0, 0]), NONE),
        Amo::Xor64(bits) => (Fa, operands8(bits, ALL8), NONE),
        Amo::CompareSwap32 { expect, new } => (Cs, operands4([new, expect, ALL4, ALL4]), NONE),
        Amo::Set32(value) | Amo::Swap32(value) => (Cs, operands4([value, 0, ALL4, 0]), NONE),
        Amo::And32(bits) => (Cs, operands4([bits, 0, !bits, 0]), NONE),
        Amo::Or32(bits) => (Cs, operands4([bits, 0, bits, 0]), NONE),
        Amo::Set64(value) | Amo::Swap64(value) => (Cs, operands8(value, 0), operands8(ALL8, 0)),
        Amo::And64(bits) => (Cs, operands8(bits, 0), operands8(!bits, 0)),
        Amo::Or64(bits) => (Cs, operands8(bits, 0), operands8(bits, 0)),
    }
}

/// An atomic on the word at `to`.
#[inline(always)]
pub const fn atomic(place: Place, to: u64, rkey_be: u32, amo: Amo, answer: Answer) -> AtomicSegments {
    let (opcode, first, masks) = operands(amo);
    let wide = amo.blocks() == 2;
    let ds = if wide { 5 } else { 4 };
    let ctrl = control(place, opcode, ds, answer.tag);
    let ctrl = match opcode {
        Opcode::AtomicMaskedCs | Opcode::AtomicMaskedFa => {
            with_opmod(ctrl, if amo.bytes() == 4 { OPMOD_MASKED_4 } else { OPMOD_MASKED_8 })
        }
        _ => ctrl,
    };
    let to = remote(to, rkey_be);
    let result = data(answer.at, answer.lkey_be, amo.bytes());
    let segments = if wide { [ctrl, to, first, masks, result] } else { [ctrl, to, first, result, [0; 4]] };
    AtomicSegments { segments, ds }
}

/// A zero-length RDMA WRITE: one message that moves nothing and needs no key (rule 6's placeholder).
#[inline(always)]
pub const fn placeholder(place: Place) -> Segments {
    Segments { segments: [control(place, Opcode::RdmaWrite, 2, 0), remote(0, 0), [0; 4]], ds: 2 }
}

/// An RDMA READ of `bytes` into local memory. One of no bytes is a WRITE of no bytes.
#[inline(always)]
pub const fn read(place: Place, from: u64, rkey_be: u32, to: u64, lkey_be: u32, bytes: u32) -> Segments {
    if bytes == 0 {
        return write(place, from, rkey_be, to, lkey_be, bytes);
    }
    Segments {
        segments: [control(place, Opcode::RdmaRead, 3, 0), remote(from, rkey_be), data(to, lkey_be, bytes)],
        ds: 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn bytes(segments: &Segments) -> Vec<u8> {
        let words = segments.segments.iter().take(segments.ds as usize).flatten();
        words.flat_map(|w| w.to_le_bytes()).collect()
    }

    /// Written from the PRM's tables: RDMA_WRITE, index 0x0102, QPN 0xabc, signalled, 4 bytes.
    #[test]
    fn a_write_is_the_bytes_of_the_prm() {
        let place = Place { index: 0x7_0102, qpn_shifted: 0xabc << 8 };
        let wqe = write(place, 0x1000, 0x1234u32.to_be(), 0x2000, 0x5678u32.to_be(), 4);
        let golden: Vec<u8> =
            [0x00010208u32, 0x000abc03, 0x00000008, 0, 0, 0x1000, 0x1234, 0, 4, 0x5678, 0, 0x2000]
                .iter()
                .flat_map(|w| w.to_be_bytes())
                .collect();
        assert_eq!(bytes(&wqe), golden);
    }

    /// Written from the PRM's tables and NVSHMEM's choices: index 0x0102, QPN 0xabc, signalled, tag 7.
    #[test]
    fn atomics_are_the_bytes_of_the_prm() {
        let place = Place { index: 0x7_0102, qpn_shifted: 0xabc << 8 };
        let answer = Answer { at: 0x2000, lkey_be: 0x5678u32.to_be(), tag: 7 };
        let m = 0xffff_ffffu32;
        let (v, e) = (0x1122_3344_5566_7788u64, 0xaabb_ccdd_eeff_0011u64);
        let (a, b, c, d) = (0x1122_3344, 0x5566_7788, 0xaabb_ccdd, 0xeeff_0011);
        let cases: [(Amo, u32, &[u32]); 14] = [
            (Amo::Add64(v), 0x0001_0212, &[a, b, 0, 0]),
            (Amo::CompareSwap64 { expect: e, new: v }, 0x0001_0211, &[a, b, c, d]),
            (Amo::Xor64(v), 0x0901_0215, &[a, b, m, m]),
            (Amo::Set64(v), 0x0901_0214, &[a, b, 0, 0, m, m, 0, 0]),
            (Amo::Swap64(v), 0x0901_0214, &[a, b, 0, 0, m, m, 0, 0]),
            (Amo::And64(v), 0x0901_0214, &[a, b, 0, 0, !a, !b, 0, 0]),
            (Amo::Or64(v), 0x0901_0214, &[a, b, 0, 0, a, b, 0, 0]),
            (Amo::Add32(a), 0x0801_0215, &[a, 0, 0, 0]),
            (Amo::Xor32(a), 0x0801_0215, &[a, m, 0, 0]),
            (Amo::Set32(a), 0x0801_0214, &[a, 0, m, 0]),
            (Amo::Swap32(a), 0x0801_0214, &[a, 0, m, 0]),
            (Amo::And32(a), 0x0801_0214, &[a, 0, !a, 0]),
            (Amo::Or32(a), 0x0801_0214, &[a, 0, a, 0]),
            (Amo::CompareSwap32 { expect: c, new: a }, 0x0801_0214, &[a, c, m, m]),
        ];
        for (amo, first, operands) in cases {
            let wqe = atomic(place, 0x1000, 0x1234u32.to_be(), amo, answer);
            let ds = 3 + operands.len() as u32 / 4;
            let mut golden = std::vec![first, 0x000a_bc00 | ds, 8, 7, 0, 0x1000, 0x1234, 0];
            golden.extend(operands);
            golden.extend([amo.bytes(), 0x5678, 0, 0x2000]);
            let met: Vec<u32> =
                wqe.segments.iter().take(wqe.ds as usize).flatten().map(|word| u32::from_be(*word)).collect();
            assert_eq!(met, golden, "{amo:?}");
            assert_eq!((u32::from(wqe.ds), amo.blocks()), (ds, u64::from(ds.div_ceil(4))), "{amo:?}");
        }
    }

    #[test]
    fn an_inline_payload_is_little_endian_memory() {
        let place = Place { index: 0, qpn_shifted: 0 };
        let wqe = signal(place, 0x10, 0, 0x1122_3344_5566_7788);
        assert_eq!(&bytes(&wqe)[32..44], [0x80, 0, 0, 8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    }
}
