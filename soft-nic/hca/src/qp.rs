//! A queue pair: two halves and what they share, and what happens to it as a whole.

use crate::datagram;
use crate::dc::Target;
use crate::endpoint::{Endpoint, Service};
use crate::object_table::Table;
use crate::requester::Requester;
use crate::responder::{Asks, Responder};
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_layout::mlx5::prm::qp::State;
use shunt_soft_wire::packet::{Body, Packet};
use shunt_soft_wire::psn;

/// First QPN handed out; each creation takes the next, none is used twice (unless a quirk wants it).
const FIRST_QPN: u32 = 0x40;

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) endpoint: Endpoint,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// Doorbell page it rings in.
    pub(crate) uar: u32,
    pub(crate) umems: [u32; 2],
    /// What a target of dynamically connected transport has.
    pub(crate) target: Option<Box<Target>>,
}

impl Qp {
    /// Back to RST: everything software did not put into the context is forgotten.
    pub(crate) fn reset(&mut self, units: &mut Units) {
        self.requester.share.let_go(units);
        self.requester.reset();
        self.responder.reset();
        self.endpoint.reset();
        units.transmit.forget(self.endpoint.qpn);
    }

    /// It is destroyed, or its NIC is gone.
    pub(crate) fn leave(&mut self, units: &mut Units) {
        self.requester.share.let_go(units);
        units.transmit.forget(self.endpoint.qpn);
    }

    /// Puts it into ERR.
    pub(crate) fn enter_error(&mut self, units: &mut Units, now: u64) {
        self.endpoint.enter_error(units, now);
        self.responder.silence();
    }

    /// The requester had its say: if that failed the queue pair, the responder is silent from now on.
    #[inline]
    fn after_requester(&mut self) {
        if self.endpoint.state == State::Err {
            self.responder.silence();
        }
    }

    /// A packet reached it.
    pub(crate) fn receive(&mut self, packet: Packet, units: &mut Units, cx: &mut StepContext) {
        let awake = match self.endpoint.state {
            State::Rts => true,
            State::Rtr => !packet.is_response(),
            _ => false,
        };
        let asks = !self.responder.is_refusing() && self.endpoint.service != Service::DcInitiator;
        let wanted = packet.is_response() || asks;
        if awake && wanted && packet.source == self.endpoint.remote.address {
            self.dispatch(packet, units, cx);
        } else if awake && self.endpoint.service == Service::Datagram {
            datagram::arrived(packet, &mut self.responder, &mut self.endpoint, units, cx);
        } else {
            units.drop_packet(packet, cx);
        }
        self.requester.settle(&self.endpoint, cx);
    }

    fn dispatch(&mut self, packet: Packet, units: &mut Units, cx: &mut StepContext) {
        let at = packet.psn & psn::MASK;
        let (requester, endpoint) = (&mut self.requester, &mut self.endpoint);
        match packet.body {
            Body::Ack { syndrome, .. } => requester.acknowledged(at, syndrome, endpoint, units, cx),
            Body::ReadResponse { part, payload, .. } => {
                requester.read_answered(at, part, payload, endpoint, units, cx);
            }
            Body::Dc(setup) => requester.dc_answered(*setup, endpoint, units, cx),
            Body::AtomicAck { original, .. } => requester.atomic_answered(at, original, endpoint, units, cx),
            body => {
                let asks = Asks { at, ack: packet.ack_request, event: packet.solicited };
                self.responder.requested(asks, body, endpoint, units, cx);
                if self.responder.owes() {
                    endpoint.want_turn(units, cx);
                }
                return;
            }
        }
        self.after_requester();
    }

    /// Sends one packet: answers before requests. False if there is nothing to send or it must wait.
    #[inline]
    pub(crate) fn send(&mut self, units: &mut Units, cx: &mut StepContext) -> bool {
        self.endpoint.remote.resolve(cx);
        if self.responder.send_answer(&mut self.endpoint, units, cx) {
            return true;
        }
        let sent = self.requester.send(&mut self.endpoint, units, cx);
        self.after_requester();
        sent
    }

    /// A doorbell rang with this index, or one may have, which then stands in the record.
    pub(crate) fn ring(&mut self, index: Option<u16>, units: &mut Units, cx: &mut StepContext) {
        if self.endpoint.state == State::Rst || !self.requester.ring(index, units) {
            return;
        }
        match self.endpoint.state {
            State::Rts => self.endpoint.want_turn(units, cx),
            State::Err => self.endpoint.flush_later(units, cx.now),
            _ => {} // Held until RTS.
        }
    }

    /// It reached RTS: what was announced before may be sent.
    pub(crate) fn look_again(&mut self, units: &mut Units, cx: &mut StepContext) {
        let (announced, fetched) = self.requester.counters();
        if self.endpoint.state == State::Rts && announced > fetched {
            self.endpoint.want_turn(units, cx);
        }
    }

    /// The window that it waited for opened.
    pub(crate) fn let_in(&mut self, units: &mut Units, cx: &mut StepContext) {
        self.requester.share.let_in();
        if self.endpoint.state == State::Rts {
            self.endpoint.want_turn(units, cx);
        }
    }

    /// Its turn came while its destination was full.
    pub(crate) fn pause(&mut self, units: &mut Units, cx: &mut StepContext) {
        units.transmit.pause(self.endpoint.qpn);
        self.requester.run_clock(&mut self.endpoint, units, cx);
    }

    /// A request that waited for the writes before it was executed.
    pub(crate) fn executed(
        &mut self,
        ticket: u64,
        original: Option<u64>,
        units: &mut Units,
        cx: &mut StepContext,
    ) {
        self.responder.answers.executed(ticket, original);
        if self.responder.owes() {
            self.endpoint.want_turn(units, cx);
        }
    }

    /// Its timer expired: the retry clock, or in ERR the flush.
    pub(crate) fn timer_expired(&mut self, units: &mut Units, cx: &mut StepContext) {
        match self.endpoint.state {
            State::Rts => {
                self.requester.timed_out(&mut self.endpoint, units, cx);
                self.after_requester();
            }
            State::Err => self.flush(units, cx.now),
            _ => {}
        }
        self.requester.settle(&self.endpoint, cx);
    }

    /// Completes all posted work as flushed.
    fn flush(&mut self, units: &mut Units, now: u64) {
        self.endpoint.begin_flush();
        self.requester.flush(&self.endpoint, units, now);
        if let Some(queue) = &mut self.responder.receive {
            queue.flush(&self.endpoint, units, now);
        }
    }

    /// Has receive WQEs flushed that were posted after it failed: no doorbell tells of them. True if there were any.
    pub(crate) fn flush_late_receives(&mut self, units: &mut Units, now: u64) -> bool {
        let waiting = self.responder.receive.as_ref().is_some_and(|queue| queue.waiting() > 0);
        let any = self.endpoint.state == State::Err && waiting && !self.endpoint.is_flush_due();
        if any {
            self.endpoint.flush_later(units, now);
        }
        any
    }

    /// True if it completes there.
    pub(crate) fn completes_at(&self, cqn: u32) -> bool {
        self.requester.cqn == cqn || self.responder.receive.as_ref().is_some_and(|queue| queue.cqn == cqn)
    }
}

/// The queue pairs of a NIC.
pub(crate) struct QpTable {
    table: Table<Box<Qp>>,
    /// Numbers to hand out again, and the ticket each goes on from (only with the quirk).
    free: Vec<(u32, u64)>,
}

impl QpTable {
    pub(crate) fn new() -> Self {
        Self { table: Table::starting_at(FIRST_QPN), free: Vec::new() }
    }

    /// The number and the first ticket of the next queue pair; `None` when all are used up.
    pub(crate) fn next_number(&self) -> Option<(u32, u64)> {
        let fresh = self.table.next_number()?;
        Some(self.free.last().copied().unwrap_or((fresh, 0)))
    }

    /// Adds a queue pair under the next number.
    pub(crate) fn add(&mut self, qp: Qp) {
        match self.free.pop() {
            Some((number, _)) => self.table.put(number, Box::new(qp)),
            None => {
                self.table.add(Box::new(qp));
            }
        }
    }

    /// A queue pair, to look at.
    pub(crate) fn get(&self, qpn: u32) -> Option<&Qp> {
        self.table.get(qpn).map(|qp| &**qp)
    }

    /// A queue pair.
    #[inline]
    pub(crate) fn get_mut(&mut self, qpn: u32) -> Option<&mut Qp> {
        self.table.get_mut(qpn).map(|qp| &mut **qp)
    }

    /// Removes a queue pair. Its number is handed out again if that is `wanted`.
    pub(crate) fn remove(&mut self, qpn: u32, wanted: bool) -> Option<Box<Qp>> {
        let qp = self.table.remove(qpn)?;
        if wanted {
            self.free.push((qpn, qp.responder.answers.next_ticket()));
        }
        Some(qp)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.table.iter().map(|qp| &**qp)
    }

    /// All of them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Qp> {
        self.table.iter_mut().map(|qp| &mut **qp)
    }

    /// How many there are.
    pub(crate) fn live(&self) -> usize {
        self.table.live()
    }

    /// Removes all.
    pub(crate) fn take_all(&mut self) -> Table<Box<Qp>> {
        std::mem::replace(&mut self.table, Table::starting_at(FIRST_QPN))
    }
}
