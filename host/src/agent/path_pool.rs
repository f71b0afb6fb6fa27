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

use super::health::Health;
use super::path_ranking::{FailureHistory, Rank};
use crate::nanos::Nanos;
use crate::slots::{End, RailPair, rank};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::SLOTS_MAX;

/// Time between two looks over all channels.
const LOOK: Nanos = Nanos::millis(1);
/// How long a channel that works is left without a standby: a port that comes back soon costs nothing.
const DEMAND: Nanos = Nanos::millis(20);
/// A pair that failed so often in a row is one that does not come back by itself.
const FAILURES_MAX: u32 = 2;
/// A pair that was given up because it failed is not chosen for a home again for so long.
const FORGET: Nanos = Nanos::secs(10);

/// The pairs of rails that channels may use, and what each channel is short of.
#[derive(Default)]
pub(super) struct PathPool {
    /// Rails of each PE.
    rails: Vec<u32>,
    me: u32,
    /// By row of the channel table.
    rows: Vec<Shortage>,
    next_look: Nanos,
    /// Pairs of rails that failed.
    pub(super) history: FailureHistory,
}

/// What a channel is short of, and since when.
#[derive(Clone, Default)]
struct Shortage {
    /// It has no standby.
    standby_since: Option<Nanos>,
    /// A bound direction has no second pair to its home.
    home_standby_since: Option<Nanos>,
    /// A bound direction has none, nor one on its way.
    home_since: Option<Nanos>,
    /// Pairs that failed and were given up, and when.
    failed_candidates: Vec<(RailPair, Nanos)>,
}

/// A channel as a look finds it.
pub(super) struct ChannelView {
    pub peer: u32,
    pub channel: u32,
    /// Its row in the channel table.
    pub row: usize,
    pub slots: [Option<SlotView>; SLOTS_MAX],
    /// The slot that this direction is on.
    pub active: usize,
    /// What the directions that are bound want.
    pub wants: Vec<Want>,
    /// How long a sender has had no path to a home when it begins to press for it.
    pub pressing: Nanos,
}

/// What others know of pairs of rails.
pub(super) trait Prospects {
    /// True if the ports of a pair are not known to be down and its NIC here can make the next half of a slot.
    fn is_usable(&self, slot: usize, pair: RailPair) -> bool;
    /// Rails of a pair that are under suspicion.
    fn suspects(&self, pair: RailPair) -> usize;
}

/// A slot is to be given to another pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub slot: usize,
    /// The slot as it is.
    pub view: SlotView,
    pub to: RailPair,
    /// That pair has failed as well.
    pub to_failed: bool,
}

/// A slot as a look at its channel finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotView {
    pub pair: RailPair,
    pub health: Health,
    /// Neither port is known to be down.
    pub up: bool,
    /// Failures in a row, of these rails.
    pub failures: u32,
    /// It was given to these rails and has not been made there yet.
    pub untried: bool,
    /// The NIC here does not let go of the last half: nothing is made on it.
    pub stuck: bool,
    /// Where nothing works it is better not waited for.
    pub doubtful: bool,
}

impl SlotView {
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
fn patience(slots: &[Option<SlotView>], active: usize) -> u32 {
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
fn leading(slots: &[Option<SlotView>], want: Want, failures_max: u32) -> usize {
    let leads = |look: &&SlotView| want.is_met_by(look.pair) && look.serves(failures_max);
    slots.iter().flatten().filter(leads).count()
}

/// Which slot is to lead home from now on, where `leading` ones do. None while one is on its way out for that. The
/// `last` one that works is taken only where nothing leads home and the home does not move.
fn slot_to_give(
    slots: &[Option<SlotView>],
    active: usize,
    wants: impl Iterator<Item = Want> + Clone,
    leading: usize,
    last: bool,
) -> Option<usize> {
    let failures_max = patience(slots, active);
    // What leads home and does not work serves nobody.
    let leads = |look: &SlotView| wants.clone().any(|want| want.is_met_by(look.pair));
    let free = |(slot, look): &(usize, SlotView)| {
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

fn need(slots: &[Option<SlotView>], active: usize) -> Need {
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

/// The pair that promises most, the best ranked of equals, that no slot holds and that is `up`.
pub(super) fn next_pair<K: Ord>(
    ranked: &[RailPair],
    slots: &[Option<SlotView>],
    up: impl Fn(RailPair) -> bool,
    promise: impl Fn(RailPair) -> K,
) -> Option<RailPair> {
    let held = |pair: &RailPair| slots.iter().flatten().any(|look| look.pair == *pair);
    ranked.iter().copied().filter(|pair| !held(pair) && up(*pair)).min_by_key(|pair| promise(*pair))
}

impl PathPool {
    /// Of a PE that is `me`, and of `rows` channels; `rails` are those of each PE.
    pub(super) fn new(me: u32, rails: Vec<u32>, rows: usize) -> Self {
        let history = FailureHistory::new(rails.len());
        Self { rails, me, rows: vec![Shortage::default(); rows], next_look: Nanos::ZERO, history }
    }

    /// True if a PE has this rail.
    pub(super) fn has_rail(&self, pe: u32, rail: u32) -> bool {
        self.rails.get(pe as usize).is_some_and(|rails| rail < *rails)
    }

    /// True if this PE and a peer have these rails.
    pub(super) fn has(&self, peer: u32, pair: RailPair) -> bool {
        self.has_rail(self.me, pair.local) && self.has_rail(peer, pair.remote)
    }

    /// Every pair of rails of a channel, best first.
    pub(super) fn ranked(&self, peer: u32, channel: u32) -> Vec<RailPair> {
        let end = |pe: u32| End { pe, rails: self.rails[pe as usize] };
        rank(end(self.me), end(peer), channel)
    }

    /// What a pair of rails promises, of which so many are suspected.
    pub(super) fn rank(&self, peer: u32, pair: RailPair, suspects: usize) -> Rank {
        if Mutant::DeadRailsFirst.on() {
            return Rank::default();
        }
        self.history.rank(peer, pair, suspects)
    }

    /// True if it is time to look over all channels.
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + LOOK;
        true
    }

    /// Looks over a channel that this PE leads: the slots that are to be given to other pairs now.
    pub(super) fn look(
        &mut self,
        now: Nanos,
        mut channel: ChannelView,
        known: &dyn Prospects,
    ) -> Vec<Assignment> {
        let mut given: Vec<Assignment> = self.serve_homes(now, &mut channel, known).into_iter().collect();
        let need = need(&channel.slots, channel.active);
        let short = &mut self.rows[channel.row];
        if need == Need::None {
            short.standby_since = None;
            return given;
        }
        let since = *short.standby_since.get_or_insert(now);
        if need == Need::Standby && now < since + DEMAND {
            return given;
        }
        for slot in 1..SLOTS_MAX {
            if let Some(one) = self.give(now, &mut channel, slot, known) {
                given.push(one);
                if need == Need::Standby {
                    break;
                }
            }
        }
        given
    }

    /// Gives a slot to a pair that leads home, where a bound direction has too few.
    fn serve_homes(
        &mut self,
        now: Nanos,
        channel: &mut ChannelView,
        known: &dyn Prospects,
    ) -> Option<Assignment> {
        let wants = channel.wants.clone();
        let failures_max = patience(&channel.slots, channel.active);
        let counted = wants.iter().map(|want| (*want, leading(&channel.slots, *want, failures_max)));
        let few: Vec<(Want, usize)> = counted.filter(|(_, leading)| *leading < 2).collect();
        let stranded = few.iter().any(|(_, leading)| *leading == 0);
        let short = &mut self.rows[channel.row];
        let kept = short.home_since.filter(|_| stranded);
        short.home_since = kept.or(stranded.then_some(now));
        if few.is_empty() {
            short.home_standby_since = None;
            return None;
        }
        // As long again as it takes until a sender presses: then the home is not about to move.
        let last = kept.is_some_and(|since| now >= since + channel.pressing * 2);
        let since = *short.home_standby_since.get_or_insert(now);
        short.failed_candidates.retain(|(_, at)| now < *at + FORGET);
        for (want, leading) in few {
            if leading > 0 && now < since + DEMAND {
                continue;
            }
            let wanted = wants.iter().copied();
            let Some(slot) = slot_to_give(&channel.slots, channel.active, wanted, leading, last) else {
                continue;
            };
            let failed = &self.rows[channel.row].failed_candidates;
            let suits = |pair: &RailPair| want.is_met_by(*pair) && !failed.iter().any(|(was, _)| was == pair);
            let mut ranked = self.ranked(channel.peer, channel.channel);
            ranked.retain(suits);
            // One that leads home both ways serves both directions.
            ranked.sort_by_key(|pair| !wants.iter().all(|want| want.is_met_by(*pair)));
            let suspects = |pair| self.rank(channel.peer, pair, known.suspects(pair)).suspects;
            let usable = |pair| known.is_usable(slot, pair);
            if let Some(next) = next_pair(&ranked, &channel.slots, usable, suspects) {
                return self.assign(now, channel, slot, next, known);
            }
        }
        None
    }

    /// Gives a slot that does not come back by itself to another pair. One that lies ready on a dead port is fenced
    /// first: what is ready may be announced at any time.
    fn give(
        &mut self,
        now: Nanos,
        channel: &mut ChannelView,
        slot: usize,
        known: &dyn Prospects,
    ) -> Option<Assignment> {
        let (slots, active) = (&channel.slots, channel.active);
        let view = slots[slot]?;
        let failing = view.failures >= patience(slots, active);
        let takes = match view.health {
            Health::Ready => !view.up && slot != active,
            Health::Released => !view.up || failing || view.stuck,
            _ => false,
        };
        // Where nothing works, rails with something against them give way to better ones before they fail.
        let hurries = patience(slots, active) == 1 && view.health == Health::Released && view.doubtful;
        if !takes && !hurries {
            return None;
        }
        let promise = |pair| self.rank(channel.peer, pair, known.suspects(pair));
        let ranked = self.ranked(channel.peer, channel.channel);
        let next = next_pair(&ranked, slots, |pair| known.is_usable(slot, pair), promise)?;
        let mine = promise(view.pair);
        let mine = Rank { failed_at: mine.failed_at.filter(|_| !view.untried), ..mine };
        let better = promise(next).failed_at.is_none()
            && (mine.failed_at.is_some() || promise(next).suspects < mine.suspects);
        if !takes && !better {
            return None;
        }
        self.assign(now, channel, slot, next, known)
    }

    fn assign(
        &mut self,
        now: Nanos,
        channel: &mut ChannelView,
        slot: usize,
        to: RailPair,
        known: &dyn Prospects,
    ) -> Option<Assignment> {
        let view = channel.slots[slot]?;
        let at_once = view.health != Health::Ready;
        channel.slots[slot] = Some(SlotView { pair: to, untried: view.untried || at_once, ..view });
        if at_once && view.failures > 0 {
            let failed = &mut self.rows[channel.row].failed_candidates;
            failed.retain(|(was, _)| *was != view.pair);
            failed.push((view.pair, now));
        }
        let rank = self.rank(channel.peer, to, known.suspects(to));
        let to_failed = rank.failed_at.is_some() || Mutant::DeadRailsFirst.on();
        Some(Assignment { slot, view, to, to_failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(local: u32, remote: u32) -> RailPair {
        RailPair { local, remote }
    }

    fn look(rails: (u32, u32), health: Health, up: bool) -> Option<SlotView> {
        Some(SlotView {
            pair: pair(rails.0, rails.1),
            health,
            up,
            failures: 0,
            untried: false,
            stuck: false,
            doubtful: false,
        })
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
        let given = |slots: &[Option<SlotView>], active, last| {
            slot_to_give(slots, active, [want].into_iter(), leading(slots, want, FAILURES_MAX), last)
        };
        let give = |slots: &[Option<SlotView>], active| given(slots, active, false);
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
        let give = |slots: &[Option<SlotView>]| slot_to_give(slots, 0, wants.into_iter(), 0, false);
        let dead = look((0, 0), Health::Released, false);
        let one = |failures, stuck| {
            Some(SlotView { failures, stuck, ..look((1, 0), Health::Released, true).expect("a look") })
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
        let doubtful =
            Some(SlotView { doubtful: true, ..look((1, 1), Health::Probing, true).expect("a look") });
        assert_eq!(need(&[works, doubtful], 0), Need::None);
        assert_eq!(need(&[doubtful, doubtful], 0), Need::Path);
        assert_eq!(need(&[doubtful, look((2, 2), Health::Probing, true)], 0), Need::None, "it is on its way");
    }

    /// Every pair is usable, and nothing is suspected.
    struct Open;

    impl Prospects for Open {
        fn is_usable(&self, _slot: usize, _pair: RailPair) -> bool {
            true
        }
        fn suspects(&self, _pair: RailPair) -> usize {
            0
        }
    }

    #[test]
    fn a_channel_that_works_gets_another_standby_after_a_while_and_one_that_does_not_at_once() {
        let mut pool = PathPool::new(0, vec![4, 4], 2);
        let channel = |primary_up| {
            let mut slots = [None; SLOTS_MAX];
            slots[0] = look((0, 0), Health::Ready, primary_up);
            slots[1] = look((1, 1), Health::Released, false);
            ChannelView {
                peer: 1,
                channel: 0,
                row: 1,
                slots,
                active: 0,
                wants: vec![],
                pressing: Nanos::ZERO,
            }
        };
        let mut given = |now, up| pool.look(now, channel(up), &Open).first().map(|one| (one.slot, one.to));
        assert_eq!(given(Nanos::ZERO, true), None, "the port may come back");
        assert_eq!(given(DEMAND - Nanos::new(1), true), None);
        assert_eq!(given(DEMAND, true), Some((1, pair(2, 2))));
        assert_eq!(given(DEMAND + Nanos::new(1), false), Some((1, pair(2, 2))), "nothing works");
    }
}
