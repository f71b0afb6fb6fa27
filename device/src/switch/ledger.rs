//! The ledger: without truth, the words that signals leave in the receiver's memory tell how far it got. Rule 13.
//!
//! A kind 1 word is its own ledger. A kind 2 signal is bracketed by two words of the library's own, which are kind 1
//! words too. One READ for each over the next path; what the last one that was applied covers was executed, because RC
//! executes in order, and from the first one that was not applied on nothing was.

use super::steps::LEDGER_READ;
use super::{Next, Stamp, get, set};
use crate::access::{Channel, PathView};
use crate::cut;
use crate::journal::Entry;
use crate::platform::Platform;
use crate::root::root;
use crate::wqe_write::{self, Place};
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{LEDGER_BYTES, NO_SLOT, Step};

impl<P: Platform> Channel<'_, P> {
    pub(super) fn ledger(self, now: u64) -> Next {
        let to = get!(self, to: u32);
        if get!(self, posted_reads: u64) == 0 {
            return match self.post_ledger_reads(to) {
                None => self.lock_awaited(now),
                Some(0) => self.ledger_known(now),
                Some(count) => {
                    set!(self, posted_reads: u64 = count);
                    Next::Again
                }
            };
        }
        let (count, next) = (get!(self, posted_reads: u64), self.next_index(to));
        let lag = self.cq_map(to).lag();
        match self.tail_of(&self.completions(to), (next + count - 1) as u32, lag) {
            Some(tail) if tail.opcode == opcode::REQ => {
                self.platform().cqe_before_data();
                self.read_evidence();
                // In this order: whoever takes over in between waits in vain and takes another path. The other way
                // round it would post at indices that are used.
                self.set_next_index(to, next + count);
                set!(self, posted_reads: u64 = 0);
                self.ledger_known(now)
            }
            None if !self.step_overdue(now, root!(self.device, policy.ledger_ns)) => Next::Wait,
            _ => self.ledger_failed(to, now),
        }
    }

    fn ledger_known(self, now: u64) -> Next {
        set!(self, ledger: u32 = LEDGER_READ);
        self.stamp(Stamp::Cut, now);
        self.proceed(now)
    }

    /// The new path failed before anything of the journal was on it: READs change nothing at the receiver, so
    /// the next path is tried with X and the journal as they are (invariant 10). The failed one is nobody's from here
    /// on, whether or not the agent hears of it: its READs may still complete, at indices that the next occupant would
    /// use again.
    fn ledger_failed(self, to: u32, now: u64) -> Next {
        if !Mutant::FailedLedgerEnteredAgain.on() {
            self.mark_fenced(to);
        }
        set!(self, excluded: u32 = get!(self, excluded: u32) | 1 << to);
        set!(self, to: u32 = NO_SLOT);
        set!(self, posted_reads: u64 = 0);
        self.note_first_cause(to, shunt_layout::state::CauseKind::LedgerFailed, 0);
        self.request_fence(to, self.incarnation(to));
        self.enter(Step::Choose, now)
    }

    /// True while nobody said anything of the path that the last ledger was read over: its READs may still be answered,
    /// into the words that the next ledger is read into, and the next request would take the place of the one for it.
    /// Bounded: by then RC has given up, and what it still answered is gone.
    pub(super) fn ledger_path_awaited(self, now: u64) -> bool {
        let (mailbox, policy) = (self.mailbox(), self.device.policy());
        let rc_ns = policy.rc_gives_up_ms as u64 * 1_000_000;
        let bound_ns = policy.fence_wait_ns.max(rc_ns.saturating_add(policy.packet_lifetime_ns));
        // SAFETY: a field of this channel's mailbox.
        let answer = unsafe { self.platform().load_acquire(addr_of_mut!((*mailbox).answer)) };
        get!(self, excluded: u32) != 0
            && answer != get!(self, request: u64)
            && !self.step_overdue(now, bound_ns)
            && !Mutant::LedgerPathNotAwaited.on()
    }

    /// How many READs are on their way. None if somebody else holds the post lock: they are written, not rung.
    fn post_ledger_reads(self, to: u32) -> Option<u64> {
        let (old, new) = (self.journal(), self.view(to));
        let next = self.next_index(to);
        let (mut ticket, end) = (self.undecided(), self.announced());
        let (mut count, mut bracketed) = (0, false);
        while ticket < end {
            let entry = self.journal_entry(&old, ticket);
            bracketed |= entry.is_ledger;
            if entry.is_evidence() && !entry.is_ledger {
                self.post_ledger_read(&new, next + count, entry.remote, self.scratch(count) as u64);
                count += 1;
            }
            ticket += entry.blocks;
        }
        if bracketed {
            let words = self.device.peer_heap(self.peer()) + self.ledger_words();
            self.post_ledger_read(&new, next + count, words, self.scratch_extra(0) as u64);
            count += 1;
        }
        let rung = count == 0 || self.ring_physical(&new, self.load_ticket(), next + count);
        rung.then_some(count)
    }

    /// One READ: of a signal word, or of both ledger words.
    fn post_ledger_read(self, new: &PathView, physical: u64, remote: u64, to: u64) {
        let offset = remote.wrapping_sub(self.device.peer_heap(self.peer()));
        let bytes = if to == self.scratch_extra(0) as u64 { LEDGER_BYTES as u32 } else { 8 };
        let rkey = self.device.rkey(self.peer(), new.remote_rail, offset);
        let lkey = self.device.scratch_lkey(new.local_rail);
        let place = Place { index: physical, qpn_shifted: new.qpn_shifted };
        self.write_wqe(new, physical, &wqe_write::read(place, remote, rkey, to, lkey, bytes));
    }

    /// End of what may have been executed: what the old path's NIC was never told of, it did not send.
    pub(super) fn announced(self) -> u64 {
        get!(self, journal_end: u64).min(self.load_posted())
    }

    /// First ticket whose fate is open.
    fn undecided(self) -> u64 {
        get!(self, executed: u64).max(get!(self, done_at_close: u64))
    }

    /// X and N from the words that were read back: the first ticket behind the last write of a word that was applied,
    /// and the first such write behind it that was not.
    fn read_evidence(self) {
        let old = self.journal();
        let end = self.announced();
        let mut ticket = self.undecided();
        let (mut number, mut executed, mut unexecuted) = (0, ticket, end);
        while ticket < end {
            let entry = self.journal_entry(&old, ticket);
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
        self.raise_executed_to(executed);
        set!(self, unexecuted: u64 = unexecuted);
    }

    /// What the word of an entry was read back as.
    fn evidence(self, entry: &Entry, number: u64) -> u64 {
        let words = self.device.peer_heap(self.peer()) + self.ledger_words();
        let behind = entry.remote != words || Mutant::BracketHalfRead.on();
        let at = match entry.is_ledger {
            true => self.scratch_extra(behind as u32),
            false => self.scratch(number),
        };
        // SAFETY: scratch of this channel; the READ that filled it has completed.
        unsafe { self.platform().load_acquire(at) }
    }
}
