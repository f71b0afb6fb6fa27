//! What came of all runs.

use crate::options::{Options, Which};
use schemars::JsonSchema;
use serde::Serialize;
use shunt_json::Kind;
use shunt_tests::transfers::timing::{Measure, Rates, TimingReport};
use std::collections::BTreeMap;
use std::fmt;

/// A piece that a fault hit is done after so long at most, and some piece on any lane.
const GAP_NS: u64 = 1_000_000;
/// Of a hundred cancels or cuts 99 have their proof after so long.
const QUIET_NS: u64 = 1_000_000;
/// Of what healthy rails carry so much is to be kept.
const KEPT: f64 = 0.97;
/// Texts of failures that are kept.
const TEXTS: usize = 20;

/// Which figure of a measure has a bar, and the bar.
enum Bar {
    Longest(u64),
    Percentile99(u64),
    None,
}

const fn bar(measure: Measure) -> Bar {
    match measure {
        Measure::First | Measure::Quiet => Bar::Longest(GAP_NS),
        Measure::Cancel | Measure::Revoke | Measure::Leave => Bar::Percentile99(QUIET_NS),
        _ => Bar::None,
    }
}

const fn text(measure: Measure) -> &'static str {
    match measure {
        Measure::First => "fault to the first page done of those that it hit",
        Measure::Last => "fault to the last of them",
        Measure::Quiet => "no page done on any rail, until then",
        Measure::Detect => "fault to the rail being left",
        Measure::Fence => "rail left to its fence",
        Measure::Back => "port up to a page done on its rail",
        Measure::Cancel => "cancel to its proof, packets held back",
        Measure::Revoke => "cut to its proof, the writer hangs",
        Measure::Leave => "cut to its proof, the reader hangs",
        Measure::Ends => "that cut to the end of all transfers",
    }
}

/// A case, and how its runs went.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct CaseRuns {
    /// `down`, `cancel`, `revoke`, `leave` or `rate`.
    pub case: String,
    /// Runs.
    pub runs: u64,
    /// Of those: with a promise that was broken.
    pub broken: u64,
    /// Of those: whose fault hit nothing.
    pub not_exercised: u64,
}

/// How long something took, nanoseconds of virtual time.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Took {
    /// What.
    pub what: &'static str,
    /// How often it was measured.
    pub count: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// Of a hundred 99 took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// What the longest may be, if it has a bar.
    pub max_bar_ns: Option<u64>,
    /// What 99 of a hundred may be, if they have a bar.
    pub p99_bar_ns: Option<u64>,
}

impl Took {
    fn of(measure: Measure, mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        let at = |percent: usize| {
            let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
            all.get(place).copied().unwrap_or_default()
        };
        let (max_bar_ns, p99_bar_ns) = match bar(measure) {
            Bar::Longest(ns) => (Some(ns), None),
            Bar::Percentile99(ns) => (None, Some(ns)),
            Bar::None => (None, None),
        };
        let (p50_ns, p99_ns, max_ns) = (at(50), at(99), at(100));
        let what = text(measure);
        Self { what, count: all.len() as u64, p50_ns, p99_ns, max_ns, max_bar_ns, p99_bar_ns }
    }

    fn is_over(&self) -> bool {
        self.max_bar_ns.is_some_and(|bar| self.max_ns > bar)
            || self.p99_bar_ns.is_some_and(|bar| self.p99_ns > bar)
    }
}

/// Rates of all runs of `rate`, GB a second of virtual time: the smallest of each.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Kept {
    /// Before the fault, with all rails.
    pub before_gb_s: f64,
    /// While one is down.
    pub during_gb_s: f64,
    /// Once it is used again.
    pub after_gb_s: f64,
    /// The rate with one rail down, as a share of what the others carried before: the smallest.
    pub during_of_rest: f64,
    /// The rate after, as a share of that before: the smallest.
    pub after_of_before: f64,
    /// What both may not be below.
    pub bar: f64,
}

impl Kept {
    fn of(all: &[Rates], rails: u32) -> Option<Self> {
        let least = |of: &dyn Fn(&Rates) -> f64| all.iter().map(of).reduce(f64::min);
        let rest = f64::from(rails - 1) / f64::from(rails);
        Some(Self {
            before_gb_s: least(&|rates| rates.before)? / 1e9,
            during_gb_s: least(&|rates| rates.during)? / 1e9,
            after_gb_s: least(&|rates| rates.after)? / 1e9,
            during_of_rest: least(&|rates| rates.during / (rates.before * rest))?,
            after_of_before: least(&|rates| rates.after / rates.before)?,
            bar: KEPT,
        })
    }

    fn is_below(&self) -> bool {
        // A rate that is no number is none that was kept.
        !(self.during_of_rest >= self.bar && self.after_of_before >= self.bar)
    }
}

/// What came of it all.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Verdict {
    /// `clean`, `broken`, `not exercised` or `slow`.
    pub verdict: &'static str,
    /// What figures are.
    pub clock: &'static str,
    /// Rails of each end.
    pub rails: u32,
    /// The first seed.
    pub first: u64,
    /// Transfers that were written whole. Of all but those to a reader that hangs every page was checked.
    pub transfers: u64,
    /// By case.
    pub cases: Vec<CaseRuns>,
    /// What was measured.
    pub times: Vec<Took>,
    /// Of `rate`.
    pub rates: Option<Kept>,
    /// The first failures: case, seed and what was wrong.
    pub failures: Vec<String>,
}

impl Kind for Verdict {
    const NAME: &'static str = "shunt-transfer-virtual";
    const VERSION: u32 = 1;
}

impl Verdict {
    /// Judges what all runs said: their case, seed and report.
    pub fn of(options: &Options, reports: &[(Which, u64, TimingReport)]) -> Self {
        let (mut times, mut rates): (BTreeMap<Measure, Vec<u64>>, Vec<Rates>) = Default::default();
        let (mut cases, mut failures): (Vec<CaseRuns>, Vec<String>) = Default::default();
        for (which, seed, report) in reports {
            let case = which.name();
            if cases.last().is_none_or(|last| last.case != case) {
                cases.push(CaseRuns { case: case.clone(), ..CaseRuns::default() });
            }
            if let Some(runs) = cases.last_mut() {
                runs.runs += 1;
                runs.broken += u64::from(!report.wrong.is_empty());
                runs.not_exercised += u64::from(report.not_exercised.is_some());
            }
            failures.extend(
                report
                    .wrong
                    .iter()
                    .chain(&report.not_exercised)
                    .map(|said| format!("{case}, seed {seed}: {said}")),
            );
            report.times.iter().for_each(|(what, ns)| times.entry(*what).or_default().push(*ns));
            rates.extend(report.rates);
        }
        failures.truncate(TEXTS);
        let times: Vec<_> = times.into_iter().map(|(what, all)| Took::of(what, all)).collect();
        let rates = Kept::of(&rates, options.rails);
        let verdict = if cases.iter().any(|runs| runs.broken > 0) {
            "broken"
        } else if cases.is_empty() || cases.iter().any(|runs| runs.not_exercised > 0) {
            "not exercised"
        } else if times.iter().any(Took::is_over) || rates.as_ref().is_some_and(Kept::is_below) {
            "slow"
        } else {
            "clean"
        };
        let (clock, transfers) = ("virtual time, soft NICs", reports.iter().map(|it| it.2.written).sum());
        let (rails, first) = (options.rails, options.first);
        Self { verdict, clock, rails, first, transfers, cases, times, rates, failures }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} rails, pages of 64 KiB", self.clock, self.rails)?;
        for CaseRuns { case, runs, broken, not_exercised } in &self.cases {
            writeln!(f, "{case:8} {runs:6} runs, {broken} broken, {not_exercised} hit nothing")?;
        }
        let (p50, p99, max) = ("p50 us", "p99 us", "max us");
        writeln!(f, "{:50} {:>6} {p50:>9} {p99:>9} {max:>9}  bar", "", "count")?;
        for took in &self.times {
            let us = |ns: u64| ns as f64 / 1e3;
            let (p50, p99, max) = (us(took.p50_ns), us(took.p99_ns), us(took.max_ns));
            write!(f, "{:50} {:6} {p50:9.1} {p99:9.1} {max:9.1}", took.what, took.count)?;
            let bars = [("max", took.max_bar_ns), ("p99", took.p99_bar_ns)];
            for (name, bar) in bars.into_iter().filter_map(|(name, bar)| Some((name, bar?))) {
                let word = if took.is_over() { "MISSED" } else { "held" };
                write!(f, "  {name} {:.0} us: {word}", us(bar))?;
            }
            writeln!(f)?;
        }
        if let Some(rates) = &self.rates {
            let Kept { before_gb_s, during_gb_s, after_gb_s, during_of_rest, after_of_before, bar } = rates;
            writeln!(
                f,
                "least rate, GB/s: before {before_gb_s:.3}, one rail down {during_gb_s:.3}, after {after_gb_s:.3}"
            )?;
            writeln!(
                f,
                "kept of the other rails {during_of_rest:.3}, after {after_of_before:.3}; bar {bar}: {}",
                if rates.is_below() { "MISSED" } else { "held" }
            )?;
        }
        self.failures.iter().try_for_each(|text| writeln!(f, "{text}"))?;
        write!(f, "verdict: {}", self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn judged(reports: &[(Which, TimingReport)]) -> Verdict {
        let reports: Vec<_> = reports.iter().map(|(which, report)| (*which, 5, report.clone())).collect();
        Verdict::of(&Options::parse_from(["transfer_virtual"]), &reports)
    }

    fn took(times: &[(Measure, u64)]) -> TimingReport {
        TimingReport { times: times.to_vec(), ..TimingReport::default() }
    }

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Verdict::NAME, &shunt_json::schema::<Verdict>());
    }

    #[test]
    fn figures_are_those_that_were_measured() {
        let all: Vec<_> = (1..=200).rev().map(|ns| (Which::Down, took(&[(Measure::Last, ns)]))).collect();
        let verdict = judged(&all);
        let Took { count, p50_ns, p99_ns, max_ns, .. } = verdict.times[0];
        assert_eq!((count, p50_ns, p99_ns, max_ns), (200, 100, 198, 200));
        assert_eq!((verdict.verdict, verdict.cases[0].runs), ("clean", 200));
    }

    #[test]
    fn what_is_late_slow_broken_or_was_not_met_is_no_clean_run() {
        let is = |report: TimingReport| judged(&[(Which::Down, report)]).verdict;
        assert_eq!(is(took(&[(Measure::First, 1_000_000), (Measure::Back, u64::MAX)])), "clean");
        assert_eq!(is(took(&[(Measure::First, 1_000_001)])), "slow");
        assert_eq!(is(took(&[(Measure::Cancel, 1_000_001)])), "slow");
        let rates = |during, after| TimingReport {
            rates: Some(Rates { before: 4.0, during, after }),
            ..TimingReport::default()
        };
        assert_eq!(
            [is(rates(2.92, 3.89)), is(rates(2.9, 4.0)), is(rates(3.0, 3.8))],
            ["clean", "slow", "slow"]
        );
        assert_eq!(is(rates(f64::NAN, 4.0)), "slow");
        let missed = TimingReport { not_exercised: Some("it".to_owned()), ..TimingReport::default() };
        assert_eq!(is(missed.clone()), "not exercised");
        let broken = TimingReport { wrong: vec!["that".to_owned()], ..missed };
        assert_eq!((is(broken.clone()), judged(&[]).verdict), ("broken", "not exercised"));
        let said = judged(&[(Which::Cancel, broken)]).to_string();
        assert!(said.contains("cancel, seed 5: that"), "{said}");
    }
}
