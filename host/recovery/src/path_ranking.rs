//! Which pair of rails a channel tries next, and how long one is tried.
//!
//! Where nothing of a channel works the give-up time passes, and each wrong pick costs a packet lifetime and probes. So
//! pairs that did not fail come first, those without a suspect rail before the others, then those whose rails failed
//! least. Those that failed come behind them, the one that failed longest ago first: each has its turn again.

use crate::nanos::Nanos;
use crate::slots::RailPair;

/// Pauses between probes that a pair made again may be silent for while its channel has nothing else; twice as long
/// with each time that it failed.
const PATIENCE: u64 = 32;
/// It grows no further.
const DOUBLINGS_MAX: u32 = 8;

/// A pair of rails that fell silent, and did not work since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    pair: RailPair,
    at: Nanos,
    times: u32,
}

/// What a pair promises, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// When it failed.
    pub failed_at: Option<Nanos>,
    /// Rails of it that are under suspicion.
    pub suspects: usize,
    /// Pairs that failed, of either rail.
    pub failures: usize,
}

/// Pairs of rails that failed, with each peer. One channel learns from another.
#[derive(Default)]
pub struct FailureHistory {
    by_peer: Vec<Vec<Failure>>,
}

impl FailureHistory {
    /// Of so many peers, without failures.
    pub fn new(pes: usize) -> Self {
        Self { by_peer: vec![Vec::new(); pes] }
    }

    /// A pair fell silent, in use or while it was made.
    pub fn failed(&mut self, peer: u32, pair: RailPair, at: Nanos) {
        let failures = &mut self.by_peer[peer as usize];
        match failures.iter_mut().find(|one| one.pair == pair) {
            Some(one) => (one.at, one.times) = (at, one.times.saturating_add(1)),
            None => failures.push(Failure { pair, at, times: 1 }),
        }
    }

    /// A pair works.
    pub fn worked(&mut self, peer: u32, pair: RailPair) {
        self.by_peer[peer as usize].retain(|one| one.pair != pair);
    }

    /// How long a pair may stand in a state that passes by itself.
    pub fn patience(&self, peer: u32, pair: RailPair, probe_pause: Nanos) -> Nanos {
        probe_pause * (PATIENCE << self.times(peer, pair).min(DOUBLINGS_MAX))
    }

    /// What a pair promises, of whose rails so many are suspected.
    pub fn rank(&self, peer: u32, pair: RailPair, suspects: usize) -> Rank {
        let failures = &self.by_peer[peer as usize];
        let failed_at = failures.iter().find(|one| one.pair == pair).map(|one| one.at);
        let of =
            |same: fn(RailPair, RailPair) -> bool| failures.iter().filter(|one| same(one.pair, pair)).count();
        let (local, remote) =
            (of(|one, pair| one.local == pair.local), of(|one, pair| one.remote == pair.remote));
        Rank { failed_at, suspects, failures: local + remote }
    }

    fn times(&self, peer: u32, pair: RailPair) -> u32 {
        self.by_peer[peer as usize].iter().find(|one| one.pair == pair).map_or(0, |one| one.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{End, rank};

    fn pair(local: u32, remote: u32) -> RailPair {
        RailPair { local, remote }
    }

    /// Which pair comes next, of all that are ranked but those held.
    fn next(
        history: &FailureHistory,
        suspect: impl Fn(RailPair) -> usize,
        held: &[RailPair],
    ) -> Option<RailPair> {
        let ranked = rank(End { pe: 0, rails: 3 }, End { pe: 1, rails: 3 }, 0);
        let free = ranked.into_iter().filter(|pair| !held.contains(pair));
        free.min_by_key(|pair| history.rank(1, *pair, suspect(*pair)))
    }

    #[test]
    fn rails_that_nothing_is_known_against_come_first() {
        let (mut history, held) = (FailureHistory::new(2), [pair(0, 0), pair(1, 1), pair(2, 2)]);
        assert_eq!(next(&history, |_| 0, &held), Some(pair(1, 2)), "by rank");
        let suspects = |pair: RailPair| usize::from(pair.local == 0) + usize::from(pair.remote != 0);
        assert_eq!(next(&history, suspects, &held), Some(pair(1, 0)), "the first with neither rail suspect");
        held.iter().for_each(|pair| history.failed(1, *pair, Nanos::new(5)));
        history.failed(1, pair(1, 2), Nanos::new(6));
        assert_eq!(
            next(&history, |_| 0, &held),
            Some(pair(2, 1)),
            "of which the fewest failed: {:?}",
            history.by_peer
        );
    }

    #[test]
    fn each_pair_has_its_turn_before_one_has_two() {
        let mut history = FailureHistory::new(2);
        let mut seen = Vec::new();
        for now in 0..9 {
            // Whatever is suspected, and even if it stays so.
            let one = next(&history, |pair| pair.local as usize % 2, &[]).expect("a pair");
            history.failed(1, one, Nanos::new(now));
            seen.push(one);
        }
        let again: Vec<_> = (9..18)
            .map(|now| {
                let one = next(&history, |pair| pair.local as usize % 2, &[]).expect("a pair");
                history.failed(1, one, Nanos::new(now));
                one
            })
            .collect();
        assert_eq!(seen, again, "and then each in turn again");
        seen.sort_by_key(|pair| (pair.local, pair.remote));
        seen.dedup();
        assert_eq!(seen.len(), 9);
        history.worked(1, pair(2, 2));
        assert_eq!((history.times(1, pair(2, 2)), history.times(1, pair(1, 1))), (0, 2));
        assert_eq!(next(&history, |_| 2, &[]), Some(pair(2, 2)), "it worked since");
    }

    #[test]
    fn patience_doubles_with_each_failure_and_has_an_end() {
        let (mut history, one) = (FailureHistory::new(2), pair(0, 0));
        let patience = |history: &FailureHistory| history.patience(1, one, Nanos::new(10)).get();
        assert_eq!(patience(&history), 320);
        for doublings in [1, 2, 3, 4, 5, 6, 7, 8, 8, 8] {
            history.failed(1, one, Nanos::ZERO);
            assert_eq!(patience(&history), 320 << doublings);
        }
    }
}
