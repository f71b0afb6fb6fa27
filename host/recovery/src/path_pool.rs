//! The chain: pairs of rails that were not made ahead are made when a channel has run out of others.
//!
//! A channel has a few slots and up to 64 pairs of rails. Where it has no ready standby left, the lower PE gives a slot
//! whose pair cannot come back to the best ranked pair that no slot holds and whose ports are up. The slot is recreated
//! by rule 17, under its next incarnation; `Make` carries the rails. Slot 0 keeps its pair: the channel goes back
//! there.
//!
//! A channel that is bound to a home (rule 16) wants two pairs that lead there. Where it has fewer, another slot is
//! given to the best such pair: at once if it has none, and for a second one only while a slot leads elsewhere, too.
//! One that failed gives way to any other pair: what the channel reaches then is where its home may move to. The last
//! pair that works stays until the home had its time to move there: the other direction may have nothing else.

use super::health::Health;
use super::path_ranking::{FailureHistory, Rank};
use super::path_slots::{Need, SlotView, Want, leading, need, next_pair, patience, slot_to_give};
use crate::nanos::Nanos;
use crate::slots::{End, RailPair, rank};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::SLOTS_MAX;

/// Time between two looks over all channels.
const LOOK: Nanos = Nanos::millis(1);
/// How long a channel that works is left without a standby: a port that comes back soon costs nothing.
const DEMAND: Nanos = Nanos::millis(20);
/// A pair that was given up because it failed is not chosen for a home again for so long.
const FORGET: Nanos = Nanos::secs(10);
/// A pair is tried under so many numbers in a row before it gives way to one that failed as well.
const TRIES: u32 = 2;

/// The pairs of rails that channels may use, and what each channel is short of.
#[derive(Default)]
pub struct PathPool {
    /// Rails of each PE.
    rails: Vec<u32>,
    me: u32,
    /// By row of the channel table.
    rows: Vec<Shortage>,
    next_look: Nanos,
    /// Pairs of rails that failed.
    pub history: FailureHistory,
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
pub struct ChannelView {
    /// The peer.
    pub peer: u32,
    /// Index of the channel.
    pub channel: u32,
    /// Its row in the channel table.
    pub row: usize,
    /// Its slots.
    pub slots: [Option<SlotView>; SLOTS_MAX],
    /// The slot that this direction is on.
    pub active: usize,
    /// What the directions that are bound want.
    pub wants: Vec<Want>,
    /// How long a sender has had no path to a home when it begins to press for it.
    pub pressing: Nanos,
}

/// A look at a channel, and how far it is.
pub struct ChannelLook {
    channel: ChannelView,
    stage: Stage,
}

impl From<ChannelView> for ChannelLook {
    fn from(channel: ChannelView) -> Self {
        Self { channel, stage: Stage::Homes }
    }
}

/// What comes next in a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Bound directions.
    Homes,
    /// What the channel is short of.
    Need,
    /// This slot, in so much need.
    Slots(usize, Need),
    /// Nothing.
    Over,
}

/// What others know of pairs of rails.
pub trait Prospects {
    /// True if the ports of a pair are not known to be down and its NIC here can make the next half of a slot.
    fn is_usable(&self, slot: usize, pair: RailPair) -> bool;
    /// Rails of a pair that are under suspicion.
    fn suspects(&self, pair: RailPair) -> usize;
}

/// A slot is to be given to another pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The slot.
    pub slot: usize,
    /// The slot as it is.
    pub view: SlotView,
    /// The pair of rails that it is given to.
    pub to: RailPair,
    /// That pair has failed as well.
    pub to_failed: bool,
}

impl PathPool {
    /// Of a PE that is `me`, and of `rows` channels; `rails` are those of each PE.
    pub fn new(me: u32, rails: Vec<u32>, rows: usize) -> Self {
        let history = FailureHistory::new(rails.len());
        Self { rails, me, rows: vec![Shortage::default(); rows], next_look: Nanos::ZERO, history }
    }

    /// True if a PE has this rail.
    pub fn has_rail(&self, pe: u32, rail: u32) -> bool {
        self.rails.get(pe as usize).is_some_and(|rails| rail < *rails)
    }

    /// True if this PE and a peer have these rails.
    pub fn has(&self, peer: u32, pair: RailPair) -> bool {
        self.has_rail(self.me, pair.local) && self.has_rail(peer, pair.remote)
    }

    /// Every pair of rails of a channel, best first.
    pub fn ranked(&self, peer: u32, channel: u32) -> Vec<RailPair> {
        let end = |pe: u32| End { pe, rails: self.rails[pe as usize] };
        rank(end(self.me), end(peer), channel)
    }

    /// What a pair of rails promises, of which so many are suspected.
    pub fn rank(&self, peer: u32, pair: RailPair, suspects: usize) -> Rank {
        if Mutant::DeadRailsFirst.on() {
            return Rank::default();
        }
        self.history.rank(peer, pair, suspects)
    }

    /// True if it is time to look over all channels.
    pub fn is_due(&mut self, now: Nanos) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + LOOK;
        true
    }

    /// A channel, by its row, has all it wants: what [`Self::next`] would find of one whose paths are all well.
    pub fn suffices(&mut self, row: usize) {
        let short = &mut self.rows[row];
        (short.standby_since, short.home_standby_since, short.home_since) = (None, None, None);
    }

    /// The next slot in a look over a channel that this PE leads which is to be given to another pair. It is done
    /// before the one after it is asked for: what is known may change by it.
    pub fn next(&mut self, now: Nanos, look: &mut ChannelLook, known: &dyn Prospects) -> Option<Assignment> {
        if look.stage == Stage::Homes {
            look.stage = Stage::Need;
            let one = self.serve_homes(now, &mut look.channel, known);
            if one.is_some() {
                return one;
            }
        }
        if look.stage == Stage::Need {
            look.stage = self.need_of(now, &look.channel);
        }
        while let Stage::Slots(slot, need) = look.stage {
            look.stage = if slot + 1 < SLOTS_MAX { Stage::Slots(slot + 1, need) } else { Stage::Over };
            let one = self.give(now, &mut look.channel, slot, known);
            if one.is_some() {
                // A channel that works gets one at a time.
                if need == Need::Standby {
                    look.stage = Stage::Over;
                }
                return one;
            }
        }
        None
    }

    /// Where a look goes on once its homes are served.
    fn need_of(&mut self, now: Nanos, channel: &ChannelView) -> Stage {
        let need = need(&channel.slots, channel.active);
        let short = &mut self.rows[channel.row];
        if need == Need::None {
            short.standby_since = None;
            return Stage::Over;
        }
        let since = *short.standby_since.get_or_insert(now);
        if need == Need::Standby && now < since + DEMAND { Stage::Over } else { Stage::Slots(1, need) }
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

    /// Gives a slot that does not come back by itself to another pair. One that lies ready on a dead port, or over a
    /// NIC that is mute, is fenced first: what is ready may be announced at any time. Where both its rails are suspects
    /// that would only keep the slot.
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
        let lies = view.health == Health::Ready && view.last_resort && slot != active;
        let fenceable = lies && known.suspects(view.pair) == 1;
        if !takes && !hurries && !fenceable {
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
        // What failed once may have failed by chance.
        let once = view.health == Health::Released && view.up && !view.stuck && view.failures < TRIES;
        if once && promise(next).failed_at.is_some() {
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
    use crate::path_slots::described::{look, pair};

    /// Every pair is usable, and the first rail of this end is mute.
    struct Mute;

    impl Prospects for Mute {
        fn is_usable(&self, _slot: usize, _pair: RailPair) -> bool {
            true
        }
        fn suspects(&self, pair: RailPair) -> usize {
            usize::from(pair.local == 0) + usize::from(pair.remote == 3)
        }
    }

    /// A standby over the NIC that the channel left was waited for, for half of the give-up time.
    #[test]
    fn a_standby_over_a_nic_that_is_mute_gives_way_unless_both_rails_are_suspects() {
        for (remote, expected) in [(1, Some((1, 1))), (3, None)] {
            let mut slots = [None; SLOTS_MAX];
            // Made again on that NIC, it is not waited for.
            slots[0] = look((0, 0), Health::Fenced, true).map(|one| SlotView { doubtful: true, ..one });
            slots[1] =
                look((0, remote), Health::Ready, true).map(|one| SlotView { last_resort: true, ..one });
            let (wants, pressing) = (vec![], Nanos::ZERO);
            let channel = ChannelView { peer: 1, channel: 0, row: 1, slots, active: 0, wants, pressing };
            let mut pool = PathPool::new(0, vec![2, 4], 2);
            let given = pool.next(Nanos::ZERO, &mut channel.into(), &Mute).map(|one| (one.slot, one.to));
            assert_eq!(given.map(|(slot, to)| (slot, to.local)), expected);
        }
    }

    /// Channels whose paths are all well are not looked at: one that lost its standby long ago and has another since
    /// then is not short of it from back then.
    #[test]
    fn what_a_channel_was_short_of_before_it_was_well_is_forgotten() {
        let look_at = |pool: &mut PathPool, at: u64| {
            let mut slots = [None; SLOTS_MAX];
            slots[0] = look((0, 0), Health::Ready, true);
            slots[1] = look((1, 1), Health::Ready, false);
            let (wants, pressing) = (vec![], Nanos::ZERO);
            let channel = ChannelView { peer: 1, channel: 0, row: 1, slots, active: 0, wants, pressing };
            pool.next(Nanos::millis(at), &mut channel.into(), &Open).is_some()
        };
        let mut pool = PathPool::new(0, vec![2, 4], 2);
        assert!(!look_at(&mut pool, 0), "it may come back soon");
        pool.suffices(1);
        assert!(!look_at(&mut pool, 1000), "nor is this one waited for less long");
        assert!(look_at(&mut pool, 1020));
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
        let mut given =
            |now, up| pool.next(now, &mut channel(up).into(), &Open).map(|one| (one.slot, one.to));
        assert_eq!(given(Nanos::ZERO, true), None, "the port may come back");
        assert_eq!(given(DEMAND - Nanos::new(1), true), None);
        assert_eq!(given(DEMAND, true), Some((1, pair(2, 2))));
        assert_eq!(given(DEMAND + Nanos::new(1), false), Some((1, pair(2, 2))), "nothing works");
    }

    #[test]
    fn a_channel_that_works_gets_one_pair_in_a_look_and_one_that_does_not_as_many_as_it_has_slots() {
        let look_at = |primary_up| {
            let mut slots = [None; SLOTS_MAX];
            slots[0] = look((0, 0), Health::Ready, primary_up);
            (1..3).for_each(|slot| slots[slot] = look((slot as u32, slot as u32), Health::Released, false));
            let (wants, pressing) = (vec![], Nanos::ZERO);
            ChannelLook::from(ChannelView { peer: 1, channel: 0, row: 1, slots, active: 0, wants, pressing })
        };
        for (primary_up, expected) in [(true, vec![1]), (false, vec![1, 2])] {
            let mut pool = PathPool::new(0, vec![8, 8], 2);
            assert!(pool.next(Nanos::ZERO, &mut look_at(true), &Open).is_none(), "it has time");
            let mut look = look_at(primary_up);
            let slots = std::iter::from_fn(|| pool.next(DEMAND, &mut look, &Open)).map(|one| one.slot);
            assert_eq!(slots.collect::<Vec<_>>(), expected, "primary up: {primary_up}");
        }
    }
}
