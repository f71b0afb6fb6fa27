//! The machine of a path: what is asked of it and looked at, and where a phase follows another by the table of health.

use super::Urgency;
use super::fence_record::FenceRecord;
use super::fencing::{self, Fencing};
use super::io::Task;
use super::io::{Handle, Notice, Output, Polled, Step, Word};
use super::pair::{Pair, Telling};
use super::phase::{PathStart, Phase, Standing};
use super::reviving::{Due, Released, Revival, Reviving};
use crate::health::{Action, Health, Observation};
use crate::nanos::Nanos;
use crate::port_table::{CALM_NS, penalty_ns};
use crate::slots::RailPair;
use crate::truth::SideTruth;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::PathState;
use shunt_mlx5::descriptor::HalfCard;

/// This end of a path, by handles `H` of its halves. Told the same, two that are equal do the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathMachine<H> {
    pub(super) pair: Pair<H>,
    pub(super) phase: Phase,
    /// When the phase began.
    since: Nanos,
}

impl<H: Handle> PathMachine<H> {
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
        let fence = FenceRecord {
            mine: truth,
            theirs: truth,
            fenced: begun,
            left_here,
            left_there,
            ..Default::default()
        };
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
    pub(super) fn observe(&mut self, cx: &mut Step<'_, H>, what: Observation, urgency: Urgency) -> Action {
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
    pub(super) fn fence(&mut self, cx: &mut Step<'_, H>, urgency: Urgency) {
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
    pub(super) fn mark_unproven(&self, cx: &mut Step<'_, H>) {
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
    pub(super) fn look_into(&self, cx: &mut Step<'_, H>) {
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

    /// Gives a path that rests to other rails. What failed was another pair, unless `keeps_failures`.
    pub fn give_rails(&mut self, rails: RailPair, keeps_failures: bool) {
        self.pair.rails = rails;
        self.pair.untried = true;
        self.pair.failures = if keeps_failures { self.pair.failures } else { 0 };
    }

    /// The owner of atomics leaves its rail while its peer may never leave the path: the half is given up.
    pub fn forsake(&mut self, cx: &mut Step<'_, H>) {
        if !self.is_forsaken() {
            return;
        }
        self.mark_unproven(cx);
        self.pair.give_up_half(cx);
    }

    /// True if [`PathMachine::forsake`] is all that is left to do for a home that moves.
    pub fn is_forsaken(&self) -> bool {
        self.pair.fence.left_here && self.health() == Health::Fenced && self.pair.is_unproven()
    }

    // A look at each phase. True: something was done.

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
            Due::Make(variant) => self.pair.make(cx, variant),
            Due::No => {}
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
                "NICs may still write wherever completions would be: this number is passed over".to_owned()
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

    pub(super) fn failed(&mut self, cx: &mut Step<'_, H>, error: Option<String>) {
        if let Some(error) = error {
            self.pair.notice(cx, Notice::RevivalFailed(error));
        }
        self.observe(cx, Observation::Failed, Urgency::Idle);
    }

    // What NICs have done.

    /// What the NIC does for it now: the command that the last [`Output::Command`] asked for was given, or none is
    /// under way any more.
    pub fn given(&mut self, task: Task) {
        self.pair.task = task;
    }

    // What others may know of it.

    /// True if an operator wants it out.
    pub fn is_out(&self) -> bool {
        self.pair.is_out()
    }

    /// Where it stands.
    pub fn health(&self) -> Health {
        self.phase.health()
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

    /// What is known of its fence: the truth of this half, and that of the other one.
    pub const fn truths(&self) -> (Option<SideTruth>, Option<SideTruth>) {
        (self.pair.fence.mine, self.pair.fence.theirs)
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        Standing {
            health: self.health(),
            since: self.since,
            rails: self.pair.rails,
            rail_at_work: self.pair.rail_at_work(),
            task: self.pair.task,
            out: self.pair.is_out(),
            untried: self.pair.untried,
            failures: self.pair.failures,
            relapses: self.pair.relapses,
            leaving: matches!(&self.phase, Phase::Ready(ready) if ready.leaving.is_some()),
            probed: self.pair.probed == self.pair.incarnation,
        }
    }

    /// True if a look at it has nothing to do: it is ready and nobody is leaving it, or it is out for good.
    pub const fn is_at_rest(&self) -> bool {
        match &self.phase {
            Phase::Ready(ready) => ready.leaving.is_none(),
            Phase::Retired => true,
            _ => false,
        }
    }

    /// True while something may pass through it.
    pub const fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Ready(_) | Phase::Connecting | Phase::Probing(_))
    }

    /// True if somebody wants it left who says nothing against its rails: an operator, or another pair of rails that is
    /// to have its slot.
    pub(super) fn is_ordered(&self, now: Nanos) -> bool {
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
