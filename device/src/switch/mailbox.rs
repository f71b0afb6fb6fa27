//! The mailbox of a channel: the switch asks the agent to fence a path, the agent answers. Rule 9.

use super::record::count;
use super::state::{Stamp, State};
use super::words::words;
use crate::part::part;
use crate::platform::Platform;
use crate::shared::fields;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{AnswerStatus, InHand, Mailbox};

fields!(Mailbox {
    request: u64,
    request_slot: u32,
    request_incarnation: u32,
    in_hand_seen: u64,
    answer: u64,
    answer_status: u32,
    answer_executed: u32,
    answer_slot: u32,
    answer_incarnation: u32,
    in_hand: u64,
});

/// What the agent answered.
pub(super) struct Answer {
    /// The request it belongs to.
    pub number: u64,
    pub slot: u32,
    pub incarnation: u32,
    pub status: AnswerStatus,
    /// The receiver's count of executed messages, in 24 bits.
    pub executed: u32,
}

part! {
    /// The switcher's line of the mailbox, and its look at the agent's.
    pub(super) FenceRequest { state: State }
}

impl<P: Platform> FenceRequest<'_, P> {
    /// Asks the agent to fence a path of this channel. The request number makes old answers void.
    pub(super) fn send(self, slot: u32, incarnation: u32) {
        count(self.ptr.tally().fences_asked(), 1);
        let request = words(self.ptr).request().load() + 1;
        words(self.ptr).request().store(request);
        let mailbox = self.ptr.mailbox();
        mailbox.request_slot().store(slot);
        mailbox.request_incarnation().store(incarnation);
        mailbox.request().store_release(request);
        self.ptr.state.wake_agent();
    }

    /// The agent's last answer; none if its fields may be of two.
    pub(super) fn answer(self) -> Option<Answer> {
        let mailbox = self.ptr.mailbox();
        // The agent writes number zero, fields, number.
        let number = mailbox.answer().load_acquire();
        let (slot, incarnation) = (mailbox.answer_slot().load(), mailbox.answer_incarnation().load());
        let status = AnswerStatus::from_raw(mailbox.answer_status().load());
        let executed = mailbox.answer_executed().load();
        let whole = mailbox.answer().load_acquire() == number;
        if whole { Some(Answer { number, slot, incarnation, status, executed }) } else { None }
    }

    /// Number of the request that the agent answered last.
    pub(super) fn last_answered(self) -> u64 {
        self.ptr.mailbox().answer().load_acquire()
    }

    /// True if the agent said since the last look that it works on the request: its NIC may have thousands of others to
    /// fence before. The wait begins again, for as long as a whole chain of switches may take at the most.
    pub(super) fn is_in_hand(self, now: u64) -> bool {
        let mailbox = self.ptr.mailbox();
        let said = InHand(mailbox.in_hand().load_acquire());
        let seen = mailbox.in_hand_seen();
        let news = said.is_of(words(self.ptr).request().load()) && seen.load() != said.0;
        let closed_ns = words(self.ptr).stamps().element(Stamp::Closed as usize).load();
        let bounded = now.saturating_sub(closed_ns) < self.state().chain_bound_ns();
        if !news || !bounded || Mutant::QueueIsSilence.on() {
            return false;
        }
        seen.store(said.0);
        words(self.ptr).step_since_ns().store(now);
        true
    }
}
