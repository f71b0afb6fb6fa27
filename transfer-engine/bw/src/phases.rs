//! How much was written while how many rails worked: before a fault, meanwhile, and after. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shunt::host::nanos::Nanos;

/// So long after a change nothing is measured: what was under way belongs to neither side.
const SETTLE: Nanos = Nanos::millis(100);
/// A rate over less than this says nothing.
const LEAST: Nanos = Nanos::millis(100);
/// Phases that are kept: the first ones.
const MOST: usize = 64;

/// A time in which the number of rails did not change.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Phase {
    /// Rails to the other end that worked.
    pub rails: u32,
    /// When it began, nanoseconds after the first transfer.
    pub from_ns: u64,
    /// How long it took, nanoseconds.
    pub took_ns: u64,
    /// Bytes of transfers that ended in it, a second, in GB: without its first 100 ms. None where less than 100 ms are
    /// left.
    pub gb_s: Option<f64>,
}

/// The phases of a run.
#[derive(Debug)]
pub struct Phases {
    began: Nanos,
    ended: Vec<Phase>,
    dropped: u64,
    rails: u32,
    from: Nanos,
    bytes: u64,
}

impl Phases {
    /// Begins with so many rails.
    pub const fn new(now: Nanos, rails: u32) -> Self {
        Self { began: now, ended: Vec::new(), dropped: 0, rails, from: now, bytes: 0 }
    }

    /// So many rails work now.
    pub fn rails(&mut self, now: Nanos, rails: u32) {
        if rails != self.rails {
            self.end(now);
            (self.rails, self.from, self.bytes) = (rails, now, 0);
        }
    }

    /// So many bytes were written.
    pub fn wrote(&mut self, now: Nanos, bytes: u64) {
        if now >= self.from + SETTLE {
            self.bytes += bytes;
        }
    }

    fn end(&mut self, now: Nanos) {
        if now <= self.from {
            return;
        }
        if self.ended.len() == MOST {
            self.dropped += 1;
            return;
        }
        let took = now - self.from;
        let measured = (took >= SETTLE + LEAST).then(|| took - SETTLE);
        self.ended.push(Phase {
            rails: self.rails,
            from_ns: (self.from - self.began).get(),
            took_ns: took.get(),
            gb_s: measured.map(|span| self.bytes as f64 / span.get() as f64),
        });
    }

    /// The first ones, and how many came later; the last one ends now.
    pub fn finish(mut self, now: Nanos) -> (Vec<Phase>, u64) {
        self.end(now);
        (self.ended, self.dropped)
    }
}

/// What is said of phases that are not kept, if there are any.
pub fn left_out(dropped: u64) -> Option<String> {
    (dropped > 0).then(|| format!("the first {MOST} phases are kept, {dropped} later ones are not"))
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let rails = if self.rails == 1 { "rail" } else { "rails" };
        let (from, to) = (seconds(self.from_ns), seconds(self.from_ns + self.took_ns));
        write!(f, "{} {rails} from {from:.3} to {to:.3} s: ", self.rails)?;
        match self.gb_s {
            Some(rate) => write!(f, "{rate:.3} GB/s"),
            None => f.write_str("too short for a rate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Nanos {
        Nanos::millis(1_000 + ms)
    }

    #[test]
    fn each_change_of_the_rails_begins_a_phase() {
        let mut phases = Phases::new(at(0), 4);
        for (ms, rails) in
            [(0, 4), (50, 4), (100, 4), (300, 4), (400, 3), (450, 3), (600, 3), (600, 4), (650, 4)]
        {
            phases.rails(at(ms), rails);
            phases.wrote(at(ms), 60_000_000);
        }
        let of = |rails, from, took, gb_s| {
            let ns = |ms| Nanos::millis(ms).get();
            Phase { rails, from_ns: ns(from), took_ns: ns(took), gb_s }
        };
        let expected = [
            // The two writes behind the first 100 ms, over the other 300 ms.
            of(4, 0, 400, Some(0.4)),
            of(3, 400, 200, Some(0.6)),
            of(4, 600, 150, None),
        ];
        let (phases, dropped) = phases.finish(at(750));
        assert_eq!((&phases[..], dropped, left_out(dropped)), (&expected[..], 0, None));
        assert_eq!(phases[0].to_string(), "4 rails from 0.000 to 0.400 s: 0.400 GB/s");
    }

    /// What came after the first ones was dropped without a word.
    #[test]
    fn a_port_that_flaps_for_ever_does_not_fill_the_verdict() {
        let mut phases = Phases::new(at(0), 1);
        (1..1_000).for_each(|ms| phases.rails(at(ms), 1 + ms as u32 % 2));
        let (kept, dropped) = phases.finish(at(2_000));
        assert_eq!((kept.len(), dropped), (MOST, 1_000 - MOST as u64));
        assert_eq!(
            left_out(dropped).as_deref(),
            Some("the first 64 phases are kept, 936 later ones are not")
        );
    }
}
