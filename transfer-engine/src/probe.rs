//! Peers of which something is expected are spoken to now and then: one that is dead is noticed although nothing else
//! is sent to it. Pure.

use crate::ids::PeerId;
use shunt_recovery::nanos::Nanos;
use std::collections::BTreeSet;

/// A peer is not spoken to more often than this, whatever the give-up time is.
const LEAST: Nanos = Nanos::millis(100);

/// When the next probes are due, and which are under way.
#[derive(Debug)]
pub(crate) struct Probes {
    every: Nanos,
    next: Nanos,
    under_way: BTreeSet<PeerId>,
}

impl Probes {
    /// For peers that are lost after this time without a lane.
    pub fn new(give_up: Nanos) -> Self {
        Self { every: give_up.max(LEAST), next: Nanos::MAX, under_way: BTreeSet::new() }
    }

    /// True if [`Probes::due`] has something to do now, where something is expected or not.
    #[inline]
    pub fn is_due(&self, now: Nanos, awaits: bool) -> bool {
        let rests = self.next == Nanos::MAX;
        if awaits { rests || now >= self.next } else { !rests }
    }

    /// Those of the peers waited for that are to be probed now: each has one probe under way until [`Probes::ended`].
    pub fn due(&mut self, now: Nanos, awaited: impl Iterator<Item = PeerId>) -> Vec<PeerId> {
        let mut awaited = awaited.peekable();
        if awaited.peek().is_none() {
            self.next = Nanos::MAX;
            return Vec::new();
        }
        if self.next == Nanos::MAX {
            self.next = now + self.every;
        }
        if now < self.next {
            return Vec::new();
        }
        self.next = now + self.every;
        awaited.filter(|peer| self.under_way.insert(*peer)).collect()
    }

    /// A probe has ended.
    pub fn ended(&mut self, peer: PeerId) {
        self.under_way.remove(&peer);
    }

    /// When [`Probes::due`] has something to do next.
    pub const fn next_deadline(&self) -> Nanos {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_waited_for_is_probed_one_probe_at_a_time() {
        let (one, two, at) = (PeerId(1), PeerId(2), |ms| Nanos::millis(ms));
        let mut probes = Probes::new(at(200));
        assert_eq!(probes.due(at(5), [one].into_iter()), []);
        assert_eq!((probes.next_deadline(), probes.due(at(204), [one].into_iter())), (at(205), vec![]));
        assert_eq!(probes.due(at(205), [one, one, two].into_iter()), [one, two]);
        probes.ended(two);
        assert_eq!(probes.due(at(404), [one, two].into_iter()), []);
        assert_eq!(probes.due(at(405), [one, two].into_iter()), [two], "the other one is under way");
        assert_eq!(probes.due(at(500), [].into_iter()), []);
        assert_eq!(probes.next_deadline(), Nanos::MAX, "nothing is waited for");
        assert_eq!(Probes::new(Nanos::new(0)).every, LEAST);
    }
}
