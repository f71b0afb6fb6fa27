//! Retry timers: one lazy heap entry a queue pair.
//!
//! A queue pair moves its deadline on every acknowledgement. Moving it is one store: the heap keeps the
//! oldest deadline it was told, and looks again when that one passes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// One queue pair's deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    /// When it expires, or [`NEVER`].
    pub(crate) at: u64,
    /// The earliest deadline the heap holds for it, or [`NEVER`].
    filed: u64,
}

impl Timer {
    pub(crate) fn new() -> Self {
        Self { at: NEVER, filed: NEVER }
    }
}

/// Deadlines of all queue pairs of a NIC.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Timers {
    /// Sets `timer` of queue pair `qpn` to `at`.
    #[inline]
    pub(crate) fn set(&mut self, timer: &mut Timer, qpn: u32, at: u64) {
        timer.at = at;
        if at < timer.filed {
            timer.filed = at;
            self.heap.push(Reverse((at, qpn)));
        }
    }

    /// The next queue pair to look at, if an entry is due at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(u64, u32)> {
        let Reverse((at, _)) = *self.heap.peek()?;
        if at > now { None } else { self.heap.pop().map(|Reverse(entry)| entry) }
    }

    /// Judges an entry popped for `filed_at`: true if the timer expired, else it is filed again if it still
    /// runs.
    pub(crate) fn expired(&mut self, timer: &mut Timer, qpn: u32, filed_at: u64, now: u64) -> bool {
        if filed_at != timer.filed {
            return false; // An older entry; the one that counts is still in the heap.
        }
        timer.filed = NEVER;
        if timer.at <= now {
            timer.at = NEVER;
            return true;
        }
        let at = timer.at;
        if at != NEVER {
            self.set(timer, qpn, at);
        }
        false
    }

    /// The earliest entry; the deadline behind it may have moved.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_deadline_expires_once_and_late() {
        let (mut timers, mut timer) = (Timers::default(), Timer::new());
        timers.set(&mut timer, 7, 100);
        timers.set(&mut timer, 7, 300);
        assert_eq!(timers.next_due(), Some(100));
        let (at, qpn) = timers.pop(100).unwrap();
        assert!(!timers.expired(&mut timer, qpn, at, 100));
        assert_eq!(timers.next_due(), Some(300));
        let (at, qpn) = timers.pop(300).unwrap();
        assert!(timers.expired(&mut timer, qpn, at, 300));
        assert_eq!(timers.next_due(), None);
    }

    #[test]
    fn an_earlier_deadline_is_seen_in_time() {
        let (mut timers, mut timer) = (Timers::default(), Timer::new());
        timers.set(&mut timer, 7, 300);
        timers.set(&mut timer, 7, 100);
        let (at, qpn) = timers.pop(100).unwrap();
        assert!(timers.expired(&mut timer, qpn, at, 100));
        let (at, qpn) = timers.pop(300).unwrap();
        assert!(!timers.expired(&mut timer, qpn, at, 300));
    }
}
