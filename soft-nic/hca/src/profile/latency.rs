//! What a command takes, drawn again for each.

/// One part of a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Of a thousand commands, so many.
    pub per_mille: u32,
    /// They take at least this.
    pub from_ns: u64,
    /// And less than this.
    pub to_ns: u64,
}

/// A mixture of uniform parts. The numbers of all profiles are **invented but plausible**, and virtual: nobody
/// publishes what firmware commands take.
pub type CommandTime = &'static [Share];

/// Draws from a mixture: the same numbers from the same seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency(u64);

impl Latency {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// What the next command takes.
    pub(crate) fn draw(&mut self, time: CommandTime) -> u64 {
        let mut left = (self.next() % 1000) as u32;
        for share in time {
            if left < share.per_mille {
                return share.from_ns + self.next() % (share.to_ns - share.from_ns).max(1);
            }
            left -= share.per_mille;
        }
        time.last().map_or(0, |share| share.to_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::PROFILES;

    #[test]
    fn shares_of_every_profile_make_a_whole() {
        for profile in PROFILES {
            let Some(time) = profile.command_time else { continue };
            assert_eq!(time.iter().map(|share| share.per_mille).sum::<u32>(), 1000, "{}", profile.name);
            assert!(time.iter().all(|share| share.from_ns < share.to_ns), "{}", profile.name);
        }
    }

    #[test]
    fn a_mixture_is_met_and_replayed() {
        const TIME: CommandTime = &[
            Share { per_mille: 900, from_ns: 100, to_ns: 200 },
            Share { per_mille: 100, from_ns: 1_000, to_ns: 2_000 },
        ];
        let draws = |seed| {
            let mut latency = Latency::new(seed);
            (0..10_000).map(|_| latency.draw(TIME)).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        let slow = draws(7).iter().filter(|ns| **ns >= 1_000).count();
        assert!((900..1_100).contains(&slow), "{slow} of 10000 are slow");
        assert!(draws(7).iter().all(|ns| (100..200).contains(ns) || (1_000..2_000).contains(ns)));
    }
}
