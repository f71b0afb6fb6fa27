//! Arithmetic: what PTX ISA says of integers, predicates and single floats. Pure.

use crate::code::{Binary, Compare, Type};

/// The low bits of a value.
pub fn low(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

/// The same as a signed number.
pub fn signed(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits;
    ((value << shift) as i64) >> shift
}

fn float(value: u64) -> f32 {
    f32::from_bits(value as u32)
}

/// Two operands, one result.
pub fn binary(operation: Binary, kind: Type, a: u64, b: u64) -> u64 {
    if kind == Type::Float {
        let (a, b) = (float(a), float(b));
        let result = match operation {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Multiply => a * b,
            Binary::Divide => a / b,
            Binary::Least => a.min(b),
            _ => a.max(b),
        };
        return u64::from(result.to_bits());
    }
    let bits = kind.bits();
    let is_signed = matches!(kind, Type::Signed(_));
    let (x, y) = (low(a, bits), low(b, bits));
    let (sx, sy) = (signed(a, bits), signed(b, bits));
    let wide = || if is_signed { (sx as i128 * sy as i128) as u128 } else { x as u128 * y as u128 };
    let result = match operation {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Multiply => wide() as u64,
        Binary::MultiplyHigh => (wide() >> bits) as u64,
        Binary::MultiplyWide => return low(wide() as u64, 2 * bits),
        // A divisor of zero: the result is not specified.
        Binary::Divide if is_signed => sx.checked_div(sy).unwrap_or(-1) as u64,
        Binary::Divide => x.checked_div(y).unwrap_or(u64::MAX),
        Binary::Remainder if is_signed => sx.checked_rem(sy).unwrap_or(sx) as u64,
        Binary::Remainder => x.checked_rem(y).unwrap_or(x),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        // Shifts take 32 bits of their count, and more than the width is the width.
        Binary::ShiftLeft => x.checked_shl(b as u32).filter(|_| (b as u32) < bits).unwrap_or(0),
        Binary::ShiftRight if is_signed => (sx >> (b as u32).min(63)) as u64,
        Binary::ShiftRight => x.checked_shr(b as u32).unwrap_or(0),
        Binary::Least if is_signed => sx.min(sy) as u64,
        Binary::Least => x.min(y),
        Binary::Most if is_signed => sx.max(sy) as u64,
        Binary::Most => x.max(y),
    };
    low(result, bits)
}

/// Two pairs of BF16, the larger magnitude of each with the product of both signs (`max.xorsign.abs.bf16x2`): of one
/// that is no number and one that is, the number's magnitude.
pub fn larger_magnitudes(a: u32, b: u32) -> u32 {
    let larger = |a: u32, b: u32| {
        let (x, y) = (a & 0x7fff, b & 0x7fff);
        let magnitude = |bits: u32| f32::from_bits(bits << 16);
        let size = match (magnitude(x), magnitude(y)) {
            (one, other) if one.is_nan() && other.is_nan() => return 0x7fff,
            (one, other) if other.is_nan() || one >= other => x,
            _ => y,
        };
        (a ^ b) & 0x8000 | size
    };
    larger(a >> 16, b >> 16) << 16 | larger(a & 0xffff, b & 0xffff)
}

/// A comparison.
pub fn compare(compare: Compare, kind: Type, a: u64, b: u64) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let bits = kind.bits();
    let order = match kind {
        Type::Float => float(a).partial_cmp(&float(b)),
        Type::Signed(_) => Some(signed(a, bits).cmp(&signed(b, bits))),
        Type::Unsigned(_) => Some(low(a, bits).cmp(&low(b, bits))),
    };
    match compare {
        Compare::Equal => order == Some(Equal),
        Compare::NotEqual => order.is_some_and(|order| order != Equal),
        Compare::Less => order == Some(Less),
        Compare::LessOrEqual => matches!(order, Some(Less | Equal)),
        Compare::Greater => order == Some(Greater),
        Compare::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
        Compare::LessOrUnordered => !matches!(order, Some(Greater | Equal)),
    }
}

/// `cvt`: between whole numbers, to the nearest float, or to a whole number towards zero.
pub fn convert(value: u64, into: Type, out_of: Type) -> u64 {
    match (into, out_of) {
        (Type::Float, Type::Signed(bits)) => (signed(value, bits) as f32).to_bits().into(),
        (Type::Float, other) => (low(value, other.bits()) as f32).to_bits().into(),
        (into, Type::Float) => low((f32::from_bits(value as u32) as u32).into(), into.bits()),
        (into, Type::Signed(bits)) => low(signed(value, bits) as u64, into.bits()),
        (into, other) => low(low(value, other.bits()), into.bits()),
    }
}

/// `neg`.
pub fn negated(value: u64, kind: Type) -> u64 {
    match kind {
        Type::Float => low(value, 32) ^ 1 << 31,
        kind => low(value.wrapping_neg(), kind.bits()),
    }
}

/// The upper word of a pair shifted to the left by less than 32, or the lower one of it shifted to the right.
pub fn funnel(low: u32, high: u32, by: u32, left: bool) -> u64 {
    let (pair, by) = (u64::from(high) << 32 | u64::from(low), by % 32);
    if left { pair << by >> 32 } else { pair >> by & 0xffff_ffff }
}

/// `prmt.b32`: four bytes picked out of eight.
pub fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = low(a, 32) | low(b, 32) << 32;
    (0..4).fold(0, |out, at| {
        let pick = selector >> (4 * at) & 0xf;
        let byte = bytes >> (8 * (pick & 7)) & 0xff;
        // The top bit of a pick asks for the sign alone.
        let byte = if pick & 8 == 0 {
            byte
        } else if byte & 0x80 != 0 {
            0xff
        } else {
            0
        };
        out | byte << (8 * at)
    })
}

/// `cvt.rn.satfinite.e4m3x2.f32` of one number: one sign, four bits of exponent (bias 7), three of mantissa.
pub fn to_fp8(value: u64) -> u64 {
    const LARGEST: f32 = 448.0;
    let number = float(value);
    let sign = u64::from(number.is_sign_negative()) << 7;
    if number.is_nan() {
        return 0x7f;
    }
    let size = number.abs();
    if size >= LARGEST {
        return sign | 0x7e;
    }
    // The distance of two neighbours: below 2^-6 that of the smallest, 2^-9.
    let exponent = ((size.to_bits() >> 23) as i32 - 127).max(-6);
    let step = f64::from(exponent - 3).exp2();
    let steps = (f64::from(size) / step).round_ties_even() as u64;
    // Of a normal number the first of sixteen steps is its exponent's; a carry moves on to the next exponent.
    let code = if steps < 8 { steps } else { ((exponent + 7) as u64) << 3 };
    let code = code + steps.saturating_sub(8);
    sign | code.min(0x7e)
}
