//! Words of this PE that others write, and what is waited for. Pure but for the loads.

use super::access::Access;
use crate::failure::Failure;
use std::sync::atomic::{Ordering, fence};

/// How a word is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names say it
pub enum Compare {
    Equal,
    NotEqual,
    Greater,
    LessOrEqual,
    Less,
    GreaterOrEqual,
}

impl Compare {
    /// By NVSHMEM's number.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn from_raw(raw: i32) -> Result<Self, Failure> {
        const ALL: [Compare; 6] = [
            Compare::Equal,
            Compare::NotEqual,
            Compare::Greater,
            Compare::LessOrEqual,
            Compare::Less,
            Compare::GreaterOrEqual,
        ];
        let known = usize::try_from(raw).ok().and_then(|raw| ALL.get(raw)).copied();
        known.ok_or(Failure::Argument {
            what: "comparison",
            met: raw.into(),
            want: "NVSHMEM_CMP_EQ to NVSHMEM_CMP_GE",
        })
    }

    fn holds<T: PartialOrd>(self, met: T, value: T) -> bool {
        match self {
            Self::Equal => met == value,
            Self::NotEqual => met != value,
            Self::Greater => met > value,
            Self::LessOrEqual => met <= value,
            Self::Less => met < value,
            Self::GreaterOrEqual => met >= value,
        }
    }
}

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width {
    /// Bytes: 2, 4 or 8.
    pub bytes: u64,
    /// Whether the highest bit is a sign.
    pub signed: bool,
}

impl Width {
    /// Whether a word that is `met` holds; both are given by their low bytes.
    pub fn holds(self, compare: Compare, met: u64, value: u64) -> bool {
        let up = 64 - 8 * self.bytes;
        let (met, value) = (met << up, value << up);
        if self.signed { compare.holds(met as i64, value as i64) } else { compare.holds(met, value) }
    }
}

/// Words that are watched.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    /// The first.
    pub at: u64,
    /// What they are.
    pub width: Width,
    /// How they are compared.
    pub compare: Compare,
    /// With what: one value, or one for each.
    pub values: &'a [u64],
    /// How many.
    pub count: u64,
    /// Which are left out, where one is not 0.
    pub left_out: Option<&'a [i32]>,
}

impl Watch<'_> {
    fn counts(&self, number: u64) -> bool {
        self.left_out.is_none_or(|out| out.get(number as usize).is_none_or(|out| *out == 0))
    }

    /// Numbers of the words that count.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.count).filter(|number| self.counts(*number))
    }

    /// Whether a word holds now.
    fn met(&self, access: &dyn Access, number: u64) -> Result<bool, Failure> {
        // SAFETY: the program vouches for its words, which others reach by NICs or atomically.
        let met = unsafe { access.load(self.at + number * self.width.bytes, self.width.bytes) }?;
        let value = self.values.get(number as usize).or(self.values.first()).copied().unwrap_or(0);
        Ok(self.width.holds(self.compare, met, value))
    }

    /// Numbers of the words that hold now. What was written before them is visible.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn held(&self, access: &dyn Access) -> Result<Vec<u64>, Failure> {
        let mut held = Vec::new();
        for number in self.numbers() {
            if self.met(access, number)? {
                held.push(number);
            }
        }
        fence(Ordering::SeqCst);
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::ByPointer;
    use super::*;

    const INT: Width = Width { bytes: 4, signed: true };

    #[test]
    fn comparisons_know_signs_and_widths() {
        let minus = -1i32 as u32 as u64;
        assert!(
            INT.holds(Compare::Less, minus, 0)
                && !Width { signed: false, ..INT }.holds(Compare::Less, minus, 0)
        );
        assert!(Width { bytes: 2, signed: true }.holds(Compare::Greater, 1, 0xffff));
        for (raw, yes) in [(0, false), (1, true), (2, true), (3, false), (4, false), (5, true)] {
            assert_eq!(INT.holds(Compare::from_raw(raw).unwrap(), 7, 3), yes, "{raw}");
        }
        assert!(Compare::from_raw(6).is_err() && Compare::from_raw(-1).is_err());
    }

    #[test]
    fn words_that_hold_are_found() {
        let words = [1i32, 5, 5, 9];
        let (at, left_out) = (words.as_ptr() as u64, [0, 1, 0, 0]);
        let watch = Watch {
            at,
            width: INT,
            compare: Compare::GreaterOrEqual,
            values: &[5],
            count: 4,
            left_out: None,
        };
        let held = |watch: Watch<'_>| watch.held(&ByPointer).unwrap();
        assert_eq!(held(watch), [1, 2, 3]);
        assert_eq!(held(Watch { left_out: Some(&left_out), ..watch }), [2, 3]);
        assert_eq!(held(Watch { values: &[1, 6, 5, 10], ..watch }), [0, 2]);
        assert_eq!(held(Watch { count: 0, ..watch }), [] as [u64; 0]);
    }
}
