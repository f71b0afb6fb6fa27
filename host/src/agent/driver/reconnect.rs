//! Making a pair anew: rest, recreate both halves, connect, probe, admit. Rule 17; F4, F5.
//!
//! The lower PE leads. New QPs, PSNs in the other half, fresh CQ and doorbell record, and nothing before the old half
//! is known to be in ERR or gone and the packet lifetime has passed: a NIC may give the new QP the old one's number. An
//! incarnation that fails is used up.

use super::Agent;
use crate::agent::health::{Action, Health, Observation};
use crate::agent::message::{Message, PairId, SideTruth};
use crate::agent::nic_job::{Job, Urgency};
use crate::agent::pair::{Offer, Probes, Task};
use crate::agent::port_table::penalty_ns;
use crate::error::NicError;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::nic::queue::Request;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::PathState;

/// A revival over a port that is down ends so long after it began: a flap may be over by then.
const PORT_DOWN_NS: Nanos = Nanos::millis(100);
/// Words about a revival said in vain before the link is doubted: the other side may have other halves to make first.
const VAIN: u32 = 3;

impl Agent {
    /// Released: waits for the lifetime, the backoff and the ports; the follower for the leader's offer.
    pub(in crate::agent) fn rest(&mut self, now: Nanos, index: usize) -> bool {
        if self.retires(now, index) {
            return true;
        }
        let (leads, peer) = (self.leads(index), self.place(index).peer);
        self.ask_back(now, index);
        let Some(pair) = &self.pairs[index] else { return false };
        // The leader may not know yet that a port of this end is down; it hears of it and chooses another pair.
        let wanted = |offer: Offer| self.ports.own_up(offer.rail);
        let offered = pair.offered.is_some_and(wanted);
        let rail = pair.offered.map_or(pair.local_rail, |offer| offer.rail);
        self.put_away(now, index, rail);
        let Some(pair) = &self.pairs[index] else { return false };
        let stopped_age_ns = pair.stopped_age_ns.unwrap_or_default();
        let quiet_age_ns =
            pair.fenced_age_ns.max(stopped_age_ns).max(pair.destroyed_age_ns.unwrap_or_default());
        let over = self.age.age_ns >= quiet_age_ns + self.options.lifetime_ns;
        let lifetime_over = over || pair.is_fresh() || Mutant::NoLifetimeBeforeRevival.on();
        let pause = self.options.backoff_ns.doubled(pair.failures);
        let rested = pair.is_fresh() || now >= pair.since_ns + pause;
        let up = self.ports.up(pair.local_rail, peer, pair.remote_rail);
        let due = if leads { rested && up } else { offered };
        let numbers_left = pair.incarnation < u32::MAX;
        let stuck = !leads && self.is_stuck(index, rail) && !Mutant::OfferNotRefused.on();
        // This NIC is waited for; of another nobody knows when it lets go, and one number further there is room.
        let buried = !self.destroys.holds(index, rail)
            && self.destroys.cq_buffer_in_use(index, pair.incarnation.wrapping_add(1));
        let refused = stuck || buried;
        let free = pair.task == Task::None && !self.destroys.holds(index, rail) && self.nics.has_room(rail);
        let may_make = free && !self.home_leaves(self.place(index).channel, rail) || refused;
        if !(due && lifetime_over && numbers_left && may_make) {
            return false;
        }
        // Announced paths are not made anew: the state went first, this is the second look.
        if !self.words.has_left(self.place(index)) && !Mutant::RevivedBeforeLeft.on() {
            return false;
        }
        if self.observe(now, index, Observation::Due) == Action::Recreate {
            self.next_incarnation(now, index);
            if refused { self.refuse(now, index, rail, stuck) } else { self.make(now, index) }
        }
        true
    }

    /// Keeps the old half of a pair that is to be made anew on `rail`, if its NIC may have it still. One that the NIC
    /// has in hand is left there, unless the next is made by another NIC.
    fn put_away(&mut self, now: Nanos, index: usize, rail: u32) {
        let Some(pair) = &self.pairs[index] else { return };
        let elsewhere = pair.half.as_ref().is_some_and(|half| half.rail().index != rail);
        let at_hand = pair.task == Task::None || elsewhere && matches!(pair.task, Task::Fence(_));
        if at_hand && pair.mine == Some(SideTruth::Dead) && !Mutant::UnfencedMadeAnew.on() {
            self.mark_unfenced(index);
            self.defer_old_half(now, index);
            self.set_task(index, Task::None);
        }
    }

    /// The NIC here does not let go of the old half, or another one of an older half whose memory is in question. The
    /// peer is told at once, in the one way that both ends know of an incarnation that came to nothing: the leader may
    /// have other rails to offer.
    fn refuse(&mut self, now: Nanos, index: usize, rail: u32, stuck: bool) {
        if self.pairs[index].as_ref().is_some_and(|pair| pair.half.is_some()) {
            self.mark_unfenced(index);
            self.defer_old_half(now, index);
            self.set_task(index, Task::None);
        }
        let at = self.route(index);
        let error = match stuck {
            true => format!("the NIC of rail {rail} has not answered that the last half is destroyed"),
            false => {
                "a NIC may still write where completions would be: this number is passed over".to_owned()
            }
        };
        self.report(now, Event::RevivalFailed { at, error });
        self.revival_failed(now, index, None);
    }

    /// The next incarnation of a pair begins. Of the follower: on the rails that it was offered.
    fn next_incarnation(&mut self, now: Nanos, index: usize) {
        let (leads, at) = (self.leads(index), self.place(index));
        self.words.set_state(at, PathState::Probing);
        if !Mutant::JournalOverwritten.on() {
            self.spare_the_journal(index);
        }
        self.mark_unfenced(index);
        let Some(pair) = &mut self.pairs[index] else { return };
        let again = Mutant::IncarnationUsedTwice.on() && pair.failures > 0;
        pair.incarnation = pair.incarnation.saturating_add(!again as u32);
        pair.mine = None;
        pair.theirs = None;
        pair.sent = None;
        pair.stopped_age_ns = None;
        pair.asked = None;
        pair.unknown = false;
        pair.untried = false;
        pair.proved_there = false; // what was proved of an earlier incarnation says nothing of this one
        let offered = if leads { None } else { pair.offered.take() };
        if let Some(offer) = &offered {
            (pair.local_rail, pair.remote_rail) = (offer.rail, offer.card.rail.index);
        }
        pair.remote = offered.map(|offer| offer.card);
        let at = self.route(index);
        self.report(now, Event::PathRevived { at });
    }

    /// The old ring may still be the journal of a switch that found no path yet: then the new half gets the
    /// channel's spare queue, and the journal's place becomes the spare. One switch, one journal, one spare (H14).
    fn spare_the_journal(&mut self, index: usize) {
        let at = self.place(index);
        let journal = self.words.journal_queue(at.peer, at.channel);
        let row = (at.peer * self.words.root().channels_per_pe + at.channel) as usize;
        if let (Some(pair), Some(spare)) = (&mut self.pairs[index], &mut self.spares[row])
            && pair.rings.send_queue.address == journal
        {
            std::mem::swap(&mut pair.rings.send_queue, spare);
        }
    }

    /// Writes the row of a pair whose both ends are known. Not usable yet.
    pub(in crate::agent) fn publish_row(&self, index: usize) {
        let Some(pair) = &self.pairs[index] else { return };
        if let (Some(half), Some(remote)) = (&pair.half, &pair.remote) {
            let mut row = half.path_row(remote);
            row.state = PathState::Probing as u32;
            self.words.write_row(self.place(index), &row);
        }
    }

    /// The peer's words about a revival.
    pub(in crate::agent) fn receive_revival(
        &mut self,
        now: Nanos,
        index: usize,
        id: PairId,
        message: Message,
    ) {
        let (peer, leads) = (self.place(index).peer, self.leads(index));
        if let Message::Make(_, _, _, home) | Message::Made(_, _, home) = &message
            && !Mutant::HomeNotCarried.on()
        {
            self.adopt_home(now, peer, id.channel, *home); // by its own version, whatever becomes of the pair
        }
        let Some(pair) = &mut self.pairs[index] else { return };
        let current = id.incarnation == pair.incarnation && pair.health == Health::Connecting;
        match message {
            Message::Make(_, card, rail, _) if Some(id.incarnation) == pair.incarnation.checked_add(1) => {
                let offer = Offer { card, rail };
                if !self.pool.has(peer, offer.rails()) {
                    return self.note(now, format!("PE {peer} offers rails that do not exist: {offer:?}"));
                }
                pair.offered = Some(offer);
                pair.readmitted = false;
                let out = pair.is_out();
                self.links.moved(peer, &card.rail);
                self.peer_moved_on(index);
                if out {
                    self.tell_order(now, index); // it does not know, or knows better
                }
            }
            // Said twice it is connected once.
            Message::Made(_, card, _) if current && pair.remote.is_none() && pair.task == Task::None => {
                let Some(half) = pair.half.clone() else { return };
                // Device code takes the rail from here for an index.
                let asked = Offer { card, rail: pair.local_rail };
                if card.rail.index != pair.remote_rail || !self.pool.has(peer, asked.rails()) {
                    let (made, wanted) = (card.rail.index, pair.remote_rail);
                    return self.note(
                        now,
                        format!("PE {peer} made its half on rail {made}, asked for was {wanted}"),
                    );
                }
                pair.remote = Some(card);
                self.links.moved(peer, &card.rail);
                let tuning = self.tuning;
                let number = self.order(index, Urgency::Making, Job::Connect(half, Box::new(card), tuning));
                self.set_task(index, Task::Connect(number));
            }
            // It asks whether we are: the word that said so got lost.
            Message::Made(..) if pair.is_probing(id.incarnation) => self.tell(now, index, Message::Up(id)),
            Message::Up(_) if current && !leads => self.connected(now, index),
            // It probes, and misses our word.
            Message::Up(_) if pair.has_proved(id.incarnation) => self.tell(now, index, Message::Proved(id)),
            Message::Proved(_) if id.incarnation == pair.incarnation => pair.proved_there = true,
            _ => {}
        }
    }

    /// The leader's half is connected to the follower's.
    pub(in crate::agent) fn leader_connected(
        &mut self,
        now: Nanos,
        index: usize,
        result: Result<(), NicError>,
    ) {
        if let Err(error) = result {
            return self.revival_failed(now, index, Some(&error));
        }
        if self.pairs[index].as_ref().is_some_and(|pair| pair.health == Health::Connecting) {
            self.publish_row(index);
            self.connected(now, index);
            self.say_revival(now, index);
        }
    }

    fn connected(&mut self, now: Nanos, index: usize) {
        if self.observe(now, index, Observation::Connected) != Action::Probe {
            return;
        }
        let Some(pair) = &mut self.pairs[index] else { return };
        // SAFETY: the path is not `Ready`, so no device code posts on it; the producer is dropped before it is.
        let producer = pair.half.as_ref().map(|half| unsafe { half.producer() });
        pair.probes =
            producer.map(|producer| Probes { producer, posted: 0, answered: 0, next_ns: now, told: false });
        (pair.told_ns, pair.told) = (now, 0);
    }

    pub(in crate::agent) fn await_connected(&mut self, now: Nanos, index: usize) -> bool {
        self.say_revival_again(now, index);
        self.give_up_if_late(now, index)
    }

    /// What the other side of a revival is to know of this one as it stands, and to answer.
    fn revival_word(&self, index: usize) -> Option<Message> {
        let (id, leads) = (self.id(index), self.leads(index));
        let home = self.own_home(self.place(index).channel);
        let pair = self.pairs[index].as_ref().filter(|pair| pair.task == Task::None)?;
        let card = || pair.half.as_ref().map(|half| half.card());
        match pair.health {
            Health::Connecting if leads && pair.remote.is_some() => None,
            Health::Connecting if leads => Some(Message::Make(id, card()?, pair.remote_rail, home)),
            Health::Connecting => Some(Message::Made(id, card()?, home)),
            Health::Probing if !pair.proved_there => Some(Message::Up(id)),
            _ => None,
        }
    }

    /// Says how this side of a revival stands, for the first time.
    pub(in crate::agent) fn say_revival(&mut self, now: Nanos, index: usize) {
        let word = self.revival_word(index);
        if let Some(pair) = &mut self.pairs[index] {
            (pair.told_ns, pair.told) = (now, 0);
        }
        if let Some(word) = word {
            self.tell(now, index, word);
        }
    }

    /// Says it once more, for as long as the answer is out: messages may get lost.
    fn say_revival_again(&mut self, now: Nanos, index: usize) {
        let options = self.options;
        let Some(pair) = &self.pairs[index] else { return };
        let pause_ns = (options.resend_ns << pair.told.min(7)).min(options.peer_ns / 4);
        if now < pair.told_ns + pause_ns {
            return;
        }
        let Some(word) = self.revival_word(index) else { return };
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.told_ns = now;
        pair.told += 1;
        if pair.told > VAIN {
            self.links.doubt(now, self.place(index).peer);
        }
        self.tell(now, index, word);
    }

    fn give_up_if_late(&mut self, now: Nanos, index: usize) -> bool {
        let late = match &self.pairs[index] {
            Some(pair) => {
                let limit_ns = match self.ports.up(pair.local_rail, self.place(index).peer, pair.remote_rail)
                {
                    true => self.options.revive_ns,
                    // Nothing passes there, and another pair may be free.
                    false => self.options.revive_ns.min(PORT_DOWN_NS),
                };
                now > pair.since_ns + limit_ns
            }
            None => false,
        };
        if late && self.observe(now, index, Observation::Failed) == Action::FenceAgain {
            self.fence_again(now, index, Urgency::Idle);
        }
        late
    }

    pub(in crate::agent) fn revival_failed(&mut self, now: Nanos, index: usize, error: Option<&NicError>) {
        if let Some(error) = error {
            let at = self.route(index);
            self.report(now, Event::RevivalFailed { at, error: error.to_string() });
        }
        if self.observe(now, index, Observation::Failed) == Action::FenceAgain {
            self.fence_again(now, index, Urgency::Idle);
        }
    }

    /// Probes in this direction; the path is used once both directions have theirs answered.
    pub(in crate::agent) fn probe(&mut self, now: Nanos, index: usize) -> bool {
        let options = self.options;
        let Some(pair) = &mut self.pairs[index] else { return false };
        let Some(probes) = &mut pair.probes else { return false };
        let world = self.words.world();
        let mut failed = None;
        while let Some(result) = probes.producer.poll(world) {
            match result {
                Ok(_) => probes.answered += 1,
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            self.revival_failed(now, index, Some(&error));
            return true;
        }
        let mut busy = false;
        // Unanswered probes fill a small ring.
        if probes.posted < options.probes && now >= probes.next_ns && probes.producer.has_room() {
            probes.producer.post(world, Request::WriteNothing);
            probes.posted += 1;
            probes.next_ns = now + options.probe_ns;
            busy = true;
        }
        let proved_here = probes.answered >= options.probes || Mutant::NoProbes.on();
        let (told, proved_there) = (probes.told, pair.proved_there || Mutant::NoProbes.on());
        if proved_here && !told {
            probes.told = true;
            let id = self.id(index);
            self.tell(now, index, Message::Proved(id));
            busy = true;
        }
        if proved_here && proved_there {
            self.admit(now, index);
            return true;
        }
        if self.gives_way(now, index) {
            self.revival_failed(now, index, None);
            return true;
        }
        self.say_revival_again(now, index);
        self.give_up_if_late(now, index) || busy
    }

    fn admit(&mut self, now: Nanos, index: usize) {
        if self.observe(now, index, Observation::Proved) != Action::Admit {
            return;
        }
        let at = self.place(index);
        let Some(pair) = &mut self.pairs[index] else { return };
        let Some(probes) = pair.probes.take() else { return };
        pair.proved_there = false;
        pair.failures = 0;
        pair.admitted_ns = Some(now);
        pair.probed = pair.incarnation;
        let relapses = pair.relapses;
        pair.mine = None;
        pair.theirs = None;
        let calm = self.ports.calm_from(now, pair.local_rail, at.peer, pair.remote_rail);
        self.words.hand_over(at, probes.producer.next_index());
        self.words.set_ready_since(at, calm + penalty_ns(relapses));
        self.words.set_state(at, PathState::Ready);
        self.note_success(index);
    }
}
