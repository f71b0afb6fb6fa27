use shunt_device::Deadline;
use shunt_tests::kernel::{LATE_SLACK_NS, late_ns};
use shunt_tests::workload::*;

#[test]
fn only_what_was_taken_during_a_wait_excuses_it() {
    let deadline = Deadline { at_ns: 1_000 };
    assert_eq!(late_ns(1_000 + LATE_SLACK_NS, deadline, 0), None);
    assert_eq!(late_ns(1_001 + LATE_SLACK_NS, deadline, 0), Some(LATE_SLACK_NS + 1));
    assert_eq!(late_ns(1_500 + LATE_SLACK_NS, deadline, 500), None);
}

#[test]
fn pieces_cover_a_message_once() {
    for (bytes, count) in [(8, 1), (64, 3), (4096, 7), (16, 5)] {
        let pieces = split(bytes, count);
        let mut at = 0;
        for (offset, length) in pieces {
            assert_eq!(offset, at);
            assert!(length > 0 && length % 8 == 0);
            at += length;
        }
        assert_eq!(at, bytes);
    }
}
