//! A slot is wanted for another pair. The rules are in `slot_release.rs`.

use super::Agent;
use crate::agent::health::Health;
use crate::agent::message::{Message, PairId};
use crate::agent::nic_job::Urgency;
use crate::agent::slot_release::ReleaseRequest;
use crate::nanos::Nanos;

impl Agent {
    /// The slot of a ready pair is wanted for another one. Called for as long as it is.
    pub(in crate::agent) fn vacate(&mut self, now: Nanos, index: usize) {
        let id = self.id(index);
        let Some(pair) = &mut self.pairs[index] else { return };
        if pair.vacate.is_some_and(|asked| asked.is_recent(now)) {
            return;
        }
        let asked = ReleaseRequest::again(pair.vacate, now);
        pair.vacate = Some(asked);
        if asked.is_over(now) {
            return self.fence_asked(now, index, Urgency::Idle);
        }
        self.tell(now, index, Message::Vacate(id));
    }

    /// The other end wants the slot of a pair for another one.
    pub(in crate::agent) fn asked_to_vacate(&mut self, now: Nanos, index: usize, id: PairId) {
        let at = self.place(index);
        let Some(pair) = &self.pairs[index] else { return };
        let in_question = pair.incarnation == id.incarnation && pair.health == Health::Ready;
        if !in_question
            || pair.leaving_ns.is_some()
            || self.leads_home(now, index)
            || !self.has_standby(index)
        {
            return;
        }
        if self.words.has_left(at) {
            return self.fence_asked(now, index, Urgency::Idle);
        }
        // Before the first look at what becomes of it: one that is fenced there has been left by nobody.
        self.leave(now, index, true);
    }
}
