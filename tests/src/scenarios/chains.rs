//! The chain among dead rails: a pair that works is found, whatever is tried before it. Invariant 7.

use shunt_device::{Deadline, HeapOffset, Put, Solo};

use super::kit::{Wrongs, clean, held, judged, spec, wrong_if};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::lies::Lie;
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "one_pair_of_four_is_left", seeds: 4, run: one_of_four },
    Scenario { name: "one_pair_of_four_is_left_and_pings_pass", seeds: 4, run: pings_pass },
    Scenario { name: "two_pairs_of_nine_are_left", seeds: 4, run: two_of_nine },
    Scenario {
        name: "a_nic_gone_at_each_end_and_a_path_between_the_others",
        seeds: 4,
        run: one_gone_at_each_end,
    },
    Scenario { name: "a_peer_lost_beside_a_healthy_pair", seeds: 2, run: lost_beside_a_healthy_pair },
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

/// A NIC of each end is gone, and the path between the two others is not made yet. One that is made leads from the one
/// to the other: entered for want of a better one it failed as well, nobody was there to fence it, and the channel
/// ended. A put alone, so that no ledger is read over it first.
fn one_gone_at_each_end(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = steady(seed, 2, &[]);
        spec.backups_later = true;
        let cluster = Cluster::start(&spec);
        let late = if seed.is_multiple_of(2) { "2ms" } else { "2200us" };
        for fault in ["2ms:0.0:nic-gone".to_owned(), format!("{late}:1.1:nic-gone")] {
            cluster.inject(&fault.parse().unwrap_or_else(|error| panic!("{error}")));
        }
        let puts = [(0, 1), (1, 0)].map(|(from, to)| {
            cluster.spawn("put", from, move |kernel| {
                kernel.world.sleep(2_100_000 + 100_000 * seed);
                let (device, put) =
                    (kernel.device(), Put { dst: HeapOffset(0), src: HeapOffset(64), bytes: 64 });
                let channel = device.channel(to, 0);
                let deadline = Deadline::after(kernel.world.now(), 2_000_000_000);
                channel.put_nbi(Solo, put).and_then(|ticket| channel.wait(Solo, ticket, deadline))
            })
        });
        let ended = cluster.sim.finish_all(&puts);
        wrong_if(ended.iter().any(Result::is_err), || format!("{ended:?}"))
    })
}
