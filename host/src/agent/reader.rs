//! How a ring of records is read: in order, whole records only, and past one that nobody will finish.
//!
//! The one that writes a record takes its number first and writes its sequence last. A kernel that ends, or is stopped
//! for good, in between leaves a record that is never whole; the ones behind it are to be told all the same.

/// Nobody takes this long over a record; who does is gone with its kernel.
const UNFINISHED_NS: u64 = 1_000_000_000;

/// How far records were read: in the ring of host calls and the agent, and in that of kernels with a root of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub(super) [RingCursor; 2]);

impl Cursor {
    /// From record `next` of the first ring on, and all of the other.
    pub const fn at(next: u64) -> Self {
        Self([RingCursor::at(next), RingCursor::at(0)])
    }

    /// Number of the next record of the first ring.
    pub const fn next(&self) -> u64 {
        self.0[0].next
    }
}

/// How far a ring of records was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingCursor {
    next: u64,
    /// Since when the next record has been found unfinished.
    unfinished_since_ns: Option<u64>,
}

impl RingCursor {
    /// From record `next` on.
    pub const fn at(next: u64) -> Self {
        Self { next, unfinished_since_ns: None }
    }

    /// What `record` answers for each number up to `head`, oldest first, and how many are lost: overwritten, because
    /// the ring holds `kept`, or not finished in time. One that may still be finished ends the look; the next look, at
    /// a later `now_ns`, goes on there.
    pub(super) fn read<T>(
        &mut self,
        head: u64,
        kept: u64,
        now_ns: u64,
        mut record: impl FnMut(u64) -> Option<T>,
    ) -> (Vec<T>, u64) {
        let (mut out, mut lost) = (Vec::new(), 0);
        let oldest = head.saturating_sub(kept);
        if self.next < oldest {
            lost = oldest - self.next;
            *self = Self::at(oldest);
        }
        while self.next < head {
            match record(self.next) {
                Some(record) => out.push(record),
                None => {
                    let since_ns = *self.unfinished_since_ns.get_or_insert(now_ns);
                    if now_ns.saturating_sub(since_ns) < UNFINISHED_NS {
                        break;
                    }
                    lost += 1;
                }
            }
            *self = Self::at(self.next + 1);
        }
        (out, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER_NS: u64 = UNFINISHED_NS;

    #[test]
    fn records_are_read_in_order_and_once() {
        let mut cursor = RingCursor::default();
        assert_eq!(cursor.read(3, 8, 0, Some), (vec![0, 1, 2], 0));
        assert_eq!(cursor.read(3, 8, 0, Some), (vec![], 0));
        assert_eq!(cursor.read(5, 8, 0, Some), (vec![3, 4], 0));
    }

    #[test]
    fn what_was_overwritten_is_lost() {
        let mut cursor = RingCursor::at(2);
        assert_eq!(cursor.read(20, 8, 0, Some), ((12..20).collect(), 10));
        assert_eq!(cursor.next, 20);
    }

    #[test]
    fn one_that_is_being_written_is_waited_for() {
        let mut cursor = RingCursor::default();
        let but_two = |number| (number != 2).then_some(number);
        assert_eq!(cursor.read(4, 8, 7, but_two), (vec![0, 1], 0));
        assert_eq!(cursor.read(4, 8, 7 + LATER_NS - 1, but_two), (vec![], 0));
        assert_eq!(cursor.read(4, 8, 7 + LATER_NS - 1, Some), (vec![2, 3], 0), "it is whole now");
    }

    #[test]
    fn one_that_nobody_finishes_is_passed_and_counted() {
        let mut cursor = RingCursor::default();
        let but_two = |number| (number != 2).then_some(number);
        assert_eq!(cursor.read(4, 8, 7, but_two), (vec![0, 1], 0));
        assert_eq!(cursor.read(4, 8, 7 + LATER_NS, but_two), (vec![3], 1));
        assert_eq!(cursor.read(4, 8, 7 + LATER_NS, but_two), (vec![], 0), "counted once");
    }

    #[test]
    fn each_unfinished_one_has_its_own_time() {
        let mut cursor = RingCursor::default();
        let none = |_| None::<u64>;
        assert_eq!(cursor.read(2, 8, 0, none), (vec![], 0));
        assert_eq!(cursor.read(2, 8, LATER_NS, none), (vec![], 1));
        assert_eq!(cursor.read(2, 8, 2 * LATER_NS - 1, none), (vec![], 0), "the second was first seen later");
        assert_eq!(cursor.read(2, 8, 2 * LATER_NS, none), (vec![], 1));
    }

    #[test]
    fn one_that_was_overwritten_while_it_was_waited_for_gives_its_time_to_nobody() {
        let mut cursor = RingCursor::default();
        let none = |_| None::<u64>;
        assert_eq!(cursor.read(1, 8, 0, none), (vec![], 0));
        assert_eq!(cursor.read(12, 8, LATER_NS, none), (vec![], 4), "0 to 3 are gone; 4 is new");
    }
}
