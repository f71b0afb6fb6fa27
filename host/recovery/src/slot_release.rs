//! A slot that works is to be given to another pair: the end that leads asks the other one to do without it first.
//!
//! It knows what its own direction of the channel works on, and not what the other one does. A fence under that loses
//! nothing; but a fetching atomic whose answer it cuts off is `Uncertain`, on a path that had no fault. So the other
//! end leaves by a drain, as for an operator, and fences the pair when it has left, or at once where it does not use
//! it. A direction that is bound and reaches its home by the pair keeps it, and says so: from then on both are served.

use crate::nanos::Nanos;

/// Time between two questions.
const ASK: Nanos = Nanos::millis(5);
/// Who has not left by then, or says nothing, has the slot fenced under it. A drain takes up to 20 ms where its path
/// carries nothing.
const VACATE: Nanos = Nanos::millis(50);

/// What was asked of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseRequest {
    since_ns: Nanos,
    last_ns: Nanos,
}

impl ReleaseRequest {
    /// Asks once more, or, if it was long ago, for the first time.
    pub fn again(asked: Option<Self>, now_ns: Nanos) -> Self {
        let since_ns = asked.filter(|asked| asked.is_fresh(now_ns)).map_or(now_ns, |asked| asked.since_ns);
        Self { since_ns, last_ns: now_ns }
    }

    /// True if the last question is too recent for another.
    pub fn is_recent(&self, now_ns: Nanos) -> bool {
        now_ns < self.last_ns + ASK
    }

    /// True if the other end had its time to leave.
    pub fn is_over(&self, now_ns: Nanos) -> bool {
        now_ns >= self.since_ns + VACATE
    }

    /// True while the slot is wanted: it is asked for again and again.
    pub fn is_fresh(&self, now_ns: Nanos) -> bool {
        now_ns < self.last_ns + VACATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_while_it_is_asked_for() {
        let at = Nanos::new(7);
        let first = ReleaseRequest::again(None, at);
        let second = ReleaseRequest::again(Some(first), at + ASK);
        assert_eq!(second, ReleaseRequest { since_ns: at, last_ns: at + ASK });
        let later = at + ASK + VACATE;
        assert_eq!(
            ReleaseRequest::again(Some(second), later).since_ns,
            later,
            "it was not requested meanwhile"
        );
    }

    #[test]
    fn it_asks_now_and_then_until_the_time_is_over() {
        let asked = ReleaseRequest::again(None, Nanos::ZERO);
        assert!(asked.is_recent(ASK - Nanos::new(1)) && !asked.is_recent(ASK));
        assert!(!asked.is_over(VACATE - Nanos::new(1)) && asked.is_over(VACATE));
    }
}
