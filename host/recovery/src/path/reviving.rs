//! Making a path again: rest, recreate both halves, connect, probe. Rule 17; F4, F5.
//!
//! The end that leads offers. New QPs, PSNs in the other half, fresh CQ and doorbell record, and nothing before the old
//! half is known to be in ERR or gone and the packet lifetime has passed: a NIC may give the new QP the old one's
//! number. An incarnation that fails is used up.

use super::io::{Handle, Output, Polled, Step, Word};
use super::io::{Offer, Task};
use super::pair::Pair;
use crate::nanos::Nanos;
use crate::truth::SideTruth;
use shunt_layout::mutant::Mutant;

/// A revival over a port that is down ends so long after it began: a flap may be over by then.
const PORT_DOWN: Nanos = Nanos::millis(100);
/// Words about a revival said in vain before the link is doubted: the other side may have other halves to make first.
const VAIN: u32 = 3;
/// Time between two words to a peer that should bring a path back.
const ASK_BACK: Nanos = Nanos::millis(100);

/// True if a NIC does not let go of an old half, because it answers nothing: how long that lasts nobody knows. One that
/// has just been told to destroy it is not stuck. `fencing`: it still has the fence of a released half.
pub fn is_stuck(silent: bool, destroy_pending: bool, destroy_refused: bool, fencing: bool) -> bool {
    silent && destroy_pending || destroy_refused || silent && fencing
}

/// What a released path may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Rest.
    No,
    /// Make its next half, in this variant of its memory.
    Make(u32),
    /// Its NIC on this rail cannot: use the number up. `stuck`: it does not let go of the last half.
    Refuse {
        /// See [`Due::Refuse`].
        rail: u32,
        /// See [`Due::Refuse`].
        stuck: bool,
    },
}

/// Both directions have left: waiting for the lifetime, the backoff and the ports; the follower for an offer.
pub(super) struct Released<'a, H>(pub &'a mut Pair<H>);

impl<H: Handle> Released<'_, H> {
    /// True once it is to be taken out for good.
    pub(super) fn retires(&self) -> bool {
        self.0.is_out() && self.0.task == Task::None
    }

    /// The end that leads makes the path again; where that is the peer, it is told until it does.
    pub(super) fn ask_back(&mut self, cx: &mut Step<'_, H>) {
        if self.0.readmitted && cx.now >= self.0.telling.at + ASK_BACK {
            self.0.telling.at = cx.now;
            self.0.tell_order(cx);
        }
    }

    /// What it may do, released at `since`.
    pub(super) fn due(&mut self, cx: &mut Step<'_, H>, since: Nanos) -> Due {
        // The leader may not know yet that a port of this end is down; it hears of it and chooses another pair.
        let offered = self.0.offered.is_some_and(|offer| cx.facts.own_port_up(offer.rail));
        let rail = self.0.offered.map_or(self.0.rails.local, |offer| offer.rail);
        let put_away = self.put_away(cx, rail);
        let pair = &mut *self.0;
        let fresh = pair.is_fresh();
        let over = cx.age >= pair.fence.rests_since() + cx.timing.lifetime;
        let lifetime_over = over || fresh || Mutant::NoLifetimeBeforeRevival.on();
        let rested = fresh || cx.now >= since + cx.timing.backoff.doubled(pair.failures);
        let due = if pair.leads { rested && cx.facts.ports_up(pair.rails) } else { offered };
        let held = cx.facts.destroy_pending(rail) || put_away.is_some_and(|(at, _)| at == rail);
        let fencing = matches!(pair.task, Task::Fence(_)) && pair.rail_at_work() == rail;
        let (silent, refused) = (cx.facts.nic_silent(rail), cx.facts.destroy_refused(rail));
        let stuck = is_stuck(silent, held, refused, fencing) && !pair.leads && !Mutant::OfferNotRefused.on();
        // This NIC is waited for. Another one may keep its half for good, and with it a variant of the memory.
        let taken = |variant| {
            let put_away = put_away.is_some_and(|(_, was)| was == variant);
            put_away || cx.facts.completions_in_use(variant)
        };
        let next = pair.incarnation.wrapping_add(1) & 1;
        let variant = [next, 1 - next].into_iter().find(|variant| !taken(*variant));
        let buried = !held && variant.is_none();
        let free = pair.task == Task::None && !held && cx.facts.nic_has_room(rail);
        let may_make = free && !cx.facts.rail_being_left(rail) || stuck || buried;
        if !(due && lifetime_over && pair.incarnation < u32::MAX && may_make) {
            return Due::No;
        }
        // Announced paths are not made again: the state went first, this is the second look.
        if !cx.facts.has_left() && !Mutant::RevivedBeforeLeft.on() {
            return Due::No;
        }
        match variant.filter(|_| !stuck) {
            Some(variant) => Due::Make(variant),
            None => Due::Refuse { rail, stuck },
        }
    }

    /// Keeps the old half of a path that is to be made again on `rail`, if its NIC may have it still: its rail and
    /// variant. One that the NIC has in hand is left there, unless the next is made by another NIC.
    fn put_away(&mut self, cx: &mut Step<'_, H>, rail: u32) -> Option<(u32, u32)> {
        let pair = &mut *self.0;
        let elsewhere = pair.half.as_ref().is_some_and(|half| half.rail() != rail);
        let at_hand = pair.task == Task::None || elsewhere && matches!(pair.task, Task::Fence(_));
        if !at_hand || pair.fence.mine != Some(SideTruth::Dead) || Mutant::UnfencedRecreated.on() {
            return None;
        }
        let old = pair.half.as_ref().map(|half| (half.rail(), half.variant()));
        if let Some((at, _)) = old.filter(|_| !pair.fence.is_proof(cx.age, cx.timing.lifetime, true)) {
            cx.put(Output::Unproven(at));
        }
        pair.give_up_half(cx);
        pair.task = Task::None;
        old
    }
}

/// New halves are being made and connected, or probed.
pub(super) struct Reviving<'a, H> {
    pub pair: &'a mut Pair<H>,
    /// None while they are being connected.
    pub probing: Option<&'a mut Probing>,
}

/// Connected again; probes are under way in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probing {
    /// Probes posted.
    posted: u32,
    /// Probes answered.
    answered: u32,
    /// When the next one is due.
    next: Nanos,
    /// True once the peer was told that all were answered.
    pub(super) told: bool,
}

impl Probing {
    /// None posted yet.
    pub(super) const fn new(now: Nanos) -> Self {
        Self { posted: 0, answered: 0, next: now, told: false }
    }
}

/// What came of a look at a revival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revival {
    /// It waits.
    Waits,
    /// Something was posted or told.
    Busy,
    /// Probes were answered in both directions.
    Proved,
    /// It failed.
    Failed,
}

impl<H: Handle> Reviving<'_, H> {
    /// What the other side is to know of this one as it stands, and to answer.
    fn word(&self) -> Option<Word> {
        let pair = &*self.pair;
        if pair.task != Task::None {
            return None;
        }
        let card = || pair.half.as_ref().map(Handle::card);
        match self.probing {
            None if pair.leads && pair.remote.is_some() => None,
            None if pair.leads => Some(Word::Make(card()?, pair.rails.remote)),
            None => Some(Word::Made(card()?)),
            Some(_) if !pair.proved_there => Some(Word::Up),
            Some(_) => None,
        }
    }

    /// Says how this side stands, for the first time.
    pub(super) fn say(&mut self, cx: &mut Step<'_, H>) {
        let word = self.word();
        (self.pair.telling.at, self.pair.telling.times) = (cx.now, 0);
        word.into_iter().for_each(|word| self.pair.tell(cx, word));
    }

    /// Says it once more, for as long as the answer is out: messages may get lost.
    pub(super) fn say_again(&mut self, cx: &mut Step<'_, H>) {
        let pause = (cx.timing.resend << self.pair.telling.times.min(7)).min(cx.timing.peer / 4);
        if cx.now < self.pair.telling.at + pause {
            return;
        }
        let Some(word) = self.word() else { return };
        self.pair.telling.at = cx.now;
        self.pair.telling.times += 1;
        if self.pair.telling.times > VAIN {
            cx.put(Output::Doubt);
        }
        self.pair.tell(cx, word);
    }

    /// True once a revival that began at `since` takes too long.
    pub(super) fn is_late(&self, cx: &Step<'_, H>, since: Nanos) -> bool {
        let limit = match cx.facts.ports_up(self.pair.rails) {
            true => cx.timing.revive,
            // Nothing passes there, and another pair of rails may be free.
            false => cx.timing.revive.min(PORT_DOWN),
        };
        cx.now > since + limit
    }

    /// Probes in this direction; the path is used once both directions have theirs answered. `gives_way`: it is to make
    /// room for another pair of rails.
    pub(super) fn probe(
        &mut self,
        cx: &mut Step<'_, H>,
        polled: &Polled,
        gives_way: bool,
        since: Nanos,
    ) -> Revival {
        let Some(probing) = self.probing.as_deref_mut() else { return Revival::Waits };
        probing.answered += polled.answered;
        if polled.failed.is_some() {
            return Revival::Failed;
        }
        let mut busy = false;
        // Unanswered probes fill a small ring.
        if probing.posted < cx.timing.probes && cx.now >= probing.next && polled.has_room {
            cx.put(Output::PostProbe);
            probing.posted += 1;
            probing.next = cx.now + cx.timing.probe;
            busy = true;
        }
        let proved_here = probing.answered >= cx.timing.probes || Mutant::NoProbes.on();
        let proved_there = self.pair.proved_there || Mutant::NoProbes.on();
        if proved_here && !std::mem::replace(&mut probing.told, proved_here) {
            self.pair.tell(cx, Word::Proved);
            busy = true;
        }
        if proved_here && proved_there {
            return Revival::Proved;
        }
        if gives_way {
            return Revival::Failed;
        }
        self.say_again(cx);
        match self.is_late(cx, since) {
            true => Revival::Failed,
            false if busy => Revival::Busy,
            false => Revival::Waits,
        }
    }

    /// The follower made its half on the rail that it was asked for, or not.
    pub(super) fn hear_made(&mut self, cx: &mut Step<'_, H>, card: shunt_mlx5::descriptor::HalfCard) {
        let pair = &mut *self.pair;
        let Some(half) = pair.half.clone() else { return };
        // The owner takes the rail from here for an index.
        let asked = Offer { card, rail: pair.rails.local };
        if card.rail.index != pair.rails.remote || !cx.facts.rails_exist(asked.rails()) {
            return cx.put(Output::OtherRail(card.rail.index, pair.rails.remote));
        }
        pair.remote = Some(card);
        cx.put(Output::Moved(card.rail));
        cx.put(Output::Command(super::Urgency::Making, super::Command::Connect(half, card)));
    }
}
