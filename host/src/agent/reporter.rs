//! What is told of a PE: the agent's own events, and the records of device code, in one log.

use super::reader::Cursor;
use crate::events::{Event, Log, Sink, Told, of_step, of_switch};
use crate::nanos::Nanos;
use shunt_layout::state::{StepRecord, SwitchKind, SwitchRecord};
use shunt_layout::status::StatusFault;

/// Time between two looks whether all is well again, and at the links to the other agents.
const LOOK: Nanos = Nanos::millis(5);

/// What was told so far, and of whom.
pub(super) struct Reporter {
    log: Log,
    pe: u32,
    /// Records and steps that were overwritten before they were read.
    lost: u64,
    /// The last switch that a fault made, by the PE's clock.
    last_fault: Option<StatusFault>,
    /// Switch records read.
    pub(super) records: Cursor,
    /// Steps of switches read.
    pub(super) steps: Cursor,
    next_look: Nanos,
    /// By peer: since when its agent is out of reach.
    link_lost: Vec<Option<Nanos>>,
    /// By peer: it was said that it is lost.
    peer_lost: Vec<bool>,
    /// A channel ended.
    dead: bool,
}

impl Reporter {
    pub(super) fn new(pe: u32, pes: u32) -> Self {
        Self {
            log: Log::new(pe),
            pe,
            lost: 0,
            last_fault: None,
            records: Cursor::default(),
            steps: Cursor::default(),
            next_look: Nanos::ZERO,
            link_lost: vec![None; pes as usize],
            peer_lost: vec![false; pes as usize],
            dead: false,
        }
    }

    /// Tells an event.
    pub(super) fn emit(&mut self, now: Nanos, event: Event) {
        self.log.take(now.get(), event);
    }

    /// Everything told since the last call, in order, and how many were dropped because nobody asked in time.
    pub(super) fn take_events(&mut self) -> (Vec<Told>, u64) {
        self.log.fetch()
    }

    /// Adds somebody who is told of every event from here on.
    pub(super) fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.log.add_sink(sink);
    }

    /// True if it is time to look whether all is well, and at the links.
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        let due = now >= self.next_look;
        if due {
            self.next_look = now + LOOK;
        }
        due
    }

    /// Tells what device code recorded of switches, and which peers are lost: those that `is_lost` says it of, behind
    /// the record of a channel that ended.
    pub(super) fn tell_records(
        &mut self,
        now: Nanos,
        (records, lost): (Vec<SwitchRecord>, u64),
        is_lost: impl Fn(u32) -> bool,
    ) {
        self.count_lost(now, "records", lost);
        for record in &records {
            let log = &mut self.log;
            of_switch(self.pe, record, &mut |at_ns, event| log.take(at_ns, event));
            self.last_fault = fault_of(record).or(self.last_fault);
            if record.kind == SwitchKind::Dead as u32 {
                self.dead = true;
                if is_lost(record.peer) {
                    self.tell_lost(now, record.peer);
                }
            }
        }
    }

    /// The same of the steps of switches, where there are so many channels a peer.
    pub(super) fn tell_steps(&mut self, now: Nanos, (steps, lost): (Vec<StepRecord>, u64), channels: u32) {
        self.count_lost(now, "steps", lost);
        for step in &steps {
            self.log.take(step.at_ns, of_step(channels, step));
        }
    }

    fn count_lost(&mut self, now: Nanos, from: &'static str, count: u64) {
        if count > 0 {
            self.lost += count;
            self.emit(now, Event::EventsLost { from, count });
        }
    }

    /// Every channel to a peer has ended.
    fn tell_lost(&mut self, now: Nanos, peer: u32) {
        let said = self.peer_lost.get_mut(peer as usize).map(|said| std::mem::replace(said, true));
        if said == Some(false) {
            self.emit(now, Event::PeerLost { peer });
        }
    }

    /// Whether the agents' own link reaches a peer.
    pub(super) fn tell_link(&mut self, now: Nanos, peer: u32, reachable: bool) {
        let lost = &mut self.link_lost[peer as usize];
        match *lost {
            None if !reachable => {
                *lost = Some(now);
                self.emit(now, Event::AgentLinkLost { peer });
            }
            Some(since) if reachable => {
                *lost = None;
                self.emit(now, Event::AgentLinkBack { peer, lost_ns: (now - since).get() });
            }
            _ => {}
        }
    }

    /// Tells the sums of events that are due.
    pub(super) fn sum_up(&mut self, now: Nanos) {
        self.log.sum_up(now.get());
    }

    /// All is well again.
    pub(super) fn recovered(&mut self, now: Nanos) {
        self.log.recovered(now.get());
    }

    /// True if something waits to be handed on.
    pub(super) fn is_waiting(&self) -> bool {
        self.log.is_waiting()
    }

    /// Hands on what happened before the oldest switch under way.
    pub(super) fn release(&mut self, now: Nanos, switching: Option<u64>) {
        if self.log.is_waiting() {
            self.log.release(now.get(), switching);
        }
    }

    /// Hands on everything.
    pub(super) fn release_all(&mut self) {
        self.log.release_all();
    }

    /// Since when there is trouble, if there is.
    pub(super) fn trouble_since(&self) -> Option<u64> {
        self.log.trouble_since()
    }

    /// How many events were told, and how many were overwritten before they were read.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.log.told(), self.lost)
    }

    /// The last switch that a fault made, by the PE's clock.
    pub(super) fn last_fault(&self) -> Option<StatusFault> {
        self.last_fault
    }

    /// True once any channel has ended.
    pub(super) fn has_dead(&self) -> bool {
        self.dead
    }

    /// True once every channel to a peer has ended.
    pub(super) fn is_lost(&self, peer: u32) -> bool {
        self.peer_lost.get(peer as usize).is_some_and(|said| *said)
    }
}

/// The fault of a record, with the PE's own clock; none for a switch-back.
fn fault_of(record: &SwitchRecord) -> Option<StatusFault> {
    let [noticed, .., opened] = record.stamps;
    (record.kind != SwitchKind::SwitchBack as u32).then_some(StatusFault {
        noticed_unix_ns: noticed,
        lasted_ns: opened.saturating_sub(noticed),
        peer: record.peer,
        channel: record.channel,
        local_rail: record.left.local_rail,
        remote_rail: record.left.remote_rail,
        cause: record.cause,
        syndrome: record.syndrome,
        kind: record.kind,
        reserved: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of what was told.
    fn told(reporter: &mut Reporter) -> Vec<&'static str> {
        reporter.release_all();
        reporter.take_events().0.iter().map(|told| told.event.name()).collect()
    }

    #[test]
    fn a_peer_is_lost_once_and_a_link_whenever_it_is() {
        let mut reporter = Reporter::new(0, 2);
        for _ in 0..2 {
            reporter.tell_lost(Nanos::ZERO, 1);
        }
        assert!(reporter.is_lost(1) && !reporter.is_lost(0));
        for reachable in [true, false, false, true, false] {
            reporter.tell_link(Nanos::ZERO, 1, reachable);
        }
        let each = ["peer_lost", "agent_link_lost", "agent_link_back", "agent_link_lost"];
        assert_eq!(told(&mut reporter), [&each[..], &["agent_link_lost_again"]].concat());
    }

    #[test]
    fn a_peer_is_lost_with_its_last_channel() {
        // SAFETY: integers, for which zeros are a value.
        let mut record: SwitchRecord = unsafe { std::mem::zeroed() };
        (record.kind, record.peer) = (SwitchKind::Dead as u32, 1);
        let mut reporter = Reporter::new(0, 2);
        reporter.tell_records(Nanos::ZERO, (vec![record], 0), |_| false);
        assert!(reporter.has_dead() && !reporter.is_lost(1), "another channel leads there");
        reporter.tell_records(Nanos::ZERO, (vec![record, record], 0), |peer| peer == 1);
        let lost = told(&mut reporter).into_iter().filter(|name| *name == "peer_lost").count();
        assert_eq!((reporter.is_lost(1), lost), (true, 1));
    }

    #[test]
    fn what_was_overwritten_is_counted_and_told() {
        let mut reporter = Reporter::new(0, 2);
        reporter.tell_records(Nanos::ZERO, (Vec::new(), 3), |_| unreachable!("nothing ended"));
        reporter.tell_steps(Nanos::ZERO, (Vec::new(), 4), 1);
        assert_eq!((reporter.counts().1, told(&mut reporter)), (7, vec!["events_lost"; 2]));
        assert!(!reporter.has_dead());
    }
}
