//! The requester half of a reliable connection: fetch, send, be acknowledged, retry, complete, fail.

use crate::complete::Completion;
use crate::cx::Cx;
use crate::fault::FaultKind;
use crate::fetch;
use crate::memory::Access;
use crate::nic::SoftNic;
use crate::packet::{Body, Part, Payload, Reth, aeth};
use crate::placement::How;
use crate::psn;
use crate::qp::{ACK_EVERY, Qp, RNR_FOR_EVER, SHUT, Task, WINDOW, Work};
use crate::timer::NEVER;
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_layout::mlx5::prm::qp::State;

/// A local access that no key allows.
pub(crate) const LOCAL_KEY: (Syndrome, u8) = (Syndrome::LOCAL_PROTECTION, vendor::LOCAL_KEY);
/// Retries used up.
const EXHAUSTED: (Syndrome, u8) = (Syndrome::RETRY_EXCEEDED, vendor::ACK_TIMEOUT);
/// The receiver was not ready once too often.
const NEVER_READY: (Syndrome, u8) = (Syndrome::RNR_RETRY_EXCEEDED, 0);

impl SoftNic {
    /// Sends one request packet; false if there is nothing to send or it must wait.
    pub(crate) fn send_request(&mut self, qp: &mut Qp, cx: &mut Cx) -> bool {
        if qp.state != State::Rts {
            return false;
        }
        loop {
            if qp.requester.cursor == qp.requester.work.len() && !self.fetch_next(qp) {
                return false;
            }
            let at = qp.requester.cursor;
            let work = &qp.requester.work[at];
            if work.error.is_some() {
                self.retire(qp, cx);
                return false;
            }
            if work.packets == 0 {
                qp.requester.cursor += 1;
                self.retire(qp, cx);
                continue;
            }
            if psn::distance(qp.requester.send_psn, qp.requester.oldest) >= qp.requester.window {
                return false;
            }
            if !self.has_room(qp, at, cx) {
                return false;
            }
            if self.send_packet(qp, at, cx) {
                self.settle(qp, cx);
                return true;
            }
        }
    }

    /// Fetches the next announced WQE, unless it must wait for READs and atomics before it.
    pub(crate) fn fetch_next(&mut self, qp: &mut Qp) -> bool {
        if qp.requester.fetched == qp.requester.announced {
            return false;
        }
        if qp.requester.answers_due > 0 {
            let (ctrl, _) = fetch::ctrl_at(qp, qp.requester.fetched);
            let answered = (0x10..=0x15).contains(&ctrl.opcode);
            if fetch::is_fenced(ctrl) || answered && qp.requester.answers_due >= qp.requester.max_answers {
                return false;
            }
        }
        let mut work = fetch::fetch(qp, self.config.profile.atomics.operations);
        self.counters.wqes += 1;
        let requester = &mut qp.requester;
        work.first_psn = requester.next_psn;
        requester.next_psn = psn::add(requester.next_psn, work.packets);
        requester.fetched += work.blocks as u64;
        requester.answers_due += work.wants_answer() as u32;
        requester.work.push_back(work);
        true
    }

    /// Builds and sends the packet at `send_psn`, which belongs to entry `at`. False if its data cannot be
    /// read: the entry then carries the error.
    fn send_packet(&mut self, qp: &mut Qp, at: usize, cx: &mut Cx) -> bool {
        let send_psn = qp.requester.send_psn;
        let work = &qp.requester.work[at];
        let index = psn::distance(send_psn, work.first_psn) as u32;
        let offset = index * qp.mtu;
        let last = index + 1 == work.packets;
        let mut solicited = false;
        let (body, ack_request, next_psn, whole) = match &work.task {
            Task::Nothing => unreachable!("a WQE without packets is never sent"),
            Task::Datagram(_) => return self.send_datagram(qp, at, cx),
            Task::Write { address, rkey, data } => {
                let bytes = (work.bytes - offset).min(qp.mtu);
                let Some(payload) = self.gather(qp, data, offset, bytes, cx) else {
                    qp.requester.work[at].error = Some(LOCAL_KEY);
                    return false;
                };
                let part = Part::of(index, work.packets);
                let reth = Reth { address: *address, rkey: *rkey, bytes: work.bytes };
                let ask = last || send_psn.is_multiple_of(ACK_EVERY);
                (Body::Write { part, reth, payload }, ask, psn::add(send_psn, 1), last)
            }
            Task::WriteImm { data, .. } | Task::Send { data, .. } => {
                let bytes = (work.bytes - offset).min(qp.mtu);
                let Some(payload) = self.gather_message(qp, data, offset, bytes, cx) else {
                    qp.requester.work[at].error = Some(LOCAL_KEY);
                    return false;
                };
                solicited = last && work.solicited;
                let ask = last || send_psn.is_multiple_of(ACK_EVERY);
                let body = message(work, Part::of(index, work.packets), payload);
                (body, ask, psn::add(send_psn, 1), last)
            }
            Task::Read { address, rkey, .. } => {
                let address = address.wrapping_add(offset as u64);
                let reth = Reth { address, rkey: *rkey, bytes: work.bytes - offset };
                (Body::ReadRequest(reth), true, psn::add(work.first_psn, work.packets), true)
            }
            Task::Atomic { request, .. } => (Body::Atomic(*request), true, psn::add(send_psn, 1), true),
        };
        self.emit(qp, send_psn, ack_request, solicited, body);
        let requester = &mut qp.requester;
        requester.send_psn = next_psn;
        requester.cursor += whole as usize;
        if requester.timer.at == NEVER && requester.timeout_ns != 0 {
            let at = cx.now + requester.patience_ns();
            self.timers.set(&mut requester.timer, qp.qpn, at);
        }
        true
    }

    /// An ACK or NAK arrived.
    pub(crate) fn acknowledged(&mut self, qp: &mut Qp, at: u32, syndrome: u8, cx: &mut Cx) {
        let requester = &qp.requester;
        let behind = psn::distance(at, requester.oldest);
        if behind < -1 || psn::distance(at, requester.next_psn) >= 0 {
            return; // A ghost, or an old duplicate.
        }
        match syndrome >> 5 {
            0 => self.advance(qp, at, cx),
            3 => {
                self.advance(qp, psn::sub(at, 1), cx);
                if qp.state == State::Rts && qp.requester.oldest == at {
                    self.refused(qp, syndrome, cx);
                }
            }
            1 => {
                self.advance(qp, psn::sub(at, 1), cx);
                if qp.state == State::Rts && qp.requester.oldest == at {
                    self.not_ready(qp, syndrome, cx);
                }
            }
            _ => {} // Reserved.
        }
        if qp.state == State::Rts {
            self.want_turn(qp, cx);
        }
    }

    /// A NAK for the oldest packet.
    fn refused(&mut self, qp: &mut Qp, syndrome: u8, cx: &mut Cx) {
        let first = match syndrome {
            aeth::NAK_SEQUENCE => {
                if !qp.requester.outstanding() {
                    return; // Already rewound to it.
                }
                return self.retry(qp, cx);
            }
            aeth::NAK_INVALID_REQUEST => (Syndrome::REMOTE_INVALID_REQUEST, vendor::REMOTE_INVALID),
            aeth::NAK_REMOTE_ACCESS => (Syndrome::REMOTE_ACCESS, vendor::REMOTE_ACCESS),
            _ => (Syndrome::REMOTE_OPERATION, 0),
        };
        self.fail(qp, first, cx);
    }

    /// The receiver was not ready for the oldest packet: it is sent again after the time it asks for.
    fn not_ready(&mut self, qp: &mut Qp, syndrome: u8, cx: &mut Cx) {
        let requester = &mut qp.requester;
        let Some(wait_ns) = aeth::rnr_ns(syndrome) else { return };
        if requester.window == SHUT || !requester.outstanding() {
            return; // Waiting already, or gone back to it already.
        }
        if requester.rnr_left == 0 {
            return self.fail(qp, NEVER_READY, cx);
        }
        requester.rnr_left -= (requester.rnr_retry != RNR_FOR_EVER) as u32;
        self.rewind(qp);
        qp.requester.window = SHUT;
        self.timers.set(&mut qp.requester.timer, qp.qpn, cx.now + wait_ns);
    }

    /// Everything up to `upto` was received. READs and atomics need their own answers, so an acknowledgement
    /// beyond one that has none means that the answer was lost.
    fn advance(&mut self, qp: &mut Qp, upto: u32, cx: &mut Cx) {
        let (mut progress, mut answer_lost) = (false, false);
        let requester = &mut qp.requester;
        for work in &requester.work {
            if work.packets == 0 {
                continue;
            }
            if psn::distance(upto, work.first_psn) < 0 {
                break;
            }
            if work.wants_answer() {
                let needed = if matches!(work.task, Task::Read { .. }) { work.packets } else { 1 };
                if work.answered < needed {
                    answer_lost = psn::distance(upto, requester.oldest) >= 0;
                    break;
                }
            }
            let end = psn::add(work.first_psn, work.packets);
            let reached = psn::add(upto, 1);
            let reached = if psn::distance(reached, end) > 0 { end } else { reached };
            if psn::distance(reached, requester.oldest) > 0 {
                requester.oldest = reached;
                progress = true;
            }
        }
        if progress {
            self.progressed(qp, cx);
        }
        if answer_lost && !qp.requester.rewound {
            qp.requester.rewound = true;
            self.lost_some(qp, cx);
            self.rewind(qp);
        }
    }

    /// `oldest` moved: completes what is done, and starts the retry clock anew.
    fn progressed(&mut self, qp: &mut Qp, cx: &mut Cx) {
        let requester = &mut qp.requester;
        requester.retries_left = requester.retry_count;
        requester.rnr_left = requester.rnr_retry;
        requester.window = WINDOW;
        requester.rewound = false;
        if psn::distance(requester.oldest, requester.send_psn) > 0 {
            requester.send_psn = requester.oldest;
        }
        let at = match requester.outstanding() && requester.timeout_ns != 0 {
            true => cx.now + requester.patience_ns(),
            false => NEVER,
        };
        self.timers.set(&mut requester.timer, qp.qpn, at);
        self.retire(qp, cx);
    }

    /// Completes finished entries from the front; a failed one that has come to the front errs the queue
    /// pair.
    pub(crate) fn retire(&mut self, qp: &mut Qp, cx: &mut Cx) {
        while qp.state == State::Rts {
            if self.failed_cqs > 0 && self.cq_mut(qp.cqn).is_none_or(|cq| cq.failed) {
                return self.enter_error(qp, cx.now);
            }
            let requester = &mut qp.requester;
            let Some(work) = requester.work.front() else { return };
            if let Some(error) = work.error {
                return self.fail(qp, error, cx);
            }
            let end = psn::add(work.first_psn, work.packets);
            let done = match work.packets {
                0 => requester.cursor > 0,
                _ => psn::distance(requester.oldest, end) >= 0,
            };
            if !done {
                return;
            }
            let wrong = |kind: &FaultKind| match kind {
                FaultKind::CqeError { syndrome } => Some((Syndrome(*syndrome), 0)),
                _ => None,
            };
            if self.faults.any()
                && let Some(error) = self.faults.strike(wrong)
            {
                return self.fail(qp, error, cx);
            }
            let Some(work) = qp.requester.work.pop_front() else { return };
            self.complete_good(qp, &work, cx);
        }
    }

    fn complete_good(&mut self, qp: &mut Qp, work: &Work, cx: &mut Cx) {
        let requester = &mut qp.requester;
        requester.cursor = requester.cursor.saturating_sub(1);
        requester.completed += work.blocks as u64;
        requester.answers_due -= work.wants_answer() as u32;
        if work.signalled {
            let bytes = if work.wants_answer() { work.bytes } else { 0 };
            let completion = Completion::good(qp, work.index, work.opcode, bytes).with_event(work.event);
            self.complete(completion, cx);
        }
    }

    /// Goes back to the oldest unacknowledged packet.
    fn rewind(&mut self, qp: &mut Qp) {
        let requester = &mut qp.requester;
        let again = psn::distance(requester.send_psn, requester.oldest).max(0);
        self.counters.retransmits += again as u64;
        requester.send_psn = requester.oldest;
        requester.timer.at = NEVER;
        requester.cursor = 0;
        for work in &requester.work {
            let end = psn::add(work.first_psn, work.packets);
            if work.packets == 0 || psn::distance(end, requester.oldest) <= 0 {
                requester.cursor += 1;
            } else {
                break;
            }
        }
    }

    /// Goes back if a retry is left, else fails.
    fn retry(&mut self, qp: &mut Qp, cx: &mut Cx) {
        if qp.requester.retries_left == 0 {
            return self.fail(qp, EXHAUSTED, cx);
        }
        qp.requester.retries_left -= 1;
        qp.requester.rewound = false;
        self.lost_some(qp, cx);
        self.rewind(qp);
        self.want_turn(qp, cx);
    }

    /// The retry timer, or in ERR the flush timer, expired.
    pub(crate) fn timer_expired(&mut self, qp: &mut Qp, cx: &mut Cx) {
        match qp.state {
            State::Rts if qp.requester.window == SHUT => {
                qp.requester.window = WINDOW;
                self.want_turn(qp, cx);
            }
            State::Rts if qp.requester.outstanding() || self.is_paused(qp, cx) => {
                self.counters.timeouts += 1;
                self.retry(qp, cx);
                self.run_clock(qp, cx);
            }
            State::Err => self.flush(qp, cx),
            _ => {}
        }
    }

    /// A READ response arrived.
    pub(crate) fn read_answered(&mut self, qp: &mut Qp, at: u32, part: Part, payload: Payload, cx: &mut Cx) {
        let Some(entry) = self.answer_for(qp, at, cx) else {
            return cx.pool.give(payload);
        };
        let work = &qp.requester.work[entry];
        let index = psn::distance(at, work.first_psn) as u32;
        let expected = (work.bytes - index * qp.mtu).min(qp.mtu) as usize;
        let is_read = matches!(work.task, Task::Read { .. });
        if !is_read || payload.bytes().len() != expected || part.ends() != (index + 1 == work.packets) {
            cx.pool.give(payload);
            return self.fail(qp, (Syndrome::BAD_RESPONSE, 0), cx);
        }
        // The list is lent out and put back: placing needs the NIC and the queue pair both.
        let task = std::mem::replace(&mut qp.requester.work[entry].task, Task::Nothing);
        let Task::Read { data, .. } = &task else { unreachable!("judged above") };
        let offset = index * qp.mtu;
        let placed = self.scatter(qp, data, offset, payload, cx);
        qp.requester.work[entry].task = task;
        if !placed {
            return self.fail(qp, LOCAL_KEY, cx);
        }
        qp.requester.work[entry].answered += 1;
        qp.requester.oldest = psn::add(at, 1);
        self.progressed(qp, cx);
        self.want_turn_if_alive(qp, cx);
    }

    /// The answer to an atomic arrived.
    pub(crate) fn atomic_answered(&mut self, qp: &mut Qp, at: u32, original: u64, cx: &mut Cx) {
        let Some(entry) = self.answer_for(qp, at, cx) else { return };
        let Task::Atomic { result, .. } = qp.requester.work[entry].task else {
            return self.fail(qp, (Syndrome::BAD_RESPONSE, 0), cx);
        };
        let Some(span) = self.local(qp, result, 0, result.bytes, Access::LocalWrite) else {
            return self.fail(qp, LOCAL_KEY, cx);
        };
        // 8-byte results in host order (endianness mode 1) or big-endian (mode 0), 4-byte results big-endian always.
        let mut payload = cx.pool.take(result.bytes as usize);
        match result.bytes {
            4 => payload.bytes_mut().copy_from_slice(&(original as u32).to_be_bytes()),
            _ if self.config.profile.atomics.big_endian => {
                payload.bytes_mut().copy_from_slice(&original.to_be_bytes());
            }
            _ => payload.bytes_mut().copy_from_slice(&original.to_le_bytes()),
        }
        self.place(span, payload, How::default(), cx);
        qp.requester.work[entry].answered = 1;
        qp.requester.oldest = psn::add(at, 1);
        self.progressed(qp, cx);
        self.want_turn_if_alive(qp, cx);
    }

    /// The entry an answer belongs to, if it is the one expected next. An answer implies that all before it
    /// was received; one beyond the next expected means that answers were lost.
    fn answer_for(&mut self, qp: &mut Qp, at: u32, cx: &mut Cx) -> Option<usize> {
        let requester = &qp.requester;
        if psn::distance(at, requester.oldest) < 0 || psn::distance(at, requester.next_psn) >= 0 {
            return None;
        }
        self.advance(qp, psn::sub(at, 1), cx);
        let requester = &qp.requester;
        if qp.state != State::Rts || requester.oldest != at {
            self.want_turn_if_alive(qp, cx);
            return None;
        }
        let holds = |work: &Work| {
            work.packets > 0 && {
                let index = psn::distance(at, work.first_psn);
                index >= 0 && (index as u32) < work.packets
            }
        };
        requester.work.iter().position(holds)
    }

    fn want_turn_if_alive(&mut self, qp: &mut Qp, cx: &mut Cx) {
        if qp.state == State::Rts {
            self.want_turn(qp, cx);
        }
    }
}

/// A packet of a SEND or of a WRITE with immediate.
fn message(work: &Work, part: Part, payload: Payload) -> Body {
    match work.task {
        Task::Send { imm, .. } => Body::Send { part, imm: imm.filter(|_| part.ends()), payload },
        Task::WriteImm { address, rkey, imm, .. } => {
            let reth = Reth { address, rkey, bytes: work.bytes };
            match part.ends() {
                true => Body::WriteImm { part, reth, imm, payload },
                false => Body::Write { part, reth, payload },
            }
        }
        _ => unreachable!("only these are built here"),
    }
}
