//! The chain: any pair of rails carries a channel, whichever are left. What is not made ahead is made on demand.

use std::collections::HashMap;

use shunt_device::FaultKind;
use shunt_layout::state::SwitchRecord;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

const MS: u64 = 1_000_000;

/// Eight rails at both ends, two backups made ahead, `ms` milliseconds of steady traffic both ways.
fn eight_rails(ms: u64, faults: Vec<String>) -> RunSpec {
    RunSpec {
        rails: 8,
        backups: 2,
        both_ways: true,
        traffic: Traffic { messages: ms, pace_ns: MS, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

fn clean(spec: &RunSpec) -> Outcome {
    let outcome = run(spec);
    outcome.assert_clean();
    outcome.assert_exercised();
    outcome
}

/// All rails of both ends but one each, in an order that takes the pair in use away as often as it can.
fn all_but(local: u32, remote: u32) -> Vec<(u32, u32)> {
    let rails = |pe: u32, kept: u32| (0..8).filter(move |rail| *rail != kept).map(move |rail| (pe, rail));
    let (here, there): (Vec<_>, Vec<_>) = (rails(0, local).collect(), rails(1, remote).collect());
    here.into_iter().zip(there).flat_map(|(a, b)| [a, b]).collect()
}

fn entered_last(outcome: &Outcome, pe: u32) -> &SwitchRecord {
    let last = outcome.records.iter().rev().find(|(at, _)| *at == pe);
    &last.expect("a switch").1
}

/// What no run may show: an incarnation of a slot that comes twice, or goes back.
fn assert_incarnations_grow(outcome: &Outcome) {
    let mut last: HashMap<(u32, u32), u32> = HashMap::new();
    for (pe, record) in &outcome.records {
        let before = last.insert((*pe, record.to), record.entered.incarnation).unwrap_or(0);
        assert!(record.entered.incarnation >= before, "{outcome}");
    }
}

#[test]
fn one_rail_after_another_dies_until_one_odd_pair_is_left() {
    let kills = all_but(7, 3).into_iter().zip(1..);
    let faults: Vec<_> = kills.map(|((pe, rail), at)| format!("{}ms:{pe}.{rail}:down", at * 100)).collect();
    let outcome = clean(&eight_rails(1_600, faults));
    for (pe, ends) in [(0, (7, 3)), (1, (3, 7))] {
        let entered = entered_last(&outcome, pe).entered;
        assert_eq!((entered.local_rail, entered.remote_rail), ends, "PE {pe}\n{outcome}");
    }
    assert_incarnations_grow(&outcome);
}

#[test]
fn all_rails_but_one_odd_pair_die_at_once() {
    for at_us in [5_000, 5_137] {
        let faults = all_but(7, 3).iter().map(|(pe, rail)| format!("{at_us}us:{pe}.{rail}:down")).collect();
        let outcome = clean(&eight_rails(400, faults));
        let entered = entered_last(&outcome, 0).entered;
        assert_eq!((entered.local_rail, entered.remote_rail), (7, 3), "{outcome}");
    }
}

#[test]
fn the_last_pair_dies_and_the_fault_says_what_is_unfinished() {
    let mut faults: Vec<_> = all_but(7, 3).iter().map(|(pe, rail)| format!("5ms:{pe}.{rail}:down")).collect();
    faults.push("300ms:0.7:down".into());
    let mut spec = eight_rails(3_000, faults);
    spec.both_ways = false;
    let outcome = run(&spec);
    outcome.assert_held();
    assert!(outcome.ended_with(FaultKind::PeerLost) > 0, "{outcome}");
    let fault = outcome.senders[0].fault.expect("the sender ends with a fault");
    assert_eq!((fault.kind, fault.peer, fault.channel), (FaultKind::PeerLost, 1, 0), "{outcome}");
    assert!(fault.unfinished > 0, "{fault:?}");
    let lost_ms = (outcome.senders[0].ended_ns - outcome.began_ns) / MS;
    assert!(lost_ms >= 300 + spec.give_up_ns / MS, "it gave up after {lost_ms} ms\n{outcome}");
}

#[test]
fn the_primary_is_gone_back_to_from_a_pair_that_was_made_on_demand() {
    let mut faults: Vec<_> = all_but(7, 3).iter().map(|(pe, rail)| format!("5ms:{pe}.{rail}:down")).collect();
    faults.extend(["200ms:0.0:up".to_owned(), "210ms:1.0:up".to_owned()]);
    let outcome = clean(&eight_rails(600, faults));
    assert_eq!(outcome.switchbacks(), 2, "one a direction\n{outcome}");
    let entered = entered_last(&outcome, 0).entered;
    assert_eq!((entered.local_rail, entered.remote_rail), (0, 0), "{outcome}");
}

/// Nothing says that a rail swallows everything: what fails gives way to the next pair all the same.
#[test]
fn a_silent_fault_of_most_rails_is_got_round() {
    let mut spec = eight_rails(600, Vec::new());
    (spec.rails, spec.backups) = (4, 1);
    let silent = ["0.0", "0.1", "0.2"].map(|rail| format!("5ms:{rail}:blackhole-tx"));
    spec.faults = silent.iter().map(|fault| fault.parse().expect("a fault")).collect();
    // Which of them are tried before the one that works is the ranking's business.
    let outcome = run(&spec);
    outcome.assert_clean();
    assert_eq!(entered_last(&outcome, 0).entered.local_rail, 3, "{outcome}");
}
