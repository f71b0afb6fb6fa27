//! The faults at work on one NIC, and how often each struck.

use super::FaultKind;

/// One fault at work.
#[derive(Clone, Copy, Debug)]
struct Active {
    id: usize,
    kind: FaultKind,
    since_ns: u64,
}

/// All faults at work on a NIC. Empty on the common path, which asks [`Faults::any`] first.
#[derive(Default)]
pub struct Faults {
    active: Vec<Active>,
    /// By number in the plan.
    hits: Vec<u64>,
    /// Packets counted for `reorder`.
    pub passed: u64,
    /// The queue pair that `partial-write` has cut off, and packets it still hears.
    pub cut: Option<(u32, u32)>,
    /// The message that `swap-signal` holds back: queue pair and plan number.
    pub held_back: Option<(u32, usize)>,
}

impl Faults {
    /// True if any fault is at work.
    #[inline(always)]
    pub fn any(&self) -> bool {
        !self.active.is_empty()
    }

    /// A fault is at work from now on, by its number in the plan.
    pub fn start(&mut self, id: usize, kind: FaultKind, now: u64) {
        self.active.push(Active { id, kind, since_ns: now });
    }

    /// When the last `hold` at work ends; it struck.
    pub fn held_until(&mut self) -> Option<u64> {
        let until = |active: &Active| match active.kind {
            FaultKind::Hold { for_ns } => Some((active.since_ns.saturating_add(for_ns), active.id)),
            _ => None,
        };
        let (until_ns, id) = self.active.iter().filter_map(until).max()?;
        self.hit(id);
        Some(until_ns)
    }

    /// A fault is over.
    pub fn end(&mut self, id: usize) {
        self.active.retain(|active| active.id != id);
    }

    /// Counts a hit of fault `id`.
    pub fn hit(&mut self, id: usize) {
        if self.hits.len() <= id {
            self.hits.resize(id + 1, 0);
        }
        self.hits[id] += 1;
    }

    /// Hits of fault `id`.
    pub fn hits(&self, id: usize) -> u64 {
        self.hits.get(id).copied().unwrap_or(0)
    }

    /// The first fault that `select` accepts, without counting a hit.
    #[inline]
    pub fn find<R>(&self, select: impl Fn(&FaultKind) -> Option<R>) -> Option<(usize, R)> {
        if self.active.is_empty() {
            return None;
        }
        self.active.iter().find_map(|active| Some((active.id, select(&active.kind)?)))
    }

    /// The first fault that `select` accepts; it struck, and is gone if it acts once.
    #[inline]
    pub fn strike<R>(&mut self, select: impl Fn(&FaultKind) -> Option<R>) -> Option<R> {
        let (id, result) = self.find(select)?;
        self.hit(id);
        if self.active.iter().any(|active| active.id == id && active.kind.acts_once()) {
            self.end(id);
        }
        Some(result)
    }

    /// True if a fault that `select` accepts struck.
    #[inline]
    pub fn strikes(&mut self, select: impl Fn(&FaultKind) -> bool) -> bool {
        self.strike(|kind| select(kind).then_some(())).is_some()
    }

    /// True if a fault that `select` accepts is at work.
    #[inline]
    pub fn has(&self, select: impl Fn(&FaultKind) -> bool) -> bool {
        self.find(|kind| select(kind).then_some(())).is_some()
    }
}
