//! Receive queues, and the requests that need one: SEND, and WRITE with immediate.
//!
//! A receive queue has no doorbell register: its counter is read from the doorbell record whenever a WQE is
//! needed. A WQE counts as consumed when it completes, so one in use when its queue pair fails is flushed with
//! the others.

use crate::complete::Completion;
use crate::cx::Cx;
use crate::memory::Span;
use crate::nic::SoftNic;
use crate::packet::{Part, Payload, Reth, aeth};
use crate::psn;
use crate::qp::{Arriving, Data, Piece, Qp, Sge};
use crate::requester::LOCAL_KEY;
use crate::responder::Asks;
use shunt_layout::mlx5::cqe::{Syndrome, opcode, vendor};
use shunt_layout::mlx5::doorbell::RECEIVE_COUNTER_OFFSET;
use shunt_layout::mlx5::wqe::{DataSegment, SEGMENT_BYTES, TERMINATE_SCATTER_LIST_KEY};

/// Why a receive WQE is not good enough: syndrome and vendor syndrome.
pub(crate) type Refused = (Syndrome, u8);
/// Where a message may land, and how much room there is.
pub(crate) type Scatter = (Data, u64);

pub(crate) const MALFORMED: Refused = (Syndrome::LOCAL_QP_OPERATION, vendor::MALFORMED);
const TOO_LONG: Refused = (Syndrome::LOCAL_LENGTH, vendor::MALFORMED);

/// Where the WQEs of a receive queue are.
#[derive(Debug)]
enum Wqes {
    /// Its own ring.
    Ring { ring: Span, log_depth: u32, stride: u64 },
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
    pub(crate) consumed: u64,
    /// The WQE of a pool that a message lands in.
    pub(crate) taken: Option<u16>,
    /// It told that it takes no more WQEs from its pool.
    left: bool,
    /// Where the message that is arriving lands, and how much room there is.
    list: Data,
    room: u64,
}

/// What a completed receive tells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// Opcode of the CQE.
    pub(crate) opcode: u8,
    pub(crate) imm: u32,
    pub(crate) bytes: u32,
    pub(crate) solicited: bool,
    /// Source QPN and GRH flag of a datagram.
    pub(crate) origin: u32,
    pub(crate) source_lid: u16,
}

impl ReceiveQueue {
    /// An empty queue: 2^`log_depth` WQEs of `stride` bytes in `ring`.
    pub(crate) fn new(cqn: u32, ring: Span, log_depth: u32, stride: u64) -> Self {
        Self::with(cqn, Wqes::Ring { ring, log_depth, stride })
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

    /// A failed pair takes nothing more from its pool, whose WQEs are not flushed: others wait for them. True once.
    pub(crate) fn takes_its_leave(&mut self) -> bool {
        self.pool().is_some() && !std::mem::replace(&mut self.left, true)
    }

    /// The message that begins lands there.
    pub(crate) fn lands_in(&mut self, (list, room): Scatter) {
        (self.list, self.room) = (list, room);
    }
}

/// The scatter list of a WQE that begins at `start`, and the bytes it holds.
pub(crate) fn scatter_list(wqe: Span, start: u64) -> Result<Scatter, Refused> {
    let (mut pieces, mut room) = (Vec::new(), 0);
    for offset in (start..wqe.bytes()).step_by(SEGMENT_BYTES) {
        let (low, high) = (wqe.load64(offset), wqe.load64(offset + 8));
        let segment = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
        match DataSegment::read(segment) {
            DataSegment::Pointer { lkey: TERMINATE_SCATTER_LIST_KEY, .. } => break,
            DataSegment::Inline { .. } => return Err(MALFORMED),
            DataSegment::Pointer { bytes, lkey, address } => {
                // Zero is 2^31, as the PRM has it; libmlx5 writes it for an empty piece of a shared queue. The key
                // is asked only for bytes that come.
                let bytes = if bytes == 0 { 1 << 31 } else { bytes };
                pieces.push(Sge { lkey, address, bytes });
                room += bytes as u64;
            }
        }
    }
    let list = match pieces[..] {
        [] => Data::None,
        [one] => Data::One(one),
        _ => Data::Many(pieces.into_iter().map(Piece::Pointer).collect()),
    };
    Ok((list, room))
}

impl Qp {
    /// WQEs of its own receive queue that are posted and not consumed.
    pub(crate) fn receives_waiting(&self) -> u64 {
        let Some(ReceiveQueue { wqes: Wqes::Ring { log_depth, .. }, consumed, .. }) = self.receive.as_deref()
        else {
            return 0;
        };
        let posted = u32::from_be(self.record.load32(RECEIVE_COUNTER_OFFSET as u64)) as u16;
        let waiting = posted.wrapping_sub(*consumed as u16) as u64;
        // More than the queue holds makes no sense: nothing is taken from it.
        if waiting > 1 << log_depth { 0 } else { waiting }
    }

    /// Consumes the WQE a message landed in, or the oldest, which was there when last looked at; says which it is.
    fn consume_receive(&mut self) -> Option<u16> {
        let queue = self.receive.as_mut()?;
        if queue.pool().is_some() {
            return queue.taken.take();
        }
        queue.consumed += 1;
        Some((queue.consumed - 1) as u16)
    }

    /// Consumes a WQE to flush it, and says which; `None` if there is none. What waits in a pool is others' too.
    pub(crate) fn next_receive(&mut self) -> Option<u16> {
        let queue = self.receive.as_mut()?;
        if queue.pool().is_some() {
            return queue.taken.take();
        }
        if self.receives_waiting() == 0 { None } else { self.consume_receive() }
    }
}

impl SoftNic {
    /// Reads the next receive WQE for a message to land in. False if there is none.
    pub(crate) fn open_receive(&mut self, qp: &mut Qp, now: u64) -> Result<bool, Refused> {
        let waiting = qp.receives_waiting();
        let Some(queue) = &mut qp.receive else { return Ok(false) };
        match queue.wqes {
            Wqes::Pool(rmpn) => self.take_shared(qp, rmpn, now),
            Wqes::Ring { .. } if waiting == 0 => Ok(false),
            Wqes::Ring { ring, log_depth, stride } => {
                let slot = queue.consumed & ((1 << log_depth) - 1);
                queue.lands_in(scatter_list(ring.part(slot * stride, stride), 0)?);
                Ok(true)
            }
        }
    }

    /// True if a receive WQE is there. One of a pool is taken, or another queue pair might be faster.
    fn receive_ready(&mut self, qp: &mut Qp, now: u64) -> Result<bool, Refused> {
        match qp.receive.as_ref().and_then(|queue| queue.pool()) {
            Some(rmpn) => self.take_shared(qp, rmpn, now),
            None => Ok(qp.receives_waiting() > 0),
        }
    }

    /// Puts bytes of an arriving message into the WQE that is open, at `offset`.
    pub(crate) fn land_received(
        &mut self,
        qp: &mut Qp,
        offset: u64,
        payload: Payload,
        cx: &mut Cx,
    ) -> Result<(), Refused> {
        let bytes = payload.bytes().len() as u64;
        let Some(queue) = &mut qp.receive else { return Err(MALFORMED) };
        if offset + bytes > queue.room {
            cx.pool.give(payload);
            return Err(TOO_LONG);
        }
        if bytes == 0 {
            return Ok(());
        }
        // The list is lent out and put back: placing needs the NIC and the queue pair both.
        let list = std::mem::replace(&mut queue.list, Data::None);
        let landed = self.scatter(qp, &list, offset as u32, payload, cx);
        if let Some(queue) = &mut qp.receive {
            queue.list = list;
        }
        if landed { Ok(()) } else { Err(LOCAL_KEY) }
    }

    /// Completes the oldest receive WQE.
    pub(crate) fn received(&mut self, qp: &mut Qp, what: Received, cx: &mut Cx) {
        if let Some(index) = qp.consume_receive() {
            self.complete(Completion::received(qp, index, what), cx);
        }
        let cqn = qp.receive.as_ref().map_or(0, |queue| queue.cqn);
        if self.failed_cqs > 0 && self.cq_mut(cqn).is_none_or(|cq| cq.failed) {
            self.enter_error(qp, cx.now);
        }
    }

    /// Completes the oldest receive WQE with an error.
    pub(crate) fn receive_failed(&mut self, qp: &mut Qp, (syndrome, vendor): Refused, cx: &mut Cx) {
        if let Some(index) = qp.consume_receive() {
            self.complete(Completion::bad_receive(qp, index, syndrome, vendor), cx);
        }
    }

    /// A packet of a SEND, in sequence.
    pub(crate) fn send(
        &mut self,
        qp: &mut Qp,
        asks: Asks,
        part: Part,
        imm: Option<u32>,
        payload: Payload,
        cx: &mut Cx,
    ) -> Result<(), u8> {
        let filled = match (part.starts(), qp.responder.arriving) {
            (true, Arriving::Nothing) => 0,
            (false, Arriving::Send(filled)) => filled,
            _ => return Err(aeth::NAK_INVALID_REQUEST),
        };
        if part.starts() {
            match self.open_receive(qp, cx.now) {
                Ok(true) => {}
                Ok(false) => return Err(aeth::rnr(qp.responder.min_rnr)),
                Err(error) => {
                    self.receive_failed(qp, error, cx);
                    return Err(aeth::NAK_REMOTE_OPERATION);
                }
            }
        }
        let bytes = payload.bytes().len() as u64;
        let sound = if part.ends() {
            bytes <= qp.mtu as u64 && (bytes > 0 || part.starts())
        } else {
            bytes == qp.mtu as u64
        };
        if !sound || filled + bytes > 1 << qp.log_max_message {
            return Err(aeth::NAK_INVALID_REQUEST);
        }
        if let Err(error) = self.land_received(qp, filled, payload, cx) {
            self.receive_failed(qp, error, cx);
            let too_long = error == TOO_LONG;
            return Err(if too_long { aeth::NAK_INVALID_REQUEST } else { aeth::NAK_REMOTE_OPERATION });
        }
        qp.responder.expected = psn::add(asks.at, 1);
        qp.responder.msn = psn::add(qp.responder.msn, part.ends() as u32);
        if asks.ack {
            self.owe_ack(qp, asks.at, aeth::ACK);
        }
        if !part.ends() {
            qp.responder.arriving = Arriving::Send(filled + bytes);
            return Ok(());
        }
        qp.responder.arriving = Arriving::Nothing;
        self.counters.messages += 1;
        let opcode = if imm.is_some() { opcode::RESP_SEND_IMM } else { opcode::RESP_SEND };
        self.received(qp, Received::reliable(opcode, imm, filled + bytes, asks), cx);
        Ok(())
    }

    /// The last packet of a WRITE with immediate, in sequence.
    #[allow(clippy::too_many_arguments)] // the fields of one packet
    pub(crate) fn write_imm(
        &mut self,
        qp: &mut Qp,
        asks: Asks,
        part: Part,
        reth: Reth,
        imm: u32,
        payload: Payload,
        cx: &mut Cx,
    ) -> Result<(), u8> {
        let bytes = match (part, qp.responder.arriving) {
            (Part::Only, Arriving::Nothing) => payload.bytes().len() as u64,
            (Part::Last, Arriving::Write(incoming)) => incoming.bytes as u64,
            _ => return Err(aeth::NAK_INVALID_REQUEST),
        };
        if qp.responder.allows_write {
            match self.receive_ready(qp, cx.now) {
                Ok(true) => {}
                Ok(false) => return Err(aeth::rnr(qp.responder.min_rnr)),
                Err(error) => {
                    self.receive_failed(qp, error, cx);
                    return Err(aeth::NAK_REMOTE_OPERATION);
                }
            }
        }
        self.write(qp, asks, part, reth, payload, cx)?;
        self.received(qp, Received::reliable(opcode::RESP_WRITE_IMM, Some(imm), bytes, asks), cx);
        Ok(())
    }
}

impl Received {
    fn reliable(opcode: u8, imm: Option<u32>, bytes: u64, asks: Asks) -> Self {
        let (imm, bytes) = (imm.unwrap_or(0), bytes as u32);
        Self { opcode, imm, bytes, solicited: asks.event, origin: 0, source_lid: 0 }
    }
}
