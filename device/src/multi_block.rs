//! WQEs of two blocks: a masked compare-and-swap of 64 bits takes two tickets and gets one completion.
//!
//! So completions run behind blocks, by one for each. A path's [`CqMap`] says by how many; the row's `wide` counts how
//! many were ever posted. While it is zero, which is nearly always, nothing here runs.
//!
//! `done` and the map are two words, so a poller may leave between the two changes: the map then lags by one, which
//! reads as "pending", and who looks next tries one more and mends it. Nobody passes a second wide WQE before.
//! A switch relies on neither: it counts.

use crate::completion_queue::CompletionQueue;
use crate::journal;
use crate::part::part;
use crate::platform::Platform;
use crate::send_queue::SendQueue;
use crate::shared::fields;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::state::{CqMap, HotPath, Word};

fields!(HotPath { cq_map: u64 });

/// Operations one look goes over at most.
const SCAN_MAX: u32 = 64;

/// What became of the first unfinished operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Done,
    Pending,
    Failed,
}

part! {
    /// How many WQEs of two blocks each path of a channel has carried, and the polling of a path that has any.
    pub(crate) MultiBlock {}
}

impl<P: Platform> MultiBlock<'_, P> {
    /// Wide WQEs ever posted on a path.
    #[inline(always)]
    pub(crate) fn posted(self, slot: u32) -> u64 {
        self.ptr.hot(slot).wide().load()
    }

    /// Counts one, before it is published: nobody finds its completion uncounted.
    #[inline(always)]
    pub(crate) fn count_one(self, slot: u32) {
        self.ptr.hot(slot).wide().fetch_add(1);
    }

    /// Sets the count, for a switch that enters the path.
    pub(crate) fn set_posted(self, slot: u32, count: u64) {
        self.ptr.hot(slot).wide().store(count);
    }

    /// How completions of a path map to tickets.
    #[inline(always)]
    pub(crate) fn map(self, slot: u32) -> CqMap {
        CqMap(self.ptr.hot(slot).cq_map().load())
    }

    /// Sets it, for a switch that enters the path.
    pub(crate) fn set_map(self, slot: u32, map: CqMap) {
        self.ptr.hot(slot).cq_map().store(map.0);
    }

    /// Raises the lag by one from what was read; somebody else may have.
    fn raise_lag(self, slot: u32, from: CqMap) {
        self.ptr.hot(slot).cq_map().compare_swap(from.0, from.behind_one_more().0);
    }

    /// One look, on a path with wide WQEs: advances `done` operation by operation. True if the first unfinished one
    /// has an error completion.
    #[inline(never)]
    pub(crate) fn poll_slow(self) -> bool {
        let mut seen = 0;
        while seen < SCAN_MAX {
            let done = self.ptr.load_done();
            if done.flag() || done.index() >= self.ptr.load_ready().index() {
                return false;
            }
            match self.pass_one(done) {
                First::Done => seen += 1,
                First::Pending => return false,
                First::Failed => return true,
            }
        }
        false
    }

    fn pass_one(self, done: Word) -> First {
        let (slot, p) = (done.slot(), self.ptr.platform());
        let (queue, mut cq) = (SendQueue::of(self.ptr, slot), CompletionQueue::of(self.ptr, slot));
        let physical = done.index().wrapping_sub(queue.base);
        // Published and not done, so the block is whole and stays; if `done` has moved on since it was read, the swap
        // below fails.
        let block = queue.block(physical).load();
        let second = !journal::starts_at(&block, physical, queue.qpn_shifted);
        if !second {
            let mut tail = cq.tail_behind(physical as u32, cq.map.lag());
            if tail.is_none() {
                tail = cq.tail_behind(physical as u32, cq.map.behind_one_more().lag());
                if tail.is_some() {
                    self.raise_lag(slot, cq.map);
                    cq.map = cq.map.behind_one_more();
                }
            }
            match tail {
                Some(tail) if tail.opcode == opcode::REQ => p.cqe_before_data(),
                Some(_) => return First::Failed,
                None => return First::Pending,
            }
        }
        // A caller that asked after a ticket in the middle may have put `done` there: one more block, no completion.
        let blocks = if second { 1 } else { journal::shape(&block).blocks };
        let next = done.with_index(done.index() + blocks);
        if self.ptr.done_word().compare_swap(done.0, next.0) == done.0 && (second || blocks > 1) {
            self.raise_lag(slot, cq.map);
        }
        First::Done
    }

    /// Blocks in `[from, end)` that are the second of a WQE. The ring holds all of it: the caller's journal, kept until
    /// its switch is over.
    pub(crate) fn seconds_between(self, ring: &SendQueue<'_, P>, from: u64, end: u64) -> u64 {
        let (mut ticket, mut count) = (from, 0);
        while ticket < end {
            let blocks = journal::shape(&ring.block(ticket.wrapping_sub(ring.base)).load()).blocks;
            count += (blocks > 1) as u64;
            ticket += blocks;
        }
        count
    }
}
