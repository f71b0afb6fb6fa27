//! All that was reported of a run, no matter which PE lived to report it, and what it adds up to. Pure.

use super::entry::Entry;
use crate::nics::{Medium, RailCounters};
use crate::options::{DeviceKind, SignalKind};
use crate::report::{Counts, Ended, Raw};
use shunt_figures::lines::FaultLine;
use shunt_figures::rail_stats::Carried;
use shunt_figures::switch_table::{Pathless, Planned, lines};
use shunt_figures::timeline::longest_silence;
use shunt_layout::state::SwitchRecord;
use shunt_oracle::checker::Findings;
use shunt_soft_nic::fault::{Fault, Injection, PeFault};
use shunt_soft_nic::{FaultKind, RailAt, WordWatch};
use std::collections::BTreeMap;

/// Most bins a process may report: an hour's, and what a drain may add.
const BINS_MAX: usize = 1 << 20;

/// What one process reported.
#[derive(Debug, Default)]
struct Part {
    bins: Vec<u64>,
    records_lost: u64,
    end_ns: Option<u64>,
}

/// What is known of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct Both {
    posted: Option<u64>,
    misread: u64,
    received: Option<(Findings, u64)>,
    signal: Option<WordWatch>,
    credit: Option<WordWatch>,
}

/// What a run is, as far as its sums go.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Processes.
    pub processes: u32,
    /// Where the senders' kernels run.
    pub device: DeviceKind,
    /// Streams.
    pub streams: usize,
    /// Payload of one put.
    pub put_bytes: u64,
    /// Silence counts from here on, measured from the start of the stream.
    pub warm_up_ns: u64,
    /// False where there are signals alone.
    pub puts: bool,
    /// What the signals are.
    pub signal: SignalKind,
    /// What was planned.
    pub plan: Vec<Injection>,
    /// The seed.
    pub seed: u64,
    /// More threads than cores.
    pub oversubscribed: bool,
    /// What carries the packets.
    pub medium: Medium,
}

/// All parts of a run.
#[derive(Debug)]
pub struct Book {
    shape: Shape,
    parts: Vec<Part>,
    streams: Vec<Both>,
    records: Vec<(u32, SwitchRecord)>,
    pathless: Vec<Pathless>,
    hits: Vec<u64>,
    counters: BTreeMap<RailAt, RailCounters>,
    carried: Carried,
    generations: BTreeMap<u32, (u64, u64)>,
    /// By PE and channel.
    uncertain: BTreeMap<(u32, u32), u64>,
    ended: Option<(u8, Ended)>,
    first_path: String,
}

impl Book {
    /// An empty one.
    pub fn new(shape: Shape) -> Self {
        Self {
            parts: (0..shape.processes).map(|_| Part::default()).collect(),
            streams: vec![Both::default(); shape.streams],
            records: Vec::new(),
            pathless: Vec::new(),
            hits: vec![0; shape.plan.len()],
            counters: BTreeMap::new(),
            carried: Carried::new(&shape.plan),
            generations: BTreeMap::new(),
            uncertain: BTreeMap::new(),
            ended: None,
            first_path: String::new(),
            shape,
        }
    }

    /// Takes what `rank` reports. What names something that is not there is left out: one report must not spoil all.
    pub fn take(&mut self, rank: u32, entry: Entry) {
        let Some(part) = self.parts.get_mut(rank as usize) else { return };
        let stream = |streams: &'_ mut Vec<Both>, stream: u32, set: &mut dyn FnMut(&mut Both)| {
            streams.get_mut(stream as usize).into_iter().for_each(set);
        };
        match entry {
            Entry::Record(pe, switch) => self.records.push((pe, switch.0)),
            Entry::Pathless(found) => {
                if !self.pathless.contains(&found) {
                    self.pathless.push(found);
                }
            }
            Entry::RecordsLost(count) => part.records_lost = count,
            Entry::Bins { first, bytes } => {
                let (first, end) = (first as usize, first as usize + bytes.len());
                if end <= BINS_MAX {
                    part.bins.resize(part.bins.len().max(end), 0);
                    part.bins[first..end].copy_from_slice(&bytes);
                }
            }
            Entry::Hits { fault, hits } => {
                if let Some(known) = self.hits.get_mut(fault as usize) {
                    *known = hits.max(*known);
                }
            }
            Entry::Counters { at, at_ns, counters } => {
                counters.bytes_tx.into_iter().for_each(|bytes| self.carried.take(at, at_ns, bytes));
                self.counters.insert(at, counters);
            }
            Entry::Generations { pe, failovers, switchbacks } => {
                self.generations.insert(pe, (failovers, switchbacks));
            }
            Entry::Sent { stream: id, puts, misread } => stream(&mut self.streams, id, &mut |both| {
                (both.posted, both.misread) = (Some(puts), misread);
            }),
            Entry::Uncertain { pe, channel, count } => {
                self.uncertain.insert((pe, channel), count);
            }
            Entry::Received { stream: id, findings, gap_ns } => {
                stream(&mut self.streams, id, &mut |both| both.received = Some((findings, gap_ns)));
            }
            Entry::Word { stream: id, credit, watch } => stream(&mut self.streams, id, &mut |both| {
                *(if credit { &mut both.credit } else { &mut both.signal }) = Some(watch);
            }),
            Entry::Ended(rank, why) => {
                if self.ended.as_ref().is_none_or(|(before, _)| rank < *before) {
                    self.ended = Some((rank, why));
                }
            }
            Entry::FirstPath(path) => self.first_path = path,
            Entry::End(at_ns) => part.end_ns = Some(at_ns),
        }
    }

    /// Bytes delivered per bin, over all processes.
    pub fn bins(&self) -> Vec<u64> {
        let length = self.parts.iter().map(|part| part.bins.len()).max().unwrap_or(0);
        let sum = |bin: usize| self.parts.iter().filter_map(|part| part.bins.get(bin)).sum();
        (0..length).map(sum).collect()
    }

    /// Counters of every rail that was heard of.
    pub fn counters(&self) -> impl Iterator<Item = (RailAt, RailCounters)> + '_ {
        self.counters.iter().map(|(at, counters)| (*at, *counters))
    }

    /// Number of switch records so far.
    pub fn switches(&self) -> usize {
        self.records.len()
    }

    /// Switches from the one of this number on, in order of arrival.
    pub fn lines_from(&self, first: usize) -> Vec<shunt_figures::switch_table::SwitchLine> {
        let one = |record: &(u32, SwitchRecord)| lines(&[*record], &self.planned(), &self.pathless);
        self.records.iter().skip(first).flat_map(one).collect()
    }

    /// Records that were overwritten before they were read.
    pub fn records_lost(&self) -> u64 {
        self.parts.iter().map(|part| part.records_lost).sum()
    }

    /// Why the run ended early, as far as is known.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref().map(|(_, ended)| ended)
    }

    /// What a switch may notice: a port that comes up fails no path, and of the faults of a whole PE only its death
    /// does.
    fn planned(&self) -> Vec<Planned> {
        let harmful = |injection: &&Injection| match injection.fault {
            Fault::Nic(kind) => kind != FaultKind::Up,
            Fault::Pe(fault) => fault == PeFault::PeerKilled,
            Fault::Exec(_) => true,
        };
        let planned = |i: &Injection| Planned { at_ns: i.at_ns, pe: i.pe, rail: i.rail };
        self.shape.plan.iter().filter(harmful).map(planned).collect()
    }

    /// Everything, to be judged.
    pub fn raw(&self) -> Raw {
        let line = |(injection, hits): (&Injection, &u64)| FaultLine {
            at_ms: injection.at_ns as f64 / 1e6,
            place: place(injection),
            kind: injection.fault.to_string(),
            hits: *hits,
        };
        Raw {
            counts: self.counts(),
            end_ns: self.end_ns(),
            spread: self.carried.spread(&self.bins(), self.end_ns()),
            bins: self.bins(),
            switches: lines(&self.records, &self.planned(), &self.pathless),
            faults: self.shape.plan.iter().zip(&self.hits).map(line).collect(),
            first_path: self.first_path.clone(),
            ended: self.ended().cloned(),
            oversubscribed: self.shape.oversubscribed,
            processes: self.shape.processes,
            device: self.shape.device,
            seed: self.shape.seed,
            medium: self.shape.medium,
            repeats_show: self.shape.medium.counts_placements() || self.shape.signal != SignalKind::Monotone,
        }
    }

    fn end_ns(&self) -> u64 {
        self.parts.iter().filter_map(|part| part.end_ns).min().unwrap_or(0)
    }

    /// Who reports what the receiver of a stream sees: PE 2k + 1, or the one process there is.
    fn receiver(&self, stream: usize) -> usize {
        let pairs = (self.shape.processes / 2) as usize;
        if pairs == 0 { 0 } else { 2 * (stream * pairs / self.streams.len()) + 1 }
    }

    /// Longest time between deliveries at a receiver. One that did not live to tell is known by its bins.
    fn gap_ns(&self, stream: usize) -> Option<u64> {
        if let Some((_, gap_ns)) = self.streams[stream].received {
            // Nothing was measured: two deliveries never have one time.
            return (gap_ns > 0).then_some(gap_ns);
        }
        let bins = self.parts.get(self.receiver(stream)).map_or(&[][..], |part| &part.bins);
        longest_silence(bins, self.shape.warm_up_ns, self.end_ns())
    }

    fn counts(&self) -> Counts {
        let gaps = (0..self.streams.len()).filter_map(|stream| self.gap_ns(stream));
        let mut counts = Counts { max_gap_ns: gaps.max(), ..Counts::default() };
        let bytes = self.shape.put_bytes;
        // Seen by receivers that did not live to tell what they found.
        let mut untold: u64 = self.bins().iter().sum();
        for both in &self.streams {
            let found = both.received.map(|(found, _)| found);
            // A sender that is gone had posted what arrived, and nobody knows what else.
            let posted = both.posted.unwrap_or(found.map_or(0, |found| found.puts));
            counts.bytes_posted += posted * bytes;
            counts.signals_posted += posted;
            if let Some(found) = found {
                untold = untold.saturating_sub(found.puts * bytes);
                counts.bytes_delivered += found.puts.min(posted).saturating_sub(found.lost) * bytes;
                if self.shape.puts {
                    counts.puts_lost += posted.saturating_sub(found.puts) + found.lost;
                }
                counts.signals_wild += found.wild;
                counts.order_violations += found.late;
                counts.ghost_writes += found.ghosts;
            }
            counts.misread += both.misread;
            self.count_signals(both, &mut counts);
        }
        counts.uncertain = self.uncertain.values().sum();
        if self.streams.iter().any(|both| both.received.is_none()) {
            counts.bytes_delivered += untold;
        }
        // A put was delivered because its signal had been applied; where words were watched, they have been counted.
        if self.streams.iter().any(|both| both.received.is_none() && both.signal.is_none()) {
            counts.signals_applied += untold.checked_div(bytes).unwrap_or(0);
        }
        for (failovers, switchbacks) in self.generations.values() {
            counts.failovers += failovers;
            counts.switchbacks += switchbacks;
        }
        counts
    }
}

impl Book {
    fn count_signals(&self, both: &Both, counts: &mut Counts) {
        let found = both.received.map(|(found, _)| found).unwrap_or_default();
        let (signal, credit) = (both.signal.unwrap_or_default(), both.credit.unwrap_or_default());
        let tapped = self.shape.medium.counts_placements();
        counts.signals_applied += match self.shape.signal {
            SignalKind::Monotone if tapped => signal.writes - signal.not_increasing.min(signal.writes),
            // A monotone word that stands at a value has taken all up to it, or all that matter; a word that counts,
            // and words that are cleared, tell of each.
            _ if both.received.is_some() => found.puts,
            _ => signal.writes,
        };
        // What the tap saw and what the receiver saw may be the same event: the larger count is the truth.
        let again = match (self.shape.signal, both.posted) {
            (SignalKind::Monotone, _) => signal.not_increasing,
            (_, Some(posted)) if tapped => signal.writes.saturating_sub(posted),
            _ => 0,
        };
        counts.signals_duplicated += again.max(found.backwards + found.again) + credit.not_increasing;
    }
}

/// `0.1`, or `0` for a whole PE.
fn place(injection: &Injection) -> String {
    match injection.rail {
        Some(rail) => format!("{}.{rail}", injection.pe),
        None => injection.pe.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_figures::timeline::BIN_NS;

    fn book(plan: &[&str]) -> Book {
        Book::new(Shape {
            processes: 2,
            device: DeviceKind::Cpu,
            streams: 2,
            put_bytes: 10,
            warm_up_ns: 0,
            puts: true,
            signal: SignalKind::Monotone,
            plan: plan.iter().map(|text| text.parse().unwrap()).collect(),
            seed: 1,
            oversubscribed: false,
            medium: Medium::Soft,
        })
    }

    fn received(stream: u32, puts: u64, lost: u64) -> Entry {
        Entry::Received { stream, findings: Findings { puts, lost, ..Findings::default() }, gap_ns: 7 }
    }

    #[test]
    fn ends_of_one_stream_come_from_two_processes() {
        let mut book = book(&[]);
        for stream in 0..2 {
            book.take(0, Entry::Sent { stream, puts: 8, misread: 0 });
            book.take(1, received(stream, 7, 1));
        }
        book.take(1, Entry::Bins { first: 1, bytes: vec![70, 70] });
        book.take(0, Entry::End(50));
        book.take(1, Entry::End(40));
        let raw = book.raw();
        let counts = &raw.counts;
        assert_eq!((counts.bytes_posted, counts.bytes_delivered, counts.puts_lost), (160, 120, 4));
        assert_eq!((raw.bins, raw.end_ns, counts.max_gap_ns), (vec![0, 70, 70], 40, Some(7)));
    }

    #[test]
    fn what_the_dead_had_received_is_known_by_its_bins_and_nothing_of_it_is_lost() {
        let mut book = book(&["10ms:1:peer-killed"]);
        book.take(0, Entry::Sent { stream: 0, puts: 8, misread: 0 });
        book.take(1, Entry::Bins { first: 0, bytes: vec![50, 10] });
        book.take(0, Entry::Hits { fault: 0, hits: 1 });
        book.take(0, Entry::Ended(3, Ended::Stalled("ended by another kernel".into())));
        book.take(0, Entry::Ended(0, Ended::Stalled("first".into())));
        let raw = book.raw();
        assert_eq!((raw.counts.bytes_delivered, raw.counts.puts_lost), (60, 0));
        assert_eq!((raw.counts.signals_applied, raw.counts.max_gap_ns), (6, None));
        // The one process of both PEs watched the words itself.
        let watch = WordWatch { writes: 7, last: 7, not_increasing: 0 };
        (0..2).for_each(|stream| book.take(1, Entry::Word { stream, credit: false, watch }));
        assert_eq!(book.raw().counts.signals_applied, 14);
        assert_eq!((raw.faults[0].hits, raw.faults[0].place.as_str()), (1, "1"));
        assert_eq!(raw.ended, Some(Ended::Stalled("first".into())));
    }

    #[test]
    fn hardware_tells_no_placements_and_signals_are_counted_by_the_value_that_was_seen() {
        let mut shape = book(&[]).shape;
        shape.medium = Medium::ConnectX;
        let mut book = Book::new(shape);
        for stream in 0..2 {
            book.take(0, Entry::Sent { stream, puts: 8, misread: 0 });
            book.take(1, received(stream, 8, 0));
        }
        let raw = book.raw();
        assert_eq!(
            (raw.counts.signals_posted, raw.counts.signals_applied, raw.medium),
            (16, 16, Medium::ConnectX)
        );
    }

    #[test]
    fn silence_at_a_receiver_that_is_gone_is_a_gap_and_an_unknown_one_is_none() {
        let mut book = book(&[]);
        assert_eq!(book.raw().counts.max_gap_ns, None, "no PE reported");
        book.take(0, Entry::End(5 * BIN_NS + 7));
        book.take(1, Entry::Bins { first: 0, bytes: vec![10, 10, 0, 10] });
        assert_eq!(book.raw().counts.max_gap_ns, Some(BIN_NS + 7), "from the last delivery to the end");
        book.take(1, received(0, 1, 0));
        book.take(1, received(1, 1, 0));
        assert_eq!(book.raw().counts.max_gap_ns, Some(7), "the receivers know better");
    }

    #[test]
    fn what_names_nothing_that_is_there_changes_nothing() {
        let mut book = book(&[]);
        let before = format!("{:?}", book.raw());
        book.take(9, Entry::End(1));
        book.take(1, received(7, 1, 1));
        book.take(1, Entry::Hits { fault: 3, hits: 1 });
        book.take(1, Entry::Bins { first: u32::MAX, bytes: vec![1] });
        assert_eq!(format!("{:?}", book.raw()), before);
    }
}
