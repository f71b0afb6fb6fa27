//! Time as an agent sees it pass.

use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;

/// Time as the agent was there to see it pass. The packet lifetime is counted by it: a clock that jumps forward, or an
/// agent that was held up, must not end it early, because nothing else keeps late packets from what is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    looked_ns: Nanos,
    /// The age.
    pub age_ns: Nanos,
}

impl Age {
    /// Begins now.
    pub const fn new(now_ns: Nanos) -> Self {
        Self { looked_ns: now_ns, age_ns: Nanos::ZERO }
    }

    /// A look adds `most_ns` at most.
    pub fn grow(&mut self, now_ns: Nanos, most_ns: Nanos) -> Nanos {
        let most_ns = if Mutant::ClockTrusted.on() { Nanos::MAX } else { most_ns };
        self.age_ns += (now_ns - self.looked_ns).min(most_ns);
        self.looked_ns = now_ns;
        self.age_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_clock_does_not_age_the_agent() {
        let mut age = Age::new(Nanos::new(1_000));
        let mut grow = |now_ns| age.grow(Nanos::new(now_ns), Nanos::new(1_000)).get();
        assert_eq!(grow(1_500), 500);
        assert_eq!(grow(9_000_000), 1_500, "a look counts for a thousand at most");
        assert_eq!(grow(9_000_100), 1_600);
        assert_eq!(grow(5), 1_600, "nor does one that goes back");
    }
}
