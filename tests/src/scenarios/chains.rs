//! The chain among dead rails: a pair that works is found, whatever is tried before it. Invariant 7.

use super::kit::{Wrongs, both_ways, clean, held, spec};
use super::scenario::Scenario;
use crate::lies::Lie;
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "one_pair_of_four_is_left", seeds: 4, run: one_of_four },
    Scenario { name: "one_pair_of_four_is_left_and_pings_pass", seeds: 4, run: pings_pass },
    Scenario { name: "two_pairs_of_nine_are_left", seeds: 4, run: two_of_nine },
    Scenario { name: "a_peer_lost_beside_a_healthy_pair", seeds: 2, run: lost_beside_a_healthy_pair },
    Scenario { name: "a_nic_of_each_end_is_gone_at_once", seeds: 6, run: one_nic_of_each_end },
];

/// Steady traffic under the defaults' patience, fewer pairs made ahead than there are.
fn steady(seed: u64, rails: u32, faults: &[&str]) -> RunSpec {
    let faults: Vec<String> = faults.iter().map(|fault| format!("20ms:{fault}")).collect();
    let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
    let mut spec = spec(seed, &faults);
    (spec.rails, spec.backups, spec.idle_ns) = (rails, rails - 1, 100_000);
    // One way, the other way, or both: who leads need not be the one that sends.
    spec.both_ways = seed % 2 == 1;
    spec.traffic = Traffic { messages: 300, pace_ns: 300_000, wait_ns: 3_000_000_000, ..spec.traffic };
    spec
}

/// Both pairs that were made are silent, and a third one is; the fourth has two rails that answer pings.
fn one_of_four(seed: u64) -> Wrongs {
    let faults = [["0.0:blackhole-tx", "1.1:blackhole-tx"], ["1.0:blackhole-tx", "0.1:blackhole-tx"]];
    clean(&steady(seed, 2, &faults[seed as usize / 2]), |_| Vec::new())
}

/// The same, and nothing can be suspected: datagrams have no acknowledgements to lose.
fn pings_pass(seed: u64) -> Wrongs {
    let faults = [["0.0:drop-acks", "1.1:drop-acks"], ["1.0:drop-acks", "0.1:drop-acks"]];
    clean(&steady(seed, 2, &faults[seed as usize / 2]), |_| Vec::new())
}

const ALL_BUT_TWO: [[&str; 3]; 2] = [
    ["0.0:blackhole-tx", "1.1:blackhole-tx", "1.2:blackhole-tx"],
    ["1.0:blackhole-tx", "0.1:blackhole-tx", "0.2:blackhole-tx"],
];

/// One rail of this end is silent and two of the other: three pairs made ahead, and four that were not.
fn two_of_nine(seed: u64) -> Wrongs {
    clean(&steady(seed, 3, &ALL_BUT_TWO[seed as usize / 2]), |_| Vec::new())
}

/// The same for the judge alone, who has to know of the pairs that nobody made.
fn lost_beside_a_healthy_pair(seed: u64) -> Wrongs {
    held(&steady(seed, 3, &ALL_BUT_TWO[seed as usize]), Lie::None, |_| Vec::new())
}

/// The NIC of the primary is gone at one end, the other NIC at the other, while the idle backup between them is made
/// again to prove its count. What was left is the pair between the two NICs that are gone: an end whose own NIC had not
/// answered, or that had heard so of the peer's, posted there, and nobody could fence it.
fn one_nic_of_each_end(seed: u64) -> Wrongs {
    let at = 1_990 + 10 * seed;
    let faults = [(0, 0), (1, 1)].map(|(pe, rail)| format!("{at}ms:{pe}.{rail}:nic-gone"));
    let mut spec = both_ways(seed, &faults.each_ref().map(String::as_str));
    (spec.backups, spec.backups_later, spec.idle_ns) = (2, true, 100_000);
    spec.traffic = Traffic { messages: 440, pace_ns: 5_000_000, wait_ns: 3_000_000_000, ..spec.traffic };
    clean(&spec, |_| Vec::new())
}
