//! Time in nanoseconds. Pure.

use std::ops::{Add, AddAssign, Div, Mul, Shl, Sub};

/// An instant of a clock, or the time between two of them. Arithmetic saturates: what is later than any clock shows
/// never comes, and what is earlier than the start is the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// The start of the clock, or no time at all.
    pub const ZERO: Self = Self(0);
    /// Never, or for ever.
    pub const MAX: Self = Self(u64::MAX);

    /// So many nanoseconds.
    pub const fn new(ns: u64) -> Self {
        Self(ns)
    }

    /// So many microseconds.
    pub const fn micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// So many milliseconds.
    pub const fn millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// So many seconds.
    pub const fn secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// As a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Doubled so many times.
    pub const fn doubled(self, times: u32) -> Self {
        match 1u64.checked_shl(times) {
            Some(factor) => Self(self.0.saturating_mul(factor)),
            None if self.0 == 0 => self,
            None => Self::MAX,
        }
    }
}

impl From<u64> for Nanos {
    fn from(ns: u64) -> Self {
        Self(ns)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Nanos {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Nanos {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Shl<u32> for Nanos {
    type Output = Self;
    fn shl(self, times: u32) -> Self {
        self.doubled(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let (early, late) = (Nanos::new(3), Nanos::new(5));
        assert_eq!((late - early, early - late), (Nanos::new(2), Nanos::ZERO));
        assert_eq!((Nanos::MAX + late, Nanos::MAX * 2), (Nanos::MAX, Nanos::MAX));
        assert_eq!((Nanos::secs(u64::MAX), Nanos::millis(2)), (Nanos::MAX, Nanos::micros(2_000)));
    }

    #[test]
    fn doubling_grows_and_saturates() {
        let base = Nanos::new(50);
        for times in 0..58 {
            assert_eq!(base.doubled(times).get(), 50 << times, "every step doubles");
            assert_eq!(base << times, base.doubled(times));
        }
        assert_eq!((base.doubled(64), base.doubled(u32::MAX)), (Nanos::MAX, Nanos::MAX));
        assert_eq!((Nanos::ZERO.doubled(99), Nanos::MAX.doubled(2)), (Nanos::ZERO, Nanos::MAX));
    }
}
