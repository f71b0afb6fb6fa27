//! The data path of a NIC: its objects and units, and the steps that move work through them.
//!
//! A step takes one queue pair at a time, and lends it the units.

use crate::config::NicConfig;
use crate::dc;
use crate::dc_target;
use crate::doorbell_page::{DoorbellLook, DoorbellPages, REGISTERS_POLLED, Rung};
use crate::event;
use crate::object_table::Table;
use crate::placement::Visible;
use crate::port::Port;
use crate::qp::QpTable;
use crate::step_context::StepContext;
use crate::transmit_scheduler::{Budget, Way};
use crate::units::Units;
use shunt_layout::mlx5::doorbell::{Arm, Doorbell};
use shunt_layout::mlx5::eqe::event as events;
use shunt_layout::mlx5::prm::qp::State;
use shunt_soft_fault::FaultKind;
use shunt_soft_wire::packet::Packet;

/// Doorbell records read in one look at a page that many queue pairs share.
const RECORDS: usize = 64;

/// Everything firmware commands make and change.
pub(crate) struct Hca {
    pub(crate) pds: Table<()>,
    pub(crate) pages: DoorbellPages,
    pub(crate) qps: QpTable,
    pub(crate) port: Port,
    pub(crate) units: Units,
    /// Queue pairs that reached RTS since the last step: they may hold doorbells.
    pub(crate) recheck: Vec<u32>,
}

impl Hca {
    pub(crate) fn new(config: NicConfig) -> Self {
        Self {
            pds: Table::starting_at(1),
            pages: DoorbellPages::default(),
            qps: QpTable::new(),
            port: Port::default(),
            units: Units::new(config),
            recheck: Vec::new(),
        }
    }

    /// Objects that were made and not destroyed.
    pub(crate) fn live_objects(&self) -> usize {
        let units = &self.units;
        let queues = units.cqs.live() + self.qps.live() + units.pools.live();
        self.pds.live() + queues + self.pages.live() + units.memory.live()
    }

    /// Nothing of it sends, lands or answers any more.
    pub(crate) fn stop(&mut self) {
        self.units.stop();
        let mut gone = self.qps.take_all();
        gone.iter_mut().for_each(|qp| qp.requester.share.let_go(&mut self.units));
    }

    /// The link changed, or not: the one that waits for events hears of it if there is another answer now.
    pub(crate) fn change_link(&mut self, now: u64, change: impl FnOnce(&mut Port) -> Option<u8>) {
        if let Some(sub_type) = change(&mut self.port) {
            self.units.raise(now, event::port_change(sub_type));
        }
    }

    /// A packet reached the NIC.
    pub(crate) fn receive(&mut self, packet: Packet, cx: &mut StepContext) {
        self.units.counters.packets_rx += 1;
        self.units.counters.bytes_rx += packet.data_bytes();
        let qpn = packet.qpn;
        if dc::is_connect(&packet) {
            return dc_target::connect(&mut self.qps, &mut self.units, packet, cx);
        }
        let Some(qp) = self.qps.get_mut(qpn) else {
            return self.units.drop_packet(packet, cx);
        };
        qp.receive(packet, &mut self.units, cx);
        fail_overrun(&mut self.qps, &mut self.units, Some(qpn), cx.now);
    }

    /// Looks at doorbell registers. True if there was anything.
    pub(crate) fn poll_doorbells(&mut self, look: DoorbellLook, cx: &mut StepContext) -> bool {
        let mut any = false;
        self.pages.begin_look();
        let mut next = 0;
        while let Some(id) = self.pages.watched(next) {
            next += 1;
            for n in 0..REGISTERS_POLLED {
                let Some(rung) = self.pages.take(look, id, n) else { continue };
                any = true;
                match rung {
                    Rung::Doorbell(value) => self.doorbell(id, value, cx),
                    Rung::Arm(value) => self.arm(id, value, cx.now),
                }
            }
            if self.pages.has_records(id) {
                any = true;
                self.read_records(id, cx);
            }
        }
        any | self.flush_late_receives(cx.now)
    }

    fn doorbell(&mut self, page: u32, value: u64, cx: &mut StepContext) {
        let units = &mut self.units;
        units.counters.doorbells += 1;
        let lost = |kind: &FaultKind| matches!(kind, FaultKind::LostDoorbell { .. });
        if units.faults.any() && units.faults.strikes(lost) {
            return;
        }
        let rung = Doorbell::from_register(value);
        // A doorbell through another page than the queue pair's own is ignored, as hardware does.
        if let Some(qp) = self.qps.get_mut(rung.qpn).filter(|qp| qp.uar == page) {
            qp.ring(Some(rung.next_index), units, cx);
        }
        self.pages.read_all_records(page);
    }

    /// Looks at some of a page's doorbell records.
    fn read_records(&mut self, page: u32, cx: &mut StepContext) {
        for _ in 0..RECORDS {
            let Some(qpn) = self.pages.next_record(page) else { break };
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.ring(None, &mut self.units, cx);
            }
        }
        self.pages.end_records(page);
    }

    /// The arm register of a doorbell page was written. It holds only the last request of all queues of the
    /// page: one that was overwritten before it was seen lives on in its doorbell record.
    fn arm(&mut self, page: u32, value: u64, now: u64) {
        let (arm, cqn) = Arm::from_register(value);
        let Some(due) = self.units.cqs.request(cqn, page, arm) else { return };
        self.notify(cqn, due, now);
        for at in 0..self.pages.armed_in(page).len() {
            let other = self.pages.armed_in(page)[at];
            let due = self.units.cqs.request_from_record(other, other != cqn);
            self.notify(other, due, now);
        }
    }

    fn notify(&mut self, cqn: u32, due: bool, now: u64) {
        if due {
            self.units.raise(now, event::object(events::COMPLETION, cqn));
        }
    }

    /// Has receive WQEs flushed that were posted to failed queue pairs. True if there were any.
    fn flush_late_receives(&mut self, now: u64) -> bool {
        let (mut any, mut at) = (false, 0);
        while let Some(qpn) = self.units.failed_receivers.get(at).copied() {
            match self.qps.get_mut(qpn).filter(|qp| qp.endpoint.state == State::Err) {
                Some(qp) => {
                    any |= qp.flush_late_receives(&mut self.units, now);
                    at += 1;
                }
                None => {
                    self.units.failed_receivers.swap_remove(at);
                }
            }
        }
        any
    }

    /// Lets queue pairs that reached RTS send what was announced before. True if there were any.
    pub(crate) fn run_recheck(&mut self, cx: &mut StepContext) -> bool {
        let any = !self.recheck.is_empty();
        while let Some(qpn) = self.recheck.pop() {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.look_again(&mut self.units, cx);
            }
        }
        any
    }

    /// Gives the queue pairs that a window refused a turn.
    pub(crate) fn let_in(&mut self, cx: &mut StepContext) {
        for qpn in self.units.transmit.take_held() {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.let_in(&mut self.units, cx);
            }
        }
    }

    /// Lets what is due become visible. True if anything did.
    pub(crate) fn run_placement(&mut self, cx: &mut StepContext) -> bool {
        let mut any = self.units.placement.land_strays(cx);
        while let Some(visible) = self.units.placement.next(&mut self.units.faults, cx) {
            any = true;
            match visible {
                Visible::Bytes => {}
                Visible::Cqe(completion) => {
                    self.units.write_cqe(completion, cx.now);
                    fail_overrun(&mut self.qps, &mut self.units, None, cx.now);
                }
                Visible::Answer { qpn, ticket, original } => {
                    if let Some(qp) = self.qps.get_mut(qpn) {
                        qp.executed(ticket, original, &mut self.units, cx);
                    }
                }
            }
        }
        any
    }

    /// Retry and flush timers that are due. True if any expired.
    pub(crate) fn run_timers(&mut self, cx: &mut StepContext) -> bool {
        let mut any = false;
        while let Some((filed_at, qpn)) = self.units.timers.pop(cx.now) {
            let Some(qp) = self.qps.get_mut(qpn) else { continue };
            if qp.endpoint.clock_ran_out(&mut self.units.timers, filed_at, cx.now) {
                qp.timer_expired(&mut self.units, cx);
                fail_overrun(&mut self.qps, &mut self.units, Some(qpn), cx.now);
                any = true;
            }
        }
        any
    }

    /// Writes late completions that are due. True if there were any.
    pub(crate) fn run_late_cqes(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(completion) = self.units.late_cqes.pop(now) {
            self.units.place_cqe(completion, now);
            fail_overrun(&mut self.qps, &mut self.units, None, now);
            any = true;
        }
        any
    }

    /// Lets queue pairs send, in turn. True if anything was sent.
    pub(crate) fn transmit(&mut self, cx: &mut StepContext) -> bool {
        let mut sent = self.send_from(Way::Loopback, cx);
        let rate = self.units.rate();
        self.units.transmit.begin(rate, cx.now, cx.catch_up_ns);
        sent |= self.send_from(Way::Wire(rate), cx);
        self.units.transmit.end();
        sent
    }

    fn send_from(&mut self, way: Way, cx: &mut StepContext) -> bool {
        let (mut budget, mut sent) = (Budget::of(way), false);
        let units = &mut self.units;
        while let Some(qpn) = units.transmit.next(&budget, cx.now) {
            let Some(qp) = self.qps.get_mut(qpn) else { continue };
            if qp.endpoint.is_paused(cx) {
                qp.pause(units, cx);
                continue;
            }
            qp.endpoint.take_turn();
            let mut more = true;
            for _ in 0..way.turn() {
                more = qp.send(units, cx);
                if !more {
                    break;
                }
                sent = true;
                budget.spend();
                if let Way::Wire(Some(gbps)) = way {
                    units.charge(gbps);
                }
            }
            // What is under way without an acknowledgement to come would keep the window shut, for others too.
            if cx.remote_nics.window(qp.endpoint.remote.route).is_some() {
                units.ask_for_ack();
            }
            if more {
                qp.endpoint.want_turn(units, cx);
            }
            fail_overrun(&mut self.qps, units, Some(qpn), cx.now);
        }
        sent
    }

    /// The earliest future instant at which a step would do something; `now` if there is work left at once. Commands
    /// are not looked at.
    pub(crate) fn next_due(&self, now: u64) -> Option<u64> {
        let units = &self.units;
        let due = [
            units.placement.next_due(),
            units.late_cqes.next_due(),
            units.timers.next_due(),
            units.events.next_due(),
            units.transmit.next_due(now),
            (!self.recheck.is_empty() || self.pages.has_unread()).then_some(now),
        ];
        due.into_iter().flatten().min()
    }
}

/// A queue without overrun-ignore overran: it is dead, and so are the queue pairs that complete there. Not the one
/// whose work it was: that sees the failure when it completes.
#[inline]
fn fail_overrun(qps: &mut QpTable, units: &mut Units, worked: Option<u32>, now: u64) {
    while let Some(cqn) = units.cqs.next_overrun() {
        for qp in qps.iter_mut() {
            let endpoint = &qp.endpoint;
            let spared = Some(endpoint.qpn) == worked || endpoint.state == State::Rst;
            if !spared && qp.completes_at(cqn) {
                qp.enter_error(units, now);
            }
        }
    }
}
