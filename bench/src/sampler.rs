//! Looks at what lives in this process while a run goes on, and reports what is new.

use crate::cluster::Cluster;
use crate::faults::Faults;
use crate::job::entry::{Entry, Switch};
use crate::kernel::Control;
use shunt_figures::switch_table::Pathless;
use shunt_figures::timeline::{BIN_NS, Timeline};
use shunt_host::agent::reader::Cursor;
use shunt_layout::state::SwitchRecord;

/// Between two looks at what is only summed up.
const SUMS_NS: u64 = 50_000_000;
/// Bins that a thread may still add to when their time is over: it stamps first and adds then.
const LATE_BINS: usize = 50;

/// What has been reported already.
pub struct Observer<'r> {
    cluster: &'r Cluster,
    control: &'r Control,
    timeline: &'r Timeline,
    /// By PE that lives here: number of the next record.
    records: Vec<Cursor>,
    lost: u64,
    pathless: Vec<Pathless>,
    generations: Vec<(u64, u64)>,
    bins: Vec<u64>,
    hits: Vec<(usize, u64)>,
    next_sums_ns: u64,
}

impl<'r> Observer<'r> {
    /// Nothing was reported yet.
    pub fn new(cluster: &'r Cluster, control: &'r Control, timeline: &'r Timeline) -> Self {
        let units = cluster.units().count();
        Self {
            cluster,
            control,
            timeline,
            records: vec![Cursor::default(); units],
            lost: 0,
            pathless: Vec::new(),
            generations: vec![(0, 0); units],
            bins: Vec::new(),
            hits: Vec::new(),
            next_sums_ns: 0,
        }
    }

    /// What is new.
    pub fn look(&mut self, now_ns: u64, faults: &Faults<'_>) -> Vec<Entry> {
        let mut out = Vec::new();
        self.look_at_switches(&mut out);
        let over = (now_ns.saturating_sub(self.control.start_ns) / BIN_NS) as usize;
        self.look_at_bins(over.saturating_sub(LATE_BINS)..over + 1, &mut out);
        if now_ns >= self.next_sums_ns {
            self.next_sums_ns = now_ns + SUMS_NS;
            self.look_at_sums(now_ns, faults, &mut out);
        }
        out
    }

    /// Everything that is not reported yet, once all kernels have ended.
    pub fn last(&mut self, now_ns: u64, faults: &Faults<'_>) -> Vec<Entry> {
        let mut out = Vec::new();
        self.look_at_switches(&mut out);
        self.look_at_bins(0..usize::MAX, &mut out);
        self.look_at_sums(now_ns, faults, &mut out);
        out
    }

    fn look_at_switches(&mut self, out: &mut Vec<Entry>) {
        for (at, (pe, unit)) in self.cluster.units().enumerate() {
            // What a PE writes is stamped by its own clock.
            let since_start = |ns: u64| unit.clock().below_ns(ns).saturating_sub(self.control.start_ns);
            // Channels without a path before records: what ends a wait comes after it.
            for seen in unit.pathless() {
                let seen = Pathless { since_ns: since_start(seen.since_ns), ..seen };
                if !self.pathless.contains(&seen) {
                    self.pathless.push(seen);
                    out.push(Entry::Pathless(seen));
                }
            }
            let (new, lost) = unit.records_since(&mut self.records[at]);
            for record in new {
                let stamps = record.stamps.map(since_start);
                out.push(Entry::Record(pe, Box::new(Switch(SwitchRecord { stamps, ..record }))));
            }
            if lost > 0 {
                self.lost += lost;
                out.push(Entry::RecordsLost(self.lost));
            }
        }
    }

    fn look_at_bins(&mut self, which: std::ops::Range<usize>, out: &mut Vec<Entry>) {
        let first = which.start;
        let now = self.timeline.range(which);
        let end = first + now.len();
        self.bins.resize(self.bins.len().max(end), 0);
        let changed = |bin: &usize| now[bin - first] != self.bins[*bin];
        let Some(from) = (first..end).find(changed) else { return };
        let to = (first..end).rev().find(changed).unwrap_or(from);
        let bytes = &now[from - first..=to - first];
        self.bins[from..=to].copy_from_slice(bytes);
        out.push(Entry::Bins { first: from as u32, bytes: bytes.to_vec() });
    }

    fn look_at_sums(&mut self, now_ns: u64, faults: &Faults<'_>, out: &mut Vec<Entry>) {
        for (at, (pe, unit)) in self.cluster.units().enumerate() {
            let now = unit.generations();
            if now != self.generations[at] {
                self.generations[at] = now;
                let (failovers, switchbacks) = now;
                out.push(Entry::Generations { pe, failovers, switchbacks });
            }
        }
        for (number, hits) in faults.hits() {
            if hits > 0 && !self.hits.contains(&(number, hits)) {
                self.hits.push((number, hits));
                out.push(Entry::Hits { fault: number as u32, hits });
            }
        }
        let counters = self.cluster.counters().into_iter();
        // Rails are compared with each other: one time for all.
        let at_ns = now_ns.saturating_sub(self.control.start_ns);
        out.extend(counters.map(|(at, counters)| Entry::Counters { at, at_ns, counters }));
    }
}
