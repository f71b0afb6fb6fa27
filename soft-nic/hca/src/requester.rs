//! The requester half of a queue pair: fetch, send, be acknowledged, retry, complete, fail.

mod flush;
mod initiator;

use crate::atomic;
use crate::completion_queue::Completion;
use crate::datagram;
use crate::dc::Initiator;
use crate::dma::LOCAL_KEY;
use crate::endpoint::Endpoint;
use crate::event;
use crate::fetch::{self, SendRing, Task, Work, WorkError};
use crate::in_flight::{Advance, InFlight};
use crate::memory::{Access, Span};
use crate::placement::How;
use crate::request::Request;
use crate::retry::Retries;
use crate::send_queue::SendQueue;
use crate::step_context::StepContext;
use crate::timer::NEVER;
use crate::units::Units;
use crate::window_share::WindowShare;
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_layout::mlx5::eqe::event as events;
use shunt_layout::mlx5::prm::qp::State;
use shunt_soft_fault::FaultKind;
use shunt_soft_wire::packet::{Part, Payload, aeth};
use shunt_soft_wire::psn;

/// Retries used up.
const EXHAUSTED: WorkError = (Syndrome::RETRY_EXCEEDED, vendor::ACK_TIMEOUT);
/// The receiver was not ready once too often.
const NEVER_READY: WorkError = (Syndrome::RNR_RETRY_EXCEEDED, 0);

/// Unacknowledged packets a requester may have outstanding.
const WINDOW: i32 = 1024;
/// The window while an RNR NAK is waited out: nothing is sent.
const SHUT: i32 = i32::MIN;

/// Requester half of a queue pair.
pub(crate) struct Requester {
    queue: SendQueue,
    /// Number of its CQ.
    pub(crate) cqn: u32,
    flight: InFlight,
    /// READs and atomics that may be in flight.
    max_answers: u32,
    retries: Retries,
    /// Packets that may be unacknowledged: [`WINDOW`] or [`SHUT`].
    window: i32,
    pub(crate) share: WindowShare,
    /// The path that an initiator of dynamically connected transport has or asks for.
    initiator: Option<Box<Initiator>>,
    /// It rewound for a lost response; further signs of the same loss are ignored until progress.
    rewound: bool,
}

impl Requester {
    pub(crate) fn new(cqn: u32, ring: SendRing, record: Span, initiates: bool) -> Self {
        Self {
            initiator: initiates.then(Box::default),
            queue: SendQueue::new(ring, record),
            cqn,
            flight: InFlight::default(),
            max_answers: 1,
            retries: Retries::default(),
            window: WINDOW,
            share: WindowShare::default(),
            rewound: false,
        }
    }

    /// As after creation.
    pub(crate) fn reset(&mut self) {
        self.queue.reset();
        self.flight = InFlight::default();
        self.max_answers = 1;
        self.retries = Retries::default();
        self.window = WINDOW;
        self.share = WindowShare::default();
        self.rewound = false;
        if let Some(initiator) = &mut self.initiator {
            initiator.forget();
        }
    }

    /// It may send from now on, PSN `first` first, with so many READs and atomics under way.
    pub(crate) fn start(&mut self, first: u32, max_answers: u32, retries: Retries) {
        self.flight = InFlight::starting_at(first);
        self.max_answers = max_answers;
        self.retries = retries;
    }

    /// PSN of the next WQE, and of the last packet that was acknowledged.
    pub(crate) fn psns(&self) -> (u32, u32) {
        (self.flight.next_psn(), psn::sub(self.flight.oldest(), 1))
    }

    /// Blocks announced and fetched.
    pub(crate) fn counters(&self) -> (u64, u64) {
        self.queue.counters()
    }

    /// A doorbell rang with this index, or one may have, which then stands in the record. True if there is new work.
    pub(crate) fn ring(&mut self, index: Option<u16>, units: &mut Units) -> bool {
        let (before, _) = self.queue.counters();
        if let Some(index) = index
            && !self.queue.announce(index)
        {
            units.counters.bad_doorbells += 1;
        }
        self.queue.announce_recorded();
        self.queue.counters().0 != before
    }

    /// Sends one request packet; false if there is nothing to send or it must wait.
    pub(crate) fn send(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) -> bool {
        if qp.state != State::Rts {
            return false;
        }
        loop {
            if self.flight.all_sent() && !self.fetch_next(qp, units) {
                return false;
            }
            let work = self.flight.to_send();
            if work.error.is_some() {
                self.retire(qp, units, cx.now);
                return false;
            }
            if work.packets == 0 {
                self.flight.skip();
                self.retire(qp, units, cx.now);
                continue;
            }
            if self.initiator.is_some() && !self.has_path(qp, units, cx) {
                return false;
            }
            if self.flight.under_way() >= self.window {
                return false;
            }
            if !self.has_room(qp, units, cx) {
                return false;
            }
            if self.send_packet(qp, units, cx) {
                self.settle(qp, cx);
                return true;
            }
        }
    }

    /// Fetches the next announced WQE, unless it must wait for READs and atomics before it.
    fn fetch_next(&mut self, qp: &Endpoint, units: &mut Units) -> bool {
        if !self.queue.has_more() {
            return false;
        }
        let answers_due = self.flight.answers_due();
        if answers_due > 0 {
            let ctrl = self.queue.peek();
            let answered = (0x10..=0x15).contains(&ctrl.opcode);
            if fetch::is_fenced(ctrl) || answered && answers_due >= self.max_answers {
                return false;
            }
        }
        self.flight.push(self.queue.fetch(qp, units.config.profile.atomics.operations));
        units.counters.wqes += 1;
        true
    }

    /// Builds and sends the next packet. False if its data cannot be read: its WQE then carries the error.
    #[inline]
    fn send_packet(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) -> bool {
        let send_psn = self.flight.send_psn();
        let work = self.flight.to_send();
        if matches!(work.task, Task::Datagram(_)) {
            return self.send_datagram(qp, units, cx);
        }
        let Some(request) = Request::build(work, send_psn, qp, &units.memory, &mut cx.pool) else {
            self.flight.fail_to_send(LOCAL_KEY);
            return false;
        };
        qp.emit(units, send_psn, request.ack, request.solicited, request.body);
        self.flight.sent(request.next_psn, request.whole);
        if !qp.clock_runs()
            && let Some(patience) = self.retries.patience_ns()
        {
            qp.set_clock(&mut units.timers, cx.now + patience);
        }
        true
    }

    /// Sends the next datagram, and completes it. False if its data cannot be read: its WQE then carries the error.
    fn send_datagram(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) -> bool {
        let send_psn = self.flight.send_psn();
        let Some(packet) = datagram::packet(self.flight.to_send(), send_psn, qp, units, cx) else {
            self.flight.fail_to_send(LOCAL_KEY);
            return false;
        };
        units.send(packet);
        self.flight.sent(psn::add(send_psn, 1), true);
        self.flight.forget_sent();
        self.retire(qp, units, cx.now);
        true
    }

    /// True if the next packet may be sent. If not, the queue pair is given a turn when it may.
    #[inline]
    fn has_room(&mut self, qp: &Endpoint, units: &mut Units, cx: &mut StepContext) -> bool {
        if !cx.remote_nics.is_windowed() {
            return true;
        }
        let work = self.flight.to_send();
        let packets = match work.task {
            Task::Read { .. } => psn::distance(work.end_psn(), self.flight.send_psn()).max(1) as u32,
            _ => 1,
        };
        let idle = !self.flight.any_under_way();
        self.share.has_room(packets, idle, qp, units, cx)
    }

    /// Takes in what it has under way, after anything that may have changed it.
    #[inline]
    pub(crate) fn settle(&mut self, qp: &Endpoint, cx: &mut StepContext) {
        if cx.remote_nics.is_windowed() {
            self.share.settle(self.flight.under_way(), qp, cx);
        }
    }

    /// An ACK or NAK arrived.
    pub(crate) fn acknowledged(
        &mut self,
        at: u32,
        syndrome: u8,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) {
        let behind = psn::distance(at, self.flight.oldest());
        if behind < -1 || psn::distance(at, self.flight.next_psn()) >= 0 {
            return; // A ghost, or an old duplicate.
        }
        match syndrome >> 5 {
            0 => self.advance(at, qp, units, cx),
            3 => {
                self.advance(psn::sub(at, 1), qp, units, cx);
                if qp.state == State::Rts && self.flight.oldest() == at {
                    self.refused(syndrome, qp, units, cx);
                }
            }
            1 => {
                self.advance(psn::sub(at, 1), qp, units, cx);
                if qp.state == State::Rts && self.flight.oldest() == at {
                    self.not_ready(syndrome, qp, units, cx);
                }
            }
            _ => {} // Reserved.
        }
        want_turn_if_alive(qp, units, cx);
    }

    /// A NAK for the oldest packet.
    fn refused(&mut self, syndrome: u8, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) {
        let first = match syndrome {
            aeth::NAK_SEQUENCE => {
                if !self.flight.any_under_way() {
                    return; // Already rewound to it.
                }
                return self.retry(qp, units, cx);
            }
            aeth::NAK_INVALID_REQUEST => (Syndrome::REMOTE_INVALID_REQUEST, vendor::REMOTE_INVALID),
            aeth::NAK_REMOTE_ACCESS => (Syndrome::REMOTE_ACCESS, vendor::REMOTE_ACCESS),
            _ => (Syndrome::REMOTE_OPERATION, 0),
        };
        self.fail(first, qp, units, cx.now);
    }

    /// The receiver was not ready for the oldest packet: it is sent again after the time it asks for.
    fn not_ready(&mut self, syndrome: u8, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) {
        let Some(wait_ns) = aeth::rnr_ns(syndrome) else { return };
        if self.window == SHUT || !self.flight.any_under_way() {
            return; // Waiting already, or gone back to it already.
        }
        if !self.retries.take_rnr() {
            return self.fail(NEVER_READY, qp, units, cx.now);
        }
        self.rewind(qp, units);
        self.window = SHUT;
        qp.set_clock(&mut units.timers, cx.now + wait_ns);
    }

    /// Everything up to `upto` was received. READs and atomics need their own answers, so an acknowledgement
    /// beyond one that has none means that the answer was lost.
    fn advance(&mut self, upto: u32, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) {
        let Advance { progress, answer_lost } = self.flight.advance(upto);
        if progress {
            self.progressed(qp, units, cx.now);
        }
        if answer_lost && !self.rewound {
            self.rewound = true;
            cx.remote_nics.lost_some(qp.remote.route, cx.now);
            self.rewind(qp, units);
        }
    }

    /// `oldest` moved: completes what is done, and restarts the retry clock.
    fn progressed(&mut self, qp: &mut Endpoint, units: &mut Units, now: u64) {
        self.retries.restore();
        self.window = WINDOW;
        self.rewound = false;
        let patience = self.retries.patience_ns().filter(|_| self.flight.any_under_way());
        qp.set_clock(&mut units.timers, patience.map_or(NEVER, |patience| now + patience));
        self.retire(qp, units, now);
    }

    /// Completes finished entries from the front; a failed one that has come to the front errs the queue
    /// pair.
    fn retire(&mut self, qp: &mut Endpoint, units: &mut Units, now: u64) {
        while qp.state == State::Rts {
            if units.cqs.is_dead(self.cqn) {
                return qp.enter_error(units, now);
            }
            let Some(work) = self.flight.front() else { return };
            if let Some(error) = work.error {
                return self.fail(error, qp, units, now);
            }
            if !self.flight.front_is_done() {
                return;
            }
            let wrong = |kind: &FaultKind| match kind {
                FaultKind::CqeError { syndrome } => Some((Syndrome(*syndrome), 0)),
                _ => None,
            };
            if units.faults.any()
                && let Some(error) = units.faults.strike(wrong)
            {
                return self.fail(error, qp, units, now);
            }
            let Some(work) = self.flight.pop_done() else { return };
            self.complete_good(work, qp, units, now);
        }
    }

    fn complete_good(&mut self, work: Work, qp: &Endpoint, units: &mut Units, now: u64) {
        self.queue.free(&work);
        if work.signalled {
            let bytes = if work.wants_answer() { work.bytes } else { 0 };
            let completion = Completion::good(qp.origin(self.cqn), work.index, work.opcode, bytes);
            units.complete(completion.with_event(work.event), now);
        }
    }

    /// Completes the oldest entry with an error and puts the queue pair into ERR.
    fn fail(&mut self, (syndrome, vendor): WorkError, qp: &mut Endpoint, units: &mut Units, now: u64) {
        // An entry without packets cannot be what failed: it completes first.
        if let Some(work) = self.flight.pop_failed() {
            self.queue.free(&work);
            let from = qp.origin(self.cqn);
            units.complete(Completion::bad(from, work.index, work.opcode, syndrome, vendor), now);
        }
        qp.enter_error(units, now);
        units.raise(now, event::object(events::WQ_CATASTROPHIC, qp.qpn));
    }

    /// Goes back to the oldest unacknowledged packet.
    fn rewind(&mut self, qp: &mut Endpoint, units: &mut Units) {
        units.counters.retransmits += self.flight.rewind();
        qp.stop_clock();
    }

    /// Goes back if a retry is left, else fails.
    fn retry(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) {
        if !self.retries.take() {
            return self.fail(EXHAUSTED, qp, units, cx.now);
        }
        self.rewound = false;
        cx.remote_nics.lost_some(qp.remote.route, cx.now);
        self.rewind(qp, units);
        qp.want_turn(units, cx);
    }

    /// The retry clock ran out.
    pub(crate) fn timed_out(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) {
        if self.initiator.as_ref().is_some_and(|initiator| initiator.asks()) {
            return self.ask_again(qp, units, cx);
        }
        if self.window == SHUT {
            self.window = WINDOW;
            qp.want_turn(units, cx);
        } else if self.flight.any_under_way() || qp.is_paused(cx) {
            units.counters.timeouts += 1;
            self.retry(qp, units, cx);
            self.run_clock(qp, units, cx);
        }
    }

    /// Starts the retry clock of a queue pair if that pauses and its clock is not running: what it could not send yet
    /// counts as sent, so that a destination that stays full is noticed.
    pub(crate) fn run_clock(&mut self, qp: &mut Endpoint, units: &mut Units, cx: &StepContext) {
        if !qp.is_paused(cx) || qp.state != State::Rts || qp.clock_runs() {
            return;
        }
        let Some(patience) = self.retries.patience_ns() else { return };
        // An error needs a WQE that it is the error of.
        if !self.flight.is_empty() || self.fetch_next(qp, units) {
            qp.set_clock(&mut units.timers, cx.now + patience);
        }
    }

    /// A READ response arrived.
    pub(crate) fn read_answered(
        &mut self,
        at: u32,
        part: Part,
        payload: Payload,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) {
        let Some(entry) = self.answer_for(at, qp, units, cx) else {
            return cx.pool.give(payload);
        };
        let work = self.flight.entry(entry);
        let index = psn::distance(at, work.first_psn) as u32;
        let offset = index * qp.mtu;
        let expected = (work.bytes - offset).min(qp.mtu) as usize;
        let sound = payload.bytes().len() == expected && part.ends() == (index + 1 == work.packets);
        let Task::Read { data, .. } = (if sound { &work.task } else { &Task::Nothing }) else {
            cx.pool.give(payload);
            return self.fail((Syndrome::BAD_RESPONSE, 0), qp, units, cx.now);
        };
        if !units.scatter(qp.owner(), data, offset, payload, cx) {
            return self.fail(LOCAL_KEY, qp, units, cx.now);
        }
        self.flight.answered(entry, at);
        self.progressed(qp, units, cx.now);
        want_turn_if_alive(qp, units, cx);
    }

    /// The answer to an atomic arrived.
    pub(crate) fn atomic_answered(
        &mut self,
        at: u32,
        original: u64,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) {
        let Some(entry) = self.answer_for(at, qp, units, cx) else { return };
        let Task::Atomic { result, .. } = self.flight.entry(entry).task else {
            return self.fail((Syndrome::BAD_RESPONSE, 0), qp, units, cx.now);
        };
        let local = qp.owner().local(&units.memory, result, 0, result.bytes, Access::LocalWrite);
        let Some(span) = local else {
            return self.fail(LOCAL_KEY, qp, units, cx.now);
        };
        let mut payload = cx.pool.take(result.bytes as usize);
        atomic::write_result(original, units.config.profile.atomics.big_endian, payload.bytes_mut());
        units.place(span, payload, How::default(), cx);
        self.flight.answered(entry, at);
        self.progressed(qp, units, cx.now);
        want_turn_if_alive(qp, units, cx);
    }

    /// The entry an answer belongs to, if it is the one expected next. An answer implies that all before it
    /// was received; one beyond the next expected means that answers were lost.
    fn answer_for(
        &mut self,
        at: u32,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) -> Option<usize> {
        let flight = &self.flight;
        if psn::distance(at, flight.oldest()) < 0 || psn::distance(at, flight.next_psn()) >= 0 {
            return None;
        }
        self.advance(psn::sub(at, 1), qp, units, cx);
        if qp.state != State::Rts || self.flight.oldest() != at {
            want_turn_if_alive(qp, units, cx);
            return None;
        }
        self.flight.entry_of(at)
    }
}

fn want_turn_if_alive(qp: &mut Endpoint, units: &mut Units, cx: &mut StepContext) {
    if qp.state == State::Rts {
        qp.want_turn(units, cx);
    }
}
