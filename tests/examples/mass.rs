//! A port that carries 1,536 queue pairs goes down, with work outstanding on all of them in both directions: when the
//! first and the last channel of the PE that lost its port are open again, and of its peers.
//!
//! `cargo run --profile test -p shunt-tests --example mass -- [MICROSECONDS A COMMAND...]`; 100 and 300 if none is
//! given. Fails unless every channel is open again, by a truth. Virtual time, soft NICs: 64 peers, 48 channels to each
//! on two ports, a backup a channel on the other port, each NIC with a firmware of its own that does one command at a
//! time.

use std::process::ExitCode;

use shunt_tests::scale::plot::mass_table;
use shunt_tests::scale::{ScaleOutcome, ScaleSpec, run};

/// On the port that goes down.
const PAIRS: usize = 1_536;

fn main() -> ExitCode {
    let mut micros: Vec<u64> = Vec::new();
    for arg in std::env::args().skip(1) {
        match arg.parse() {
            Ok(number) if number > 0 => micros.push(number),
            _ => {
                eprintln!("'{arg}': expected the time of a firmware command in microseconds, such as 100");
                return ExitCode::from(2);
            }
        }
    }
    if micros.is_empty() {
        micros = vec![100, 300];
    }
    let outcomes: Vec<_> = micros.iter().map(|micros| run(&ScaleSpec::mass(micros * 1000))).collect();
    print!("{}", mass_table(&outcomes));
    let whole = |one: &ScaleOutcome| {
        one.without_truth == 0 && one.opened_ns.len() >= PAIRS && one.far_opened_ns.len() >= PAIRS
    };
    if !outcomes.iter().all(whole) {
        eprintln!("expected {PAIRS} channels of each side to be open again, each by a truth");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
