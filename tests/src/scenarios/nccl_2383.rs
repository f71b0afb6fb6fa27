//! NVIDIA/nccl#2383, over the three kinds of signal (scenario 1): the receiver applies a signal, the answer is lost,
//! the retries run out. Puts before and after it; the receiver of a kind 2 signal clears its word at once. Each
//! signal is counted once, and nobody hangs.

use std::cell::Cell;
use std::rc::Rc;

use shunt_device::{Deadline, Fault, FaultKind, HeapOffset, Put, Resolution, Signal, Solo, Ticket};
use shunt_layout::state::{CauseKind, SwitchKind};

use super::kit::{Wrongs, judged};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::kernel::Kernel;
use crate::oracle::{load, store};
use crate::spec::RunSpec;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "nccl_2383_with_truth", seeds: 5, run: with_truth },
    Scenario { name: "nccl_2383_without_truth", seeds: 5, run: without_truth },
];

/// Kind of signal, and what is lost.
const CASES: [(u32, &str); 5] = [
    (1, "drop-acks"),
    (2, "lost-atomic-response"),
    (2, "drop-acks"),
    (3, "lost-atomic-response"),
    (3, "drop-acks"),
];

/// Rounds of put, signal, put.
const ROUNDS: u64 = 400;
const PACE_NS: u64 = 10_000;
const WORD: u64 = 64;
/// Puts before signals, a word each, and puts behind them.
const BEFORE: u64 = 4096;
const AFTER: u64 = BEFORE + ROUNDS * 8;
/// Longer than all retries of a transport take.
const PATIENCE_NS: u64 = 5_000_000_000;

/// What the receiver saw.
#[derive(Debug, Default)]
struct Seen {
    /// Signals, by what was added or by the value.
    signals: Cell<u64>,
    /// Puts that were not there behind their signal.
    missing: Cell<u64>,
}

/// What a run came to.
struct Came {
    seen: u64,
    missing: u64,
    asked: u64,
    word: u64,
    after: Vec<u64>,
}

fn signal(kind: u32, round: u64) -> Signal {
    match kind {
        1 => Signal::Monotone(round + 1),
        2 => Signal::Cleared(1),
        _ => Signal::Add(1),
    }
}

fn send(kernel: &Kernel, kind: u32, signals: &dyn Fn(Ticket, u64)) -> Result<(), Fault> {
    let channel = kernel.device().channel(1, 0);
    for round in 0..ROUNDS {
        store(kernel.heap + BEFORE + round * 8, round + 1);
        store(kernel.heap + AFTER + round * 8, round + 1);
        let put =
            |at: u64| Put { dst: HeapOffset(at + round * 8), src: HeapOffset(at + round * 8), bytes: 8 };
        let at = channel.put_signal_nbi(Solo, put(BEFORE), HeapOffset(WORD), signal(kind, round))?;
        signals(at, round);
        channel.put_nbi(Solo, put(AFTER))?;
        kernel.world.sleep(PACE_NS);
    }
    let deadline = Deadline::after(kernel.world.now(), 4 * PATIENCE_NS);
    loop {
        match channel.quiet(Solo, deadline) {
            Err(fault) if fault.kind == FaultKind::Uncertain && channel.alive().is_ok() => {
                kernel.world.sleep(PACE_NS);
            }
            other => return other,
        }
    }
}

/// Looks at the word all the time. A kind 2 signal is cleared as soon as it is seen.
fn receive(kernel: &Kernel, kind: u32, seen: &Seen, ended: &Cell<bool>) {
    while !ended.get() {
        let word = load(kernel.heap + WORD);
        let before = seen.signals.get();
        let now = if kind == 2 { before + word } else { word };
        if kind == 2 && word > 0 {
            store(kernel.heap + WORD, 0);
        }
        let missing = |round: &u64| load(kernel.heap + BEFORE + round * 8) != round + 1;
        let missing = (before..now.min(ROUNDS)).filter(missing).count() as u64;
        seen.missing.set(seen.missing.get() + missing);
        seen.signals.set(now);
        kernel.world.sleep(1_000);
    }
}

fn play(kind: u32, truth: bool, lost: &str) -> (Came, Cluster) {
    let mut spec = RunSpec { rmsn_cleared: !truth, suspect_ns: PATIENCE_NS, ..RunSpec::default() };
    (spec.suspect_floor_ns, spec.traffic.slot_bytes) = (PATIENCE_NS, 4096);
    let cluster = Cluster::start(&spec);
    cluster.inject(&format!("1ms:0.0:{lost}").parse().expect("a fault"));
    cluster.watch(1, WORD);
    let (seen, ended) = (Rc::new(Seen::default()), Rc::new(Cell::new(false)));
    let (noted, end) = (seen.clone(), ended.clone());
    cluster.spawn("receive", 1, move |kernel| receive(kernel, kind, &noted, &end));
    let (end, oracle, counted) = (ended.clone(), cluster.oracle.clone(), seen.clone());
    // Who owns an add asks the receiver, once nothing of it can be on its way.
    let resolve = cluster.spawn("resolve", 0, move |kernel| {
        let mut asked = 0;
        while !end.get() {
            let channel = kernel.device().channel(1, 0);
            if let Some(fault) = channel.uncertain()
                && let Some((_, value)) = oracle.added((0, 1, 0, fault.at.0))
            {
                kernel.world.sleep(1_000_000);
                let applied = counted.signals.get() >= value;
                let answer = if applied { Resolution::Applied } else { Resolution::NotApplied };
                channel.resolve(fault.at, answer).expect("the channel asks");
                asked += 1;
            }
            kernel.world.sleep(PACE_NS);
        }
        asked
    });
    let oracle = cluster.oracle.clone();
    let sender = cluster.spawn("send", 0, move |kernel| {
        // A bracketed signal stands one before its second ledger word.
        let behind = u64::from(kind == 2);
        send(kernel, kind, &|at, round| oracle.note_add((0, 1, 0, at.0 - behind), WORD, round + 1))
    });
    cluster.sim.finish(&sender).expect("one path works");
    cluster.sim.run_for(100_000_000);
    ended.set(true);
    let asked = cluster.sim.finish(&resolve);
    let heap = cluster.pe(1).heap().address;
    let after = (0..ROUNDS).map(|round| load(heap + AFTER + round * 8)).collect();
    let came =
        Came { seen: seen.signals.get(), missing: seen.missing.get(), asked, word: load(heap + WORD), after };
    (came, cluster)
}

/// Retries ran out on a path whose answers were lost; each signal counted once, each put there, in order.
fn assert_exact(kind: u32, truth: bool, lost: &str) -> Came {
    let (came, cluster) = play(kind, truth, lost);
    let (_, hits) = &cluster.faults()[0];
    assert!(*hits >= 1, "{lost} hit nothing");
    let records = cluster.records();
    // The other direction leaves as well, because its pair was fenced.
    let mut failovers =
        records.iter().filter(|(pe, record)| *pe == 0 && record.kind == SwitchKind::Failover as u32);
    let (_, first) = failovers.next().expect("a failover");
    assert_eq!((first.cause, first.syndrome as u8), (CauseKind::Completion as u32, 0x15), "retries ran out");
    assert_eq!(first.ledger != 0, !truth);
    assert_eq!((came.seen, came.missing), (ROUNDS, 0), "kind {kind}, truth {truth}");
    assert_eq!(came.word, if kind == 2 { 0 } else { ROUNDS });
    let watched = cluster.watched(1, WORD);
    assert_eq!(watched.writes, ROUNDS, "each signal is one write of the word");
    assert!(
        came.after.iter().zip(1..).all(|(met, wanted)| *met == wanted),
        "a put behind a signal is not there"
    );
    came
}

/// The count tells of every message, whatever its kind.
fn with_truth(seed: u64) -> Wrongs {
    judged(|| {
        let (kind, lost) = CASES[seed as usize % CASES.len()];
        assert_eq!(assert_exact(kind, true, lost).asked, 0, "kind {kind}, {lost}");
        Wrongs::new()
    })
}

/// Kind 1: the word tells. Kind 2: the ledger words on both sides of the signal tell, though the word is cleared. While
/// answers are lost, the NIC stops at the first atomic more than it may have under way: behind the ledger word before
/// it, which was written. That one signal is asked about, and no other. Kind 3: nothing tells; the owner is asked, and
/// it is never repeated in silence.
fn without_truth(seed: u64) -> Wrongs {
    judged(|| {
        let (kind, lost) = CASES[seed as usize % CASES.len()];
        let asked = assert_exact(kind, false, lost).asked;
        let right = match kind {
            1 => asked == 0,
            2 => asked == 1,
            _ => asked >= 1,
        };
        assert!(right, "{asked} signals of kind {kind} were asked about, {lost}");
        Wrongs::new()
    })
}
