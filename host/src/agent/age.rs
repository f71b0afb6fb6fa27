//! Time as an agent sees it pass.

use shunt_layout::mutant::Mutant;

/// Time as the agent was there to see it pass. The packet lifetime is counted by it: a clock that jumps forward, or an
/// agent that was held up, must not end it early, because nothing else keeps late packets from what is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    looked_ns: u64,
    pub(super) age_ns: u64,
}

impl Age {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self { looked_ns: now_ns, age_ns: 0 }
    }

    /// A look adds `most_ns` at most.
    pub(super) fn grow(&mut self, now_ns: u64, most_ns: u64) -> u64 {
        let most_ns = if Mutant::ClockTrusted.on() { u64::MAX } else { most_ns };
        self.age_ns += now_ns.saturating_sub(self.looked_ns).min(most_ns);
        self.looked_ns = now_ns;
        self.age_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_of_the_clock_does_not_age_the_agent() {
        let mut age = Age::new(1_000);
        assert_eq!(age.grow(1_500, 1_000), 500);
        assert_eq!(age.grow(9_000_000, 1_000), 1_500, "a look counts for a thousand at most");
        assert_eq!(age.grow(9_000_100, 1_000), 1_600);
        assert_eq!(age.grow(5, 1_000), 1_600, "nor does one that goes back");
    }
}
