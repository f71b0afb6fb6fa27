//! A thread that sleeps while there is nothing for it, and those who wake it.
//!
//! All that both sides say lies in one word, and each side changes it by one read-modify-write. So the changes have one
//! order, and every thread sees that one:
//!
//! | who has news | who sleeps |
//! | --- | --- |
//! | 1. writes the news, wherever they belong | 1. takes the word ([`Rest::take`]), then looks at all that may be new |
//! | 2. sets "news" in the word ([`Rest::tell`]) | 2. sets "asleep" ([`Rest::lie_down`]) |
//! | 3. rings if "asleep" was set, and no other did | 3. sleeps, unless "news" was set |
//!
//! Either "news" comes first in that order: then `lie_down` sees it, and nobody sleeps. Or "asleep" does: then `tell`
//! sees it, and rings. A ring is kept until the sleeper looks, as a descriptor that is ready keeps it: it may come
//! before the sleep. Two words would need a full fence between them; one word needs none.
//!
//! | order | carries |
//! | --- | --- |
//! | release, when "news" is set | what was written before it |
//! | acquire, when the word is taken | the same, to who looks after that |
//! | acquire and release, when "asleep" is set | nothing: it only has its place in the order |

use crate::gate::Word;
use core::sync::atomic::{AtomicU32, Ordering};

/// There are news that wake.
const NEWS: u32 = 1;
/// There are news that wait for a short sleep to end.
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
    /// Of one who is awake, without news.
    pub fn new() -> Self {
        Self(W::zero())
    }

    /// There are news, which the caller has written. True if the caller must ring.
    #[must_use]
    pub fn tell(&self) -> bool {
        self.0.fetch_or(NEWS, Ordering::AcqRel) & (NEWS | ASLEEP) == ASLEEP
    }

    /// The same of news that have the time of a short sleep. True if the caller must ring, now or after as long.
    #[must_use]
    pub fn tell_later(&self) -> bool {
        let was = self.0.fetch_or(LATER, Ordering::AcqRel);
        was & (NEWS | LATER | LONG) == LONG
    }

    /// The sleeper wants to sleep, for long or not. False if there are news.
    #[must_use]
    pub fn lie_down(&self, long: bool) -> bool {
        let bits = if long { ASLEEP | LONG } else { ASLEEP };
        let awake_for = if long { NEWS | LATER } else { NEWS };
        self.0.fetch_or(bits, Ordering::AcqRel) & awake_for == 0
    }

    /// The sleeper is awake, and looks at everything after this. True if there were news.
    pub fn take(&self) -> bool {
        self.0.fetch_and(0, Ordering::AcqRel) & (NEWS | LATER) != 0
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
    fn nobody_sleeps_on_news() {
        let rest = Rest::<AtomicU32>::new();
        assert!(!rest.tell() && !rest.lie_down(false));
        assert!(rest.take() && rest.lie_down(false) && !rest.take());
        assert!(!rest.tell_later() && !rest.lie_down(true));
        assert!(rest.take() && rest.lie_down(true));
    }
}
