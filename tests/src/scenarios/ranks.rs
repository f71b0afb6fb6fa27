//! The mask of ranks, without anything below it: machines that agree over links that lose, double and delay.

use super::scenario::Scenario;
use crate::ranks::{duel, heir, missed, one_event, storm};

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "ranks_one_event", seeds: 300, run: one_event },
    Scenario { name: "ranks_in_a_storm", seeds: 400, run: storm },
    Scenario { name: "ranks_two_attempts_at_once", seeds: 100, run: duel },
    Scenario { name: "ranks_that_follow_one_that_decided", seeds: 50, run: heir },
    Scenario { name: "ranks_one_that_missed_the_decision", seeds: 40, run: missed },
];
