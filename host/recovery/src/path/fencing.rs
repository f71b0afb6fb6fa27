//! A path that is being fenced, or is: what is waited for, and until when. Rules 9, 10, 17, 18.

use super::io::Task;
use super::io::{Handle, Output, Step};
use super::pair::Pair;
use crate::fence_patience::{awaited_until_ns, proof_awaited_ns, to_say};
use crate::fenced::Urgency;
use crate::health::Health;
use crate::health::Observation;
use crate::nanos::Nanos;
use crate::truth::SideTruth;
use crate::verdict::verdict;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::AnswerStatus;

/// Longest pause between two words to a peer that need not answer at once: nobody's patience ends meanwhile.
pub(super) const SELDOM: Nanos = Nanos::secs(10);

/// Longest pause between two words to a peer while a fence waits for it: somebody who hears nothing for as long as a
/// peer may be silent stops waiting, so there is to be something to hear before.
pub(super) fn often<H>(cx: &Step<'_, H>) -> Nanos {
    cx.timing.peer / 4
}

/// This half is being fenced or in ERR; the other half's truth is awaited.
pub(super) struct Fencing<'a, H>(pub &'a mut Pair<H>);

impl<H: Handle> Fencing<'_, H> {
    /// Asks for the other half's truth while it is not in.
    pub(super) fn ask_again(&mut self, cx: &mut Step<'_, H>) {
        if self.0.fence.theirs.is_none() {
            let most = often(cx);
            self.0.tell_again(cx, true, most);
        }
    }

    /// Waits for this half. True once something is known of it.
    pub(super) fn own_half_known(&mut self, cx: &mut Step<'_, H>) -> bool {
        if self.0.fence.mine.is_some() {
            return true;
        }
        self.0.lighten(cx);
        if cx.facts.nic_silent(self.0.rail_at_work()) {
            // Nothing is proved here for now; the NIC's answer, if it comes, is told then.
            self.0.half_fenced(cx, SideTruth::Dead);
        }
        false
    }

    /// Waits for both halves, or for what the silence of one allows.
    pub(super) fn await_both(&mut self, cx: &mut Step<'_, H>) -> Option<Observation> {
        let pair = &mut *self.0;
        let mine = pair.fence.mine?;
        if pair.fence.theirs.is_none() {
            // Whom a path has awaited in vain, the next one need not: patience is with the peer, not with the path.
            let asked = cx.facts.peer_owes_since(pair.fence.fenced_awake);
            // Heard is not answered: a link that carries one way only must not outlast the owner's own patience.
            let in_hand = pair.fence.in_hand_there.filter(|_| !Mutant::QueueThereIsSilence.on());
            let bound = awaited_until_ns(pair.fence.begun_awake, in_hand, cx.timing.peer, cx.timing.owner);
            let patient = cx.awake < (asked + cx.timing.peer).min(bound) && !Mutant::OnlyOwnHalf.on();
            if patient && cx.facts.peer_reachable(cx.now) {
                return None;
            }
        }
        let over = cx.age >= pair.fence.quiet_since() + cx.timing.lifetime;
        let lifetime_over = over || Mutant::NoLifetimeAfterFence.on() || Mutant::OnlyOwnHalf.on();
        let found = verdict(mine, pair.fence.theirs, pair.fence.sent, lifetime_over)?;
        let proof = proof_awaited_ns(cx.timing.peer, cx.timing.give_up, cx.timing.owner);
        let in_time = cx.awake < pair.fence.begun_awake + proof && !Mutant::UnprovableAtOnce.on();
        if found.status == AnswerStatus::Unprovable && in_time && self.is_in_hand(cx) {
            return None;
        }
        Some(Observation::PairFenced)
    }

    /// True if its NIC may still fence this half: slow is not dead. A NIC that answered nothing is asked again: one
    /// that comes back in time proves what nobody else can.
    fn is_in_hand(&mut self, cx: &mut Step<'_, H>) -> bool {
        let pair = &mut *self.0;
        if pair.task != Task::None || pair.half.is_none() || Mutant::FailedFenceLeft.on() {
            return pair.task != Task::None;
        }
        if cx.now >= pair.fence.again {
            pair.fence_half(cx, Urgency::Asked);
        }
        true
    }

    /// Says to the owner that asked that its fence is under way. It ends: a NIC that does not answer counts as dead for
    /// now, a peer that says nothing as silent, and of the others each has so many to fence.
    pub(super) fn say_in_hand(&mut self, cx: &mut Step<'_, H>, health: Health) {
        let turn = 1 + cx.awake.get() / cx.timing.resend.get().max(1);
        if self.0.in_hand == turn {
            return;
        }
        let newest = cx.facts.newest_request();
        if let Some(request) = to_say(self.0.asked, health, newest) {
            self.0.in_hand = turn;
            cx.put(Output::InHand(request, turn));
        }
    }
}

/// Both halves are fenced: both directions take their cut and leave.
pub(super) struct Fenced<'a, H>(pub &'a mut Pair<H>);

impl<H: Handle> Fenced<'_, H> {
    /// Waits until both have left. True if something was said; what to observe then.
    pub(super) fn await_left(&mut self, cx: &mut Step<'_, H>) -> (bool, Option<Observation>) {
        let left = cx.facts.has_left();
        let pair = &mut *self.0;
        // The peer may give its half's number away once this side has left: nothing is on its way there by then.
        let sent = pair.fence.stopped_age.is_some_and(|at| cx.age < at + cx.timing.lifetime);
        if matches!(pair.task, Task::Stop(_)) || sent {
            return (false, None);
        }
        let news = left && !pair.fence.left_here;
        if news {
            pair.fence.left_here = true;
            pair.tell(cx, super::Word::Left);
        }
        let both = pair.fence.left_here && pair.fence.left_there || Mutant::RevivedBeforeLeft.on();
        if both {
            return (true, Some(Observation::BothLeft));
        }
        if left {
            pair.tell_again(cx, true, SELDOM);
        }
        (news, None)
    }
}
