//! WQEs of two blocks: a masked compare-and-swap of 64 bits takes two tickets and gets one completion.
//!
//! So completions run behind blocks, by one for each. A path's [`CqMap`] says by how many; the row's `wide` counts how
//! many were ever posted. While it is zero, which is nearly always, nothing here runs.
//!
//! `done` and the map are two words, so a poller may leave between the two changes: the map then lags by one, which
//! reads as "pending", and whoever looks next tries one more and mends it. Nobody passes a second wide WQE before.
//! A switch relies on neither: it counts.

use crate::access::{Channel, PathView};
use crate::journal;
use crate::platform::Platform;
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::{Tail, opcode};
use shunt_layout::state::{CqMap, Word};

/// Operations one look goes over at most.
const SCAN_MAX: u32 = 64;

/// What became of the first unfinished operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Done,
    Pending,
    Failed,
}

impl<P: Platform> Channel<'_, P> {
    #[inline(always)]
    fn wide_word(self, slot: u32) -> *mut u64 {
        // SAFETY: a field of a valid row; no reference is made.
        unsafe { addr_of_mut!((*self.path(slot)).wide) }
    }

    /// Wide WQEs ever posted on a path.
    #[inline(always)]
    pub(crate) fn wide_posted(self, slot: u32) -> u64 {
        // SAFETY: a field of a valid row.
        unsafe { self.platform().load(self.wide_word(slot)) }
    }

    /// Counts one, before it is published: nobody finds its completion uncounted.
    #[inline(always)]
    pub(crate) fn note_wide(self, slot: u32) {
        // SAFETY: a field of a valid row.
        unsafe { self.platform().fetch_add(self.wide_word(slot), 1) };
    }

    /// Sets the count, for a switch that enters the path.
    pub(crate) fn set_wide(self, slot: u32, count: u64) {
        // SAFETY: a field of a row that only this switch may use.
        unsafe { self.platform().store(self.wide_word(slot), count) };
    }

    /// How completions of a path map to tickets.
    #[inline(always)]
    pub(crate) fn cq_map(self, slot: u32) -> CqMap {
        // SAFETY: a field of a valid row.
        CqMap(unsafe { self.platform().load(addr_of_mut!((*self.path(slot)).cq_map)) })
    }

    /// Sets it, for a switch that enters the path.
    pub(crate) fn set_cq_map(self, slot: u32, map: CqMap) {
        // SAFETY: as in `set_wide`.
        unsafe { self.platform().store(addr_of_mut!((*self.path(slot)).cq_map), map.0) };
    }

    /// Raises the lag by one from what was read; somebody else may have.
    fn raise_lag(self, slot: u32, from: CqMap) {
        let word = self.path(slot);
        // SAFETY: a field of a valid row.
        unsafe {
            let word = addr_of_mut!((*word).cq_map);
            self.platform().compare_swap(word, from.0, from.behind_one_more().0);
        }
    }

    /// One look, on a path with wide WQEs: advances `done` operation by operation. True if the first unfinished one
    /// has an error completion.
    #[inline(never)]
    pub(crate) fn look_wide(self) -> bool {
        let mut seen = 0;
        while seen < SCAN_MAX {
            let done = self.load_done();
            if done.flag() || done.index() >= self.load_ready().index() {
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
        let (slot, p) = (done.slot(), self.platform());
        let (path, mut cq) = (self.view(slot), self.completions(slot));
        let physical = done.index().wrapping_sub(path.base);
        // SAFETY: published and not done, so the block is whole and stays; if `done` has moved on since it was read,
        // the swap below fails.
        let block = unsafe { p.load_wqe(self.block(&path, physical)) };
        let second = !journal::starts_at(&block, physical, path.qpn_shifted);
        if !second {
            let mut tail = self.tail_at(&cq, cq.map, physical as u32);
            if tail.is_none() {
                tail = self.tail_at(&cq, cq.map.behind_one_more(), physical as u32);
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
        // SAFETY: a channel word.
        if unsafe { p.compare_swap(self.done_word(), done.0, next.0) } == done.0 && (second || blocks > 1) {
            self.raise_lag(slot, cq.map);
        }
        First::Done
    }

    /// The completion of a physical index under a map.
    #[inline(always)]
    fn tail_at(self, cq: &crate::access::CqView, map: CqMap, physical: u32) -> Option<Tail> {
        self.tail_of(cq, physical, map.lag())
    }

    /// Blocks in `[from, end)` that are the second of a WQE. The ring holds all of it.
    pub(crate) fn seconds_between(self, ring: &PathView, from: u64, end: u64) -> u64 {
        let (mut ticket, mut count) = (from, 0);
        while ticket < end {
            // SAFETY: the caller's journal, kept until its switch is over.
            let block = unsafe { self.platform().load_wqe(self.block(ring, ticket.wrapping_sub(ring.base))) };
            let blocks = journal::shape(&block).blocks;
            count += (blocks > 1) as u64;
            ticket += blocks;
        }
        count
    }
}
