//! The end of a switch: the next generation opens. Rule 15.

use super::record::{Records, count};
use super::state::{Next, SWAPS_MAX, Stamp, State};
use super::words::words;
use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::platform::Platform;
use crate::root::root;
use crate::send_queue::SendQueue;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CqMap, INDEX_MASK, NO_SLOT, SUSPECT_DOUBLINGS_MAX, SwitchKind, SwitchWord, Word};

part! {
    /// Opens a generation, and learns from the one before how long a path may be silent.
    pub(super) Open { state: State, records: Records, multi_block: MultiBlock }
}

impl<P: Platform> Open<'_, P> {
    /// Ring and base are in place; now the ticket flags, `ready`, and last the done word. `closed` and
    /// `frozen` are the words as this switch closed and froze them: an owner that comes back after its lease, when the
    /// channel has long been opened by another, changes nothing.
    pub(super) fn open(self, at: SwitchWord, base: u64, (closed, frozen): (Word, Word), now: u64) -> Next {
        let to = at.to();
        if !self.ptr.still_closed(closed) {
            return Next::Wait;
        }
        SendQueue::set_base(self.ptr, to, base);
        let generation = closed.generation() + 1;
        let lag = self.multi_block().map(to).lag();
        self.multi_block().set_map(to, CqMap::new(base, lag, generation));
        if Mutant::OpenByStore.on() {
            self.ptr.ticket_word().store(Word::new(to, generation, closed.index()).0);
        } else if !self.open_tickets(closed, Word::new(to, generation, 0)) {
            return Next::Wait;
        }
        self.open_done(at, frozen, now)
    }

    /// Swaps the flags of the ticket word; tickets reserved meanwhile stand. False if this switch is over.
    fn open_tickets(self, closed: Word, opened: Word) -> bool {
        let (mut ticket, mut tries) = (self.ptr.load_ticket(), 0);
        while tries < SWAPS_MAX && ticket.flag() && ticket.same_generation(closed) {
            let new = opened.with_index(ticket.index());
            let met = Word(self.ptr.ticket_word().compare_swap(ticket.0, new.0));
            if met == ticket {
                return true;
            }
            ticket = met;
            tries += 1;
        }
        false
    }

    /// The rest of an opening, once the ticket word shows the new generation: by its owner, or by the next one.
    pub(super) fn open_done(self, mut at: SwitchWord, frozen: Word, now: u64) -> Next {
        let (ticket, words) = (self.ptr.load_ticket(), words(self.ptr));
        let (to, generation, done) = (ticket.slot(), ticket.generation(), words.done_at_close().load());
        self.ptr.ready_word().fetch_and(INDEX_MASK);
        let new = Word::new(to, generation, done);
        if frozen.flag() && self.ptr.done_word().compare_swap(frozen.0, new.0) != frozen.0 {
            return Next::Wait;
        }
        self.state().stamp(Stamp::Opened, now);
        let back = words.back().load() != 0;
        if !Mutant::PatienceNeverLearned.on() {
            self.learn_limits(back, done);
        }
        if Mutant::CutForgottenAtOpen.on() {
            words.executed().store(0);
        }
        let mirror = self.ptr.mirror();
        let opened = if back { mirror.switchbacks() } else { mirror.failovers() };
        opened.store(opened.load() + 1);
        let late = ticket.index().saturating_sub(words.close().load());
        count(self.ptr.tally().late_tickets(), late);
        self.records().count_opened(words.from().load(), to);
        let kind = if back { SwitchKind::SwitchBack } else { SwitchKind::Failover };
        self.records().write(kind, to, generation);
        // The announcement stands until the next switch begins: the agent takes a slot without one for left.
        if Mutant::AnnouncementTakenBack.on() {
            let next = at.announced(NO_SLOT);
            self.state().change(at, next);
            at = next;
        }
        mirror.dead_since_ns().store(0);
        self.state().enter_as(at, at.opened(to), now)
    }

    /// Paths that are slower than the suspect time are left before anything arrives over them, each in turn, for
    /// ever. So a whole round of generations that had work and finished none of it doubles the suspect time, and one
    /// that finished something halves it: false suspicion costs a switch, never the stream.
    fn learn_limits(self, back: bool, done: u64) {
        let words = words(self.ptr);
        let (fruitless, rounds) = (words.fruitless().load() + 1, words.rounds().load());
        let idle = back || words.journal_end().load() <= done;
        let (fruitless, rounds) = if done > words.opened_at().load() {
            (0, rounds.saturating_sub(1))
        } else if idle {
            (0, rounds)
        } else if fruitless < root!(self.ptr.state, slots) {
            (fruitless, rounds)
        } else {
            (0, if rounds < SUSPECT_DOUBLINGS_MAX { rounds + 1 } else { rounds })
        };
        words.opened_at().store(done);
        words.fruitless().store(fruitless);
        words.rounds().store(rounds);
    }
}
