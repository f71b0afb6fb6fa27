use shunt_device::{Fault as DeviceFault, FaultKind as Ended};
use shunt_tests::justify::*;
use shunt_tests::spec::RunSpec;
use shunt_tests::workload::Report;

fn span(from: u64, until: u64) -> Span {
    Span { from, until }
}

#[test]
fn spans_merge_and_meet() {
    assert_eq!(merged(vec![span(5, 9), span(1, 3), span(3, 6)]), [span(1, 9)]);
    assert_eq!(merged(vec![span(5, 9), span(1, 3)]), [span(1, 3), span(5, 9)]);
    let both = common(&[span(0, 10), span(20, FOR_EVER)], &[span(5, 25)]);
    assert_eq!(both, [span(5, 10), span(20, 25)]);
    assert_eq!(common(&[span(0, 10)], &[]), []);
}

#[test]
fn consequences_outlast_a_fault() {
    assert_eq!(Span::of(7, 10, 600), span(7, 627));
    assert_eq!(Span::of(7, FOR_EVER, 600), span(7, FOR_EVER));
}

/// What is said of a run with a port down for 10 ms and `fault`, if its sender had given up `ended_ns` into it.
fn given_up_at(ended_ns: u64, fault: &str) -> Vec<String> {
    let faults = ["1ms:0.0:down=10ms", fault].map(|text| text.parse().expect("a fault")).to_vec();
    let mut spec = RunSpec { rails: 1, backups: 0, faults, ..RunSpec::default() };
    spec.traffic.pace_ns = 10_000;
    let mut outcome = shunt_tests::run::run(&spec);
    outcome.assert_exercised();
    assert_eq!(unjustified(&outcome), [""; 0], "as it went");
    let ended_ns = outcome.began_ns + ended_ns;
    let report = outcome.senders[0].clone();
    outcome.senders[0] = Report { ended_ns, fault: Some(FAULT), ..report };
    unjustified(&outcome)
}

const FAULT: DeviceFault = DeviceFault {
    kind: Ended::PeerLost,
    cause: shunt_layout::state::CauseKind::Overdue,
    peer: 1,
    channel: 0,
    slot: 0,
    at: shunt_device::Ticket(0),
    unfinished: 1,
    syndrome: 0,
    op: 0,
    address: 0,
};

#[test]
fn words_that_are_a_little_late_excuse_nobody_who_gives_up() {
    assert_eq!(given_up_at(3_000_000_000, "0:0:oob-delay=1ms").len(), 1);
    assert_eq!(given_up_at(3_000_000_000, "0:0:oob-delay=300ms").len(), 0);
}

#[test]
fn a_stop_excuses_who_gives_up_by_as_much_as_it_lasted() {
    assert_eq!(given_up_at(1_100_000_000, "2ms:0:peer-stopped=1ms").len(), 1);
    assert_eq!(given_up_at(1_100_000_000, "2ms:0:peer-stopped=900ms").len(), 0);
    assert_eq!(given_up_at(1_100_000_000, "2ms:0:clock-jump=1ms").len(), 1);
}
