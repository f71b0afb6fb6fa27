//! Operations whose fate nobody can know: the switch stops at the first one, asks the channel's owner, and goes on with
//! the answer. Rule 14.

use super::old_ring::OldRing;
use super::record::count;
use super::state::{Next, State};
use super::words::words;
use crate::part::part;
use crate::platform::Platform;
use crate::root::root;
use crate::types::{FaultKind, Operation};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{Resolution, Step, SwitchWord};

part! {
    /// Looks for what may not be repeated and may not be left out, and keeps the question and its answer.
    pub(super) Uncertainty { state: State, old_ring: OldRing }
}

impl<P: Platform> Uncertainty<'_, P> {
    /// The cut is known as well as it ever will be: goes on to the replay, or stops at the first operation that may
    /// not be repeated and may not be left out.
    #[inline(never)]
    pub(super) fn proceed(self, at: SwitchWord, now: u64) -> Next {
        let words = words(self.ptr);
        // A path was found: how long there was none is over (rule 21).
        if !Mutant::DeadSinceKept.on() {
            self.ptr.mirror().dead_since_ns().store(0);
        }
        let Some(asked) = self.first() else { return self.state().enter(at, Step::Replay, now) };
        let entry = OldRing::entry(&self.old_ring().queue(), asked);
        words.asked().store(asked);
        words.resolution().store(0);
        let heap = self.ptr.state.peer_heap(self.ptr.peer());
        self.name(entry.operation, entry.remote.wrapping_sub(heap));
        count(self.ptr.tally().uncertain(), 1);
        // While the owner is asked no path is kept waiting; one is chosen afterwards.
        self.state().enter_as(at, at.cleared(Step::Uncertain), now)
    }

    /// Writes what the operation is, for the report.
    fn name(self, operation: Operation, address: u64) {
        self.ptr.words().uncertain_address().store(address);
        self.ptr.words().uncertain_op().store(operation as u32);
    }

    /// The first ticket whose operation was executed with its answer lost, or whose execution nobody can know. What
    /// lies in `[X, N)` may have been executed; puts, kind 1 signals and ledger words may be repeated there, because
    /// nothing that covers them was applied (but for puts where receivers do not wait for that), and gets always.
    fn first(self) -> Option<u64> {
        if Mutant::UncertainRepeated.on() {
            return None;
        }
        let words = words(self.ptr);
        let old = self.old_ring().queue();
        let (executed, asked) = (words.executed().load(), words.asked().load());
        let end = words.unexecuted().load().min(words.journal_end().load());
        let mut ticket = words.done_at_close().load();
        while ticket < end {
            let entry = OldRing::entry(&old, ticket);
            let answer_lost = entry.operation == Operation::Fetch && !Mutant::LostAnswerIgnored.on();
            let unknown = match ticket < executed {
                true => answer_lost,
                false => entry.is_unprovable() || entry.is_data() && self.are_puts_polled(),
            };
            if unknown && ticket >= asked {
                return Some(ticket);
            }
            ticket += entry.blocks;
        }
        None
    }

    /// The receiver acts on the data of puts before a signal covers it, so a repetition may overwrite what is used
    /// already.
    fn are_puts_polled(self) -> bool {
        root!(self.ptr.state, policy.polled_puts) != 0 && !Mutant::PolledPutNotRefused.on()
    }

    /// Takes the owner's answer. False if it is not asked about `at`, was answered, or the answer is against what is
    /// known. The switch's owner takes it out; it names its ticket, so one that comes late is found out.
    pub(super) fn answer(self, at: u64, applied: bool) -> bool {
        let words = words(self.ptr);
        let known = at < words.executed().load();
        let asks = matches!(self.state().step(), Step::Uncertain);
        if !asks || words.asked().load() != at || (known && !applied) {
            return false;
        }
        let answer = Resolution::new(at, self.ptr.load_ticket().generation(), applied);
        words.resolution().compare_swap(0, answer.0) == 0
    }

    /// Waits for the owner's word, as long as a chain of switches may take at most.
    #[inline(never)]
    pub(super) fn await_answer(self, word: SwitchWord, now: u64) -> Next {
        let (state, words) = (self.state(), words(self.ptr));
        let (at, answer) = (words.asked().load(), Resolution(words.resolution().load()));
        if answer.0 == 0 {
            if state.overdue(now, state.chain_bound_ns()) {
                return state.die(word, FaultKind::Uncertain, now);
            }
            return Next::Wait;
        }
        let generation = self.ptr.load_ticket().generation();
        let known = at < words.executed().load();
        if !answer.is_for(at, generation) || (known && !answer.applied()) {
            words.resolution().store(0);
            return Next::Again; // for one that was settled before, or against what is known
        }
        let behind = at + OldRing::entry(&self.old_ring().queue(), at).blocks;
        if !answer.applied() {
            words.unexecuted().store(at); // nor was anything behind it: RC executes in order
        } else if !known && !Mutant::ResolvedNotKept.on() {
            state.raise_executed_to(behind);
        }
        self.name(Operation::None, 0);
        let next = state.enter(word, Step::Choose, now);
        // Last, so that one that takes over in between finds the answer again and comes to the same.
        words.asked().store(behind);
        words.resolution().store(0);
        next
    }
}
