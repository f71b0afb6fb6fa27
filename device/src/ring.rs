//! Ring arithmetic (pure): tickets, physical indices, and the counters of 16 and 24 bits they are seen
//! through.
//!
//! A ticket is logical and never restarts. A path's ring counts from its own zero: `physical = ticket -
//! base`, modulo 2^64, where `base` is set when a channel enters the path.

use shunt_layout::state::Word;

/// Bits of the counters a NIC keeps of messages and packets.
const COUNTER24: u64 = 0xff_ffff;

/// True if tickets `first .. first + count` fit a ring of `depth` whose first unfinished ticket is `done`.
#[inline(always)]
pub const fn fits(first: u64, count: u64, done: u64, depth: u64) -> bool {
    first + count <= done + depth
}

/// True if tickets from that of `first` on fit the ring of their own generation, of which `done` is the first
/// unfinished ticket: words that differ by so little have one slot, one generation and one flag. `mask` is the depth
/// less one, `count` not 0.
#[inline(always)]
pub const fn fits_as_words(first: Word, count: u64, done: Word, mask: u32) -> bool {
    first.0.wrapping_sub(done.0).wrapping_add(count - 1) <= mask as u64
}

/// The ring position of a physical index.
#[inline(always)]
pub const fn position(physical: u64, log_depth: u32) -> u64 {
    physical & ((1 << log_depth) - 1)
}

/// The smallest number not below `floor` whose low 24 bits are `seen`.
///
/// Right as long as the true number lies less than 2^24 above `floor`; windows are at most 2^15.
#[inline(always)]
pub const fn unwrap24(floor: u64, seen: u32) -> u64 {
    floor + ((seen as u64).wrapping_sub(floor) & COUNTER24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_layout::state::CLOSED;

    #[test]
    fn a_full_ring_is_full() {
        assert!(fits(4, 4, 4, 4));
        assert!(!fits(5, 4, 4, 4));
        assert!(fits(0, 4, 0, 4));
    }

    #[test]
    fn words_of_one_generation_tell_the_room_there_is() {
        for done in [0u64, 7, 0xffff_fffd, 0x1_0000_0000, (1 << 52) - 1009] {
            for (ahead, count) in [(0u64, 1u64), (0, 4), (1, 3), (1, 4), (3, 1), (4, 1), (1000, 1)] {
                let word = |index| Word::new(2, 7, index);
                let told = fits_as_words(word(done + ahead), count, word(done), 3);
                assert_eq!(told, fits(done + ahead, count, done, 4), "{done} {ahead} {count}");
            }
        }
    }

    #[test]
    fn words_of_two_generations_never_fit() {
        let done = Word::new(2, 7, 40);
        let closed = Word(done.0 | CLOSED);
        for other in
            [Word::new(1, 7, 40), Word::new(2, 8, 40), Word::new(2, 6, 40), Word::new(3, 0, 0), closed]
        {
            assert!(!fits_as_words(other, 1, done, 1023), "{other:?}");
            assert!(!fits_as_words(done, 1, other, 1023), "{other:?}");
        }
    }

    #[test]
    fn positions_wrap_where_the_ring_does() {
        for (physical, log_depth, position_expected) in
            [(0, 2, 0), (3, 2, 3), (4, 2, 0), (0xffff, 10, 1023), (0x1_0000, 10, 0)]
        {
            assert_eq!(position(physical, log_depth), position_expected);
        }
    }

    #[test]
    fn unwrap24_crosses_the_wrap() {
        assert_eq!(unwrap24(0xff_fffe, 1), 0x100_0001);
        assert_eq!(unwrap24(0xff_fffe, 0xff_fffe), 0xff_fffe);
        assert_eq!(unwrap24(0x5_0000_0000, 7), 0x5_0000_0007);
        assert_eq!(unwrap24(1 << 32, 0xff_ffff), (1 << 32) + 0xff_ffff);
    }

    #[test]
    fn unwrap24_agrees_with_counting() {
        for floor in [0u64, 5, 0xff_ff00, 0x1_0000_0000 - 3] {
            for ahead in [0u64, 1, 77, 0x7fff, 0x8000] {
                let truth = floor + ahead;
                assert_eq!(unwrap24(floor, (truth & COUNTER24) as u32), truth);
            }
        }
    }
}
