//! The ledger: without truth, the words that signals leave in the receiver's memory tell how far it got. Rule 13.
//!
//! A kind 1 word is its own ledger. A kind 2 signal is bracketed by two words of the library's own, which are kind 1
//! words too. One READ for each over the next path; what the last one that was applied covers was executed, because RC
//! executes in order, and from the first one that was not applied on nothing was.

use super::mailbox::FenceRequest;
use super::old_ring::OldRing;
use super::state::{LEDGER_READ, Next, Stamp, State};
use super::uncertain::Uncertainty;
use super::words::words;
use crate::completion_queue::CompletionQueue;
use crate::cut;
use crate::doorbell::Doorbell;
use crate::journal::Entry;
use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::paths::Paths;
use crate::platform::Platform;
use crate::root::root;
use crate::send_queue::SendQueue;
use crate::wqe_write;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CauseKind, LEDGER_BYTES, Step, SwitchWord};

part! {
    /// Reads the receiver's words over the path that was chosen, and raises X by them.
    pub(super) Ledger {
        state: State, old_ring: OldRing, request: FenceRequest, uncertainty: Uncertainty,
        paths: Paths, doorbell: Doorbell, multi_block: MultiBlock,
    }
}

impl<'s, P: Platform> Ledger<'s, P> {
    /// Posts the READs, then waits for the last of them.
    pub(super) fn query(self, at: SwitchWord, now: u64) -> Next {
        let (state, words, to) = (self.state(), words(self.ptr), at.to());
        if words.posted_reads().load() == 0 {
            return match self.post_reads(to) {
                None => state.await_lock(at, now),
                Some(0) => self.known(at, now),
                Some(count) => {
                    words.posted_reads().store(count);
                    Next::Again
                }
            };
        }
        let (count, next) = (words.posted_reads().load(), state.next_index(to));
        let lag = self.multi_block().map(to).lag();
        match CompletionQueue::of(self.ptr, to).tail_behind((next + count - 1) as u32, lag) {
            Some(tail) if tail.opcode == opcode::REQ => {
                self.ptr.platform().cqe_before_data();
                self.read_evidence();
                // In this order: one that takes over in between waits in vain and takes another path. The other way
                // round it would post at indices that are used.
                state.set_next_index(to, next + count);
                words.posted_reads().store(0);
                self.known(at, now)
            }
            None if !state.overdue(now, root!(self.ptr.state, policy.ledger_ns)) => Next::Wait,
            _ => self.failed(at, now),
        }
    }

    fn known(self, at: SwitchWord, now: u64) -> Next {
        words(self.ptr).ledger().store(LEDGER_READ);
        self.state().stamp(Stamp::Cut, now);
        self.uncertainty().proceed(at, now)
    }

    /// The new path failed before anything of the journal was on it: READs change nothing at the receiver, so
    /// the next path is tried with X and the journal as they are (invariant 10). The failed one is nobody's from here
    /// on, whether or not the agent hears of it: its READs may still complete, at indices that the next occupant would
    /// use again.
    fn failed(self, at: SwitchWord, now: u64) -> Next {
        let (words, to) = (words(self.ptr), at.to());
        if !Mutant::FailedLedgerEnteredAgain.on() {
            self.paths().mark_fenced(to);
        }
        words.excluded().store(words.excluded().load() | 1 << to);
        words.posted_reads().store(0);
        self.state().note_first_cause(to, CauseKind::LedgerFailed, 0);
        self.request().send(to, self.paths().incarnation(to));
        self.state().enter_as(at, at.cleared(Step::Choose), now)
    }

    /// True while nobody said anything of the path that the last ledger was read over: its READs may still be answered,
    /// into the words that the next ledger is read into, and the next request would take the place of the one for it.
    /// Bounded: by then RC has given up, and what it still answered is gone.
    pub(super) fn is_path_awaited(self, now: u64) -> bool {
        let policy = self.ptr.state.policy();
        let rc_ns = policy.rc_gives_up_ms as u64 * 1_000_000;
        let bound_ns = policy.fence_wait_ns.max(rc_ns.saturating_add(policy.packet_lifetime_ns));
        let answered = self.request().last_answered();
        words(self.ptr).excluded().load() != 0
            && answered != words(self.ptr).request().load()
            && !self.state().overdue(now, bound_ns)
            && !Mutant::LedgerPathNotAwaited.on()
    }

    /// How many READs are on their way. None if somebody else holds the post lock: they are written, not rung.
    fn post_reads(self, to: u32) -> Option<u64> {
        let (old, new) = (self.old_ring().queue(), SendQueue::of(self.ptr, to));
        let next = self.state().next_index(to);
        let (mut ticket, end) = (self.old_ring().undecided(), self.old_ring().announced());
        let (mut count, mut bracketed) = (0, false);
        while ticket < end {
            let entry = OldRing::entry(&old, ticket);
            bracketed |= entry.is_ledger;
            if entry.is_evidence() && !entry.is_ledger {
                self.post_read(&new, next + count, entry.remote, self.ptr.scratch(count).address() as u64);
                count += 1;
            }
            ticket += entry.blocks;
        }
        if bracketed {
            let to = self.ptr.scratch_extra(0).address() as u64;
            self.post_read(&new, next + count, self.ledger_address(), to);
            count += 1;
        }
        let rung = count == 0 || self.doorbell().ring_closed(&new, self.ptr.load_ticket(), next + count);
        rung.then_some(count)
    }

    /// Where this channel's ledger words are at the peer.
    fn ledger_address(self) -> u64 {
        self.ptr.state.peer_heap(self.ptr.peer()) + self.ptr.ledger_words()
    }

    /// One READ: of a signal word, or of both ledger words.
    fn post_read(self, new: &SendQueue<'s, P>, physical: u64, remote: u64, to: u64) {
        let (state, peer) = (self.ptr.state, self.ptr.peer());
        let offset = remote.wrapping_sub(state.peer_heap(peer));
        let both = to == self.ptr.scratch_extra(0).address() as u64;
        let bytes = if both { LEDGER_BYTES as u32 } else { 8 };
        let rkey = state.rkey(peer, new.remote_rail, offset);
        let lkey = state.scratch_lkey(new.local_rail);
        new.write(physical, &wqe_write::read(new.place_at(physical), remote, rkey, to, lkey, bytes));
    }

    /// X and N from the words that were read back: the first ticket behind the last write of a word that was applied,
    /// and the first such write behind it that was not.
    fn read_evidence(self) {
        let old = self.old_ring().queue();
        let end = self.old_ring().announced();
        let mut ticket = self.old_ring().undecided();
        let (mut number, mut executed, mut unexecuted) = (0, ticket, end);
        while ticket < end {
            let entry = OldRing::entry(&old, ticket);
            if entry.is_evidence() {
                let applied = cut::signal_applied(self.evidence(&entry, number), entry.value);
                number += !entry.is_ledger as u64;
                if applied {
                    (executed, unexecuted) = (ticket + entry.blocks, end);
                } else {
                    unexecuted = unexecuted.min(ticket);
                }
            }
            ticket += entry.blocks;
        }
        self.state().raise_executed_to(executed);
        words(self.ptr).unexecuted().store(unexecuted);
    }

    /// What the word of an entry was read back as. The READ that filled it has completed.
    fn evidence(self, entry: &Entry, number: u64) -> u64 {
        let behind = entry.remote != self.ledger_address() || Mutant::BracketHalfRead.on();
        let word = match entry.is_ledger {
            true => self.ptr.scratch_extra(behind as u32),
            false => self.ptr.scratch(number),
        };
        word.load_acquire()
    }
}
