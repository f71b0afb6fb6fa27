//! Which pair of rails a channel tries next, and how long one is tried.
//!
//! Where nothing of a channel works the give-up time passes, and each wrong pick costs a packet lifetime and probes. So
//! pairs that did not fail come first, those without a suspect rail before the others, then those whose rails failed
//! least. Those that failed come behind them, the one that failed longest ago first: each has its turn again.

use super::Agent;
use super::words::Place;
use crate::slots::RailPair;
use shunt_device::health::Health;
use shunt_layout::mutant::Mutant;

/// Pauses between probes that a pair made anew may be silent for while its channel has nothing else; twice as long with
/// each time that it failed.
const PATIENCE: u64 = 32;
/// It grows no further.
const DOUBLINGS_MAX: u32 = 8;

/// A pair of rails that fell silent, and was not made anew with success since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    pair: RailPair,
    at_ns: u64,
    times: u32,
}

/// What a pair promises, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    /// When it failed.
    pub failed_ns: Option<u64>,
    /// Rails of it that are under suspicion.
    pub suspects: usize,
    /// Pairs that failed, of either rail.
    pub failures: usize,
}

/// Pairs of rails that failed, with each peer. One channel learns from another.
pub(super) struct Trials {
    by_peer: Vec<Vec<Failure>>,
}

impl Trials {
    pub(super) fn new(pes: usize) -> Self {
        Self { by_peer: vec![Vec::new(); pes] }
    }

    fn failed(&mut self, peer: u32, pair: RailPair, at_ns: u64) {
        let failures = &mut self.by_peer[peer as usize];
        match failures.iter_mut().find(|one| one.pair == pair) {
            Some(one) => (one.at_ns, one.times) = (at_ns, one.times.saturating_add(1)),
            None => failures.push(Failure { pair, at_ns, times: 1 }),
        }
    }

    fn worked(&mut self, peer: u32, pair: RailPair) {
        self.by_peer[peer as usize].retain(|one| one.pair != pair);
    }

    fn times(&self, peer: u32, pair: RailPair) -> u32 {
        self.by_peer[peer as usize].iter().find(|one| one.pair == pair).map_or(0, |one| one.times)
    }

    fn standing(&self, peer: u32, pair: RailPair, suspects: usize) -> Standing {
        let failures = &self.by_peer[peer as usize];
        let failed_ns = failures.iter().find(|one| one.pair == pair).map(|one| one.at_ns);
        let of =
            |same: fn(RailPair, RailPair) -> bool| failures.iter().filter(|one| same(one.pair, pair)).count();
        let (local, remote) =
            (of(|one, pair| one.local == pair.local), of(|one, pair| one.remote == pair.remote));
        Standing { failed_ns, suspects, failures: local + remote }
    }
}

impl Agent {
    /// A pair fell silent, in use or while it was made anew. What a port explains is no failure of the pair.
    pub(super) fn note_failure(&mut self, index: usize) {
        let (peer, now) = (self.place(index).peer, self.now());
        let Some(pair) = &self.pairs[index] else { return };
        if self.ports.up(pair.local_rail, peer, pair.remote_rail) {
            self.chains.trials.failed(peer, pair.rails(), now);
        }
    }

    /// A pair made anew works.
    pub(super) fn note_success(&mut self, index: usize) {
        let peer = self.place(index).peer;
        if let Some(pair) = &self.pairs[index] {
            self.chains.trials.worked(peer, pair.rails());
        }
    }

    /// What a pair of rails to a peer promises.
    pub(super) fn standing(&self, peer: u32, pair: RailPair) -> Standing {
        if Mutant::DeadRailsFirst.on() {
            return Standing::default();
        }
        self.chains.trials.standing(peer, pair, self.locator.suspects(peer, pair))
    }

    /// True if a slot that does not work is better not waited for where nothing else works: its rails failed, or are
    /// under suspicion, or it has been silent for longer than one that works ever is.
    pub(super) fn is_doubtful(&self, index: usize) -> bool {
        let peer = self.place(index).peer;
        let Some(pair) = &self.pairs[index] else { return false };
        let standing = self.standing(peer, pair.rails());
        // It was given to them in spite of it, and has its turn.
        let failed = standing.failed_ns.is_some() && !pair.untried;
        failed || standing.suspects > 0 || self.is_overdue(index)
    }

    /// True if a pair has stood for longer than its patience in a state that passes by itself.
    fn is_overdue(&self, index: usize) -> bool {
        let (peer, now) = (self.place(index).peer, self.now());
        let Some(pair) = &self.pairs[index] else { return false };
        let passes =
            matches!(pair.health, Health::Fencing | Health::Fenced | Health::Connecting | Health::Probing);
        let doublings = self.chains.trials.times(peer, pair.rails()).min(DOUBLINGS_MAX);
        let patience_ns = (PATIENCE << doublings).saturating_mul(self.options.probe_ns);
        passes && now >= pair.since_ns.saturating_add(patience_ns) && !Mutant::DeadRailsFirst.on()
    }

    /// True if a pair whose probes are not answered is to make room for another one: the channel has nothing else, or
    /// nothing that leads to a home it wants, and its retries may take as long as the give-up time.
    pub(super) fn gives_way(&self, index: usize) -> bool {
        let at = self.place(index);
        at.slot != 0
            && self.leads(index)
            && self.is_overdue(index)
            && self.is_pressed(at)
            && self.has_other_rails(at)
    }

    /// True if no slot of a channel works, or none that leads to a home that it wants.
    fn is_pressed(&self, at: Place) -> bool {
        let row = at.peer * self.words.root().channels_per_pe + at.channel;
        let ready = |slot: u32| {
            let pair = self.pairs[self.index(Place { slot, ..at })].as_ref()?;
            let up = self.ports.up(pair.local_rail, at.peer, pair.remote_rail);
            (pair.health == Health::Ready && up).then(|| pair.rails())
        };
        let ready: Vec<RailPair> = (0..self.words.root().slots).filter_map(ready).collect();
        ready.is_empty() || self.wants(row).any(|want| !ready.iter().any(|pair| want.is_met_by(*pair)))
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
    fn next(trials: &Trials, suspect: impl Fn(RailPair) -> usize, held: &[RailPair]) -> Option<RailPair> {
        let ranked = rank(End { pe: 0, rails: 3 }, End { pe: 1, rails: 3 }, 0);
        let free = ranked.into_iter().filter(|pair| !held.contains(pair));
        free.min_by_key(|pair| trials.standing(1, *pair, suspect(*pair)))
    }

    #[test]
    fn rails_that_nothing_is_known_against_come_first() {
        let (mut trials, held) = (Trials::new(2), [pair(0, 0), pair(1, 1), pair(2, 2)]);
        assert_eq!(next(&trials, |_| 0, &held), Some(pair(1, 2)), "by rank");
        let suspects = |pair: RailPair| usize::from(pair.local == 0) + usize::from(pair.remote != 0);
        assert_eq!(next(&trials, suspects, &held), Some(pair(1, 0)), "the first with neither rail suspect");
        held.iter().for_each(|pair| trials.failed(1, *pair, 5));
        trials.failed(1, pair(1, 2), 6);
        assert_eq!(
            next(&trials, |_| 0, &held),
            Some(pair(2, 1)),
            "of which the fewest failed: {:?}",
            trials.by_peer
        );
    }

    #[test]
    fn each_pair_has_its_turn_before_one_has_two() {
        let mut trials = Trials::new(2);
        let mut seen = Vec::new();
        for now in 0..9 {
            // Whatever is suspected, and even if it stays so.
            let one = next(&trials, |pair| pair.local as usize % 2, &[]).expect("a pair");
            trials.failed(1, one, now);
            seen.push(one);
        }
        let again: Vec<_> = (9..18)
            .map(|now| {
                let one = next(&trials, |pair| pair.local as usize % 2, &[]).expect("a pair");
                trials.failed(1, one, now);
                one
            })
            .collect();
        assert_eq!(seen, again, "and then each in turn again");
        seen.sort_by_key(|pair| (pair.local, pair.remote));
        seen.dedup();
        assert_eq!(seen.len(), 9);
        trials.worked(1, pair(2, 2));
        assert_eq!((trials.times(1, pair(2, 2)), trials.times(1, pair(1, 1))), (0, 2));
        assert_eq!(next(&trials, |_| 2, &[]), Some(pair(2, 2)), "it worked since");
    }
}
