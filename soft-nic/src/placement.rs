//! When an executed write becomes visible.
//!
//! A NIC's writes are posted: acknowledged before they are in memory, in order among themselves, in no order
//! with those of another NIC. READs and atomics wait for the writes posted before them. Without the fault
//! `placement-delay` the queue is empty and costs one comparison.

use crate::complete::Completion;
use crate::cx::Cx;
use crate::fault::FaultKind;
use crate::memory::{Access, Span};
use crate::nic::SoftNic;
use crate::packet::{AtomicRequest, Body, Part, Payload};
use crate::qp::Qp;
use crate::responder::AtomicWrite;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::prm::qp::qpc;
use std::collections::VecDeque;

/// How late sabotage places what it holds back.
const SABOTAGE_NS: u64 = 1_000_000;
/// How late packets land where order is off, at most.
const UNORDERED_NS: u64 = 20_000;
/// Writes up to this size count as signals.
const SIGNAL_BYTES: usize = 8;

/// What a write may do to the order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Its key has relaxed ordering.
    pub(crate) relaxed: bool,
    /// It came where order is off.
    pub(crate) unordered: bool,
}

/// A request that waits for the writes before it.
#[derive(Debug)]
pub(crate) enum Deferred {
    Read { qpn: u32, ticket: u64 },
    Atomic { qpn: u32, ticket: u64, span: Span, request: AtomicRequest },
}

/// An entry of the posted queue.
enum Posted {
    Write(Span, Payload),
    Cqe(Completion),
    Deferred(Deferred),
    /// The second half of an atomic: what it writes, and what it answers.
    Wrote {
        qpn: u32,
        ticket: u64,
        span: Span,
        write: AtomicWrite,
    },
}

/// Everything executed and not yet visible.
#[derive(Default)]
pub(crate) struct Placement {
    queue: VecDeque<(u64, Posted)>,
    /// Held back by sabotage: in no order with the rest.
    stray: Vec<(u64, Span, Payload)>,
}

impl Placement {
    pub(crate) fn next_due(&self) -> Option<u64> {
        let queued = self.queue.front().map(|(due, _)| *due);
        queued.into_iter().chain(self.stray.iter().map(|(due, ..)| *due)).min()
    }

    /// Drops the atomics of a queue pair that were accepted and not executed yet.
    pub(crate) fn drop_atomics(&mut self, gone: u32) {
        self.queue.retain(|(_, posted)| match posted {
            Posted::Deferred(Deferred::Atomic { qpn, .. }) | Posted::Wrote { qpn, .. } => *qpn != gone,
            _ => true,
        });
    }

    /// Drops writes and atomics into memory that goes away.
    pub(crate) fn forget(&mut self, memory: Span) {
        let inside = |span: &Span| {
            span.address() >= memory.address() && span.address() < memory.address() + memory.bytes()
        };
        self.queue.retain(|(_, posted)| match posted {
            Posted::Write(span, _)
            | Posted::Deferred(Deferred::Atomic { span, .. })
            | Posted::Wrote { span, .. } => !inside(span),
            _ => true,
        });
        self.stray.retain(|(_, span, _)| !inside(span));
    }
}

impl SoftNic {
    /// How long writes stay posted, if the fault is at work; counts the hit.
    #[inline]
    fn placement_delay(&mut self) -> u64 {
        if !self.faults.any() {
            return 0;
        }
        let delay = |kind: &FaultKind| match kind {
            FaultKind::PlacementDelay { by_ns, .. } => Some(*by_ns),
            _ => None,
        };
        self.faults.strike(delay).unwrap_or(0)
    }

    fn post(&mut self, posted: Posted, delay: u64, cx: &Cx) {
        self.placement.queue.push_back((cx.now + delay, posted));
    }

    /// Posts a write. A key with relaxed ordering lets small writes overtake those that wait.
    #[inline]
    pub(crate) fn place(&mut self, span: Span, payload: Payload, how: How, cx: &mut Cx) {
        let delay = self.placement_delay();
        if how.unordered {
            return self.place_unordered(span, payload, delay, cx);
        }
        let overtakes = how.relaxed && payload.bytes().len() <= SIGNAL_BYTES;
        if delay == 0 && self.placement.queue.is_empty() || overtakes {
            cx.land_payload(span, payload);
        } else {
            self.post(Posted::Write(span, payload), delay, cx);
        }
    }

    /// Posts a completion behind the writes before it.
    pub(crate) fn place_cqe(&mut self, completion: Completion, cx: &mut Cx) {
        let delay = self.placement_delay();
        let passes = self.config.quirks.reads_pass_posted_writes;
        let last = self.scattered_ns(cx);
        if passes || delay == 0 && last.is_none() && self.placement.queue.is_empty() {
            self.write_cqe(completion, cx);
        } else {
            self.post(Posted::Cqe(completion), delay.max(last.unwrap_or(0)), cx);
        }
    }

    /// True if a READ or atomic may proceed at once; else it waits for the writes before it.
    pub(crate) fn defer(&mut self, deferred: Deferred, cx: &Cx) -> bool {
        let slow = self.config.quirks.atomic_gap_ns > 0 && matches!(deferred, Deferred::Atomic { .. });
        let last = self.scattered_ns(cx);
        if self.placement.queue.is_empty() && last.is_none() && !slow {
            return true;
        }
        self.post(Posted::Deferred(deferred), last.unwrap_or(0), cx);
        false
    }

    /// How long until all that lands in any order has landed; `None` if there is nothing of it.
    fn scattered_ns(&self, cx: &Cx) -> Option<u64> {
        if !self.may_scatter() {
            return None;
        }
        self.placement.stray.iter().map(|(due, ..)| due.saturating_sub(cx.now)).max()
    }

    /// Places a packet of a write where order is off: what is small at once, the rest when it likes.
    fn place_unordered(&mut self, span: Span, payload: Payload, delay: u64, cx: &mut Cx) {
        if payload.bytes().len() <= SIGNAL_BYTES {
            return cx.land_payload(span, payload);
        }
        let spread = (span.address() ^ cx.now).wrapping_mul(0x9e37_79b9_7f4a_7c15) % UNORDERED_NS;
        self.placement.stray.push((cx.now + delay + spread, span, payload));
    }

    /// True if writes of some queue pair may land in any order.
    #[inline]
    fn may_scatter(&self) -> bool {
        let quirks = &self.config.quirks;
        quirks.out_of_order || quirks.out_of_order_inside || self.config.profile.order.may_scatter()
    }

    /// True if writes of this queue pair land in any order. What turns round inside the NIC meets no switch.
    #[inline]
    pub(crate) fn is_unordered(&self, qp: &Qp) -> bool {
        self.may_scatter()
            && (if qp.remote.address == self.source_address(qp.remote.address) {
                self.config.quirks.out_of_order_inside
            } else {
                self.config.quirks.out_of_order || self.is_routed_freely(qp)
            })
    }

    /// True if the network may deliver this queue pair's packets in any order.
    fn is_routed_freely(&self, qp: &Qp) -> bool {
        let bit = |field: Field| field.get(&qp.context) == 1;
        self.config.profile.order.scatters(bit(qpc::DP_ORDERING_FORCE), bit(qpc::DP_ORDERING_0))
    }

    /// True if QUERY_QP says that this queue pair's data may land in any order. It does not look where the packets go.
    pub(crate) fn admits_disorder(&self, qp: &Qp) -> bool {
        let quirks = &self.config.quirks;
        let odd = (quirks.out_of_order || quirks.out_of_order_inside) && !quirks.order_denied;
        odd || self.is_routed_freely(qp)
    }

    /// Where order is off, a write that came before one that was lost lands all the same. It is not executed: that is
    /// for when it is sent again.
    pub(crate) fn place_ahead(&mut self, qp: &Qp, body: &Body, cx: &mut Cx) {
        let Body::Write { part, reth, payload } = body else { return };
        if !part.starts() || !qp.responder.allows_write || !self.is_unordered(qp) {
            return;
        }
        let bytes = payload.bytes().len() as u64;
        if let Ok(Some((span, relaxed))) =
            self.remote(qp, reth.rkey, reth.address, bytes, Access::RemoteWrite)
        {
            self.place(span, payload.clone(), How { relaxed, unordered: true }, cx);
        }
    }

    /// Lets what is due become visible. True if anything did.
    pub(crate) fn run_placement(&mut self, cx: &mut Cx) -> bool {
        // What waits for all before it has the instant of the last of them: they go first.
        let mut any = self.land_strays(cx);
        while self.placement.queue.front().is_some_and(|(due, _)| *due <= cx.now) {
            let Some((_, posted)) = self.placement.queue.pop_front() else { break };
            any = true;
            match posted {
                Posted::Write(span, payload) => cx.land_payload(span, payload),
                Posted::Cqe(completion) => self.write_cqe(completion, cx),
                Posted::Deferred(Deferred::Read { qpn, ticket }) => self.deferred_done(qpn, ticket, None, cx),
                Posted::Deferred(Deferred::Atomic { qpn, ticket, span, request }) => {
                    let write = self.begin_atomic(span, request);
                    let gap_ns = u64::from(self.config.quirks.atomic_gap_ns);
                    if gap_ns == 0 {
                        write.land(span, cx);
                        self.deferred_done(qpn, ticket, Some(write.original), cx);
                    } else {
                        // At the head: whatever is behind it waits.
                        let wrote = Posted::Wrote { qpn, ticket, span, write };
                        self.placement.queue.push_front((cx.now + gap_ns, wrote));
                    }
                }
                Posted::Wrote { qpn, ticket, span, write } => {
                    write.land(span, cx);
                    self.deferred_done(qpn, ticket, Some(write.original), cx);
                }
            }
        }
        any
    }

    /// Lets what lands in any order become visible. True if anything did.
    fn land_strays(&mut self, cx: &mut Cx) -> bool {
        let (mut any, mut at) = (false, 0);
        while at < self.placement.stray.len() {
            if self.placement.stray[at].0 <= cx.now {
                let (_, span, payload) = self.placement.stray.remove(at);
                cx.land_payload(span, payload);
                any = true;
            } else {
                at += 1;
            }
        }
        any
    }

    /// Posts an inbound write as the sabotage at work wants it.
    pub(crate) fn place_sabotaged(
        &mut self,
        qpn: u32,
        part: Part,
        span: Span,
        mut payload: Payload,
        how: How,
        cx: &mut Cx,
    ) {
        let due = cx.now + SABOTAGE_NS;
        let small = payload.bytes().len() <= SIGNAL_BYTES;
        if part.starts() && !small && self.faults.held_back.is_none() {
            let swap = self.faults.find(|kind| matches!(kind, FaultKind::SwapSignal).then_some(()));
            self.faults.held_back = swap.map(|(id, ())| (qpn, id));
        }
        if let Some((held, id)) = self.faults.held_back
            && held == qpn
            && !(part.starts() && small)
        {
            self.faults.hit(id);
            if part.ends() {
                self.faults.held_back = None;
                self.faults.end(id);
            }
            return self.placement.stray.push((due, span, payload));
        }
        if !small && self.faults.strikes(|kind| matches!(kind, FaultKind::Corrupt)) {
            let middle = payload.bytes().len() / 2;
            payload.bytes_mut()[middle] ^= 0x40;
        }
        if small && self.faults.strikes(|kind| matches!(kind, FaultKind::DoubleSignal)) {
            self.placement.stray.push((due, span, payload.clone()));
        }
        self.place(span, payload, how, cx);
    }
}
