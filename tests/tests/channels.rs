//! Several channels to one peer: traffic on one must not hide the silence of another.

use shunt_layout::state::SwitchKind;
use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

/// Channels 0, 2, 4, 6 have their primary on rail 0, which goes silent without an event; the others stay busy.
#[test]
fn every_silent_channel_is_noticed_in_its_suspect_time() {
    let spec = RunSpec {
        channels: 8,
        both_ways: true,
        traffic: Traffic { messages: 700, pace_ns: 50_000, ..Traffic::default() },
        faults: vec!["3ms:0.0:blackhole-tx".parse().expect("a fault")],
        ..RunSpec::default()
    };
    let outcome = run(&spec);
    outcome.assert_clean();
    outcome.assert_exercised();
    let down_ns = outcome.began_ns + 3_000_000;
    let mut left = 0;
    for (pe, record) in &outcome.records {
        if *pe == 0 && record.kind == SwitchKind::Failover as u32 && record.left.local_rail == 0 {
            let noticed_us = record.stamps[0].saturating_sub(down_ns) / 1000;
            assert!(
                noticed_us < 20_000,
                "channel {} noticed after {noticed_us} us\n{outcome}",
                record.channel
            );
            left += 1;
        }
    }
    assert!(left >= 4, "four channels were on the silent rail, {left} left it\n{outcome}");
}
