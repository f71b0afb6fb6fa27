//! The plan: which fault starts and ends when.

use super::FaultKind;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

/// Which rail of which PE; written `pe.rail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RailAt {
    /// The PE.
    pub pe: u32,
    /// Its rail.
    pub rail: u32,
}

impl fmt::Display for RailAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pe, self.rail)
    }
}

/// A planned fault and how often it struck.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultReport {
    /// When it starts; [`WAITS`] while that is not known.
    pub at_ns: u64,
    /// Where.
    pub at: RailAt,
    /// What.
    pub kind: FaultKind,
    /// How often it changed anything.
    pub hits: u64,
}

/// Start of a fault that waits for packets.
pub const WAITS: u64 = u64::MAX;

/// A planned fault.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// When it starts; [`WAITS`] until then, if it waits for packets.
    pub at_ns: u64,
    /// Where.
    pub at: RailAt,
    /// What.
    pub kind: FaultKind,
}

/// What happens to a fault at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It starts.
    Start,
    /// A `flap` takes the link away.
    FlapDown,
    /// A `flap` gives the link back.
    FlapUp,
    /// It is over.
    End,
}

/// All planned faults.
#[derive(Default)]
pub struct Plan {
    entries: Vec<Planned>,
    /// Faults that wait, and for how many packets of their NIC.
    waiting: Vec<(usize, u64)>,
    /// Instant, order of planning, fault, step.
    steps: BinaryHeap<Reverse<(u64, u64, usize, Step)>>,
    filed: u64,
}

impl Plan {
    /// Plans one more.
    pub fn add(&mut self, planned: Planned) {
        let id = self.entries.len();
        self.entries.push(planned);
        self.file(planned.at_ns, id, Step::Start);
    }

    /// Plans one more, which starts when its NIC has sent so many packets.
    pub fn add_after(&mut self, packets: u64, at: RailAt, kind: FaultKind) {
        self.waiting.push((self.entries.len(), packets));
        self.entries.push(Planned { at_ns: WAITS, at, kind });
    }

    /// Starts what has waited for packets long enough, by how many a NIC has `sent`.
    pub fn count(&mut self, now: u64, sent: impl Fn(RailAt) -> u64) {
        let entries = &mut self.entries;
        let due = self.waiting.extract_if(.., |(id, packets)| sent(entries[*id].at) >= *packets);
        for (id, _) in due.collect::<Vec<_>>() {
            self.entries[id].at_ns = now;
            self.file(now, id, Step::Start);
        }
    }

    fn file(&mut self, at: u64, id: usize, step: Step) {
        self.filed += 1;
        self.steps.push(Reverse((at, self.filed, id, step)));
    }

    /// The next step due at `now`; what follows from it is filed.
    pub fn pop(&mut self, now: u64) -> Option<(usize, Planned, Step)> {
        let Reverse((at, ..)) = *self.steps.peek()?;
        if at > now {
            return None;
        }
        let Reverse((_, _, id, step)) = self.steps.pop()?;
        let planned = self.entries[id];
        if step == Step::Start {
            if let Some(for_ns) = planned.kind.duration() {
                self.file(now.saturating_add(for_ns), id, Step::End);
            }
            if let FaultKind::Flap { period_ns, count } = planned.kind {
                for k in 0..count as u64 {
                    let down = now.saturating_add(period_ns.saturating_mul(k));
                    self.file(down, id, Step::FlapDown);
                    self.file(down.saturating_add(period_ns / 2), id, Step::FlapUp);
                }
            }
        }
        Some((id, planned, step))
    }

    /// When the next step is due.
    pub fn next_due(&self) -> Option<u64> {
        self.steps.peek().map(|Reverse((at, ..))| *at)
    }

    /// All that were planned, by number.
    pub fn entries(&self) -> &[Planned] {
        &self.entries
    }
}
