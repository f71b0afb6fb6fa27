//! What came of a run.

use crate::part::NicBytes;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_figures::lines::{Bin, FaultLine};
use shunt_figures::units::show_time;
use shunt_json::Kind;
use std::fmt;

/// A promise was broken, or no fault struck, or there was no run.
pub const BROKEN: u8 = 1;
/// The command line cannot be honoured.
pub const USAGE: u8 = 2;
/// No path left, or a signal that nobody can know of.
pub const NO_PATH: u8 = 3;

/// Layers of a run, at most.
pub const ITERS_MAX: u64 = 100_000_000;
/// Shortest mean time between two faults.
const EVERY_MIN_NS: u64 = 1_000_000;
/// Faults that a run is to have room for when it is asked for again: the first comes within one and a half mean times,
/// and the last may come too late to meet a layer.
const ROOM: u64 = 4;

/// Figures of a run; the JSON object of `moe_pressure`.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct MoeReport {
    /// `low-latency` or `normal`.
    pub mode: &'static str,
    /// Ranks.
    pub ranks: u32,
    /// Processes that they are spread over, as far as they reported.
    pub processes: u32,
    /// Seed.
    pub seed: u64,
    /// What times are.
    pub clock: String,
    /// More threads than cores.
    pub oversubscribed: bool,
    /// Layers that were asked for.
    pub asked: u64,
    /// Layers that every rank ended.
    pub iterations: u64,
    /// Layers, by rank, in which something was not as the reference says.
    pub mismatches: u64,
    /// Kernels that did not end by their deadline.
    pub hangs: u64,
    /// Generations opened because of a fault, over all channels.
    pub failovers: u64,
    /// Generations opened by a switch-back.
    pub switchbacks: u64,
    /// Ranks of a node, which reach each other's memory.
    pub ranks_per_node: u32,
    /// Bytes of payload that ports sent, the agents' own and what was sent again among them.
    pub bytes_by_nic: u64,
    /// Bytes of rows or messages that went by memory of the node, and came back so.
    pub bytes_by_mapping: u64,
    /// Bytes of tokens for other nodes, there and back: what ports have to send.
    pub bytes_for_other_nodes: u64,
    /// Entries that kernels posted to NICs for other ranks of their node.
    pub posted_on_node: u64,
    /// What each port sent.
    pub nics: Vec<NicBytes>,
    /// Ranks that some rank leaves out.
    pub masked_ranks: u64,
    /// Ranks that ended because no path was left.
    pub lost: u64,
    /// Ranks that ended because nobody can know whether a signal was applied; it was neither repeated nor dropped.
    pub uncertain: u64,
    /// Ranks that ended with another fault of a kernel.
    pub failed: u64,
    /// Whether faults were planned at all.
    pub planned: bool,
    /// Mean time between two of them.
    #[serde(skip)]
    pub every_ns: u64,
    /// Seconds from the first layer to the last.
    pub seconds: f64,
    /// Time of a layer at rank 0 in microseconds: half of all, 99 of 100, the longest.
    pub layer_us: [f64; 3],
    /// Faults and how often each struck.
    pub faults: Vec<FaultLine>,
    /// Payload per 10 ms.
    pub timeline: Vec<Bin>,
    /// The first of what was wrong.
    pub wrongs: Vec<String>,
    /// What came of it in a few words.
    pub verdict: String,
}

impl Kind for MoeReport {
    const NAME: &'static str = "shunt-moe-pressure";
    const VERSION: u32 = 1;
}

impl MoeReport {
    /// What is broken, in words; nothing if all is well.
    fn broken(&self) -> Vec<String> {
        let mut what = Vec::new();
        let mut count = |number: u64, name: &str| {
            if number > 0 {
                what.push(format!("{number} {name}"));
            }
        };
        count(self.mismatches, "layers were wrong");
        count(self.hangs, "kernels did not end by their deadline");
        count(self.failed, "ranks ended with a fault");
        count(self.masked_ranks, "ranks were left out");
        if self.lost + self.uncertain == 0 {
            count(self.asked - self.iterations.min(self.asked), "layers are missing");
        }
        what
    }

    fn exercised(&self) -> bool {
        !self.planned || self.faults.iter().any(|fault| fault.hits > 0)
    }

    /// Why no fault struck, and what would be enough.
    fn unexercised(&self) -> String {
        let (made, run_ns) = (self.faults.len() as u64, self.seconds * 1e9);
        if made >= ROOM {
            return format!(
                "not exercised: {made} faults and none hit a layer; use more --iters, or another kind"
            );
        }
        let (every, run) = (show_time(self.every_ns), show_time(run_ns as u64));
        let wanted = (ROOM * self.every_ns) as f64 / run_ns.max(1.0);
        let iters = rounded_up(self.asked as f64 * wanted.max(2.0));
        let shorter_ms = run_ns as u64 / ROOM / EVERY_MIN_NS;
        let ways = [
            (iters <= ITERS_MAX).then(|| format!("--iters {iters}")),
            (shorter_ms > 0 && wanted > 1.0).then(|| format!("--every {shorter_ms}ms")),
        ];
        let ways: Vec<String> = ways.into_iter().flatten().collect();
        let enough = match ways.is_empty() {
            true => format!("more --iters (up to {ITERS_MAX}) with a shorter --every"),
            false => ways.join(" or "),
        };
        let met = match made {
            0 => "none came".to_owned(),
            made => format!("{made} came, and none hit a layer"),
        };
        format!(
            "not exercised: no fault struck: {} layers took {run}, faults come every {every}, and {met}; {enough} \
             would be enough",
            self.asked
        )
    }

    /// The verdict in words.
    pub fn told(&self) -> String {
        match self.exit_status() {
            0 => "clean".into(),
            NO_PATH if self.lost > 0 => "no path left".into(),
            NO_PATH => "uncertain: a signal that may or may not have been applied".into(),
            _ if self.broken().is_empty() => self.unexercised(),
            _ => format!("broken: {}", self.broken().join("; ")),
        }
    }

    /// 0 clean, 1 broken or not exercised, 3 no path left or a signal in doubt.
    pub fn exit_status(&self) -> u8 {
        match () {
            () if !self.broken().is_empty() => BROKEN,
            () if self.lost + self.uncertain > 0 => NO_PATH,
            () if !self.exercised() => BROKEN,
            () => 0,
        }
    }
}

impl fmt::Display for MoeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, longest] = self.layer_us;
        let struck = self.faults.iter().filter(|fault| fault.hits > 0).count();
        writeln!(
            f,
            "layers {} of {} in {:.1} s  mismatches {}  hangs {}  failovers {}  switch-backs {}  masked ranks {}",
            self.iterations,
            self.asked,
            self.seconds,
            self.mismatches,
            self.hangs,
            self.failovers,
            self.switchbacks,
            self.masked_ranks
        )?;
        writeln!(
            f,
            "a layer at rank 0: p50 {half:.0} us, p99 {most:.0} us, longest {longest:.0} us ({}; oversubscribed: {})",
            self.clock,
            if self.oversubscribed { "yes" } else { "no" }
        )?;
        writeln!(f, "faults {}, of which {struck} struck", self.faults.len())?;
        let nics: Vec<String> = self.nics.iter().map(|nic| format!("{} {}", nic.place, nic.bytes)).collect();
        writeln!(
            f,
            "bytes by NIC {} ({}), by memory of the node {}, for other nodes {}; ranks of a node {}, for which {} \
             entries were posted",
            self.bytes_by_nic,
            nics.join(", "),
            self.bytes_by_mapping,
            self.bytes_for_other_nodes,
            self.ranks_per_node,
            self.posted_on_node
        )?;
        self.wrongs.iter().try_for_each(|wrong| writeln!(f, "wrong: {wrong}"))?;
        write!(f, "verdict: {}", self.told())
    }
}

/// The next number of two digits and zeros.
fn rounded_up(number: f64) -> u64 {
    let mut step = 1u64;
    while number / step as f64 > 100.0 {
        step = step.saturating_mul(10);
    }
    ((number / step as f64).ceil() as u64).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_exercised_says_what_would_be_enough() {
        let idle = |every_ns, seconds, faults: usize| {
            let miss = FaultLine { at_ms: 0.0, place: "0.0".into(), kind: "up".into(), hits: 0 };
            let faults = vec![miss; faults];
            MoeReport {
                asked: 3,
                iterations: 3,
                planned: true,
                every_ns,
                seconds,
                faults,
                ..MoeReport::default()
            }
            .told()
        };
        for (text, parts) in [
            // 3 layers in 20 ms, and room for four faults takes 400 ms.
            (
                idle(100_000_000, 0.02, 0),
                ["3 layers took 20.0 ms", "none came", "--iters 60 or --every 5ms would"],
            ),
            (
                idle(3_600_000_000_000, 0.02, 0),
                ["every 3600.00 s", "none came", "; --iters 2200000 or --every 5ms"],
            ),
            // Too short to say how often, and too far away to say how long.
            (idle(1_000_000, 0.001, 1), ["took 1000.0 us", "1 came", "; --iters 12 would"]),
            (
                idle(3_600_000_000_000, 0.0001, 0),
                ["100.0 us", "none came", "more --iters (up to 100000000) with"],
            ),
            (idle(1_000_000, 1.0, 9), ["9 faults", "none hit a layer", "more --iters, or another kind"]),
        ] {
            assert!(text.starts_with("not exercised: "), "{text}");
            parts.iter().for_each(|part| assert!(text.contains(part), "{part} in {text}"));
        }
        assert_eq!([0.2, 99.5, 100.0, 101.0, 2_160_000.1].map(rounded_up), [1, 100, 100, 110, 2_200_000]);
    }

    #[test]
    fn each_figure_that_must_be_zero_breaks_the_verdict() {
        let hit = FaultLine { at_ms: 0.0, place: "0.0".into(), kind: "down".into(), hits: 1 };
        let clean = MoeReport {
            asked: 5,
            iterations: 5,
            planned: true,
            faults: vec![hit],
            failovers: 1,
            ..MoeReport::default()
        };
        assert_eq!(clean.exit_status(), 0);
        for (status, broken) in [
            (1, MoeReport { mismatches: 1, ..clean.clone() }),
            (1, MoeReport { hangs: 1, ..clean.clone() }),
            (1, MoeReport { failed: 1, ..clean.clone() }),
            (1, MoeReport { masked_ranks: 1, ..clean.clone() }),
            (1, MoeReport { iterations: 4, ..clean.clone() }),
            (1, MoeReport { faults: Vec::new(), ..clean.clone() }),
            (3, MoeReport { iterations: 4, lost: 1, ..clean.clone() }),
            (3, MoeReport { iterations: 4, uncertain: 1, ..clean.clone() }),
            (1, MoeReport { iterations: 4, uncertain: 1, mismatches: 1, ..clean.clone() }),
            (0, MoeReport { faults: Vec::new(), planned: false, ..clean.clone() }),
        ] {
            assert_eq!(broken.exit_status(), status, "{broken}");
        }
    }
}
