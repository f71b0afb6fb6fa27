//! BF16 and FP8 (E4M3, no infinities) as bits. One source for CPU and GPU, no rounding mode, no tables.

use crate::nvptx_math::larger_magnitudes;

/// Largest value of E4M3.
pub const FP8_MAX: f32 = 448.0;
/// A group's largest magnitude counts as this much at least, so that no scale is endless.
pub const AMAX_FLOOR: f32 = 1e-4;

/// A BF16 as it is.
#[inline(always)]
pub const fn from_bf16(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The nearest BF16, ties to even. What is no number stays none.
#[inline(always)]
pub const fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The nearest E4M3, ties to even; what is too large becomes the largest, what is no number stays none, without a sign:
/// so says a GPU's own instruction.
#[inline(always)]
pub const fn to_fp8(value: f32) -> u8 {
    /// From here on a value has a leading one: 2^-6.
    const NORMAL: u32 = 0x3c80_0000;
    /// A number whose last bit is worth 2^-9, the smallest step there is.
    const STEPS: f32 = 16384.0;
    let bits = value.to_bits();
    let (sign, size) = ((bits >> 24) as u8 & 0x80, bits & 0x7fff_ffff);
    if size > 0x7f80_0000 {
        return 0x7f;
    }
    let code = if size >= FP8_MAX.to_bits() {
        0x7e
    } else if size < NORMAL {
        // The adder rounds.
        ((f32::from_bits(size) + STEPS).to_bits() - STEPS.to_bits()) as u8
    } else {
        let rounded = size + 0x7_ffff + (size >> 20 & 1);
        ((rounded >> 20) - ((127 - 7) << 3)) as u8
    };
    sign | code
}

/// What an E4M3 stands for.
#[inline(always)]
pub const fn from_fp8(code: u8) -> f32 {
    let (exponent, fraction) = ((code >> 3 & 15) as u32, (code & 7) as u32);
    let size = if code & 0x7f == 0x7f {
        f32::NAN
    } else if exponent == 0 {
        fraction as f32 * (1.0 / 512.0)
    } else {
        f32::from_bits((exponent + 120) << 23 | fraction << 20)
    };
    if code & 0x80 != 0 { -size } else { size }
}

/// What a group of channels is multiplied with, and what brings it back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Before the conversion.
    pub by: f32,
    /// Sent along.
    pub back: f32,
}

impl Scale {
    /// For a group whose largest magnitude is `amax`. Rounded: powers of two.
    #[inline(always)]
    pub const fn of(amax: f32, rounded: bool) -> Self {
        let amax = if amax > AMAX_FLOOR { amax } else { AMAX_FLOOR };
        let back = amax * (1.0 / FP8_MAX);
        if !rounded {
            return Self { by: FP8_MAX / amax, back };
        }
        // The next power of two that is not below. It is a usual number: `amax` is not tiny, and at most the largest.
        let bits = back.to_bits();
        let exponent = (bits >> 23) + (bits & 0x7f_ffff != 0) as u32;
        Self {
            by: f32::from_bits(254u32.saturating_sub(exponent) << 23),
            back: f32::from_bits(exponent << 23),
        }
    }

    /// The exponent alone (UE8M0), of a rounded scale.
    #[inline(always)]
    pub const fn exponent(back: f32) -> u8 {
        (back.to_bits() >> 23) as u8
    }
}

/// The larger magnitude; what is no number does not count.
#[inline(always)]
pub const fn larger(amax: f32, value: f32) -> f32 {
    let size = f32::from_bits(value.to_bits() & 0x7fff_ffff);
    if size > amax { size } else { amax }
}

/// Four BF16 of a word, the lowest first.
#[inline(always)]
pub const fn four(word: u64) -> [f32; 4] {
    [
        from_bf16(word as u16),
        from_bf16((word >> 16) as u16),
        from_bf16((word >> 32) as u16),
        from_bf16((word >> 48) as u16),
    ]
}

/// A word of four BF16.
#[inline(always)]
pub const fn four_bf16(values: [f32; 4]) -> u64 {
    let [a, b, c, d] = values;
    to_bf16(a) as u64 | (to_bf16(b) as u64) << 16 | (to_bf16(c) as u64) << 32 | (to_bf16(d) as u64) << 48
}

/// Four E4M3, the lowest first.
#[inline(always)]
#[cfg(not(all(target_arch = "nvptx64", target_feature = "sm_89")))]
pub const fn four_fp8(values: [f32; 4], by: f32) -> u32 {
    let [a, b, c, d] = values;
    u32::from_le_bytes([to_fp8(a * by), to_fp8(b * by), to_fp8(c * by), to_fp8(d * by)])
}

/// The same by the GPU's instruction, where there is one.
#[inline(always)]
#[cfg(all(target_arch = "nvptx64", target_feature = "sm_89"))]
pub fn four_fp8(values: [f32; 4], by: f32) -> u32 {
    crate::nvptx_math::four_fp8(values.map(|value| value * by))
}

/// The largest magnitude of sixteen BF16, two to a word, as the bits of a float; what is no number does not count.
#[inline(always)]
pub fn largest_of_sixteen(words: &[u32; 8]) -> u32 {
    let [a, b, c, d, e, f, g, h] = *words;
    let with = larger_magnitudes;
    let pair = with(with(with(with(with(with(with(with(0, a), b), c), d), e), f), g), h) & 0x7fff_7fff;
    let (low, high) = (pair << 16, pair & 0xffff_0000);
    // No sign, and numbers both: in the order of their bits.
    if high > low { high } else { low }
}

/// Sixteen BF16, two to a word, each times `by`, as E4M3.
#[inline(always)]
pub fn sixteen_fp8(words: &[u32; 8], by: f32) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h] = *words;
    let two = |a: u32, b: u32| {
        let values = [a << 16, a & 0xffff_0000, b << 16, b & 0xffff_0000];
        four_fp8(values.map(f32::from_bits), by) as u64
    };
    [two(a, b) | two(c, d) << 32, two(e, f) | two(g, h) << 32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The meaning of each code, from the format's definition and in other words than the source's.
    fn meaning(code: u8) -> f64 {
        let (exponent, fraction) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        let size = match (code & 0x7f, exponent) {
            (0x7f, _) => return f64::NAN,
            (_, 0) => fraction / 8.0 * 2f64.powi(-6),
            _ => (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
        };
        if code >= 0x80 { -size } else { size }
    }

    #[test]
    fn all_codes_mean_what_the_format_says_and_come_back() {
        assert_eq!((meaning(0x7e), meaning(0x01)), (448.0, 2f64.powi(-9)));
        for code in 0..=255u8 {
            let value = from_fp8(code);
            if meaning(code).is_nan() {
                assert!(value.is_nan(), "{code:#x}");
                assert_eq!((to_fp8(value), to_fp8(-value)), (0x7f, 0x7f));
                continue;
            }
            assert_eq!(f64::from(value), meaning(code), "{code:#x}");
            assert_eq!(to_fp8(value), code, "{code:#x}");
        }
    }

    #[test]
    fn what_lies_between_two_codes_goes_to_the_nearer_and_ties_to_the_even_one() {
        for code in 0..0x7eu8 {
            let (low, high) = (from_fp8(code), from_fp8(code + 1));
            let middle = (low + high) / 2.0;
            let below = f32::from_bits(middle.to_bits() - 1);
            let above = f32::from_bits(middle.to_bits() + 1);
            let even = if code % 2 == 0 { code } else { code + 1 };
            for sign in [0x80, 0] {
                let signed = |value: f32| if sign == 0 { value } else { -value };
                assert_eq!(to_fp8(signed(below)), code | sign, "below the middle of {low} and {high}");
                assert_eq!(to_fp8(signed(above)), (code + 1) | sign, "above the middle of {low} and {high}");
                assert_eq!(to_fp8(signed(middle)), even | sign, "the middle of {low} and {high}");
            }
        }
    }

    #[test]
    fn what_is_too_large_becomes_the_largest() {
        for value in [448.0, 449.0, 464.0, 480.0, 1e30, f32::MAX, f32::INFINITY] {
            assert_eq!((to_fp8(value), to_fp8(-value)), (0x7e, 0xfe), "{value}");
        }
        assert_eq!(to_fp8(f32::from_bits(1)), 0);
        assert_eq!(to_fp8(-0.0), 0x80);
    }

    #[test]
    fn every_bf16_comes_back_and_what_lies_between_is_rounded_to_even() {
        for bits in 0..=u16::MAX {
            let value = from_bf16(bits);
            if value.is_nan() {
                assert!(from_bf16(to_bf16(value)).is_nan(), "{bits:#x}");
                continue;
            }
            assert_eq!(to_bf16(value), bits, "{bits:#x}");
            if !value.is_finite() {
                continue;
            }
            let middle = f32::from_bits((u32::from(bits) << 16) + 0x8000);
            assert_eq!(to_bf16(middle), bits + (bits & 1), "the middle above {value}");
            assert_eq!(to_bf16(f32::from_bits(middle.to_bits() - 1)), bits);
            assert_eq!(to_bf16(f32::from_bits(middle.to_bits() + 1)), bits + 1);
        }
        // All that is no number, and would not be by its upper half.
        assert!(from_bf16(to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
    }

    #[test]
    fn scales_bring_the_largest_to_the_largest() {
        for amax in [0.0, 1e-9, 1e-4, 0.37, 1.0, 448.0, 3.0e8, 3.0e38] {
            let plain = Scale::of(amax, false);
            let met = amax.max(AMAX_FLOOR);
            assert!((plain.by * met - FP8_MAX).abs() < 1e-3, "{amax}: {plain:?}");
            assert!((plain.by * plain.back - 1.0).abs() < 1e-6, "{amax}: {plain:?}");
            let rounded = Scale::of(amax, true);
            assert_eq!(rounded.by * rounded.back, 1.0, "{amax}: {rounded:?}");
            assert!(rounded.back >= plain.back && rounded.back < 2.0 * plain.back, "{amax}: {rounded:?}");
            let exponent = i32::from(Scale::exponent(rounded.back)) - 127;
            assert_eq!(rounded.back, 2f32.powi(exponent));
        }
        // One that is a power of two already stays.
        assert_eq!(Scale::of(448.0, true).back, 1.0);
    }

    #[test]
    fn no_number_is_no_largest() {
        assert_eq!(larger(larger(0.0, f32::NAN), -2.0), 2.0);
        assert_eq!(four(four_bf16([1.0, -2.0, 0.5, 448.0])), [1.0, -2.0, 0.5, 448.0]);
        assert_eq!(four_fp8([1.0, -2.0, 0.5, 448.0], 1.0).to_le_bytes(), [0x38, 0xc0, 0x30, 0x7e]);
    }

    #[test]
    fn sixteen_at_once_are_what_each_is_alone() {
        let mut seed = 7u64;
        for _ in 0..20_000 {
            let words: [u32; 8] = std::array::from_fn(|_| {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (seed >> 32) as u32
            });
            let values: Vec<f32> = words
                .iter()
                .flat_map(|word| [from_bf16(*word as u16), from_bf16((word >> 16) as u16)])
                .collect();
            let amax = values.iter().fold(0.0, |amax, value| larger(amax, *value));
            assert_eq!(largest_of_sixteen(&words), amax.to_bits(), "{words:x?}");
            let by = Scale::of(amax, false).by;
            let alone: Vec<u8> = values.iter().map(|value| to_fp8(value * by)).collect();
            let both = sixteen_fp8(&words, by);
            assert_eq!([both[0].to_le_bytes(), both[1].to_le_bytes()].concat(), alone, "{words:x?}");
        }
    }
}
