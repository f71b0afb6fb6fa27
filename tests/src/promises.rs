//! The numbered promises: invariants 1 to 12 and rules 1 to 23 (docs/FAILOVER.md), and the breaks that show that the
//! tests hold them.

use std::collections::BTreeSet;
use std::fmt;

use shunt_layout::mutant::Mutant;

use crate::mutations::{Row, TABLE};

/// A promise, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// No loss, exactly-once signals, order, and so on.
    Invariant(u32),
    /// How a switch keeps the invariants.
    Rule(u32),
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invariant(number) => write!(f, "invariant {number}"),
            Self::Rule(number) => write!(f, "rule {number}"),
        }
    }
}

/// Tests that hold a promise that no break shows alone: file and name in `tests/tests`.
pub const WITHOUT_A_BREAK: &[(Promise, &[&str])] = &[
    // The order of an opening. A caller that looks at one word alone is the break of rules 1 and 5; the model W opens
    // in other orders.
    (
        Promise::Rule(15),
        &[
            "scenarios::scenario_09_f12_stopped_while_opening",
            "scenarios::scenario_15_owner_gone_while_opening",
        ],
    ),
];

impl Promise {
    /// Every one. Rule 11 is empty.
    pub fn all() -> impl Iterator<Item = Self> {
        let rules = (1..=23).filter(|number| *number != 11).map(Self::Rule);
        (1..=12).map(Self::Invariant).chain(rules)
    }

    /// The promises that a break takes away, as it says: "rules 4 and 8, invariant 3, F1".
    pub fn broken_by(mutant: Mutant) -> BTreeSet<Self> {
        let mut broken = BTreeSet::new();
        for part in mutant.breaks().split(", ") {
            let Some((word, numbers)) = part.split_once(' ') else { continue };
            let numbers = numbers.split(" and ").filter_map(|number| number.parse().ok());
            match word {
                "invariant" => broken.extend(numbers.map(Self::Invariant)),
                "rule" | "rules" => broken.extend(numbers.map(Self::Rule)),
                _ => {}
            }
        }
        broken
    }

    /// The rows of breaks of this promise.
    pub fn rows(self) -> impl Iterator<Item = &'static Row> {
        TABLE.iter().filter(move |row| Self::broken_by(row.mutant).contains(&self))
    }
}

/// Rows with a scenario of each that hold a break of every promise, as few as it takes one after the other.
pub fn sample() -> Vec<(&'static Row, &'static str)> {
    let mut sample: Vec<(&'static Row, &'static str)> = Vec::new();
    let mut held = BTreeSet::new();
    for promise in Promise::all() {
        if held.contains(&promise) {
            continue;
        }
        let Some(row) = promise.rows().next() else { continue };
        held.extend(Promise::broken_by(row.mutant));
        sample.push((row, row.scenarios[0]));
    }
    sample
}
