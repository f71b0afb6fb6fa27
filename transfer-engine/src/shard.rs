//! How a write becomes pieces, where a page lies, and which rail takes the next piece. Pure.

use crate::error::TransferError;

/// A piece of a split write has at least so many bytes, unless both ends agree on another number.
pub const PIECE_MIN: u64 = 64 << 10;
/// The longest message of a ConnectX (PRM: `log_max_msg`, 30), bytes.
pub const PIECE_MAX: u64 = 1 << 30;
/// No region is longer, bytes: what `writes_of` answers always fits.
pub const LEN_MAX: u64 = 1 << 48;

/// How many pieces, and so how many immediates, a single write of `len` bytes has between ends with `rails` rails each,
/// the smaller number of both. Both ends compute it, so a receiver knows the count whatever fails on the way.
pub const fn writes_of(len: u64, rails: u32, piece_min: u64) -> u32 {
    let len = if len > LEN_MAX { LEN_MAX } else { len };
    let piece_min = if piece_min == 0 { 1 } else { piece_min };
    let spread = len.div_ceil(piece_min);
    let spread = if spread > rails as u64 { rails as u64 } else { spread };
    let least = len.div_ceil(PIECE_MAX);
    let pieces = if spread > least { spread } else { least };
    if pieces == 0 { 1 } else { pieces as u32 }
}

/// The pieces of a write: offset and length of each, in order, without gaps.
pub fn pieces(len: u64, count: u32) -> impl Iterator<Item = (u64, u64)> {
    let at = move |number: u32| (u128::from(len) * u128::from(number) / u128::from(count.max(1))) as u64;
    (0..count).map(move |number| (at(number), at(number + 1) - at(number)))
}

/// Pages of a region: page `i` begins at `offset + indices[i] * stride`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Which pages, in order.
    pub indices: Vec<u32>,
    /// Bytes from one page to the next.
    pub stride: u64,
    /// First byte of page 0 in the region.
    pub offset: u64,
}

impl Pages {
    /// Where page `i` begins in the region. `None`: there is no such page, or no such address.
    #[inline]
    pub fn at(&self, i: usize) -> Option<u64> {
        self.begin(*self.indices.get(i)?)
    }

    /// Where the page of an index begins in the region. `None`: there is no such address.
    #[inline]
    pub fn begin(&self, index: u32) -> Option<u64> {
        u64::from(index).checked_mul(self.stride)?.checked_add(self.offset)
    }
}

/// How many pages are copied from one to the other, in order.
///
/// # Errors
/// The two do not have the same number of pages.
#[inline]
pub fn same_number(from: &Pages, to: &Pages) -> Result<usize, TransferError> {
    if from.indices.len() == to.indices.len() {
        return Ok(from.indices.len());
    }
    Err(other_number(from, to))
}

#[cold]
fn other_number(from: &Pages, to: &Pages) -> TransferError {
    let met = format!("{} and {}", from.indices.len(), to.indices.len());
    TransferError::Refused { what: "pages of source and target", want: "the same number", met }
}

/// What is known of a lane when a piece is to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Pieces that it takes now.
    pub free: u32,
    /// Bytes under way on it, below 2^63.
    pub bytes: u64,
    /// What it carries, in any unit that all lanes share. One with 0 is taken if there is no other.
    pub rate: u64,
}

/// The lane that would have `len` bytes more done first, of those with room. The first of equals.
#[inline]
pub fn choose<L>(lanes: impl Iterator<Item = (L, Load)>, len: u64) -> Option<L> {
    let mut best: Option<(L, u64, u64)> = None;
    // A piece without bytes costs a lane something as well.
    let len = len.max(64);
    for (lane, load) in lanes.filter(|(_, load)| load.free > 0) {
        let (bytes, rate) = (load.bytes + len, load.rate);
        let is_sooner = match &best {
            None => true,
            Some((_, least, at)) if *at == rate => bytes < *least,
            // Times are compared without a division.
            Some((_, least, at)) => {
                u128::from(bytes) * u128::from(*at) < u128::from(*least) * u128::from(rate)
            }
        };
        if is_sooner {
            best = Some((lane, bytes, rate));
        }
    }
    best.map(|(lane, ..)| lane)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_write_has_as_many_pieces_as_it_is_worth() {
        for (len, rails, expected) in [
            (0, 4, 1),
            (1, 4, 1),
            (PIECE_MIN, 4, 1),
            (PIECE_MIN + 1, 4, 2),
            (4 * PIECE_MIN, 4, 4),
            (32 << 20, 4, 4),
            (32 << 20, 1, 1),
            (PIECE_MAX + 1, 1, 2),
            (8 * PIECE_MAX, 4, 8),
            (32 << 20, 0, 1),
        ] {
            assert_eq!(writes_of(len, rails, PIECE_MIN), expected, "{len} bytes over {rails} rails");
        }
    }

    #[test]
    fn pages_lie_where_their_indices_say() {
        let pages = |indices: &[u32], stride| Pages { indices: indices.to_vec(), stride, offset: 16 };
        let (from, to, far) = (pages(&[2, 0], 100), pages(&[1, 7], 10), pages(&[3], u64::MAX));
        assert_eq!([0, 1, 2].map(|i| from.at(i)), [Some(216), Some(16), None]);
        assert_eq!((to.at(0), to.at(1), far.at(0)), (Some(26), Some(86), None), "no address");
        assert_eq!(same_number(&from, &to), Ok(2));
        assert!(same_number(&far, &to).is_err(), "not as many");
    }

    #[test]
    fn rails_share_by_rate() {
        let rates = [4, 1, 2];
        let (mut bytes, mut taken) = ([0; 3], [0; 3]);
        for _ in 0..700 {
            let lanes = (0..3).map(|i| (i, Load { free: 1, bytes: bytes[i], rate: rates[i] }));
            let at = choose(lanes, 1000).expect("there is room");
            bytes[at] += 1000;
            taken[at] += 1;
        }
        assert_eq!(taken, [400, 100, 200]);
        let full = Load { free: 0, bytes: 0, rate: 9 };
        assert_eq!(
            choose([(0, full), (1, Load { free: 1, bytes: 1 << 40, rate: 0 })].into_iter(), 1),
            Some(1)
        );
        assert_eq!(choose([(0, full)].into_iter(), 1), None);
    }

    proptest! {
        #[test]
        fn pieces_cover_a_write_once(len in 0..1u64 << 40, rails in 0..9u32, piece_min in 0..1u64 << 20) {
            let count = writes_of(len, rails, piece_min);
            prop_assert!(count >= 1 && u64::from(count) <= len.div_ceil(PIECE_MAX).max(u64::from(rails)).max(1));
            let mut next = 0;
            for (at, bytes) in pieces(len, count) {
                prop_assert_eq!(at, next, "no gap and no overlap");
                prop_assert!(bytes <= PIECE_MAX && (bytes > 0 || len == 0));
                next += bytes;
            }
            prop_assert_eq!(next, len);
        }
    }
}
