//! How the payload was spread over the sending rails, in each phase of a run between two faults of rails. Pure.

use crate::timeline::{WARM_UP_NS, mean_gb_s};
use schemars::JsonSchema;
use serde::Serialize;
use shunt_soft_fault::{Injection, RailAt};
use std::collections::BTreeMap;
use std::fmt;

/// From one planned fault of a rail to the next. Its figures begin 100 ms after it: what the switch itself costs stands
/// in its stages.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    from_ns: u64,
    to_ns: u64,
    after: String,
}

/// Bytes a rail had sent, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    at_ns: u64,
    bytes: u64,
}

/// The first and the last sample within a span.
type Ends = Option<(Sample, Sample)>;

/// What rails had sent at the ends of every phase.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    spans: Vec<Span>,
    rails: BTreeMap<RailAt, (u64, Vec<Ends>)>,
}

/// One phase.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Phase {
    /// Milliseconds since the start of the stream, or since what came before had its time.
    pub from_ms: f64,
    /// Where it ends.
    pub to_ms: f64,
    /// `start`, or the faults that it follows.
    pub after: String,
    /// Delivered over all rails; `null` where the phase is too short to tell.
    pub gb_s: Option<f64>,
    /// Of what was delivered before the first fault.
    pub percent: Option<f64>,
}

/// One sending rail.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub struct RailLine {
    /// `<pe>.<rail>`.
    pub rail: String,
    /// Payload it sent, replays among it.
    pub bytes: u64,
    /// Percent of what all rails sent, by phase; `null` where nothing was counted.
    pub shares: Vec<Option<f64>>,
}

/// Phases, and every rail's part in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// In order of time.
    pub phases: Vec<Phase>,
    /// Sending rails that count what they send.
    pub rails: Vec<RailLine>,
}

impl Carried {
    /// Phases of a plan. Faults less than 100 ms apart are one.
    pub fn new(plan: &[Injection]) -> Self {
        let mut faults: Vec<_> = plan.iter().filter(|injection| injection.rail.is_some()).collect();
        faults.sort_by_key(|injection| injection.at_ns);
        let mut spans = vec![Span { from_ns: WARM_UP_NS, to_ns: u64::MAX, after: "start".into() }];
        for injection in faults {
            let rail = injection.rail.unwrap_or_default();
            let name = format!("{}.{rail} {}", injection.pe, injection.fault);
            let from_ns = injection.at_ns.saturating_add(WARM_UP_NS);
            match spans.last_mut() {
                Some(last) if last.after != "start" && injection.at_ns < last.from_ns => {
                    last.from_ns = from_ns;
                    last.after = format!("{}, {name}", last.after);
                }
                last => {
                    last.into_iter().for_each(|last| last.to_ns = injection.at_ns);
                    spans.push(Span { from_ns, to_ns: u64::MAX, after: name });
                }
            }
        }
        Self { spans, rails: BTreeMap::new() }
    }

    /// A rail had sent so many bytes at this time. Receivers only send credits: they are left out.
    pub fn take(&mut self, at: RailAt, at_ns: u64, bytes: u64) {
        if !at.pe.is_multiple_of(2) {
            return;
        }
        let (sum, ends) = self.rails.entry(at).or_insert_with(|| (0, vec![None; self.spans.len()]));
        *sum = bytes.max(*sum);
        let sample = Sample { at_ns, bytes };
        for (span, ends) in self.spans.iter().zip(ends) {
            if (span.from_ns..span.to_ns).contains(&at_ns) {
                let first = ends.map_or(sample, |(first, _)| first);
                *ends = Some((first, sample));
            }
        }
    }

    /// Everything there was, of a run that delivered these bytes per bin and ended at `end_ns`.
    pub fn spread(&self, bins: &[u64], end_ns: u64) -> Spread {
        let sent = |ends: &Ends| ends.map_or(0, |(first, last)| last.bytes.saturating_sub(first.bytes));
        let by_phase = |phase: usize| self.rails.values().map(|(_, ends)| sent(&ends[phase])).sum();
        let sums: Vec<u64> = (0..self.spans.len()).map(by_phase).collect();
        let share = |(ends, sum): (&Ends, &u64)| (*sum > 0).then(|| sent(ends) as f64 * 100.0 / *sum as f64);
        let line = |(at, (bytes, ends)): (&RailAt, &(u64, Vec<Ends>))| RailLine {
            rail: at.to_string(),
            bytes: *bytes,
            shares: ends.iter().zip(&sums).map(share).collect(),
        };
        let begun = self.spans.iter().filter(|span| span.from_ns < end_ns || span.after == "start");
        let rate = |span: &Span| mean_gb_s(bins, span.from_ns, span.to_ns.min(end_ns));
        let whole = self.spans.first().and_then(rate).filter(|rate| *rate > 0.0);
        let phase = |span: &Span| Phase {
            from_ms: span.from_ns as f64 / 1e6,
            to_ms: span.to_ns.min(end_ns).max(span.from_ns) as f64 / 1e6,
            after: span.after.clone(),
            gb_s: rate(span),
            percent: rate(span).zip(whole).map(|(rate, whole)| rate * 100.0 / whole),
        };
        let phases: Vec<Phase> = begun.map(phase).collect();
        let mut rails: Vec<RailLine> = self.rails.iter().map(line).collect();
        rails.iter_mut().for_each(|rail| rail.shares.truncate(phases.len()));
        Spread { phases, rails }
    }
}

/// Rails of one line of the table.
const ABREAST: usize = 8;

impl fmt::Display for Spread {
    /// A row for each phase: GB/s, percent of the fault-free, and each rail's share.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let wide =
            self.phases.iter().map(|phase| phase.after.chars().count()).max().unwrap_or(0).clamp(5, 40);
        for (block, rails) in self.rails.chunks(ABREAST).enumerate() {
            let names: String = rails.iter().map(|rail| format!(" {:>6}", rail.rail)).collect();
            let title = if block == 0 { "GB/s       %" } else { "" };
            write!(f, "{:<wide$}  {title:>18}  |{names}   % of bytes sent by each rail", "after")?;
            for (at, phase) in self.phases.iter().enumerate() {
                let (rate, percent) = match block {
                    0 => (number(phase.gb_s, 3), number(phase.percent, 1)),
                    _ => Default::default(),
                };
                let shares: String =
                    rails.iter().map(|rail| format!(" {:>6}", number(rail.shares[at], 1))).collect();
                let after: String = phase.after.chars().take(wide).collect();
                write!(f, "\n{after:<wide$}  {rate:>10} {percent:>7}  |{shares}")?;
            }
            if (block + 1) * ABREAST < self.rails.len() {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::BIN_NS;

    const MS: u64 = 1_000_000;

    fn carried(plan: &[&str]) -> Carried {
        let plan: Vec<Injection> = plan.iter().map(|text| text.parse().unwrap()).collect();
        Carried::new(&plan)
    }

    fn rail(pe: u32, rail: u32) -> RailAt {
        RailAt { pe, rail }
    }

    #[test]
    fn phases_lie_between_faults_of_rails_and_close_ones_are_one() {
        let carried = carried(&["900ms:0.1:down", "500ms:0.0:down", "560ms:1.1:down", "300ms:1:oob-cut"]);
        let after: Vec<_> = carried.spans.iter().map(|s| (s.from_ns / MS, s.after.as_str())).collect();
        assert_eq!(after, [(100, "start"), (660, "0.0 down, 1.1 down"), (1000, "0.1 down")]);
        assert_eq!(carried.spans[0].to_ns, 500 * MS);
        assert_eq!(carried.spans[1].to_ns, 900 * MS);
    }

    #[test]
    fn a_dead_rail_has_no_share_and_the_others_have_its_own() {
        let mut carried = carried(&["500ms:0.0:down"]);
        for ms in (0..=1000).step_by(50) {
            let zero = if ms < 550 { ms * 10 } else { 5500 };
            carried.take(rail(0, 0), ms * MS, zero);
            carried.take(rail(0, 1), ms * MS, if ms < 550 { ms * 10 } else { ms * 20 - 5500 });
            carried.take(rail(1, 0), ms * MS, ms * 999);
        }
        let bins: Vec<u64> = (0..100).map(|bin| if bin < 55 { 20 * BIN_NS } else { 15 * BIN_NS }).collect();
        let spread = carried.spread(&bins, 1000 * MS);
        let shares: Vec<_> =
            spread.rails.iter().map(|line| (line.rail.as_str(), line.shares.clone())).collect();
        assert_eq!(
            shares,
            [("0.0", vec![Some(50.0), Some(0.0)]), ("0.1", vec![Some(50.0), Some(100.0)])],
            "receivers are left out"
        );
        let rates: Vec<_> = spread.phases.iter().map(|phase| (phase.gb_s, phase.percent)).collect();
        assert_eq!(rates, [(Some(20.0), Some(100.0)), (Some(15.0), Some(75.0))]);
        let text = spread.to_string();
        assert!(text.lines().any(|line| line.starts_with("0.0 down") && line.contains("75.0")), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
    }

    #[test]
    fn what_is_too_short_or_not_counted_is_not_known() {
        let mut carried = carried(&["50ms:0.0:down", "900ms:0.0:up"]);
        carried.take(rail(0, 0), 10 * MS, 7);
        let spread = carried.spread(&[5; 20], 200 * MS);
        assert_eq!(spread.phases.len(), 2, "the last fault comes after the end");
        assert_eq!((spread.phases[0].gb_s, spread.phases[0].percent), (None, None));
        assert_eq!((spread.rails[0].bytes, spread.rails[0].shares.clone()), (7, vec![None, None]));
        assert!(spread.phases[1].gb_s.is_some() && spread.phases[1].percent.is_none());
    }
}
