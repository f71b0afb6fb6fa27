//! LogFMT-10, the format in which DeepEP's low-latency combine sends 128 channels: a sign and nine bits each, steps of
//! equal ratio from the group's least magnitude to its largest, and a code for zero. Pure; one source for CPU and GPU.
//!
//! The facts are of DeepEP v1.2.1: ten bits, ranges of at most 2^32, groups below one only, and rounding to the nearest
//! of the values, not of their logarithms.

use super::number::from_bf16;

/// Steps between the least magnitude and the largest: codes 1 to 511.
const STEPS: f32 = 510.0;
/// The largest code of a magnitude.
const CODE_MAX: u32 = 511;
/// A magnitude's bits of a code. The sign is above.
const SIGN_AT: u32 = 9;
/// BF16 of 1: a group that reaches it is sent as it is.
const ONE: u16 = 0x3f80;
/// What 2^32 is in a BF16's exponent: magnitudes further below the largest count as the least one.
const CLIP: u16 = 32 << 7;
/// Lifts every magnitude below 1, subnormal ones too, to where it and its reciprocal are normal.
const LIFT: f32 = 18_446_744_073_709_551_616.0;
/// Bit of a group's word: it travels as BF16.
const WHOLE: u32 = 1 << 31;

/// Least magnitude that is not zero, and largest, of what was met so far: BF16 without signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// One less than the least; a zero is above all others so.
    before: u16,
    largest: u16,
}

impl Range {
    /// Of no value, or of zeros.
    pub const NONE: Self = Self { before: u16::MAX, largest: 0 };

    /// With a value more.
    #[inline(always)]
    pub const fn with(self, bits: u16) -> Self {
        let size = bits & 0x7fff;
        let before = size.wrapping_sub(1);
        Self {
            before: if before < self.before { before } else { self.before },
            largest: if size > self.largest { size } else { self.largest },
        }
    }

    /// Whether the group travels in ten bits: all of it is below 1, so there is no infinity and all are numbers.
    #[inline(always)]
    pub const fn fits(self) -> bool {
        self.largest < ONE
    }

    /// The group's word in a message: largest (low half) and least magnitude, at most 2^32 apart.
    #[inline(always)]
    pub const fn word(self) -> u32 {
        let floor = self.largest.saturating_sub(CLIP);
        let least = self.before.wrapping_add(1);
        let least = if least > floor { least } else { floor };
        self.largest as u32 | (least as u32) << 16
    }
}

/// How the channels of a group travel, by its word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Group {
    /// In ten bits.
    Codes(Codes),
    /// As BF16, as the `n`-th group of those.
    Whole(u64),
}

impl Group {
    /// By its word.
    #[inline(always)]
    pub const fn of(word: u32) -> Self {
        if word & WHOLE != 0 { Self::Whole((word & !WHOLE) as u64) } else { Self::Codes(Codes::of(word)) }
    }

    /// The word of the `number`-th group that travels as BF16.
    #[inline(always)]
    pub const fn whole(number: u64) -> u32 {
        WHOLE | number as u32
    }
}

/// A group's scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codes {
    least: f32,
    /// What a magnitude times [`LIFT`] is multiplied by, so that the least one comes to 1.
    inverse: f32,
    /// Binary logarithm of the ratio of two codes.
    step: f32,
    /// Steps of one in that logarithm.
    per_one: f32,
    /// What is added to steps above the least, so that the whole part is the nearest code.
    round: f32,
}

impl Codes {
    /// Of a word of [`Range::word`].
    #[inline(always)]
    pub const fn of(word: u32) -> Self {
        let (least, largest) = (from_bf16((word >> 16) as u16), from_bf16(word as u16));
        if least >= largest {
            return Self { least, inverse: 0.0, step: 0.0, per_one: 0.0, round: 0.0 };
        }
        let inverse = reciprocal(least * LIFT);
        let step = log2(largest * LIFT * inverse) * (1.0 / STEPS);
        let per_one = reciprocal(step);
        // Half-way between two values is this much above the lower one's step.
        let middle = log2((1.0 + exp2(step)) * 0.5) * per_one;
        Self { least, inverse, step, per_one, round: 1.0 - middle }
    }

    /// The code of a BF16 of the group.
    #[inline(always)]
    pub const fn code(&self, bits: u16) -> u32 {
        let (size, sign) = (from_bf16(bits & 0x7fff), (bits >> 15) as u32);
        let code = if size < self.least {
            (2.0 * size >= self.least) as u32
        } else if size == 0.0 {
            0
        } else {
            let code = 1 + (log2(size * LIFT * self.inverse) * self.per_one + self.round) as u32;
            if code < CODE_MAX { code } else { CODE_MAX }
        };
        code | sign << SIGN_AT
    }

    /// What a code stands for.
    #[inline(always)]
    pub const fn value(&self, code: u32) -> f32 {
        let steps = code & CODE_MAX;
        let size = if steps == 0 { 0.0 } else { self.least * exp2((steps - 1) as f32 * self.step) };
        if code >> SIGN_AT & 1 != 0 { -size } else { size }
    }
}

/// One divided by a number from 2^-100 to 2^100, within 2^-23 of it. A GPU's division is a call, and takes registers
/// that a row's loop needs.
#[inline(always)]
const fn reciprocal(value: f32) -> f32 {
    // Within an eighth: bits of a positive float are nearly its logarithm. Each step squares the error.
    let mut guess = f32::from_bits(0x7ef3_11c7u32.wrapping_sub(value.to_bits()));
    guess *= 2.0 - value * guess;
    guess *= 2.0 - value * guess;
    guess *= 2.0 - value * guess;
    guess * (2.0 - value * guess)
}

/// Binary logarithm of a number from 1 to 2^40, within a few 2^-24 of the result's magnitude or of one.
#[inline(always)]
const fn log2(value: f32) -> f32 {
    /// Twice the binary logarithm of e.
    const TWO_LOG2_E: f32 = 2.0 * core::f32::consts::LOG2_E;
    /// Mantissa of the root of 2.
    const ROOT: u32 = 0x35_04f3;
    let bits = value.to_bits();
    let above = (bits & 0x7f_ffff > ROOT) as u32;
    let exponent = (bits >> 23) as f32 - 127.0 + above as f32;
    let fraction = f32::from_bits(bits & 0x7f_ffff | (127 - above) << 23);
    // The series of the inverse hyperbolic tangent; its argument is below 0.172.
    let s = (fraction - 1.0) * reciprocal(fraction + 1.0);
    let square = s * s;
    let series =
        1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0))));
    exponent + TWO_LOG2_E * s * series
}

/// 2 to a power from 0 to 40, within a few 2^-24 of it, and of the power's own last bit.
#[inline(always)]
const fn exp2(power: f32) -> f32 {
    let whole = (power + 0.5) as u32;
    let t = (power - whole as f32) * core::f32::consts::LN_2;
    let tail = 1.0 / 24.0 + t * (1.0 / 120.0 + t * (1.0 / 720.0 + t * (1.0 / 5040.0)));
    let series = 1.0 + t * (1.0 + t * (0.5 + t * (1.0 / 6.0 + t * tail)));
    series * f32::from_bits((127 + whole) << 23)
}

#[cfg(test)]
mod tests {
    use super::super::number::to_bf16;
    use super::*;

    fn range(group: &[u16]) -> Range {
        group.iter().fold(Range::NONE, |range, bits| range.with(*bits))
    }

    #[test]
    fn logarithms_and_powers_are_those_of_doubles() {
        for number in 0..200_000 {
            let power = number as f32 * (33.0 / 200_000.0);
            let exact = f64::from(power).exp2();
            assert!((f64::from(exp2(power)) / exact - 1.0).abs() < 5e-7, "2^{power}");
            let value = exact as f32;
            let apart = (f64::from(log2(value)) - f64::from(value).log2()).abs();
            assert!(apart < 3e-7 * f64::from(power).max(1.0), "log2 {value}: {apart:e}");
        }
        assert_eq!((log2(1.0), exp2(0.0), log2(2.0), exp2(32.0)), (0.0, 1.0, 1.0, 4_294_967_296.0));
    }

    #[test]
    fn reciprocals_are_within_two_of_the_last_bit() {
        for exponent in -99..100 {
            for part in 0..1000u32 {
                let value = (1.0 + part as f32 / 1000.0) * 2f32.powi(exponent);
                let apart = f64::from(reciprocal(value)) * f64::from(value) - 1.0;
                assert!(apart.abs() < 1.2e-7, "1 / {value:e}: {apart:e}");
            }
        }
    }

    /// A word may be anything where ranks differ in the format: what comes of it is of no use, and no panic.
    #[test]
    fn any_word_is_read() {
        for high in (0..0x8000u32).step_by(7) {
            for low in [0, 1, 0x80, 0x3f7f, 0x7f7f, 0x7f80, 0x7fff, 0x8000, 0xffff] {
                if let Group::Codes(codes) = Group::of(high << 16 | low) {
                    let values = [1, 255, 511].map(|code| codes.value(code));
                    let codes = [0, 1, 0x3f7f, 0x7fff].map(|bits| codes.code(bits));
                    assert!(
                        codes.iter().all(|code| *code <= CODE_MAX),
                        "{high:x} {low:x}: {values:?} {codes:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_code_comes_back_as_itself() {
        for (least, largest) in [(0.01f32, 0.9f32), (1e-9, 0.5), (0.25, 0.9375), (1e-38, 1e-30), (0.5, 0.501)]
        {
            let codes = Codes::of(range(&[to_bf16(least), to_bf16(largest)]).word());
            for code in 1..=511 {
                let bits = to_bf16(codes.value(code));
                // A BF16 may lie nearer to a neighbour where steps are finer than it.
                let back = codes.value(codes.code(bits));
                let gap = codes.value(code) * (exp2(codes.step) - 1.0);
                assert!(
                    (back - from_bf16(bits)).abs() <= gap * 0.5001 + back * 2e-6,
                    "{least} {largest} {code}"
                );
            }
            for bits in [to_bf16(least), to_bf16(largest)] {
                let value = from_bf16(bits);
                assert!((codes.value(codes.code(bits)) / value - 1.0).abs() < 3e-6, "{value}");
                assert_eq!(codes.value(codes.code(bits | 0x8000)), -codes.value(codes.code(bits)));
            }
        }
    }

    #[test]
    fn groups_of_one_magnitude_and_of_zeros_are_exact() {
        for value in [0.0f32, 1e-40, 0.3, 0.99] {
            let bits = to_bf16(value);
            let met = range(&[bits, bits | 0x8000, 0, 0x8000]);
            let codes = Codes::of(met.word());
            assert!(met.fits());
            assert_eq!(codes.value(codes.code(bits)), from_bf16(bits));
            assert_eq!(codes.value(codes.code(bits | 0x8000)), -from_bf16(bits));
            assert_eq!(codes.code(0), 0);
        }
    }

    #[test]
    fn what_reaches_one_or_is_no_number_travels_as_it_is() {
        for value in [1.0, -1.0, 7.0, f32::INFINITY, f32::NAN] {
            assert!(!range(&[to_bf16(0.1), to_bf16(value)]).fits(), "{value}");
        }
        assert!(range(&[to_bf16(-0.996), 1]).fits());
        assert_eq!(Group::of(Group::whole(55)), Group::Whole(55));
    }

    #[test]
    fn what_is_far_below_the_largest_counts_as_the_least_or_as_zero() {
        let least = 0.5f32 / 4_294_967_296.0;
        let codes = Codes::of(range(&[to_bf16(0.5), to_bf16(1e-20)]).word());
        assert_eq!(codes.code(to_bf16(1e-20)), 0);
        assert_eq!(codes.code(to_bf16(0.75 * least)), 1);
        assert_eq!(codes.value(1), least);
        assert_eq!(codes.code(to_bf16(0.5)), 511);
    }
}
