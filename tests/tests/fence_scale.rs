//! Many channels fenced at once, agents that are slow, gone or come back: scenarios 5, 12 and 21.

use shunt_tests::scale::{self, Hit, ScaleSpec, quantile};

fn scale(peers: u32, firmware_ns: u64, hit: Hit) -> scale::ScaleOutcome {
    scale::run(&ScaleSpec { time_limit_ns: 60_000_000_000, ..ScaleSpec::new(peers, firmware_ns, hit) })
}

/// Every channel of a PE loses its primary in one instant. The firmware of its NIC does one command at a time, so the
/// last one waits for the fences of all others, three commands each, and for nothing else.
#[test]
fn every_channel_of_a_port_recovers_in_turn() {
    let outcome = scale(64, 50_000, Hit::Port);
    assert_eq!(outcome.opened_ns.len(), 64);
    assert_eq!(outcome.without_truth, 0);
    let commands = outcome.own.all();
    assert!(commands >= 3 * 64, "{commands}");
    let last = quantile(&outcome.opened_ns, 1.0);
    assert!(last < 2 * commands * 50_000, "{last} ns");
}

/// A NIC that is dead to commands holds nobody up: the peers fence their own halves at the same time.
#[test]
fn every_channel_of_a_dead_nic_recovers() {
    let outcome = scale(64, 50_000, Hit::Nic);
    assert_eq!(outcome.opened_ns.len(), 64);
}
