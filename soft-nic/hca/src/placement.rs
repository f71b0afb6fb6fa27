//! When an executed write becomes visible.
//!
//! A NIC's writes are posted: acknowledged before they are in memory, in order among themselves, in no order
//! with those of another NIC. READs and atomics wait for the writes posted before them. Without the fault
//! `placement-delay` the queue is empty and costs one comparison.

use crate::atomic::AtomicWrite;
use crate::completion_queue::Completion;
use crate::config::NicConfig;
use crate::memory::Span;
use crate::step_context::StepContext;
use shunt_soft_fault::{FaultKind, Faults};
use shunt_soft_wire::packet::{AtomicRequest, Part, Payload};
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

/// What became visible, and who must hear of it.
pub(crate) enum Visible {
    /// Bytes landed: nobody.
    Bytes,
    /// The completion queue.
    Cqe(Completion),
    /// A queue pair owes an answer to the request with this ticket: the value before, if it is an atomic.
    Answer { qpn: u32, ticket: u64, original: Option<u64> },
}

/// Everything executed and not yet visible.
pub(crate) struct Placement {
    queue: VecDeque<(u64, Posted)>,
    /// Held back by sabotage, or where order is off: in no order with the rest.
    stray: Vec<(u64, Span, Payload)>,
    /// READs and completions do not wait.
    reads_pass: bool,
    /// Time between the two halves of an atomic.
    atomic_gap_ns: u64,
    /// Writes of some queue pair may land in any order.
    may_scatter: bool,
}

/// How long writes stay posted, if the fault is at work; counts the hit.
#[inline]
fn delay_of(faults: &mut Faults) -> u64 {
    if !faults.any() {
        return 0;
    }
    let delay = |kind: &FaultKind| match kind {
        FaultKind::PlacementDelay { by_ns, .. } => Some(*by_ns),
        _ => None,
    };
    faults.strike(delay).unwrap_or(0)
}

impl Placement {
    /// Nothing posted, on a NIC made from `config`.
    pub(crate) fn new(config: &NicConfig) -> Self {
        Self {
            queue: VecDeque::new(),
            stray: Vec::new(),
            reads_pass: config.quirks.reads_pass_posted_writes,
            atomic_gap_ns: config.quirks.atomic_gap_ns.into(),
            may_scatter: config.may_scatter(),
        }
    }

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

    /// Nothing of it will land.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.stray.clear();
    }

    fn post(&mut self, posted: Posted, delay: u64, now: u64) {
        self.queue.push_back((now + delay, posted));
    }

    /// Posts a write. A key with relaxed ordering lets small writes overtake those that wait.
    #[inline]
    pub(crate) fn place(
        &mut self,
        span: Span,
        payload: Payload,
        how: How,
        faults: &mut Faults,
        cx: &mut StepContext,
    ) {
        let delay = delay_of(faults);
        if how.unordered {
            return self.place_unordered(span, payload, delay, cx);
        }
        let overtakes = how.relaxed && payload.bytes().len() <= SIGNAL_BYTES;
        if delay == 0 && self.queue.is_empty() || overtakes {
            cx.land_payload(span, payload);
        } else {
            self.post(Posted::Write(span, payload), delay, cx.now);
        }
    }

    /// Posts a completion behind the writes before it. Gives it back if it may be written at once.
    #[inline]
    pub(crate) fn place_cqe(
        &mut self,
        completion: Completion,
        faults: &mut Faults,
        now: u64,
    ) -> Option<Completion> {
        let delay = delay_of(faults);
        let last = self.scattered_ns(now);
        if self.reads_pass || delay == 0 && last.is_none() && self.queue.is_empty() {
            return Some(completion);
        }
        self.post(Posted::Cqe(completion), delay.max(last.unwrap_or(0)), now);
        None
    }

    /// True if a READ or atomic may proceed at once; else it waits for the writes before it.
    pub(crate) fn defer(&mut self, deferred: Deferred, now: u64) -> bool {
        let slow = self.atomic_gap_ns > 0 && matches!(deferred, Deferred::Atomic { .. });
        let last = self.scattered_ns(now);
        if self.queue.is_empty() && last.is_none() && !slow {
            return true;
        }
        self.post(Posted::Deferred(deferred), last.unwrap_or(0), now);
        false
    }

    /// How long until all that lands in any order has landed; `None` if there is nothing of it.
    fn scattered_ns(&self, now: u64) -> Option<u64> {
        if !self.may_scatter {
            return None;
        }
        self.stray.iter().map(|(due, ..)| due.saturating_sub(now)).max()
    }

    /// Places a packet of a write where order is off: what is small at once, the rest when it likes.
    fn place_unordered(&mut self, span: Span, payload: Payload, delay: u64, cx: &mut StepContext) {
        if payload.bytes().len() <= SIGNAL_BYTES {
            return cx.land_payload(span, payload);
        }
        let spread = (span.address() ^ cx.now).wrapping_mul(0x9e37_79b9_7f4a_7c15) % UNORDERED_NS;
        self.stray.push((cx.now + delay + spread, span, payload));
    }

    /// Lets the next thing that is due become visible. What waits for all before it has the instant of the last of
    /// them: [`Self::land_strays`] goes first.
    pub(crate) fn next(&mut self, faults: &mut Faults, cx: &mut StepContext) -> Option<Visible> {
        if self.queue.front()?.0 > cx.now {
            return None;
        }
        let (_, posted) = self.queue.pop_front()?;
        Some(match posted {
            Posted::Write(span, payload) => {
                cx.land_payload(span, payload);
                Visible::Bytes
            }
            Posted::Cqe(completion) => Visible::Cqe(completion),
            Posted::Deferred(Deferred::Read { qpn, ticket }) => {
                Visible::Answer { qpn, ticket, original: None }
            }
            Posted::Deferred(Deferred::Atomic { qpn, ticket, span, request }) => {
                let write = AtomicWrite::begin(span, request, faults);
                if self.atomic_gap_ns > 0 {
                    // At the head: whatever is behind it waits.
                    let wrote = Posted::Wrote { qpn, ticket, span, write };
                    self.queue.push_front((cx.now + self.atomic_gap_ns, wrote));
                    return Some(Visible::Bytes);
                }
                write.land(span, cx);
                Visible::Answer { qpn, ticket, original: Some(write.original) }
            }
            Posted::Wrote { qpn, ticket, span, write } => {
                write.land(span, cx);
                Visible::Answer { qpn, ticket, original: Some(write.original) }
            }
        })
    }

    /// Lets what lands in any order become visible. True if anything did.
    pub(crate) fn land_strays(&mut self, cx: &mut StepContext) -> bool {
        let (mut any, mut at) = (false, 0);
        while at < self.stray.len() {
            if self.stray[at].0 <= cx.now {
                let (_, span, payload) = self.stray.remove(at);
                cx.land_payload(span, payload);
                any = true;
            } else {
                at += 1;
            }
        }
        any
    }

    /// Posts an inbound write as the sabotage at work wants it.
    #[allow(clippy::too_many_arguments)] // a write, where it stands in its message, and what may be done to it
    pub(crate) fn place_sabotaged(
        &mut self,
        qpn: u32,
        part: Part,
        span: Span,
        mut payload: Payload,
        how: How,
        faults: &mut Faults,
        cx: &mut StepContext,
    ) {
        let due = cx.now + SABOTAGE_NS;
        let small = payload.bytes().len() <= SIGNAL_BYTES;
        if part.starts() && !small && faults.held_back.is_none() {
            let swap = faults.find(|kind| matches!(kind, FaultKind::SwapSignal).then_some(()));
            faults.held_back = swap.map(|(id, ())| (qpn, id));
        }
        if let Some((held, id)) = faults.held_back
            && held == qpn
            && !(part.starts() && small)
        {
            faults.hit(id);
            if part.ends() {
                faults.held_back = None;
                faults.end(id);
            }
            return self.stray.push((due, span, payload));
        }
        if !small && faults.strikes(|kind| matches!(kind, FaultKind::Corrupt)) {
            let middle = payload.bytes().len() / 2;
            payload.bytes_mut()[middle] ^= 0x40;
        }
        if small && faults.strikes(|kind| matches!(kind, FaultKind::DoubleSignal)) {
            self.stray.push((due, span, payload.clone()));
        }
        self.place(span, payload, how, faults, cx);
    }
}
