//! Whose turn it is to send, and how fast.

use std::collections::VecDeque;

/// Packets one queue pair sends in a turn when the port is not rate-limited.
const TURN: u32 = 16;
/// Packets a NIC sends in one step, so that buffers in flight stay few and a step stays short.
const STEP_PACKETS: u32 = 256;

/// Which way packets of a queue pair go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// To the NIC itself: as fast as it can.
    Loopback,
    /// Through the port, at its rate in Gb/s if it has one.
    Wire(Option<f64>),
}

impl Way {
    fn rate(self) -> Option<f64> {
        match self {
            Self::Loopback => None,
            Self::Wire(rate) => rate,
        }
    }

    /// Packets of one turn.
    pub(crate) fn turn(self) -> u32 {
        if self.rate().is_some() { 1 } else { TURN }
    }
}

/// What one step may still send, one way.
#[derive(Debug)]
pub(crate) struct Budget {
    way: Way,
    left: u32,
}

impl Budget {
    pub(crate) fn of(way: Way) -> Self {
        Self { way, left: STEP_PACKETS }
    }

    /// A packet was sent.
    #[inline]
    pub(crate) fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

/// Queue pairs that want to send, by QPN.
#[derive(Default)]
pub(crate) struct TransmitScheduler {
    wire: VecDeque<u32>,
    loopback: VecDeque<u32>,
    /// Queue pairs whose turn came while their destination was full.
    paused: Vec<u32>,
    /// Queue pairs that wait for room in the window of their destination.
    held: Vec<u32>,
    /// When the port is done with the last packet, in picoseconds: at 400 Gb/s a byte takes 20.
    busy_until_ps: u64,
    rate_limited: bool,
    /// Something was left to send after the last turn: only then has the port missed time it may catch up on.
    backlogged: bool,
}

impl TransmitScheduler {
    pub(crate) fn next_due(&self, now: u64) -> Option<u64> {
        if !self.loopback.is_empty() {
            return Some(now);
        }
        if self.wire.is_empty() {
            return None;
        }
        Some(if self.rate_limited { self.busy_until_ps.div_ceil(1000).max(now) } else { now })
    }

    /// Puts a queue pair behind the others. It must not stand there already.
    #[inline]
    pub(crate) fn push(&mut self, qpn: u32, is_loopback: bool) {
        let queue = if is_loopback { &mut self.loopback } else { &mut self.wire };
        queue.push_back(qpn);
    }

    /// Takes a destroyed or reset queue pair out of turn.
    pub(crate) fn forget(&mut self, qpn: u32) {
        self.wire.retain(|queued| *queued != qpn);
        self.loopback.retain(|queued| *queued != qpn);
        self.paused.retain(|queued| *queued != qpn);
        self.held.retain(|queued| *queued != qpn);
    }

    /// The destination of a queue pair whose turn it is is full.
    pub(crate) fn pause(&mut self, qpn: u32) {
        self.paused.push(qpn);
    }

    /// A destination is no longer full: all that paused try again.
    pub(crate) fn resume(&mut self) {
        self.wire.extend(self.paused.drain(..));
    }

    /// The window of a queue pair's destination has no room.
    pub(crate) fn hold(&mut self, qpn: u32) {
        self.held.push(qpn);
    }

    /// Those that wait for room in a window.
    pub(crate) fn take_held(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.held)
    }

    /// Begins a step in which the port sends at `rate`. It may catch up on so much time that it missed.
    pub(crate) fn begin(&mut self, rate: Option<f64>, now: u64, catch_up_ns: u64) {
        self.rate_limited = rate.is_some();
        if rate.is_some() {
            // Credit for the past is given only where the caller steps coarsely; never in virtual time.
            let missed = if self.backlogged { catch_up_ns } else { 0 };
            let floor = now.saturating_sub(missed) * 1000;
            self.busy_until_ps = self.busy_until_ps.max(floor);
        }
    }

    /// Ends it.
    pub(crate) fn end(&mut self) {
        self.backlogged = !self.wire.is_empty();
    }

    /// The queue pair whose turn it is; `None` if none wants one, the budget is spent or the port is busy.
    #[inline]
    pub(crate) fn next(&mut self, budget: &Budget, now: u64) -> Option<u32> {
        if budget.left == 0 || budget.way.rate().is_some() && self.busy_until_ps > now * 1000 {
            return None;
        }
        match budget.way {
            Way::Loopback => self.loopback.pop_front(),
            Way::Wire(_) => self.wire.pop_front(),
        }
    }

    /// Counts a packet against the port's rate.
    #[inline]
    pub(crate) fn charge(&mut self, wire_bytes: u64, gbps: f64) {
        self.busy_until_ps += (wire_bytes as f64 * 8000.0 / gbps) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round_and_what_is_gone_has_none() {
        let mut scheduler = TransmitScheduler::default();
        for qpn in [1, 2, 3] {
            scheduler.push(qpn, false);
        }
        scheduler.push(4, true);
        scheduler.forget(2);
        let wire = Budget::of(Way::Wire(None));
        assert_eq!(scheduler.next(&wire, 0), Some(1));
        scheduler.pause(1);
        assert_eq!((scheduler.next(&wire, 0), scheduler.next(&wire, 0)), (Some(3), None));
        scheduler.resume();
        assert_eq!(scheduler.next(&wire, 0), Some(1));
        assert_eq!(scheduler.next(&Budget::of(Way::Loopback), 0), Some(4));
    }

    #[test]
    fn a_rate_spaces_packets() {
        let mut scheduler = TransmitScheduler::default();
        scheduler.push(1, false);
        scheduler.push(2, false);
        let way = Way::Wire(Some(8.0));
        scheduler.begin(Some(8.0), 0, 0);
        assert_eq!((way.turn(), scheduler.next(&Budget::of(way), 0)), (1, Some(1)));
        scheduler.charge(1000, 8.0);
        assert_eq!((scheduler.next(&Budget::of(way), 999), scheduler.next_due(999)), (None, Some(1000)));
        assert_eq!(scheduler.next(&Budget::of(way), 1000), Some(2));
    }

    #[test]
    fn a_budget_ends() {
        let (mut scheduler, mut budget) = (TransmitScheduler::default(), Budget::of(Way::Loopback));
        scheduler.push(1, true);
        (0..STEP_PACKETS).for_each(|_| budget.spend());
        assert_eq!(scheduler.next(&budget, 0), None);
    }
}
