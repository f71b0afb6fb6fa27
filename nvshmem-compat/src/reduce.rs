//! What reductions do to elements: bytes in, bytes out. Pure.
//!
//! Sums and products of whole numbers wrap, as C's unsigned ones do. Numbers of 16 bits are added as `float` and
//! rounded at each step. The order of the operands is given by the caller, so that all PEs come to the same bits.

/// What is done to two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Bits in both.
    And,
    /// Bits in either.
    Or,
    /// Bits in one alone.
    Xor,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// The sum.
    Sum,
    /// The product.
    Prod,
}

/// What an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names say it
pub enum Number {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Number {
    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

macro_rules! whole {
    ($type:ty, $op:expr, $into:expr, $from:expr) => {
        each::<{ size_of::<$type>() }>($into, $from, |a, b| {
            let (a, b) = (<$type>::from_ne_bytes(a), <$type>::from_ne_bytes(b));
            let answer = match $op {
                Op::And => a & b,
                Op::Or => a | b,
                Op::Xor => a ^ b,
                Op::Min => a.min(b),
                Op::Max => a.max(b),
                Op::Sum => a.wrapping_add(b),
                Op::Prod => a.wrapping_mul(b),
            };
            answer.to_ne_bytes()
        })
    };
}

macro_rules! real {
    ($bits:ty, $float:ty, $read:expr, $write:expr, $op:expr, $into:expr, $from:expr) => {
        each::<{ size_of::<$bits>() }>($into, $from, |a, b| {
            let (a, b) = (<$bits>::from_ne_bytes(a), <$bits>::from_ne_bytes(b));
            let (x, y): ($float, $float) = ($read(a), $read(b));
            let answer: $bits = match $op {
                Op::And => a & b,
                Op::Or => a | b,
                Op::Xor => a ^ b,
                Op::Min => {
                    if y < x {
                        b
                    } else {
                        a
                    }
                }
                Op::Max => {
                    if y > x {
                        b
                    } else {
                        a
                    }
                }
                Op::Sum => $write(x + y),
                Op::Prod => $write(x * y),
            };
            answer.to_ne_bytes()
        })
    };
}

/// `into = into op from`, element by element; what is no whole element at the end stays.
pub fn reduce(number: Number, op: Op, into: &mut [u8], from: &[u8]) {
    match number {
        Number::I8 => whole!(i8, op, into, from),
        Number::I16 => whole!(i16, op, into, from),
        Number::I32 => whole!(i32, op, into, from),
        Number::I64 => whole!(i64, op, into, from),
        Number::U8 => whole!(u8, op, into, from),
        Number::U16 => whole!(u16, op, into, from),
        Number::U32 => whole!(u32, op, into, from),
        Number::U64 => whole!(u64, op, into, from),
        Number::F16 => real!(u16, f32, from_half, to_half, op, into, from),
        Number::Bf16 => real!(u16, f32, from_bfloat, to_bfloat, op, into, from),
        Number::F32 => real!(u32, f32, f32::from_bits, f32::to_bits, op, into, from),
        Number::F64 => real!(u64, f64, f64::from_bits, f64::to_bits, op, into, from),
    }
}

fn each<const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let (into, _) = into.as_chunks_mut::<N>();
    let (from, _) = from.as_chunks::<N>();
    for (into, from) in into.iter_mut().zip(from) {
        *into = f(*into, *from);
    }
}

/// The value of a bfloat16.
pub fn from_bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16; of two, the even one.
pub fn to_bfloat(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The value of an IEEE half.
pub fn from_half(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    match exponent {
        0 => {
            let value = fraction as f32 / (1 << 24) as f32;
            f32::from_bits(value.to_bits() | sign)
        }
        0x1f => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// The nearest IEEE half; of two, the even one.
pub fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, rest) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    if rest > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if rest >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if rest < 0x3880_0000 {
        // Below the smallest normal half: a multiple of 2^-24. The sum rounds as the processor does, to even.
        let sum = f32::from_bits(rest) + 0.5;
        return sign | (sum.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let rounded = rest + 0xfff + (rest >> 13 & 1);
    sign | ((rounded - 0x3800_0000) >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of<const N: usize>(number: Number, op: Op, a: [u8; N], b: [u8; N]) -> [u8; N] {
        let mut into = a;
        reduce(number, op, &mut into, &b);
        into
    }

    #[test]
    fn whole_numbers() {
        let i32s =
            |op, a: i32, b: i32| i32::from_ne_bytes(of(Number::I32, op, a.to_ne_bytes(), b.to_ne_bytes()));
        assert_eq!((i32s(Op::Sum, i32::MAX, 1), i32s(Op::Prod, -3, 5)), (i32::MIN, -15));
        assert_eq!((i32s(Op::Min, -1, 1), i32s(Op::Max, -1, 1)), (-1, 1));
        assert_eq!((i32s(Op::And, 6, 3), i32s(Op::Or, 6, 3), i32s(Op::Xor, 6, 3)), (2, 7, 5));
        assert_eq!(of(Number::U8, Op::Max, [200], [100]), [200]);
        assert_eq!(of(Number::I8, Op::Max, [200], [100]), [100]);
    }

    #[test]
    fn halves_and_bfloats() {
        for (bits, value) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 5.960_464_5e-8), (0x7bff, 65504.0), (0x8000, -0.0)]
        {
            assert_eq!((from_half(bits), to_half(value)), (value, bits));
        }
        assert_eq!((to_half(65520.0), to_half(65519.0), to_half(1e-9)), (0x7c00, 0x7bff, 0));
        assert_eq!((to_half(1.0 + 1.0 / 2048.0), to_half(1.0 + 3.0 / 2048.0)), (0x3c00, 0x3c02));
        assert!(from_half(to_half(f32::NAN)).is_nan() && from_bfloat(to_bfloat(f32::NAN)).is_nan());
        assert_eq!((to_bfloat(1.0), from_bfloat(0x4049), to_bfloat(3.1414)), (0x3f80, 3.140625, 0x4049));
        let sum = of(Number::F16, Op::Sum, to_half(1.5).to_ne_bytes(), to_half(2.25).to_ne_bytes());
        assert_eq!(from_half(u16::from_ne_bytes(sum)), 3.75);
    }

    #[test]
    fn every_half_comes_back() {
        for bits in 0..=u16::MAX {
            let value = from_half(bits);
            if !value.is_nan() {
                assert_eq!(to_half(value), bits, "{bits:#x}");
            }
            let value = from_bfloat(bits);
            if !value.is_nan() {
                assert_eq!(to_bfloat(value), bits, "{bits:#x}");
            }
        }
    }

    proptest! {
        #[test]
        fn halves_are_the_nearest(value in -70000.0f32..70000.0) {
            let bits = to_half(value);
            let error = (from_half(bits) - value).abs();
            for other in [bits.wrapping_sub(1), bits.wrapping_add(1)] {
                let there = from_half(other);
                if there.is_finite() && from_half(bits).is_finite() {
                    prop_assert!(error <= (there - value).abs());
                }
            }
        }

        #[test]
        fn doubles_are_the_processors(a: f64, b: f64) {
            let sum = f64::from_ne_bytes(of(Number::F64, Op::Sum, a.to_ne_bytes(), b.to_ne_bytes()));
            prop_assert_eq!(sum.to_bits(), (a + b).to_bits());
        }
    }
}
