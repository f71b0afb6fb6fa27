//! Verbs programs through random faults, by the library that makes them outlive a NIC.

use super::kit::{Wrongs, not_exercised};
use super::scenario::Scenario;
use crate::verbs::{VerbsSpec, run, sample};
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "verbs_programs_through_random_faults", seeds: 60, run: through_faults },
    Scenario { name: "verbs_completions_that_come_late", seeds: 8, run: late_completions },
    Scenario { name: "verbs_schedules_of_a_move", seeds: 8, run: sample },
];

/// Receives complete at the NIC, and their completions come milliseconds later, when their path has been left.
fn late_completions(seed: u64) -> Wrongs {
    let at = |pe| RailAt { pe, rail: 0 };
    let late = FaultKind::LateCqe { by_ns: 2_500_000, for_ns: Some(9_000_000) };
    let down = FaultKind::Down { for_ns: Some(4_000_000) };
    let report = run(&VerbsSpec {
        pace_ns: 25_000,
        requests: 400,
        posts: [true, false],
        faults: vec![(500_000, at(1), late), (3_000_000 + seed * 100_000, at(0), down)],
        ..VerbsSpec::quiet(seed)
    });
    match report.wrong() {
        wrong if wrong.is_empty() && report.hits < 2 => vec![not_exercised("a fault hit nothing")],
        wrong => wrong,
    }
}

/// Draws until a fault hits something that moves for it.
const TRIES: u64 = 5;

fn through_faults(seed: u64) -> Wrongs {
    for again in 0..TRIES {
        let report = run(&VerbsSpec::random(seed | again << 32));
        let wrong = report.wrong();
        if !wrong.is_empty() || report.hits > 0 && report.sum(|told| told.switches) > 0 {
            return wrong;
        }
    }
    vec![not_exercised("nothing had to move")]
}
