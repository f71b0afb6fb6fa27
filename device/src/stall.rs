//! The stall detector: when to suspect a path on which nothing completes.
//!
//! RDMA reports a dead path late: RC retries for seconds before it fails. So a waiter watches the done word. A path
//! that usually completes something every few microseconds is suspected after sixteen times as long; one that was
//! never seen to complete anything, after the policy's bound. Only time that the waiter was there to see counts, an
//! eighth of the limit a look at most: a process that was stopped does not take its own pause for a fault of the path.
//!
//! Its state is a few registers of one waiter. Nothing is stored on the no-fault path.

use shunt_layout::mutant::Mutant;
use shunt_layout::state::Word;

/// Looks between two readings of the hint words: they lie in host memory on a GPU.
const LOOKS_PER_HINT: u32 = 16;

/// Times between completions that are seen before they count as usual.
const USUAL_AFTER: u32 = 16;
/// A path is suspected when it has been silent for this many times as long as it usually is.
const USUAL_TIMES: u64 = 16;

/// What a silence beyond its limit is counted in: a power of two, and a message of 128 bytes takes as long.
pub(crate) const UNIT_NS: u64 = 1024;
/// Bytes that a path moves in such a unit at the least, before it is suspected of moving none: one gigabit a second. A
/// rail may be slow, or shared by hundreds of channels.
pub(crate) const SLOWEST_BYTES: u32 = 128;

/// A span of time in these units.
#[inline(always)]
pub(crate) const fn in_units(span_ns: u64) -> u32 {
    let units = span_ns / UNIT_NS;
    if units < u32::MAX as u64 { units as u32 } else { u32::MAX }
}

/// Between these lies the time after which a silent path is suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Not sooner, however fast the path usually is.
    pub floor_ns: u64,
    /// Not later, however slow.
    pub bound_ns: u64,
}

/// A waiter's memory of one channel.
#[derive(Clone, Copy, Debug)]
pub struct StallDetector {
    /// `done` at the last look.
    pub(crate) done: u64,
    /// When that was.
    looked_ns: u64,
    /// How long it has stood still, as far as this waiter was there to see it.
    silence_ns: u64,
    /// Looks so far.
    looks: u32,
    /// Times between completions of this generation that were seen.
    seen: u32,
    /// The longest of them of late.
    usual_ns: u64,
}

impl StallDetector {
    /// A waiter that starts now.
    #[inline(always)]
    pub const fn new(now_ns: u64) -> Self {
        Self { done: u64::MAX, looked_ns: now_ns, silence_ns: 0, looks: 0, seen: 0, usual_ns: 0 }
    }

    /// Words that hold it.
    #[inline(always)]
    pub(crate) const fn words(&self) -> [u64; 5] {
        let counts = (self.looks as u64) << 32 | self.seen as u64;
        [self.done, self.looked_ns, self.silence_ns, counts, self.usual_ns]
    }

    /// From such words.
    #[inline(always)]
    pub(crate) const fn from_words(words: [u64; 5]) -> Self {
        let [done, looked_ns, silence_ns, counts, usual_ns] = words;
        let (looks, seen) = ((counts >> 32) as u32, counts as u32);
        Self { done, looked_ns, silence_ns, looks, seen, usual_ns }
    }

    /// Notes the done word; true if it has stood still for `limit_ns` with work outstanding.
    ///
    /// A look adds an eighth of the limit at most: a waiter that was descheduled itself has seen no silence.
    #[inline(always)]
    pub fn stalled(&mut self, done: u64, outstanding: bool, now_ns: u64, limit_ns: u64) -> bool {
        let since_look_ns = now_ns.saturating_sub(self.looked_ns);
        self.looked_ns = now_ns;
        if self.done != done {
            self.learn(done, self.silence_ns.saturating_add(since_look_ns));
        }
        if self.done != done || !outstanding {
            self.done = done;
            self.silence_ns = 0;
            return false;
        }
        let most_ns = if Mutant::SilenceByClock.on() { u64::MAX / 2 } else { limit_ns / 8 + 1 };
        self.silence_ns += if since_look_ns < most_ns { since_look_ns } else { most_ns };
        self.silence_ns > limit_ns
    }

    /// Notes that `done` moved after `gap_ns`. Another generation is another path, with times of its own.
    #[inline(always)]
    const fn learn(&mut self, done: u64, gap_ns: u64) {
        if Word(self.done).same_generation(Word(done)) {
            let faded_ns = self.usual_ns - self.usual_ns / 16;
            self.usual_ns = if gap_ns > faded_ns { gap_ns } else { faded_ns };
            self.seen = self.seen.saturating_add(1);
        } else {
            self.usual_ns = 0;
            self.seen = 0;
        }
    }

    /// How long the path may be silent, by what it usually is: measured here, in registers, and nowhere stored.
    #[inline(always)]
    pub fn limit_ns(&self, limits: Limits) -> u64 {
        if Mutant::PauseNeverEnds.on() {
            return u64::MAX / 4;
        }
        if self.seen < USUAL_AFTER {
            return limits.bound_ns;
        }
        let usual_ns = self.usual_ns.saturating_mul(USUAL_TIMES);
        let above = usual_ns > limits.floor_ns || Mutant::FloorForgotten.on();
        let least_ns = if above { usual_ns } else { limits.floor_ns };
        if least_ns < limits.bound_ns { least_ns } else { limits.bound_ns }
    }

    /// How long it has stood still beyond `limit_ns`, in some thousand nanoseconds.
    #[inline(always)]
    pub const fn beyond(&self, limit_ns: u64) -> u32 {
        in_units(self.silence_ns.saturating_sub(limit_ns))
    }

    /// True if it has stood still for an eighth of `limit_ns`: too short to conclude, enough to believe a hint.
    #[inline(always)]
    pub const fn doubts(&self, limit_ns: u64) -> bool {
        self.silence_ns > limit_ns / 8
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
        let mut stall = StallDetector::new(0);
        assert!(!stall.stalled(5, true, 100, 50), "the first look starts the clock");
        for now in 101..=150 {
            assert!(!stall.stalled(5, true, now, 50), "exactly the limit is not over it");
        }
        assert!(stall.stalled(5, true, 151, 50));
        assert!(!stall.stalled(6, true, 152, 50), "progress");
        assert!(!stall.stalled(6, false, 900, 50), "nothing outstanding");
        assert!(!stall.stalled(6, true, 940, 50));
    }

    #[test]
    fn words_hold_all_of_it() {
        let stall = StallDetector {
            done: 1,
            looked_ns: 2,
            silence_ns: 3,
            looks: u32::MAX,
            seen: 5,
            usual_ns: u64::MAX,
        };
        let again = StallDetector::from_words(stall.words());
        assert_eq!((again.done, again.looked_ns, again.silence_ns), (1, 2, 3));
        assert_eq!((again.looks, again.seen, again.usual_ns), (u32::MAX, 5, u64::MAX));
    }

    #[test]
    fn the_limit_follows_the_path_between_floor_and_bound() {
        const LIMITS: Limits = Limits { floor_ns: 1_000, bound_ns: 10_000 };
        let mut stall = StallDetector::new(0);
        let (mut done, mut now) = (0, 0);
        let mut complete = |stall: &mut StallDetector, gap_ns: u64, times: u32| {
            for _ in 0..times {
                (done, now) = (done + 1, now + gap_ns);
                assert!(!stall.stalled(done, true, now, 10_000));
            }
        };
        complete(&mut stall, 5, USUAL_AFTER);
        assert_eq!(stall.limit_ns(LIMITS), 10_000, "not enough was seen yet");
        complete(&mut stall, 5, 1);
        assert_eq!(stall.limit_ns(LIMITS), 1_000);
        complete(&mut stall, 100, 1);
        assert_eq!(stall.limit_ns(LIMITS), 1_600, "one long time counts at once");
        complete(&mut stall, 5, 100);
        assert_eq!(stall.limit_ns(LIMITS), 1_000, "and is forgotten slowly");
        complete(&mut stall, 2_000, 1);
        assert_eq!(stall.limit_ns(LIMITS), 10_000);
        let other = Word::new(1, 1, 300).0;
        assert!(!stall.stalled(other, true, 1 << 40, 10_000));
        assert_eq!(stall.limit_ns(LIMITS), 10_000, "another path is learned again");
    }

    #[test]
    fn a_waiter_that_was_away_saw_no_silence() {
        let mut stall = StallDetector::new(0);
        assert!(!stall.stalled(5, true, 0, 80));
        for looks in 1..=7 {
            assert!(!stall.stalled(5, true, looks * 1000, 80), "look {looks}");
        }
        assert!(stall.stalled(5, true, 8000, 80), "eight looks that find nothing are silence all the same");
    }
}
