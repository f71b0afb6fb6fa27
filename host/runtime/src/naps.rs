//! How long an agent with nothing to do sleeps.

use shunt_host::clock::Crowding;
use std::time::{Duration, Instant};

/// Usually: doorbells and completions do not wait for it.
const NAP: Duration = Duration::from_micros(200);
/// Where others want its core an agent takes one part in so many of it. A step of a small job is so short that it
/// sleeps no longer for that.
const SHARE: u32 = 64;
/// Longest nap for that reason.
const LONGEST: Duration = Duration::from_millis(5);

/// Naps of one agent. Sixteen agents that are idle, each with hundreds of paths to look at, would take two cores from
/// those who have something to do.
#[derive(Default)]
pub(crate) struct Naps(Crowding);

impl Naps {
    /// How long to sleep at `now`, after a step that took so long.
    pub(crate) fn next(&self, now: Instant, step: Duration) -> Duration {
        if self.0.is_on(now) { (SHARE * step).clamp(NAP, LONGEST) } else { NAP }
    }

    /// It woke `now` from a nap that was to end at `due`.
    pub(crate) fn woke(&mut self, now: Instant, due: Instant) {
        self.0.ran_again(now, due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_step_is_followed_by_a_long_nap_where_others_want_the_core() {
        let (us, begin, mut naps) = (Duration::from_micros, Instant::now(), Naps::default());
        assert_eq!(naps.next(begin, us(40)), NAP, "no other thread is known to want it");
        naps.woke(begin + us(260), begin + us(200));
        assert_eq!(naps.next(begin + us(260), us(40)), NAP, "a timer's own slack");
        let late = begin + us(3000);
        naps.woke(late, begin + us(200));
        assert_eq!(naps.next(late, us(40)), us(2560));
        assert_eq!(naps.next(late, us(3)), NAP, "a small job gains nothing by it");
        assert_eq!(naps.next(late, us(4000)), LONGEST);
        naps.woke(late + us(2600), late + us(2560));
        assert_eq!(naps.next(late + us(2600), us(40)), us(2560), "one nap in time proves nothing");
        assert_eq!(naps.next(late + us(200_000), us(40)), NAP);
    }
}
