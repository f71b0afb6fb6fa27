//! Fetch and transform on a processor: copies, and rounding of fp32 to bf16. A GPU has others.

use crate::pipeline::{Fetch, Transform};
use std::ops::Range;

/// Fetches from memory of this process.
#[derive(Debug)]
pub struct Copy<'a, F>(pub &'a F);

impl<F: Fn(u32, Range<u64>, &mut Vec<u8>) -> Result<(), String> + Sync> Fetch for Copy<'_, F> {
    fn fetch(&mut self, param: u32, bytes: Range<u64>, into: &mut Vec<u8>) -> Result<(), String> {
        (self.0)(param, bytes, into)
    }
}

/// What is done to bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Nothing: they are put side by side.
    Keep,
    /// Each fp32, little endian, becomes a bf16: the nearest, and of two that are as near the even one.
    Bf16,
}

/// The nearest bf16 of an fp32, both as bits. Not a number stays one.
pub const fn to_bf16(bits: u32) -> u16 {
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return (bits >> 16) as u16 | 0x40;
    }
    let up = 0x7fff + (bits >> 16 & 1);
    ((bits + up) >> 16) as u16
}

/// Bytes that are rounded at once.
const BLOCK: usize = 8192;

impl Rounding {
    /// Parameters may be cut at multiples of so many bytes.
    pub const fn grain(self) -> u64 {
        4
    }
}

impl Transform for Rounding {
    fn bytes(&self, fetched: u64) -> u64 {
        match self {
            Self::Keep => fetched,
            Self::Bf16 => fetched / 2,
        }
    }

    fn transform(
        &self,
        fetched: &[u8],
        put: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        match self {
            Self::Keep => put(fetched),
            Self::Bf16 => fetched.chunks(BLOCK).try_for_each(|block| {
                let words = block.as_chunks().0.iter();
                let rounded: Vec<u8> =
                    words.flat_map(|word| to_bf16(u32::from_le_bytes(*word)).to_le_bytes()).collect();
                put(&rounded)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn halves_go_to_the_even_one() {
        for (bits, rounded) in [
            (0x3f80_0000, 0x3f80),
            (0x3f80_8000, 0x3f80),
            (0x3f80_8001, 0x3f81),
            (0x3f81_8000, 0x3f82),
            (0xbf80_7fff, 0xbf80),
            (0x7f80_0000, 0x7f80),
            (0x7f7f_ffff, 0x7f80),
            (0xff80_0001, 0xffc0),
            (0xffff_ffff, 0xffff),
            (0, 0),
        ] {
            assert_eq!(to_bf16(bits), rounded, "{bits:#x}");
        }
    }

    proptest! {
        #[test]
        fn no_bf16_is_nearer(bits in any::<u32>().prop_filter("finite", |bits| f32::from_bits(*bits).is_finite())) {
            let of = |half: u16| f64::from(f32::from_bits(u32::from(half) << 16));
            let (exact, rounded) = (f64::from(f32::from_bits(bits)), to_bf16(bits));
            prop_assume!(of(rounded).is_finite());
            let far = (of(rounded) - exact).abs();
            for other in [rounded.wrapping_sub(1), rounded.wrapping_add(1)] {
                prop_assert!(!of(other).is_finite() || (of(other) - exact).abs() >= far);
            }
        }
    }
}
