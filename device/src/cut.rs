//! The cut (pure): how far the receiver got, from its NIC's count or from the signal words. Rules 12 and 13.

use crate::ring::unwrap24;

/// The part of a send queue that a cut is looked for in, in blocks of 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First block without a completion; a WQE starts there.
    pub done: u64,
    /// First block never announced to the NIC.
    pub rung: u64,
    /// Messages in all blocks before `done`, counted since the queue pair was made.
    pub messages: u64,
}

/// What a WQE is to the queue and to the responder's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks it takes, at least one.
    pub blocks: u64,
    /// It is one message: WRITE, SEND, READ and atomics are, whatever their length; a NOP sends nothing.
    pub counts: bool,
}

/// The first block of the first WQE that the receiver did not execute, from its NIC's count of messages, whose low
/// 24 bits are `executed24`. `shape` tells what WQE starts at a block.
///
/// `None` if the window holds fewer messages than the count claims: then it is no truth (invariant 12).
#[inline(always)]
pub fn from_truth(window: Window, executed24: u32, shape: impl Fn(u64) -> Shape) -> Option<u64> {
    let mut left = unwrap24(window.messages, executed24) - window.messages;
    if left > window.rung.wrapping_sub(window.done) {
        return None;
    }
    let mut at = window.done;
    while at < window.rung {
        let wqe = shape(at);
        if wqe.counts {
            if left == 0 {
                return Some(at);
            }
            left -= 1;
        }
        at += if wqe.blocks == 0 { 1 } else { wqe.blocks };
    }
    if left == 0 && at == window.rung { Some(at) } else { None }
}

/// True if a kind 1 word that now reads `seen` shows that the signal which sets it to `value` was applied.
///
/// The word begins at zero, only ever grows and has one writer, so it is its own ledger. It never wraps: 2^64 signals
/// are more than a machine lives for.
#[inline(always)]
pub const fn signal_applied(seen: u64, value: u64) -> bool {
    seen >= value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where every block is a message and both count from zero, the count is the index.
    fn plain(done: u64, rung: u64, executed24: u32) -> Option<u64> {
        from_truth(Window { done, rung, messages: done }, executed24, |_| Shape { blocks: 1, counts: true })
    }

    #[test]
    fn a_count_inside_the_window_is_the_cut() {
        assert_eq!(plain(10, 20, 10), Some(10));
        assert_eq!(plain(10, 20, 20), Some(20));
        assert_eq!(plain(0xff_fff0, 0x100_0010, 5), Some(0x100_0005));
    }

    #[test]
    fn a_count_outside_the_window_is_no_truth() {
        assert_eq!(plain(10, 20, 9), None);
        assert_eq!(plain(10, 20, 21), None);
        assert_eq!(plain(10, 20, 0), None, "a cleared counter must not pass");
    }

    #[test]
    fn a_wqe_of_nothing_is_never_the_cut_and_a_long_one_is_cut_at_its_start() {
        // NOP, WRITE, a masked atomic of two blocks, NOP, WRITE.
        let shape = |at: u64| match at {
            100 | 104 => Shape { blocks: 1, counts: false },
            102 => Shape { blocks: 2, counts: true },
            _ => Shape { blocks: 1, counts: true },
        };
        let window = Window { done: 100, rung: 106, messages: 0xff_ffff };
        let cuts = [0xff_ffff, 0, 1, 2, 3].map(|count| from_truth(window, count, shape));
        assert_eq!(cuts, [Some(101), Some(102), Some(105), Some(106), None]);
    }

    #[test]
    fn a_wqe_that_reaches_beyond_the_window_is_no_truth() {
        let two = |_| Shape { blocks: 2, counts: true };
        let window = Window { done: 0, rung: 3, messages: 0 };
        assert_eq!(from_truth(window, 2, two), None);
        assert_eq!(from_truth(window, 1, two), Some(2));
    }

    #[test]
    fn any_larger_value_proves_however_far_it_jumps() {
        assert!(signal_applied(5, 5));
        assert!(signal_applied(6, 5));
        assert!(!signal_applied(4, 5));
        assert!(!signal_applied(1, u64::MAX), "a last value of all ones is not applied because a one was");
        assert!(signal_applied(u64::MAX, 1));
    }
}
