//! The steps that send: what was posted is taken, judged and sent, and sent again.

use crate::device::{Device, Event, Handle, MESSAGE_MAX, READ_MAX};
use crate::format::{Status, Task, Wqe};
use crate::memory::access;
use crate::path::Outgoing;
use crate::qp::{Parts, Service, State};
use crate::segment::{HEADER_BYTES, Header, Kind};
use crate::sender::Ended;

/// Numbers that a receiver of unreliable messages waits for the rest of.
const UNRELIABLE_SPAN: u64 = 256;
/// WQEs taken from one queue pair in a step.
const TAKEN: u32 = 64;

impl Device {
    /// Takes what was posted, sends what may be sent, and sends again what is due. True if there was anything.
    pub fn run(&mut self, now: u64) -> bool {
        let mut any = false;
        let numbers: Vec<u16> = self.qps.keys().copied().collect();
        for number in numbers {
            any |= self.take_posted(number, now);
            while let Some(flight) = self.qps.get_mut(&number).and_then(|qp| qp.sender.start(now)) {
                any = true;
                self.send(number, flight, now);
            }
            while let Some(due) = self.qps.get_mut(&number).and_then(|qp| qp.sender.again(now)) {
                any = true;
                match due {
                    Ok(flight) => {
                        self.counters.retransmits += 1;
                        self.send(number, flight, now);
                    }
                    Err(ended) => self.sent(number, ended),
                }
            }
        }
        for (number, queue) in &mut self.cqs {
            let notice = queue.look();
            any |= notice.is_some();
            self.events.extend(notice.map(|notice| Event { cq: *number, notice }));
        }
        any
    }

    fn take_posted(&mut self, number: u16, now: u64) -> bool {
        let mut any = false;
        for _ in 0..TAKEN {
            let qp = self.qps.get_mut(&number).filter(|qp| qp.state == State::Sends);
            let Some(met) = qp.and_then(|qp| qp.parts.send.as_mut()?.take()) else { break };
            any = true;
            self.counters.wqes += 1;
            match met.and_then(|wqe| self.judge(number, &wqe).map(|()| wqe)) {
                Ok(wqe) => self.post(number, wqe, now),
                Err((request, status)) => self.sent(number, Ended { request, status }),
            }
        }
        any
    }

    /// Whether a WQE may be begun.
    fn judge(&self, number: u16, wqe: &Wqe) -> Result<(), (u16, Status)> {
        let bad = |status| Err((wqe.request, status));
        let Some(Parts { pd, service, .. }) = self.qps.get(&number).map(|qp| &qp.parts) else {
            return bad(Status::BadOperation);
        };
        if self.handles.get(&wqe.handle).is_none_or(|handle| handle.pd != *pd) {
            return bad(Status::BadHandle);
        }
        let (most, allowed) = match &wqe.task {
            Task::Inline(..) => (MESSAGE_MAX, true),
            Task::Send(pieces, count) => {
                let pieces = &pieces[..usize::from(*count)];
                (MESSAGE_MAX, pieces.iter().all(|piece| self.regions.allows(*pd, *piece, 0)))
            }
            Task::Read { .. } if *service == Service::Unreliable => return bad(Status::BadOperation),
            Task::Read { local, .. } => (READ_MAX, self.regions.allows(*pd, *local, access::LOCAL_WRITE)),
        };
        if wqe.task.bytes() > most.into() {
            return bad(Status::BadLength);
        }
        if allowed { Ok(()) } else { bad(Status::BadLocalKey) }
    }

    fn post(&mut self, number: u16, wqe: Wqe, now: u64) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if qp.parts.service == Service::Reliable {
            return qp.sender.post(wqe);
        }
        let message = qp.sender.number();
        let floor = message.saturating_sub(UNRELIABLE_SPAN);
        let good = self.send_message(number, &wqe, Kind::Datagram, (message, floor), now);
        let status = if good { Status::Ok } else { Status::BadLocalKey };
        self.sent(number, Ended { request: wqe.request, status });
    }

    /// Sends a flight, for the first time or again.
    fn send(&mut self, number: u16, flight: u64, now: u64) {
        let Some(qp) = self.qps.get(&number) else { return };
        let Some(what) = qp.sender.flight(flight).copied() else { return };
        let (epoch, floor) = (qp.epoch, qp.sender.floor());
        let good = match what.wqe.task {
            Task::Read { remote, .. } => {
                let header = Header {
                    bytes: what.bytes,
                    offset: what.offset,
                    address: remote.address.wrapping_add(what.offset.into()),
                    key: remote.key,
                    floor,
                    ..self.header(Kind::ReadRequest, epoch, flight)
                };
                self.push_request(number, &what.wqe, header.segment(0), now)
            }
            _ => self.send_message(number, &what.wqe, Kind::Send, (flight, floor), now),
        };
        if !good && let Some(qp) = self.qps.get_mut(&number) {
            // Its memory or its address went away after it was posted.
            let ended = qp.sender.end(flight, Status::BadLocalKey);
            ended.into_iter().for_each(|ended| self.sent(number, ended));
        }
    }

    /// Sends all segments of a message. False if its memory cannot be read, or its address is gone.
    fn send_message(
        &mut self,
        number: u16,
        wqe: &Wqe,
        kind: Kind,
        (message, floor): (u64, u64),
        now: u64,
    ) -> bool {
        let Some(qp) = self.qps.get(&number) else { return false };
        let (epoch, pd) = (qp.epoch, qp.parts.pd);
        let (whole, most) = (wqe.task.bytes() as u32, self.data_bytes());
        let mut offset = 0;
        loop {
            let bytes = most.min(whole - offset);
            let header =
                Header { floor, offset, bytes: whole, imm: wqe.imm, ..self.header(kind, epoch, message) };
            let mut segment = header.segment(bytes as usize);
            if !self.gather(pd, &wqe.task, offset, &mut segment[HEADER_BYTES..])
                || !self.push_request(number, wqe, segment, now)
            {
                return false;
            }
            offset += bytes;
            if offset >= whole {
                return true;
            }
        }
    }

    /// Reads a part of a message from the program's memory.
    fn gather(&self, pd: u16, task: &Task, offset: u32, into: &mut [u8]) -> bool {
        let (pieces, count) = match task {
            Task::Inline(data, _) => {
                let start = offset as usize;
                into.copy_from_slice(&data[start..start + into.len()]);
                return true;
            }
            Task::Send(pieces, count) => (pieces, usize::from(*count)),
            Task::Read { .. } => return false,
        };
        let (mut skip, mut done) = (offset, 0);
        for piece in &pieces[..count] {
            let some = (piece.bytes.saturating_sub(skip) as usize).min(into.len() - done);
            if !self.regions.read(pd, *piece, skip.min(piece.bytes), 0, &mut into[done..done + some]) {
                return false;
            }
            skip = skip.saturating_sub(piece.bytes);
            done += some;
        }
        done == into.len()
    }

    /// Sends a segment where a WQE wants it. False if the address is gone.
    fn push_request(&mut self, number: u16, wqe: &Wqe, segment: Vec<u8>, now: u64) -> bool {
        let Some(Handle { gid, mac, .. }) = self.handles.get(&wqe.handle).copied() else { return false };
        let (qpn, qkey) = (wqe.qpn, wqe.qkey);
        self.paths.push(now, Outgoing { destination: gid, mac, qpn, qkey, source_qpn: number, segment });
        true
    }
}
