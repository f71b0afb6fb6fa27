//! Ports that pause for 5 to 30 ms, and paths that fall silent for good, with the patience of hardware.
//!
//! `cargo run --profile test -p shunt-tests --example pauses -- [PAUSES]`; 1000 if no number is given, in runs of 10
//! with a seed each, and a tenth as many silences. Virtual time, soft NICs. Fails if a pause made anybody switch, or if
//! a silence was not left within twice the suspect time.

use std::process::ExitCode;

use shunt_tests::scenarios::pauses::{PAUSES, silence_of, switches_of_pauses};

fn main() -> ExitCode {
    let wanted = match std::env::args().nth(1).map(|arg| arg.parse::<u64>()) {
        None => 1_000,
        Some(Ok(number)) if number > 0 => number,
        Some(_) => {
            eprintln!("expected the number of pauses, such as 1000");
            return ExitCode::from(2);
        }
    };
    let runs = wanted.div_ceil(PAUSES);
    let (mut switches, mut wrongs) = (0, Vec::new());
    for seed in 0..runs {
        let (count, wrong) = switches_of_pauses(seed);
        switches += count;
        wrongs.extend(wrong);
    }
    let silences = runs.div_ceil(PAUSES);
    let mut gaps: Vec<u64> = Vec::new();
    for seed in 0..silences {
        let (gap_ns, wrong) = silence_of(seed);
        gaps.push(gap_ns);
        wrongs.extend(wrong);
    }
    gaps.sort_unstable();
    let ms = |at: usize| gaps.get(at).map_or(0.0, |ns| *ns as f64 / 1e6);
    println!(
        "| pauses of 5 to 30 ms | switches | silences for good | nothing delivered: median, longest (ms) |"
    );
    println!("| --- | --- | --- | --- |");
    let (median, longest) = (ms(gaps.len() / 2), ms(gaps.len().saturating_sub(1)));
    println!("| {} | {switches} | {silences} | {median:.1}, {longest:.1} |", runs * PAUSES);
    wrongs.iter().for_each(|wrong| println!("wrong: {wrong}"));
    if switches == 0 && wrongs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
