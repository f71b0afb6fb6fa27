//! The begin of a switch: the ticket word is closed and the done word frozen. Rules 7 and 8.

use super::record::count;
use super::state::{Next, SWAPS_MAX, Stamp, State, Trigger};
use super::words::words;
use crate::part::part;
use crate::paths::Paths;
use crate::platform::Platform;
use crate::types::FaultKind;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CLOSED, CauseKind, FROZEN, Step, SwitchWord, Word};

part! {
    /// Closes a generation: its tickets, then its done word.
    pub(super) Close { state: State, paths: Paths }
}

impl<P: Platform> Close<'_, P> {
    /// Closes the ticket word, freezes the done word. A switch-back only closes.
    pub(super) fn begin(self, trigger: Trigger, at: SwitchWord, now: u64) -> Next {
        let ticket = self.ptr.load_ticket();
        if ticket.flag() {
            return self.resume_close(at, now);
        }
        let stale = !ticket.same_generation(trigger.at) && !Mutant::OldTriggerActedOn.on();
        if stale {
            return Next::Wait; // somebody switched since
        }
        let (slot, words) = (ticket.slot(), words(self.ptr));
        let back = matches!(trigger.cause, CauseKind::SwitchBack);
        self.state().set_cause(trigger.cause, trigger.syndrome);
        words.cause_ticket().store(trigger.at.index());
        words.from().store(slot);
        words.back().store(back as u32);
        words.from_incarnation().store(self.paths().incarnation(slot));
        words.ledger().store(0);
        words.excluded().store(0);
        words.posted_reads().store(0);
        words.asked().store(0);
        words.resolution().store(0);
        words.erred_seen_ns().store(0);
        self.state().stamp(Stamp::Noticed, now);
        if !back {
            self.state().note_first_cause(slot, trigger.cause, trigger.syndrome);
            count(self.ptr.tally().suspicions(), matches!(trigger.cause, CauseKind::Overdue) as u64);
        }
        let tolerant = self.ptr.state.tolerant();
        if !tolerant
            || (trigger.cause == CauseKind::Completion
                && Syndrome(trigger.syndrome as u8).is_program_error()
                && !Mutant::ProgramErrorsChained.on())
        {
            return self.state().die(at, FaultKind::Completion, now);
        }
        if self.close_tickets(ticket) { self.closed(at, now) } else { Next::Wait }
    }

    /// Closes the ticket word. The close point is in memory before the flag is, so that the next owner finds it;
    /// flags change only by read-modify-write, so tickets handed out meanwhile stand.
    fn close_tickets(self, mut ticket: Word) -> bool {
        let mut tries = 0;
        while tries < SWAPS_MAX && !ticket.flag() {
            words(self.ptr).close().store(ticket.index());
            let met = Word(self.ptr.ticket_word().compare_swap(ticket.0, ticket.0 | CLOSED));
            if met == ticket {
                return true;
            }
            if !met.same_generation(ticket) {
                return false;
            }
            ticket = met;
            tries += 1;
        }
        false
    }

    /// An owner that closed the ticket word and got no further: the rest of what it began.
    pub(super) fn resume_close(self, at: SwitchWord, now: u64) -> Next {
        if !self.ptr.load_ticket().flag() || Mutant::CloseNotResumed.on() {
            return Next::Wait;
        }
        self.closed(at, now)
    }

    /// The announcement of the path that is in use ends with its generation.
    fn closed(self, at: SwitchWord, now: u64) -> Next {
        if words(self.ptr).back().load() != 0 {
            self.state().stamp(Stamp::Closed, now);
            return self.state().enter_as(at, at.cleared(Step::Drain), now);
        }
        if !self.freeze() {
            return Next::Wait;
        }
        self.state().stamp(Stamp::Closed, now);
        self.state().enter_as(at, at.cleared(Step::Settle), now)
    }

    /// Freezes `done` of the generation that is closed; D is where it stands. False if that generation is over, or
    /// callers complete faster than this looks: then it is tried again.
    #[inline(never)]
    pub(super) fn freeze(self) -> bool {
        let flag = if Mutant::DoneNotFrozen.on() { 0 } else { FROZEN };
        let (mut done, mut tries) = (self.ptr.load_done(), 0);
        while tries < SWAPS_MAX {
            if !self.ptr.still_closed(done) {
                return false;
            }
            // A generation met here is never frozen again once it is over.
            let met = Word(self.ptr.done_word().compare_swap(done.0, done.0 | flag));
            if met == done {
                self.state().raise_done_to(done.index());
                return true;
            }
            done = met;
            tries += 1;
        }
        false
    }
}
