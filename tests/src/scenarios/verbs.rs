//! Verbs programs through random faults, by the library that makes them outlive a NIC.

use super::kit::{Wrongs, not_exercised};
use super::scenario::Scenario;
use crate::verbs::{VerbsSpec, run};

pub const SCENARIOS: &[Scenario] =
    &[Scenario { name: "verbs_programs_through_random_faults", seeds: 60, run: through_faults }];

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
