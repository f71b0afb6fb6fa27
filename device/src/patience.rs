//! What a waiter remembers between looks, in its registers: when it last saw progress.

/// Looks between two readings of the hint words: they lie in host memory on a GPU.
const LOOKS_PER_HINT: u32 = 16;

/// A waiter's memory of one channel.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// `done` at the last progress.
    pub(crate) done: u64,
    /// When that was.
    pub(crate) since_ns: u64,
    /// Looks so far.
    looks: u32,
}

impl Patience {
    /// A waiter that starts now.
    #[inline(always)]
    pub const fn new(now_ns: u64) -> Self {
        Self { done: u64::MAX, since_ns: now_ns, looks: 0 }
    }

    /// Notes the done word; true if it has stood still for `limit_ns` with work outstanding.
    #[inline(always)]
    pub const fn stalled(&mut self, done: u64, outstanding: bool, now_ns: u64, limit_ns: u64) -> bool {
        if self.done != done || !outstanding {
            self.done = done;
            self.since_ns = now_ns;
            return false;
        }
        now_ns.saturating_sub(self.since_ns) > limit_ns
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
        assert!(!patience.stalled(5, true, 150, 50), "exactly the limit is not over it");
        assert!(patience.stalled(5, true, 151, 50));
        assert!(!patience.stalled(6, true, 500, 50), "progress");
        assert!(!patience.stalled(6, false, 900, 50), "nothing outstanding");
        assert!(!patience.stalled(6, true, 940, 50));
    }
}
