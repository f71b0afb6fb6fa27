//! The log of one agent: takes events as they are noticed, hands them on in order of time, as far as they can wait.
//!
//! Records of switches arrive when the switch is over, behind what the agent itself told meanwhile. So events are
//! held until no channel is inside a switch that began before them, and a moment longer.

use super::summary::Summary;
use super::table::{EVENTS, Event};
use std::collections::VecDeque;

/// Events kept for a reader that does not come; older ones are dropped, and that is told.
const KEPT: usize = 4096;
/// Events held back for the order at most.
const HELD: usize = 4096;
/// How far behind the clock the log is at least: a switcher reads its clock before it says that it switches.
const BEHIND_NS: u64 = 1_000_000;
/// How long an event is held at most: a channel may be without a path for long.
const HOLD_NS: u64 = 2_000_000_000;

/// An event that was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Number of the event at its PE, from 0, in the order in which they were handed on. A hole is what somebody on the
    /// way lost.
    pub number: u64,
    /// When it happened, nanoseconds on the PE's clock.
    pub at_ns: u64,
    /// PE.
    pub pe: u32,
    /// Number of the trouble it belongs to, from 1; 0 outside of any.
    pub fault: u64,
    /// The event.
    pub event: Event,
}

/// Who is told of every event, in order. Called by the agent's thread: must not wait.
pub trait Sink: Send {
    /// An event.
    fn tell(&mut self, told: &Told);
}

/// The log.
pub struct Log {
    pe: u32,
    next: u64,
    held: Vec<(u64, Event)>,
    kept: VecDeque<Told>,
    dropped: u64,
    counts: Vec<u64>,
    summary: Summary,
    /// The newest instant of an event.
    latest_ns: u64,
    /// The trouble under way: its number and its beginning.
    fault: u64,
    open: Option<u64>,
    sinks: Vec<Box<dyn Sink>>,
}

impl Log {
    /// An empty log of `pe`.
    pub fn new(pe: u32) -> Self {
        Self {
            pe,
            next: 0,
            held: Vec::new(),
            kept: VecDeque::new(),
            dropped: 0,
            counts: vec![0; EVENTS.len()],
            summary: Summary::default(),
            latest_ns: 0,
            fault: 0,
            open: None,
            sinks: Vec::new(),
        }
    }

    /// Adds somebody who is told.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    /// Takes an event that happened at `at_ns`. The log for people has one line for many of a kind, a timeline has all.
    pub fn take(&mut self, at_ns: u64, event: Event) {
        // Where traffic went is told before it goes back.
        if let Event::SwitchBack { .. } | Event::Recovered { .. } = event
            && let Some(moved) = self.summary.moved()
        {
            self.take(at_ns, moved);
        }
        self.counts[event.number()] += 1;
        self.latest_ns = self.latest_ns.max(at_ns);
        if self.summary.take(at_ns, &event) {
            event.trace(self.pe, at_ns);
        }
        self.held.push((at_ns, event));
    }

    /// Tells the sums of events that are due. To be called every few milliseconds.
    pub fn sum_up(&mut self, now_ns: u64) {
        for event in self.summary.due(now_ns) {
            self.take(now_ns, event);
        }
    }

    /// True if something waits to be handed on.
    pub fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Since when there is trouble, if there is.
    pub fn trouble_since(&self) -> Option<u64> {
        self.open
    }

    /// Hands on what happened before `switching_ns`, the beginning of the oldest switch under way.
    pub fn release(&mut self, now_ns: u64, switching_ns: Option<u64>) {
        let until = now_ns.saturating_sub(BEHIND_NS).min(switching_ns.unwrap_or(u64::MAX));
        self.release_until(until.max(now_ns.saturating_sub(HOLD_NS)));
    }

    /// Hands on everything, and the sums that are not due yet.
    pub fn release_all(&mut self) {
        for event in self.summary.rest() {
            self.take(self.latest_ns, event);
        }
        self.release_until(u64::MAX);
    }

    fn release_until(&mut self, until_ns: u64) {
        // Stable: what was taken first at one instant stays first.
        self.held.sort_by_key(|(at_ns, _)| *at_ns);
        let spill = self.held.len().saturating_sub(HELD);
        let ready = self.held.partition_point(|(at_ns, _)| *at_ns < until_ns).max(spill);
        let mut held = std::mem::take(&mut self.held);
        for (at_ns, event) in held.drain(..ready) {
            self.hand_on(at_ns, event);
        }
        self.held = held;
    }

    /// All is well again: the trouble under way ends, if there is one.
    pub fn recovered(&mut self, now_ns: u64) {
        if let Some(since) = self.open
            && self.held.is_empty()
        {
            self.take(now_ns, Event::Recovered { lasted_ns: now_ns.saturating_sub(since) });
            self.release_until(u64::MAX);
        }
    }

    fn hand_on(&mut self, at_ns: u64, event: Event) {
        if event.is_trouble() && self.open.is_none() {
            self.fault += 1;
            self.open = Some(at_ns);
        }
        let fault = if self.open.is_some() { self.fault } else { 0 };
        if let Event::Recovered { .. } = event {
            self.open = None;
        }
        let told = Told { number: self.next, at_ns, pe: self.pe, fault, event };
        self.next += 1;
        for sink in &mut self.sinks {
            sink.tell(&told);
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(told);
    }

    /// Events since the last call, in order, and how many nobody fetched in time.
    pub fn fetch(&mut self) -> (Vec<Told>, u64) {
        (self.kept.drain(..).collect(), std::mem::take(&mut self.dropped))
    }

    /// How often each event of [`EVENTS`] was told.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Events told so far.
    pub fn told(&self) -> u64 {
        self.next
    }
}
