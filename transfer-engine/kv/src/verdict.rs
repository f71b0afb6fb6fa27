//! What came of a run, at one decoder and at all.

use crate::options::Options;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shunt_json::Kind;
use shunt_transfer_program::faults::Struck;
use shunt_transfer_program::start::exit_status;
use shunt_transfer_program::why;
use std::collections::BTreeMap;

/// What a decoder saw, and all of them together.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Part {
    /// Requests, and how they ended: all of it was there; by the decoder's wish; by the prefiller's; with a prefiller
    /// that was cut off.
    pub requests: u64,
    /// See [`Part::requests`].
    pub complete: u64,
    /// See [`Part::requests`].
    pub cancelled: u64,
    /// See [`Part::requests`].
    pub refused: u64,
    /// See [`Part::requests`].
    pub lost: u64,
    /// How often a request was asked for again, because its prefiller could not write it.
    pub again: u64,
    /// Requests that did not end.
    pub open: u64,
    /// Requests that were not started when the time was over, and those of decoders that were killed.
    pub unasked: u64,
    /// Pages of complete requests, of all layers, that were checked, and those that held other bytes.
    pub pages: u64,
    /// See [`Part::pages`].
    pub pages_wrong: u64,
    /// Pages that were written while they were free.
    pub late_writes: u64,
    /// Pages that belong to no request and cannot be used again.
    pub stuck_pages: u64,
    /// Complete requests, by the end that is their prefiller.
    pub by_prefiller: BTreeMap<u32, u64>,
    /// From a request to its end where it was complete, nanoseconds: median, 99th percentile, longest.
    pub complete_ns: [u64; 3],
    /// The same of those that were cancelled, from the wish to the end.
    pub cancel_ns: [u64; 3],
    /// Why the first request that was refused was.
    pub failure: String,
    /// From the first request to the last end, nanoseconds.
    pub took_ns: u64,
    /// Lanes of this end that were left because of a fault, or with their peer.
    pub failovers: u64,
    /// Lanes of this end that were left and opened again, to the same prefiller. One that is started again is another.
    pub returns: u64,
    /// Faults at NICs of this end.
    pub faults: Vec<Struck>,
}

/// What a decoder tells the process that started it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    /// What figures are.
    pub clock: String,
    /// What it saw.
    pub part: Part,
}

/// What came of it all.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Verdict {
    /// `clean`, `broken`, `peer lost` or `not exercised`.
    pub verdict: String,
    /// What figures are.
    pub clock: String,
    /// Rails of each end.
    pub rails: u32,
    /// Prefillers that were started again, by number of the end, and whether each has served a request.
    pub restarted: BTreeMap<u32, bool>,
    /// GB of pages of complete requests a second.
    pub gb_s: f64,
    /// What the decoders saw.
    #[serde(flatten)]
    pub part: Part,
}

impl Kind for Verdict {
    const NAME: &'static str = "shunt-kv-disagg";
    const VERSION: u32 = 1;
}

/// What was done to the processes of a run.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// What figures are, by a decoder's word.
    pub clock: String,
    /// Something was: a prefiller that is lost is no surprise.
    pub any: bool,
    /// Ends of prefillers that were started again.
    pub restarted: Vec<u32>,
    /// Things that were to be done and were not: the run was over before.
    pub missed: Vec<String>,
    /// Decoders that ended without a verdict, unless they were killed.
    pub failed: Vec<String>,
}

impl Verdict {
    /// Judges what the decoders saw.
    pub fn of(options: &Options, parts: &[Part], done: &Done) -> Self {
        let mut part = sum(parts);
        // A decoder that was killed says nothing of its requests.
        part.unasked += u64::from(options.requests).saturating_sub(part.requests + part.unasked);
        let restarted: BTreeMap<u32, bool> = done
            .restarted
            .iter()
            .map(|end| (*end, part.by_prefiller.get(end).is_some_and(|count| *count > 0)))
            .collect();
        let broken = part.pages_wrong + part.late_writes + part.stuck_pages + part.open + part.refused;
        let none = part.complete == 0 || options.cancel > 0 && part.cancelled == 0;
        let idle = none && part.unasked == 0;
        let missed =
            !done.missed.is_empty() || part.unasked > 0 || part.faults.iter().any(|struck| struck.hits == 0);
        let verdict = match () {
            () if broken > 0 || idle || !done.failed.is_empty() => "broken",
            () if part.lost > 0 && !done.any => "peer lost",
            () if missed || restarted.values().any(|served| !served) => "not exercised",
            () => "clean",
        };
        let bytes = part.pages * options.page;
        Self {
            verdict: verdict.to_owned(),
            clock: done.clock.clone(),
            rails: options.nics.rails(),
            restarted,
            gb_s: bytes as f64 / part.took_ns.max(1) as f64,
            part,
        }
    }

    /// 0 clean, 3 where a prefiller was lost, else 1.
    pub fn exit_status(&self) -> u8 {
        exit_status(&self.verdict)
    }

    /// Why it is not clean, in the order in which it is judged.
    pub fn why(&self, options: &Options, done: &Done) -> String {
        if self.verdict == "clean" {
            return String::new();
        }
        let part = &self.part;
        let wrong = [
            ("pages wrong", part.pages_wrong),
            ("late writes", part.late_writes),
            ("stuck pages", part.stuck_pages),
            ("requests that did not end", part.open),
        ];
        let mut refused = why::none_of(&[("refused requests", part.refused)]);
        refused.iter_mut().for_each(|line| *line = format!("{line} ({})", part.failure));
        let none = |what: &str, is_missing: bool| {
            is_missing.then(|| format!("{what}: expected one or more, got 0")).into_iter().collect()
        };
        // Which ones was said when they failed.
        let failed = why::none_of(&[("processes without a result", done.failed.len() as u64)]);
        let missed = why::none_of(&[("signals and starts after the run", done.missed.len() as u64)]);
        let unasked = why::none_of(&[("requests not started in time, or of a killed decoder", part.unasked)]);
        let idle = self.restarted.iter().filter(|(_, served)| !**served);
        let idle =
            idle.map(|(end, _)| format!("end {end}, started again: expected it to serve, got no request"));
        why::first([
            why::none_of(&wrong),
            refused,
            failed,
            none("complete requests", part.complete == 0),
            none("cancelled requests", options.cancel > 0 && part.cancelled == 0),
            if done.any {
                Vec::new()
            } else {
                why::none_of(&[("requests lost with their prefiller", part.lost)])
            },
            [missed, unasked, why::unhit(&part.faults), idle.collect()].concat(),
        ])
    }
}

fn sum(parts: &[Part]) -> Part {
    let mut all = Part::default();
    for part in parts {
        all.requests += part.requests;
        all.complete += part.complete;
        all.cancelled += part.cancelled;
        all.refused += part.refused;
        all.lost += part.lost;
        all.again += part.again;
        all.open += part.open;
        all.unasked += part.unasked;
        all.pages += part.pages;
        all.pages_wrong += part.pages_wrong;
        all.late_writes += part.late_writes;
        all.stuck_pages += part.stuck_pages;
        all.failovers += part.failovers;
        all.returns += part.returns;
        all.took_ns = all.took_ns.max(part.took_ns);
        for (end, count) in &part.by_prefiller {
            *all.by_prefiller.entry(*end).or_default() += count;
        }
        for (all, of) in [(&mut all.complete_ns, &part.complete_ns), (&mut all.cancel_ns, &part.cancel_ns)] {
            // Of several decoders the slowest's.
            all.iter_mut().zip(of).for_each(|(all, of)| *all = (*all).max(*of));
        }
        if all.failure.is_empty() {
            all.failure.clone_from(&part.failure);
        }
        all.faults.extend(part.faults.iter().cloned());
    }
    all
}

/// Median, 99th percentile and longest of some times.
pub fn spread(mut times: Vec<u64>) -> [u64; 3] {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len().saturating_sub(1)) * part / 100).copied().unwrap_or(0);
    [at(50), at(99), at(100)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Verdict::NAME, &shunt_json::schema::<Verdict>());
    }

    #[test]
    fn a_run_is_clean_only_if_nothing_is_wrong() {
        let options = Options::parse_from(["kv_disagg", "--requests", "2"]);
        let good = Part { requests: 2, complete: 2, by_prefiller: [(2, 2)].into(), ..Part::default() };
        let of = |part: Part, done: &Done| Verdict::of(&options, &[part], done).verdict;
        assert_eq!(of(good.clone(), &Done::default()), "clean");
        let wrongs: [fn(&mut Part); 6] = [
            |part| part.pages_wrong = 1,
            |part| part.late_writes = 1,
            |part| part.stuck_pages = 1,
            |part| part.open = 1,
            |part| part.refused = 1,
            |part| part.complete = 0,
        ];
        for wrong in wrongs {
            let mut part = good.clone();
            wrong(&mut part);
            assert_eq!(of(part, &Done::default()), "broken");
        }
        let lost = Part { lost: 1, ..good.clone() };
        assert_eq!(of(lost.clone(), &Done::default()), "peer lost");
        assert_eq!(of(lost, &Done { any: true, ..Done::default() }), "clean");
        assert_eq!(
            of(good.clone(), &Done { restarted: vec![4], ..Done::default() }),
            "not exercised",
            "it served none"
        );
        assert_eq!(of(good.clone(), &Done { restarted: vec![2], ..Done::default() }), "clean");
        let why = Verdict::of(&options, &[Part { late_writes: 3, ..good.clone() }], &Done::default());
        assert_eq!(why.why(&options, &Done::default()), "late writes: expected 0, got 3");
        let missed = Done { missed: vec!["kill".to_owned()], ..Done::default() };
        assert_eq!(of(good.clone(), &missed), "not exercised");
        // A run whose only prefiller was killed ended with its time, and was clean.
        let short = Part { unasked: 3, ..good.clone() };
        // Half the requests of a run whose decoder was killed were counted nowhere, and it was clean.
        let half = Part { requests: 1, complete: 1, ..good.clone() };
        assert_eq!(of(half, &Done { any: true, ..Done::default() }), "not exercised");
        let unasked = Part { unasked: 2, ..Part::default() };
        assert_eq!(of(unasked, &Done::default()), "not exercised", "no prefiller came: nothing was broken");
        let verdict = Verdict::of(&options, &[short], &Done { any: true, ..Done::default() });
        assert_eq!(verdict.verdict, "not exercised");
        let why = verdict.why(&options, &Done { any: true, ..Done::default() });
        assert_eq!(why, "requests not started in time, or of a killed decoder: expected 0, got 3");
        let faults = vec![Struck { fault: String::new(), hits: 0 }];
        assert_eq!(of(Part { faults, ..good }, &Done::default()), "not exercised");
    }

    #[test]
    fn a_spread_is_median_tail_and_longest() {
        assert_eq!(spread(Vec::new()), [0; 3]);
        assert_eq!(spread((0..=1000).rev().collect()), [500, 990, 1000]);
    }
}
