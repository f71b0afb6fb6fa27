//! Shared receive queues, which firmware calls receive memory pools: WQEs that several queue pairs take from.
//!
//! The WQEs are linked: each names the one behind it, so that software can give them back in any order. A WQE is
//! taken when a message begins to land in it, and is its queue pair's until it completes.

use crate::event;
use crate::memory::Span;
use crate::nic::{FIRST_RMPN, SoftNic};
use crate::qp::Qp;
use crate::receive::{MALFORMED, Refused, Scatter, scatter_list};
use shunt_layout::mlx5::doorbell::RECEIVE_COUNTER_OFFSET;
use shunt_layout::mlx5::eqe::event as events;
use shunt_layout::mlx5::prm::rmp::{NEXT_SEGMENT_BYTES, NEXT_WQE_OFFSET, rmpc};

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
    fn take(&mut self) -> (u16, Result<Scatter, Refused>) {
        let index = self.head;
        let wqe = self.ring.part(index as u64 * self.stride, self.stride);
        self.taken += 1;
        let next = u16::from_be((wqe.load32(0) >> (8 * NEXT_WQE_OFFSET)) as u16);
        if next as u64 >= 1 << self.log_depth {
            return (index, Err(MALFORMED)); // The list ends here for good: what is behind it is not known.
        }
        self.head = next;
        (index, scatter_list(wqe, NEXT_SEGMENT_BYTES))
    }
}

impl SoftNic {
    /// A pool.
    pub(crate) fn pool_mut(&mut self, rmpn: u32) -> Option<&mut SharedReceive> {
        self.pools.get_mut(rmpn.wrapping_sub(FIRST_RMPN) as usize)?.as_mut()
    }

    /// Takes a WQE of the pool a queue pair receives from. False if there is none.
    pub(crate) fn take_shared(&mut self, qp: &mut Qp, rmpn: u32, now: u64) -> Result<bool, Refused> {
        let Some(pool) = self.pool_mut(rmpn) else { return Ok(false) };
        if pool.waiting() == 0 {
            return Ok(false);
        }
        let (index, list) = pool.take();
        self.limit_reached(rmpn, now);
        if let Some(queue) = &mut qp.receive {
            queue.taken = Some(index);
            queue.lands_in(list?);
        }
        Ok(true)
    }

    /// Raises the event of a pool that holds fewer WQEs than its limit, once.
    pub(crate) fn limit_reached(&mut self, rmpn: u32, now: u64) {
        let Some(pool) = self.pool_mut(rmpn) else { return };
        if pool.waiting() < pool.limit as u64 {
            pool.limit = 0;
            self.raise(now, event::object(events::RQ_LIMIT, rmpn));
        }
    }
}
