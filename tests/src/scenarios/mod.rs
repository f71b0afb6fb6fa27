//! Scenarios by name: a cluster, its traffic, what goes wrong, and what must follow. `tests/tests/scenario_*.rs` run
//! them as they are; `cargo xtask mutate` runs them with a part of the protocol taken away, and then each must fail.

mod agents;
mod chains;
mod crowds;
mod cuts;
mod doorbells;
mod fences;
mod fetches;
mod fork;
mod gets;
mod homes;
mod kit;
mod lanes;
mod links;
mod lives;
mod mirrors;
mod moe;
mod moe_normal;
mod nccl_2383;
mod nics;
mod orders;
mod owners;
pub mod pauses;
mod promises;
mod ranks;
mod returns;
mod scenario;
mod sharing;
mod sleeps;
mod steps;
mod transfers;
mod verbs;
mod words;

pub use kit::{Wrongs, idle, is_broken};
pub use scenario::Scenario;

/// Every scenario.
pub fn all() -> Vec<Scenario> {
    [
        words::SCENARIOS,
        mirrors::SCENARIOS,
        owners::SCENARIOS,
        fences::SCENARIOS,
        gets::SCENARIOS,
        cuts::SCENARIOS,
        returns::SCENARIOS,
        sleeps::SCENARIOS,
        lives::SCENARIOS,
        lanes::SCENARIOS,
        doorbells::SCENARIOS,
        links::SCENARIOS,
        pauses::SCENARIOS,
        promises::SCENARIOS,
        homes::SCENARIOS,
        fetches::SCENARIOS,
        steps::SCENARIOS,
        agents::SCENARIOS,
        nics::SCENARIOS,
        crowds::SCENARIOS,
        chains::SCENARIOS,
        orders::SCENARIOS,
        nccl_2383::SCENARIOS,
        moe::SCENARIOS,
        moe_normal::SCENARIOS,
        ranks::SCENARIOS,
        fork::SCENARIOS,
        transfers::SCENARIOS,
        verbs::SCENARIOS,
    ]
    .concat()
}

/// The scenario of this name.
pub fn named(name: &str) -> Option<Scenario> {
    all().into_iter().find(|scenario| scenario.name == name)
}

/// Runs every seed of a scenario, or the first quarter of them where `SHUNT_QUARTER_OF_SEEDS` is set: the night runs
/// all.
///
/// # Panics
/// If there is no such scenario, or with what is wrong.
pub fn hold(name: &str) {
    let scenario = named(name).unwrap_or_else(|| panic!("no scenario is called {name}"));
    let parts = if std::env::var_os("SHUNT_QUARTER_OF_SEEDS").is_some() { 4 } else { 1 };
    for seed in 0..scenario.seeds.div_ceil(parts) {
        let wrongs = (scenario.run)(seed);
        assert!(wrongs.is_empty(), "{name}, seed {seed}:\n{}", wrongs.join("\n"));
    }
}
