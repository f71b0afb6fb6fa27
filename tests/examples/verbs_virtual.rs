//! How long a port that goes down stops a verbs program, in virtual time: `verbs_virtual [--downs N] [--many N]
//! [--again N] [--pairs N] [--json]`.
//!
//! A program of two processes with 2 NICs each posts on all its queue pairs. The first port of the first process goes
//! down. From there to the first good completion of a request that was posted later: by queue pair of that process.
//! Meanwhile commands of both first NICs are counted: those that are of a queue pair, and those that are of the NIC.
//! In the last row one run has many downs. A path that failed often is tried again later and later, so that some find
//! all queue pairs on their backups: the averages are over those that some left a path for.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;
use shunt_tests::rng::Rng;
use shunt_tests::verbs::{VerbsSpec, run};

const USAGE: &str = "verbs_virtual [--downs N] [--many N] [--again N] [--pairs N] [--json]

  --downs N  ports that go down, one queue pair (default 1000)
  --many N   the same with many queue pairs (default 100)
  --again N  times that one run's port goes down, with many queue pairs (default 30)
  --pairs N  how many those are (default 64)
  --json     one object a line, times in nanoseconds";

struct Options {
    downs: u64,
    many: u64,
    again: u64,
    pairs: u32,
    json: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { downs: 1000, many: 100, again: 30, pairs: 64, json: false };
    while let Some(arg) = args.next() {
        let mut number = || {
            let text = args.next().unwrap_or_default();
            text.parse::<u64>()
                .ok()
                .filter(|n| *n > 0)
                .ok_or(format!("{arg}: expected a number, got {text:?}"))
        };
        match arg.as_str() {
            "--downs" => options.downs = number()?,
            "--many" => options.many = number()?,
            "--again" => options.again = number()?,
            "--pairs" => options.pairs = number()?.min(256) as u32,
            "--json" => options.json = true,
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    Ok(options)
}

/// A row: queue pairs, timeout and retries of the transport, runs, and ports that go down in each.
#[derive(Clone, Copy)]
struct Row {
    pairs: u32,
    ack_timeout: u8,
    retries: u8,
    runs: u64,
    downs: u64,
}

/// What came of it: gaps in order, commands of each down by opcode, what was wrong.
#[derive(Default)]
struct Found {
    gaps_ns: Vec<u64>,
    commands: Vec<BTreeMap<u16, u64>>,
    moves: u64,
    wrong: Vec<String>,
}

impl Found {
    /// Downs that some queue pair left its path for: the others found all on their backups.
    fn left(&self) -> usize {
        self.commands.iter().filter(|one| one.contains_key(&(Opcode::Qp2Err as u16))).count()
    }

    /// Commands of a queue pair, and those of a NIC: opcodes of queue pairs and completion queues are the first.
    fn commands(&self) -> [u64; 2] {
        let mut sums = [0; 2];
        for (opcode, count) in self.commands.iter().flatten() {
            sums[usize::from(!(0x400..0x600).contains(opcode))] += count;
        }
        sums
    }

    /// All of them, by opcode.
    fn by_opcode(&self) -> String {
        let mut sums = BTreeMap::<u16, u64>::new();
        self.commands.iter().flatten().for_each(|(opcode, count)| *sums.entry(*opcode).or_default() += count);
        let name = |opcode: u16| {
            Opcode::from_raw(opcode).map_or(format!("{opcode:#x}"), |known| format!("{known:?}"))
        };
        let texts: Vec<String> =
            sums.iter().map(|(opcode, count)| format!("{} {count}", name(*opcode))).collect();
        texts.join(", ")
    }
}

/// From one down to the next, where there are many: the port is up again, long after all have left it, and all queue
/// pairs are at home by then.
const PERIOD_NS: u64 = 500_000_000;

fn spec(row: Row, seed: u64) -> VerbsSpec {
    let first_ns = 300_000 + Rng::new(seed).below(2_000_000);
    let once = row.downs == 1;
    let for_ns = Some(if once { 1_000_000_000 } else { 60_000_000 });
    let down =
        |number| (first_ns + number * PERIOD_NS, RailAt { pe: 0, rail: 0 }, FaultKind::Down { for_ns });
    let pace_ns = if once { 20_000 * u64::from(row.pairs.min(4)) } else { 10_000_000 };
    VerbsSpec {
        pairs: row.pairs,
        ack_timeout: row.ack_timeout,
        retries: row.retries,
        atomics: false,
        look_ns: if once { 4_000 } else { 40_000 },
        pace_ns,
        requests: if once { 200 } else { row.downs * PERIOD_NS / pace_ns },
        patience_ns: 3_000_000_000 + row.downs * PERIOD_NS,
        faults: (0..row.downs).map(down).collect(),
        ..VerbsSpec::quiet(seed)
    }
}

fn measure(row: Row) -> Found {
    let (next, found) = (AtomicU64::new(0), Mutex::new(Found::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= row.runs {
                        return;
                    }
                    let report = run(&spec(row, seed));
                    let (mut found, told) = (found.lock().expect("no panic here"), &report.processes[0]);
                    found.wrong.extend(report.wrong());
                    let (gaps, counted) = (told.gaps_ns.len() as u64, told.commands.len() as u64);
                    let expected = (u64::from(row.pairs) * row.downs, row.downs, row.downs);
                    if (gaps, counted, report.hits) != expected {
                        let text =
                            format!("seed {seed}: {gaps} gaps, {counted} counts, {} hits", report.hits);
                        found.wrong.push(text);
                    }
                    found.gaps_ns.extend(&told.gaps_ns);
                    found.commands.extend(told.commands.iter().cloned());
                    found.moves += report.sum(|told| told.switches);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no panic here");
    found.gaps_ns.sort_unstable();
    found
}

/// Tells of a row. True if all was well.
fn tell(row: Row, json: bool) -> bool {
    let found = measure(row);
    let at = |part: f64| {
        let last = found.gaps_ns.len().saturating_sub(1);
        found.gaps_ns.get((last as f64 * part).ceil() as usize).copied().unwrap_or_default()
    };
    let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
    let Row { pairs, ack_timeout, retries, runs, downs } = row;
    let left = found.left();
    let events = (left as f64).max(1.0);
    let [of_pairs, of_nics] = found.commands();
    let of_pair = of_pairs as f64 / (2.0 * f64::from(pairs) * events);
    let (of_nics, downs, moves) = (of_nics as f64 / events, runs * downs, found.moves);
    let (gaps, wrong) = (found.gaps_ns.len(), found.wrong.len());
    if json {
        println!(
            "{{\"pairs\": {pairs}, \"ack_timeout\": {ack_timeout}, \"retries\": {retries}, \"runs\": {runs}, \
             \"downs\": {downs}, \"left\": {left}, \"gaps\": {gaps}, \"p50_ns\": {p50}, \"p99_ns\": {p99}, \
             \"max_ns\": {max}, \"moves\": {moves}, \"commands_per_end\": {of_pair:.3}, \
             \"commands_of_nics\": {of_nics:.2}, \"wrong\": {wrong}}}"
        );
    } else {
        let us = |ns: u64| ns as f64 / 1e3;
        println!(
            "{pairs:>5} {:>8} {runs:>5} {downs:>6} {left:>6} {:>9.1} {:>9.1} {:>9.1} {moves:>8} {of_pair:>12.3} \
             {of_nics:>12.2}",
            format!("{ack_timeout}/{retries}"),
            us(p50),
            us(p99),
            us(max)
        );
        println!("      {}", found.by_opcode());
    }
    found.wrong.iter().take(5).for_each(|text| eprintln!("{text}"));
    found.wrong.is_empty() && left > 0
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let row = |pairs, (ack_timeout, retries), runs| Row { pairs, ack_timeout, retries, runs, downs: 1 };
    let rows = [
        row(1, (14, 7), options.downs),
        row(1, (20, 7), options.downs),
        row(options.pairs, (14, 7), options.many),
        row(options.pairs, (20, 7), options.many),
        Row { downs: options.again, ..row(options.pairs, (14, 7), 1) },
    ];
    if !options.json {
        println!("virtual time: link 2 us, firmware command 100 us, event 50 us, out-of-band 30 us");
        println!("commands of both first NICs, from a down to the last first good completion behind it");
        println!(
            "{:>5} {:>8} {:>5} {:>6} {:>9} {:>9} {:>9} {:>8} {:>12} {:>12}",
            "QPs",
            "timeout",
            "runs",
            "downs",
            "p50 us",
            "p99 us",
            "max us",
            "moves",
            "a QP and end",
            "NICs a down"
        );
    }
    let told = rows.map(|row| tell(row, options.json));
    let good = told.iter().all(|good| *good);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
