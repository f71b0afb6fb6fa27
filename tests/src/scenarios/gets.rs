//! Gets and fetching atomics: executed is not delivered. Rules 12 and 14, F3, F6, H13.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::rc::Rc;

use shunt_device::{Deadline, FaultKind, HeapOffset, Resolution, Solo};
use shunt_layout::state::{Channel, Word};

use super::kit::{Wrongs, clean, failovers_of, judged, spec, steered, wrong_if};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::lies::Lie;
use crate::oracle::load;
use crate::outcome::Outcome;
use crate::run::Streams;
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "gets_executed_and_their_responses_lost", seeds: 6, run: responses_lost },
    Scenario { name: "responses_late_after_local_reuse", seeds: 8, run: responses_late },
    Scenario { name: "a_get_before_a_second_failure", seeds: 6, run: second_failure },
    Scenario { name: "fetches_executed_and_their_answers_lost", seeds: 6, run: answers_lost },
    Scenario { name: "atomics_without_truth", seeds: 6, run: atomics_without_truth },
    Scenario { name: "atomics_that_the_count_leaves_out", seeds: 4, run: atomics_left_out },
    Scenario { name: "atomics_counted_and_dropped", seeds: 4, run: atomics_dropped },
    Scenario { name: "brackets_without_truth", seeds: 6, run: brackets_without_truth },
    Scenario { name: "the_gap_of_a_bracket", seeds: 4, run: gap_of_a_bracket },
    Scenario { name: "the_gap_of_a_bracket_behind_lost_acks", seeds: 4, run: gap_behind_lost_acks },
    Scenario { name: "polled_puts_without_truth", seeds: 3, run: polled_puts },
    Scenario { name: "wide_atomics_before_a_cut", seeds: 4, run: wide_atomics },
];

/// Two warps that get with every second message, and faults on the sender's first rail.
fn getting(seed: u64, faults: &[&str]) -> RunSpec {
    let mut spec = spec(seed, faults);
    (spec.warps, spec.suspect_ns) = (2, 2_000_000);
    spec.traffic = Traffic { slots: 12, gets: 2, pace_ns: 10_000, credit_lag: 0, ..spec.traffic };
    spec
}

/// X of each channel, in the order in which its switches opened: what was proved is never taken back (rule 12).
fn watermark_goes_back(outcome: &Outcome) -> Wrongs {
    let mut watermarks: BTreeMap<_, u64> = BTreeMap::new();
    let mut wrongs = Wrongs::new();
    for (pe, record) in &outcome.records {
        let last = watermarks.entry((*pe, record.peer, record.channel)).or_default();
        wrongs.extend(wrong_if(record.executed < *last, || {
            format!("PE {pe}: X went back from {last} to {}", record.executed)
        }));
        *last = record.executed;
    }
    wrongs
}

/// Requests arrive, what comes back does not: the gets were executed, their data is nowhere.
fn responses_lost(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:blackhole-rx", "1ms:0.0:drop-acks", "1ms:1.0:blackhole-tx"][seed as usize % 3];
    let mut spec = getting(seed, &[fault]);
    spec.traffic.slot_bytes = [256, 8192][seed as usize / 3 % 2];
    clean(&spec, |outcome| [failovers_of(outcome, 1), watermark_goes_back(outcome)].concat())
}

/// Responses come milliseconds after the same gets were issued again elsewhere, and their buffers used for something
/// else.
fn responses_late(seed: u64) -> Wrongs {
    let delay = ["2500us", "3ms", "5ms", "9ms"][seed as usize % 4];
    let place = ["0.0", "1.0"][seed as usize / 4];
    let mut spec = getting(seed, &[&format!("1ms:{place}:delay={delay}/3ms")]);
    spec.traffic.gets = 1;
    clean(&spec, |outcome| [failovers_of(outcome, 1), watermark_goes_back(outcome)].concat())
}

/// A get without an answer holds D back behind what was executed; the path that is entered next executes nothing. Only
/// X knows.
fn second_failure(seed: u64) -> Wrongs {
    let second = ["0us:0.1:blackhole-tx", "0us:1.1:blackhole-rx"][seed as usize % 2];
    let mut spec = getting(seed, &["1ms:0.0:blackhole-rx", second]);
    (spec.rails, spec.backups) = (3, 7);
    clean(&spec, |outcome| {
        let beyond = outcome.records.iter().any(|(_, record)| record.executed > record.done_at_close);
        let mut wrongs = failovers_of(outcome, 2);
        wrongs.extend(wrong_if(!beyond, || "X was never beyond D".into()));
        wrongs.extend(watermark_goes_back(outcome));
        wrongs
    })
}

/// Fetching atomics were applied and their answers lost: the owner says so, and nothing is applied twice.
fn answers_lost(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:lost-atomic-response=4ms", "1ms:0.0:blackhole-rx"][seed as usize % 2];
    let mut spec = getting(seed, &[fault]);
    (spec.traffic.gets, spec.traffic.fetches) = ([0, 4][seed as usize / 2 % 2], 3);
    clean(&spec, |outcome| {
        let asked = wrong_if(outcome.resolved == 0, || "nothing was uncertain".into());
        [failovers_of(outcome, 1), asked].concat()
    })
}

/// Atomics of which nobody can say whether they were applied, lost on the way there or back: each is asked about, in
/// turn, and what its owner says counts.
fn atomics_without_truth(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:blackhole-rx", "1ms:0.0:blackhole-tx"][seed as usize % 2];
    let mut spec = getting(seed, &[fault]);
    (spec.rmsn_cleared, spec.traffic.signals) = (true, 3);
    (spec.traffic.gets, spec.traffic.fetches) = (0, [0, 4][seed as usize / 2 % 2]);
    clean(&spec, |outcome| {
        let asked = wrong_if(outcome.resolved == 0, || "nothing was uncertain".into());
        [failovers_of(outcome, 1), asked].concat()
    })
}

/// NICs that do not count atomics, and whose answers are lost: by such a count each that was executed is repeated.
/// They are found at start, and each is asked about instead. Nothing was completed on the path, so that the count is
/// possible.
fn atomics_left_out(seed: u64) -> Wrongs {
    let fault = ["0ns:0.0:drop-acks", "0ns:0.0:blackhole-rx"][seed as usize % 2];
    let mut spec = RunSpec { atomic_count: 1, ..getting(seed, &[fault]) };
    spec.traffic.messages = 60;
    miscounted(spec)
}

/// NICs that count an atomic when they accept it, and drop at 2ERR what they have not executed yet: by such a count
/// none of those is repeated.
fn atomics_dropped(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:down", "1ms:1.0:down"][seed as usize % 2];
    let mut spec = getting(seed, &[fault]);
    (spec.atomic_count, spec.atomic_gap_ns, spec.traffic.pace_ns) = (3, 20_000, 0);
    miscounted(spec)
}

fn miscounted(mut spec: RunSpec) -> Wrongs {
    (spec.traffic.signals, spec.traffic.gets, spec.traffic.fetches) = (3, 0, 0);
    clean(&spec, |outcome| {
        let first = outcome.records.iter().find(|(pe, _)| *pe == 0);
        let by_ledger = first.is_some_and(|(_, record)| record.ledger == 1);
        let asked = wrong_if(outcome.resolved == 0, || "nothing was uncertain".into());
        let believed = wrong_if(!by_ledger, || "the first cut did not come from the ledger".into());
        [failovers_of(outcome, 1), asked, believed].concat()
    })
}

/// Bracketed signals without truth, over two failures: requests are lost, then the acknowledgements of what was
/// repeated. The ledger words are repeated with their signals, so what they say is exact, but for one signal of each
/// path: the one between whose words a port fell silent, or a NIC stopped because it had as many atomics under way as
/// it may.
fn brackets_without_truth(seed: u64) -> Wrongs {
    let at = 300 + 7 * seed;
    let mut spec = getting(seed, &[&format!("{at}us:0.0:blackhole-tx")]);
    (spec.warps, spec.rails, spec.backups, spec.rmsn_cleared) = (1, 3, 7, true);
    // Nobody waits for credit: what is repeated is the last that is posted.
    spec.traffic = Traffic { messages: 60, slots: 60, signals: 2, puts: 1, gets: 0, ..spec.traffic };
    // The ledger was read over the second path by then.
    let opened = |cluster: &Cluster, _: &Streams| {
        let ticket = cluster.step_word(0, 1, 0) - offset_of!(Channel, switch.word) as u64
            + offset_of!(Channel, ticket) as u64;
        let generation = || Word(load(ticket)).generation();
        let first = generation();
        cluster.sim.run_until(|| generation() != first);
        silence(cluster, "0.1", "drop-acks");
    };
    steered(&spec, Lie::None, opened, |outcome| {
        let asked = outcome.resolved;
        let too_many = wrong_if(asked > 2, || format!("{asked} questions, where the ledger words tell"));
        let mut cuts = outcome.records.iter().filter(|(pe, _)| *pe == 0).map(|(_, record)| record.executed);
        let told = cuts.next().zip(cuts.next()).is_some_and(|(first, second)| second > first);
        let idle = wrong_if(!told, || "the ledger told of nothing that was repeated".into());
        [failovers_of(outcome, 2), too_many, idle].concat()
    })
}

/// A fault of a port, now and for ever.
fn silence(cluster: &Cluster, port: &str, fault: &str) {
    let now = cluster.sim.now() - cluster.began_ns();
    cluster.inject(&format!("{now}ns:{port}:{fault}").parse().unwrap_or_else(|error| panic!("{error}")));
}

/// Slow bracketed signals without truth, so that there is time between the words of a bracket.
fn slow_brackets(seed: u64) -> RunSpec {
    let mut spec = getting(seed, &["0ns:0.0:slow=0.005"]);
    (spec.warps, spec.rmsn_cleared) = (1, true);
    let (puts, slot_bytes) = (1, 8);
    spec.traffic =
        Traffic { messages: 40, puts, slot_bytes, signals: 2, gets: 0, pace_ns: 0, ..spec.traffic };
    spec
}

/// Runs until a signal from number `least` on is applied whose second ledger word is not, though the first one is.
fn run_into_the_gap(cluster: &Cluster, least: u64) {
    let (heap, stream) = (cluster.pe(1).heap().address, cluster.streams()[0]);
    let ledger = heap + cluster.pe(1).root().ledger;
    let (mut first, mut at_first) = (0, 0);
    cluster.sim.run_until(|| {
        let (a, b, signal) = (load(ledger), load(ledger + 8), load(heap + stream.signal()));
        if a != first {
            (first, at_first) = (a, signal);
        }
        a > b && signal > at_first && signal >= least
    });
}

/// The receiver's port falls silent behind a signal and before its second ledger word: what lies between the two is
/// asked about.
fn gap_of_a_bracket(seed: u64) -> Wrongs {
    let gap = |cluster: &Cluster, _: &Streams| {
        run_into_the_gap(cluster, seed + 3);
        // Neither the second ledger word arrives nor the answer of the signal.
        ["1.0", "0.0"].iter().for_each(|port| silence(cluster, port, "blackhole-rx"));
    };
    steered(&slow_brackets(seed), Lie::None, gap, asked_about)
}

/// The same, and the first ledger word was not acknowledged either: that it was written is known by itself alone.
fn gap_behind_lost_acks(seed: u64) -> Wrongs {
    let gap = |cluster: &Cluster, _: &Streams| {
        let ledger = cluster.pe(1).heap().address + cluster.pe(1).root().ledger;
        run_into_the_gap(cluster, seed + 3);
        cluster.sim.run_until(|| load(ledger) == load(ledger + 8));
        silence(cluster, "0.0", "drop-acks");
        let signal = load(cluster.pe(1).heap().address + cluster.streams()[0].signal());
        run_into_the_gap(cluster, signal + 1);
        silence(cluster, "1.0", "blackhole-rx");
    };
    steered(&slow_brackets(seed), Lie::None, gap, asked_about)
}

fn asked_about(outcome: &Outcome) -> Wrongs {
    let asked = wrong_if(outcome.resolved == 0, || "nothing was uncertain".into());
    [failovers_of(outcome, 1), asked].concat()
}

/// Words that the receiver polls, put without any signal, and no truth: which of them were executed nobody can know, so
/// each that may have been is asked about, and none is written twice.
fn polled_puts(seed: u64) -> Wrongs {
    const WORD: u64 = 64;
    const COUNT: u64 = 300;
    judged(|| {
        let fault = ["drop-acks", "blackhole-tx", "blackhole-rx"][seed as usize % 3];
        let mut spec = spec(seed, &[&format!("{}us:0.0:{fault}", 1_000 + 3 * seed)]);
        (spec.suspect_ns, spec.rmsn_cleared, spec.polled_puts) = (2_000_000, true, true);
        let cluster = Cluster::start(&spec);
        cluster.watch(1, WORD);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let ended = Rc::new(Cell::new(false));
        // Value v is put by ticket v - 1.
        let (end, word) = (ended.clone(), cluster.pe(1).heap().address + WORD);
        let owner = cluster.spawn("owner", 0, move |kernel| {
            let mut asked = 0;
            while !end.get() {
                let channel = kernel.device().channel(1, 0);
                if let Some(fault) = channel.uncertain() {
                    kernel.world.sleep(1_000_000);
                    let applied = load(word) > fault.at.0;
                    let answer = if applied { Resolution::Applied } else { Resolution::NotApplied };
                    asked += u64::from(channel.resolve(fault.at, answer).is_ok());
                }
                kernel.world.sleep(20_000);
            }
            asked
        });
        let sender = cluster.spawn("put", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            for value in 1..=COUNT {
                channel.p_nbi(Solo, HeapOffset(WORD), value, 8)?;
                kernel.world.sleep(10_000);
            }
            let deadline = Deadline::after(kernel.world.now(), 2_000_000_000);
            loop {
                match channel.quiet(Solo, deadline) {
                    Err(fault) if fault.kind == FaultKind::Uncertain && channel.alive().is_ok() => {
                        kernel.world.sleep(20_000);
                    }
                    other => return other,
                }
            }
        });
        let sent = cluster.sim.finish(&sender);
        ended.set(true);
        let asked = cluster.sim.finish(&owner);
        let watched = cluster.watched(1, WORD);
        let mut wrongs = wrong_if(sent.is_err(), || format!("the sender ended with {sent:?}"));
        let once = (watched.writes, watched.not_increasing, watched.last) == (COUNT, 0, COUNT);
        wrongs.extend(wrong_if(!once, || format!("{COUNT} values were written as {watched:?}")));
        wrongs.extend(wrong_if(asked == 0, || "no owner was asked".into()));
        wrongs
    })
}

/// Atomics that take two blocks run ahead of their completions; the receiver counts messages.
fn wide_atomics(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:drop-acks", "1ms:0.0:blackhole-tx"][seed as usize % 2];
    let mut spec = getting(seed, &[fault]);
    (spec.traffic.gets, spec.traffic.fetches, spec.log_depth) = (0, 1, [4, 7][seed as usize / 2]);
    clean(&spec, |outcome| {
        let guessed = outcome.records.iter().find(|(_, record)| record.ledger != 0);
        let mut wrongs = failovers_of(outcome, 1);
        wrongs.extend(guessed.map(|(pe, _)| format!("PE {pe} took its cut without the receiver's count")));
        wrongs
    })
}
