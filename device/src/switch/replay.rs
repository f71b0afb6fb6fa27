//! The replay: what the old ring holds, written into the new one. Rules 14 and 15.
//!
//! The old ring is the only journal until the new one holds all of it (H14); nothing frees it before.

use super::record::count;
use super::{Next, Stamp, get};
use crate::access::{Channel, PathView};
use crate::journal;
use crate::platform::Platform;
use crate::root::root;
use crate::types::FaultKind;
use crate::wqe_write::{self, Place};
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::Word;

impl<P: Platform> Channel<'_, P> {
    /// Where the next occupant of a path starts.
    pub(super) fn next_index(self, slot: u32) -> u64 {
        // SAFETY: a field of a valid row; nobody else writes it while a switch enters the path.
        let next = unsafe { self.platform().load(addr_of_mut!((*self.path(slot)).next_index)) };
        if Mutant::RingsBeginAtZero.on() { 0 } else { next }
    }

    pub(super) fn set_next_index(self, slot: u32, next: u64) {
        // SAFETY: as above.
        unsafe { self.platform().store(addr_of_mut!((*self.path(slot)).next_index), next) }
    }

    /// The old ring as the switch found it. Its path may have been made anew since, in another ring.
    pub(super) fn journal(self) -> PathView {
        let view = self.view(get!(self, from: u32));
        PathView { send_queue: get!(self, journal_queue: u64), base: get!(self, journal_base: u64), ..view }
    }

    /// Entry of the journal for `ticket`.
    pub(super) fn journal_entry(self, old: &PathView, ticket: u64) -> journal::Entry {
        journal::read(&self.journal_block(old, ticket))
    }

    fn journal_block(self, old: &PathView, ticket: u64) -> Wqebb {
        // SAFETY: the slot was published before the close and is kept until the switch is over.
        unsafe { self.platform().load_wqe(self.block(old, ticket.wrapping_sub(old.base))) }
    }

    /// Rings a path that nobody else rings: it is being entered or drained. Under the lock all the same, so
    /// that doorbell stores of one QP never interleave.
    ///
    /// Nothing is rung unless the channel is still closed in the generation of `closed`: an owner that comes back after
    /// its lease must not ring what another one has long gone beyond. False if somebody else holds the lock.
    pub(super) fn ring_physical(self, view: &PathView, closed: Word, next: u64) -> bool {
        if !self.try_post_lock() {
            return false;
        }
        if self.still_closed(closed) {
            self.store_doorbell(view, next);
        }
        self.release_post_lock();
        true
    }

    fn store_doorbell(self, view: &PathView, next: u64) {
        use shunt_layout::mlx5::doorbell;
        let p = self.platform();
        // A NIC may read the record at any time: the path may be live already.
        p.published_before_ring();
        // SAFETY: record and register of the path being rung.
        unsafe {
            p.store_doorbell_record(view.doorbell_record as *mut u32, doorbell::send_counter(next));
            p.record_before_register();
            p.store_register(view.doorbell_register as *mut u64, doorbell::register(next, view.qpn_shifted));
        }
    }

    /// Notes that everything below `window.end` is announced on the path being entered, and rings it if that is
    /// anything. Under the lock, and only while the channel is closed in the generation of `closed`: callers that ring
    /// have long gone beyond otherwise, and what is not below `posted` counts as never sent. None if another holds the
    /// lock.
    fn announce(self, new: &PathView, closed: Word, window: core::ops::Range<u64>) -> Option<bool> {
        if !self.try_post_lock() {
            return None;
        }
        let closed = self.still_closed(closed);
        if closed {
            // SAFETY: `posted` is guarded by the post lock.
            unsafe { self.platform().store(addr_of_mut!((*self.words()).posted), window.end) };
            if window.end > window.start {
                self.store_doorbell(new, window.end.wrapping_sub(new.base));
            }
        }
        self.release_post_lock();
        Some(closed)
    }

    /// Somebody holds the post lock: waits, as long as a whole chain of switches may take.
    pub(super) fn lock_awaited(self, now: u64) -> Next {
        if self.step_overdue(now, self.chain_bound_ns()) {
            return self.die(FaultKind::PeerLost, now);
        }
        Next::Wait
    }

    /// True while the channel is closed in the generation of `closed`.
    pub(super) fn still_closed(self, closed: Word) -> bool {
        let ticket = self.load_ticket();
        ticket.flag() && ticket.same_generation(closed) || Mutant::ReturnedOwnerGoesOn.on()
    }

    /// Writes `[D, L)` into the new ring, rings once, opens.
    pub(super) fn replay(self, now: u64) -> Next {
        let (closed, frozen) = (self.load_ticket(), self.load_done());
        if !closed.flag() {
            // The owner before us got as far as the ticket word.
            return self.open_done(frozen, now);
        }
        let to = get!(self, to: u32);
        let (old, mut new) = (self.journal(), self.view(to));
        // What the receiver executed is delivered, and so done, up to the first READ: a switch makes progress.
        let mut done = get!(self, done_at_close: u64);
        while done < get!(self, executed: u64) {
            let entry = self.journal_entry(&old, done);
            if entry.is_read() {
                break;
            }
            done += entry.blocks;
        }
        self.raise_done_to(done);
        let end = get!(self, journal_end: u64);
        let next = self.next_index(to);
        let base = done.wrapping_sub(next);
        new.base = base;
        if Mutant::DoorbellBeforeReplay.on() && end > done {
            self.ring_physical(&new, closed, end.wrapping_sub(base));
        }
        // Looked at before as well, so that nothing is counted twice.
        if !self.pass_post_lock() {
            return self.lock_awaited(now);
        }
        if !self.replay_window(&old, &new, closed, done..end) {
            return Next::Wait;
        }
        match self.announce(&new, closed, done..end) {
            None => return self.lock_awaited(now),
            Some(false) => return Next::Wait,
            Some(true) => {}
        }
        self.stamp(Stamp::Replayed, self.platform().now_ns());
        self.open(to, base, (closed, frozen), self.platform().now_ns().max(now))
    }

    /// Writes all of the window, and counts what it wrote. False if this switch was ended by another owner meanwhile.
    fn replay_window(
        self,
        old: &PathView,
        new: &PathView,
        closed: Word,
        window: core::ops::Range<u64>,
    ) -> bool {
        let (to, executed) = (get!(self, to: u32), get!(self, executed: u64));
        let (mut ticket, mut placeholders, mut wide) = (window.start, 0, 0);
        while ticket < window.end {
            if !self.still_closed(closed) {
                return false;
            }
            let block = self.journal_block(old, ticket);
            let entry = journal::read(&block);
            let settled = ticket < executed && (!entry.is_read() || Mutant::GetNotIssuedAgain.on());
            let left_out = entry.is_ledger && Mutant::LedgerNotRewritten.on();
            if entry.moves_nothing || (settled && !Mutant::ExecutedRepeated.on()) || left_out {
                self.replay_nothing(new, ticket, entry.blocks);
                placeholders += entry.blocks;
            } else {
                self.replay_one(old, new, ticket, &block);
                wide += (entry.blocks > 1) as u64;
            }
            ticket += entry.blocks;
        }
        if !self.still_closed(closed) {
            return false;
        }
        // From what was there when the path was chosen: a switcher that takes over counts no WQE twice.
        self.set_wide(to, self.cq_map(to).lag() as u64 + wide);
        count!(self, placeholders += placeholders);
        count!(self, replayed += window.end - window.start - placeholders);
        true
    }

    /// Rule 14: an executed write, signal or atomic becomes a zero-length write for each of its tickets.
    fn replay_nothing(self, new: &PathView, ticket: u64, blocks: u64) {
        let mut number = 0;
        while number < blocks {
            let physical = (ticket + number).wrapping_sub(new.base);
            let place = Place { index: physical, qpn_shifted: new.qpn_shifted };
            self.write_wqe(new, physical, &wqe_write::placeholder(place));
            number += 1;
        }
    }

    /// Rule 14: all else is encoded anew. A READ is always issued again: that the receiver executed it does not say
    /// that its data arrived (F3).
    fn replay_one(self, old: &PathView, new: &PathView, ticket: u64, block: &Wqebb) {
        let physical = ticket.wrapping_sub(new.base);
        let place = Place { index: physical, qpn_shifted: new.qpn_shifted };
        let entry = journal::read(block);
        let remote = entry.remote - self.device.peer_heap(self.peer());
        let keys = if Mutant::KeysOfTheOldRail.on() { old } else { new };
        let rkey = match entry.is_data() {
            true => self.device.data_rkey(self.peer(), keys.remote_rail, remote),
            false => self.device.rkey(self.peer(), keys.remote_rail, remote),
        };
        let lkey = entry.local.map(|local| self.local_key(keys.local_rail, local));
        self.write_block(new, physical, &journal::relocate(block, place, rkey, lkey));
        if entry.blocks > 1 {
            let second = self.journal_block(old, ticket + 1);
            let lkey = self.local_key(keys.local_rail, journal::second_local(&second));
            self.write_block(new, physical.wrapping_add(1), &journal::relocate_second(&second, lkey));
        }
    }

    /// The key of local memory: of the heap, or of the scratch that unwanted answers go to.
    fn local_key(self, rail: u32, local: u64) -> u32 {
        let offset = local.wrapping_sub(root!(self.device, heap_base));
        if offset < root!(self.device, heap_bytes) {
            self.device.lkey(rail, offset)
        } else {
            self.device.scratch_lkey(rail)
        }
    }
}
