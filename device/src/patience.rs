//! What a waiter remembers between looks, in its registers: when it last saw progress.

/// Looks between two readings of the hint words: they lie in host memory on a GPU.
const LOOKS_PER_HINT: u32 = 16;

/// A waiter's memory of one channel.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// `done` at the last look.
    pub(crate) done: u64,
    /// When that was.
    looked_ns: u64,
    /// How long it has stood still, as far as this waiter was there to see it.
    silence_ns: u64,
    /// Looks so far.
    looks: u32,
}

impl Patience {
    /// A waiter that starts now.
    #[inline(always)]
    pub const fn new(now_ns: u64) -> Self {
        Self { done: u64::MAX, looked_ns: now_ns, silence_ns: 0, looks: 0 }
    }

    /// Notes the done word; true if it has stood still for `limit_ns` with work outstanding.
    ///
    /// A look adds an eighth of the limit at most: a waiter that was descheduled itself has seen no silence.
    #[inline(always)]
    pub const fn stalled(&mut self, done: u64, outstanding: bool, now_ns: u64, limit_ns: u64) -> bool {
        let since_look_ns = now_ns.saturating_sub(self.looked_ns);
        self.looked_ns = now_ns;
        if self.done != done || !outstanding {
            self.done = done;
            self.silence_ns = 0;
            return false;
        }
        let most_ns = limit_ns / 8 + 1;
        self.silence_ns += if since_look_ns < most_ns { since_look_ns } else { most_ns };
        self.silence_ns > limit_ns
    }

    /// True on the first look and on each sixteenth.
    #[inline(always)]
    pub const fn hint_due(&mut self) -> bool {
        let due = self.looks.is_multiple_of(LOOKS_PER_HINT);
        self.looks = self.looks.wrapping_add(1);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_standing_still_with_work_is_a_stall() {
        let mut patience = Patience::new(0);
        assert!(!patience.stalled(5, true, 100, 50), "the first look starts the clock");
        for now in 101..=150 {
            assert!(!patience.stalled(5, true, now, 50), "exactly the limit is not over it");
        }
        assert!(patience.stalled(5, true, 151, 50));
        assert!(!patience.stalled(6, true, 152, 50), "progress");
        assert!(!patience.stalled(6, false, 900, 50), "nothing outstanding");
        assert!(!patience.stalled(6, true, 940, 50));
    }

    #[test]
    fn a_waiter_that_was_away_saw_no_silence() {
        let mut patience = Patience::new(0);
        assert!(!patience.stalled(5, true, 0, 80));
        for looks in 1..=7 {
            assert!(!patience.stalled(5, true, looks * 1000, 80), "look {looks}");
        }
        assert!(
            patience.stalled(5, true, 8000, 80),
            "eight looks that find nothing are silence all the same"
        );
    }
}
