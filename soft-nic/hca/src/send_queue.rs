//! A send queue: which of its blocks are announced, fetched and completed.

use crate::endpoint::Endpoint;
use crate::fetch::{self, SendRing, Work};
use crate::memory::Span;
use shunt_layout::mlx5::doorbell::SEND_COUNTER_OFFSET;
use shunt_layout::mlx5::wqe::Ctrl;

/// The send queue of one queue pair. Its counters never wrap.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: SendRing,
    record: Span,
    announced: u64,
    fetched: u64,
    completed: u64,
}

impl SendQueue {
    pub(crate) fn new(ring: SendRing, record: Span) -> Self {
        Self { ring, record, announced: 0, fetched: 0, completed: 0 }
    }

    /// As after creation.
    pub(crate) fn reset(&mut self) {
        (self.announced, self.fetched, self.completed) = (0, 0, 0);
    }

    /// Blocks announced and fetched.
    pub(crate) fn counters(&self) -> (u64, u64) {
        (self.announced, self.fetched)
    }

    /// True if there is something to fetch.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.fetched != self.announced
    }

    /// Takes a doorbell's index: never backwards, never beyond the ring. False if it makes no sense.
    pub(crate) fn announce(&mut self, next_index: u16) -> bool {
        let ahead = next_index.wrapping_sub(self.completed as u16) as u64;
        if ahead > self.ring.depth() {
            return false;
        }
        self.announced = self.announced.max(self.completed + ahead);
        true
    }

    /// Takes the index in the doorbell record.
    pub(crate) fn announce_recorded(&mut self) {
        self.announce(u32::from_be(self.record.load32(SEND_COUNTER_OFFSET as u64)) as u16);
    }

    /// The control segment of the next WQE, which was announced.
    pub(crate) fn peek(&self) -> Ctrl {
        self.ring.ctrl_at(self.fetched, self.announced).0
    }

    /// Reads the next WQE, which was announced. `atomics` are the operations that the device has.
    #[inline]
    pub(crate) fn fetch(&mut self, qp: &Endpoint, atomics: u32) -> Work {
        let work = fetch::fetch(&self.ring, qp, self.fetched, self.announced, atomics);
        self.fetched += work.blocks as u64;
        work
    }

    /// The blocks of a fetched WQE are free again.
    #[inline]
    pub(crate) fn free(&mut self, work: &Work) {
        self.completed += work.blocks as u64;
    }

    /// Skips the next announced WQE, unread: its index and opcode.
    pub(crate) fn skip(&mut self) -> Option<(u16, u8)> {
        if self.fetched >= self.announced {
            return None;
        }
        let at = self.fetched;
        let (ctrl, blocks) = self.ring.ctrl_at(at, self.announced);
        self.fetched += blocks;
        self.completed += blocks;
        Some((at as u16, ctrl.opcode))
    }
}
