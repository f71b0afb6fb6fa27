//! A PE's clock: the process's, which may be made to jump forward.

use shunt_device::platform::host::World;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One jump: when on the clock below, and how far.
#[derive(Clone, Copy, Debug)]
struct Jump {
    at_ns: u64,
    by_ns: u64,
}

/// A world whose clock is ahead of the one below by the sum of its jumps.
pub struct PeClock {
    below: Arc<dyn World>,
    ahead_ns: AtomicU64,
    jumps: Mutex<Vec<Jump>>,
}

impl PeClock {
    /// A clock that has not jumped.
    pub fn new(below: Arc<dyn World>) -> Self {
        Self { below, ahead_ns: AtomicU64::new(0), jumps: Mutex::new(Vec::new()) }
    }

    /// Jumps forward now.
    pub fn jump(&self, by_ns: u64) {
        let mut jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
        jumps.push(Jump { at_ns: self.below.now_ns(), by_ns });
        self.ahead_ns.fetch_add(by_ns, Ordering::AcqRel);
    }

    /// What the clock below showed when this one showed `ns`.
    pub fn below_ns(&self, ns: u64) -> u64 {
        let jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ahead = 0;
        for jump in &*jumps {
            if ns < jump.at_ns + ahead {
                break;
            }
            // No time was ever read inside the jump but in the instant it was made.
            if ns < jump.at_ns + ahead + jump.by_ns {
                return jump.at_ns;
            }
            ahead += jump.by_ns;
        }
        ns - ahead
    }
}

impl World for PeClock {
    fn now_ns(&self) -> u64 {
        self.below.now_ns() + self.ahead_ns.load(Ordering::Acquire)
    }

    fn relax(&self) {
        self.below.relax();
    }

    fn doorbell(&self) {
        self.below.doorbell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hand(AtomicU64);

    impl World for Hand {
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
        fn relax(&self) {}
        fn doorbell(&self) {}
    }

    #[test]
    fn what_was_read_before_between_and_after_jumps_finds_its_way_back() {
        let below = Arc::new(Hand(AtomicU64::new(100)));
        let clock = PeClock::new(below.clone());
        let mut read = Vec::new();
        for now in [100, 200, 300, 400] {
            below.0.store(now, Ordering::Relaxed);
            read.push((clock.now_ns(), now));
            if now == 200 || now == 300 {
                clock.jump(1_000 * now);
                read.push((clock.now_ns(), now));
            }
        }
        assert_eq!(read.last(), Some(&(400 + 500_000, 400)));
        for (shown, below) in read {
            assert_eq!(clock.below_ns(shown), below, "{shown}");
        }
        assert_eq!(clock.below_ns(100_000), 200, "inside a jump");
    }
}
