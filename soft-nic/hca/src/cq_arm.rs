//! Completion events: software asks for one, the next completion raises it.
//!
//! A request comes through the arm register of the queue's doorbell page and stands in its doorbell record too.
//! It is void if it is older than the last event (its sequence number is that event's), and due at once if
//! completions came that software had not seen when it asked and that no event told of: software that asks again
//! before it looks gets no second event for what the first one was about.

use shunt_layout::mlx5::doorbell::Arm;
use shunt_layout::mlx5::prm::cq::{ST_ARMED, ST_FIRED, ST_SOLICITED_ARMED};
use shunt_soft_wire::psn;

/// What a completion queue waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Waiting {
    #[default]
    No,
    Any,
    /// A solicited completion or an error.
    Solicited,
}

/// The arming of one completion queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arming {
    waiting: Waiting,
    /// Sequence number of the request that waits.
    sequence: u8,
    /// Sequence number of the last event.
    fired: Option<u8>,
    /// The record's word when it was last looked at.
    seen: u32,
    /// Entries written up to and with the newest solicited completion or error.
    notable: u64,
    /// Entries written when the last event was raised.
    notified: u64,
    /// Software asked at least once.
    asked: bool,
}

impl Arming {
    /// Of a queue whose record holds this word as it is made.
    pub(crate) fn starting(word: u32) -> Self {
        Self { seen: word, ..Self::default() }
    }

    /// A request, when `produced` entries are written. True if its event is due at once.
    pub(crate) fn request(&mut self, arm: Arm, produced: u64) -> bool {
        self.asked = true;
        if self.fired == Some(arm.sequence) {
            return false;
        }
        self.sequence = arm.sequence;
        let unseen = (produced as u32).wrapping_sub(arm.consumed) & psn::MASK;
        // A consumer index ahead of the queue makes no sense, and is taken for its end.
        let unseen = if unseen > psn::MASK / 2 { 0 } else { unseen as u64 };
        let due = match arm.solicited_only {
            false => unseen > 0 && produced > self.notified,
            true => self.notable > self.notified && produced - self.notable < unseen,
        };
        if due {
            self.fire(produced);
        } else if !arm.solicited_only {
            self.waiting = Waiting::Any;
        } else if self.waiting == Waiting::No {
            self.waiting = Waiting::Solicited;
        }
        due
    }

    fn fire(&mut self, produced: u64) {
        self.waiting = Waiting::No;
        self.fired = Some(self.sequence);
        self.notified = produced;
    }

    /// The record's word as it is now. True if it may be a request that was not seen in the register: it changed, or
    /// it is what the first request for a queue of which nothing was consumed looks like, which is zero as memory is.
    /// The one that makes the queue can rule the second out with a word in the record that no request is.
    pub(crate) fn looked_at(&mut self, word: u32, consumed: u32) -> bool {
        let changed = word != std::mem::replace(&mut self.seen, word);
        changed || word == 0 && !self.asked && consumed == 0
    }

    /// True if somebody waits for a completion.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting != Waiting::No
    }

    /// The newest of `produced` entries was written. True if its event is due.
    pub(crate) fn completed(&mut self, produced: u64, notable: bool) -> bool {
        if notable {
            self.notable = produced;
        }
        let due = match self.waiting {
            Waiting::No => false,
            Waiting::Any => true,
            Waiting::Solicited => notable,
        };
        if due {
            self.fire(produced);
        }
        due
    }

    /// The state as QUERY_CQ shows it.
    pub(crate) fn state(&self) -> u32 {
        match (self.waiting, self.fired) {
            (Waiting::Any, _) => ST_ARMED,
            (Waiting::Solicited, _) => ST_SOLICITED_ARMED,
            (Waiting::No, Some(_)) => ST_FIRED,
            (Waiting::No, None) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(sequence: u8, consumed: u32) -> Arm {
        Arm { sequence, solicited_only: false, consumed }
    }

    fn solicited(sequence: u8, consumed: u32) -> Arm {
        Arm { sequence, solicited_only: true, consumed }
    }

    #[test]
    fn one_request_raises_one_event() {
        let mut arming = Arming::default();
        assert!(!arming.completed(1, true), "no event was asked for");
        assert!(!arming.request(any(0, 1), 1));
        assert_eq!(arming.state(), ST_ARMED);
        assert!(arming.completed(2, false));
        assert!(!arming.completed(3, false));
        assert_eq!(arming.state(), ST_FIRED);
        assert!(!arming.request(any(0, 2), 3), "older than the event");
        assert!(arming.request(any(1, 2), 3), "a newer completion is there");
        assert!(!arming.request(any(2, 3), 3));
        assert!(arming.completed(4, false));
        assert!(!arming.request(any(3, 3), 4), "an event told of number 4, seen or not");
        assert!(arming.completed(5, false));
        assert!(arming.request(any(0, 3), 6), "of number 6 none did");
    }

    #[test]
    fn solicited_requests_wait_for_solicited_completions() {
        let mut arming = Arming::default();
        assert!(!arming.request(solicited(0, 0), 0));
        assert!(!arming.completed(1, false));
        assert!(arming.completed(2, true));
        assert!(!arming.completed(3, false));
        assert!(!arming.request(solicited(1, 2), 3), "the only newer one is not solicited");
        assert!(arming.completed(4, true));
        assert!(!arming.request(solicited(2, 3), 5), "number 4 was, and an event told of it");
        assert!(!arming.completed(6, false));
        assert!(!arming.request(any(2, 6), 6) && !arming.request(solicited(2, 6), 6));
        assert!(arming.completed(7, false), "the wider of two requests stands");
        assert!(!arming.completed(8, true) && arming.request(solicited(3, 7), 9), "number 8 was");
    }

    #[test]
    fn a_first_request_looks_like_no_request() {
        let mut arming = Arming::default();
        assert!(arming.looked_at(0, 0), "nothing was consumed yet: it may have been asked");
        assert!(!arming.looked_at(0, 1), "who consumed one asks with another word");
        assert!(arming.looked_at(7, 1) && !arming.looked_at(7, 1));
        arming.request(any(0, 0), 0);
        assert!(arming.looked_at(0, 0) && !arming.looked_at(0, 0), "asked once, only a change is told");
        let mut marked = Arming::starting(!0);
        assert!(!marked.looked_at(!0, 0) && marked.looked_at(0, 0) && !marked.looked_at(0, 1));
    }

    #[test]
    fn consumer_indices_wrap_and_may_be_wrong() {
        let mut arming = Arming::default();
        assert!(arming.request(any(0, 0xff_ffff), 0x100_0000));
        assert!(!arming.request(any(1, 0), 0x100_0000));
        assert!(!arming.request(any(1, 5), 0x100_0000), "ahead of the queue");
        assert!(!arming.request(solicited(2, 1), 0));
    }
}
