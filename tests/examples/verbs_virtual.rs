//! How long a port that goes down stops a verbs program, in virtual time: `verbs_virtual [--downs N] [--pairs N]
//! [--json]`.
//!
//! A program of two processes with 2 NICs each posts on all its queue pairs. The first port of the first process goes
//! down. From there to the first good completion of a request that was posted later: by queue pair of that process.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;
use shunt_tests::rng::Rng;
use shunt_tests::verbs::{VerbsSpec, run};

const USAGE: &str = "verbs_virtual [--downs N] [--many N] [--pairs N] [--json]

  --downs N  ports that go down, one queue pair (default 1000)
  --many N   the same with many queue pairs (default 100)
  --pairs N  how many those are (default 64)
  --json     one object a line, times in nanoseconds";

struct Options {
    downs: u64,
    many: u64,
    pairs: u32,
    json: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { downs: 1000, many: 100, pairs: 64, json: false };
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
            "--pairs" => options.pairs = number()?.min(256) as u32,
            "--json" => options.json = true,
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    Ok(options)
}

/// A row: queue pairs, timeout and retries of the transport, and ports that go down.
#[derive(Clone, Copy)]
struct Row {
    pairs: u32,
    ack_timeout: u8,
    retries: u8,
    downs: u64,
}

/// What came of it: gaps in order, commands of each run, what was wrong.
#[derive(Default)]
struct Found {
    gaps_ns: Vec<u64>,
    commands: Vec<u64>,
    wrong: Vec<String>,
}

fn measure(row: Row) -> Found {
    let (next, found) = (AtomicU64::new(0), Mutex::new(Found::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= row.downs {
                        return;
                    }
                    let at_ns = 300_000 + Rng::new(seed).below(2_000_000);
                    let down = FaultKind::Down { for_ns: Some(1_000_000_000) };
                    let mut spec = VerbsSpec::quiet(seed);
                    (spec.pairs, spec.ack_timeout, spec.retries) = (row.pairs, row.ack_timeout, row.retries);
                    (spec.atomics, spec.look_ns) = (false, 4_000);
                    spec.pace_ns = 20_000 * u64::from(row.pairs.min(4));
                    spec.requests = 200;
                    spec.faults = vec![(at_ns, RailAt { pe: 0, rail: 0 }, down)];
                    let report = run(&spec);
                    let (mut found, told) = (found.lock().expect("no panic here"), &report.processes[0]);
                    found.wrong.extend(report.wrong());
                    if told.gaps_ns.len() != row.pairs as usize || report.hits != 1 {
                        found.wrong.push(format!(
                            "seed {seed}: {} gaps, {} hits",
                            told.gaps_ns.len(),
                            report.hits
                        ));
                    }
                    found.gaps_ns.extend(&told.gaps_ns);
                    found.commands.push(told.commands);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no panic here");
    found.gaps_ns.sort_unstable();
    found
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let row = |pairs, (ack_timeout, retries), downs| Row { pairs, ack_timeout, retries, downs };
    let rows = [
        row(1, (14, 7), options.downs),
        row(1, (20, 7), options.downs),
        row(options.pairs, (14, 7), options.many),
        row(options.pairs, (20, 7), options.many),
    ];
    if !options.json {
        println!("virtual time: link 2 us, firmware command 100 us, event 50 us, out-of-band 30 us");
        println!(
            "{:>5} {:>8} {:>6} {:>9} {:>9} {:>9}  commands",
            "QPs", "timeout", "downs", "p50 us", "p99 us", "max us"
        );
    }
    let mut good = true;
    for row in rows {
        let found = measure(row);
        let at = |part: f64| {
            let last = found.gaps_ns.len().saturating_sub(1);
            found.gaps_ns.get((last as f64 * part).ceil() as usize).copied().unwrap_or_default()
        };
        let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
        let ends = 2.0 * f64::from(row.pairs) * found.commands.len() as f64;
        let commands = found.commands.iter().sum::<u64>() as f64 / ends.max(1.0);
        let Row { pairs, ack_timeout, retries, downs } = row;
        if options.json {
            println!(
                "{{\"pairs\": {pairs}, \"ack_timeout\": {ack_timeout}, \"retries\": {retries}, \"downs\": {downs}, \
                 \"gaps\": {}, \"p50_ns\": {p50}, \"p99_ns\": {p99}, \"max_ns\": {max}, \
                 \"commands_per_end\": {commands:.2}, \"wrong\": {}}}",
                found.gaps_ns.len(),
                found.wrong.len()
            );
        } else {
            let us = |ns: u64| ns as f64 / 1e3;
            println!(
                "{pairs:>5} {:>8} {downs:>6} {:>9.1} {:>9.1} {:>9.1}  {commands:.2} a queue pair and end",
                format!("{ack_timeout}/{retries}"),
                us(p50),
                us(p99),
                us(max)
            );
        }
        found.wrong.iter().take(5).for_each(|text| eprintln!("{text}"));
        good &= found.wrong.is_empty();
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
