//! Many runs, each judged, and what they went through in one table.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

use shunt_layout::state::SwitchKind;
use shunt_soft_nic::Injection;

use crate::cluster::Cluster;
use crate::draw::drawn;
use crate::lies::{Lie, Lies};
use crate::outcome::Outcome;
use crate::run::{finish, start_streams};
use crate::spec::RunSpec;

/// What came of one run of the swarm.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was run.
    pub spec: RunSpec,
    /// Hash of every event of the run; `None` if it did not end.
    pub digest: Option<u64>,
    /// What is wrong with it; nothing if it held.
    pub wrongs: Vec<String>,
    /// Faults and their hits.
    pub faults: Vec<(Injection, u64)>,
    /// As [`COUNTS`] calls them.
    pub counts: [u64; 8],
    /// Every switch and the agents' last words, of a run in which something is wrong.
    pub said: String,
}

impl Verdict {
    /// Scheduling steps of the run.
    pub fn steps(&self) -> u64 {
        self.counts[7]
    }
}

/// What is counted. Typed faults are kernels that ended with one; time is that of the traffic.
const COUNTS: [&str; 8] = [
    "failovers",
    "switch-backs",
    "cuts by ledger",
    "operations replayed",
    "typed faults",
    "messages",
    "ms of virtual time",
    "steps",
];

thread_local! {
    /// While a run of the swarm is under way on this thread: its panic is an answer, and kept.
    static KEEPING: Cell<bool> = const { Cell::new(false) };
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if KEEPING.get() {
                KEPT.with_borrow_mut(|kept| *kept = Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
}

impl Outcome {
    /// Hash of every event of the run and of everything it came to: two runs with one digest are one run.
    pub fn digest(&self) -> u64 {
        let text = format!("{self}{:?}{:?}{}", self.senders, self.receivers, self.oracle.describe());
        // Whose memory it is, no event tells.
        let text = text.replace("queues_on_device = true\n", "queues_on_device = false\n");
        // FNV-1a: stable, and the same on every machine.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        text.bytes().chain(self.trace.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, hash)
    }
}

/// Runs `spec` on NICs that begin to lie once they are up.
pub fn run_lying(spec: &RunSpec, lie: Lie) -> Outcome {
    let lies = Lies::default();
    let cluster = Cluster::start_lying(spec, lies.clone());
    lies.tell(lie);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    finish(&cluster, streams)
}

/// What `run` answers, or what it said as it panicked: the library's panics and the simulator's limits are answers.
///
/// # Errors
/// The text of the panic.
pub fn or_panic<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    keep_panics();
    KEEPING.set(true);
    let ended = catch_unwind(AssertUnwindSafe(run));
    KEEPING.set(false);
    ended
        .map_err(|_| KEPT.with_borrow_mut(Option::take).unwrap_or_else(|| "a panic that said nothing".into()))
}

/// Runs `spec` and judges it. A panic, of the library or of the simulator's limits, is a verdict like any other.
pub fn judge(spec: &RunSpec, lie: Lie) -> Verdict {
    let ended = or_panic(|| run_lying(spec, lie));
    let spec = spec.clone();
    let outcome = match ended {
        Ok(outcome) => outcome,
        Err(said) => {
            let (wrongs, said) = (vec![said], String::new());
            return Verdict { spec, digest: None, wrongs, faults: Vec::new(), counts: [0; 8], said };
        }
    };
    let records = outcome.records.iter().map(|(_, record)| record);
    let failovers = outcome.of_kind(SwitchKind::Failover);
    let replayed = failovers.map(|record| record.journal_end.saturating_sub(record.executed));
    let reports = outcome.senders.iter().chain(&outcome.receivers);
    let counts = [
        outcome.failovers() as u64,
        outcome.switchbacks() as u64,
        records.filter(|record| record.ledger == 1).count() as u64,
        replayed.sum(),
        reports.filter(|report| report.fault.is_some()).count() as u64,
        outcome.receivers.iter().map(|report| report.messages).sum(),
        outcome.lasted_ns / 1_000_000,
        outcome.steps,
    ];
    let (digest, wrongs) = (Some(outcome.digest()), outcome.wrongs());
    let said = if wrongs.is_empty() { String::new() } else { outcome.to_string() };
    Verdict { spec, digest, wrongs, faults: outcome.faults, counts, said }
}

/// Runs all `specs` on some threads; `seen` is called with each verdict as it comes, in no order.
pub fn run_all(specs: &[RunSpec], threads: usize, lie: Lie, seen: impl Fn(&Verdict) + Sync) -> Vec<Verdict> {
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(spec) = specs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = judge(spec, lie);
                    seen(&verdict);
                    verdicts.lock().expect("no panic under this lock").push(verdict);
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().expect("no panic under this lock");
    verdicts.sort_by_key(|verdict| verdict.spec.seed);
    verdicts
}

/// What a swarm went through.
#[derive(Clone, Debug)]
pub struct Table {
    runs: usize,
    failed: Vec<u64>,
    counts: [u64; 8],
    /// By kind: planned, planned and hit.
    kinds: BTreeMap<&'static str, (u64, u64)>,
}

impl Default for Table {
    fn default() -> Self {
        let kinds = drawn().iter().map(|info| (info.name(), (0, 0))).collect();
        Self { runs: 0, failed: Vec::new(), counts: [0; 8], kinds }
    }
}

impl Table {
    /// Sums up.
    pub fn new(verdicts: &[Verdict]) -> Self {
        let mut table = Self::default();
        verdicts.iter().for_each(|verdict| table.add(verdict));
        table
    }

    /// Adds one run.
    pub fn add(&mut self, verdict: &Verdict) {
        self.runs += 1;
        if !verdict.wrongs.is_empty() {
            self.failed.push(verdict.spec.seed);
        }
        for (sum, count) in self.counts.iter_mut().zip(verdict.counts) {
            *sum += count;
        }
        for (injection, hits) in &verdict.faults {
            let kind = self.kinds.entry(injection.fault.name()).or_default();
            kind.0 += 1;
            kind.1 += u64::from(*hits > 0);
        }
    }

    /// Kinds that were never drawn, or never hit anything.
    pub fn idle(&self) -> Vec<&'static str> {
        self.kinds.iter().filter(|(_, (_, hit))| *hit == 0).map(|(name, _)| *name).collect()
    }

    /// Seeds whose runs failed.
    pub fn failed(&self) -> &[u64] {
        &self.failed
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:24} {:>6} {:>6}", "fault", "drawn", "hit")?;
        for (name, (drawn, hit)) in &self.kinds {
            let idle = match (drawn, hit) {
                (0, _) => "  -",
                (_, 0) => "  never hit",
                _ => "",
            };
            writeln!(f, "{name:24} {drawn:6} {hit:6}{idle}")?;
        }
        let counts: Vec<String> =
            COUNTS.iter().zip(self.counts).map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(f, "\n{} runs: {}", self.runs, counts.join(", "))?;
        write!(f, "{} failed", self.failed.len())?;
        if !self.failed.is_empty() { write!(f, ": {:?}", self.failed) } else { Ok(()) }
    }
}
