//! Transfers of the transfer engine through random faults, on lanes with a count and without an order.

use shunt_transfer_engine::sim::oracle;

use super::kit::Wrongs;
use super::scenario::Scenario;

pub const SCENARIOS: &[Scenario] =
    &[Scenario { name: "transfers_through_random_faults", seeds: 60, run: through_faults }];

fn through_faults(seed: u64) -> Wrongs {
    oracle::run(seed, true).wrong
}
