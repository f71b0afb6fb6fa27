//! How long the agent waits until it looks again. Pure.

use shunt_recovery::nanos::Nanos;

/// Time between two looks while something is on its way that nobody tells of: a job of a NIC, a path that is made.
pub(super) const LOOK: Nanos = Nanos::millis(1);
/// After something was done the agent looks so often for this long.
const CALM: Nanos = Nanos::millis(10);
/// The longest wait: what nobody tells of, and harms nobody, is seen by then.
pub(super) const REST: Nanos = Nanos::millis(100);
/// A wait that is longer is broken for whatever it is. See `shunt_verbs_near::rest`.
pub(super) const SHORT: Nanos = Nanos::millis(3);

/// When something was done last.
#[derive(Default)]
pub(super) struct Pace {
    done: Nanos,
}

impl Pace {
    /// Something was done.
    pub const fn stir(&mut self, now: Nanos) {
        self.done = now;
    }

    /// How long to wait. `due`: when the next timer ends; none if not all is at rest.
    pub fn wait(&self, now: Nanos, due: Option<Nanos>) -> Nanos {
        let due = due.filter(|_| now >= self.done + CALM);
        due.map_or(LOOK, |due| (due - now).clamp(LOOK, REST))
    }
}

/// Milliseconds of a wait, not less than it is.
pub(super) fn milliseconds(wait: Nanos) -> i32 {
    i32::try_from(wait.get().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_until_the_next_timer_once_nothing_was_done_for_a_while() {
        let mut pace = Pace::default();
        let at = |ms| Nanos::secs(5) + Nanos::millis(ms);
        assert_eq!(pace.wait(at(0), Some(Nanos::MAX)), REST);
        assert_eq!(pace.wait(at(0), Some(at(7))), Nanos::millis(7));
        assert_eq!(pace.wait(at(8), Some(at(7))), LOOK, "it is over");
        assert_eq!(pace.wait(at(0), None), LOOK, "something is on its way");
        pace.stir(at(0));
        assert_eq!(pace.wait(at(9), Some(Nanos::MAX)), LOOK);
        assert_eq!(pace.wait(at(10), Some(Nanos::MAX)), REST);
    }

    #[test]
    fn a_wait_is_told_in_whole_milliseconds() {
        assert_eq!((milliseconds(LOOK), milliseconds(LOOK + Nanos::new(1))), (1, 2));
        assert_eq!(milliseconds(Nanos::MAX), i32::MAX);
        assert!(LOOK < SHORT && SHORT < REST);
    }
}
