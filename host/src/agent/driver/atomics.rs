//! Moves of atomic owners: who is asked, fenced and told. The rules are in `atomic_owner.rs`.

use super::Agent;
use crate::agent::atomic_owner::Bound;
use crate::agent::health::Health;
use crate::agent::message::{Home, Message};
use crate::agent::nic_job::Urgency;
use crate::agent::pair::Pair;
use crate::agent::path_slots::Want;
use crate::agent::rails::Reach;
use crate::agent::words::Place;
use crate::events::Event;
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::Step;

/// A sender that has had no path to an owner for so long presses, and the owner moves though its rail seems to work. A
/// quarter of the give-up time, if that is less.
const PRESSING_NS: Nanos = Nanos::millis(150);

impl Agent {
    /// The home of a channel index at a PE, as far as this one knows.
    pub(in crate::agent) fn home(&self, pe: u32, channel: u32) -> Home {
        let word = self.words.home(pe, channel);
        Home { rail: word.rail(), version: word.version() }
    }

    /// This PE's own.
    pub(in crate::agent) fn own_home(&self, channel: u32) -> Home {
        self.home(self.words.root().my_pe, channel)
    }

    /// What the directions of a channel that are bound want of its pairs.
    pub(in crate::agent) fn wants(&self, row: u32) -> impl Iterator<Item = Want> + Clone + use<> {
        let per = self.words.root().channels_per_pe;
        let (peer, channel) = (row / per, row % per);
        let out = self.words.is_bound(row).then(|| Want::Remote(self.home(peer, channel).rail));
        let into = self.owner.is_bound_there(row).then(|| Want::Local(self.own_home(channel).rail));
        [out, into].into_iter().flatten()
    }

    /// A peer's word of its home. Older ones are void.
    pub(in crate::agent) fn adopt_home(&mut self, now: Nanos, peer: u32, channel: u32, home: Home) {
        let root = self.words.root();
        if peer >= root.pe_count || peer == root.my_pe || channel >= root.channels_per_pe {
            return self.note(
                now,
                format!("PE {peer} speaks of the home of channel {channel}, which does not exist"),
            );
        }
        if !self.pool.has_rail(peer, home.rail) {
            return self
                .note(now, format!("PE {peer} has its home on rail {}, which does not exist", home.rail));
        }
        if home.version > self.home(peer, channel).version {
            self.words.set_home(peer, channel, home);
            self.owner.reached(peer * self.words.root().channels_per_pe + channel);
        }
    }

    /// True if this PE's rail may take atomics: nothing known is against it.
    fn rail_serves(&self, rail: u32) -> bool {
        self.ports.own_up(rail) && !self.nic_is_silent(rail)
    }

    /// Carries moves on, and asks for the homes of bound channels that have no path to them.
    pub(in crate::agent) fn mind_homes(&mut self, now: Nanos) -> bool {
        let mut busy = false;
        for channel in 0..self.words.root().channels_per_pe {
            busy |= self.owner.moving(channel).is_some() && self.carry_move(now, channel);
        }
        if !self.owner.is_due(now) {
            return busy;
        }
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
    fn mind_bound(&mut self, row: u32, now: Nanos) -> bool {
        let per = self.words.root().channels_per_pe;
        let (peer, channel) = (row / per, row % per);
        let home = self.home(peer, channel);
        let rails = self.rails_reached(peer, channel);
        let look = self.words.look_at(row);
        let bound = Bound {
            reached: rails >> home.rail & 1 == 1,
            pathless: look.pathless,
            dead: look.step == Step::Dead,
            at_ledger: look.step == Step::Ledger,
        };
        let Some(pressing) = self.owner.ask(now, row, bound, self.pressing_ns()) else { return false };
        let ask = Message::AskHome { channel, version: home.version, rails, pressing };
        self.links.send(now, peer, ask.to_bytes(), Reach::Both, &self.ports);
        true
    }

    /// True if a pair leads to the home of its direction, which is bound: the peer is told that it is.
    pub(in crate::agent) fn leads_home(&mut self, now: Nanos, index: usize) -> bool {
        let Place { peer, channel, .. } = self.place(index);
        let (row, home) = (peer * self.words.root().channels_per_pe + channel, self.home(peer, channel));
        let there = self.pairs[index].as_ref().is_some_and(|pair| pair.remote_rail == home.rail);
        if !there || !self.words.is_bound(row) {
            return false;
        }
        let (version, rails) = (home.version, self.rails_reached(peer, channel));
        let ask = Message::AskHome { channel, version, rails, pressing: false };
        self.links.send(now, peer, ask.to_bytes(), Reach::Link, &self.ports);
        true
    }

    /// How long a sender has had no path to a home when it begins to press.
    pub(in crate::agent) fn pressing_ns(&self) -> Nanos {
        PRESSING_NS.min(Nanos::new(self.words.root().policy.give_up_ns) / 4)
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
    pub(in crate::agent) fn home_asked(
        &mut self,
        now: Nanos,
        from: u32,
        channel: u32,
        version: u32,
        rails: u32,
        pressing: bool,
    ) {
        let root = self.words.root();
        if from >= root.pe_count || from == root.my_pe || channel >= root.channels_per_pe {
            return self.note(
                now,
                format!("PE {from} asks for the home of channel {channel}, which does not exist"),
            );
        }
        self.owner.bind_there(from * root.channels_per_pe + channel);
        let home = self.own_home(channel);
        // A rail that serves is left only for one that the asker has a path to.
        let wanted = !self.rail_serves(home.rail) || pressing && rails & !(1 << home.rail) != 0;
        if version == home.version && wanted {
            match self.owner.moving(channel) {
                Some(_) => self.owner.begin_move(channel, rails),
                None => self.begin_move(now, channel, rails),
            }
        }
        let answer = Message::Home { channel, home: self.own_home(channel) };
        self.links.send(now, from, answer.to_bytes(), Reach::Both, &self.ports);
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

    fn begin_move(&mut self, now: Nanos, channel: u32, rails: u32) {
        if self.next_home(channel, rails).is_none() {
            return; // nowhere to go
        }
        self.owner.begin_move(channel, rails);
        self.carry_move(now, channel);
    }

    /// One look at a home that moves: what is not fenced yet is, and once all of it is proven the move is told.
    fn carry_move(&mut self, now: Nanos, channel: u32) -> bool {
        let Some(rails) = self.owner.moving(channel) else { return false };
        let home = self.own_home(channel);
        let next = self.next_home(channel, rails);
        let mut silent = true;
        if !Mutant::HomeMovedUnfenced.on() {
            for index in self.pairs_at(channel, home.rail) {
                let Some(pair) = &self.pairs[index] else { continue };
                let (age_ns, lifetime_ns) = (self.age.age_ns, self.options.lifetime_ns);
                silent &= pair.is_quiet(age_ns, lifetime_ns) || pair.is_gone(age_ns, lifetime_ns);
                if pair.left_here && pair.health == Health::Fenced && pair.is_unproven() {
                    self.mark_unfenced(index);
                    self.defer_old_half(now, index); // its peer may never leave
                } else if next.is_some()
                    && matches!(pair.health, Health::Ready | Health::Connecting | Health::Probing)
                {
                    self.fence_asked(now, index, Urgency::Peer);
                }
            }
            silent &= !self.is_unfenced(channel, home.rail);
        }
        match next {
            Some(rail) if silent => {
                self.owner.end_move(channel);
                self.publish_home(now, channel, Home { rail, version: home.version + 1 });
                true
            }
            // The others are gone meanwhile, and this one is back.
            None if self.rail_serves(home.rail) => {
                self.owner.end_move(channel);
                false
            }
            _ => false,
        }
    }

    /// True while a home leaves a rail: nothing is made anew there.
    pub(in crate::agent) fn home_leaves(&self, channel: u32, rail: u32) -> bool {
        self.owner.moving(channel).is_some() && self.own_home(channel).rail == rail
    }

    /// The half of a pair gives way to the next: if nobody proved it silent, no home leaves its rail from now on.
    pub(in crate::agent) fn mark_unfenced(&mut self, index: usize) {
        let Some(pair) = &self.pairs[index] else { return };
        let Some(half) = &pair.half else { return };
        if !pair.is_proven(self.age.age_ns, self.options.lifetime_ns) {
            self.owner.mark_unfenced(index, half.rail().index);
        }
    }

    fn is_unfenced(&self, channel: u32, rail: u32) -> bool {
        self.places(channel).any(|place| self.owner.is_unfenced(self.index(place), rail))
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

    fn publish_home(&mut self, now: Nanos, channel: u32, home: Home) {
        let (me, pes, from) =
            (self.words.root().my_pe, self.words.root().pe_count, self.own_home(channel).rail);
        self.words.set_home(me, channel, home);
        self.report(now, Event::HomeMoved { channel, from, to: home.rail, version: home.version });
        for peer in (0..pes).filter(|peer| *peer != me) {
            let word = Message::Home { channel, home };
            self.links.send(now, peer, word.to_bytes(), Reach::Both, &self.ports);
        }
    }
}
