//! The ledger and the replay: what the old ring holds, decided and written into the new one. Rules 13 to 15.
//!
//! The old ring is the only journal until the new one holds all of it (H14); nothing frees it before.

use super::record::count;
use super::{Next, Stamp, get, set};
use crate::access::{Channel, PathView};
use crate::cut;
use crate::journal;
use crate::platform::Platform;
use crate::wqe_write::{self, Place};
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{NO_SLOT, Step};

impl<P: Platform> Channel<'_, P> {
    /// Where the next occupant of a path starts.
    fn next_index(self, slot: u32) -> u64 {
        // SAFETY: a field of a valid row; nobody else writes it while a switch enters the path.
        let next = unsafe { self.platform().load(addr_of_mut!((*self.path(slot)).next_index)) };
        if Mutant::RingsBeginAtZero.on() { 0 } else { next }
    }

    fn set_next_index(self, slot: u32, next: u64) {
        // SAFETY: as above.
        unsafe { self.platform().store(addr_of_mut!((*self.path(slot)).next_index), next) }
    }

    /// The old ring as the switch found it. Its path may have been made anew since, in another ring.
    pub(super) fn journal(self) -> PathView {
        let view = self.view(get!(self, from: u32));
        PathView { send_queue: get!(self, journal_queue: u64), base: get!(self, journal_base: u64), ..view }
    }

    /// Entry of the journal for `ticket`.
    fn journal_entry(self, old: &PathView, ticket: u64) -> journal::Entry {
        // SAFETY: the slot was published before the close and is kept until the switch is over.
        let block = unsafe { self.platform().load_wqe(self.block(old, ticket.wrapping_sub(old.base))) };
        journal::read(&block)
    }

    /// Without truth the signal words tell: one READ a signal over the new path, then the last one applied is
    /// the cut. Everything before it on the channel was executed (RC), nothing behind it was consumed by
    /// anybody.
    pub(super) fn ledger(self, now: u64) -> Next {
        let to = get!(self, to: u32);
        if get!(self, posted_reads: u64) == 0 {
            let count = self.post_ledger_reads(to);
            if count == 0 {
                self.stamp(Stamp::Cut, now);
                return self.enter(Step::Replay, now);
            }
            set!(self, posted_reads: u64 = count);
            return Next::Again;
        }
        let (count, next) = (get!(self, posted_reads: u64), self.next_index(to));
        match self.tail(&self.completions(to), next + count - 1) {
            Some(tail) if tail.opcode == opcode::REQ => {
                self.platform().cqe_before_data();
                let watermark = self.applied_until().max(get!(self, executed: u64));
                set!(self, executed: u64 = watermark);
                set!(self, posted_reads: u64 = 0);
                self.set_next_index(to, next + count);
                self.stamp(Stamp::Cut, now);
                self.enter(Step::Replay, now)
            }
            None if !self.step_overdue(now, self.device.state.policy.ledger_ns) => Next::Wait,
            _ => self.ledger_failed(to, now),
        }
    }

    /// The new path failed before anything of the journal was on it: READs change nothing at the receiver, so
    /// the next path is tried with X and the journal as they are (invariant 10). The agent fences the failed
    /// one.
    fn ledger_failed(self, to: u32, now: u64) -> Next {
        set!(self, excluded: u32 = get!(self, excluded: u32) | 1 << to);
        set!(self, to: u32 = NO_SLOT);
        set!(self, posted_reads: u64 = 0);
        self.note_first_cause(to, shunt_layout::state::CauseKind::LedgerFailed, 0);
        self.request_fence(to, self.incarnation(to));
        self.enter(Step::Choose, now)
    }

    fn post_ledger_reads(self, to: u32) -> u64 {
        let (old, new) = (self.journal(), self.view(to));
        let peer_heap = self.device.peer_heap(self.peer());
        let lkey = self.device.scratch_lkey(new.local_rail);
        let next = self.next_index(to);
        let (mut ticket, end) = (self.undecided(), get!(self, journal_end: u64));
        let mut count = 0;
        while ticket < end {
            let entry = self.journal_entry(&old, ticket);
            if entry.is_signal {
                let rkey = self.device.rkey(self.peer(), new.remote_rail, entry.remote - peer_heap);
                let place = Place { index: next + count, qpn_shifted: new.qpn_shifted };
                let read = wqe_write::read(place, entry.remote, rkey, self.scratch(count) as u64, lkey, 8);
                self.write_wqe(&new, next + count, &read);
                count += 1;
            }
            ticket += 1;
        }
        if count > 0 {
            self.ring_physical(&new, next + count);
        }
        count
    }

    /// First ticket whose fate is open.
    fn undecided(self) -> u64 {
        get!(self, executed: u64).max(get!(self, done_at_close: u64))
    }

    /// First ticket not shown to be executed by a signal word that was read back.
    fn applied_until(self) -> u64 {
        let old = self.journal();
        let (mut ticket, end) = (self.undecided(), get!(self, journal_end: u64));
        let (mut number, mut until) = (0, ticket);
        while ticket < end {
            let entry = self.journal_entry(&old, ticket);
            if entry.is_signal {
                // SAFETY: scratch of this channel; the READ that filled it has completed.
                let seen = unsafe { self.platform().load_acquire(self.scratch(number)) };
                if cut::signal_applied(seen, entry.value) {
                    until = ticket + 1;
                }
                number += 1;
            }
            ticket += 1;
        }
        until
    }

    /// Rings a path that nobody else rings: it is being entered or drained. Under the lock all the same, so
    /// that doorbell stores of one QP never interleave.
    pub(super) fn ring_physical(self, view: &PathView, next: u64) {
        let p = self.platform();
        p.wqes_before_publish();
        self.take_post_lock();
        // SAFETY: record and register of the path being rung.
        unsafe {
            use shunt_layout::mlx5::doorbell;
            p.store_doorbell_record(view.doorbell_record as *mut u32, doorbell::send_counter(next));
            p.record_before_register();
            p.store_register(view.doorbell_register as *mut u64, doorbell::register(next, view.qpn_shifted));
        }
        self.release_post_lock();
    }

    /// Writes `[D, L)` into the new ring, rings once, opens.
    pub(super) fn replay(self, now: u64) -> Next {
        let to = get!(self, to: u32);
        let (old, mut new) = (self.journal(), self.view(to));
        // What the receiver executed is delivered, and so done, up to the first READ: a switch makes progress.
        let mut done = get!(self, done_at_close: u64);
        while done < get!(self, executed: u64) && !self.journal_entry(&old, done).is_read {
            done += 1;
        }
        set!(self, done_at_close: u64 = done);
        let end = get!(self, journal_end: u64);
        let next = self.next_index(to);
        let base = done.wrapping_sub(next);
        new.base = base;
        let executed = get!(self, executed: u64);
        let mut ticket = done;
        if Mutant::DoorbellBeforeReplay.on() && end > done {
            self.ring_physical(&new, end.wrapping_sub(base));
        }
        let mut placeholders = 0;
        while ticket < end {
            placeholders += self.replay_one(&old, &new, ticket, ticket < executed) as u64;
            ticket += 1;
        }
        count!(self, placeholders += placeholders);
        count!(self, replayed += end - done - placeholders);
        // SAFETY: `posted` belongs to the switch: the ticket word is closed, so nobody rings.
        unsafe { self.platform().store(addr_of_mut!((*self.words()).posted), end) };
        if end > done {
            self.ring_physical(&new, end.wrapping_sub(base));
        }
        self.stamp(Stamp::Replayed, self.platform().now_ns());
        self.open(to, base, self.platform().now_ns().max(now))
    }

    /// Rule 14: an executed write or signal becomes a zero-length write, all else is encoded anew. A READ is
    /// always issued again: that the receiver executed it does not say that its data arrived (F3). True if a
    /// placeholder stands in.
    fn replay_one(self, old: &PathView, new: &PathView, ticket: u64, executed: bool) -> bool {
        let physical = ticket.wrapping_sub(new.base);
        let place = Place { index: physical, qpn_shifted: new.qpn_shifted };
        // SAFETY: as in `journal_entry`.
        let block = unsafe { self.platform().load_wqe(self.block(old, ticket.wrapping_sub(old.base))) };
        let entry = journal::read(&block);
        let settled = executed && (!entry.is_read || Mutant::GetNotIssuedAgain.on());
        if entry.moves_nothing || (settled && !Mutant::ExecutedRepeated.on()) {
            self.write_wqe(new, physical, &wqe_write::placeholder(place));
            return true;
        }
        let device = self.device;
        let remote = entry.remote - device.peer_heap(self.peer());
        let keys = if Mutant::KeysOfTheOldRail.on() { old } else { new };
        let rkey = device.rkey(self.peer(), keys.remote_rail, remote);
        let lkey = entry.local.map(|local| device.lkey(keys.local_rail, local - device.state.heap_base));
        self.write_block(new, physical, &journal::relocate(&block, place, rkey, lkey));
        false
    }
}
