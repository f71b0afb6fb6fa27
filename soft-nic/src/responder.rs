//! The responder half of a reliable connection: check, execute, count, answer.
//!
//! The checks come in the order of IBTA: state, sequence, opcode, permission, length, key. A request is
//! executed and counted at once; when its effect becomes visible is the business of
//! [`placement`](crate::placement).

use crate::atomic;
use crate::config::AtomicCount;
use crate::cx::Cx;
use crate::event;
use crate::fault::FaultKind;
use crate::memory::{Access, Span, Use};
use crate::nic::SoftNic;
use crate::packet::{AtomicRequest, Body, Packet, Part, Payload, Reth, aeth};
use crate::placement::{Deferred, How};
use crate::psn;
use crate::qp::{Arriving, Incoming, Owed, Qp, Remembered, Service};
use shunt_layout::mlx5::eqe::event as events;
use shunt_layout::mlx5::prm::qp::State;

/// A request packet's number, and what it asks for besides its operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks {
    pub(crate) at: u32,
    pub(crate) ack: bool,
    /// A solicited event.
    pub(crate) event: bool,
}

/// An atomic that has read its word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtomicWrite {
    /// The value before.
    pub(crate) original: u64,
    bytes: u32,
    /// What is written, one after the other: one word, but for sabotage.
    words: [Option<u64>; 2],
}

impl AtomicWrite {
    pub(crate) fn land(&self, span: Span, cx: &mut Cx) {
        for word in self.words.iter().flatten() {
            cx.land(span, &word.to_le_bytes()[..self.bytes as usize]);
        }
    }
}

impl SoftNic {
    /// A packet reached the NIC.
    pub(crate) fn receive(&mut self, packet: Packet, cx: &mut Cx) {
        self.counters.packets_rx += 1;
        self.counters.bytes_rx += packet.data_bytes();
        let Some(mut qp) = self.take_qp(packet.qpn) else {
            return self.drop_packet(packet, cx);
        };
        let awake = match qp.state {
            State::Rts => true,
            State::Rtr => !packet.is_response(),
            _ => false,
        };
        let wanted = packet.is_response() || !qp.responder.refusing;
        if awake && wanted && packet.source == qp.remote.address {
            self.dispatch(&mut qp, packet, cx);
        } else if awake && qp.service == Service::Datagram {
            self.datagram_arrived(&mut qp, packet, cx);
        } else {
            self.drop_packet(packet, cx);
        }
        self.settle(&mut qp, cx);
        self.put_qp(qp);
    }

    pub(crate) fn drop_packet(&mut self, packet: Packet, cx: &mut Cx) {
        self.counters.dropped += 1;
        packet.recycle(&mut cx.pool);
    }

    fn dispatch(&mut self, qp: &mut Qp, packet: Packet, cx: &mut Cx) {
        let at = packet.psn & psn::MASK;
        match packet.body {
            Body::Ack { syndrome, .. } => self.acknowledged(qp, at, syndrome, cx),
            Body::ReadResponse { part, payload, .. } => self.read_answered(qp, at, part, payload, cx),
            Body::AtomicAck { original, .. } => self.atomic_answered(qp, at, original, cx),
            body => {
                let asks = Asks { at, ack: packet.ack_request, event: packet.solicited };
                self.requested(qp, asks, body, cx);
                if !qp.responder.owed.is_empty() {
                    self.want_turn(qp, cx);
                }
            }
        }
    }

    /// A request: in sequence, ahead of it, or a duplicate.
    fn requested(&mut self, qp: &mut Qp, asks: Asks, body: Body, cx: &mut Cx) {
        let at = asks.at;
        match psn::distance(at, qp.responder.expected) {
            0 => {}
            1.. => {
                self.place_ahead(qp, &body, cx);
                body.recycle(&mut cx.pool);
                if !qp.responder.nak_sent {
                    qp.responder.nak_sent = true;
                    self.owe_ack(qp, qp.responder.expected, aeth::NAK_SEQUENCE);
                }
                return;
            }
            _ => return self.duplicate(qp, at, body, cx),
        }
        qp.responder.nak_sent = false;
        if self.faults.any() && self.faults.strikes(|kind| matches!(kind, FaultKind::Rnr { .. })) {
            body.recycle(&mut cx.pool);
            return self.refuse(qp, at, aeth::rnr(qp.responder.min_rnr), cx);
        }
        let refusal = match body {
            Body::Write { part, reth, payload } => self.write(qp, asks, part, reth, payload, cx),
            Body::WriteImm { part, reth, imm, payload } => {
                self.write_imm(qp, asks, part, reth, imm, payload, cx)
            }
            Body::Send { part, imm, payload } => self.send(qp, asks, part, imm, payload, cx),
            Body::ReadRequest(reth) => self.read(qp, at, reth, cx),
            Body::Atomic(request) => self.atomic(qp, at, request, cx),
            body => {
                body.recycle(&mut cx.pool);
                Err(aeth::NAK_INVALID_REQUEST)
            }
        };
        if let Err(syndrome) = refusal {
            self.refuse(qp, at, syndrome, cx);
        }
    }

    /// Owes a NAK. All but "not ready" are fatal.
    fn refuse(&mut self, qp: &mut Qp, at: u32, syndrome: u8, cx: &mut Cx) {
        self.owe_ack(qp, at, syndrome);
        if aeth::rnr_ns(syndrome).is_some() {
            qp.responder.nak_sent = true;
            return;
        }
        qp.responder.refusing = true;
        let kind = match syndrome {
            aeth::NAK_REMOTE_ACCESS => events::WQ_ACCESS,
            aeth::NAK_REMOTE_OPERATION => events::WQ_CATASTROPHIC,
            _ => events::WQ_INVALID_REQUEST,
        };
        self.raise(cx.now, event::object(kind, qp.qpn));
    }

    /// Owes an acknowledgement, or moves the one owed last if nothing stands between.
    #[inline(always)]
    pub(crate) fn owe_ack(&mut self, qp: &mut Qp, at: u32, syndrome: u8) {
        let responder = &mut qp.responder;
        let new = Owed::Ack { psn: at, msn: responder.msn, syndrome };
        match responder.owed.back_mut() {
            Some(last @ Owed::Ack { syndrome: aeth::ACK, .. }) if syndrome == aeth::ACK => *last = new,
            _ => responder.owed.push_back(new),
        }
    }

    /// Translates a remote access, or says with what it is refused. A length of zero needs no key.
    pub(crate) fn remote(
        &mut self,
        qp: &Qp,
        rkey: u32,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Option<(Span, bool)>, u8> {
        if bytes == 0 {
            return Ok(None);
        }
        let revoked = |kind: &FaultKind| matches!(kind, FaultKind::RkeyRevoked { .. });
        if self.faults.any() && self.faults.strikes(revoked) {
            return Err(aeth::NAK_REMOTE_ACCESS);
        }
        let want = Use { key: rkey, pd: qp.pd, qpn: qp.qpn, address, bytes, access };
        self.memory.check(want).map(Some).ok_or(aeth::NAK_REMOTE_ACCESS)
    }

    #[inline(always)] // twice in the code, so that the common one pays no call
    pub(crate) fn write(
        &mut self,
        qp: &mut Qp,
        asks: Asks,
        part: Part,
        reth: Reth,
        payload: Payload,
        cx: &mut Cx,
    ) -> Result<(), u8> {
        let bytes = payload.bytes().len() as u64;
        let mut whole = None;
        let incoming = match (part.starts(), qp.responder.arriving) {
            (true, Arriving::Nothing) => {
                if !qp.responder.allows_write {
                    return Err(aeth::NAK_INVALID_REQUEST);
                }
                let left = reth.bytes as u64;
                whole = Some(self.remote(qp, reth.rkey, reth.address, left, Access::RemoteWrite)?);
                Incoming { rkey: reth.rkey, address: reth.address, left, bytes: reth.bytes }
            }
            (false, Arriving::Write(incoming)) => incoming,
            _ => return Err(aeth::NAK_INVALID_REQUEST),
        };
        let fits = if part.ends() {
            bytes == incoming.left && bytes <= qp.mtu as u64
        } else {
            bytes == qp.mtu as u64 && bytes < incoming.left
        };
        if !fits {
            return Err(aeth::NAK_INVALID_REQUEST);
        }
        // Again for each packet: the key may be gone by now. One that is the whole message was looked at just above.
        let target = match whole.filter(|_| part.ends()) {
            Some(target) => target,
            None => self.remote(qp, incoming.rkey, incoming.address, bytes, Access::RemoteWrite)?,
        };
        qp.responder.expected = psn::add(asks.at, 1);
        if part.ends() {
            qp.responder.arriving = Arriving::Nothing;
            qp.responder.msn = psn::add(qp.responder.msn, 1);
            self.counters.messages += 1;
        } else {
            qp.responder.arriving = Arriving::Write(Incoming {
                address: incoming.address.wrapping_add(bytes),
                left: incoming.left - bytes,
                ..incoming
            });
        }
        if let Some((span, relaxed)) = target {
            let how = How { relaxed, unordered: self.is_unordered(qp) };
            if self.faults.any() {
                self.place_sabotaged(qp.qpn, part, span, payload, how, cx);
            } else {
                self.place(span, payload, how, cx);
            }
        }
        if asks.ack {
            self.owe_ack(qp, asks.at, aeth::ACK);
        }
        Ok(())
    }

    fn read(&mut self, qp: &mut Qp, at: u32, reth: Reth, cx: &mut Cx) -> Result<(), u8> {
        let packets = reth.bytes.div_ceil(qp.mtu).max(1);
        let too_long = reth.bytes as u64 > 1 << qp.log_max_message;
        let midst = !qp.responder.arriving.is_nothing();
        if too_long || !qp.responder.allows_read || midst || self.too_many_owed(qp) {
            return Err(aeth::NAK_INVALID_REQUEST);
        }
        self.remote(qp, reth.rkey, reth.address, reth.bytes as u64, Access::RemoteRead)?;
        let (rkey, address, bytes) = (reth.rkey, reth.address, reth.bytes);
        qp.responder.expected = psn::add(at, packets);
        qp.responder.msn = psn::add(qp.responder.msn, 1);
        self.counters.messages += 1;
        remember(qp, Remembered::Read { psn: at, packets, rkey, address, bytes });
        self.owe_read(qp, at, reth, false, cx);
        Ok(())
    }

    fn too_many_owed(&self, qp: &Qp) -> bool {
        let counts = |owed: &&Owed| match owed {
            Owed::Ack { .. } => false,
            Owed::Read { again, .. } | Owed::Atomic { again, .. } => !again,
        };
        let owed = qp.responder.owed.iter().filter(counts).count();
        owed >= qp.responder.max_remembered
    }

    /// Owes READ responses. The data is read once everything posted before has landed.
    fn owe_read(&mut self, qp: &mut Qp, at: u32, reth: Reth, again: bool, cx: &mut Cx) {
        let ticket = qp.responder.next_ticket;
        qp.responder.next_ticket += 1;
        let passes = self.config.quirks.reads_pass_posted_writes;
        let ready = passes || self.defer(Deferred::Read { qpn: qp.qpn, ticket }, cx);
        qp.responder.owed.push_back(Owed::Read {
            psn: at,
            msn: qp.responder.msn,
            rkey: reth.rkey,
            address: reth.address,
            bytes: reth.bytes,
            sent: 0,
            ticket,
            ready,
            again,
        });
    }

    fn atomic(&mut self, qp: &mut Qp, at: u32, request: AtomicRequest, cx: &mut Cx) -> Result<(), u8> {
        let bytes = request.bytes;
        let sound = matches!(bytes, 4 | 8) && request.address.is_multiple_of(bytes as u64);
        let midst = !qp.responder.arriving.is_nothing();
        if !qp.responder.allows_atomic || !sound || midst || self.too_many_owed(qp) {
            return Err(aeth::NAK_INVALID_REQUEST);
        }
        let target = self.remote(qp, request.rkey, request.address, bytes as u64, Access::RemoteAtomic)?;
        let Some((span, relaxed)) = target else { return Err(aeth::NAK_INVALID_REQUEST) };
        if !span.address().is_multiple_of(bytes as u64) {
            return Err(aeth::NAK_INVALID_REQUEST); // Registered at an odd offset.
        }
        let ticket = qp.responder.next_ticket;
        qp.responder.next_ticket += 1;
        qp.responder.expected = psn::add(at, 1);
        let counted = self.config.quirks.atomic_count != AtomicCount::Left;
        qp.responder.msn = psn::add(qp.responder.msn, counted as u32);
        self.counters.messages += 1;
        // Under a key with relaxed ordering it passes the writes that wait.
        let passes = relaxed && self.config.quirks.atomic_gap_ns == 0;
        let now = passes || self.defer(Deferred::Atomic { qpn: qp.qpn, ticket, span, request }, cx);
        let original = now.then(|| {
            let write = self.begin_atomic(span, request);
            write.land(span, cx);
            write.original
        });
        qp.responder.owed.push_back(Owed::Atomic {
            psn: at,
            msn: qp.responder.msn,
            ticket,
            original,
            again: false,
        });
        remember(qp, Remembered::Atomic { psn: at, ticket, original });
        Ok(())
    }

    /// Reads the word of an atomic, and says what is to be written. Atomic among the requests of this NIC, not with
    /// others.
    pub(crate) fn begin_atomic(&mut self, span: Span, request: AtomicRequest) -> AtomicWrite {
        let bytes = request.bytes;
        let original = load_word(span, bytes);
        let new = atomic::apply(request.op, original, bytes);
        let mut words = [Some(new), None];
        if self.faults.any() {
            let again = atomic::apply(request.op, new, bytes);
            if new != original && self.faults.strikes(|kind| matches!(kind, FaultKind::SkipAtomic)) {
                words = [None, None];
            } else if again != new && self.faults.strikes(|kind| matches!(kind, FaultKind::DoubleAtomic)) {
                words = [Some(new), Some(again)];
            }
        }
        AtomicWrite { original, bytes, words }
    }

    /// A posted READ or atomic came to the head of the placement queue.
    pub(crate) fn deferred_done(&mut self, qpn: u32, done: u64, original: Option<u64>, cx: &mut Cx) {
        let Some(mut qp) = self.take_qp(qpn) else { return };
        for owed in &mut qp.responder.owed {
            match owed {
                Owed::Read { ticket, ready, .. } if *ticket == done => *ready = true,
                Owed::Atomic { ticket, original: answer, .. } if *ticket == done => *answer = original,
                _ => {}
            }
        }
        for remembered in &mut qp.responder.remembered {
            match remembered {
                Remembered::Atomic { ticket, original: answer, .. } if *ticket == done => *answer = original,
                _ => {}
            }
        }
        if !qp.responder.owed.is_empty() {
            self.want_turn(&mut qp, cx);
        }
        self.put_qp(qp);
    }

    /// A request that was executed before: never executed again, except that a READ is read again.
    fn duplicate(&mut self, qp: &mut Qp, at: u32, body: Body, cx: &mut Cx) {
        self.counters.duplicates += 1;
        match body {
            Body::ReadRequest(again) => {
                let known = qp.responder.remembered.iter().any(|remembered| match *remembered {
                    Remembered::Read { psn: first, packets, rkey, address, bytes } => {
                        let index = psn::distance(at, first);
                        let skip = index as i64 * qp.mtu as i64;
                        index >= 0
                            && (index as u32) < packets
                            && again.rkey == rkey
                            && again.address == address.wrapping_add(skip as u64)
                            && again.bytes as i64 == bytes as i64 - skip
                    }
                    _ => false,
                });
                let allowed = |nic: &mut Self| {
                    nic.remote(qp, again.rkey, again.address, again.bytes as u64, Access::RemoteRead).is_ok()
                };
                if known && allowed(self) && !self.is_owed(qp, at) {
                    self.owe_read(qp, at, again, true, cx);
                }
            }
            Body::Atomic(_) => {
                let found = qp.responder.remembered.iter().find_map(|remembered| match *remembered {
                    Remembered::Atomic { psn: first, ticket, original } if first == at => {
                        Some((ticket, original))
                    }
                    _ => None,
                });
                if let Some((ticket, original)) = found
                    && !self.is_owed(qp, at)
                {
                    let again = self.config.quirks.atomic_count == AtomicCount::Again;
                    qp.responder.msn = psn::add(qp.responder.msn, again as u32);
                    qp.responder.owed.push_back(Owed::Atomic {
                        psn: at,
                        msn: qp.responder.msn,
                        ticket,
                        original,
                        again: true,
                    });
                }
            }
            body => {
                body.recycle(&mut cx.pool);
                self.owe_ack(qp, psn::sub(qp.responder.expected, 1), aeth::ACK);
            }
        }
    }

    /// True if the answer to this request is on its way already: a duplicate then adds nothing.
    fn is_owed(&self, qp: &Qp, at: u32) -> bool {
        qp.responder.owed.iter().any(|owed| match *owed {
            Owed::Ack { .. } => false,
            Owed::Read { psn: first, sent, .. } => first == at && sent == 0,
            Owed::Atomic { psn: first, .. } => first == at,
        })
    }

    /// Sends one owed packet; false if there is none or it must wait.
    pub(crate) fn send_answer(&mut self, qp: &mut Qp, cx: &mut Cx) -> bool {
        match qp.responder.owed.front().copied() {
            None => false,
            Some(Owed::Ack { psn: at, msn, syndrome }) => {
                qp.responder.owed.pop_front();
                self.counters.naks += (syndrome >= aeth::NAK_SEQUENCE) as u64;
                self.counters.rnr_naks += (syndrome >> 5 == 1) as u64;
                self.emit(qp, at, false, false, Body::Ack { syndrome, msn });
                if syndrome > aeth::NAK_SEQUENCE {
                    self.enter_error(qp, cx.now);
                }
                true
            }
            Some(Owed::Atomic { original: None, .. } | Owed::Read { ready: false, .. }) => false,
            Some(Owed::Atomic { psn: at, msn, original: Some(original), .. }) => {
                qp.responder.owed.pop_front();
                self.emit(qp, at, false, false, Body::AtomicAck { msn, original });
                true
            }
            Some(read @ Owed::Read { .. }) => self.send_read_response(qp, read, cx),
        }
    }

    fn send_read_response(&mut self, qp: &mut Qp, read: Owed, cx: &mut Cx) -> bool {
        let Owed::Read { psn: first, msn, rkey, address, bytes, sent, .. } = read else { return false };
        let packets = bytes.div_ceil(qp.mtu).max(1);
        let offset = sent * qp.mtu;
        let some = (bytes - offset).min(qp.mtu);
        let at = address.wrapping_add(offset as u64);
        let Ok(source) = self.remote(qp, rkey, at, some as u64, Access::RemoteRead) else {
            // The key went away between request and response.
            qp.responder.owed.pop_front();
            qp.responder.refusing = true;
            let nak = Owed::Ack { psn: psn::add(first, sent), msn, syndrome: aeth::NAK_REMOTE_ACCESS };
            qp.responder.owed.push_front(nak);
            return self.send_answer(qp, cx);
        };
        let mut payload = cx.pool.take(some as usize);
        if let Some((span, _)) = source {
            span.load(payload.bytes_mut());
        }
        let part = Part::of(sent, packets);
        self.emit(qp, psn::add(first, sent), false, false, Body::ReadResponse { part, msn, payload });
        match qp.responder.owed.front_mut() {
            Some(Owed::Read { sent, .. }) if *sent + 1 < packets => *sent += 1,
            _ => {
                qp.responder.owed.pop_front();
            }
        }
        true
    }
}

/// Remembers a READ or atomic for duplicates; the oldest goes.
fn remember(qp: &mut Qp, entry: Remembered) {
    let responder = &mut qp.responder;
    if responder.remembered.len() >= responder.max_remembered {
        responder.remembered.pop_front();
    }
    responder.remembered.push_back(entry);
}

/// The word of an atomic's width that lies there.
fn load_word(span: Span, bytes: u32) -> u64 {
    let mut word = [0; 8];
    span.load(&mut word[..bytes as usize]);
    u64::from_le_bytes(word)
}
