//! A port that pauses for as long as priority flow control may stop one, and a path that carries nothing: with the
//! patience of hardware the first is no failure and the second is. Invariants 6, 7.

use super::kit::{Wrongs, both_ways, clean, failovers_of, gap_below, wrong_if};
use super::scenario::Scenario;
use crate::rng::Rng;
use crate::spec::RunSpec;
use crate::traffic::Traffic;
use shunt_host::silence::{PAUSE_NS, Silence};

/// By name.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_pause_is_no_failure", seeds: 5, run: pauses },
    Scenario { name: "a_silence_behind_pauses", seeds: 4, run: silence_behind_pauses },
];

/// Pauses of a run, and how far apart they begin.
pub const PAUSES: u64 = 10;
const APART_NS: u64 = 45_000_000;
const SHORTEST_NS: u64 = 5_000_000;

/// Traffic with the patience of hardware, and pauses of 5 to 30 ms of the primary's port at one end or the other.
fn paused(seed: u64, also: Option<String>) -> RunSpec {
    let mut rng = Rng::new(seed + 1);
    let pause = |number: u64| {
        // The shortest and the longest are among them.
        let for_ns = match number {
            0 => SHORTEST_NS,
            1 => PAUSE_NS,
            _ => SHORTEST_NS + rng.below(PAUSE_NS - SHORTEST_NS + 1),
        };
        format!("{}ns:{}.0:hold={for_ns}ns", APART_NS * (number + 1), rng.below(2))
    };
    let faults: Vec<String> = (0..PAUSES).map(pause).chain(also).collect();
    let mut spec = both_ways(seed, &faults.iter().map(String::as_str).collect::<Vec<_>>());
    (spec.suspect_ns, spec.suspect_floor_ns) = (Silence::HARDWARE.suspect_ns, Silence::HARDWARE.floor_ns);
    // It goes on behind the last pause.
    spec.traffic = Traffic { messages: 9_000, pace_ns: 60_000, ..spec.traffic };
    spec.step_limit = 20_000_000;
    spec
}

/// One run of [`PAUSES`] pauses: how often a path was left, and what is wrong with it beside that.
pub fn switches_of_pauses(seed: u64) -> (usize, Wrongs) {
    let mut switches = 0;
    let wrongs = clean(&paused(seed, None), |outcome| {
        switches = outcome.records.len();
        Vec::new()
    });
    (switches, wrongs)
}

fn pauses(seed: u64) -> Wrongs {
    let (switches, mut wrongs) = switches_of_pauses(seed);
    wrongs.extend(wrong_if(switches > 0, || format!("{switches} switches, and no path was dead")));
    wrongs
}

/// How long nothing was delivered where a path fell silent for good behind pauses, and what is wrong with the run.
pub fn silence_of(seed: u64) -> (u64, Wrongs) {
    let at_ns = APART_NS * (PAUSES + 1) + 1_000_000 * (seed % 7);
    let hole = ["blackhole-tx", "blackhole-rx"][seed as usize % 2];
    let mut gap_ns = 0;
    let wrongs = clean(&paused(seed, Some(format!("{at_ns}ns:{}.0:{hole}", seed / 2 % 2))), |outcome| {
        gap_ns = outcome.max_gap_ns();
        [failovers_of(outcome, 1), gap_below(outcome, 2 * Silence::HARDWARE.suspect_ns)].concat()
    });
    (gap_ns, wrongs)
}

fn silence_behind_pauses(seed: u64) -> Wrongs {
    silence_of(seed).1
}
