//! Many seeds of transfers through faults in virtual time: `transfer_swarm [FIRST] [SEEDS]`. Exit status 1 if one
//! fails.

use shunt_transfer_engine::sim::oracle::run;

fn main() {
    let number = |at: usize, usual: u64| match std::env::args().nth(at) {
        Some(text) => text.parse().unwrap_or_else(|_| {
            eprintln!("transfer_swarm [FIRST] [SEEDS]: expected a number, got {text}");
            std::process::exit(2)
        }),
        None => usual,
    };
    let (first, seeds) = (number(1, 0), number(2, 10_000));
    let (mut failed, mut written, mut hits, mut fences, mut replays) = (0, 0, 0, 0, 0);
    for seed in first..first + seeds {
        let report = run(seed, true);
        if !report.wrong.is_empty() {
            println!("seed {seed}: {}", report.wrong.join("; "));
            failed += 1;
        }
        written += report.written;
        hits += report.counts.hits;
        fences += report.counts.fences;
        replays += report.replays;
    }
    println!(
        "{seeds} seeds from {first} on (virtual time): {failed} failed; {written} transfers written, {hits} faults \
         hit, {fences} fences, {replays} replays"
    );
    std::process::exit(i32::from(failed > 0));
}
