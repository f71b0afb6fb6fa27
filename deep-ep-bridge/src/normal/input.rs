//! Tokens as a caller has them, at whole words.

use super::data::Tokens;
use crate::buffer::aligned;

/// Addresses of tokens, in copies where they are not at whole words.
pub(super) struct Input {
    pub x: u64,
    pub scales: u64,
    _copies: [Option<Vec<u64>>; 2],
}

impl Input {
    pub fn of(x: Tokens<'_>) -> Self {
        let at = |copy: &Option<Vec<u64>>, at: u64| copy.as_ref().map_or(at, |words| words.as_ptr() as u64);
        match x {
            Tokens::Bf16(x) => {
                let copy = aligned(x);
                Self { x: at(&copy, x.as_ptr() as u64), scales: 0, _copies: [copy, None] }
            }
            Tokens::Fp8(x, scales) => {
                let bytes = whole(x, |byte| u64::from(*byte));
                let floats = whole(scales, |scale| u64::from(scale.to_bits()));
                let (x, scales) = (x.as_ptr() as u64, scales.as_ptr() as u64);
                Self { x: at(&bytes, x), scales: at(&floats, scales), _copies: [bytes, floats] }
            }
        }
    }
}

/// A copy in whole words, if `values` are not aligned to them.
fn whole<T>(values: &[T], bits: impl Fn(&T) -> u64) -> Option<Vec<u64>> {
    if (values.as_ptr() as usize).is_multiple_of(align_of::<u64>()) {
        return None;
    }
    let (count, width) = (8 / size_of::<T>(), 8 * size_of::<T>());
    let word = |some: &[T]| {
        some.iter().enumerate().fold(0, |word, (number, value)| word | bits(value) << (width * number))
    };
    Some(values.chunks(count).map(word).collect())
}
