//! The responder half of a queue pair: check, execute, count, answer.
//!
//! The checks come in the order of IBTA: state, sequence, opcode, permission, length, key. A request is
//! executed and counted at once; when its effect becomes visible is the business of
//! [`placement`](crate::placement).

use crate::answers::{Answers, Owed, Remembered, Sent};
use crate::arriving::{Arriving, Incoming};
use crate::atomic::AtomicWrite;
use crate::completion_queue::Received;
use crate::config::AtomicCount;
use crate::endpoint::Endpoint;
use crate::event;
use crate::memory::Access;
use crate::placement::{Deferred, How};
use crate::receive_queue::{ReceiveQueue, TOO_LONG};
use crate::scatter_list::Refused;
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::mlx5::eqe::event as events;
use shunt_soft_fault::FaultKind;
use shunt_soft_wire::packet::{AtomicRequest, Body, Part, Payload, Reth, aeth};
use shunt_soft_wire::psn;

/// A request packet's number, and what it asks for besides its operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    pub(crate) at: u32,
    pub(crate) ack: bool,
    /// A solicited event.
    pub(crate) event: bool,
}

/// What requests may do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

/// A WRITE's packet: where it stands in its message, the header that counts in the first, the data.
type WritePart = (Part, Reth, Payload);

/// Responder half of a queue pair.
pub(crate) struct Responder {
    /// Its own receive queue, if it has one.
    pub(crate) receive: Option<Box<ReceiveQueue>>,
    /// PSN expected next.
    expected: u32,
    /// Messages executed.
    msn: u32,
    arriving: Arriving,
    /// A NAK was sent for `expected`: what comes behind it is dropped in silence.
    nak_sent: bool,
    /// A fatal NAK is owed: nothing more is accepted, and ERR follows once it is sent.
    refusing: bool,
    pub(crate) answers: Answers,
    /// Timer code of its RNR NAKs.
    min_rnr: u8,
    rights: Rights,
}

impl Responder {
    /// Its tickets go on from `next_ticket`.
    pub(crate) fn new(receive: Option<Box<ReceiveQueue>>, next_ticket: u64) -> Self {
        Self {
            receive,
            expected: 0,
            msn: 0,
            arriving: Arriving::Nothing,
            nak_sent: false,
            refusing: false,
            answers: Answers::new(next_ticket),
            min_rnr: 0,
            rights: Rights::default(),
        }
    }

    /// As after creation; no ticket is used twice.
    pub(crate) fn reset(&mut self) {
        let mut receive = self.receive.take();
        if let Some(queue) = &mut receive {
            queue.reset();
        }
        *self = Self::new(receive, self.answers.next_ticket());
    }

    /// Forgets what it owes: the queue pair left the states in which a responder answers.
    pub(crate) fn silence(&mut self) {
        self.answers.clear();
        self.arriving = Arriving::Nothing;
    }

    /// From now on it expects PSN `expected`, and answers so many READs and atomics at a time.
    pub(crate) fn start(&mut self, expected: u32, most_answers: usize) {
        self.expected = expected;
        self.answers.allow(most_answers);
    }

    /// What requests may do, and the timer code of "not ready".
    pub(crate) fn allow(&mut self, rights: Rights, min_rnr: u8) {
        (self.rights, self.min_rnr) = (rights, min_rnr);
    }

    /// PSN expected next, and messages executed.
    pub(crate) fn counters(&self) -> (u32, u32) {
        (self.expected, self.msn)
    }

    /// Has it claim that so many messages were executed.
    pub(crate) fn set_msn(&mut self, msn: u32) {
        self.msn = msn & psn::MASK;
    }

    /// True once a fatal NAK is owed.
    #[inline]
    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing
    }

    /// True if it has something to answer, now or later.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        !self.answers.is_empty()
    }

    /// A request: in sequence, ahead of it, or a duplicate.
    pub(crate) fn requested(
        &mut self,
        asks: Asks,
        body: Body,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) {
        let at = asks.at;
        match psn::distance(at, self.expected) {
            0 => {}
            1.. => {
                self.place_ahead(&body, qp, units, cx);
                body.recycle(&mut cx.pool);
                if !self.nak_sent {
                    self.nak_sent = true;
                    self.owe_ack(self.expected, aeth::NAK_SEQUENCE);
                }
                return;
            }
            _ => return self.duplicate(at, body, qp, units, cx),
        }
        self.nak_sent = false;
        if units.faults.any() && units.faults.strikes(|kind| matches!(kind, FaultKind::Rnr { .. })) {
            body.recycle(&mut cx.pool);
            return self.refuse(at, aeth::rnr(self.min_rnr), qp, units, cx.now);
        }
        let refusal = match body {
            Body::Write { part, reth, payload } => self.write(asks, (part, reth, payload), qp, units, cx),
            Body::WriteImm { part, reth, imm, payload } => {
                self.write_imm(asks, imm, (part, reth, payload), qp, units, cx)
            }
            Body::Send { part, imm, payload } => self.send(asks, (part, imm, payload), qp, units, cx),
            Body::ReadRequest(reth) => self.read(at, reth, qp, units, cx),
            Body::Atomic(request) => self.atomic(at, request, qp, units, cx),
            body => {
                body.recycle(&mut cx.pool);
                Err(aeth::NAK_INVALID_REQUEST)
            }
        };
        if let Err(syndrome) = refusal {
            self.refuse(at, syndrome, qp, units, cx.now);
        }
    }

    /// Owes a NAK. All but "not ready" are fatal.
    fn refuse(&mut self, at: u32, syndrome: u8, qp: &Endpoint, units: &mut Units, now: u64) {
        self.owe_ack(at, syndrome);
        if aeth::rnr_ns(syndrome).is_some() {
            self.nak_sent = true;
            return;
        }
        self.refusing = true;
        let kind = match syndrome {
            aeth::NAK_REMOTE_ACCESS => events::WQ_ACCESS,
            aeth::NAK_REMOTE_OPERATION => events::WQ_CATASTROPHIC,
            _ => events::WQ_INVALID_REQUEST,
        };
        units.raise(now, event::object(kind, qp.qpn));
    }

    /// Owes an acknowledgement.
    #[inline(always)]
    fn owe_ack(&mut self, at: u32, syndrome: u8) {
        self.answers.owe_ack(at, self.msn, syndrome);
    }

    #[inline(always)] // twice in the code, so that the common one pays no call
    fn write(
        &mut self,
        asks: Asks,
        (part, reth, payload): WritePart,
        qp: &Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) -> Result<(), u8> {
        let bytes = payload.bytes().len() as u64;
        let mut whole = None;
        let incoming = match (part.starts(), self.arriving) {
            (true, Arriving::Nothing) => {
                if !self.rights.write {
                    return Err(aeth::NAK_INVALID_REQUEST);
                }
                let bytes = reth.bytes as u64;
                whole =
                    Some(units.remote(qp.owner(), reth.rkey, reth.address, bytes, Access::RemoteWrite)?);
                Incoming::of(reth)
            }
            (false, Arriving::Write(incoming)) => incoming,
            _ => return Err(aeth::NAK_INVALID_REQUEST),
        };
        if !incoming.fits(part, bytes, qp.mtu) {
            return Err(aeth::NAK_INVALID_REQUEST);
        }
        // Again for each packet: the key may be gone by now. One that is the whole message was looked at just above.
        let target = match whole.filter(|_| part.ends()) {
            Some(target) => target,
            None => units.remote(qp.owner(), incoming.rkey, incoming.address, bytes, Access::RemoteWrite)?,
        };
        self.expected = psn::add(asks.at, 1);
        if part.ends() {
            self.arriving = Arriving::Nothing;
            self.msn = psn::add(self.msn, 1);
            units.counters.messages += 1;
        } else {
            self.arriving = Arriving::Write(incoming.after(bytes));
        }
        if let Some((span, relaxed)) = target {
            let how = How { relaxed, unordered: qp.is_unordered(&units.config) };
            let (placement, faults) = (&mut units.placement, &mut units.faults);
            if faults.any() {
                placement.place_sabotaged(qp.qpn, part, span, payload, how, faults, cx);
            } else {
                placement.place(span, payload, how, faults, cx);
            }
        }
        if asks.ack {
            self.owe_ack(asks.at, aeth::ACK);
        }
        Ok(())
    }

    /// Where order is off, a write that came before one that was lost lands all the same. It is not executed: that is
    /// for when it is sent again.
    fn place_ahead(&self, body: &Body, qp: &Endpoint, units: &mut Units, cx: &mut StepContext) {
        let Body::Write { part, reth, payload } = body else { return };
        if !part.starts() || !self.rights.write || !qp.is_unordered(&units.config) {
            return;
        }
        let bytes = payload.bytes().len() as u64;
        if let Ok(Some((span, relaxed))) =
            units.remote(qp.owner(), reth.rkey, reth.address, bytes, Access::RemoteWrite)
        {
            units.place(span, payload.clone(), How { relaxed, unordered: true }, cx);
        }
    }

    /// The last packet of a WRITE with immediate, in sequence.
    fn write_imm(
        &mut self,
        asks: Asks,
        imm: u32,
        write: WritePart,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) -> Result<(), u8> {
        let bytes = self.arriving.whole_write(write.0, write.2.bytes().len() as u64);
        let bytes = bytes.ok_or(aeth::NAK_INVALID_REQUEST)?;
        if self.rights.write {
            let found = self.receive.as_mut().map_or(Ok(false), |queue| queue.is_ready(units, cx.now));
            self.needs(found, qp, units, cx.now)?;
        }
        self.write(asks, write, qp, units, cx)?;
        self.received(
            Received::reliable(opcode::RESP_WRITE_IMM, Some(imm), bytes, asks.event),
            qp,
            units,
            cx,
        );
        Ok(())
    }

    /// A packet of a SEND, in sequence.
    fn send(
        &mut self,
        asks: Asks,
        (part, imm, payload): (Part, Option<u32>, Payload),
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) -> Result<(), u8> {
        let filled = self.arriving.before_send(part).ok_or(aeth::NAK_INVALID_REQUEST)?;
        if part.starts() {
            let found = self.receive.as_mut().map_or(Ok(false), |queue| queue.open(units, cx.now));
            self.needs(found, qp, units, cx.now)?;
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
        let Some(queue) = &mut self.receive else { return Err(aeth::NAK_REMOTE_OPERATION) };
        if let Err(error) = queue.land(filled, payload, qp, units, cx) {
            queue.fail(error, qp, units, cx.now);
            let too_long = error == TOO_LONG;
            return Err(if too_long { aeth::NAK_INVALID_REQUEST } else { aeth::NAK_REMOTE_OPERATION });
        }
        self.expected = psn::add(asks.at, 1);
        self.msn = psn::add(self.msn, part.ends() as u32);
        if asks.ack {
            self.owe_ack(asks.at, aeth::ACK);
        }
        if !part.ends() {
            self.arriving = Arriving::Send(filled + bytes);
            return Ok(());
        }
        self.arriving = Arriving::Nothing;
        units.counters.messages += 1;
        let opcode = if imm.is_some() { opcode::RESP_SEND_IMM } else { opcode::RESP_SEND };
        self.received(Received::reliable(opcode, imm, filled + bytes, asks.event), qp, units, cx);
        Ok(())
    }

    /// A request needs a receive WQE: `found` says whether there was one.
    fn needs(
        &mut self,
        found: Result<bool, Refused>,
        qp: &Endpoint,
        units: &mut Units,
        now: u64,
    ) -> Result<(), u8> {
        match found {
            Ok(true) => Ok(()),
            Ok(false) => Err(aeth::rnr(self.min_rnr)),
            Err(error) => {
                if let Some(queue) = &mut self.receive {
                    queue.fail(error, qp, units, now);
                }
                Err(aeth::NAK_REMOTE_OPERATION)
            }
        }
    }

    /// Completes the oldest receive WQE.
    pub(crate) fn received(
        &mut self,
        what: Received,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &StepContext,
    ) {
        let alive = self.receive.as_mut().is_none_or(|queue| queue.complete(what, qp, units, cx.now));
        if !alive {
            qp.enter_error(units, cx.now);
            self.silence();
        }
    }

    fn read(
        &mut self,
        at: u32,
        reth: Reth,
        qp: &Endpoint,
        units: &mut Units,
        cx: &StepContext,
    ) -> Result<(), u8> {
        let packets = reth.bytes.div_ceil(qp.mtu).max(1);
        let too_long = reth.bytes as u64 > 1 << qp.log_max_message;
        if too_long || !self.rights.read || !self.arriving.is_nothing() || self.answers.is_full() {
            return Err(aeth::NAK_INVALID_REQUEST);
        }
        units.remote(qp.owner(), reth.rkey, reth.address, reth.bytes as u64, Access::RemoteRead)?;
        let (rkey, address, bytes) = (reth.rkey, reth.address, reth.bytes);
        self.expected = psn::add(at, packets);
        self.msn = psn::add(self.msn, 1);
        units.counters.messages += 1;
        self.answers.remember(Remembered::Read { psn: at, packets, rkey, address, bytes });
        self.owe_read(at, reth, false, qp, units, cx.now);
        Ok(())
    }

    /// Owes READ responses. The data is read once everything posted before has landed.
    fn owe_read(&mut self, at: u32, reth: Reth, again: bool, qp: &Endpoint, units: &mut Units, now: u64) {
        let ticket = self.answers.take_ticket();
        let passes = units.config.quirks.reads_pass_posted_writes;
        let ready = passes || units.defer(Deferred::Read { qpn: qp.qpn, ticket }, now);
        self.answers.owe(Owed::Read {
            psn: at,
            msn: self.msn,
            rkey: reth.rkey,
            address: reth.address,
            bytes: reth.bytes,
            sent: 0,
            ticket,
            ready,
            again,
        });
    }

    fn atomic(
        &mut self,
        at: u32,
        request: AtomicRequest,
        qp: &Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) -> Result<(), u8> {
        let bytes = request.bytes;
        let sound = matches!(bytes, 4 | 8) && request.address.is_multiple_of(bytes as u64);
        if !self.rights.atomic || !sound || !self.arriving.is_nothing() || self.answers.is_full() {
            return Err(aeth::NAK_INVALID_REQUEST);
        }
        let (owner, width) = (qp.owner(), bytes as u64);
        let target = units.remote(owner, request.rkey, request.address, width, Access::RemoteAtomic)?;
        let Some((span, relaxed)) = target else { return Err(aeth::NAK_INVALID_REQUEST) };
        if !span.address().is_multiple_of(width) {
            return Err(aeth::NAK_INVALID_REQUEST); // Registered at an odd offset.
        }
        let ticket = self.answers.take_ticket();
        self.expected = psn::add(at, 1);
        let quirks = &units.config.quirks;
        self.msn = psn::add(self.msn, (quirks.atomic_count != AtomicCount::Left) as u32);
        units.counters.messages += 1;
        // Under a key with relaxed ordering it passes the writes that wait.
        let passes = relaxed && quirks.atomic_gap_ns == 0;
        let deferred = Deferred::Atomic { qpn: qp.qpn, ticket, span, request };
        let now = passes || units.defer(deferred, cx.now);
        let original = now.then(|| {
            let write = AtomicWrite::begin(span, request, &mut units.faults);
            write.land(span, cx);
            write.original
        });
        self.answers.owe(Owed::Atomic { psn: at, msn: self.msn, ticket, original, again: false });
        self.answers.remember(Remembered::Atomic { psn: at, ticket, original });
        Ok(())
    }

    /// A request that was executed before: never executed again, except that a READ is read again.
    fn duplicate(&mut self, at: u32, body: Body, qp: &Endpoint, units: &mut Units, cx: &mut StepContext) {
        units.counters.duplicates += 1;
        match body {
            Body::ReadRequest(again) => {
                let bytes = again.bytes as u64;
                if self.answers.knows_read(at, again, qp.mtu)
                    && units.remote(qp.owner(), again.rkey, again.address, bytes, Access::RemoteRead).is_ok()
                    && !self.answers.is_owed(at)
                {
                    self.owe_read(at, again, true, qp, units, cx.now);
                }
            }
            Body::Atomic(_) => {
                let known = self.answers.known_atomic(at).filter(|_| !self.answers.is_owed(at));
                if let Some((ticket, original)) = known {
                    let again = units.config.quirks.atomic_count == AtomicCount::Again;
                    self.msn = psn::add(self.msn, again as u32);
                    self.answers.owe(Owed::Atomic { psn: at, msn: self.msn, ticket, original, again: true });
                }
            }
            body => {
                body.recycle(&mut cx.pool);
                self.owe_ack(psn::sub(self.expected, 1), aeth::ACK);
            }
        }
    }

    /// Sends one owed packet; false if there is none or it must wait.
    #[inline]
    pub(crate) fn send_answer(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) -> bool {
        if self.answers.is_empty() {
            return false;
        }
        match self.answers.send_next(qp, units, cx) {
            Sent::Nothing => false,
            Sent::Packet => true,
            Sent::FatalNak => {
                self.refusing = true;
                qp.enter_error(units, cx.now);
                self.silence();
                true
            }
        }
    }
}
