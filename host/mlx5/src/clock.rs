//! Real time, on threads.

use shunt_device::platform::host::World;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Yields before a waiter sleeps once: with more waiters than cores, the one all wait for must get to run.
const YIELDS: u32 = 64;
const NAP: Duration = Duration::from_micros(30);
/// Where others want its core a waiter sleeps in each turn, for one part in so many of the time that it has waited: a
/// thread that yields stays in the way of those it waits for, and is put behind all others for it.
const PART: u32 = 8;
/// Longest nap for that reason.
const LONGEST: Duration = Duration::from_micros(500);
/// A thread that does something else for so long has stopped waiting.
const PAUSE: Duration = Duration::from_micros(200);
/// Who runs again later than that has waited for a core.
const LATE: Duration = Duration::from_micros(100);
/// For how long after that others are taken to want it.
const CROWDED: Duration = Duration::from_millis(100);

/// Whether others want the core of a thread: known by when it runs again.
#[derive(Clone, Copy, Default)]
pub struct Crowding {
    until: Option<Instant>,
}

impl Crowding {
    /// The thread runs again `now`, and would have at `due` had it a core of its own.
    pub fn ran_again(&mut self, now: Instant, due: Instant) {
        if now > due + LATE {
            self.until = Some(now + CROWDED);
        }
    }

    /// True while others are taken to want its core.
    pub fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// The waits of a thread.
#[derive(Clone, Copy)]
struct Waits {
    turns: u32,
    /// Since when it waits, and when its last turn ended.
    waiting: Option<(Instant, Instant)>,
    crowding: Crowding,
}

impl Waits {
    const NONE: Self = Self { turns: 0, waiting: None, crowding: Crowding { until: None } };

    /// The turn that begins `now`: how long to sleep, or to yield.
    fn turn(&mut self, now: Instant) -> Option<Duration> {
        self.turns = self.turns.wrapping_add(1);
        let since = self.waiting.filter(|(_, last)| now < *last + PAUSE).map_or(now, |(since, _)| since);
        self.waiting = Some((since, now));
        if self.crowding.is_on(now) {
            return Some(((now - since) / PART).clamp(NAP, LONGEST));
        }
        self.turns.is_multiple_of(YIELDS).then_some(NAP)
    }

    /// The turn is over `now`; it would have been at `due`.
    fn ended(&mut self, now: Instant, due: Instant) {
        self.waiting = self.waiting.map(|(since, _)| (since, now));
        self.crowding.ran_again(now, due);
    }
}

thread_local! {
    static WAITS: Cell<Waits> = const { Cell::new(Waits::NONE) };
}

/// A monotonic clock that shows zero when it is made.
pub struct RealClock {
    origin: Instant,
}

impl RealClock {
    /// A clock that shows zero now.
    #[allow(clippy::new_without_default)] // a default clock would hide that its origin matters
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl World for RealClock {
    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn relax(&self) {
        relax();
    }

    /// A NIC watches its doorbells itself.
    fn doorbell(&self) {}
}

/// One turn of a waiting thread: it yields, and now and then it sleeps; where others want its core it sleeps.
pub fn relax() {
    let (mut waits, now) = (WAITS.get(), Instant::now());
    let nap = waits.turn(now);
    match nap {
        Some(nap) => std::thread::sleep(nap),
        None => std::thread::yield_now(),
    }
    waits.ended(Instant::now(), now + nap.unwrap_or_default());
    WAITS.set(waits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_among_many_sleeps_the_longer_the_longer_it_has_waited() {
        let (us, mut waits, mut now) = (Duration::from_micros, Waits::NONE, Instant::now());
        let usual: Vec<_> = (0..2 * YIELDS).map(|_| waits.turn(now)).collect();
        assert_eq!(usual.iter().flatten().collect::<Vec<_>>(), [&NAP, &NAP], "alone it yields");
        // Somebody else had the core for 3 ms.
        let began = now;
        now += us(3000);
        waits.ended(now, began);
        assert_eq!(waits.turn(now), Some(us(375)));
        waits.ended(now + us(440), now + us(375));
        now += us(1500);
        assert_eq!(waits.turn(now), Some(NAP), "it did something else meanwhile");
        for _ in 0..40 {
            waits.ended(now + us(150), now + us(150));
            now += us(150);
            assert!(waits.turn(now).is_some());
        }
        assert_eq!(waits.turn(now), Some(LONGEST));
        waits.ended(now, now);
        assert_eq!(waits.turn(now + CROWDED), None, "for so long no other thread wanted the core");
    }
}
