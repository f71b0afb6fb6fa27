//! How long a failover takes by the clock on the wall, stage by stage: `cargo run --release -p shunt-bench --example
//! wall_stages -- 1000`. Each run is the main program in this process, with a thread for each kernel, agent, NIC worker
//! and the NICs, and one port of the sender that goes down in the middle of the stream.
//!
//! The figures are this machine's: they say how many threads share how many cores, and `oversubscribed` where there are
//! more threads. What the protocol itself takes is in virtual time (`stages` of `shunt-tests`).

use std::process::ExitCode;

use shunt_bench::cluster::{oversubscribed, threads};
use shunt_bench::job::threads::Threads;
use shunt_bench::nics::settle::settle;
use shunt_bench::options::Options;
use shunt_bench::progress::Progress;
use shunt_bench::report::Report;
use shunt_bench::runner;
use shunt_layout::state::SwitchKind;

const STAGES: [&str; 6] = ["detect", "fence", "cut", "replay", "open", "total"];

fn main() -> ExitCode {
    let runs: u64 = std::env::args().nth(1).map_or(1000, |text| text.parse().expect("a number of runs"));
    let mut spans: [Vec<f64>; STAGES.len()] = Default::default();
    let mut said = String::new();
    for seed in 0..runs {
        let options = options(seed);
        let report = match run(&options) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("run {seed}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let failovers = report.switches.iter().filter(|line| line.kind == Some(SwitchKind::Failover));
        // The sender's own: the receiver's channel leaves with it, or later.
        for line in failovers.filter(|line| line.pe == 0) {
            let Some(detect) = line.detect_us else { continue };
            let stages = [detect, line.fence_us, line.cut_us, line.replay_us, line.open_us];
            spans.iter_mut().zip(stages).for_each(|(span, us)| span.push(us));
            spans[5].push(stages.iter().sum());
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = if oversubscribed(&options) { "oversubscribed" } else { "a core for each" };
        said = format!("{} threads on {cores} cores, {shared}", threads(&options));
    }
    println!(
        "{runs} port-downs, {} failovers of the sender, wall time, microseconds; {said}",
        spans[5].len()
    );
    println!("| {:6} | {:>9} | {:>9} | {:>9} |\n| --- | --- | --- | --- |", "stage", "p50", "p99", "max");
    STAGES.iter().zip(&mut spans).for_each(|(name, span)| line(name, span));
    ExitCode::SUCCESS
}

/// A stream of 80 ms over two rails whose first goes down at an instant that the seed decides.
fn options(seed: u64) -> Options {
    let down = format!("{}us:0.0:down", 30_000 + seed * 7_919 % 10_000);
    let seed = seed.to_string();
    let words = ["shmem_put_bw", "-n", "0", "--duration", "80ms", "--seed", &seed, "--inject", &down];
    Options::from_arguments(words.map(String::from)).expect("words that shmem_put_bw takes")
}

fn run(options: &Options) -> Result<Report, String> {
    let (options, source) = settle(options).map_err(|error| error.to_string())?;
    let job = Threads::new(options.pes());
    let raw = runner::stream(&options, &source, &job, &mut Progress::hidden());
    let report = Report::new(raw.map_err(|error| error.to_string())?);
    match report.judged.exit_status() {
        0 => Ok(report),
        _ => Err(format!("{:?}", report.judged)),
    }
}

fn line(name: &str, span: &mut [f64]) {
    span.sort_by(f64::total_cmp);
    let at =
        |share: f64| span.get((span.len().saturating_sub(1) as f64 * share) as usize).copied().unwrap_or(0.0);
    println!("| {name:6} | {:9.1} | {:9.1} | {:9.1} |", at(0.5), at(0.99), at(1.0));
}
