//! The chain: pairs of rails that were not made ahead are made when a channel has run out of others.
//!
//! A channel has a few slots and up to 64 pairs of rails. Where it has no ready standby left, the lower PE gives a slot
//! whose pair cannot come back to the best ranked pair that no slot holds and whose ports are up. The slot is made anew
//! by rule 17, under its next incarnation; `Make` carries the rails. Slot 0 keeps its pair: the channel goes back
//! there.

use super::Agent;
use super::words::Place;
use super::worker::Urgency;
use crate::connect::card::HalfCard;
use crate::events::Event;
use crate::slots::{End, RailPair, rank};
use shunt_device::health::Health;
use shunt_layout::state::SLOTS_MAX;

/// Time between two looks over all channels.
const LOOK_NS: u64 = 1_000_000;
/// How long a channel that works is left without a standby: a port that comes back soon costs nothing.
const DEMAND_NS: u64 = 20_000_000;
/// A pair that failed so often in a row is one that does not come back by itself.
const FAILURES_MAX: u32 = 2;

/// An offer to make a pair anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The leader's half, on its rail.
    pub card: HalfCard,
    /// The rail of this end that it wants the other half on.
    pub rail: u32,
}

/// What the agent keeps of the chains.
pub(super) struct Chains {
    /// Rails of each PE.
    rails: Vec<u32>,
    /// By row of the channel table: since when the channel has had no standby.
    needy_ns: Vec<Option<u64>>,
    next_look_ns: u64,
}

impl Chains {
    pub(super) fn new(rails: Vec<u32>, rows: usize) -> Self {
        Self { rails, needy_ns: vec![None; rows], next_look_ns: 0 }
    }

    /// True if a peer may name these rails of itself and of this PE.
    pub(super) fn has(&self, me: u32, offer: &Offer, peer: u32) -> bool {
        offer.rail < self.rails[me as usize] && offer.card.rail.index < self.rails[peer as usize]
    }
}

/// A slot as a look at its channel finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    pair: RailPair,
    health: Health,
    /// Neither port is known to be down.
    up: bool,
    failures: u32,
}

impl Look {
    fn ready(&self) -> bool {
        self.health == Health::Ready && self.up
    }

    /// It will be ready again without being given to another pair.
    fn coming(&self, failures_max: u32) -> bool {
        let stays_away = matches!(self.health, Health::Ready | Health::Retired);
        !stays_away && self.up && self.failures < failures_max
    }
}

/// What a channel's slots call for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// There is a standby, or one is on its way.
    None,
    /// The channel works, and would stop with one more fault.
    Standby,
    /// Nothing works.
    Path,
}

fn need(slots: &[Option<Look>], active: usize) -> Need {
    let works = slots.get(active).copied().flatten().is_some_and(|look| look.ready());
    let failures_max = if works { FAILURES_MAX } else { 1 };
    let others = slots.iter().enumerate().filter(|(slot, _)| *slot != active || !works);
    let spare = others.filter_map(|(_, look)| *look).any(|look| look.ready() || look.coming(failures_max));
    match (works, spare) {
        (_, true) => Need::None,
        (true, false) => Need::Standby,
        (false, false) => Need::Path,
    }
}

/// The best ranked pair that no slot holds and whose ports are up; after `after`, and then from the start.
fn next_pair(
    ranked: &[RailPair],
    slots: &[Option<Look>],
    after: Option<RailPair>,
    up: impl Fn(RailPair) -> bool,
) -> Option<RailPair> {
    let held = |pair: &RailPair| slots.iter().flatten().any(|look| look.pair == *pair);
    let start = after.and_then(|after| ranked.iter().position(|pair| *pair == after)).map_or(0, |at| at + 1);
    let turned = ranked[start..].iter().chain(&ranked[..start]);
    turned.copied().find(|pair| !held(pair) && up(*pair))
}

impl Agent {
    /// Looks over the channels that this PE leads.
    pub(super) fn mind_chains(&mut self) -> bool {
        let now = self.now();
        if now < self.chains.next_look_ns {
            return false;
        }
        self.chains.next_look_ns = now.saturating_add(LOOK_NS);
        let root = self.words.root();
        let (me, per, rows) = (root.my_pe, root.channels_per_pe, root.pe_count * root.channels_per_pe);
        (0..rows).filter(|row| me < row / per).map(|row| self.mind_chain(row)).filter(|busy| *busy).count()
            > 0
    }

    fn mind_chain(&mut self, row: u32) -> bool {
        let (peer, channel) =
            (row / self.words.root().channels_per_pe, row % self.words.root().channels_per_pe);
        let mut looks = [None; SLOTS_MAX];
        for (slot, look) in (0..self.words.root().slots).zip(&mut looks) {
            *look = self.look_at(Place { peer, channel, slot });
        }
        let active = self.words.active_slot(peer, channel) as usize;
        let (now, need) = (self.now(), need(&looks, active));
        if need == Need::None {
            self.chains.needy_ns[row as usize] = None;
            return false;
        }
        let since = *self.chains.needy_ns[row as usize].get_or_insert(now);
        if need == Need::Standby && now < since.saturating_add(DEMAND_NS) {
            return false;
        }
        let mut given = false;
        for slot in 1..self.words.root().slots {
            if self.give(Place { peer, channel, slot }, &mut looks, active) {
                given = true;
                if need == Need::Standby {
                    break;
                }
            }
        }
        given
    }

    fn look_at(&self, at: Place) -> Option<Look> {
        let pair = self.pairs[self.index(at)].as_ref()?;
        let up = self.ports.up(pair.local_rail, at.peer, pair.remote_rail);
        let rails = RailPair { local: pair.local_rail, remote: pair.remote_rail };
        Some(Look { pair: rails, health: pair.health, up, failures: pair.failures })
    }

    /// Gives a slot that does not come back by itself to another pair. One that lies ready on a dead port is fenced
    /// first: what is ready may be announced at any time.
    fn give(&mut self, at: Place, looks: &mut [Option<Look>; SLOTS_MAX], active: usize) -> bool {
        let Some(look) = looks[at.slot as usize] else { return false };
        // Failures that it came with say nothing of rails it was not made on yet.
        let untried = self.pairs[self.index(at)].as_ref().is_some_and(|pair| pair.untried);
        let failing = look.failures >= FAILURES_MAX && !untried;
        let takes = match look.health {
            Health::Ready => !look.up && at.slot as usize != active,
            Health::Released => !look.up || failing,
            _ => false,
        };
        if !takes {
            return false;
        }
        let me = self.words.root().my_pe;
        let end = |pe: u32| End { pe, rails: self.chains.rails[pe as usize] };
        let ranked = rank(end(me), end(at.peer), at.channel);
        let after = failing.then_some(look.pair);
        let up = |pair: RailPair| self.ports.up(pair.local, at.peer, pair.remote);
        let Some(next) = next_pair(&ranked, looks, after, up) else { return false };
        let index = self.index(at);
        looks[at.slot as usize] = Some(Look { pair: next, ..look });
        if look.health == Health::Ready {
            self.fence_asked(index, Urgency::Idle);
            return true;
        }
        let was = self.route(index);
        if let Some(pair) = &mut self.pairs[index] {
            (pair.local_rail, pair.remote_rail) = (next.local, next.remote);
            pair.untried = true;
            // What failed was another pair. Where nothing is known to be wrong, the pauses grow all the same.
            pair.failures = if look.up { pair.failures } else { 0 };
        }
        self.report(Event::SlotAssigned { at: was, local_rail: next.local, remote_rail: next.remote });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(local: u32, remote: u32) -> RailPair {
        RailPair { local, remote }
    }

    fn look(rails: (u32, u32), health: Health, up: bool) -> Option<Look> {
        Some(Look { pair: pair(rails.0, rails.1), health, up, failures: 0 })
    }

    #[test]
    fn a_channel_needs_a_standby_or_a_path() {
        let (works, dead) = (look((0, 0), Health::Ready, true), look((1, 1), Health::Ready, false));
        assert_eq!(need(&[works, look((1, 1), Health::Ready, true)], 0), Need::None);
        assert_eq!(need(&[works, look((1, 1), Health::Probing, true)], 0), Need::None, "it is on its way");
        assert_eq!(need(&[works, dead], 0), Need::Standby);
        assert_eq!(need(&[works, look((1, 1), Health::Retired, true)], 0), Need::Standby);
        assert_eq!(need(&[dead, look((1, 1), Health::Released, false)], 0), Need::Path);
        assert_eq!(need(&[dead, works, dead], 1), Need::Standby);
        let mut failing = look((2, 2), Health::Released, true);
        failing.as_mut().expect("a look").failures = FAILURES_MAX;
        assert_eq!(need(&[works, dead, failing], 0), Need::Standby);
    }

    #[test]
    fn the_best_pair_that_nobody_holds_and_whose_ports_are_up() {
        let ranked = rank(End { pe: 0, rails: 8 }, End { pe: 1, rails: 8 }, 0);
        let slots = [look((0, 0), Health::Ready, false), look((1, 1), Health::Released, false)];
        assert_eq!(next_pair(&ranked, &slots, None, |_| true), Some(pair(2, 2)));
        assert_eq!(next_pair(&ranked, &slots, None, |p| p.local == 7 && p.remote == 3), Some(pair(7, 3)));
        assert_eq!(next_pair(&ranked, &slots, None, |p| p.local == 1 && p.remote == 1), None, "it is held");
        assert_eq!(next_pair(&ranked, &slots, None, |_| false), None);
    }

    #[test]
    fn what_fails_gives_way_to_each_other_pair_in_turn() {
        let ranked = rank(End { pe: 0, rails: 3 }, End { pe: 1, rails: 3 }, 1);
        let mut slots = [look((1, 1), Health::Ready, true), look((2, 2), Health::Released, true)];
        let mut seen = vec![slots[1].expect("a look").pair];
        for _ in 0..7 {
            let now = slots[1].expect("a look").pair;
            let next = next_pair(&ranked, &slots, Some(now), |_| true).expect("a pair");
            slots[1] = look((next.local, next.remote), Health::Released, true);
            seen.push(next);
        }
        seen.sort_by_key(|pair| (pair.local, pair.remote));
        seen.dedup();
        assert_eq!(seen.len(), 8, "all but the primary");
    }
}
