//! The machine of a path: inputs, and the one place where a phase follows another.

use super::fence_record::FenceRecord;
use super::fencing::{self, Fencing, SELDOM};
use super::io::{Endpoint, Notice, Output, Polled, Step, Word};
use super::pair::{Offer, Pair, Task, Telling};
use super::ready::{Leaving, Ready};
use super::reviving::{Due, Probing, Released, Revival, Reviving};
use super::{Command, Fenced, Urgency};
use crate::agent::health::{Action, Health, Observation};
use crate::agent::message::SideTruth;
use crate::agent::port_table::{CALM_NS, penalty_ns};
use crate::connect::card::HalfCard;
use crate::nanos::Nanos;
use crate::slots::RailPair;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::PathState;

/// Incarnations that a peer may have used up while this side heard none of it: at one a second, more than a week's. Who
/// is further ahead was not understood, and a path has no more than 2^32 of them.
const NUMBERS_MISSED: u32 = 1 << 20;

/// Where a path stands, with what only that phase knows.
enum Phase {
    Ready(Ready),
    Fencing,
    Fenced,
    Released,
    Connecting,
    Probing(Probing),
    Retired,
}

impl Phase {
    fn begin(health: Health, now: Nanos) -> Self {
        match health {
            Health::Ready => Self::Ready(Ready::default()),
            Health::Fencing => Self::Fencing,
            Health::Fenced => Self::Fenced,
            Health::Released => Self::Released,
            Health::Connecting => Self::Connecting,
            Health::Probing => Self::Probing(Probing::new(now)),
            Health::Retired => Self::Retired,
        }
    }

    const fn health(&self) -> Health {
        match self {
            Self::Ready(_) => Health::Ready,
            Self::Fencing => Health::Fencing,
            Self::Fenced => Health::Fenced,
            Self::Released => Health::Released,
            Self::Connecting => Health::Connecting,
            Self::Probing(_) => Health::Probing,
            Self::Retired => Health::Retired,
        }
    }
}

/// A path as its machine finds it, and what outlives the machine.
#[derive(Clone, Debug)]
pub struct PathStart<H> {
    /// The highest incarnation that was ever begun; 0: it is to be made.
    pub incarnation: u32,
    /// Rails that it is given to.
    pub rails: RailPair,
    /// This half, while there is one.
    pub half: Option<H>,
    /// PSN that the next incarnation starts at.
    pub next_psn: u32,
    /// The operators' last order: odd if the path is to be out.
    pub orders: u32,
}

/// What a word of a newer incarnation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// The word is about what this side knows, or adopted: hear it.
    Hear,
    /// This side still fences the last one; the peer says it again.
    Later,
    /// It cannot be: no word about it is heard.
    Refused,
}

/// This end of a path, by handles `H` of its halves.
pub struct PathMachine<H> {
    pair: Pair<H>,
    phase: Phase,
    /// When the phase began.
    since: Nanos,
}

impl<H: Endpoint> PathMachine<H> {
    /// A path as it is found: ready if it has a half, unless it is told otherwise. One that was never made has nothing
    /// to fence and nobody to leave it. `leads`: this end leads its revivals.
    pub fn found(start: PathStart<H>, leads: bool, now: Nanos) -> Self {
        let PathStart { incarnation, rails, half, next_psn, orders } = start;
        let to_make = incarnation == 0;
        let health = match half {
            Some(_) => Health::Ready,
            None if to_make => Health::Released,
            None => Health::Retired,
        };
        let begun = if to_make { now } else { Nanos::ZERO };
        let truth = to_make.then_some(SideTruth::Fenced);
        let left = (to_make, to_make);
        let (left_here, left_there) = left;
        let fence =
            FenceRecord { mine: truth, theirs: truth, fenced: begun, left_here, left_there, ..Default::default() };
        let pair = Pair {
            leads,
            incarnation,
            rails,
            half,
            task: Task::None,
            untried: false,
            remote: None,
            next_psn,
            offered: None,
            asked: None,
            orders,
            readmitted: false,
            failures: 0,
            relapses: 0,
            admitted: None,
            probed: 0,
            proved_there: false,
            telling: Telling::default(),
            in_hand: 0,
            fence,
        };
        Self { pair, phase: Phase::begin(health, now), since: begun }
    }

    /// What outlives the machine.
    pub fn left(self) -> PathStart<H> {
        let Pair { incarnation, rails, half, next_psn, orders, .. } = self.pair;
        PathStart { incarnation, rails, half, next_psn, orders }
    }

    /// Takes an observation along the table of health, and carries out what the table says.
    fn observe(&mut self, cx: &mut Step<'_, H>, what: Observation, urgency: Urgency) -> Action {
        let (before, ordered) = (self.health(), self.is_ordered(cx.now));
        let (next, action) = before.observe(what);
        if next != before {
            let since = std::mem::replace(&mut self.since, cx.now);
            self.phase = Phase::begin(next, cx.now);
            self.say_moved(cx, what, next, since);
        }
        match action {
            Action::Keep if what == Observation::FenceAsked => self.pair.hasten(cx, urgency),
            Action::Keep => {}
            Action::Fence => {
                if !ordered {
                    self.count_relapse(cx.now);
                }
                self.fence(cx, urgency);
            }
            Action::FenceAgain => {
                if !ordered {
                    self.pair.failures += 1;
                    cx.put(Output::RailsFailed);
                }
                if before == Health::Probing {
                    cx.put(Output::CloseProbes);
                }
                self.fence(cx, urgency);
            }
            Action::Answer => self.pair.answer(cx),
            Action::Rest => cx.put(Output::Row(PathState::Released)),
            Action::Recreate => self.next_incarnation(cx),
            Action::Probe => {
                cx.put(Output::OpenProbes);
                (self.pair.telling.at, self.pair.telling.times) = (cx.now, 0);
            }
            Action::Admit => self.admit(cx),
        }
        action
    }

    fn say_moved(&self, cx: &mut Step<'_, H>, what: Observation, next: Health, since: Nanos) {
        let notice = match next {
            Health::Fencing => Notice::Fencing(match what {
                Observation::FenceAsked => "asked",
                Observation::Retire => "retire",
                _ => "failed",
            }),
            Health::Fenced => Notice::Fenced(cx.now - since),
            Health::Released => Notice::Released,
            // Said once it has its number.
            Health::Connecting => return,
            Health::Probing => Notice::Probing,
            Health::Ready => Notice::Admitted(cx.now - self.pair.fence.fenced),
            Health::Retired => Notice::Retired,
        };
        self.pair.notice(cx, notice);
    }

    /// A path that is left soon after it was admitted is gone back to later the next time: probes may survive what
    /// traffic does not. It is made again as soon as ever, because it may be the only one.
    fn count_relapse(&mut self, now: Nanos) {
        let calm = self.pair.admitted.is_none_or(|since| now - since >= CALM_NS);
        self.pair.relapses = if calm { 0 } else { self.pair.relapses + 1 };
    }

    /// Has this half fenced, and tells the peer to do the same; what was found follows.
    fn fence(&mut self, cx: &mut Step<'_, H>, urgency: Urgency) {
        // Not usable from now on: owners that come later choose another path, idle channels leave.
        cx.put(Output::Row(PathState::Fenced));
        let bulk = urgency == Urgency::Port;
        let pair = &mut self.pair;
        pair.tell(cx, if bulk { Word::Leave } else { Word::Fence });
        pair.fence.begin(cx.awake, bulk);
        pair.telling = Telling { at: cx.now, times: 0 };
        pair.proved_there = false;
        pair.offered = None;
        pair.fence_half(cx, urgency);
    }

    /// The next incarnation begins. Of the follower: on the rails that it was offered.
    fn next_incarnation(&mut self, cx: &mut Step<'_, H>) {
        cx.put(Output::Row(PathState::Probing));
        if !Mutant::JournalOverwritten.on() {
            cx.put(Output::SpareJournal);
        }
        self.mark_unproven(cx);
        let pair = &mut self.pair;
        let again = Mutant::IncarnationUsedTwice.on() && pair.failures > 0;
        pair.incarnation = pair.incarnation.saturating_add(!again as u32);
        pair.fence.forget();
        pair.asked = None;
        pair.untried = false;
        pair.proved_there = false; // what was proved of an earlier incarnation says nothing of this one
        let offered = if pair.leads { None } else { pair.offered.take() };
        if let Some(offer) = &offered {
            pair.rails = offer.rails();
        }
        pair.remote = offered.map(|offer| offer.card);
        pair.notice(cx, Notice::Revived);
    }

    fn admit(&mut self, cx: &mut Step<'_, H>) {
        let pair = &mut self.pair;
        pair.proved_there = false;
        pair.failures = 0;
        pair.admitted = Some(cx.now);
        pair.probed = pair.incarnation;
        (pair.fence.mine, pair.fence.theirs) = (None, None);
        let calm = cx.facts.calm_from(cx.now, pair.rails);
        cx.put(Output::HandOver(calm + penalty_ns(pair.relapses)));
        cx.put(Output::Row(PathState::Ready));
        cx.put(Output::RailsWorked);
    }

    /// The half gives way to the next: its rail is marked if nobody proved it quiet.
    fn mark_unproven(&self, cx: &mut Step<'_, H>) {
        if let Some(half) = self.pair.half.as_ref().filter(|_| !self.is_proven(cx.age, cx.timing.lifetime)) {
            cx.put(Output::Unproven(half.rail()));
        }
    }

    // What is asked of it.

    /// Its owner asks for its fence, by a request of this number; `silent`: because nothing came back.
    pub fn ask(&mut self, cx: &mut Step<'_, H>, request: u64, silent: bool) {
        self.pair.asked = Some(request);
        if std::mem::take(&mut self.pair.fence.bulk) {
            // So far nobody waited for it, and the peer's NIC has others to fence.
            self.pair.tell(cx, Word::Fence);
        }
        if silent {
            self.look_into(cx);
        }
        self.pair.notice(cx, Notice::FenceAsked(request));
        self.fence_asked(cx, Urgency::Asked);
    }

    /// Somebody wants it fenced.
    pub fn fence_asked(&mut self, cx: &mut Step<'_, H>, urgency: Urgency) {
        self.observe(cx, Observation::FenceAsked, urgency);
    }

    /// It is being left because of silence: if no port explains that, somebody is to be asked.
    fn look_into(&self, cx: &mut Step<'_, H>) {
        if self.health() == Health::Ready {
            cx.put(Output::LookInto);
        }
    }

    /// Owners go on without an answer where a ledger's path fails or time proves the fence. A channel has one request
    /// line: what it asked of this path may be overwritten before anybody reads it. The path's state tells.
    pub fn fence_overlooked(&mut self, cx: &mut Step<'_, H>) -> bool {
        let overlooked = self.health() == Health::Ready && cx.facts.row_state() == PathState::Fenced;
        if overlooked {
            self.fence_asked(cx, Urgency::Idle);
        }
        overlooked
    }

    /// Its slot is wanted for another pair of rails. Called for as long as it is.
    pub fn want_slot(&mut self, cx: &mut Step<'_, H>) {
        if let Phase::Ready(ready) = &mut self.phase
            && ready.is_wanted(&self.pair, cx)
        {
            self.fence_asked(cx, Urgency::Idle);
        }
    }

    /// Gives a path that rests to other rails. What failed was another pair, unless `keeps_failures`.
    pub fn give_rails(&mut self, rails: RailPair, keeps_failures: bool) {
        self.pair.rails = rails;
        self.pair.untried = true;
        self.pair.failures = if keeps_failures { self.pair.failures } else { 0 };
    }

    /// The owner of atomics leaves its rail while its peer may never leave the path: the half is given up.
    pub fn forsake(&mut self, cx: &mut Step<'_, H>) {
        self.mark_unproven(cx);
        self.pair.give_up_half(cx);
    }

    /// True if [`PathMachine::forsake`] is all that is left to do for a home that moves.
    pub fn is_forsaken(&self) -> bool {
        self.pair.fence.left_here && self.health() == Health::Fenced && self.pair.is_unproven()
    }

    // Operators' orders. `standby`: the owner has another path that is ready.

    /// An operator takes it out: drained, if it works and its owner has another one, and else fenced like one that
    /// failed; it is not made again.
    pub fn retire(&mut self, cx: &mut Step<'_, H>, standby: bool) {
        self.pair.order(true);
        self.pair.tell_order(cx);
        self.take_out(cx, standby);
    }

    /// An operator brings it back.
    pub fn readmit(&mut self, cx: &mut Step<'_, H>) {
        self.pair.order(false);
        self.pair.readmitted = !self.pair.leads;
        self.bring_back(cx);
        self.pair.tell_order(cx);
    }

    /// An order to take a path out is carried out from whatever phase it is in; one that is down has nothing to leave.
    fn take_out(&mut self, cx: &mut Step<'_, H>, standby: bool) {
        self.pair.readmitted = false;
        match &self.phase {
            Phase::Ready(ready) if ready.leaving.is_none() => self.leave(cx, false, standby),
            Phase::Connecting | Phase::Probing(_) => self.fence_asked(cx, Urgency::Idle),
            _ => {}
        }
    }

    fn bring_back(&mut self, cx: &mut Step<'_, H>) {
        let state = cx.facts.row_state();
        self.fence_overlooked(cx);
        self.pair.failures = 0;
        match &mut self.phase {
            Phase::Ready(ready) => {
                // A mark that the owner makes just now stays: the next look finds it.
                if ready.leaving.take().is_some() && state == PathState::Leaving {
                    cx.facts.change_row(state, PathState::Ready);
                }
            }
            Phase::Retired if state != PathState::Absent => {
                self.observe(cx, Observation::Readmit, Urgency::Idle);
            }
            _ => {}
        }
    }

    /// What the other end's operator ordered. An order that is older than the last one is void, and whoever still
    /// carries it out is told the later one.
    fn peer_orders(&mut self, cx: &mut Step<'_, H>, order: u32, standby: bool) {
        let before = self.pair.orders;
        self.pair.orders = order.max(before);
        if order < before {
            self.pair.tell_order(cx);
        } else if self.pair.is_out() {
            self.take_out(cx, standby);
        } else if order > before {
            self.bring_back(cx);
        }
    }

    /// A path that works is to be left by both directions; the other one has already, if `there_left`.
    fn leave(&mut self, cx: &mut Step<'_, H>, there_left: bool, standby: bool) {
        if let Phase::Ready(ready) = &mut self.phase {
            ready.leave(&mut self.pair, cx.now, there_left);
            self.mind_leaving(cx, standby);
        }
    }

    fn mind_leaving(&mut self, cx: &mut Step<'_, H>, standby: bool) -> bool {
        if !self.is_leaving() {
            return false;
        }
        if self.fence_overlooked(cx) {
            return true;
        }
        let Phase::Ready(ready) = &mut self.phase else { return false };
        match ready.carry_on(&mut self.pair, cx, standby) {
            Leaving::Waits => false,
            Leaving::Busy => true,
            over @ (Leaving::Gone | Leaving::Late) => {
                self.fence_asked(cx, Urgency::Idle);
                over == Leaving::Gone
            }
        }
    }

    /// True if the other end's wish for the slot, about this incarnation, concerns a path that this end may leave.
    pub fn may_do_without(&self, incarnation: u32) -> bool {
        self.pair.incarnation == incarnation && matches!(&self.phase, Phase::Ready(one) if one.leaving.is_none())
    }

    /// The other end wants the slot, and this one has another path.
    pub fn do_without(&mut self, cx: &mut Step<'_, H>) {
        if cx.facts.has_left() {
            return self.fence_asked(cx, Urgency::Idle);
        }
        // Before the first look at what becomes of it: one that is fenced there has been left by nobody.
        self.leave(cx, true, true);
    }

    // What the other end says.

    /// A word about an incarnation is about to be heard. Messages of an older one are void; of a newer one, this side
    /// missed its making and adopts it: it never had a half of that number.
    pub fn adopt(&mut self, cx: &mut Step<'_, H>, incarnation: u32) -> Adopted {
        if incarnation <= self.pair.incarnation {
            return Adopted::Hear;
        }
        // A path is made again only after both directions left, so word of it says that theirs has.
        let over = self.health() == Health::Fenced && self.pair.fence.left_here;
        let near = incarnation - self.pair.incarnation <= NUMBERS_MISSED;
        // One that is retired takes part as well, and is retired again: the peer is not to wait for it in vain.
        if !matches!(self.phase, Phase::Released | Phase::Retired) && !over || !near {
            if near && matches!(self.phase, Phase::Fencing | Phase::Fenced) {
                self.pair.fence.peer_moved_on(cx.age);
                return Adopted::Later; // it says so again
            }
            return Adopted::Refused;
        }
        self.mark_unproven(cx);
        let pair = &mut self.pair;
        pair.fence.unknown = false;
        pair.incarnation = incarnation;
        pair.remote = None;
        pair.fence.theirs = None;
        self.phase = Phase::Connecting;
        self.pair.discard(cx);
        Adopted::Hear
    }

    /// The other end says something about an incarnation. True if what is awaited of a fence may be there now.
    pub fn hear(&mut self, cx: &mut Step<'_, H>, incarnation: u32, word: Word, standby: bool) -> bool {
        match word {
            Word::Order(order) => self.peer_orders(cx, order, standby),
            Word::Fence | Word::Leave | Word::Truth(_) | Word::Left => {
                return self.hear_of_fence(cx, incarnation, word);
            }
            _ => self.hear_of_revival(cx, incarnation, word),
        }
        false
    }

    fn hear_of_fence(&mut self, cx: &mut Step<'_, H>, incarnation: u32, word: Word) -> bool {
        if incarnation < self.pair.incarnation && !Mutant::OldMessageActedOn.on() {
            return false;
        }
        let asks = matches!(word, Word::Fence | Word::Leave);
        if asks && self.pair.fence.theirs.is_none() {
            // It has no truth to tell yet. A NIC that does not answer it would be one.
            self.pair.fence.in_hand_there = Some(cx.awake);
        }
        match word {
            Word::Fence => self.peer_asks(cx, Urgency::Peer),
            Word::Leave => self.peer_asks(cx, Urgency::Port),
            Word::Truth(truth) => {
                if self.pair.fence.hear(cx.age, truth) {
                    self.pair.telling.times = 0;
                }
                if self.is_usable() {
                    self.fence_asked(cx, Urgency::Peer);
                }
                return true;
            }
            _ => self.pair.fence.left_there = true,
        }
        false
    }

    /// Rule 10 is symmetric: the other's fence is answered by fencing, once.
    fn peer_asks(&mut self, cx: &mut Step<'_, H>, urgency: Urgency) {
        // Its owner left; an order, or a slot that is wanted for other rails, says nothing against these.
        if urgency == Urgency::Peer && !self.is_ordered(cx.now) {
            self.look_into(cx);
        }
        match self.phase {
            Phase::Ready(_) | Phase::Connecting | Phase::Probing(_) => self.fence_asked(cx, urgency),
            // It asks although it was told: the telling got lost.
            Phase::Fencing | Phase::Fenced | Phase::Released => {
                self.pair.hasten(cx, urgency);
                self.pair.tell_again(cx, false, SELDOM);
            }
            Phase::Retired if !Mutant::RetiredSaysNothing.on() => self.tell_retired(cx),
            Phase::Retired => {}
        }
    }

    /// A path that is out has been left, and its half is fenced: who still asks has missed the word. What an agent that
    /// took over does not know of the half, its NIC is asked first.
    fn tell_retired(&mut self, cx: &mut Step<'_, H>) {
        let pair = &mut self.pair;
        let Some(mine) = pair.fence.mine.filter(|_| cx.now >= pair.telling.at + cx.timing.resend / 2) else {
            return;
        };
        pair.telling.at = cx.now;
        pair.tell(cx, Word::Truth(mine));
        pair.tell(cx, Word::Left);
    }

    fn hear_of_revival(&mut self, cx: &mut Step<'_, H>, incarnation: u32, word: Word) {
        let current = incarnation == self.pair.incarnation && self.health() == Health::Connecting;
        match word {
            Word::Make(card, rail) if Some(incarnation) == self.pair.incarnation.checked_add(1) => {
                self.hear_offer(cx, Offer { card, rail });
            }
            // Said twice it is connected once.
            Word::Made(card) if current && self.pair.remote.is_none() && self.pair.task == Task::None => {
                Reviving { pair: &mut self.pair, probing: None }.hear_made(cx, card);
            }
            // It asks whether we are: the word that said so got lost.
            Word::Made(_) if self.health() == Health::Probing && self.pair.incarnation == incarnation => {
                self.pair.tell(cx, Word::Up);
            }
            Word::Up if current && !self.pair.leads => self.connected(cx),
            // It probes, and misses our word.
            Word::Up if self.has_proved(incarnation) => self.pair.tell(cx, Word::Proved),
            Word::Proved if incarnation == self.pair.incarnation => self.pair.proved_there = true,
            _ => {}
        }
    }

    fn hear_offer(&mut self, cx: &mut Step<'_, H>, offer: Offer) {
        if !cx.facts.rails_exist(offer.rails()) {
            return cx.put(Output::NoSuchRails(offer));
        }
        self.pair.offered = Some(offer);
        self.pair.readmitted = false;
        cx.put(Output::Moved(offer.card.rail));
        self.pair.fence.peer_moved_on(cx.age);
        if self.pair.is_out() {
            self.pair.tell_order(cx); // it does not know, or knows better
        }
    }

    /// True if this side's probes of this incarnation were answered.
    fn has_proved(&self, incarnation: u32) -> bool {
        let told = match &self.phase {
            Phase::Ready(_) => true,
            Phase::Probing(probing) => probing.told,
            _ => false,
        };
        self.pair.incarnation == incarnation && told
    }

    fn connected(&mut self, cx: &mut Step<'_, H>) {
        self.observe(cx, Observation::Connected, Urgency::Idle);
    }

    // A look at each phase. True: something was done.

    /// Of a path that is ready.
    pub fn look_ready(&mut self, cx: &mut Step<'_, H>, standby: bool) -> bool {
        self.mind_leaving(cx, standby)
    }

    /// Of a fence whose other half says nothing: asks again.
    pub fn look_asking(&mut self, cx: &mut Step<'_, H>) {
        Fencing(&mut self.pair).ask_again(cx);
    }

    /// Of a fence: waits for this half. True once something is known of it.
    pub fn look_own_half(&mut self, cx: &mut Step<'_, H>) -> bool {
        Fencing(&mut self.pair).own_half_known(cx)
    }

    /// Of a fence whose own half is known: waits for both.
    pub fn look_both_halves(&mut self, cx: &mut Step<'_, H>) -> bool {
        let Some(what) = Fencing(&mut self.pair).await_both(cx) else { return false };
        self.observe(cx, what, Urgency::Idle);
        if Mutant::TruthNotKept.on() {
            self.pair.fence.mine = None;
        }
        true
    }

    /// Of a fence: says to the owner that it is under way.
    pub fn say_in_hand(&mut self, cx: &mut Step<'_, H>) {
        let health = self.health();
        Fencing(&mut self.pair).say_in_hand(cx, health);
    }

    /// Of a path that is fenced.
    pub fn look_fenced(&mut self, cx: &mut Step<'_, H>) -> bool {
        let (busy, what) = fencing::Fenced(&mut self.pair).await_left(cx);
        if let Some(what) = what {
            self.observe(cx, what, Urgency::Idle);
        }
        busy
    }

    /// Of a path that rests.
    pub fn look_released(&mut self, cx: &mut Step<'_, H>) -> bool {
        let mut released = Released(&mut self.pair);
        if released.retires() {
            self.observe(cx, Observation::Retire, Urgency::Idle);
            cx.put(Output::Row(PathState::Retired));
            return true;
        }
        released.ask_back(cx);
        let due = released.due(cx, self.since);
        if due == Due::No {
            return false;
        }
        self.observe(cx, Observation::Due, Urgency::Idle);
        match due {
            Due::Refuse { rail, stuck } => self.refuse(cx, rail, stuck),
            _ => self.pair.make(cx),
        }
        true
    }

    /// The NIC here does not let go of the old half, or another one of an older half whose memory is in question. The
    /// peer is told at once, in the one way that both ends know of an incarnation that came to nothing: the leader may
    /// have other rails to offer.
    fn refuse(&mut self, cx: &mut Step<'_, H>, rail: u32, stuck: bool) {
        if self.pair.half.is_some() {
            self.mark_unproven(cx);
            self.pair.give_up_half(cx);
            self.pair.task = Task::None;
        }
        let error = match stuck {
            true => format!("the NIC of rail {rail} has not answered that the last half is destroyed"),
            false => {
                "a NIC may still write where completions would be: this number is passed over".to_owned()
            }
        };
        self.pair.notice(cx, Notice::RevivalFailed(error));
        self.failed(cx, None);
    }

    /// Of a path whose halves are being connected.
    pub fn look_connecting(&mut self, cx: &mut Step<'_, H>) -> bool {
        let mut reviving = Reviving { pair: &mut self.pair, probing: None };
        reviving.say_again(cx);
        let late = reviving.is_late(cx, self.since);
        if late {
            self.failed(cx, None);
        }
        late
    }

    /// Of a path that is being probed. `gives_way`: it is to make room for another pair of rails.
    pub fn look_probing(&mut self, cx: &mut Step<'_, H>, polled: &Polled, gives_way: bool) -> bool {
        let Phase::Probing(probing) = &mut self.phase else { return false };
        let mut reviving = Reviving { pair: &mut self.pair, probing: Some(probing) };
        match reviving.probe(cx, polled, gives_way, self.since) {
            Revival::Waits => return false,
            Revival::Busy => {}
            Revival::Proved => {
                self.observe(cx, Observation::Proved, Urgency::Idle);
            }
            Revival::Failed => self.failed(cx, polled.failed.clone()),
        }
        true
    }

    fn failed(&mut self, cx: &mut Step<'_, H>, error: Option<String>) {
        if let Some(error) = error {
            self.pair.notice(cx, Notice::RevivalFailed(error));
        }
        self.observe(cx, Observation::Failed, Urgency::Idle);
    }

    // What NICs have done.

    /// The command that the last [`Output::Command`] asked for was given.
    pub fn given(&mut self, task: Task) {
        self.pair.task = task;
    }

    /// A half was not begun: its making was taken back.
    pub fn make_cancelled(&mut self) {
        self.pair.task = Task::None;
    }

    /// What came of a fence or a count.
    pub fn fenced(&mut self, cx: &mut Step<'_, H>, result: Result<Fenced, String>) {
        self.pair.fenced(cx, result);
    }

    /// What came of 2ERR of a half that was counted: it is in ERR and shows it, or counts as one that nobody fenced.
    /// Until then it may have sent: its packet lifetime begins now.
    pub fn stopped(&mut self, cx: &mut Step<'_, H>, result: Result<(), String>) {
        self.pair.task = Task::None;
        self.pair.fence.stopped_age = Some(cx.age);
        if let Err(error) = result {
            self.pair.fence.mine = Some(SideTruth::Dead);
            self.pair.notice(cx, Notice::FenceFailed(error));
        }
    }

    /// A half is made, or is not. Somebody who asked for its fence meanwhile gets it now.
    pub fn made(&mut self, cx: &mut Step<'_, H>, result: Result<H, String>) {
        if let Ok(half) = &result {
            cx.put(Output::Proven(half.rail()));
        }
        let pair = &mut self.pair;
        pair.task = Task::None;
        let mut error = None;
        match result {
            // The path has gone on to another number while this was made.
            Ok(half) if half.incarnation() != pair.incarnation => cx.put(Output::Destroy(half)),
            Ok(half) => pair.half = Some(half),
            Err(why) => error = Some(why),
        }
        if self.health() != Health::Connecting {
            return self.pair.fence_half(cx, Urgency::Peer);
        }
        if self.pair.half.is_none() {
            return self.failed(cx, error);
        }
        if !self.pair.leads {
            cx.put(Output::Publish);
        }
        Reviving { pair: &mut self.pair, probing: None }.say(cx);
    }

    /// The leader's half is connected to the follower's, or is not.
    pub fn connected_here(&mut self, cx: &mut Step<'_, H>, result: Result<(), String>) {
        self.pair.task = Task::None;
        if let Err(error) = result {
            return self.failed(cx, Some(error));
        }
        if self.health() == Health::Connecting {
            cx.put(Output::Publish);
            self.connected(cx);
            let probing = match &mut self.phase {
                Phase::Probing(probing) => Some(probing),
                _ => None,
            };
            Reviving { pair: &mut self.pair, probing }.say(cx);
        }
    }

    /// The queue pair of a path that was found ready was read. One that failed by itself: nobody was told of a fence, so
    /// this one is the first, and its truth is one.
    pub fn looked(&mut self, cx: &mut Step<'_, H>, works: bool) {
        self.pair.task = Task::None;
        if !works && self.health() == Health::Ready {
            self.fence_asked(cx, Urgency::Idle);
        }
    }

    /// An old half was destroyed; its requester would have sent this PSN next, if its NIC knew. The packet lifetime
    /// counts from here again.
    pub fn destroyed(&mut self, age: Nanos, next_send_psn: Option<u32>) {
        self.pair.fence.destroyed_age = Some(age);
        if let Some(psn) = next_send_psn.filter(|_| self.pair.half.is_none()) {
            self.pair.next_psn = crate::nic::half::revived_psn(psn);
        }
    }

    // A new life: what an earlier machine knew is lost; what its owner reads is left.

    /// Its path is found with its owner in this state. `incarnation` is the number that the owner reads; `destroying`:
    /// the NIC at work may still have a half that was to be destroyed.
    pub fn taken_over(
        &mut self,
        cx: &mut Step<'_, H>,
        state: PathState,
        incarnation: u32,
        destroying: bool,
        standby: bool,
    ) {
        match state {
            PathState::Ready => {
                let Some(half) = self.pair.half.clone() else { return };
                self.phase = Phase::Ready(Ready::default());
                cx.put(Output::Command(Urgency::Idle, Command::Look(half)));
                if self.pair.is_out() {
                    self.leave(cx, false, standby); // it had nowhere to go so far
                }
            }
            PathState::Leaving => {
                self.phase = Phase::Ready(Ready::default());
                self.leave(cx, false, standby);
            }
            PathState::Retired | PathState::Absent => {
                self.phase = Phase::Retired;
                if state == PathState::Retired && !self.pair.is_fresh() {
                    self.taken_over_retired(cx, destroying);
                }
            }
            // Bring-up left it to the agents, and the last one had not begun.
            PathState::Released if self.pair.is_fresh() => self.phase = Phase::Released,
            PathState::Fenced | PathState::Released | PathState::Probing => {
                self.phase = Phase::Fencing;
                self.pair.fence.unknown = true;
                if Mutant::IncarnationForgotten.on() {
                    self.pair.incarnation = incarnation;
                }
                if Mutant::RestartFencesNothing.on() {
                    self.pair.half_fenced(cx, SideTruth::Fenced);
                } else {
                    self.fence(cx, Urgency::Idle);
                }
            }
        }
    }

    /// A path that is out may have a peer that has not heard so. Its half was fenced, or could not be: its NIC says.
    fn taken_over_retired(&mut self, cx: &mut Step<'_, H>, destroying: bool) {
        let pair = &mut self.pair;
        pair.fence.unknown = true;
        (pair.fence.left_here, pair.fence.left_there) = (true, true);
        if pair.half.is_none() {
            let mine = if destroying { SideTruth::Dead } else { SideTruth::Unknown };
            pair.fence.mine = Some(mine);
        } else {
            pair.fence_half(cx, Urgency::Idle);
        }
    }

    // What others may know of it.

    /// Where it stands.
    pub fn health(&self) -> Health {
        self.phase.health()
    }

    /// When that began.
    pub const fn since(&self) -> Nanos {
        self.since
    }

    /// Its incarnation.
    pub const fn incarnation(&self) -> u32 {
        self.pair.incarnation
    }

    /// The rails it is given to.
    pub const fn rails(&self) -> RailPair {
        self.pair.rails
    }

    /// This half.
    pub const fn half(&self) -> Option<&H> {
        self.pair.half.as_ref()
    }

    /// The other half.
    pub const fn remote(&self) -> Option<&HalfCard> {
        self.pair.remote.as_ref()
    }

    /// What its NIC is doing.
    pub const fn task(&self) -> Task {
        self.pair.task
    }

    /// The rail whose NIC works for it.
    pub fn rail_at_work(&self) -> u32 {
        self.pair.rail_at_work()
    }

    /// True if this half, or what is known of the next one, is on a rail of this end.
    pub fn touches(&self, rail: u32) -> bool {
        self.pair.rails.local == rail || self.pair.half.as_ref().is_some_and(|half| half.rail() == rail)
    }

    /// True if an operator wants it out.
    pub fn is_out(&self) -> bool {
        self.pair.is_out()
    }

    /// Failures to revive in a row; and whether it was given to its rails and has not been made there yet.
    pub const fn failures(&self) -> (u32, bool) {
        (self.pair.failures, self.pair.untried)
    }

    /// Times in a row that it was left soon after it was admitted.
    pub const fn relapses(&self) -> u32 {
        self.pair.relapses
    }

    /// True while it is ready and to be left.
    pub const fn is_leaving(&self) -> bool {
        matches!(&self.phase, Phase::Ready(ready) if ready.leaving.is_some())
    }

    /// True if it is ready and nobody is leaving it.
    pub const fn is_standby(&self) -> bool {
        matches!(&self.phase, Phase::Ready(ready) if ready.leaving.is_none())
    }

    /// True while something may pass through it.
    pub const fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Ready(_) | Phase::Connecting | Phase::Probing(_))
    }

    /// True if its NIC still has the fence of this half although both directions have left.
    pub fn is_fencing_at_rest(&self, rail: u32) -> bool {
        let fencing = matches!(self.phase, Phase::Released) && matches!(self.pair.task, Task::Fence(_));
        fencing && self.rail_at_work() == rail
    }

    /// The PSN that the peer's probes began with, if nothing but probes of this incarnation has crossed it.
    pub fn probed_from(&self) -> Option<u32> {
        let probed = self.pair.probed == self.pair.incarnation;
        probed.then_some(self.pair.remote.as_ref()).flatten().map(|remote| remote.psn)
    }

    /// True if its incarnation was probed in both directions.
    pub const fn is_probed(&self) -> bool {
        self.pair.probed == self.pair.incarnation
    }

    /// True if somebody wants it left who says nothing against its rails: an operator, or another pair of rails that is
    /// to have its slot.
    fn is_ordered(&self, now: Nanos) -> bool {
        let drained = matches!(&self.phase, Phase::Ready(ready) if ready.is_ordered(now));
        (drained || self.pair.is_out()) && !Mutant::OrderIsFailure.on()
    }

    /// True if a fence of this half, or what came of it, is proof.
    fn is_proven(&self, age: Nanos, lifetime: Nanos) -> bool {
        let never_made = self.pair.half.is_none() && self.health() == Health::Retired;
        self.pair.fence.is_proof(age, lifetime, !never_made)
    }

    /// True if nothing can come through this half, now or later.
    pub fn is_silenced(&self, age: Nanos, lifetime: Nanos) -> bool {
        !self.is_usable() && self.is_proven(age, lifetime) || self.is_gone(age, lifetime)
    }

    /// True if a half that nobody fenced was put away, and a packet lifetime has passed since a half of this path was
    /// last destroyed. While its own NIC still has it, that rail counts as unfenced.
    fn is_gone(&self, age: Nanos, lifetime: Nanos) -> bool {
        let rests = matches!(self.phase, Phase::Fenced | Phase::Released | Phase::Retired);
        let over = self.pair.fence.destroyed_age.is_some_and(|since| age >= since + lifetime);
        rests && self.pair.half.is_none() && self.pair.is_unproven() && over
    }
}
