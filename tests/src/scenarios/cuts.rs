//! Cuts: how far the receiver got, from its count or from the ledger, and what is repeated. Rules 12 to 14, F6, H2.

use super::kit::{Wrongs, both_ways, clean, clean_lying, failovers_of, spec, wrong_if};
use super::scenario::Scenario;
use crate::lies::Lie;
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "acks_lost_before_a_switch", seeds: 6, run: acks_lost },
    Scenario { name: "requests_lost_before_a_switch", seeds: 4, run: requests_lost },
    Scenario { name: "acks_lost_without_truth", seeds: 6, run: acks_lost_without_truth },
    Scenario { name: "a_backup_that_executes_nothing", seeds: 4, run: backup_executes_nothing },
    Scenario { name: "three_paths_fail_in_a_row", seeds: 8, run: three_in_a_row },
    Scenario { name: "a_count_that_2err_clears", seeds: 4, run: cleared_count },
    Scenario { name: "a_ledger_as_slow_as_all_else", seeds: 4, run: slow_ledger },
    Scenario { name: "a_count_that_is_zero", seeds: 4, run: count_is_zero },
    Scenario { name: "a_count_at_a_psn_never_sent", seeds: 4, run: psn_never_sent },
    Scenario { name: "the_journal_of_a_recreated_path", seeds: 6, run: journal_of_a_recreated_path },
];

fn dense(seed: u64, faults: &[&str]) -> RunSpec {
    let spec = both_ways(seed, faults);
    let traffic = Traffic { messages: 1_500, slots: 4, pace_ns: 0, credit_lag: 0, ..spec.traffic };
    RunSpec { warps: 2, traffic, ..spec }
}

/// All was executed, nothing is known of it: repeated puts would land in slots that were reused.
fn acks_lost(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:drop-acks", "1ms:1.0:drop-acks", "1ms:0.0:drop-acks=30ms"][seed as usize % 3];
    clean(&dense(seed, &[fault]), |outcome| failovers_of(outcome, 1))
}

/// Nothing was executed of what is outstanding.
fn requests_lost(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:blackhole-tx", "1ms:1.0:blackhole-rx"][seed as usize % 2];
    clean(&dense(seed, &[fault]), |outcome| failovers_of(outcome, 1))
}

/// The same where the NICs' counts are worth nothing: the signal words decide.
fn acks_lost_without_truth(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:drop-acks", "1ms:1.0:drop-acks", "1ms:0.0:down"][seed as usize % 3];
    let spec = RunSpec { rmsn_cleared: true, ..dense(seed, &[fault]) };
    clean(&spec, |outcome| {
        let all = outcome.records.iter().all(|(_, record)| record.ledger == 1);
        wrong_if(!all, || "a cut came from a count that is no truth".into())
    })
}

/// The primary executes all and acknowledges nothing, the backup executes nothing: the third path is cut by what the
/// first one proved.
fn backup_executes_nothing(seed: u64) -> Wrongs {
    let mut spec = dense(seed, &["1ms:0.0:drop-acks", "1ms:0.1:blackhole-tx"]);
    (spec.rails, spec.backups) = (3, 7);
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// Each path in turn executes something and acknowledges none of it, or executes none of it.
fn three_in_a_row(seed: u64) -> Wrongs {
    let second = ["blackhole-tx", "drop-acks"][seed as usize % 2];
    let third = ["drop-acks", "blackhole-tx"][seed as usize / 2 % 2];
    let faults = ["1ms:0.0:drop-acks".to_owned(), format!("0ns:0.1:{second}"), format!("0ns:0.2:{third}")];
    let mut spec = dense(seed, &faults.each_ref().map(String::as_str));
    (spec.rails, spec.backups, spec.suspect_ns) = (4, 7, 2_000_000);
    clean(&spec, |outcome| failovers_of(outcome, 3))
}

/// A count that 2ERR clears looks right while nothing was completed on the path: only the proof at start tells.
fn cleared_count(seed: u64) -> Wrongs {
    let spec = both_ways(seed, &["0ns:0.0:drop-acks"]);
    let traffic = Traffic { messages: 60, slots: 16, ..spec.traffic };
    clean(&RunSpec { rmsn_cleared: true, traffic, ..spec }, |outcome| {
        let first = outcome.records.iter().find(|(pe, _)| *pe == 0);
        let by_ledger = first.is_some_and(|(_, record)| record.ledger == 1 && record.executed > 0);
        wrong_if(!by_ledger, || "the first cut did not come from the ledger".into())
    })
}

/// No count, and every answer takes longer than a READ of the ledger is given at least, though not so long that work is
/// suspected: both ends gave up one path after the other, round and round, until the peer was lost. The soak found it.
fn slow_ledger(seed: u64) -> Wrongs {
    let away = ["30ms:0.0:down=2s", "30ms:0.0:drop-acks=2s"][seed as usize % 2];
    let mut spec = both_ways(seed, &["1ms:0.0:delay=24ms", "1ms:0.1:delay=24ms", away]);
    (spec.rmsn_cleared, spec.suspect_ns, spec.suspect_floor_ns) = (true, 200_000_000, 200_000_000);
    spec.traffic = Traffic { messages: 60, slots: 16, ..spec.traffic };
    clean(&spec, |outcome| {
        let by_ledger = outcome.records.iter().any(|(pe, record)| *pe == 0 && record.ledger == 1);
        wrong_if(!by_ledger, || "no cut came from the ledger".into())
    })
}

/// Firmware that begins to answer zero: no such count is possible.
fn count_is_zero(seed: u64) -> Wrongs {
    let spec = RunSpec { give_up_ns: 100_000_000, ..dense(seed, &["1ms:0.0:drop-acks"]) };
    clean_lying(&spec, Lie::CountZero, |_| Vec::new())
}

/// Firmware that begins to count too far, at a PSN that was never sent.
fn psn_never_sent(seed: u64) -> Wrongs {
    clean_lying(&dense(seed, &["1ms:0.0:blackhole-tx"]), Lie::FarAhead, |_| Vec::new())
}

/// With one rail there is nowhere to go: the same pair is recreated beside the journal of the switch that waits for it.
fn journal_of_a_recreated_path(seed: u64) -> Wrongs {
    let span = ["5ms", "30ms", "100ms"][seed as usize % 3];
    let mut spec = spec(seed, &[&format!("3ms:0.0:down={span}"), "200ms:1.0:down=20ms"]);
    (spec.rails, spec.backups, spec.log_depth, spec.both_ways) = (1, 0, 4, true);
    spec.warps = if seed.is_multiple_of(2) { 1 } else { 4 };
    spec.step_limit = 4_000_000;
    spec.traffic = Traffic {
        messages: 1_200 / u64::from(spec.warps),
        pace_ns: 200_000 * u64::from(spec.warps),
        ..spec.traffic
    };
    clean(&spec, |outcome| failovers_of(outcome, 2))
}
