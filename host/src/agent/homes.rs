//! Homes: through which rail of a PE the words that many write take their atomics. Rule 16; F10.
//!
//! Each PE keeps one home for each channel index, in the row of its channel table that leads to itself; what it knows
//! of its peers' homes lies in the rows that lead there, where device code reads it. A home moves when a sender asks
//! that has no path to it. First every pair of that channel index on the old rail is fenced, of all peers, standby ones
//! too, and none is made anew meanwhile; once each is proven silent, the next version is told to all. A pair that is
//! made later carries it, so that nobody can use one under an older version. A home does not move back by itself.

use super::Agent;
use super::chain::Want;
use super::message::{Home, Message, SideTruth};
use super::pair::{Pair, Task};
use super::rails::Reach;
use super::words::Place;
use super::worker::Urgency;
use crate::events::Event;
use shunt_device::health::Health;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::Step;

/// Time between two looks over all bound channels.
const LOOK_NS: u64 = 500_000;
/// First pause before a home is asked for again; doubled each time.
const ASK_NS: u64 = 2_000_000;
/// Doublings of that pause at most.
const ASK_DOUBLINGS: u32 = 5;
/// A sender that has had no path to a home for so long presses, and the home moves though its rail seems to work. A
/// quarter of the give-up time, if that is less.
const PRESSING_NS: u64 = 150_000_000;

/// A bound channel without a path to its home, or with none that it could open on.
#[derive(Clone, Copy)]
struct Away {
    since_ns: u64,
    next_ns: u64,
    asked: u32,
}

/// What the agent keeps of homes beyond the words that device code reads.
pub(super) struct Homes {
    /// By channel index: the home of this PE is moving. Rails that those who asked have paths to, a bit each.
    moving: Vec<Option<u32>>,
    /// By row of the channel table.
    away: Vec<Option<Away>>,
    /// By row: the peer said that its direction is bound.
    bound_there: Vec<bool>,
    /// By pair: rails of this PE on which an older half was never proven silent, a bit each.
    haunted: Vec<u32>,
    next_look_ns: u64,
}

impl Homes {
    pub(super) fn new(channels: usize, rows: usize, haunted: Vec<u32>) -> Self {
        Self {
            moving: vec![None; channels],
            away: vec![None; rows],
            bound_there: vec![false; rows],
            haunted,
            next_look_ns: 0,
        }
    }
}

/// True if a fence of this half, or what came of it, is proof: what came through it has landed, and nothing comes any
/// more. At `age_ns` of its agent.
fn is_proven(pair: &Pair, age_ns: u64, lifetime_ns: u64) -> bool {
    let over = |since_ns: u64| age_ns >= since_ns.saturating_add(lifetime_ns);
    match (pair.mine, pair.theirs) {
        (Some(SideTruth::Exact { .. } | SideTruth::Fenced | SideTruth::Unknown), _) => true,
        (Some(SideTruth::Unflushed), _) => over(pair.fenced_age_ns),
        (Some(SideTruth::Dead), Some(SideTruth::Dead) | None) => false,
        // The NIC says nothing; but nothing new leaves the other half, and what had left is gone.
        (Some(SideTruth::Dead), Some(_)) => over(pair.theirs_age_ns),
        // Never made.
        (None, _) => pair.half.is_none() && pair.health == Health::Retired,
    }
}

/// True if nothing can come through this half.
fn is_silent(pair: &Pair, age_ns: u64, lifetime_ns: u64) -> bool {
    let alive = matches!(pair.health, Health::Ready | Health::Connecting | Health::Probing);
    !alive && is_proven(pair, age_ns, lifetime_ns)
}

/// The NIC could not fence this half, and has nothing in hand for it.
fn is_lost(pair: &Pair) -> bool {
    pair.mine == Some(SideTruth::Dead) && pair.task == Task::None
}

/// True if such a half was put away, and a packet lifetime has passed since a half of this pair was last destroyed.
/// While its own NIC still has it, that rail is haunted.
fn is_gone(pair: &Pair, age_ns: u64, lifetime_ns: u64) -> bool {
    let rests = matches!(pair.health, Health::Fenced | Health::Released | Health::Retired);
    let over = pair.buried_age_ns.is_some_and(|since| age_ns >= since.saturating_add(lifetime_ns));
    rests && pair.half.is_none() && is_lost(pair) && over
}

impl Agent {
    /// The home of a channel index at a PE, as far as this one knows.
    pub(super) fn home(&self, pe: u32, channel: u32) -> Home {
        let word = self.words.home(pe, channel);
        Home { rail: word.rail(), version: word.version() }
    }

    /// This PE's own.
    pub(super) fn own_home(&self, channel: u32) -> Home {
        self.home(self.words.root().my_pe, channel)
    }

    /// What the directions of a channel that are bound want of its pairs.
    pub(super) fn wants(&self, row: u32) -> impl Iterator<Item = Want> + Clone + use<> {
        let per = self.words.root().channels_per_pe;
        let (peer, channel) = (row / per, row % per);
        let out = self.words.is_bound(row).then(|| Want::Remote(self.home(peer, channel).rail));
        let into = self.homes.bound_there[row as usize].then(|| Want::Local(self.own_home(channel).rail));
        [out, into].into_iter().flatten()
    }

    /// A peer's word of its home. Older ones are void.
    pub(super) fn adopt_home(&mut self, peer: u32, channel: u32, home: Home) {
        let root = self.words.root();
        if peer >= root.pe_count || peer == root.my_pe || channel >= root.channels_per_pe {
            return self
                .note(format!("PE {peer} speaks of the home of channel {channel}, which does not exist"));
        }
        if !self.chains.has_rail(peer, home.rail) {
            return self.note(format!("PE {peer} has its home on rail {}, which does not exist", home.rail));
        }
        if home.version > self.home(peer, channel).version {
            self.words.set_home(peer, channel, home);
            self.homes.away[(peer * self.words.root().channels_per_pe + channel) as usize] = None;
        }
    }

    /// True if this PE's rail may take atomics: nothing known is against it.
    fn rail_serves(&self, rail: u32) -> bool {
        self.ports.own_up(rail) && !self.nic_is_silent(rail)
    }

    /// Carries moves on, and asks for the homes of bound channels that have no path to them.
    pub(super) fn mind_homes(&mut self) -> bool {
        let (now, mut busy) = (self.now(), false);
        for channel in 0..self.words.root().channels_per_pe {
            busy |= self.homes.moving[channel as usize].is_some() && self.carry_move(channel);
        }
        if now < self.homes.next_look_ns {
            return busy;
        }
        self.homes.next_look_ns = now.saturating_add(LOOK_NS);
        let (me, per, pes) = {
            let root = self.words.root();
            (root.my_pe, root.channels_per_pe, root.pe_count)
        };
        for row in (0..pes * per).filter(|row| row / per != me) {
            busy |= self.words.is_bound(row) && self.mind_bound(row, now);
        }
        busy
    }

    /// A bound channel: asks, if it has no path to its home.
    fn mind_bound(&mut self, row: u32, now: u64) -> bool {
        let per = self.words.root().channels_per_pe;
        let (peer, channel) = (row / per, row % per);
        let home = self.home(peer, channel);
        let rails = self.rails_reached(peer, channel);
        let (reached, look) = (rails >> home.rail & 1 == 1, self.words.look_at(row));
        // A path that is ready serves once the channel has opened on it: one that answers probes, and no ledger in
        // time, is left and made anew again and again, and the give-up time goes on meanwhile.
        if reached && !look.pathless || self.words.is_dead(peer, channel) {
            self.homes.away[row as usize] = None;
            return false;
        }
        let pressing_ns = self.pressing_ns();
        let new = Away { since_ns: now, next_ns: now, asked: 0 };
        let away = self.homes.away[row as usize].get_or_insert(new);
        // One that is ready has its turn first; a ledger that is answered takes microseconds, and is hardly met here.
        if now < away.next_ns || reached && look.step != Step::Ledger {
            return false;
        }
        away.next_ns = now.saturating_add(ASK_NS << away.asked.min(ASK_DOUBLINGS));
        away.asked += 1;
        let pressing = now.saturating_sub(away.since_ns) >= pressing_ns;
        let ask = Message::AskHome { channel, version: home.version, rails, pressing };
        self.links.send(peer, ask.to_bytes(), Reach::Both, &self.ports);
        true
    }

    /// True if a pair leads to the home of its direction, which is bound: the peer is told that it is.
    pub(super) fn leads_home(&mut self, index: usize) -> bool {
        let Place { peer, channel, .. } = self.place(index);
        let (row, home) = (peer * self.words.root().channels_per_pe + channel, self.home(peer, channel));
        let there = self.pairs[index].as_ref().is_some_and(|pair| pair.remote_rail == home.rail);
        if !there || !self.words.is_bound(row) {
            return false;
        }
        let (version, rails) = (home.version, self.rails_reached(peer, channel));
        let ask = Message::AskHome { channel, version, rails, pressing: false };
        self.links.send(peer, ask.to_bytes(), Reach::Link, &self.ports);
        true
    }

    /// How long a sender has had no path to a home when it begins to press.
    pub(super) fn pressing_ns(&self) -> u64 {
        PRESSING_NS.min(self.words.root().policy.give_up_ns / 4)
    }

    /// Rails of a peer that a channel has ready pairs to, a bit each.
    fn rails_reached(&self, peer: u32, channel: u32) -> u32 {
        let slots = (0..self.words.root().slots).map(|slot| self.index(Place { peer, channel, slot }));
        let ready = slots.filter_map(|index| self.pairs[index].as_ref()).filter(|pair| {
            pair.health == Health::Ready && self.ports.up(pair.local_rail, peer, pair.remote_rail)
        });
        ready.fold(0, |rails, pair| rails | 1 << pair.remote_rail)
    }

    /// A peer has no path to a home of this PE.
    pub(super) fn home_asked(&mut self, from: u32, channel: u32, version: u32, rails: u32, pressing: bool) {
        let root = self.words.root();
        if from >= root.pe_count || from == root.my_pe || channel >= root.channels_per_pe {
            return self
                .note(format!("PE {from} asks for the home of channel {channel}, which does not exist"));
        }
        self.homes.bound_there[(from * root.channels_per_pe + channel) as usize] = true;
        let home = self.own_home(channel);
        // A rail that serves is left only for one that the asker has a path to.
        let wanted = !self.rail_serves(home.rail) || pressing && rails & !(1 << home.rail) != 0;
        if version == home.version && wanted {
            match &mut self.homes.moving[channel as usize] {
                Some(known) => *known |= rails,
                None => self.begin_move(channel, rails),
            }
        }
        let answer = Message::Home { channel, home: self.own_home(channel) };
        self.links.send(from, answer.to_bytes(), Reach::Both, &self.ports);
    }

    /// Every slot of every channel of an index.
    fn places(&self, channel: u32) -> impl Iterator<Item = Place> + use<> {
        let (pes, slots) = (self.words.root().pe_count, self.words.root().slots);
        (0..pes).flat_map(move |peer| (0..slots).map(move |slot| Place { peer, channel, slot }))
    }

    /// Pairs of a channel index on a rail of this PE, or given to another one while their last half is there.
    fn pairs_at(&self, channel: u32, rail: u32) -> Vec<usize> {
        let half = |pair: &Pair| pair.half.as_ref().is_some_and(|half| half.rail().index == rail);
        let there = |pair: &Pair| pair.local_rail == rail || half(pair);
        let all = self.places(channel).map(|place| self.index(place));
        all.filter(|index| self.pairs[*index].as_ref().is_some_and(there)).collect()
    }

    fn begin_move(&mut self, channel: u32, rails: u32) {
        if self.next_home(channel, rails).is_none() {
            return; // nowhere to go
        }
        self.homes.moving[channel as usize] = Some(rails);
        self.carry_move(channel);
    }

    /// One look at a home that moves: what is not fenced yet is, and once all of it is proven the move is told.
    fn carry_move(&mut self, channel: u32) -> bool {
        let Some(rails) = self.homes.moving[channel as usize] else { return false };
        let home = self.own_home(channel);
        let next = self.next_home(channel, rails);
        let mut silent = true;
        if !Mutant::HomeMovedUnfenced.on() {
            for index in self.pairs_at(channel, home.rail) {
                let Some(pair) = &self.pairs[index] else { continue };
                let (age_ns, lifetime_ns) = (self.age.age_ns, self.options.lifetime_ns);
                silent &= is_silent(pair, age_ns, lifetime_ns) || is_gone(pair, age_ns, lifetime_ns);
                if pair.left_here && pair.health == Health::Fenced && is_lost(pair) {
                    self.may_haunt(index);
                    self.entomb(index); // its peer may never leave
                } else if next.is_some()
                    && matches!(pair.health, Health::Ready | Health::Connecting | Health::Probing)
                {
                    self.fence_asked(index, Urgency::Peer);
                }
            }
            silent &= !self.is_haunted(channel, home.rail);
        }
        match next {
            Some(rail) if silent => {
                self.homes.moving[channel as usize] = None;
                self.publish_home(channel, Home { rail, version: home.version + 1 });
                true
            }
            // The others are gone meanwhile, and this one is back.
            None if self.rail_serves(home.rail) => {
                self.homes.moving[channel as usize] = None;
                false
            }
            _ => false,
        }
    }

    /// True while a home leaves a rail: nothing is made anew there.
    pub(super) fn home_leaves(&self, channel: u32, rail: u32) -> bool {
        self.homes.moving[channel as usize].is_some() && self.own_home(channel).rail == rail
    }

    /// The half of a pair gives way to the next: if nobody proved it silent, no home leaves its rail from now on.
    pub(super) fn may_haunt(&mut self, index: usize) {
        let Some(pair) = &self.pairs[index] else { return };
        let Some(half) = &pair.half else { return };
        if !is_proven(pair, self.age.age_ns, self.options.lifetime_ns) {
            self.homes.haunted[index] |= 1 << half.rail().index;
        }
    }

    /// A NIC has destroyed what it had of a pair before, or has made the next half of it: then it has, too.
    pub(super) fn no_more_haunted(&mut self, index: usize, rail: u32) {
        self.homes.haunted[index] &= !(1 << rail);
    }

    /// For the next agent, which forgets who was proven silent: what is in ERR is fenced once more and proven by that,
    /// but of an older half that was given up its NIC alone knows.
    pub(super) fn all_haunted(&self) -> Vec<u32> {
        self.homes.haunted.clone()
    }

    fn is_haunted(&self, channel: u32, rail: u32) -> bool {
        let mut all = self.places(channel).map(|place| self.homes.haunted[self.index(place)]);
        all.any(|rails| rails >> rail & 1 == 1)
    }

    /// The best rail for a home to move to: one that those who asked have a path to, then one that most peers have.
    fn next_home(&self, channel: u32, rails: u32) -> Option<u32> {
        let (count, from) = (self.rails.len() as u32, self.own_home(channel).rail);
        let others = (1..count).map(|step| (from + step) % count).filter(|rail| self.rail_serves(*rail));
        let ready = |rail: u32| {
            let pairs =
                self.pairs_at(channel, rail).into_iter().filter_map(|index| self.pairs[index].as_ref());
            pairs.filter(|pair| pair.health == Health::Ready).count()
        };
        // The first of equals: `max_by_key` would take the last.
        others.rev().max_by_key(|rail| (rails >> rail & 1, !self.words.is_suspect(*rail), ready(*rail)))
    }

    fn publish_home(&mut self, channel: u32, home: Home) {
        let (me, pes, from) =
            (self.words.root().my_pe, self.words.root().pe_count, self.own_home(channel).rail);
        self.words.set_home(me, channel, home);
        self.report(Event::HomeMoved { channel, from, to: home.rail, version: home.version });
        for peer in (0..pes).filter(|peer| *peer != me) {
            let word = Message::Home { channel, home };
            self.links.send(peer, word.to_bytes(), Reach::Both, &self.ports);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::kept::Holding;
    use crate::nic::queue::{At, RingSpan, RingVariant};

    const EXACT: Option<SideTruth> = Some(SideTruth::Exact { executed: 1, next_rcv_psn: 1 });

    fn pair(health: Health, mine: Option<SideTruth>, theirs: Option<SideTruth>) -> Pair {
        let at = At { address: 0, offset: 0 };
        let variant = RingVariant { completion_queue: at, queue_record: at, completion_record: at };
        let rings = RingSpan { send_queue: at, variants: [variant; 2], user_index: 0 };
        let held = Holding {
            incarnation: 1,
            local_rail: 0,
            remote_rail: 0,
            rings,
            half: None,
            next_psn: 0,
            orders: 0,
        };
        Pair { health, mine, theirs, fenced_age_ns: 100, theirs_age_ns: 200, ..Pair::found(held, 0) }
    }

    #[test]
    fn only_what_is_proven_is_silent() {
        let silent = |health, mine, theirs, age_ns| is_silent(&pair(health, mine, theirs), age_ns, 50);
        for health in [Health::Ready, Health::Connecting, Health::Probing] {
            assert!(!silent(health, EXACT, EXACT, 1_000), "{health:?} is alive");
        }
        assert!(!silent(Health::Fencing, None, EXACT, 1_000), "its own half may still take requests");
        assert!(silent(Health::Fencing, EXACT, None, 0), "a peer that is gone does not matter");
        assert!(silent(Health::Released, Some(SideTruth::Fenced), None, 0));
        let unflushed = Some(SideTruth::Unflushed);
        assert!(!silent(Health::Fenced, unflushed, EXACT, 149));
        assert!(silent(Health::Fenced, unflushed, EXACT, 150), "what it had accepted has landed");
        let dead = Some(SideTruth::Dead);
        assert!(!silent(Health::Fenced, dead, EXACT, 249));
        assert!(silent(Health::Fenced, dead, EXACT, 250), "nothing new leaves the other half");
        for theirs in [None, dead] {
            assert!(!silent(Health::Fenced, dead, theirs, u64::MAX), "nothing is proved");
        }
        assert!(silent(Health::Retired, None, None, 0), "it was never made");
    }

    #[test]
    fn a_half_that_was_destroyed_is_gone_a_lifetime_later() {
        let dead = |health| Pair {
            buried_age_ns: Some(300),
            ..pair(health, Some(SideTruth::Dead), Some(SideTruth::Dead))
        };
        for health in [Health::Fenced, Health::Released, Health::Retired] {
            assert!(!is_gone(&dead(health), 349, 50) && is_gone(&dead(health), 350, 50), "{health:?}");
        }
        assert!(!is_gone(&dead(Health::Fencing), 350, 50), "its truth may still come");
        let kept = Pair { buried_age_ns: None, ..dead(Health::Released) };
        assert!(!is_gone(&kept, u64::MAX, 50), "nobody destroyed it");
        let in_hand = Pair { task: Task::Fence(1), ..dead(Health::Released) };
        assert!(!is_gone(&in_hand, 350, 50), "its NIC may still fence it");
    }
}
