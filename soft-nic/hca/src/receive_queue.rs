//! The receive queue of a queue pair: its own, or its part in a pool that others take from, too.
//!
//! A receive queue has no doorbell register: its counter is read from the doorbell record whenever a WQE is
//! needed. A WQE counts as consumed when it completes, so one in use when its queue pair fails is flushed with
//! the others.

use crate::completion_queue::{Completion, Received};
use crate::dma::{Data, LOCAL_KEY};
use crate::endpoint::Endpoint;
use crate::event;
use crate::memory::Span;
use crate::scatter_list::{self, Refused, Scatter};
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_layout::mlx5::doorbell::RECEIVE_COUNTER_OFFSET;
use shunt_layout::mlx5::eqe::event as events;
use shunt_soft_fault::FaultKind;
use shunt_soft_wire::packet::Payload;

/// A message is longer than the WQE has room for.
pub(crate) const TOO_LONG: Refused = (Syndrome::LOCAL_LENGTH, vendor::MALFORMED);

/// Where the WQEs of a receive queue are.
#[derive(Debug)]
enum Wqes {
    /// Its own ring.
    Ring { ring: Span, record: Span, log_depth: u32, stride: u64 },
    /// A pool that others take from, too.
    Pool(u32),
}

/// A receive queue of a queue pair.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    /// Number of its CQ.
    pub(crate) cqn: u32,
    wqes: Wqes,
    /// WQEs completed; it never wraps.
    consumed: u64,
    /// The WQE of a pool that a message lands in.
    taken: Option<u16>,
    /// It told that it takes no more WQEs from its pool.
    left: bool,
    /// Where the message that is arriving lands, and how much room there is.
    list: Data,
    room: u64,
}

impl ReceiveQueue {
    /// An empty queue: 2^`log_depth` WQEs of `stride` bytes in `ring`.
    pub(crate) fn new(cqn: u32, ring: Span, record: Span, log_depth: u32, stride: u64) -> Self {
        Self::with(cqn, Wqes::Ring { ring, record, log_depth, stride })
    }

    /// A queue that takes its WQEs from a pool.
    pub(crate) fn shared(cqn: u32, rmpn: u32) -> Self {
        Self::with(cqn, Wqes::Pool(rmpn))
    }

    fn with(cqn: u32, wqes: Wqes) -> Self {
        Self { cqn, wqes, consumed: 0, taken: None, left: false, list: Data::None, room: 0 }
    }

    /// The pool it takes from, if it has no WQEs of its own.
    pub(crate) fn pool(&self) -> Option<u32> {
        match self.wqes {
            Wqes::Ring { .. } => None,
            Wqes::Pool(rmpn) => Some(rmpn),
        }
    }

    /// As after creation.
    pub(crate) fn reset(&mut self) {
        (self.consumed, self.taken, self.left) = (0, None, false);
        (self.list, self.room) = (Data::None, 0);
    }

    /// WQEs completed.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// WQEs of its own that are posted and not consumed.
    pub(crate) fn waiting(&self) -> u64 {
        let Wqes::Ring { record, log_depth, .. } = &self.wqes else { return 0 };
        let posted = u32::from_be(record.load32(RECEIVE_COUNTER_OFFSET as u64)) as u16;
        let waiting = posted.wrapping_sub(self.consumed as u16) as u64;
        // More than the queue holds makes no sense: nothing is taken from it.
        if waiting > 1 << log_depth { 0 } else { waiting }
    }

    /// Reads the next WQE for a message to land in. False if there is none.
    pub(crate) fn open(&mut self, units: &mut Units, now: u64) -> Result<bool, Refused> {
        match self.wqes {
            Wqes::Pool(rmpn) => self.take_shared(rmpn, units, now),
            Wqes::Ring { .. } if self.waiting() == 0 => Ok(false),
            Wqes::Ring { ring, log_depth, stride, .. } => {
                let slot = self.consumed & ((1 << log_depth) - 1);
                self.lands_in(scatter_list::read(ring.part(slot * stride, stride), 0)?);
                Ok(true)
            }
        }
    }

    /// True if a WQE is there for a message that lands elsewhere. One of a pool is taken, or another queue pair might
    /// be faster.
    pub(crate) fn is_ready(&mut self, units: &mut Units, now: u64) -> Result<bool, Refused> {
        match self.wqes {
            Wqes::Pool(rmpn) => self.take_shared(rmpn, units, now),
            Wqes::Ring { .. } => Ok(self.waiting() > 0),
        }
    }

    fn take_shared(&mut self, rmpn: u32, units: &mut Units, now: u64) -> Result<bool, Refused> {
        let Some((index, list)) = units.take_shared(rmpn, now) else { return Ok(false) };
        self.taken = Some(index);
        self.lands_in(list?);
        Ok(true)
    }

    /// The message that begins lands there.
    fn lands_in(&mut self, (list, room): Scatter) {
        (self.list, self.room) = (list, room);
    }

    /// Puts bytes of an arriving message into the WQE that is open, at `offset`.
    pub(crate) fn land(
        &mut self,
        offset: u64,
        payload: Payload,
        qp: &Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) -> Result<(), Refused> {
        let bytes = payload.bytes().len() as u64;
        if offset + bytes > self.room {
            cx.pool.give(payload);
            return Err(TOO_LONG);
        }
        if bytes == 0 || units.scatter(qp.owner(), &self.list, offset as u32, payload, cx) {
            Ok(())
        } else {
            Err(LOCAL_KEY)
        }
    }

    /// Consumes the WQE a message landed in, or the oldest, which was there when last looked at; says which it is.
    fn consume(&mut self) -> Option<u16> {
        if self.pool().is_some() {
            return self.taken.take();
        }
        self.consumed += 1;
        Some((self.consumed - 1) as u16)
    }

    /// Completes the oldest WQE. False if the queue pair can go on no more.
    pub(crate) fn complete(&mut self, what: Received, qp: &Endpoint, units: &mut Units, now: u64) -> bool {
        if let Some(index) = self.consume() {
            units.complete(Completion::received(qp.origin(self.cqn), index, what), now);
        }
        !units.cqs.is_dead(self.cqn)
    }

    /// Completes the oldest WQE with an error.
    pub(crate) fn fail(&mut self, (syndrome, vendor): Refused, qp: &Endpoint, units: &mut Units, now: u64) {
        if let Some(index) = self.consume() {
            units.complete(Completion::bad_receive(qp.origin(self.cqn), index, syndrome, vendor), now);
        }
    }

    /// Completes all posted WQEs as flushed. What waits in a pool is others' too: a failed pair takes nothing more from
    /// it, and says so once.
    pub(crate) fn flush(&mut self, qp: &Endpoint, units: &mut Units, now: u64) {
        while let Some(index) = self.next_to_flush() {
            let missing = |kind: &FaultKind| matches!(kind, FaultKind::MissingFlush { .. });
            if !(units.faults.any() && units.faults.strikes(missing)) {
                let (syndrome, vendor) = (Syndrome::FLUSHED, vendor::RECEIVER_FLUSH);
                units.complete(Completion::bad_receive(qp.origin(self.cqn), index, syndrome, vendor), now);
            }
        }
        if self.pool().is_some() && !std::mem::replace(&mut self.left, true) {
            units.raise(now, event::object(events::LAST_WQE, qp.qpn));
        }
    }

    fn next_to_flush(&mut self) -> Option<u16> {
        if self.pool().is_none() && self.waiting() == 0 { None } else { self.consume() }
    }
}
