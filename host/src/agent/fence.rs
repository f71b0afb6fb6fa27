//! The pair fence: both halves to ERR, both counts read, old writes flushed, one round trip. Rules 9, 10, 18.
//!
//! The NIC's worker does it (`worker.rs`); here is who is told what, and what is waited for.

use super::Agent;
use super::message::{Message, PairId, SideTruth};
use super::pair::{Task, Verdict, tells_more, verdict};
use super::ports::CALM_NS;
use super::words::{Place, Request};
use super::worker::{Job, Urgency};
use crate::events::Event;
use shunt_device::health::{Action, Health, Observation, backoff_ns};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{AnswerStatus, CauseKind, PathState};

/// Longest pause between two words to a peer that need not answer at once: nobody's patience ends meanwhile.
const SELDOM_NS: u64 = 10_000_000_000;

/// A fence is awaited this many times as long as a peer may be silent, counted from its begin, however much else than
/// "in hand" the peer says: with the packet lifetime, less than the device's own wait for a fence.
const ANSWER_PATIENCE: u64 = 3;
/// So many times as long, if the peer says all the while that it has its half in hand.
const IN_HAND_PATIENCE: u64 = 10;
/// So many times as long as a peer may be silent, at least, a NIC that has the fence in hand may still prove it: "not
/// provable" ends the channel.
const PROOF_PATIENCE: u64 = 2;

/// Incarnations that a peer may have used up while this side heard none of it: at one a second, more than a week's. Who
/// is further ahead was not understood, and a pair has no more than 2^32 of them.
const NUMBERS_MISSED: u32 = 1 << 20;

/// Until when the peer's half is awaited, of a fence that was begun then. A peer that works on it, thousands of others
/// before it, is given longer, but never longer than the switcher waits: with the own half in ERR and the packet
/// lifetime over the signal words are proof enough, and a channel that is dead has no use for a better one.
fn awaited_until_ns(begun_ns: u64, in_hand_ns: Option<u64>, peer_ns: u64, switcher_ns: u64) -> u64 {
    let least_ns = begun_ns.saturating_add(peer_ns.saturating_mul(ANSWER_PATIENCE));
    let most_ns = begun_ns.saturating_add(switcher_ns.min(peer_ns.saturating_mul(IN_HAND_PATIENCE)));
    least_ns.max(in_hand_ns.map_or(0, |said_ns| said_ns.saturating_add(peer_ns).min(most_ns)))
}

/// How long a fence that nobody has proved may still be proved. The channel is lost with it, so a NIC that answers
/// nothing is given what a path that carries nothing is, though no longer than the switcher waits.
fn proof_awaited_ns(peer_ns: u64, give_up_ns: u64, switcher_ns: u64) -> u64 {
    let least_ns = peer_ns.saturating_mul(PROOF_PATIENCE);
    if Mutant::ProofHasty.on() { least_ns } else { least_ns.max(give_up_ns.min(switcher_ns)) }
}

/// The request of which is to be said that it is in hand. One word a channel: an older request, of another pair, must
/// not hide the newest one (H8).
fn to_say(asked: Option<u64>, health: Health, newest: u64) -> Option<u64> {
    asked.filter(|request| health == Health::Fencing && *request == newest)
}

impl Agent {
    /// A switcher of this PE asks.
    pub(super) fn ask_fence(&mut self, at: Place, request: Request) {
        let index = self.index(at);
        let unprovable = Verdict { status: AnswerStatus::Unprovable, executed: 0 };
        let Some(pair) = &mut self.pairs[index] else {
            return self.answer_request(at, request.incarnation, request.number, unprovable);
        };
        if pair.incarnation != request.incarnation {
            // A pair is made anew only after this direction left it, so nobody can ask for an older one in earnest.
            return self.answer_request(at, request.incarnation, request.number, unprovable);
        }
        pair.asked = Some(request.number);
        if std::mem::take(&mut pair.bulk) {
            // So far nobody waited for it, and the peer's NIC has others to fence.
            self.tell(index, Message::Fence(self.id(index)));
        }
        let silent =
            matches!(self.words.cause(at.peer, at.channel), CauseKind::Overdue | CauseKind::Completion);
        self.look_into(index, at, silent);
        let at = self.route(index);
        self.report(Event::FenceAsked { at, request: request.number });
        self.fence_asked(index, Urgency::Asked);
    }

    pub(super) fn fence_asked(&mut self, index: usize, urgency: Urgency) {
        match self.observe(index, Observation::FenceAsked) {
            Action::Fence => {
                self.count_relapse(index);
                self.fence(index, urgency);
            }
            Action::FenceAgain => self.fence_again(index, urgency),
            Action::Answer => self.answer(index),
            _ => self.hasten(index, urgency),
        }
    }

    /// Device code goes on without an answer where a ledger's path fails or time proves the fence. A channel has one
    /// request line: what it asked of this pair may be overwritten before anybody reads it. The row tells.
    pub(super) fn fence_overlooked(&mut self, index: usize) -> bool {
        let ready = self.pairs[index].as_ref().is_some_and(|pair| pair.health == Health::Ready);
        let overlooked = ready && self.words.path_state(self.place(index)) == PathState::Fenced;
        if overlooked {
            self.fence_asked(index, Urgency::Idle);
        }
        overlooked
    }

    /// A path that is left soon after it was admitted is gone back to later the next time: probes may survive what
    /// traffic does not. It is made anew as soon as ever, because it may be the only one.
    fn count_relapse(&mut self, index: usize) {
        let now = self.now();
        if let Some(pair) = self.pairs[index].as_mut().filter(|pair| !pair.is_ordered(now)) {
            let calm = pair.admitted_ns.is_none_or(|since| now.saturating_sub(since) >= CALM_NS);
            pair.relapses = if calm { 0 } else { pair.relapses + 1 };
        }
    }

    /// What was made anew failed: it rests longer the next time.
    pub(super) fn fence_again(&mut self, index: usize, urgency: Urgency) {
        let now = self.now();
        if let Some(pair) = self.pairs[index].as_mut().filter(|pair| !pair.is_ordered(now)) {
            pair.failures += 1;
            self.note_failure(index);
        }
        self.fence(index, urgency);
    }

    /// Has this half fenced, and tells the peer to do the same; what was found follows.
    pub(super) fn fence(&mut self, index: usize, urgency: Urgency) {
        let (at, id, now) = (self.place(index), self.id(index), self.now());
        let awake_ns = self.awake.age_ns;
        // Not usable from now on: switchers that come later choose another path, idle channels leave.
        self.words.set_state(at, PathState::Fenced);
        let bulk = urgency == Urgency::Port;
        self.tell(index, if bulk { Message::Leave(id) } else { Message::Fence(id) });
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
        self.fence_half(index, urgency);
    }

    /// 2ERR, query, flush, query: a job of the NIC's worker. A half that is being made is fenced once it is there.
    pub(super) fn fence_half(&mut self, index: usize, urgency: Urgency) {
        self.recall(index);
        let Some(pair) = &self.pairs[index] else { return };
        if matches!(pair.task, Task::Make(_)) {
            return;
        }
        // A half that was never made counts nothing, and nothing can reach it.
        let Some(half) = pair.half.clone() else { return self.half_fenced(index, SideTruth::Fenced) };
        let number = self.order(index, urgency, Job::Fence(half));
        self.set_task(index, Task::Fence(number));
    }

    /// What is known of this half now. The truth is stored with its incarnation and told.
    pub(super) fn half_fenced(&mut self, index: usize, mine: SideTruth) {
        let (now, age_ns, id) = (self.now(), self.grow_older(), self.id(index));
        let awake_ns = self.awake.age_ns;
        let Some(pair) = &mut self.pairs[index] else { return };
        let mine = Self::said_of(pair, mine);
        if pair.mine.is_none() {
            pair.fenced_awake_ns = awake_ns;
        }
        if mine == SideTruth::Dead {
            pair.again_ns = now.saturating_add(backoff_ns(self.options.backoff_ns, pair.failed));
            pair.failed += 1;
        }
        pair.mine = Some(mine);
        pair.fenced_ns = now;
        pair.fenced_age_ns = age_ns;
        pair.told_ns = now;
        self.tell(index, Message::Truth(id, mine));
    }

    /// What this side has to say of a fenced pair, once more: messages may get lost. `asks`: an answer is wanted.
    fn tell_again(&mut self, index: usize, asks: bool) {
        let (now, id) = (self.now(), self.id(index));
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
        if now < pair.told_ns.saturating_add(due) {
            return;
        }
        pair.told_ns = now;
        let (mine, left, bulk) = (pair.mine, pair.left_here, pair.bulk);
        let peer = self.place(index).peer;
        // Nobody waits for the way back to a peer that is gone. If it comes back it is asked again.
        if asks && left && (self.news.is_lost(peer) || !self.links.reachable(peer, &self.ports)) {
            return;
        }
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.told = pair.told.saturating_add(asks as u32);
        if asks && pair.theirs.is_none() {
            self.links.doubt(peer);
        }
        // Without a truth yet, this says that it is being worked on.
        if asks || mine.is_none() {
            self.tell(index, if bulk { Message::Leave(id) } else { Message::Fence(id) });
        }
        if let Some(mine) = mine {
            self.tell(index, Message::Truth(id, mine));
        }
        if left {
            self.tell(index, Message::Left(id));
        }
    }

    /// The peer's words about a fence. Messages of an older incarnation are void; of a newer one, this side missed
    /// its making and adopts it: it never had a half of that number.
    pub(super) fn receive_fence(&mut self, index: usize, id: PairId, message: Message) {
        match message {
            Message::Retire(_, order) | Message::Readmit(_, order) => return self.peer_orders(index, order),
            Message::Vacate(_) => return self.asked_to_vacate(index, id),
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
                return self.note(line);
            }
            self.may_haunt(index);
            let Some(pair) = &mut self.pairs[index] else { return };
            pair.unknown = false;
            pair.incarnation = id.incarnation;
            pair.remote = None;
            pair.theirs = None;
            pair.health = Health::Connecting;
            self.discard(index);
        }
        let (age_ns, awake_ns) = (self.age.age_ns, self.awake.age_ns);
        let Some(pair) = &mut self.pairs[index] else { return };
        if matches!(message, Message::Fence(_) | Message::Leave(_)) && pair.theirs.is_none() {
            // It has no truth to tell yet. A NIC that does not answer it would be one.
            pair.in_hand_there_ns = Some(awake_ns);
        }
        match message {
            Message::Fence(_) => self.peer_asks(index, Urgency::Peer),
            Message::Leave(_) => self.peer_asks(index, Urgency::Port),
            Message::Truth(_, truth) => {
                // What was said of an incarnation stays: a peer that lost its store knows less than it did (rule 18).
                if tells_more(pair.theirs, truth) {
                    pair.theirs = Some(truth);
                    pair.theirs_age_ns = age_ns;
                    pair.told = 0;
                }
                let usable = matches!(pair.health, Health::Ready | Health::Connecting | Health::Probing);
                if usable {
                    self.fence_asked(index, Urgency::Peer);
                }
                self.await_truth(index);
            }
            Message::Left(_) => pair.left_there = true,
            _ => {}
        }
    }

    /// The peer speaks of the next incarnation: its half of this one is fenced, and both directions have left, even if
    /// this agent was never told or does not know it any more.
    pub(super) fn peer_moved_on(&mut self, index: usize) {
        let age_ns = self.age.age_ns;
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.left_there = true;
        if pair.theirs.is_none() {
            pair.theirs = Some(SideTruth::Unknown);
            pair.theirs_age_ns = age_ns;
        }
    }

    /// Rule 10 is symmetric: the other's fence is answered by fencing, once.
    fn peer_asks(&mut self, index: usize, urgency: Urgency) {
        let Some(pair) = &self.pairs[index] else { return };
        let health = Some(pair.health);
        // Its switcher left; an order, or a slot that is wanted for other rails, says nothing against these.
        if urgency == Urgency::Peer && !pair.is_ordered(self.now()) {
            self.look_into(index, self.place(index), true);
        }
        match health {
            Some(Health::Ready | Health::Connecting | Health::Probing) => self.fence_asked(index, urgency),
            // It asks although it was told: the telling got lost.
            Some(Health::Fencing | Health::Fenced | Health::Released) => {
                self.hasten(index, urgency);
                self.tell_again(index, false);
            }
            Some(Health::Retired) if !Mutant::RetiredSaysNothing.on() => self.tell_retired(index),
            _ => {}
        }
    }

    /// A pair that is out has been left, and its half is fenced: who still asks has missed the word. What an agent that
    /// took over does not know of the half, its NIC is asked first.
    fn tell_retired(&mut self, index: usize) {
        let (now, id, pause_ns) = (self.now(), self.id(index), self.options.resend_ns / 2);
        let Some(pair) = &mut self.pairs[index] else { return };
        let Some(mine) = pair.mine else { return };
        if now < pair.told_ns.saturating_add(pause_ns) {
            return;
        }
        pair.told_ns = now;
        self.tell(index, Message::Truth(id, mine));
        self.tell(index, Message::Left(id));
    }

    /// Says to the switcher that asked that its fence is under way. It ends: a NIC that does not answer counts as dead
    /// for now, a peer that says nothing as silent, and of the others each has so many to fence.
    pub(super) fn say_in_hand(&mut self, index: usize) {
        let (at, turn) = (self.place(index), 1 + self.awake.age_ns / self.options.resend_ns.max(1));
        let newest = self.requests_seen[(at.peer * self.words.root().channels_per_pe + at.channel) as usize];
        let Some(pair) = &mut self.pairs[index] else { return };
        if let Some(request) = to_say(pair.asked, pair.health, newest).filter(|_| pair.in_hand != turn) {
            pair.in_hand = turn;
            self.words.say_in_hand(at, request, turn);
        }
    }

    /// How long after it asked a switcher still waits for one that has its fence in hand: of the bound of its chain,
    /// all but one wait and the packet lifetime that may follow.
    fn switcher_waits_ns(&self) -> u64 {
        let (policy, slots) = (self.words.root().policy, u64::from(self.words.root().slots));
        let path_ns = policy.suspect_ns.saturating_add(policy.fence_wait_ns);
        let chain_ns = policy.give_up_ns.saturating_add(path_ns.saturating_mul(slots));
        chain_ns.saturating_sub(policy.fence_wait_ns).saturating_sub(self.options.lifetime_ns)
    }

    /// Waits for both halves, or for what the silence of one allows.
    pub(super) fn await_truth(&mut self, index: usize) -> bool {
        let (awake_ns, options) = (self.awake.age_ns, self.options);
        let Some(pair) = &self.pairs[index] else { return false };
        let (mine, theirs) = (pair.mine, pair.theirs);
        if theirs.is_none() {
            self.tell_again(index, true);
        }
        if mine.is_none() {
            self.lighten(index);
            if self.is_silent(index) {
                // Nothing is proved here for now; the NIC's answer, if it comes, is told then.
                self.half_fenced(index, SideTruth::Dead);
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
            let until_ns = asked_ns.saturating_add(options.peer_ns).min(bound_ns);
            let patient = awake_ns < until_ns && !Mutant::OnlyOwnHalf.on();
            if patient && self.links.reachable(peer, &self.ports) {
                return false;
            }
        }
        let Some((pair, mine)) = self.pairs[index].as_ref().zip(mine) else { return false };
        let over = self.age.age_ns >= pair.quiet_since_ns().saturating_add(options.lifetime_ns);
        let lifetime_over = over || Mutant::NoLifetimeAfterFence.on() || Mutant::OnlyOwnHalf.on();
        let Some(found) = verdict(mine, pair.theirs, pair.sent, lifetime_over) else { return false };
        let (give_up_ns, switcher_ns) = (self.words.root().policy.give_up_ns, self.switcher_waits_ns());
        let proof_ns = proof_awaited_ns(options.peer_ns, give_up_ns, switcher_ns);
        let in_time =
            awake_ns < pair.begun_awake_ns.saturating_add(proof_ns) && !Mutant::UnprovableAtOnce.on();
        if found.status == AnswerStatus::Unprovable && in_time && self.is_in_hand(index) {
            return false;
        }
        if self.observe(index, Observation::PairFenced) == Action::Answer {
            self.answer(index);
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
    fn is_in_hand(&mut self, index: usize) -> bool {
        let now = self.now();
        let Some(pair) = &self.pairs[index] else { return false };
        if pair.task != Task::None || pair.half.is_none() || Mutant::FailedFenceLeft.on() {
            return pair.task != Task::None;
        }
        if now >= pair.again_ns {
            self.fence_half(index, Urgency::Asked);
        }
        true
    }

    /// Answers the switcher, if one asked. The truth stays until the pair is made anew (rule 18).
    fn answer(&mut self, index: usize) {
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
            self.answer_request(at, incarnation, request, verdict);
        }
    }

    /// Waits until both directions took their cut and left.
    pub(super) fn await_left(&mut self, index: usize) -> bool {
        let at = self.place(index);
        let id = self.id(index);
        let left = self.words.has_left(at);
        let (age_ns, lifetime_ns) = (self.age.age_ns, self.options.lifetime_ns);
        let Some(pair) = &mut self.pairs[index] else { return false };
        // The peer may give its half's number away once this side has left: nothing is on its way there by then.
        let sent = pair.stopped_age_ns.is_some_and(|at_ns| age_ns < at_ns.saturating_add(lifetime_ns));
        if matches!(pair.task, Task::Stop(_)) || sent {
            return false;
        }
        let mut busy = false;
        if left && !pair.left_here {
            pair.left_here = true;
            self.tell(index, Message::Left(id));
            busy = true;
        }
        let both = self.pairs[index].as_ref().is_some_and(|pair| pair.left_here && pair.left_there)
            || Mutant::RevivedBeforeLeft.on();
        if both && self.observe(index, Observation::BothLeft) == Action::Rest {
            self.words.set_state(at, PathState::Released);
            busy = true;
        } else if left {
            self.tell_again(index, true);
        }
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_request_is_not_said_to_be_in_hand() {
        assert_eq!(to_say(Some(7), Health::Fencing, 7), Some(7));
        assert_eq!(to_say(Some(6), Health::Fencing, 7), None, "it would hide the newest one");
        assert_eq!(to_say(Some(7), Health::Fenced, 7), None, "it is answered");
        assert_eq!(to_say(None, Health::Fencing, 7), None);
    }

    /// A peer that says so for ever must not outlast the switcher, which would end the channel.
    #[test]
    fn in_hand_is_no_answer() {
        let (begun_ns, peer_ns) = (1_000, 500);
        let until_ns = |said, switcher_ns| awaited_until_ns(begun_ns, said, peer_ns, switcher_ns);
        assert_eq!(until_ns(None, 100_000), 2_500);
        assert_eq!(until_ns(Some(1_100), 100_000), 2_500, "what it is given anyway");
        assert_eq!(until_ns(Some(2_400), 100_000), 2_900);
        assert_eq!(until_ns(Some(5_900), 100_000), 6_000, "ten times its patience");
        assert_eq!(until_ns(Some(u64::MAX), 100_000), 6_000);
        assert_eq!(until_ns(Some(5_900), 4_000), 5_000, "as long as the switcher");
        assert_eq!(until_ns(Some(5_900), 0), 2_500);
    }

    #[test]
    fn a_proof_is_awaited_as_long_as_a_path() {
        assert_eq!(proof_awaited_ns(500, 0, 100_000), 1_000);
        assert_eq!(proof_awaited_ns(500, 1_000, 100_000), 1_000);
        assert_eq!(proof_awaited_ns(500, 30_000, 100_000), 30_000);
        assert_eq!(proof_awaited_ns(500, 30_000, 4_000), 4_000, "as long as the switcher");
        assert_eq!(proof_awaited_ns(500, 30_000, 0), 1_000);
    }
}
