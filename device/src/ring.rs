//! Ring arithmetic (pure): tickets, physical indices, and the counters of 16 and 24 bits they are seen
//! through.
//!
//! A ticket is logical and never restarts. A path's ring counts from its own zero: `physical = ticket -
//! base`, modulo 2^64, where `base` is set when a channel enters the path.

/// Bits of the counters a NIC keeps of messages and packets.
const COUNTER24: u64 = 0xff_ffff;

/// True if tickets `first .. first + count` fit a ring of `depth` whose first unfinished ticket is `done`.
#[inline(always)]
pub const fn fits(first: u64, count: u64, done: u64, depth: u64) -> bool {
    first + count <= done + depth
}

/// The same for a ring whose `done` is not after `first`: then the two lie less than 2^32 apart, since fewer callers
/// than that wait for room, and 32 bits tell. `mask` is the depth less one, `count` not 0.
#[inline(always)]
pub const fn fits_near(first: u64, count: u64, done: u64, mask: u32) -> bool {
    (first as u32).wrapping_add(count as u32 - 1).wrapping_sub(done as u32) <= mask
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

    #[test]
    fn a_full_ring_is_full() {
        assert!(fits(4, 4, 4, 4));
        assert!(!fits(5, 4, 4, 4));
        assert!(fits(0, 4, 0, 4));
    }

    #[test]
    fn near_is_told_in_32_bits() {
        for done in [0u64, 7, 0xffff_fffd, 0x1_0000_0000, (1 << 52) - 9] {
            for ahead in [0u64, 1, 3, 4, 5, 1000] {
                let first = done + ahead;
                assert_eq!(fits_near(first, 1, done, 3), fits(first, 1, done, 4), "{done} {ahead}");
            }
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
