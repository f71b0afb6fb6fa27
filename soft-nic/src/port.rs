//! The port: whose turn it is to send, how fast, and whether there is a link.

use crate::cx::Cx;
use crate::event;
use crate::fault::FaultKind;
use crate::nic::SoftNic;
use crate::packet::{Body, Packet};
use crate::qp::Qp;
use crate::timer::NEVER;
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::qp::State;
use std::collections::VecDeque;

/// Packets one queue pair sends in a turn when the port is not rate-limited.
const TURN: u32 = 16;
/// Packets a NIC sends in one step, so that buffers in flight stay few and a step stays short.
const STEP_PACKETS: u32 = 256;

/// Transmit side of a NIC.
#[derive(Default)]
pub(crate) struct Port {
    /// The fault that took the link away, while it is away.
    pub(crate) down_by: Option<usize>,
    /// The interface that it sends through has no link.
    cut: bool,
    /// Queue pairs that want to send, by QPN: through the port, and to the NIC itself.
    wire: VecDeque<u32>,
    loopback: VecDeque<u32>,
    /// Queue pairs whose turn came while their destination was full.
    paused: Vec<u32>,
    /// Queue pairs that wait for room in the window of their destination.
    pub(crate) held: Vec<u32>,
    /// When the port is done with the last packet, in picoseconds: at 400 Gb/s a byte takes 20.
    busy_until_ps: u64,
    rate_limited: bool,
    /// Something was left to send after the last turn: only then has the port missed time it may catch up on.
    backlogged: bool,
}

impl Port {
    pub(crate) fn next_due(&self, now: u64) -> Option<u64> {
        if !self.loopback.is_empty() {
            return Some(now);
        }
        if self.wire.is_empty() {
            return None;
        }
        Some(if self.rate_limited { self.busy_until_ps.div_ceil(1000).max(now) } else { now })
    }

    /// Takes a destroyed or reset queue pair out of turn.
    pub(crate) fn forget(&mut self, qpn: u32) {
        self.wire.retain(|queued| *queued != qpn);
        self.loopback.retain(|queued| *queued != qpn);
        self.paused.retain(|queued| *queued != qpn);
        self.held.retain(|queued| *queued != qpn);
    }

    /// A destination is no longer full: all that paused try again.
    pub(crate) fn resume(&mut self) {
        self.wire.extend(self.paused.drain(..));
    }
}

impl SoftNic {
    /// Puts a queue pair in the transmit queue, unless it is there.
    #[inline]
    pub(crate) fn want_turn(&mut self, qp: &mut Qp, cx: &mut Cx) {
        if qp.queued {
            return;
        }
        qp.queued = true;
        if qp.remote.epoch != cx.epoch {
            self.resolve(qp, cx);
        }
        let queue =
            if qp.remote.route == self.number { &mut self.port.loopback } else { &mut self.port.wire };
        queue.push_back(qp.qpn);
    }

    /// Finds the NIC that owns the remote address.
    fn resolve(&self, qp: &mut Qp, cx: &mut Cx) {
        qp.remote.route = cx.route(qp.remote.address, qp.remote.mac);
        qp.remote.epoch = cx.epoch;
    }

    /// The port's own address, as packets to `remote` carry it.
    pub(crate) fn source_address(&self, remote: u128) -> u128 {
        // An address below 2^16 is a LID: the other end then knows us by ours.
        if remote >> 16 == 0 { self.config.lid as u128 } else { u128::from_be_bytes(self.config.gid) }
    }

    /// Hands a packet to the fabric.
    #[inline]
    pub(crate) fn emit(&mut self, qp: &Qp, psn: u32, ack_request: bool, solicited: bool, body: Body) {
        self.hand_over(Packet {
            from: self.number,
            to: qp.remote.route,
            source: self.source_address(qp.remote.address),
            qpn: qp.remote.qpn,
            psn,
            ack_request,
            solicited,
            body,
        });
    }

    #[inline(always)] // on the way of every packet
    pub(crate) fn hand_over(&mut self, packet: Packet) {
        self.counters.packets_tx += 1;
        self.counters.bytes_tx += packet.data_bytes();
        self.outbox.push(packet);
    }

    /// The rate of the port now, in Gb/s.
    fn rate(&self) -> Option<f64> {
        let slow = |kind: &FaultKind| match kind {
            FaultKind::Slow { gbps, .. } => Some(*gbps),
            _ => None,
        };
        let slow = self.faults.find(slow).map(|(_, gbps)| gbps);
        match (self.config.rail_gbps, slow) {
            (Some(rail), Some(slow)) => Some(rail.min(slow)),
            (rail, slow) => rail.or(slow),
        }
    }

    /// Lets queue pairs send, in turn. True if anything was sent.
    pub(crate) fn transmit(&mut self, cx: &mut Cx) -> bool {
        let mut sent = self.send_from(cx, true, None);
        let rate = self.rate();
        self.port.rate_limited = rate.is_some();
        if rate.is_some() {
            // Credit for the past is given only where the caller steps coarsely; never in virtual time.
            let missed = if self.port.backlogged { cx.catch_up_ns } else { 0 };
            let floor = cx.now.saturating_sub(missed) * 1000;
            self.port.busy_until_ps = self.port.busy_until_ps.max(floor);
        }
        sent |= self.send_from(cx, false, rate);
        self.port.backlogged = !self.port.wire.is_empty();
        sent
    }

    fn send_from(&mut self, cx: &mut Cx, loopback: bool, rate: Option<f64>) -> bool {
        let (mut budget, mut sent) = (STEP_PACKETS, false);
        while budget > 0 && (rate.is_none() || self.port.busy_until_ps <= cx.now * 1000) {
            let queue = if loopback { &mut self.port.loopback } else { &mut self.port.wire };
            let Some(qpn) = queue.pop_front() else { break };
            let Some(mut qp) = self.take_qp(qpn) else { continue };
            if self.is_paused(&qp, cx) {
                self.port.paused.push(qpn);
                self.run_clock(&mut qp, cx);
                self.put_qp(qp);
                continue;
            }
            qp.queued = false;
            let (turn, mut more) = (if rate.is_some() { 1 } else { TURN }, true);
            for _ in 0..turn {
                more = self.send_one(&mut qp, cx);
                if !more {
                    break;
                }
                sent = true;
                budget = budget.saturating_sub(1);
                self.charge(rate);
            }
            self.ask(&qp, cx);
            if more {
                self.want_turn(&mut qp, cx);
            }
            self.put_qp(qp);
        }
        sent
    }

    /// True while a queue pair that wants to send waits for room at its destination.
    pub(crate) fn is_paused(&self, qp: &Qp, cx: &Cx) -> bool {
        qp.queued && cx.outside.is_full(qp.remote.route)
    }

    /// Starts the retry clock of a queue pair if that pauses and its clock is not running: what it could not send yet
    /// counts as sent, so that a destination that stays full is noticed.
    pub(crate) fn run_clock(&mut self, qp: &mut Qp, cx: &Cx) {
        let clock = &qp.requester;
        if !self.is_paused(qp, cx)
            || qp.state != State::Rts
            || clock.timer.at != NEVER
            || clock.timeout_ns == 0
        {
            return;
        }
        // An error needs a WQE that it is the error of.
        if !qp.requester.work.is_empty() || self.fetch_next(qp) {
            let requester = &mut qp.requester;
            let at = cx.now + requester.patience_ns();
            self.timers.set(&mut requester.timer, qp.qpn, at);
        }
    }

    /// Counts the last packet against the port's rate.
    fn charge(&mut self, rate: Option<f64>) {
        if let (Some(gbps), Some(packet)) = (rate, self.outbox.last()) {
            self.port.busy_until_ps += (packet.wire_bytes() as f64 * 8000.0 / gbps) as u64;
            let slow = |kind: &FaultKind| matches!(kind, FaultKind::Slow { .. });
            if self.faults.any() {
                self.faults.strikes(slow);
            }
        }
    }

    /// Sends one packet of a queue pair: answers before requests.
    fn send_one(&mut self, qp: &mut Qp, cx: &mut Cx) -> bool {
        if qp.remote.epoch != cx.epoch {
            self.resolve(qp, cx);
        }
        self.send_answer(qp, cx) || self.send_request(qp, cx)
    }

    /// Whether the port has a link.
    pub fn has_link(&self) -> bool {
        self.port.down_by.is_none() && !self.port.cut
    }

    /// Takes the link away. True if no other fault had it.
    pub(crate) fn link_down(&mut self, now: u64, fault: usize) -> bool {
        if self.port.down_by.is_some() {
            return false;
        }
        self.change_link(now, |port| port.down_by = Some(fault));
        true
    }

    /// Gives back the link that a fault took. True if one had.
    pub(crate) fn link_up(&mut self, now: u64) -> bool {
        let was = self.port.down_by;
        self.change_link(now, |port| port.down_by = None);
        was.is_some()
    }

    /// The interface that it sends through lost its link, or has it again.
    pub(crate) fn set_carrier(&mut self, now: u64, there: bool) {
        self.change_link(now, |port| port.cut = !there);
    }

    /// Whoever waits for events hears of it if there is another answer now.
    fn change_link(&mut self, now: u64, change: impl FnOnce(&mut Port)) {
        let before = self.has_link();
        change(&mut self.port);
        match (before, self.has_link()) {
            (true, false) => self.raise(now, event::port_change(eqe::port::DOWN)),
            (false, true) => self.raise(now, event::port_change(eqe::port::ACTIVE)),
            _ => {}
        }
    }
}
