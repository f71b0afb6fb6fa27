//! The pair fence: both halves to ERR, both counts read, old writes flushed, one round trip. Rules 9, 10, 18.
//!
//! The NIC's worker does it (`worker.rs`); here is who is told what, and what is waited for.

use super::Agent;
use crate::agent::fence_patience::{awaited_until_ns, proof_awaited_ns, to_say};
use crate::agent::health::{Action, Health, Observation};
use crate::agent::message::{Message, PairId, SideTruth};
use crate::agent::nic_job::{Job, Urgency};
use crate::agent::pair::Task;
use crate::agent::port_table::CALM_NS;
use crate::agent::verdict::{Verdict, tells_more, verdict};
use crate::agent::words::{Place, Request};
use crate::events::Event;
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{AnswerStatus, CauseKind, PathState};

/// Longest pause between two words to a peer that need not answer at once: nobody's patience ends meanwhile.
const SELDOM_NS: Nanos = Nanos::secs(10);

/// Incarnations that a peer may have used up while this side heard none of it: at one a second, more than a week's. Who
/// is further ahead was not understood, and a pair has no more than 2^32 of them.
const NUMBERS_MISSED: u32 = 1 << 20;

impl Agent {
    /// A switcher of this PE asks.
    pub(in crate::agent) fn ask_fence(&mut self, now: Nanos, at: Place, request: Request) {
        let index = self.index(at);
        let unprovable = Verdict { status: AnswerStatus::Unprovable, executed: 0 };
        let Some(pair) = &mut self.pairs[index] else {
            return self.answer_request(now, at, request.incarnation, request.number, unprovable);
        };
        if pair.incarnation != request.incarnation {
            // A pair is made anew only after this direction left it, so nobody can ask for an older one in earnest.
            return self.answer_request(now, at, request.incarnation, request.number, unprovable);
        }
        pair.asked = Some(request.number);
        if std::mem::take(&mut pair.bulk) {
            // So far nobody waited for it, and the peer's NIC has others to fence.
            self.tell(now, index, Message::Fence(self.id(index)));
        }
        let silent =
            matches!(self.words.cause(at.peer, at.channel), CauseKind::Overdue | CauseKind::Completion);
        self.look_into(now, index, at, silent);
        let at = self.route(index);
        self.report(now, Event::FenceAsked { at, request: request.number });
        self.fence_asked(now, index, Urgency::Asked);
    }

    pub(in crate::agent) fn fence_asked(&mut self, now: Nanos, index: usize, urgency: Urgency) {
        match self.observe(now, index, Observation::FenceAsked) {
            Action::Fence => {
                self.count_relapse(now, index);
                self.fence(now, index, urgency);
            }
            Action::FenceAgain => self.fence_again(now, index, urgency),
            Action::Answer => self.answer(now, index),
            _ => self.hasten(index, urgency),
        }
    }

    /// Device code goes on without an answer where a ledger's path fails or time proves the fence. A channel has one
    /// request line: what it asked of this pair may be overwritten before anybody reads it. The row tells.
    pub(in crate::agent) fn fence_overlooked(&mut self, now: Nanos, index: usize) -> bool {
        let ready = self.pairs[index].as_ref().is_some_and(|pair| pair.health == Health::Ready);
        let overlooked = ready && self.words.path_state(self.place(index)) == PathState::Fenced;
        if overlooked {
            self.fence_asked(now, index, Urgency::Idle);
        }
        overlooked
    }

    /// A path that is left soon after it was admitted is gone back to later the next time: probes may survive what
    /// traffic does not. It is made anew as soon as ever, because it may be the only one.
    fn count_relapse(&mut self, now: Nanos, index: usize) {
        if let Some(pair) = self.pairs[index].as_mut().filter(|pair| !pair.is_ordered(now)) {
            let calm = pair.admitted_ns.is_none_or(|since| now - since >= CALM_NS);
            pair.relapses = if calm { 0 } else { pair.relapses + 1 };
        }
    }

    /// What was made anew failed: it rests longer the next time.
    pub(in crate::agent) fn fence_again(&mut self, now: Nanos, index: usize, urgency: Urgency) {
        if let Some(pair) = self.pairs[index].as_mut().filter(|pair| !pair.is_ordered(now)) {
            pair.failures += 1;
            self.note_failure(now, index);
        }
        self.fence(now, index, urgency);
    }

    /// Has this half fenced, and tells the peer to do the same; what was found follows.
    pub(in crate::agent) fn fence(&mut self, now: Nanos, index: usize, urgency: Urgency) {
        let (at, id, now) = (self.place(index), self.id(index), now);
        let awake_ns = self.awake.age_ns;
        // Not usable from now on: switchers that come later choose another path, idle channels leave.
        self.words.set_state(at, PathState::Fenced);
        let bulk = urgency == Urgency::Port;
        self.tell(now, index, if bulk { Message::Leave(id) } else { Message::Fence(id) });
        if let Some(pair) = &mut self.pairs[index] {
            pair.bulk = bulk;
            pair.stopped_age_ns = None;
            pair.leaving_ns = None;
            pair.vacate = None;
            pair.mine = None;
            pair.in_hand_there_ns = None;
            pair.told_ns = now;
            pair.told = 0;
            pair.failed = 0;
            pair.begun_awake_ns = awake_ns;
            pair.left_here = false;
            pair.left_there = false;
            pair.probes = None;
            pair.proved_there = false;
            pair.offered = None;
        }
        self.fence_half(now, index, urgency);
    }

    /// 2ERR, query, flush, query: a job of the NIC's worker. A half that is being made is fenced once it is there.
    pub(in crate::agent) fn fence_half(&mut self, now: Nanos, index: usize, urgency: Urgency) {
        self.recall(index);
        let Some(pair) = &self.pairs[index] else { return };
        if matches!(pair.task, Task::Make(_)) {
            return;
        }
        // A half that was never made counts nothing, and nothing can reach it.
        let Some(half) = pair.half.clone() else { return self.half_fenced(now, index, SideTruth::Fenced) };
        let number = self.order(index, urgency, Job::Fence(half));
        self.set_task(index, Task::Fence(number));
    }

    /// What is known of this half now. The truth is stored with its incarnation and told.
    pub(in crate::agent) fn half_fenced(&mut self, now: Nanos, index: usize, mine: SideTruth) {
        let (age_ns, id) = (self.age.age_ns, self.id(index));
        let awake_ns = self.awake.age_ns;
        let Some(pair) = &mut self.pairs[index] else { return };
        let mine = Self::said_of(pair, mine);
        if pair.mine.is_none() {
            pair.fenced_awake_ns = awake_ns;
        }
        if mine == SideTruth::Dead {
            pair.again_ns = now + self.options.backoff_ns.doubled(pair.failed);
            pair.failed += 1;
        }
        pair.mine = Some(mine);
        pair.fenced_ns = now;
        pair.fenced_age_ns = age_ns;
        pair.told_ns = now;
        self.tell(now, index, Message::Truth(id, mine));
    }

    /// What this side has to say of a fenced pair, once more: messages may get lost. `asks`: an answer is wanted.
    fn tell_again(&mut self, now: Nanos, index: usize, asks: bool) {
        let id = self.id(index);
        let Some(pair) = &mut self.pairs[index] else { return };
        let pause = match pair.told {
            0 => self.options.doubt_ns,
            told => self.options.resend_ns << (told - 1).min(10),
        };
        let pause = pause.min(match pair.health {
            // Somebody who hears nothing for `peer_ns` stops waiting, so there is to be something to hear before.
            Health::Fencing => self.options.peer_ns / 4,
            _ => SELDOM_NS,
        });
        // An answer is given sooner than a question is asked again, or both sides would only ask.
        let due = if asks { pause } else { self.options.resend_ns / 2 };
        if now < pair.told_ns + due {
            return;
        }
        pair.told_ns = now;
        let (mine, left, bulk) = (pair.mine, pair.left_here, pair.bulk);
        let peer = self.place(index).peer;
        // Nobody waits for the way back to a peer that is gone. If it comes back it is asked again.
        if asks && left && (self.reporter.is_lost(peer) || !self.links.reachable(now, peer, &self.ports)) {
            return;
        }
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.told = pair.told.saturating_add(asks as u32);
        if asks && pair.theirs.is_none() {
            self.links.doubt(now, peer);
        }
        // Without a truth yet, this says that it is being worked on.
        if asks || mine.is_none() {
            self.tell(now, index, if bulk { Message::Leave(id) } else { Message::Fence(id) });
        }
        if let Some(mine) = mine {
            self.tell(now, index, Message::Truth(id, mine));
        }
        if left {
            self.tell(now, index, Message::Left(id));
        }
    }

    /// The peer's words about a fence. Messages of an older incarnation are void; of a newer one, this side missed
    /// its making and adopts it: it never had a half of that number.
    pub(in crate::agent) fn receive_fence(&mut self, now: Nanos, index: usize, id: PairId, message: Message) {
        match message {
            Message::Retire(_, order) | Message::Readmit(_, order) => {
                return self.peer_orders(now, index, order);
            }
            Message::Vacate(_) => return self.asked_to_vacate(now, index, id),
            _ => {}
        }
        let Some(pair) = &mut self.pairs[index] else { return };
        if id.incarnation < pair.incarnation && !Mutant::OldMessageActedOn.on() {
            return;
        }
        if id.incarnation > pair.incarnation {
            // A pair is made anew only after both directions left, so word of it says that theirs has.
            let over = pair.health == Health::Fenced && pair.left_here;
            let near = id.incarnation - pair.incarnation <= NUMBERS_MISSED;
            // One that is retired takes part as well, and is retired again: the peer is not to wait for it in vain.
            if !matches!(pair.health, Health::Released | Health::Retired) && !over || !near {
                if near && matches!(pair.health, Health::Fencing | Health::Fenced) {
                    return self.peer_moved_on(index); // it says so again
                }
                let line = format!("peer is at {id:?}, this side at {} {:?}", pair.incarnation, pair.health);
                return self.note(now, line);
            }
            self.mark_unfenced(index);
            let Some(pair) = &mut self.pairs[index] else { return };
            pair.unknown = false;
            pair.incarnation = id.incarnation;
            pair.remote = None;
            pair.theirs = None;
            pair.health = Health::Connecting;
            self.discard(now, index);
        }
        let (age_ns, awake_ns) = (self.age.age_ns, self.awake.age_ns);
        let Some(pair) = &mut self.pairs[index] else { return };
        if matches!(message, Message::Fence(_) | Message::Leave(_)) && pair.theirs.is_none() {
            // It has no truth to tell yet. A NIC that does not answer it would be one.
            pair.in_hand_there_ns = Some(awake_ns);
        }
        match message {
            Message::Fence(_) => self.peer_asks(now, index, Urgency::Peer),
            Message::Leave(_) => self.peer_asks(now, index, Urgency::Port),
            Message::Truth(_, truth) => {
                // What was said of an incarnation stays: a peer that lost its store knows less than it did (rule 18).
                if tells_more(pair.theirs, truth) {
                    pair.theirs = Some(truth);
                    pair.theirs_age_ns = age_ns;
                    pair.told = 0;
                }
                let usable = matches!(pair.health, Health::Ready | Health::Connecting | Health::Probing);
                if usable {
                    self.fence_asked(now, index, Urgency::Peer);
                }
                self.await_truth(now, index);
            }
            Message::Left(_) => pair.left_there = true,
            _ => {}
        }
    }

    /// The peer speaks of the next incarnation: its half of this one is fenced, and both directions have left, even if
    /// this agent was never told or does not know it any more.
    pub(in crate::agent) fn peer_moved_on(&mut self, index: usize) {
        let age_ns = self.age.age_ns;
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.left_there = true;
        if pair.theirs.is_none() {
            pair.theirs = Some(SideTruth::Unknown);
            pair.theirs_age_ns = age_ns;
        }
    }

    /// Rule 10 is symmetric: the other's fence is answered by fencing, once.
    fn peer_asks(&mut self, now: Nanos, index: usize, urgency: Urgency) {
        let Some(pair) = &self.pairs[index] else { return };
        let health = Some(pair.health);
        // Its switcher left; an order, or a slot that is wanted for other rails, says nothing against these.
        if urgency == Urgency::Peer && !pair.is_ordered(now) {
            self.look_into(now, index, self.place(index), true);
        }
        match health {
            Some(Health::Ready | Health::Connecting | Health::Probing) => {
                self.fence_asked(now, index, urgency)
            }
            // It asks although it was told: the telling got lost.
            Some(Health::Fencing | Health::Fenced | Health::Released) => {
                self.hasten(index, urgency);
                self.tell_again(now, index, false);
            }
            Some(Health::Retired) if !Mutant::RetiredSaysNothing.on() => self.tell_retired(now, index),
            _ => {}
        }
    }

    /// A pair that is out has been left, and its half is fenced: who still asks has missed the word. What an agent that
    /// took over does not know of the half, its NIC is asked first.
    fn tell_retired(&mut self, now: Nanos, index: usize) {
        let (id, pause_ns) = (self.id(index), self.options.resend_ns / 2);
        let Some(pair) = &mut self.pairs[index] else { return };
        let Some(mine) = pair.mine else { return };
        if now < pair.told_ns + pause_ns {
            return;
        }
        pair.told_ns = now;
        self.tell(now, index, Message::Truth(id, mine));
        self.tell(now, index, Message::Left(id));
    }

    /// Says to the switcher that asked that its fence is under way. It ends: a NIC that does not answer counts as dead
    /// for now, a peer that says nothing as silent, and of the others each has so many to fence.
    pub(in crate::agent) fn say_in_hand(&mut self, index: usize) {
        let (at, turn) =
            (self.place(index), 1 + self.awake.age_ns.get() / self.options.resend_ns.get().max(1));
        let newest = self.requests_seen[(at.peer * self.words.root().channels_per_pe + at.channel) as usize];
        let Some(pair) = &mut self.pairs[index] else { return };
        if let Some(request) = to_say(pair.asked, pair.health, newest).filter(|_| pair.in_hand != turn) {
            pair.in_hand = turn;
            self.words.say_in_hand(at, request, turn);
        }
    }

    /// How long after it asked a switcher still waits for one that has its fence in hand: of the bound of its chain,
    /// all but one wait and the packet lifetime that may follow.
    fn switcher_waits_ns(&self) -> Nanos {
        let (policy, slots) = (self.words.root().policy, u64::from(self.words.root().slots));
        let fence_ns = Nanos::new(policy.fence_wait_ns);
        let path_ns = Nanos::new(policy.suspect_ns) + fence_ns;
        let chain_ns = Nanos::new(policy.give_up_ns) + path_ns * slots;
        chain_ns - fence_ns - self.options.lifetime_ns
    }

    /// Waits for both halves, or for what the silence of one allows.
    pub(in crate::agent) fn await_truth(&mut self, now: Nanos, index: usize) -> bool {
        let (awake_ns, options) = (self.awake.age_ns, self.options);
        let Some(pair) = &self.pairs[index] else { return false };
        let (mine, theirs) = (pair.mine, pair.theirs);
        if theirs.is_none() {
            self.tell_again(now, index, true);
        }
        if mine.is_none() {
            self.lighten(index);
            if self.is_silent(index) {
                // Nothing is proved here for now; the NIC's answer, if it comes, is told then.
                self.half_fenced(now, index, SideTruth::Dead);
            }
            return false;
        }
        let Some(pair) = &self.pairs[index] else { return false };
        if theirs.is_none() {
            let (begun_ns, fenced_ns) = (pair.begun_awake_ns, pair.fenced_awake_ns);
            let peer = self.place(index).peer;
            // Whom a pair has awaited in vain, the next one need not: patience is with the peer, not with the pair.
            let heard_ns = self.heard_ns[peer as usize];
            let asked_ns = *self.unanswered[peer as usize].get_or_insert(fenced_ns.max(heard_ns));
            // Heard is not answered: a link that carries one way only must not outlast the switcher's own patience.
            let in_hand_ns = pair.in_hand_there_ns.filter(|_| !Mutant::QueueThereIsSilence.on());
            let bound_ns = awaited_until_ns(begun_ns, in_hand_ns, options.peer_ns, self.switcher_waits_ns());
            let until_ns = (asked_ns + options.peer_ns).min(bound_ns);
            let patient = awake_ns < until_ns && !Mutant::OnlyOwnHalf.on();
            if patient && self.links.reachable(now, peer, &self.ports) {
                return false;
            }
        }
        let Some((pair, mine)) = self.pairs[index].as_ref().zip(mine) else { return false };
        let over = self.age.age_ns >= pair.quiet_since_ns() + options.lifetime_ns;
        let lifetime_over = over || Mutant::NoLifetimeAfterFence.on() || Mutant::OnlyOwnHalf.on();
        let Some(found) = verdict(mine, pair.theirs, pair.sent, lifetime_over) else { return false };
        let (policy, switcher_ns) = (self.words.root().policy, self.switcher_waits_ns());
        let proof_ns = proof_awaited_ns(options.peer_ns, policy.give_up_ns.into(), switcher_ns);
        let in_time = awake_ns < pair.begun_awake_ns + proof_ns && !Mutant::UnprovableAtOnce.on();
        if found.status == AnswerStatus::Unprovable && in_time && self.is_in_hand(now, index) {
            return false;
        }
        if self.observe(now, index, Observation::PairFenced) == Action::Answer {
            self.answer(now, index);
        }
        if Mutant::TruthNotKept.on()
            && let Some(pair) = &mut self.pairs[index]
        {
            pair.mine = None;
        }
        true
    }

    /// True if its NIC may still fence this half: slow is not dead. A NIC that answered nothing is asked again: one
    /// that comes back in time proves what nobody else can.
    fn is_in_hand(&mut self, now: Nanos, index: usize) -> bool {
        let Some(pair) = &self.pairs[index] else { return false };
        if pair.task != Task::None || pair.half.is_none() || Mutant::FailedFenceLeft.on() {
            return pair.task != Task::None;
        }
        if now >= pair.again_ns {
            self.fence_half(now, index, Urgency::Asked);
        }
        true
    }

    /// Answers the switcher, if one asked. The truth stays until the pair is made anew (rule 18).
    fn answer(&mut self, now: Nanos, index: usize) {
        let at = self.place(index);
        let Some(pair) = &mut self.pairs[index] else { return };
        let (Some(request), Some(mine)) = (pair.asked, pair.mine) else { return };
        // The state says that the fence is complete, so the lifetime has passed wherever it was needed.
        let Some(verdict) = verdict(mine, pair.theirs, pair.sent, true) else { return };
        pair.asked = None;
        let incarnation = pair.incarnation;
        // One answer line a channel: a late answer must not overwrite that of a newer request (H8).
        let row = (at.peer * self.words.root().channels_per_pe + at.channel) as usize;
        if self.requests_seen[row] == request || Mutant::LateAnswerWritten.on() {
            self.answer_request(now, at, incarnation, request, verdict);
        }
    }

    /// Waits until both directions took their cut and left.
    pub(in crate::agent) fn await_left(&mut self, now: Nanos, index: usize) -> bool {
        let at = self.place(index);
        let id = self.id(index);
        let left = self.words.has_left(at);
        let (age_ns, lifetime_ns) = (self.age.age_ns, self.options.lifetime_ns);
        let Some(pair) = &mut self.pairs[index] else { return false };
        // The peer may give its half's number away once this side has left: nothing is on its way there by then.
        let sent = pair.stopped_age_ns.is_some_and(|at_ns| age_ns < at_ns + lifetime_ns);
        if matches!(pair.task, Task::Stop(_)) || sent {
            return false;
        }
        let mut busy = false;
        if left && !pair.left_here {
            pair.left_here = true;
            self.tell(now, index, Message::Left(id));
            busy = true;
        }
        let both = self.pairs[index].as_ref().is_some_and(|pair| pair.left_here && pair.left_there)
            || Mutant::RevivedBeforeLeft.on();
        if both && self.observe(now, index, Observation::BothLeft) == Action::Rest {
            self.words.set_state(at, PathState::Released);
            busy = true;
        } else if left {
            self.tell_again(now, index, true);
        }
        busy
    }

    /// Answers a switcher, and says so.
    pub(in crate::agent) fn answer_request(
        &mut self,
        now: Nanos,
        at: Place,
        incarnation: u32,
        request: u64,
        verdict: Verdict,
    ) {
        self.words.answer(at, incarnation, request, verdict);
        let status = match verdict.status {
            AnswerStatus::Truth => "truth",
            AnswerStatus::FencedNoTruth => "no-truth",
            AnswerStatus::Unprovable => "unprovable",
        };
        let (at, executed) = (self.route(self.index(at)), verdict.executed);
        self.report(now, Event::FenceAnswered { at, request, status, executed });
    }
}
