//! The chain: pairs of rails that were not made ahead are made when a channel has run out of others.
//!
//! A channel has a few slots and up to 64 pairs of rails. Where it has no ready standby left, the lower PE gives a slot
//! whose pair cannot come back to the best ranked pair that no slot holds and whose ports are up. The slot is made anew
//! by rule 17, under its next incarnation; `Make` carries the rails. Slot 0 keeps its pair: the channel goes back
//! there.
//!
//! A channel that is bound to a home (rule 16) wants two pairs that lead there. Where it has fewer, another slot is
//! given to the best such pair: at once if it has none, and for a second one only while a slot leads elsewhere, too.
//! One that failed gives way to any other pair: what the channel reaches then is where its home may move to. The last
//! pair that works stays until the home had its time to move there: the other direction may have nothing else.

use super::Agent;
use super::trial::{Standing, Trials};
use super::words::Place;
use super::worker::Urgency;
use crate::connect::card::HalfCard;
use crate::events::Event;
use crate::slots::{End, RailPair, rank};
use shunt_device::health::Health;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::SLOTS_MAX;

/// Time between two looks over all channels.
const LOOK_NS: u64 = 1_000_000;
/// How long a channel that works is left without a standby: a port that comes back soon costs nothing.
const DEMAND_NS: u64 = 20_000_000;
/// A pair that failed so often in a row is one that does not come back by itself.
const FAILURES_MAX: u32 = 2;
/// A pair that was given up because it failed is not chosen for a home again for so long.
const VAIN_NS: u64 = 10_000_000_000;

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
    /// By row: since when a bound direction has had no second pair to its home.
    unserved_ns: Vec<Option<u64>>,
    /// By row: since when a bound direction has had none, nor one on its way.
    stranded_ns: Vec<Option<u64>>,
    /// By row: pairs that failed and were given up, and when.
    vain: Vec<Vec<(RailPair, u64)>>,
    next_look_ns: u64,
    /// Pairs of rails that failed.
    pub(super) trials: Trials,
}

impl Chains {
    pub(super) fn new(rails: Vec<u32>, rows: usize) -> Self {
        let never = vec![None; rows];
        let (needy_ns, unserved_ns, stranded_ns) = (never.clone(), never.clone(), never);
        let (trials, vain) = (Trials::new(rails.len()), vec![Vec::new(); rows]);
        Self { rails, needy_ns, unserved_ns, stranded_ns, vain, next_look_ns: 0, trials }
    }

    /// True if a PE has this rail.
    pub(super) fn has_rail(&self, pe: u32, rail: u32) -> bool {
        self.rails.get(pe as usize).is_some_and(|rails| rail < *rails)
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
    /// Failures in a row, of these rails.
    failures: u32,
    /// The NIC here does not let go of the last half: nothing is made on it.
    stuck: bool,
    /// Where nothing works it is better not waited for.
    doubtful: bool,
}

impl Look {
    fn ready(&self) -> bool {
        self.health == Health::Ready && self.up
    }

    /// It will be ready again without being given to another pair.
    fn coming(&self, failures_max: u32) -> bool {
        let stays_away = matches!(self.health, Health::Ready | Health::Retired);
        !stays_away && self.up && !self.stuck && self.failures < failures_max
    }

    /// It works, or will.
    fn serves(&self, failures_max: u32) -> bool {
        self.ready() || self.coming(failures_max)
    }
}

/// Failures in a row after which a pair is not waited for: fewer if nothing else works.
fn patience(slots: &[Option<Look>], active: usize) -> u32 {
    let works = slots.get(active).copied().flatten().is_some_and(|look| look.ready());
    if works { FAILURES_MAX } else { 1 }
}

/// What a bound direction wants of a pair: that it leads to its home (rule 16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// From here: this rail of the peer.
    Remote(u32),
    /// To here: this rail of this PE.
    Local(u32),
}

impl Want {
    pub(super) fn is_met_by(self, pair: RailPair) -> bool {
        match self {
            Self::Remote(rail) => pair.remote == rail,
            Self::Local(rail) => pair.local == rail,
        }
    }
}

/// Slots that lead home, or will.
fn leading(slots: &[Option<Look>], want: Want, failures_max: u32) -> usize {
    let leads = |look: &&Look| want.is_met_by(look.pair) && look.serves(failures_max);
    slots.iter().flatten().filter(leads).count()
}

/// Which slot is to lead home from now on, where `leading` ones do. None while one is on its way out for that. The
/// `last` one that works is taken only where nothing leads home and the home does not move.
fn slot_to_give(
    slots: &[Option<Look>],
    active: usize,
    wants: impl Iterator<Item = Want> + Clone,
    leading: usize,
    last: bool,
) -> Option<usize> {
    let failures_max = patience(slots, active);
    // What leads home and does not work serves nobody.
    let leads = |look: &Look| wants.clone().any(|want| want.is_met_by(look.pair));
    let free = |(slot, look): &(usize, Look)| {
        *slot != 0
            && *slot != active
            && !(leads(look) && (look.serves(failures_max) || Mutant::UselessKept.on()))
    };
    let all = slots.iter().enumerate().filter_map(|(slot, look)| Some((slot, (*look)?))).filter(free);
    let of = |healths: &'static [Health]| all.clone().filter(|(_, look)| healths.contains(&look.health));
    if let Some((slot, _)) = of(&[Health::Released]).next() {
        return Some(slot);
    }
    let ready = of(&[Health::Ready]);
    let on_its_way = of(&[Health::Fencing, Health::Fenced]).next().is_some();
    // One that leads elsewhere stays, for when the home moves.
    let spare = leading == 0 || ready.clone().filter(|(_, look)| look.up).count() > 1;
    if on_its_way || !spare {
        return None;
    }
    let (slot, look) = ready.min_by_key(|(slot, look)| (look.up, usize::MAX - slot))?;
    let works = slots.iter().flatten().filter(|look| look.ready()).count();
    (last || works > 1 || !look.ready() || Mutant::LastGivenAway.on()).then_some(slot)
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
    let failures_max = patience(slots, active);
    let others = slots.iter().enumerate().filter(|(slot, _)| *slot != active || !works);
    let spare = others
        .filter_map(|(_, look)| *look)
        .any(|look| look.ready() || look.coming(failures_max) && (works || !look.doubtful));
    match (works, spare) {
        (_, true) => Need::None,
        (true, false) => Need::Standby,
        (false, false) => Need::Path,
    }
}

/// The pair that promises most, the best ranked of equals, that no slot holds and whose ports are up.
fn next_pair<K: Ord>(
    ranked: &[RailPair],
    slots: &[Option<Look>],
    up: impl Fn(RailPair) -> bool,
    promise: impl Fn(RailPair) -> K,
) -> Option<RailPair> {
    let held = |pair: &RailPair| slots.iter().flatten().any(|look| look.pair == *pair);
    ranked.iter().copied().filter(|pair| !held(pair) && up(*pair)).min_by_key(|pair| promise(*pair))
}

impl Agent {
    /// Looks over the channels that this PE leads.
    pub(super) fn mind_chains(&mut self) -> bool {
        let now = self.now();
        if now < self.chains.next_look_ns {
            return false;
        }
        self.chains.next_look_ns = now.saturating_add(LOOK_NS);
        let overlooked = (0..self.pairs.len()).filter(|index| self.fence_overlooked(*index)).count() > 0;
        let root = self.words.root();
        let (me, per, rows) = (root.my_pe, root.channels_per_pe, root.pe_count * root.channels_per_pe);
        let busy = (0..rows).filter(|row| me < row / per).filter(|row| self.mind_chain(*row)).count() > 0;
        overlooked || busy
    }

    fn mind_chain(&mut self, row: u32) -> bool {
        let (peer, channel) =
            (row / self.words.root().channels_per_pe, row % self.words.root().channels_per_pe);
        let mut looks = [None; SLOTS_MAX];
        let found = self.looks(Place { peer, channel, slot: 0 });
        looks.iter_mut().zip(found).for_each(|(look, found)| *look = found);
        let active = self.words.active_slot(peer, channel) as usize;
        let served = self.serve_homes(row, &mut looks, active);
        let (now, need) = (self.now(), need(&looks, active));
        if need == Need::None {
            self.chains.needy_ns[row as usize] = None;
            return served;
        }
        let since = *self.chains.needy_ns[row as usize].get_or_insert(now);
        if need == Need::Standby && now < since.saturating_add(DEMAND_NS) {
            return served;
        }
        let mut given = served;
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

    /// Gives a slot to a pair that leads home, where a bound direction has too few.
    fn serve_homes(&mut self, row: u32, looks: &mut [Option<Look>; SLOTS_MAX], active: usize) -> bool {
        let (wants, per, now) = (self.wants(row), self.words.root().channels_per_pe, self.now());
        let failures_max = patience(looks, active);
        let counted = wants.clone().map(|want| (want, leading(looks, want, failures_max)));
        let few: Vec<(Want, usize)> = counted.filter(|(_, leading)| *leading < 2).collect();
        let stranded = few.iter().any(|(_, leading)| *leading == 0);
        let kept = self.chains.stranded_ns[row as usize].filter(|_| stranded);
        self.chains.stranded_ns[row as usize] = kept.or(stranded.then_some(now));
        if few.is_empty() {
            self.chains.unserved_ns[row as usize] = None;
            return false;
        }
        // As long again as it takes until a sender presses: then the home is not about to move.
        let last = kept.is_some_and(|since| now >= since.saturating_add(2 * self.pressing_ns()));
        let since = *self.chains.unserved_ns[row as usize].get_or_insert(now);
        self.chains.vain[row as usize].retain(|(_, at_ns)| now < at_ns.saturating_add(VAIN_NS));
        for (want, leading) in few {
            if leading > 0 && now < since.saturating_add(DEMAND_NS) {
                continue;
            }
            let Some(slot) = slot_to_give(looks, active, wants.clone(), leading, last) else { continue };
            let at = Place { peer: row / per, channel: row % per, slot: slot as u32 };
            let vain = &self.chains.vain[row as usize];
            let suits = |pair: &RailPair| want.is_met_by(*pair) && !vain.iter().any(|(was, _)| was == pair);
            let mut ranked: Vec<RailPair> = self.ranked(at).into_iter().filter(suits).collect();
            // One that leads home both ways serves both directions.
            ranked.sort_by_key(|pair| !wants.clone().all(|want| want.is_met_by(*pair)));
            let suspects = |pair| self.standing(at.peer, pair).suspects;
            let Some(next) = self.next_up(at, &ranked, looks, suspects) else { continue };
            self.assign(at, looks, next);
            return true;
        }
        false
    }

    fn look_at(&self, at: Place) -> Option<Look> {
        let pair = self.pairs[self.index(at)].as_ref()?;
        let up = self.ports.up(pair.local_rail, at.peer, pair.remote_rail);
        let rails = RailPair { local: pair.local_rail, remote: pair.remote_rail };
        // Failures that it came with say nothing of rails it was not made on yet.
        let failures = if pair.untried { 0 } else { pair.failures };
        let stuck = self.is_stuck(self.index(at), pair.local_rail);
        let doubtful = pair.health != Health::Ready && self.is_doubtful(self.index(at));
        Some(Look { pair: rails, health: pair.health, up, failures, stuck, doubtful })
    }

    /// Gives a slot that does not come back by itself to another pair. One that lies ready on a dead port is fenced
    /// first: what is ready may be announced at any time.
    fn give(&mut self, at: Place, looks: &mut [Option<Look>; SLOTS_MAX], active: usize) -> bool {
        let Some(look) = looks[at.slot as usize] else { return false };
        let failing = look.failures >= patience(looks, active);
        let takes = match look.health {
            Health::Ready => !look.up && at.slot as usize != active,
            Health::Released => !look.up || failing || look.stuck,
            _ => false,
        };
        // Where nothing works, rails with something against them give way to better ones before they fail.
        let hurries = patience(looks, active) == 1 && look.health == Health::Released && look.doubtful;
        if !takes && !hurries {
            return false;
        }
        let promise = |pair| self.standing(at.peer, pair);
        let Some(next) = self.next_up(at, &self.ranked(at), looks, promise) else { return false };
        let untried = self.pairs[self.index(at)].as_ref().is_some_and(|pair| pair.untried);
        let mine = promise(look.pair);
        let mine = Standing { failed_ns: mine.failed_ns.filter(|_| !untried), ..mine };
        let better = promise(next).failed_ns.is_none()
            && (mine.failed_ns.is_some() || promise(next).suspects < mine.suspects);
        if !takes && !better {
            return false;
        }
        self.assign(at, looks, next);
        true
    }

    /// Every pair of rails of a channel, best first.
    fn ranked(&self, at: Place) -> Vec<RailPair> {
        let end = |pe: u32| End { pe, rails: self.chains.rails[pe as usize] };
        rank(end(self.words.root().my_pe), end(at.peer), at.channel)
    }

    fn next_up<K: Ord>(
        &self,
        at: Place,
        ranked: &[RailPair],
        looks: &[Option<Look>],
        promise: impl Fn(RailPair) -> K,
    ) -> Option<RailPair> {
        let index = self.index(at);
        let up = |pair: RailPair| {
            self.ports.up(pair.local, at.peer, pair.remote) && !self.is_stuck(index, pair.local)
        };
        next_pair(ranked, looks, up, promise)
    }

    /// True if a slot may be given to some other pair.
    pub(super) fn has_other_rails(&self, at: Place) -> bool {
        let looks: Vec<_> = self.looks(at).collect();
        self.next_up(at, &self.ranked(at), &looks, |_| ()).is_some()
    }

    /// Every slot of a channel.
    fn looks(&self, at: Place) -> impl Iterator<Item = Option<Look>> {
        (0..self.words.root().slots).map(move |slot| self.look_at(Place { slot, ..at }))
    }

    /// Gives a slot that is released to another pair; one that is ready is left and fenced first, and given in a later
    /// look.
    fn assign(&mut self, at: Place, looks: &mut [Option<Look>; SLOTS_MAX], next: RailPair) {
        let Some(look) = looks[at.slot as usize] else { return };
        let index = self.index(at);
        looks[at.slot as usize] = Some(Look { pair: next, ..look });
        if look.health == Health::Ready {
            let works = look.up && !Mutant::SlotTakenUnasked.on();
            return if works { self.vacate(index) } else { self.fence_asked(index, Urgency::Idle) };
        }
        if look.failures > 0 {
            let row = at.peer * self.words.root().channels_per_pe + at.channel;
            let now = self.now();
            let vain = &mut self.chains.vain[row as usize];
            vain.retain(|(was, _)| *was != look.pair);
            vain.push((look.pair, now));
        }
        let was = self.route(index);
        let failed = self.standing(at.peer, next).failed_ns.is_some() || Mutant::DeadRailsFirst.on();
        if let Some(pair) = &mut self.pairs[index] {
            (pair.local_rail, pair.remote_rail) = (next.local, next.remote);
            pair.untried = true;
            // What failed was another pair. Where no pair is left that did not fail, the pauses grow all the same.
            pair.failures = if look.up && failed { pair.failures } else { 0 };
        }
        self.report(Event::SlotAssigned { at: was, local_rail: next.local, remote_rail: next.remote });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(local: u32, remote: u32) -> RailPair {
        RailPair { local, remote }
    }

    fn look(rails: (u32, u32), health: Health, up: bool) -> Option<Look> {
        Some(Look { pair: pair(rails.0, rails.1), health, up, failures: 0, stuck: false, doubtful: false })
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
        assert_eq!(next_pair(&ranked, &slots, |_| true, |_| ()), Some(pair(2, 2)));
        assert_eq!(next_pair(&ranked, &slots, |p| p.local == 7 && p.remote == 3, |_| ()), Some(pair(7, 3)));
        assert_eq!(next_pair(&ranked, &slots, |p| p.local == 1 && p.remote == 1, |_| ()), None, "it is held");
        assert_eq!(next_pair(&ranked, &slots, |_| false, |_| ()), None);
    }

    #[test]
    fn a_bound_direction_gets_two_pairs_to_its_home() {
        let want = Want::Remote(0);
        let given = |slots: &[Option<Look>], active, last| {
            slot_to_give(slots, active, [want].into_iter(), leading(slots, want, FAILURES_MAX), last)
        };
        let give = |slots: &[Option<Look>], active| given(slots, active, false);
        let primary = look((0, 0), Health::Ready, true);
        let dead = look((0, 0), Health::Ready, false);
        let (one, two) = (look((1, 1), Health::Ready, true), look((2, 2), Health::Ready, true));
        assert_eq!(leading(&[primary, look((1, 0), Health::Probing, true)], want, FAILURES_MAX), 2);
        assert_eq!(
            give(&[primary, one, two], 0),
            Some(2),
            "the last one; another stays for the home to move to"
        );
        assert_eq!(give(&[primary, one], 0), None, "what is left leads elsewhere");
        assert_eq!(give(&[dead, one], 0), None, "the last that works; the home may move there");
        assert_eq!(given(&[dead, one], 0, true), Some(1), "nothing leads home, and it does not move");
        assert_eq!(give(&[dead, one, two], 0), Some(2), "nothing leads home");
        let down = look((1, 1), Health::Ready, false);
        assert_eq!(give(&[dead, down], 0), Some(1), "it does not work");
        assert_eq!(give(&[dead, one, two], 2), Some(1), "not the one in use");
        assert_eq!(give(&[dead, look((1, 1), Health::Fencing, true), two], 0), None, "one is on its way");
        assert_eq!(give(&[dead, look((1, 1), Health::Released, true), two], 0), Some(1));
        let other = [want, Want::Local(2)].into_iter();
        assert_eq!(
            slot_to_give(&[dead, one, two], 0, other, 0, true),
            Some(1),
            "the other direction's is not taken"
        );
    }

    #[test]
    fn what_leads_home_and_does_not_work_is_given_away() {
        let wants = [Want::Remote(1), Want::Local(1)];
        let give = |slots: &[Option<Look>]| slot_to_give(slots, 0, wants.into_iter(), 0, false);
        let dead = look((0, 0), Health::Released, false);
        let one = |failures, stuck| {
            Some(Look { failures, stuck, ..look((1, 0), Health::Released, true).expect("a look") })
        };
        assert_eq!(give(&[dead, one(0, false)]), None, "it is on its way");
        assert_eq!(give(&[dead, one(1, false)]), Some(1), "it failed");
        assert_eq!(give(&[dead, one(0, true)]), Some(1), "its NIC does not let go");
        assert_eq!(give(&[look((0, 0), Health::Ready, true), one(1, false)]), None, "there is time");
        assert_eq!(need(&[dead, one(0, true)], 0), Need::Path, "it is not on its way");
    }

    #[test]
    fn what_is_in_doubt_is_waited_for_only_where_something_works() {
        let works = look((0, 0), Health::Ready, true);
        let doubtful = Some(Look { doubtful: true, ..look((1, 1), Health::Probing, true).expect("a look") });
        assert_eq!(need(&[works, doubtful], 0), Need::None);
        assert_eq!(need(&[doubtful, doubtful], 0), Need::Path);
        assert_eq!(need(&[doubtful, look((2, 2), Health::Probing, true)], 0), Need::None, "it is on its way");
    }
}
