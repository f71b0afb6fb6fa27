//! What a scenario is.

use super::kit::Wrongs;

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// How it is called.
    pub name: &'static str,
    /// Runs of it, each from a seed of its own, counted from 0.
    pub seeds: u64,
    /// One run: what is wrong with it, nothing if all is as it must be.
    pub run: fn(u64) -> Wrongs,
}
