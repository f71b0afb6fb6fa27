//! The steps that take what comes: messages, reads of our memory, answers.

use crate::device::{Device, MESSAGE_MAX};
use crate::flow::Offer;
use crate::format::{Completion, Piece, Side, Status, UNKNOWN_AH};
use crate::memory::access;
use crate::path::Outgoing;
use crate::qp::Service;
use crate::queues::Receive;
use crate::segment::{HEADER_BYTES, Header, Kind};

/// What lies in front of an unreliable message.
const ROUTE_BYTES: usize = 40;

/// A segment that came, and what its packet says.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// GID of the sender.
    pub source: u128,
    /// Queue pair of the sender.
    pub source_qpn: u16,
    /// Queue pair it is for.
    pub qpn: u16,
    /// Key that the sender thinks it has.
    pub qkey: u32,
    /// The segment.
    pub segment: &'a [u8],
}

impl Device {
    /// Answers a segment.
    fn answer(&mut self, to: &Incoming<'_>, asked: &Header, status: Status, now: u64) {
        let header = Header { status, ..self.header(Kind::Answer, asked.epoch, asked.number) };
        self.push_answer(to, asked.mac, header.segment(0), now);
    }

    fn push_answer(&mut self, to: &Incoming<'_>, mac: u64, segment: Vec<u8>, now: u64) {
        let (destination, qpn, source_qpn) = (to.source, to.source_qpn, to.qpn);
        self.paths.push(now, Outgoing { destination, mac, qpn, qkey: 0, source_qpn, segment });
    }

    /// A segment came.
    pub fn receive(&mut self, incoming: Incoming<'_>, now: u64) {
        let Some((header, data)) = Header::read(incoming.segment) else {
            self.counters.dropped += 1;
            return;
        };
        match header.kind {
            Kind::Send => self.take_message(&incoming, &header, data, now),
            Kind::Datagram => self.take_datagram(&incoming, &header, data),
            Kind::ReadRequest => self.take_read(&incoming, &header, now),
            Kind::Answer | Kind::ReadResponse => self.take_answer(&incoming, &header, data, now),
        }
    }

    /// True if a queue pair of this service takes what comes with this key.
    fn wants(&self, incoming: &Incoming<'_>, service: Service) -> bool {
        self.qps
            .get(&incoming.qpn)
            .is_some_and(|qp| qp.receives() && qp.parts.service == service && qp.qkey == incoming.qkey)
    }

    fn take_message(&mut self, incoming: &Incoming<'_>, header: &Header, data: &[u8], now: u64) {
        if !self.wants(incoming, Service::Reliable) {
            self.counters.dropped += 1;
            return self.answer(incoming, header, Status::BadRemoteQp, now);
        }
        let from = (incoming.source, incoming.source_qpn);
        let Some(qp) = self.qps.get_mut(&incoming.qpn) else { return };
        let message = match qp.flows.offer(from, header, data, MESSAGE_MAX) {
            Offer::Stale => {
                self.counters.duplicates += 1;
                return;
            }
            Offer::Ended(status) => {
                self.counters.duplicates += 1;
                return self.answer(incoming, header, status, now);
            }
            Offer::More => return,
            Offer::Whole(message) => message,
        };
        let Some(receive) = qp.parts.receive.as_mut().and_then(|queue| queue.take()) else {
            qp.flows.forget(from, header.number);
            self.counters.not_ready += 1;
            return self.answer(incoming, header, Status::NotReady, now);
        };
        let status = self.land(incoming, header, &receive, &[&message]);
        if let Some(qp) = self.qps.get_mut(&incoming.qpn) {
            self.counters.reordered += u64::from(qp.flows.settle(from, header.number, status));
        }
        self.answer(incoming, header, status, now);
    }

    fn take_datagram(&mut self, incoming: &Incoming<'_>, header: &Header, data: &[u8]) {
        if !self.wants(incoming, Service::Unreliable) {
            self.counters.dropped += 1;
            return;
        }
        let from = (incoming.source, incoming.source_qpn);
        let Some(qp) = self.qps.get_mut(&incoming.qpn) else { return };
        let message = match qp.flows.offer(from, header, data, MESSAGE_MAX) {
            Offer::Whole(message) => message,
            Offer::More => return,
            Offer::Stale | Offer::Ended(_) => {
                self.counters.duplicates += 1;
                return;
            }
        };
        self.counters.reordered += u64::from(qp.flows.settle(from, header.number, Status::Ok));
        let Some(receive) = qp.parts.receive.as_mut().and_then(|queue| queue.take()) else {
            self.counters.dropped += 1;
            return;
        };
        let mut route = [0; ROUTE_BYTES];
        route[0] = 0x60;
        route[8..24].copy_from_slice(&incoming.source.to_be_bytes());
        self.land(incoming, header, &receive, &[&route, &message]);
    }

    /// Puts a message into a receive, and completes that.
    fn land(
        &mut self,
        incoming: &Incoming<'_>,
        header: &Header,
        receive: &Receive,
        parts: &[&[u8]],
    ) -> Status {
        let Some(pd) = self.qps.get(&incoming.qpn).map(|qp| qp.parts.pd) else { return Status::BadRemoteQp };
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        // What the receiver is told, and what the sender is.
        let (here, there) = if bytes as u64 > receive.bytes() {
            (Status::BadLength, Status::BadRemoteLength)
        } else if !self.scatter(pd, receive, parts) {
            (Status::BadLocalKey, Status::BadAnswer)
        } else {
            (Status::Ok, Status::Ok)
        };
        self.counters.messages += u64::from(here == Status::Ok);
        self.complete(Completion {
            bytes: bytes as u16,
            imm: header.imm,
            handle: self.handle_of(pd, incoming.source).unwrap_or(UNKNOWN_AH),
            source_qpn: incoming.source_qpn,
            source: incoming.source,
            ..Completion::of(incoming.qpn, receive.request, here, Side::Receive)
        });
        there
    }

    /// Writes the parts of a message, one behind the other, into the pieces of a receive.
    fn scatter(&self, pd: u16, receive: &Receive, parts: &[&[u8]]) -> bool {
        let mut pieces = receive.pieces.iter();
        let (mut piece, mut skip) = (pieces.next(), 0u32);
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let Some(here) = piece else { return false };
                let some = rest.len().min((here.bytes - skip) as usize);
                if !self.regions.write(pd, *here, skip, &rest[..some]) {
                    return false;
                }
                rest = &rest[some..];
                skip += some as u32;
                if skip == here.bytes {
                    (piece, skip) = (pieces.next(), 0);
                }
            }
        }
        true
    }

    /// Somebody wants to read memory of this process.
    fn take_read(&mut self, incoming: &Incoming<'_>, header: &Header, now: u64) {
        if !self.wants(incoming, Service::Reliable) {
            self.counters.dropped += 1;
            return self.answer(incoming, header, Status::BadRemoteQp, now);
        }
        let Some(pd) = self.qps.get(&incoming.qpn).map(|qp| qp.parts.pd) else { return };
        if header.bytes > self.data_bytes() {
            return self.answer(incoming, header, Status::BadRemoteLength, now);
        }
        let response = Header {
            bytes: header.bytes,
            offset: header.offset,
            ..self.header(Kind::ReadResponse, header.epoch, header.number)
        };
        let mut segment = response.segment(header.bytes as usize);
        let piece = Piece { key: header.key, address: header.address, bytes: header.bytes };
        if !self.regions.read(pd, piece, 0, access::REMOTE_READ, &mut segment[HEADER_BYTES..]) {
            return self.answer(incoming, header, Status::BadRemoteAddress, now);
        }
        self.counters.messages += 1;
        self.push_answer(incoming, header.mac, segment, now);
    }

    /// An answer came: to a message, or to a piece of a read.
    fn take_answer(&mut self, incoming: &Incoming<'_>, header: &Header, data: &[u8], now: u64) {
        let Some(qp) = self.qps.get_mut(&incoming.qpn).filter(|qp| qp.epoch == header.epoch) else {
            self.counters.dropped += 1;
            return;
        };
        let landing = qp.sender.landing(header.number);
        let (retries, pd) = (qp.retries, qp.parts.pd);
        let status = match (header.kind, landing) {
            (Kind::ReadResponse, None) => {
                self.counters.duplicates += 1;
                return;
            }
            (Kind::ReadResponse, Some((_, bytes))) if data.len() != bytes as usize => Status::BadAnswer,
            (Kind::ReadResponse, Some((piece, _))) => match self.regions.write(pd, piece, 0, data) {
                true => Status::Ok,
                false => Status::BadLocalKey,
            },
            // A piece of a read is not read by a word alone.
            (_, Some(_)) if header.status == Status::Ok => Status::BadAnswer,
            _ => header.status,
        };
        let ended = qp.sender.answered(header.number, status, retries, now);
        ended.into_iter().for_each(|ended| self.sent(incoming.qpn, ended));
    }
}
