//! A thread that sleeps while there is nothing for it, and those who wake it.
//!
//! All that both sides say lies in one word, and each side changes it by one read-modify-write. So the changes have one
//! order, and every thread sees that one:
//!
//! | who tells | who sleeps |
//! | --- | --- |
//! | 1. writes what it tells of | 1. takes the word ([`Rest::take`]), then looks at all that may be new |
//! | 2. sets "told" in the word ([`Rest::tell`]) | 2. sets "asleep" ([`Rest::lie_down`]) |
//! | 3. rings if "asleep" was set, and no other did | 3. sleeps, unless "told" was set |
//!
//! Either "told" comes first in that order: then `lie_down` sees it, and nobody sleeps. Or "asleep" does: then `tell`
//! sees it, and rings. A ring is kept until the sleeper looks, as a descriptor that is ready keeps it: it may come
//! before the sleep. Two words would need a full fence between them; one word needs none.
//!
//! | order | carries |
//! | --- | --- |
//! | release, when "told" is set | what was written before it |
//! | acquire, when the word is taken | the same, to who looks after that |
//! | acquire and release, when "asleep" is set | nothing: it only has its place in the order |

use crate::gate::Word;
use core::sync::atomic::{AtomicU32, Ordering};

/// There is something that wakes.
const TOLD: u32 = 1;
/// There is something that waits for a short sleep to end.
const LATER: u32 = 1 << 1;
/// The sleeper sleeps.
const ASLEEP: u32 = 1 << 2;
/// And for long.
const LONG: u32 = 1 << 3;

/// The word.
#[derive(Debug)]
pub struct Rest<W = AtomicU32>(W);

impl Default for Rest {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Word> Rest<W> {
    /// Of one who is awake, and was told of nothing.
    pub fn new() -> Self {
        Self(W::zero())
    }

    /// There is something, which the caller has written. True if the caller must ring.
    #[must_use]
    pub fn tell(&self) -> bool {
        self.0.fetch_or(TOLD, Ordering::AcqRel) & (TOLD | ASLEEP) == ASLEEP
    }

    /// The same of what has the time of a short sleep. True if the caller must ring, now or after as long.
    #[must_use]
    pub fn tell_later(&self) -> bool {
        let was = self.0.fetch_or(LATER, Ordering::AcqRel);
        was & (TOLD | LATER | LONG) == LONG
    }

    /// The sleeper wants to sleep, for long or not. False if it was told of something.
    #[must_use]
    pub fn lie_down(&self, long: bool) -> bool {
        let bits = if long { ASLEEP | LONG } else { ASLEEP };
        let awake_for = if long { TOLD | LATER } else { TOLD };
        self.0.fetch_or(bits, Ordering::AcqRel) & awake_for == 0
    }

    /// The sleeper is awake, and looks at everything after this. True if it was told of something.
    pub fn take(&self) -> bool {
        self.0.fetch_and(0, Ordering::AcqRel) & (TOLD | LATER) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_is_rung_once_and_who_is_awake_is_not() {
        let rest = Rest::<AtomicU32>::new();
        assert!(!rest.tell() && rest.take() && !rest.take());
        assert!(rest.lie_down(false));
        assert!(rest.tell() && !rest.tell() && !rest.tell_later());
        assert!(rest.take());
        assert!(rest.lie_down(true));
        assert!(rest.tell_later() && !rest.tell_later());
        assert!(rest.tell() && !rest.tell(), "the ring before may be one that comes later");
        assert!(rest.take());
    }

    #[test]
    fn a_short_sleep_is_not_broken_for_what_has_time() {
        let rest = Rest::<AtomicU32>::new();
        assert!(rest.lie_down(false));
        assert!(!rest.tell_later());
        assert!(rest.tell(), "what came before has not rung");
        assert!(rest.take());
        assert!(!rest.tell_later());
        assert!(rest.lie_down(false), "it has time");
        assert!(rest.take() && rest.lie_down(true));
    }

    #[test]
    fn one_who_was_told_does_not_sleep() {
        let rest = Rest::<AtomicU32>::new();
        assert!(!rest.tell() && !rest.lie_down(false));
        assert!(rest.take() && rest.lie_down(false) && !rest.take());
        assert!(!rest.tell_later() && !rest.lie_down(true));
        assert!(rest.take() && rest.lie_down(true));
    }
}
