//! Immediates that have arrived, and what is expected of them. Pure.
//!
//! Transfers have no order, so an immediate may come before anybody expects it: it is kept. An expectation takes its
//! number off the count when it is reached, so the same immediate can be used again.

use crate::error::TransferError;
use crate::ids::{ExpectationId, PeerId};
use shunt_layout::mutant::Mutant;
use shunt_recovery::nanos::Nanos;
use std::collections::BTreeMap;

/// An expectation that is not reached yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: ExpectationId,
    want: u64,
    until: Nanos,
}

/// What became of an expectation. Each ends once.
pub type Ended = (ExpectationId, Result<(), TransferError>);

/// Counts by peer and immediate.
#[derive(Debug)]
pub struct ImmCounters {
    counts: BTreeMap<(PeerId, u32), u64>,
    open: BTreeMap<(PeerId, u32), Open>,
    /// No expectation is overdue before.
    due: Nanos,
}

impl Default for ImmCounters {
    fn default() -> Self {
        Self { counts: BTreeMap::new(), open: BTreeMap::new(), due: Nanos::MAX }
    }
}

impl ImmCounters {
    /// One has arrived: the expectation that it completes.
    pub fn arrived(&mut self, peer: PeerId, imm: u32) -> Option<Ended> {
        *self.counts.entry((peer, imm)).or_default() += 1;
        self.reach(peer, imm)
    }

    /// Expects so many of a peer's, by a deadline. Answers at once if they are there.
    ///
    /// # Errors
    /// None are expected, or another expectation of this immediate is open.
    pub fn expect(
        &mut self,
        id: ExpectationId,
        (peer, imm): (PeerId, u32),
        want: u64,
        until: Nanos,
    ) -> Result<Option<Ended>, TransferError> {
        if want == 0 {
            let (what, want) = ("immediates to expect", "one or more");
            return Err(TransferError::Refused { what, want, met: "none".to_owned() });
        }
        if let Some(open) = self.open.get(&(peer, imm)) {
            let (what, want) = ("an expectation", "one at a time of each peer and immediate");
            let met = format!("a second of {imm:#x} of peer {peer}, beside one of {}", open.want);
            return Err(TransferError::Refused { what, want, met });
        }
        if Mutant::EarlyForgotten.on() {
            self.counts.remove(&(peer, imm));
        }
        self.open.insert((peer, imm), Open { id, want, until });
        self.due = self.due.min(until);
        Ok(self.reach(peer, imm))
    }

    /// True if this immediate of a peer is expected.
    pub fn is_open(&self, peer: PeerId, imm: u32) -> bool {
        self.open.contains_key(&(peer, imm))
    }

    /// True if something is expected.
    pub fn awaits(&self) -> bool {
        !self.open.is_empty()
    }

    /// Peers of which something is expected; one may come more than once.
    pub fn awaited(&self) -> impl Iterator<Item = PeerId> {
        self.open.keys().map(|(peer, _)| *peer)
    }

    /// How many have arrived and were not taken by an expectation.
    pub fn count(&self, peer: PeerId, imm: u32) -> u64 {
        self.counts.get(&(peer, imm)).copied().unwrap_or(0)
    }

    /// Ends what is overdue. The count stays: what comes late is kept.
    pub fn overdue(&mut self, now: Nanos) -> Vec<Ended> {
        let ended = self.end(|_, open| open.until <= now);
        self.due = self.open.values().map(|open| open.until).min().unwrap_or(Nanos::MAX);
        ended
    }

    /// Ends what is expected of a peer that is lost.
    pub fn lost(&mut self, peer: PeerId) -> Vec<Ended> {
        self.end(|of, _| of == peer)
    }

    /// No expectation is overdue before; never, if there is none.
    #[inline]
    pub const fn next_deadline(&self) -> Nanos {
        self.due
    }

    /// An immediate of a peer is of no use any more: its count is dropped, and what is expected of it ends. One that
    /// comes later is counted from zero.
    pub fn forget(&mut self, peer: PeerId, imm: u32) -> Option<Ended> {
        let got = self.counts.remove(&(peer, imm)).unwrap_or(0);
        let Open { id, want, .. } = self.open.remove(&(peer, imm))?;
        Some((id, Err(TransferError::Missing { imm, got, want, peer })))
    }

    /// A peer is cut off: its counts are dropped. Nothing is expected of it.
    pub fn forget_all(&mut self, peer: PeerId) {
        self.counts.retain(|(of, _), _| *of != peer);
    }

    fn reach(&mut self, peer: PeerId, imm: u32) -> Option<Ended> {
        let open = *self.open.get(&(peer, imm))?;
        let count = self.counts.get_mut(&(peer, imm)).filter(|count| **count >= open.want)?;
        *count -= open.want;
        if *count == 0 {
            self.counts.remove(&(peer, imm));
        }
        self.open.remove(&(peer, imm));
        Some((open.id, Ok(())))
    }

    fn end(&mut self, is_over: impl Fn(PeerId, &Open) -> bool) -> Vec<Ended> {
        let over = self.open.iter().filter(|((peer, _), open)| is_over(*peer, open));
        let keys: Vec<_> = over.map(|(key, _)| *key).collect();
        let missing = |(peer, imm)| {
            let Open { id, want, .. } = self.open.remove(&(peer, imm))?;
            let got = self.count(peer, imm);
            Some((id, Err(TransferError::Missing { imm, got, want, peer })))
        };
        keys.into_iter().filter_map(missing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PEER: PeerId = PeerId(3);
    const NEVER: Nanos = Nanos::MAX;

    fn id(number: u64) -> ExpectationId {
        ExpectationId(number)
    }

    #[test]
    fn what_comes_early_is_kept() {
        let mut counters = ImmCounters::default();
        assert_eq!((counters.arrived(PEER, 5), counters.arrived(PEER, 5)), (None, None));
        assert_eq!(counters.expect(id(1), (PEER, 5), 3, NEVER), Ok(None));
        assert_eq!(counters.arrived(PeerId(4), 5), None, "of another peer");
        assert_eq!(counters.arrived(PEER, 6), None, "another immediate");
        assert_eq!(counters.arrived(PEER, 5), Some((id(1), Ok(()))));
        assert_eq!(counters.arrived(PEER, 5), None, "reached once");
        assert_eq!(counters.expect(id(2), (PEER, 5), 1, NEVER), Ok(Some((id(2), Ok(())))), "used again");
        assert_eq!(counters.count(PEER, 5), 0);
    }

    #[test]
    fn what_does_not_come_is_told_with_the_count() {
        let mut counters = ImmCounters::default();
        counters.arrived(PEER, 5);
        assert_eq!(counters.expect(id(1), (PEER, 5), 2, Nanos::new(10)), Ok(None));
        assert_eq!((counters.next_deadline(), counters.overdue(Nanos::new(9))), (Nanos::new(10), Vec::new()));
        let missing = Err(TransferError::Missing { imm: 5, got: 1, want: 2, peer: PEER });
        assert_eq!(counters.overdue(Nanos::new(10)), [(id(1), missing)]);
        assert_eq!((counters.next_deadline(), counters.overdue(NEVER)), (NEVER, Vec::new()));
        assert_eq!((counters.arrived(PEER, 5), counters.count(PEER, 5)), (None, 2), "the late one is kept");
        assert_eq!(counters.expect(id(2), (PEER, 7), 1, NEVER), Ok(None));
        assert_eq!(counters.lost(PeerId(4)), []);
        let missing = Err(TransferError::Missing { imm: 7, got: 0, want: 1, peer: PEER });
        assert_eq!(counters.lost(PEER), [(id(2), missing)]);
    }

    #[test]
    fn what_is_of_no_use_any_more_is_forgotten() {
        let mut counters = ImmCounters::default();
        assert_eq!((counters.arrived(PEER, 5), counters.arrived(PEER, 6)), (None, None));
        assert_eq!(counters.expect(id(1), (PEER, 5), 3, NEVER), Ok(None));
        let missing = Err(TransferError::Missing { imm: 5, got: 1, want: 3, peer: PEER });
        assert_eq!(counters.forget(PEER, 5), Some((id(1), missing)));
        assert_eq!((counters.forget(PEER, 5), counters.count(PEER, 5)), (None, 0));
        assert_eq!(counters.count(PEER, 6), 1, "another one");
        assert_eq!((counters.arrived(PEER, 5), counters.count(PEER, 5)), (None, 1), "from zero");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut counters = ImmCounters::default();
        assert!(counters.expect(id(1), (PEER, 5), 0, NEVER).is_err());
        assert_eq!(counters.expect(id(2), (PEER, 5), 1, NEVER), Ok(None));
        assert!(counters.expect(id(3), (PEER, 5), 1, NEVER).is_err(), "a second one");
        assert_eq!(counters.arrived(PEER, 5), Some((id(2), Ok(()))), "the first one stands");
    }

    proptest! {
        /// Whatever the order of arrivals and expectations, each is reached by as many arrivals as it wants.
        #[test]
        fn every_arrival_is_counted_once(steps in proptest::collection::vec((any::<bool>(), 1..5u64), 1..80)) {
            let (mut counters, mut arrived, mut taken, mut open) = (ImmCounters::default(), 0u64, 0u64, None);
            for (number, (arrives, want)) in steps.into_iter().enumerate() {
                let ended = if arrives {
                    arrived += 1;
                    counters.arrived(PEER, 1)
                } else {
                    let asked = counters.expect(id(number as u64), (PEER, 1), want, NEVER);
                    prop_assert_eq!(asked.is_err(), open.is_some());
                    if asked.is_ok() {
                        open = Some((id(number as u64), want));
                    }
                    asked.unwrap_or(None)
                };
                let due = open.filter(|(_, want)| arrived - taken >= *want);
                prop_assert_eq!(ended, due.map(|(id, _)| (id, Ok(()))));
                if let Some((_, want)) = due {
                    (taken, open) = (taken + want, None);
                }
                prop_assert_eq!(counters.count(PEER, 1), arrived - taken);
            }
        }
    }
}
