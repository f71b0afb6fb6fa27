//! The slot of a number that grows for ever, without a division: that of 64 bits is a call on a GPU.

/// So many slots of a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// 2^64 divided by them, less than one below it.
    inverse: u64,
    count: u64,
}

impl Slots {
    /// A ring of as many.
    pub const fn of(count: u32) -> Self {
        let inverse = match u64::MAX.checked_div(count as u64) {
            Some(inverse) => inverse,
            None => 0,
        };
        Self { inverse, count: count as u64 }
    }

    #[inline(always)]
    pub(super) fn each(self, with: impl Fn(u64) -> u64) -> Self {
        Self { inverse: with(self.inverse), count: with(self.count) }
    }

    /// How many there are.
    #[inline(always)]
    pub const fn count(self) -> u64 {
        self.count
    }

    /// The slot of a number.
    #[inline(always)]
    pub const fn slot(self, number: u64) -> u64 {
        // The quotient is at most two too small: `inverse` is less than two below the true one, and what is cut off of
        // the product is less than one.
        let quotient = ((number as u128 * self.inverse as u128) >> 64) as u64;
        let rest = number.wrapping_sub(quotient.wrapping_mul(self.count));
        let rest = if rest >= self.count { rest - self.count } else { rest };
        if rest >= self.count { rest - self.count } else { rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_remainder() {
        let counts = (1..=1000).chain([4096, 65_535, 65_536, 1 << 31, u32::MAX - 1, u32::MAX]);
        for count in counts {
            let (slots, count) = (Slots::of(count), u64::from(count));
            let mut seed = count;
            for number in 0..300u64 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
                let whole = u64::MAX / count * count;
                for number in [number, seed, seed >> 20, u64::MAX - number, whole.wrapping_sub(number)] {
                    assert_eq!(slots.slot(number), number % count, "{number} of {count}");
                }
            }
        }
    }
}
