//! What device code counts of switches, and the records of their steps.

use shunt_host::agent::reader::Cursor;
use shunt_host::agent::words::StateWords;
use shunt_layout::state::{STEP_RECORDS, Step, StepRecord, SwitchKind, Tally};
use shunt_tests::cluster::Cluster;
use shunt_tests::oracle::store;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;

fn spec(faults: &[&str]) -> RunSpec {
    RunSpec {
        both_ways: true,
        traffic: Traffic { messages: 400, pace_ns: 200_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// The words of a PE, for a look from outside.
fn words(cluster: &Cluster, pe: u32) -> StateWords {
    // SAFETY: the state is mapped while the cluster lives, and nobody writes the root.
    unsafe { StateWords::new(cluster.pe(pe).host_state(), cluster.clock(pe)) }.expect("one build")
}

/// PE 0's counters and steps after a run, and its switches.
fn counted(faults: &[&str]) -> (Tally, Vec<StepRecord>, Vec<SwitchKind>) {
    let spec = spec(faults);
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    outcome.assert_clean();
    let kinds = [SwitchKind::Failover, SwitchKind::SwitchBack].into_iter();
    let own = kinds.flat_map(|kind| {
        outcome.of_kind(kind).filter(|record| record.peer == 1).map(move |_| kind).collect::<Vec<_>>()
    });
    let words = words(&cluster, 0);
    let mut reader = Cursor::default();
    let (steps, lost) = words.steps_since(&mut reader);
    assert_eq!((reader.next(), lost), (steps.len() as u64, 0));
    (words.tally(1), steps, own.collect())
}

#[test]
fn without_a_fault_nothing_is_counted() {
    let (tally, steps, switches) = counted(&[]);
    let words: [u64; size_of::<Tally>() / 8] =
        // SAFETY: counters are integers without padding.
        unsafe { std::mem::transmute(tally) };
    assert_eq!((words, steps.len(), switches.len()), ([0; 16], 0, 0));
}

#[test]
fn a_way_there_and_back_is_counted_and_recorded_step_by_step() {
    let (tally, steps, switches) = counted(&["5ms:0.0:down", "30ms:0.0:up"]);
    assert_eq!(switches, [SwitchKind::Failover, SwitchKind::SwitchBack]);
    assert_eq!((tally.fences_asked, tally.ledger_cuts, tally.suspicions, tally.pathless), (1, 0, 0, 0));
    assert_eq!((tally.left[0], tally.entered[0]), (1, 1), "{tally:?}");
    assert_eq!(tally.left.iter().sum::<u32>(), 2, "{tally:?}");
    let recorded: Vec<Step> = steps.iter().map(|step| Step::from_raw(step.step)).collect();
    use Step::{Choose, Drain, DrainFlush, Fence, Idle, Replay, Settle};
    let want = [Settle, Fence, Choose, Replay, Idle, Drain, DrainFlush, Choose, Replay, Idle];
    assert_eq!(recorded, want);
    assert!(steps.is_sorted_by_key(|step| step.at_ns) && steps.iter().all(|step| step.row == 1));
    let journal = steps[3];
    assert_eq!(tally.replayed + tally.placeholders, journal.journal_end - journal.done);
}

#[test]
fn silence_is_a_suspicion() {
    let (tally, ..) = counted(&["5ms:0.0:drop-acks"]);
    assert!(tally.suspicions >= 1 && tally.fences_asked >= tally.suspicions, "{tally:?}");
}

/// A ring that went round says how many records it lost; one that is being written is left for the next look.
#[test]
fn a_ring_that_went_round_says_how_many_it_lost() {
    let cluster = Cluster::start(&spec(&[]));
    let words = words(&cluster, 0);
    let (steps, head) = (words.root().steps, words.root().steps_head);
    let written = 3_000;
    for number in 0..written {
        let at = steps + number % STEP_RECORDS as u64 * size_of::<StepRecord>() as u64;
        store(at, number + 1);
    }
    store(head, written + 1);
    let mut reader = Cursor::at(10);
    let (records, lost) = words.steps_since(&mut reader);
    assert_eq!(lost, written + 1 - STEP_RECORDS as u64 - 10);
    assert_eq!((records.len(), reader.next()), (STEP_RECORDS - 1, written), "the last one is being written");
    assert!(records.iter().zip(lost + 11..).all(|(step, sequence)| step.sequence == sequence));
}

/// A kernel that was stopped between taking a record's number and finishing it: what comes after is told all the same.
#[test]
fn a_record_that_nobody_finishes_does_not_blind_the_log() {
    let spec = spec(&["5ms:0.0:down", "30ms:0.0:up"]);
    let cluster = Cluster::start(&spec);
    store(words(&cluster, 0).root().records_head, 1);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let outcome = finish(&cluster, start_streams(&cluster));
    outcome.assert_clean();
    let own = |cluster: &Cluster| cluster.records().iter().filter(|(pe, _)| *pe == 0).count();
    assert_eq!(own(&cluster), 0, "record 0 may still be finished");
    cluster.sim.run_for(1_100_000_000);
    assert_eq!(own(&cluster), 2, "there and back: {:?}", cluster.notes());
    let lost = |note: &String| note.starts_with("agent of PE 0") && note.contains("lost");
    assert!(cluster.notes().iter().any(lost), "{:?}", cluster.notes());
}
