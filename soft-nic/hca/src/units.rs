//! The units of a NIC that all its queue pairs share: keys and memory, placement, completions, events, timers,
//! turns to send. Each is a type of its own; here is only what takes two of them.
//!
//! A queue pair at work has these and itself, and nothing of the other queue pairs.

use crate::completion_queue::{Completion, CompletionQueues, LateCqes, Outcome};
use crate::config::NicConfig;
use crate::counters::Counters;
use crate::dma::{Data, Owner, Piece};
use crate::event::{self, EQE_BYTES, Events};
use crate::memory::{Access, Memory, Span, Use};
use crate::object_table::Table;
use crate::placement::{Deferred, How, Placement};
use crate::scatter_list::{Refused, Scatter};
use crate::shared_receive::{FIRST_RMPN, SharedReceive};
use crate::step_context::StepContext;
use crate::timer::Timers;
use crate::transmit_scheduler::TransmitScheduler;
use shunt_layout::mlx5::eqe::event as events;
use shunt_soft_fault::{FaultKind, Faults};
use shunt_soft_wire::congestion::Charge;
use shunt_soft_wire::packet::{Body, Packet, Payload, aeth};

/// What the queue pairs of a NIC share.
pub(crate) struct Units {
    pub(crate) config: NicConfig,
    /// The NIC's number in the fabric.
    pub(crate) number: u32,
    pub(crate) memory: Memory,
    pub(crate) cqs: CompletionQueues,
    /// Shared receive queues.
    pub(crate) pools: Table<SharedReceive>,
    pub(crate) events: Events,
    pub(crate) placement: Placement,
    pub(crate) late_cqes: LateCqes,
    pub(crate) timers: Timers,
    pub(crate) transmit: TransmitScheduler,
    pub(crate) faults: Faults,
    pub(crate) counters: Counters,
    /// Packets that left a queue pair in this step, for the fabric to carry.
    pub(crate) outbox: Vec<Packet>,
    /// What queue pairs had under way that are no more, for the windows to forget.
    pub(crate) released: Vec<Charge>,
    /// Failed queue pairs that have a receive queue.
    pub(crate) failed_receivers: Vec<u32>,
}

impl Units {
    pub(crate) fn new(config: NicConfig) -> Self {
        Self {
            number: 0,
            memory: Memory::new(config.quirks.keys_skipped),
            cqs: CompletionQueues::new(),
            pools: Table::starting_at(FIRST_RMPN),
            events: Events::default(),
            placement: Placement::new(&config),
            late_cqes: LateCqes::default(),
            timers: Timers::default(),
            transmit: TransmitScheduler::default(),
            faults: Faults::default(),
            counters: Counters::default(),
            outbox: Vec::new(),
            released: Vec::new(),
            failed_receivers: Vec::new(),
            config,
        }
    }

    /// Nothing of it sends, lands or is told any more.
    pub(crate) fn stop(&mut self) {
        self.placement.clear();
        self.late_cqes.clear();
        self.timers = Timers::default();
        self.events = Events::default();
        self.outbox.clear();
    }

    /// Raises an event.
    pub(crate) fn raise(&mut self, now: u64, entry: [u8; EQE_BYTES]) {
        let mut due = now + self.config.event_ns;
        if self.faults.any() {
            if self.faults.strikes(|kind| matches!(kind, FaultKind::EventLost { .. })) {
                return;
            }
            let late = |kind: &FaultKind| match kind {
                FaultKind::EventLate { by_ns, .. } => Some(*by_ns),
                _ => None,
            };
            due += self.faults.strike(late).unwrap_or(0);
        }
        self.counters.events += 1;
        self.events.push(due, entry);
    }

    /// Sends a completion on its way.
    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion, now: u64) {
        if let Some(completion) = self.late_cqes.hold(completion, &mut self.faults, now) {
            self.place_cqe(completion, now);
        }
    }

    /// Posts a completion behind the writes before it.
    pub(crate) fn place_cqe(&mut self, completion: Completion, now: u64) {
        if let Some(completion) = self.placement.place_cqe(completion, &mut self.faults, now) {
            self.write_cqe(completion, now);
        }
    }

    /// Writes a CQE into its queue: the instant at which it becomes visible.
    pub(crate) fn write_cqe(&mut self, completion: Completion, now: u64) {
        let kind = match self.cqs.write(&completion, now) {
            Outcome::Dropped => return,
            Outcome::Overran => events::CQ_ERROR,
            Outcome::Written => {
                self.counters.cqes += 1;
                return;
            }
            Outcome::Notified => {
                self.counters.cqes += 1;
                events::COMPLETION
            }
        };
        self.raise(now, event::object(kind, completion.cqn()));
    }

    /// Posts a write.
    #[inline]
    pub(crate) fn place(&mut self, span: Span, payload: Payload, how: How, cx: &mut StepContext) {
        self.placement.place(span, payload, how, &mut self.faults, cx);
    }

    /// True if a READ or atomic may proceed at once; else it waits for the writes before it.
    pub(crate) fn defer(&mut self, deferred: Deferred, now: u64) -> bool {
        self.placement.defer(deferred, now)
    }

    /// Writes bytes into a scatter list at `offset`. False if no key allows it.
    pub(crate) fn scatter(
        &mut self,
        owner: Owner,
        data: &Data,
        offset: u32,
        payload: Payload,
        cx: &mut StepContext,
    ) -> bool {
        let bytes = payload.bytes().len() as u32;
        match data {
            Data::One(sge) => {
                let Some(span) = owner.local(&self.memory, *sge, offset, bytes, Access::LocalWrite) else {
                    return false;
                };
                self.place(span, payload, How::default(), cx);
            }
            Data::Many(pieces) => {
                let (mut skip, mut done) = (offset, 0);
                for piece in pieces {
                    let some = piece.bytes().saturating_sub(skip).min(bytes - done);
                    if let (Piece::Pointer(sge), true) = (piece, some > 0) {
                        let local = owner.local(&self.memory, *sge, skip, some, Access::LocalWrite);
                        let Some(span) = local else { return false };
                        let mut part = cx.pool.take(some as usize);
                        let from = done as usize;
                        part.bytes_mut().copy_from_slice(&payload.bytes()[from..from + some as usize]);
                        self.place(span, part, How::default(), cx);
                    }
                    skip = skip.saturating_sub(piece.bytes());
                    done += some;
                }
                cx.pool.give(payload);
            }
            _ => {}
        }
        true
    }

    /// Translates a remote access, or says with what it is refused. A length of zero needs no key.
    pub(crate) fn remote(
        &mut self,
        owner: Owner,
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
        let want = Use { key: rkey, pd: owner.pd, qpn: owner.qpn, address, bytes, access };
        self.memory.check(want).map(Some).ok_or(aeth::NAK_REMOTE_ACCESS)
    }

    /// Takes a WQE of a pool; `None` if there is none. Raises the event of a pool that reached its limit.
    pub(crate) fn take_shared(&mut self, rmpn: u32, now: u64) -> Option<(u16, Result<Scatter, Refused>)> {
        let pool = self.pools.get_mut(rmpn)?;
        if pool.waiting() == 0 {
            return None;
        }
        let taken = pool.take();
        self.look_at_limit(rmpn, now);
        Some(taken)
    }

    /// Raises the event of a pool that holds fewer WQEs than its limit, once.
    pub(crate) fn look_at_limit(&mut self, rmpn: u32, now: u64) {
        if self.pools.get_mut(rmpn).is_some_and(|pool| pool.limit_reached()) {
            self.raise(now, event::object(events::RQ_LIMIT, rmpn));
        }
    }

    /// Hands a packet to the fabric.
    #[inline(always)] // on the way of every packet
    pub(crate) fn send(&mut self, packet: Packet) {
        self.counters.packets_tx += 1;
        self.counters.packets_looped += u64::from(packet.to == packet.from);
        self.counters.bytes_tx += packet.data_bytes();
        self.outbox.push(packet);
    }

    /// A packet goes nowhere.
    pub(crate) fn drop_packet(&mut self, packet: Packet, cx: &mut StepContext) {
        self.counters.dropped += 1;
        packet.recycle(&mut cx.pool);
    }

    /// Has the last request that was sent ask for an acknowledgement.
    pub(crate) fn ask_for_ack(&mut self) {
        if let Some(last) = self.outbox.last_mut()
            && matches!(last.body, Body::Write { .. } | Body::WriteImm { .. } | Body::Send { .. })
        {
            last.ack_request = true;
        }
    }

    /// The rate of the port now, in Gb/s.
    pub(crate) fn rate(&self) -> Option<f64> {
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

    /// Counts the last packet against the rate of the port.
    pub(crate) fn charge(&mut self, gbps: f64) {
        let Some(packet) = self.outbox.last() else { return };
        self.transmit.charge(packet.wire_bytes(), gbps);
        if self.faults.any() {
            self.faults.strikes(|kind| matches!(kind, FaultKind::Slow { .. }));
        }
    }
}
