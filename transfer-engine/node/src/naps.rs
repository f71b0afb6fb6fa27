//! How long an engine's thread with nothing to do sleeps.

use shunt::host::clock::Crowding;
use std::time::{Duration, Instant};

/// The shortest and the longest sleep.
const NAP: Duration = Duration::from_micros(20);
const REST: Duration = Duration::from_micros(500);
/// The shortest where others want its core.
const CROWDED: Duration = Duration::from_micros(200);
/// A sleep is this part of the time since there was something to do: what a thread waits for comes late by as much.
const PART: u32 = 8;

/// Naps of one thread. Sixteen of them that looked every 20 us would take two cores from those that have work.
pub(crate) struct Naps {
    busy: Instant,
    crowding: Crowding,
}

impl Naps {
    /// Of a thread that begins now.
    pub(crate) fn new(now: Instant) -> Self {
        Self { busy: now, crowding: Crowding::default() }
    }

    /// There was something to do.
    pub(crate) const fn worked(&mut self, now: Instant) {
        self.busy = now;
    }

    /// How long to sleep now that there is nothing.
    pub(crate) fn next(&self, now: Instant) -> Duration {
        let least = if self.crowding.is_on(now) { CROWDED } else { NAP };
        (now.saturating_duration_since(self.busy) / PART).clamp(least, REST)
    }

    /// It woke `now` from a nap that was to end at `due`.
    pub(crate) fn woke(&mut self, now: Instant, due: Instant) {
        self.crowding.ran_again(now, due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_is_a_part_of_the_wait_and_longer_where_others_want_the_core() {
        let (us, begin) = (Duration::from_micros, Instant::now());
        let mut naps = Naps::new(begin);
        let after = |naps: &Naps, idle| naps.next(begin + us(idle)).as_micros();
        assert_eq!([0, 800, 4_000, 90_000].map(|idle| after(&naps, idle)), [20, 100, 500, 500]);
        naps.woke(begin + us(80), begin + us(20));
        assert_eq!(after(&naps, 80), 20, "a timer's own slack");
        naps.woke(begin + us(900), begin + us(80));
        assert_eq!([900, 2_400, 4_000].map(|idle| after(&naps, idle)), [200, 300, 500]);
        naps.worked(begin + us(4_000));
        assert_eq!(after(&naps, 4_000), 200, "they still want it");
        assert_eq!(after(&naps, 101_000), 500);
        naps.worked(begin + us(101_000));
        assert_eq!(after(&naps, 101_000), 20, "no longer");
    }
}
