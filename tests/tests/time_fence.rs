//! `SHUNT_FENCE=time`: no host in the loop. An error completion of the old path and the packet lifetime since are the
//! fence, and the ledger is the cut.

use shunt_device::FaultKind;
use shunt_layout::state::SwitchKind;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// The packet lifetime of the defaults.
const LIFETIME_NS: u64 = 50_000_000;

fn spec(faults: &[&str]) -> RunSpec {
    RunSpec {
        time_fence: true,
        traffic: Traffic {
            messages: 200,
            slots: 200,
            credit_lag: 199,
            pace_ns: 20_000,
            ..Traffic::default()
        },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// Time from a switch's notice to its fence.
fn fence_ns(outcome: &Outcome) -> Vec<u64> {
    outcome.of_kind(SwitchKind::Failover).map(|record| record.stamps[2] - record.stamps[1]).collect()
}

#[test]
fn without_any_agent_an_error_completion_and_the_lifetime_are_a_fence() {
    for fault in ["2ms:0.0:cqe-error=0x15", "2ms:0.0:blackhole-tx", "2ms:1.0:blackhole-rx"] {
        for seed in 0..3 {
            let mut spec = spec(&["500us:0:agent-killed", "500us:1:agent-killed", fault]);
            spec.seed = seed;
            let outcome = run(&spec);
            outcome.assert_kept();
            assert_eq!((outcome.senders[0].fault, outcome.receivers[0].messages), (None, 200), "{outcome}");
        }
    }
}

/// With agents that answer, their word is earlier and better.
#[test]
fn agents_that_answer_are_not_waited_out() {
    let outcome = run(&RunSpec { both_ways: true, ..spec(&["2ms:0.0:down"]) });
    outcome.assert_clean();
    let spans = fence_ns(&outcome);
    assert!(!spans.is_empty() && spans.iter().all(|span| *span < LIFETIME_NS), "{outcome}");
    assert!(outcome.of_kind(SwitchKind::Failover).all(|record| record.ledger == 0), "{outcome}");
}

/// F9: silence proves nothing. A doorbell that got lost leaves a path without an error for ever.
#[test]
fn a_deadline_alone_is_never_a_fence() {
    let faults = ["500us:0:agent-killed", "500us:1:agent-killed", "2ms:0.0:lost-doorbell"];
    // One message in flight and no credits of another stream, so that no later doorbell makes up for the lost one.
    let traffic = Traffic { messages: 400, slots: 1, credit_lag: 0, puts: 1, ..spec(&[]).traffic };
    let outcome = run(&RunSpec { traffic, ..spec(&faults) });
    outcome.assert_kept();
    outcome.assert_exercised();
    assert_eq!(outcome.senders[0].fault.map(|fault| fault.kind), Some(FaultKind::FenceUnproven), "{outcome}");
}

/// The lifetime is waited out: what the old path sent a moment ago has arrived by then, or never will.
#[test]
fn the_lifetime_is_waited_out() {
    let faults = ["500us:0:agent-killed", "500us:1:agent-killed", "2ms:0.0:cqe-error=0x15"];
    let outcome = run(&spec(&faults));
    outcome.assert_kept();
    // No agent lives to read the records; the receiver saw how long it took.
    assert_eq!(outcome.senders[0].fault, None, "{outcome}");
    assert!(outcome.max_gap_ns() >= LIFETIME_NS, "{} ns\n{outcome}", outcome.max_gap_ns());
}

/// Without the policy the same fault ends the channel: nobody proved anything.
#[test]
fn a_strict_fence_without_agents_stays_unproven() {
    let faults = ["500us:0:agent-killed", "500us:1:agent-killed", "2ms:0.0:cqe-error=0x15"];
    let outcome = run(&RunSpec { time_fence: false, ..spec(&faults) });
    outcome.assert_kept();
    assert_eq!(outcome.senders[0].fault.map(|fault| fault.kind), Some(FaultKind::FenceUnproven), "{outcome}");
}
