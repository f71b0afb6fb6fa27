//! What only an operator may order: a path that is taken out stays out until it is brought back, at both ends.
//!
//! A path in use that works is drained first: its row says "leaving", both directions move to another path as on a way
//! back, and it is fenced when both are gone. Nothing is sent again.

use super::Agent;
use crate::agent::health::{Health, Observation};
use crate::agent::message::Message;
use crate::agent::nic_job::Urgency;
use crate::agent::pair::Task;
use crate::agent::words::Place;
use crate::events::control::{Order, Verb};
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::PathState;

/// A path that is not left by then is fenced under whoever still uses it.
const LEAVE_NS: Nanos = Nanos::secs(2);
/// Time between two words to a peer that should bring a path back.
const ASK_BACK_NS: Nanos = Nanos::millis(100);

impl Agent {
    /// Takes a path out: drained, if it works and its channel has another one, and else fenced like one that failed; it
    /// is not made anew. Nothing on it is lost. False if there is no such path.
    pub fn retire(&mut self, now: Nanos, at: Place) -> bool {
        let index = self.index(at);
        let Some(Some(pair)) = self.pairs.get_mut(index) else { return false };
        pair.order(true);
        self.tell_order(now, index);
        self.take_out(now, index);
        true
    }

    /// An order to take a pair out is carried out from whatever state it is in; one that is down has nothing to leave.
    fn take_out(&mut self, now: Nanos, index: usize) {
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.readmitted = false;
        match pair.health {
            Health::Ready if pair.leaving_ns.is_none() => self.leave(now, index, false),
            Health::Connecting | Health::Probing => self.fence_asked(now, index, Urgency::Idle),
            _ => {}
        }
    }

    /// Tells the peer what an operator last ordered of a pair.
    pub(in crate::agent) fn tell_order(&mut self, now: Nanos, index: usize) {
        let Some(pair) = &self.pairs[index] else { return };
        let (id, order, out) = (self.id(index), pair.orders, pair.is_out());
        self.tell(now, index, if out { Message::Retire(id, order) } else { Message::Readmit(id, order) });
    }

    /// Brings a path back that was taken out: it is made anew, probed, and ready after its recovery window. False if
    /// there is no such path.
    pub fn readmit(&mut self, now: Nanos, at: Place) -> bool {
        let index = self.index(at);
        let leads = self.leads(index);
        let Some(Some(pair)) = self.pairs.get_mut(index) else { return false };
        pair.order(false);
        pair.readmitted = !leads;
        self.bring_back(now, index);
        self.tell_order(now, index);
        true
    }

    fn bring_back(&mut self, now: Nanos, index: usize) {
        let at = self.place(index);
        let state = self.words.path_state(at);
        let exists = state != PathState::Absent;
        self.fence_overlooked(now, index);
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.failures = 0;
        if pair.leaving_ns.take().is_some() {
            // A mark that device code makes just now stays: the next look finds it.
            if state == PathState::Leaving {
                self.words.change_state(at, state, PathState::Ready);
            }
        } else if pair.health == Health::Retired && exists {
            self.observe(now, index, Observation::Readmit);
            self.words.set_state(at, PathState::Released);
        }
    }

    /// What the other end's operator ordered. An order that is older than the last one is void, and whoever still
    /// carries it out is told the later one.
    pub(in crate::agent) fn peer_orders(&mut self, now: Nanos, index: usize, order: u32) {
        let Some(pair) = &mut self.pairs[index] else { return };
        let before = pair.orders;
        pair.orders = order.max(before);
        if order < before {
            self.tell_order(now, index);
        } else if pair.is_out() {
            self.take_out(now, index);
        } else if order > before {
            self.bring_back(now, index);
        }
    }

    /// A pair that works is to be left by both directions; the other one has already, if `there_left`.
    pub(in crate::agent) fn leave(&mut self, now: Nanos, index: usize, there_left: bool) {
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.leaving_ns = Some(now);
        (pair.left_here, pair.left_there) = (false, there_left);
        pair.told_ns = now;
        self.mind_leaving(now, index);
    }

    /// Carries on with a pair that is to be left; nothing to do for any other.
    pub(in crate::agent) fn mind_leaving(&mut self, now: Nanos, index: usize) -> bool {
        let Some(since_ns) = self.pairs[index].as_ref().and_then(|pair| pair.leaving_ns) else {
            return false;
        };
        if self.fence_overlooked(now, index) {
            return true;
        }
        let (at, id) = (self.place(index), self.id(index));
        // Whoever has nowhere to go keeps it, and the time to leave begins once there is somewhere.
        let standby = self.has_standby(index);
        let state = if standby { PathState::Leaving } else { PathState::Ready };
        let before = self.words.path_state(at);
        // A mark that device code makes just now stays: the next look finds it.
        let ours = matches!(before, PathState::Ready | PathState::Leaving);
        if !ours || before != state && !self.words.change_state(at, before, state) {
            return true;
        }
        let left = state == PathState::Leaving && self.words.has_left(at);
        let resend_ns = self.options.resend_ns;
        let Some(pair) = &mut self.pairs[index] else { return false };
        if !standby && !Mutant::LeftStaysLeft.on() {
            // Who left may be back on it: nothing else is there. Whoever wants the slot alone asks again.
            pair.leaving_ns = pair.is_out().then_some(now);
            (pair.left_here, pair.left_there) = (false, false);
        }
        let again = now >= pair.told_ns + resend_ns;
        let news = left && !std::mem::replace(&mut pair.left_here, left);
        if again || news {
            pair.told_ns = now;
            if again {
                self.tell_order(now, index);
            }
            if left {
                self.tell(now, index, Message::Left(id));
            }
        }
        let both = self.pairs[index].as_ref().is_some_and(|pair| pair.left_here && pair.left_there);
        let gone = both && (standby || Mutant::LeftStaysLeft.on());
        if gone || standby && now >= since_ns + LEAVE_NS {
            self.fence_asked(now, index, Urgency::Idle);
        }
        again || news || gone
    }

    /// A path that both ends left and that is not to come back.
    pub(in crate::agent) fn retires(&mut self, now: Nanos, index: usize) -> bool {
        let retired = self.pairs[index].as_ref().is_some_and(|pair| pair.is_out() && pair.task == Task::None);
        if retired {
            self.observe(now, index, Observation::Retire);
            self.words.set_state(self.place(index), PathState::Retired);
        }
        retired
    }

    /// Whoever leads makes the pair anew; where that is the peer, it is told until it does.
    pub(in crate::agent) fn ask_back(&mut self, now: Nanos, index: usize) {
        let Some(pair) = &mut self.pairs[index] else { return };
        if pair.readmitted && now >= pair.told_ns + ASK_BACK_NS {
            pair.told_ns = now;
            self.tell_order(now, index);
        }
    }

    /// Carries out an order; answers with what was done, or why nothing was.
    pub fn obey(&mut self, now: Nanos, order: Order) -> Result<String, String> {
        let (me, paths) = (self.words.root().my_pe, order.paths);
        if paths.pe != me {
            return Err(format!("{paths} begins at PE {}; this is PE {me}", paths.pe));
        }
        let meant = |agent: &Self, index: usize| {
            let peer = agent.place(index).peer;
            agent.pairs[index].as_ref().is_some_and(|pair| {
                pair.local_rail == paths.rail && paths.to.is_none_or(|to| to == (peer, pair.remote_rail))
            })
        };
        let indices: Vec<usize> = (0..self.pairs.len()).filter(|index| meant(self, *index)).collect();
        if indices.is_empty() {
            return Err(format!(
                "PE {me} has no path {paths}; shunt topology and shunt status name its rails"
            ));
        }
        let places: Vec<Place> = indices.iter().map(|index| self.place(*index)).collect();
        if order.verb == Verb::Readmit {
            for at in &places {
                self.readmit(now, *at);
            }
            return Ok(format!("{} path(s) are made anew", places.len()));
        }
        if let Some(at) = indices.iter().find(|index| !self.has_another(**index, &indices)) {
            let at = self.place(*at);
            return Err(format!(
                "{paths} is all that channel {} to PE {} has; nothing was taken out",
                at.channel, at.peer
            ));
        }
        for at in &places {
            self.retire(now, *at);
        }
        Ok(format!("{} path(s) are taken out; those in use are drained first", places.len()))
    }

    /// True if the channel of a pair has a ready path that is not among `those`.
    fn has_another(&self, index: usize, those: &[usize]) -> bool {
        let (slots, peer) = (self.words.root().slots as usize, self.place(index).peer);
        let first = index - index % slots;
        (first..first + slots).filter(|other| !those.contains(other)).any(|other| {
            self.pairs[other].as_ref().is_some_and(|pair| {
                let up = self.ports.up(pair.local_rail, peer, pair.remote_rail);
                pair.health == Health::Ready && pair.leaving_ns.is_none() && up
            })
        })
    }
}
