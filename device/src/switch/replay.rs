//! The replay: what the old ring holds, written into the new one. Rules 14 and 15.

use super::old_ring::OldRing;
use super::open::Open;
use super::record::count;
use super::state::{Next, Stamp, State};
use super::words::words;
use crate::doorbell::Doorbell;
use crate::journal;
use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::platform::Platform;
use crate::root::root;
use crate::send_queue::SendQueue;
use crate::wqe_write;
use core::ops::Range;
use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{SwitchWord, Word};

part! {
    /// Copies the journal into the ring of the path that was chosen, rings it once, and opens.
    pub(super) Replay { state: State, old_ring: OldRing, open: Open, doorbell: Doorbell, multi_block: MultiBlock }
}

impl<'s, P: Platform> Replay<'s, P> {
    /// Writes `[D, L)` into the new ring, rings once, opens.
    pub(super) fn replay(self, at: SwitchWord, now: u64) -> Next {
        let (state, words) = (self.state(), words(self.ptr));
        let (closed, frozen) = (self.ptr.load_ticket(), self.ptr.load_done());
        // Behind the loads: what is opened below is the generation that this switch closed.
        if !state.stands_at(at) {
            return Next::Wait;
        }
        if !closed.flag() {
            // The owner before us got as far as the ticket word.
            return self.open().open_done(at, frozen, now);
        }
        let to = at.to();
        let (old, mut new) = (self.old_ring().queue(), SendQueue::of(self.ptr, to));
        // What the receiver executed is delivered, and so done, up to the first READ: a switch makes progress.
        let mut done = words.done_at_close().load();
        while done < words.executed().load() {
            let entry = OldRing::entry(&old, done);
            if entry.is_read() {
                break;
            }
            done += entry.blocks;
        }
        state.raise_done_to(done);
        let end = words.journal_end().load();
        let next = state.next_index(to);
        let base = done.wrapping_sub(next);
        new.base = base;
        if Mutant::DoorbellBeforeReplay.on() && end > done {
            self.doorbell().ring_closed(&new, closed, end.wrapping_sub(base));
        }
        // Looked at before as well, so that nothing is counted twice.
        if !self.doorbell().pass_lock() {
            return state.await_lock(at, now);
        }
        if !self.write_window(&old, &new, (to, closed), done..end) {
            return Next::Wait;
        }
        match self.doorbell().announce(&new, closed, done..end) {
            None => return state.await_lock(at, now),
            Some(false) => return Next::Wait,
            Some(true) => {}
        }
        state.stamp(Stamp::Replayed, self.ptr.now_ns());
        self.open().open(at, base, (closed, frozen), self.ptr.now_ns().max(now))
    }

    /// Writes all of the window, and counts what it wrote. False if this switch was ended by another owner meanwhile.
    fn write_window(
        self,
        old: &SendQueue<'s, P>,
        new: &SendQueue<'s, P>,
        (to, closed): (u32, Word),
        window: Range<u64>,
    ) -> bool {
        let executed = words(self.ptr).executed().load();
        let (mut ticket, mut placeholders, mut wide) = (window.start, 0, 0);
        while ticket < window.end {
            if !self.ptr.still_closed(closed) {
                return false;
            }
            let block = OldRing::block(old, ticket);
            let entry = journal::read(&block);
            let settled = ticket < executed && (!entry.is_read() || Mutant::GetNotIssuedAgain.on());
            let left_out = entry.is_ledger && Mutant::LedgerNotRewritten.on();
            if entry.moves_nothing || (settled && !Mutant::ExecutedRepeated.on()) || left_out {
                Self::write_placeholders(new, ticket, entry.blocks);
                placeholders += entry.blocks;
            } else {
                self.write_again(old, new, ticket, &block);
                wide += (entry.blocks > 1) as u64;
            }
            ticket += entry.blocks;
        }
        if !self.ptr.still_closed(closed) {
            return false;
        }
        // From what was there when the path was chosen: a switcher that takes over counts no WQE twice.
        self.multi_block().set_posted(to, self.multi_block().map(to).lag() as u64 + wide);
        count(self.ptr.tally().placeholders(), placeholders);
        count(self.ptr.tally().replayed(), window.end - window.start - placeholders);
        true
    }

    /// An executed write, signal or atomic becomes a zero-length write for each of its tickets.
    fn write_placeholders(new: &SendQueue<'s, P>, ticket: u64, blocks: u64) {
        let mut number = 0;
        while number < blocks {
            let physical = (ticket + number).wrapping_sub(new.base);
            new.write(physical, &wqe_write::placeholder(new.place_at(physical)));
            number += 1;
        }
    }

    /// All else is encoded again. A READ is always issued again: that the receiver executed it does not say
    /// that its data arrived.
    fn write_again(self, old: &SendQueue<'s, P>, new: &SendQueue<'s, P>, ticket: u64, block: &Wqebb) {
        let (state, peer) = (self.ptr.state, self.ptr.peer());
        let physical = ticket.wrapping_sub(new.base);
        let entry = journal::read(block);
        let remote = entry.remote - state.peer_heap(peer);
        let keys = if Mutant::KeysOfTheOldRail.on() { old } else { new };
        let rkey = match entry.is_data() {
            true => state.data_rkey(peer, keys.remote_rail, remote),
            false => state.rkey(peer, keys.remote_rail, remote),
        };
        let lkey = entry.local.map(|local| self.local_key(keys.local_rail, local));
        new.write_block(physical, &journal::relocate(block, new.place_at(physical), rkey, lkey));
        if entry.blocks > 1 {
            let second = OldRing::block(old, ticket + 1);
            let lkey = self.local_key(keys.local_rail, journal::second_local(&second));
            new.write_block(physical.wrapping_add(1), &journal::relocate_second(&second, lkey));
        }
    }

    /// The key of local memory: of the heap and what lies behind it, or of the scratch that unwanted answers go to.
    fn local_key(self, rail: u32, local: u64) -> u32 {
        let state = self.ptr.state;
        let offset = local.wrapping_sub(root!(state, heap_base));
        if offset < state.heap_end() { state.lkey(rail, offset) } else { state.scratch_lkey(rail) }
    }
}
