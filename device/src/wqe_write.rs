//! Arguments to WQE segments (pure). Keys come pre-swapped from the key tables.

use shunt_layout::mlx5::wqe::{CqeWhen, Opcode, Segment, data, inline_small, inline8, remote};

/// Marks a kind 1 signal in the control segment's immediate, which hardware ignores for an RDMA WRITE.
///
/// The send queue is the journal: a switch must tell a signal, whose word is its own ledger, from an inline
/// put of the same shape. "SIG1".
pub const SIGNAL_TAG: u32 = u32::from_be_bytes(*b"SIG1");

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
    /// Segments that count: 2 or 3.
    pub ds: u8,
}

#[inline(always)]
const fn control(place: Place, opcode: Opcode, ds: u8, tag: u32) -> Segment {
    let flags = CqeWhen::Always as u8;
    let mut segment = shunt_layout::mlx5::wqe::ctrl(opcode, place.index as u16, place.qpn_shifted, ds, flags);
    segment[3] = tag.to_be();
    segment
}

/// An RDMA WRITE of `bytes` (1 to 2^31 - 1) from local memory.
#[inline(always)]
pub const fn write(place: Place, to: u64, rkey_be: u32, from: u64, lkey_be: u32, bytes: u32) -> Segments {
    Segments {
        segments: [control(place, Opcode::RdmaWrite, 3, 0), remote(to, rkey_be), data(from, lkey_be, bytes)],
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

/// A zero-length RDMA WRITE: one message that moves nothing and needs no key (rule 6's placeholder).
#[inline(always)]
pub const fn placeholder(place: Place) -> Segments {
    Segments { segments: [control(place, Opcode::RdmaWrite, 2, 0), remote(0, 0), [0; 4]], ds: 2 }
}

/// An RDMA READ of `bytes` into local memory.
#[inline(always)]
pub const fn read(place: Place, from: u64, rkey_be: u32, to: u64, lkey_be: u32, bytes: u32) -> Segments {
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

    #[test]
    fn an_inline_payload_is_little_endian_memory() {
        let place = Place { index: 0, qpn_shifted: 0 };
        let wqe = signal(place, 0x10, 0, 0x1122_3344_5566_7788);
        assert_eq!(&bytes(&wqe)[32..44], [0x80, 0, 0, 8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    }
}
