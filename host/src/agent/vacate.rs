//! A slot that works is to be given to another pair: the end that leads asks the other one to do without it first.
//!
//! It knows what its own direction of the channel works on, and not what the other one does. A fence under that loses
//! nothing; but a fetching atomic whose answer it cuts off is `Uncertain`, on a path that had no fault. So the other
//! end leaves by a drain, as for an operator, and fences the pair when it has left, or at once where it does not use
//! it. A direction that is bound and reaches its home by the pair keeps it, and says so: from then on both are served.

use super::Agent;
use super::message::{Message, PairId};
use super::worker::Urgency;
use shunt_device::health::Health;

/// Time between two questions.
const ASK_NS: u64 = 5_000_000;
/// Who has not left by then, or says nothing, has the slot fenced under it. A drain takes up to 20 ms where its path
/// carries nothing.
const VACATE_NS: u64 = 50_000_000;

/// What was asked of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    since_ns: u64,
    last_ns: u64,
}

impl Asked {
    /// Asks once more, or, if it was long ago, for the first time.
    fn again(asked: Option<Self>, now_ns: u64) -> Self {
        let since_ns = asked.filter(|asked| asked.is_fresh(now_ns)).map_or(now_ns, |asked| asked.since_ns);
        Self { since_ns, last_ns: now_ns }
    }

    /// True while the slot is wanted: it is asked for again and again.
    pub(super) fn is_fresh(&self, now_ns: u64) -> bool {
        now_ns < self.last_ns.saturating_add(VACATE_NS)
    }
}

impl Agent {
    /// The slot of a ready pair is wanted for another one. Called for as long as it is.
    pub(super) fn vacate(&mut self, index: usize) {
        let (now, id) = (self.now(), self.id(index));
        let Some(pair) = &mut self.pairs[index] else { return };
        if pair.vacate.is_some_and(|asked| now < asked.last_ns.saturating_add(ASK_NS)) {
            return;
        }
        let asked = Asked::again(pair.vacate, now);
        pair.vacate = Some(asked);
        if now >= asked.since_ns.saturating_add(VACATE_NS) {
            return self.fence_asked(index, Urgency::Idle);
        }
        self.tell(index, Message::Vacate(id));
    }

    /// The other end wants the slot of a pair for another one.
    pub(super) fn asked_to_vacate(&mut self, index: usize, id: PairId) {
        let at = self.place(index);
        let Some(pair) = &self.pairs[index] else { return };
        let in_question = pair.incarnation == id.incarnation && pair.health == Health::Ready;
        if !in_question || pair.leaving_ns.is_some() || self.leads_home(index) || !self.has_standby(index) {
            return;
        }
        if self.words.has_left(at) {
            return self.fence_asked(index, Urgency::Idle);
        }
        // Before the first look at what becomes of it: one that is fenced there has been left by nobody.
        self.leave(index, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_while_it_is_asked_for() {
        let first = Asked::again(None, 7);
        let second = Asked::again(Some(first), 7 + ASK_NS);
        assert_eq!(second, Asked { since_ns: 7, last_ns: 7 + ASK_NS });
        let later = 7 + ASK_NS + VACATE_NS;
        assert_eq!(Asked::again(Some(second), later).since_ns, later, "nobody wanted it meanwhile");
    }
}
