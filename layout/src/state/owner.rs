//! The owner word of a switch: who switches, and for how long nobody else may.
//!
//! A lease is several parts. A caller that finds a part over begins the next one in the owner's name, and only the last
//! one may be followed by another owner: a lease ends when others saw it pass, and a clock that jumps ends one part of
//! it.

/// log2 of the nanoseconds of a tick, in which the word counts.
const TICK: u32 = 27;
/// Ticks of a part of a lease: a bit more than a second.
const PART_TICKS: u64 = 9;
/// Parts that follow the first one.
const MORE_PARTS: u64 = 7;
/// The longest that a lease lasts for somebody who watches it: a bit less than ten seconds.
pub const LEASE_NS: u64 = ((MORE_PARTS + 1) * PART_TICKS) << TICK;

/// Bits 27 and up: the tick at which the present part is over. Bits 24 to 26: parts to come. Bits 0 to 23: the owner.
/// Zero: nobody switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerWord(pub u64);

impl OwnerWord {
    /// Nobody switches.
    pub const FREE: OwnerWord = OwnerWord(0);

    /// The word of somebody who takes a switch at `now_ns`. Two that take it one after the other have different names,
    /// but for one chance in eight million.
    #[inline(always)]
    pub const fn new(now_ns: u64) -> Self {
        let name = (now_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) | 1;
        Self::part(now_ns, MORE_PARTS, name)
    }

    #[inline(always)]
    const fn part(now_ns: u64, more: u64, name: u64) -> Self {
        Self((((now_ns >> TICK) + PART_TICKS) << TICK) | (more << 24) | name)
    }

    /// True if nobody switches.
    #[inline(always)]
    pub const fn is_free(self) -> bool {
        self.0 == 0
    }

    /// True if both name one owner.
    #[inline(always)]
    pub const fn same_owner(self, other: Self) -> bool {
        (self.0 ^ other.0) & 0xff_ffff == 0
    }

    /// True once the present part is over.
    #[inline(always)]
    pub const fn part_is_over(self, now_ns: u64) -> bool {
        now_ns >> TICK >= self.0 >> TICK
    }

    /// The next part of the same lease; nothing behind the last one.
    #[inline(always)]
    pub const fn next_part(self, now_ns: u64) -> Option<Self> {
        match (self.0 >> 24) & MORE_PARTS {
            0 => None,
            more => Some(Self::part(now_ns, more - 1, self.0 & 0xff_ffff)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a lease taken at `now_ns` is over for somebody who looks every `look_ns`.
    fn ends(mut now_ns: u64, look_ns: u64) -> u64 {
        let mut word = OwnerWord::new(now_ns);
        loop {
            now_ns += look_ns;
            if word.part_is_over(now_ns) {
                let Some(next) = word.next_part(now_ns) else { return now_ns };
                assert!(next.same_owner(word) && next != word);
                word = next;
            }
        }
    }

    #[test]
    fn a_lease_is_as_long_as_it_says_for_who_watches_it() {
        for began in [0, 1, 999_999_937, 1 << 40, (1 << 62) + 12345] {
            let took = ends(began, 1_000_000) - began;
            assert!((LEASE_NS * 7 / 8..=LEASE_NS + 8_000_000).contains(&took), "{took} from {began}");
        }
    }

    #[test]
    fn a_jump_of_the_clock_ends_a_part() {
        let word = OwnerWord::new(5_000);
        let late = 3_600_000_000_000;
        assert!(!word.part_is_over(1_000_000_000) && word.part_is_over(late));
        let next = word.next_part(late).expect("seven more");
        assert!(!next.part_is_over(late + 1_000_000_000));
    }

    #[test]
    fn owners_that_follow_each_other_have_different_names() {
        let words: Vec<OwnerWord> = (0..10_000).map(|n| OwnerWord::new(7_000_000_000 + n * 1_000)).collect();
        assert!(words.windows(2).all(|pair| !pair[0].same_owner(pair[1])));
        assert!(words.iter().all(|word| !word.is_free() && !word.same_owner(OwnerWord::FREE)));
    }
}
