//! Faults of whole PEs: who needs nothing of the one that was hit goes on as if nothing had happened.

use shunt_device::FaultKind;
use shunt_tests::lies::Lie;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::swarm::judge;
use shunt_tests::traffic::Traffic;

/// Three PEs, every pair both ways for 10 ms, and `faults`.
fn three(faults: &[&str]) -> RunSpec {
    RunSpec {
        pes: 3,
        both_ways: true,
        give_up_ns: 100_000_000,
        traffic: Traffic { messages: 200, pace_ns: 50_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

fn held(spec: &RunSpec) -> Outcome {
    let outcome = run(spec);
    outcome.assert_held();
    outcome.assert_exercised();
    outcome
}

#[test]
fn who_talks_to_a_killed_peer_learns_it_and_others_go_on() {
    let outcome = held(&three(&["3ms:1:peer-killed"]));
    let reports: Vec<_> = outcome.senders.iter().chain(&outcome.receivers).collect();
    for report in &reports {
        let of_killed = report.stream.from == 1 || report.stream.to == 1;
        if !of_killed {
            assert!(report.fault.is_none() && report.messages == 200, "{}\n{outcome}", report.stream);
        } else if !report.killed {
            assert_eq!(report.fault.map(|fault| fault.kind), Some(FaultKind::PeerLost), "{}", report.stream);
        }
    }
    assert_eq!(reports.iter().filter(|report| report.killed).count(), 4, "{outcome}");
}

#[test]
fn nothing_of_a_killed_peer_sends_or_lands_any_more() {
    let cluster = shunt_tests::cluster::Cluster::start(&three(&[]));
    let streams = shunt_tests::run::start_streams(&cluster);
    cluster.inject(&"2ms:1:peer-killed".parse().expect("a fault"));
    cluster.sim.run_for(2_100_000);
    let counters = || [0, 1].map(|rail| cluster.counters(1, rail));
    let watched =
        || cluster.streams().iter().map(|stream| cluster.watched(1, stream.signal())).collect::<Vec<_>>();
    let before =
        (format!("{:?}", counters().map(|c| (c.packets_tx, c.messages))), format!("{:?}", watched()));
    cluster.sim.run_for(20_000_000);
    let after = (format!("{:?}", counters().map(|c| (c.packets_tx, c.messages))), format!("{:?}", watched()));
    assert_eq!(before, after);
    assert!(!streams.done(), "no PE has given up yet");
}

#[test]
fn an_agent_that_is_gone_or_out_of_reach_costs_nothing_while_nothing_fails() {
    for fault in ["1ms:1:agent-killed", "1ms:1:agent-stalled=5ms", "1ms:1:clock-jump=3s"] {
        let outcome = held(&three(&[fault]));
        outcome.assert_clean();
        assert_eq!(outcome.failovers(), 0, "{fault}\n{outcome}");
    }
}

#[test]
fn a_clock_that_jumps_while_a_path_is_fenced_breaks_no_promise() {
    for at in ["3010us", "3060us", "3200us", "3400us", "9ms", "40ms"] {
        for pe in 0..2 {
            let jump = format!("{at}:{pe}:clock-jump=200ms");
            let outcome = held(&three(&["1ms:0.0:delay=20ms", "3ms:1.0:nic-gone", &jump]));
            assert!(outcome.failovers() > 0, "{outcome}");
        }
    }
}

/// The judge of typed faults bites: firmware that never lets a fence be proved ends channels with `FenceUnproven`,
/// which a port that goes down does not justify.
#[test]
fn a_fault_that_nothing_justifies_is_found() {
    let spec = three(&["1ms:0.0:down"]);
    assert!(judge(&spec, Lie::None).wrongs.is_empty());
    let wrongs = judge(&spec, Lie::StillRts).wrongs;
    assert!(wrongs.iter().any(|wrong| wrong.contains("FenceUnproven")), "{wrongs:?}");
    let spec = three(&["1ms:0.0:down", "1ms:1.0:nic-gone=300us"]);
    let wrongs = judge(&spec, Lie::StillRts).wrongs;
    assert!(wrongs.iter().any(|wrong| wrong.contains("nothing that went wrong justifies it")), "{wrongs:?}");
}

/// The packet lifetime is what a fence rests on where the peer's agent is silent: a clock that jumps must not end it.
#[test]
fn a_clock_that_jumps_does_not_end_the_packet_lifetime() {
    let mut wrongs = Vec::new();
    for at_us in (4_000..16_000).step_by(2_000) {
        let jump = format!("{at_us}us:0:clock-jump=3s");
        let mut spec =
            three(&["1ms:1:agent-killed", "1ms:0.0:delay=20ms/2ms", "2900us:1.0:blackhole-tx", &jump]);
        spec.pes = 2;
        spec.both_ways = false;
        spec.suspect_ns = 2_000_000;
        spec.traffic = Traffic { messages: 1_000, slots: 48, pace_ns: 5_000, ..Traffic::default() };
        let verdict = judge(&spec, Lie::None);
        wrongs.extend(verdict.wrongs.into_iter().map(|wrong| format!("jump at {at_us} us: {wrong}")));
    }
    assert!(wrongs.is_empty(), "{} {}", wrongs.len(), wrongs[0]);
}
