//! How long it takes until every channel of a PE is open again when the NIC under all of them fails, against the number
//! of channels: `cargo run --profile test -p shunt-tests --example scale -- [--svg FILE] [PEERS...]`.
//!
//! Virtual time, soft NICs. Each peer has NICs, firmware and an agent of its own and one channel of a primary and two
//! backups. The table goes to stdout, and grows with each run, the picture to FILE.

use std::fs;
use std::process::ExitCode;

use shunt_tests::scale::plot::{picture, table};
use shunt_tests::scale::{Hit, ScaleOutcome, ScaleSpec, run};

fn main() -> ExitCode {
    let mut svg = None;
    let mut counts: Vec<u32> = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), arg.parse()) {
            ("--svg", _) => svg = args.next(),
            (_, Ok(peers)) if peers > 0 => counts.push(peers),
            _ => {
                eprintln!("'{arg}' is neither --svg nor a number of peers");
                return ExitCode::from(2);
            }
        }
    }
    if counts.is_empty() {
        counts = vec![16, 64, 256, 1024, 2048];
    }
    let mut outcomes: Vec<ScaleOutcome> = Vec::new();
    for (hit, micros) in [(Hit::Port, 50), (Hit::Port, 200), (Hit::Nic, 50), (Hit::Nic, 200)] {
        for peers in &counts {
            let outcome = run(&ScaleSpec::new(*peers, micros * 1000, hit));
            assert_eq!(outcome.opened_ns.len(), *peers as usize, "every channel was switched once");
            outcomes.push(outcome);
            // As it grows: the large ones take minutes.
            eprintln!("{}", table(&outcomes[outcomes.len() - 1..]).lines().last().unwrap_or_default());
            if let Some(file) = &svg
                && let Err(error) = fs::write(file, picture(&outcomes))
            {
                eprintln!("{file}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{}", table(&outcomes));
    if let Some(one) = outcomes.first() {
        println!(
            "Memory of the PE for each further peer (a channel, three paths, rings of 64): {} bytes of control \
             memory, {} bytes in its agent.",
            one.control_bytes_per_peer, one.agent_bytes_per_peer
        );
    }
    ExitCode::SUCCESS
}
