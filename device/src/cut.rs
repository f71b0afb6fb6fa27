//! The cut (pure): how far the receiver got, from its NIC's count or from the signal words. Rules 12 and 13.

use crate::ring::unwrap24;

/// The physical index up to which the receiver executed, from its NIC's message count.
///
/// `done` is the first physical index without a completion, `rung` the first never announced to the NIC,
/// `executed24` the count's low 24 bits. One slot is one message and both count from zero, so the count *is*
/// the index. `None` if the count lies outside `done ..= rung`: then it is no truth (invariant 12).
#[inline(always)]
pub const fn from_truth(done: u64, rung: u64, executed24: u32) -> Option<u64> {
    let executed = unwrap24(done, executed24);
    if executed <= rung { Some(executed) } else { None }
}

/// True if a kind 1 word that now reads `seen` shows that the signal which sets it to `value` was applied.
///
/// The word only ever grows and has one writer, so it is its own ledger. The difference is signed: the word
/// may wrap.
#[inline(always)]
pub const fn signal_applied(seen: u64, value: u64) -> bool {
    seen.wrapping_sub(value) as i64 >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_inside_the_window_is_the_cut() {
        assert_eq!(from_truth(10, 20, 10), Some(10));
        assert_eq!(from_truth(10, 20, 20), Some(20));
        assert_eq!(from_truth(0xff_fff0, 0x100_0010, 5), Some(0x100_0005));
    }

    #[test]
    fn a_count_outside_the_window_is_no_truth() {
        assert_eq!(from_truth(10, 20, 9), None);
        assert_eq!(from_truth(10, 20, 21), None);
        assert_eq!(from_truth(10, 20, 0), None, "a cleared counter must not pass");
    }

    #[test]
    fn a_word_that_wrapped_still_proves() {
        assert!(signal_applied(5, 5));
        assert!(signal_applied(6, 5));
        assert!(!signal_applied(4, 5));
        assert!(signal_applied(1, u64::MAX));
        assert!(!signal_applied(u64::MAX, 1));
    }
}
