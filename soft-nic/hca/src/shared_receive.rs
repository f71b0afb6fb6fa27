//! Shared receive queues, which firmware calls receive memory pools: WQEs that several queue pairs take from.
//!
//! The WQEs are linked: each names the one behind it, so that software can give them back in any order. A WQE is
//! taken when a message begins to land in it, and is its queue pair's until it completes.

use crate::memory::Span;
use crate::scatter_list::{self, MALFORMED, Refused, Scatter};
use shunt_layout::mlx5::doorbell::RECEIVE_COUNTER_OFFSET;
use shunt_layout::mlx5::prm::rmp::{NEXT_SEGMENT_BYTES, NEXT_WQE_OFFSET, rmpc};

/// First number of a receive memory pool handed out.
pub(crate) const FIRST_RMPN: u32 = 0x800;

/// One pool.
#[derive(Debug)]
pub(crate) struct SharedReceive {
    pub(crate) pd: u32,
    ring: Span,
    log_depth: u32,
    stride: u64,
    record: Span,
    /// WQEs taken; it never wraps.
    taken: u64,
    /// The next one to take.
    head: u16,
    /// Fewer than this raise one event; 0 is none.
    pub(crate) limit: u32,
    /// Queue pairs that receive here.
    pub(crate) users: u32,
    pub(crate) umems: [u32; 2],
    /// The context as created, for QUERY_RMP.
    pub(crate) context: [u8; rmpc::BYTES],
}

impl SharedReceive {
    pub(crate) fn new(
        pd: u32,
        ring: Span,
        log_depth: u32,
        stride: u64,
        record: Span,
        umems: [u32; 2],
        context: [u8; rmpc::BYTES],
    ) -> Self {
        let limit = rmpc::LWM.get(&context);
        Self { pd, ring, log_depth, stride, record, taken: 0, head: 0, limit, users: 0, umems, context }
    }

    /// WQEs that are posted and not taken.
    pub(crate) fn waiting(&self) -> u64 {
        let posted = u32::from_be(self.record.load32(RECEIVE_COUNTER_OFFSET as u64)) as u16;
        let waiting = posted.wrapping_sub(self.taken as u16) as u64;
        // More than there are makes no sense: nothing is taken.
        if waiting > 1 << self.log_depth { 0 } else { waiting }
    }

    /// Takes the next WQE, which was there when last looked at: its index, and where its message may land.
    pub(crate) fn take(&mut self) -> (u16, Result<Scatter, Refused>) {
        let index = self.head;
        let wqe = self.ring.part(index as u64 * self.stride, self.stride);
        self.taken += 1;
        let next = u16::from_be((wqe.load32(0) >> (8 * NEXT_WQE_OFFSET)) as u16);
        if next as u64 >= 1 << self.log_depth {
            return (index, Err(MALFORMED)); // The list ends here for good: what is behind it is not known.
        }
        self.head = next;
        (index, scatter_list::read(wqe, NEXT_SEGMENT_BYTES))
    }

    /// True once when fewer WQEs wait than the limit.
    pub(crate) fn limit_reached(&mut self) -> bool {
        let reached = self.waiting() < self.limit as u64;
        if reached {
            self.limit = 0;
        }
        reached
    }
}
