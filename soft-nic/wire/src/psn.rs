//! 24-bit packet sequence numbers. They are never compared with plain `<`.

/// Bits of a PSN or an MSN.
pub const MASK: u32 = 0xff_ffff;

/// `a - b` as the signed 24-bit distance.
#[inline(always)]
pub const fn distance(a: u32, b: u32) -> i32 {
    (a.wrapping_sub(b) << 8) as i32 >> 8
}

/// `a + n`.
#[inline(always)]
pub const fn add(a: u32, n: u32) -> u32 {
    a.wrapping_add(n) & MASK
}

/// `a - n`.
#[inline(always)]
pub const fn sub(a: u32, n: u32) -> u32 {
    a.wrapping_sub(n) & MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_signed_across_the_wrap() {
        assert_eq!(distance(0, MASK), 1);
        assert_eq!(distance(MASK, 0), -1);
        assert_eq!(distance(add(0xff_fff0, 0x20), 0xff_fff0), 0x20);
        assert_eq!(sub(0, 1), MASK);
    }
}
