//! How a queue pair fails: the error, the state ERR, the flush of what was posted.

use crate::complete::Completion;
use crate::cx::Cx;
use crate::event;
use crate::fault::FaultKind;
use crate::fetch;
use crate::nic::SoftNic;
use crate::qp::Qp;
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_layout::mlx5::eqe::event as events;
use shunt_layout::mlx5::prm::qp::State;

impl SoftNic {
    /// Completes the oldest entry with an error and puts the queue pair into ERR.
    pub(crate) fn fail(&mut self, qp: &mut Qp, (syndrome, vendor): (Syndrome, u8), cx: &mut Cx) {
        // An entry without packets cannot be what failed: it completes first.
        if let Some(work) = qp.requester.work.pop_front() {
            qp.requester.completed += work.blocks as u64;
            let completion = Completion::bad(qp, work.index, work.opcode, syndrome, vendor);
            self.complete(completion, cx);
        }
        self.enter_error(qp, cx.now);
        self.raise(cx.now, event::object(events::WQ_CATASTROPHIC, qp.qpn));
    }

    /// Puts a queue pair into ERR: it neither sends nor answers from here on.
    pub(crate) fn enter_error(&mut self, qp: &mut Qp, now: u64) {
        qp.state = State::Err;
        qp.responder.silence();
        if qp.receive.is_some() && !self.failed_receivers.contains(&qp.qpn) {
            self.failed_receivers.push(qp.qpn);
        }
        self.flush_later(qp, now);
    }

    /// Has posted work flushed a little later, as hardware does.
    pub(crate) fn flush_later(&mut self, qp: &mut Qp, now: u64) {
        if !qp.requester.flush_due {
            qp.requester.flush_due = true;
            self.timers.set(&mut qp.requester.timer, qp.qpn, now + self.config.flush_ns);
        }
    }

    /// Completes all posted work as flushed, signalled or not.
    pub(crate) fn flush(&mut self, qp: &mut Qp, cx: &mut Cx) {
        qp.requester.flush_due = false;
        let missing = |kind: &FaultKind| matches!(kind, FaultKind::MissingFlush { .. });
        while let Some(work) = qp.requester.work.pop_front() {
            qp.requester.completed += work.blocks as u64;
            self.flush_one(qp, work.index, work.opcode, missing, cx);
        }
        qp.requester.cursor = 0;
        qp.requester.answers_due = 0;
        while qp.requester.fetched < qp.requester.announced {
            let at = qp.requester.fetched;
            let (ctrl, blocks) = fetch::ctrl_at(qp, at);
            qp.requester.fetched += blocks;
            qp.requester.completed += blocks;
            self.flush_one(qp, at as u16, ctrl.opcode, missing, cx);
        }
        while let Some(index) = qp.next_receive() {
            if !(self.faults.any() && self.faults.strikes(missing)) {
                let completion =
                    Completion::bad_receive(qp, index, Syndrome::FLUSHED, vendor::RECEIVER_FLUSH);
                self.complete(completion, cx);
            }
        }
        if qp.receive.as_mut().is_some_and(|queue| queue.takes_its_leave()) {
            self.raise(cx.now, event::object(events::LAST_WQE, qp.qpn));
        }
    }

    /// Has receive WQEs flushed that were posted to failed queue pairs: no doorbell tells of them. True if there
    /// were any.
    pub(crate) fn look_for_late_receives(&mut self, now: u64) -> bool {
        let (mut any, mut at) = (false, 0);
        while let Some(qpn) = self.failed_receivers.get(at).copied() {
            let failed = match self.take_qp(qpn) {
                Some(mut qp) => {
                    if qp.state == State::Err && qp.receives_waiting() > 0 && !qp.requester.flush_due {
                        self.flush_later(&mut qp, now);
                        any = true;
                    }
                    let failed = qp.state == State::Err;
                    self.put_qp(qp);
                    failed
                }
                None => false,
            };
            if failed {
                at += 1;
            } else {
                self.failed_receivers.swap_remove(at);
            }
        }
        any
    }

    fn flush_one(&mut self, qp: &Qp, index: u16, opcode: u8, missing: fn(&FaultKind) -> bool, cx: &mut Cx) {
        if self.faults.any() && self.faults.strikes(missing) {
            return;
        }
        let completion = Completion::bad(qp, index, opcode, Syndrome::FLUSHED, vendor::REQUESTER_FLUSH);
        self.complete(completion, cx);
    }
}
