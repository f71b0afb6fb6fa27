//! One PE with many peers whose NIC dies: `cargo run --profile test -p shunt-tests --example scale -- DIRECTORY
//! [PEERS...]` writes `scale.md` and `scale.svg` there. Virtual time, at 50 us and 200 us a firmware command; 16 to
//! 2048 peers if none are given, each with a channel of a primary and two backups.

use std::path::PathBuf;
use std::time::Instant;

use shunt_tests::scale::plot::{picture, table};
use shunt_tests::scale::{Hit, ScaleOutcome, ScaleSpec, run};

fn main() {
    let mut args = std::env::args().skip(1);
    let directory = PathBuf::from(args.next().unwrap_or_else(|| ".".into()));
    let mut counts: Vec<u32> = args.map(|text| text.parse().expect("a number of peers")).collect();
    if counts.is_empty() {
        counts = vec![16, 64, 256, 1024, 2048];
    }
    let mut outcomes: Vec<ScaleOutcome> = Vec::new();
    for (hit, micros) in [(Hit::Port, 50), (Hit::Port, 200), (Hit::Nic, 50), (Hit::Nic, 200)] {
        for peers in &counts {
            let (peers, began) = (*peers, Instant::now());
            let time_limit_ns = 600_000_000_000;
            let spec = ScaleSpec { peers, firmware_ns: micros * 1000, hit, seed: 1, time_limit_ns };
            let outcome = run(&spec);
            assert_eq!(outcome.opened_ns.len(), peers as usize, "every channel was switched once");
            let seconds = began.elapsed().as_secs_f64();
            eprintln!("{hit:?} {micros} us, {peers} peers: {seconds:.1} s, {} steps", outcome.steps);
            outcomes.push(outcome);
            // Kept as it grows: the large ones take minutes.
            write(&directory, &outcomes);
        }
    }
    println!("{}", table(&outcomes));
}

fn write(directory: &std::path::Path, outcomes: &[ScaleOutcome]) {
    let memory = outcomes.first().map_or(String::new(), |one| {
        format!(
            "\nMemory of the PE for each further peer (a channel, three paths, rings of 64): {} bytes of control \
             memory, {} bytes in its agent.\n",
            one.control_bytes_per_peer, one.agent_bytes_per_peer
        )
    });
    std::fs::write(directory.join("scale.md"), table(outcomes) + &memory).expect("a directory to write into");
    std::fs::write(directory.join("scale.svg"), picture(outcomes)).expect("a directory to write into");
}
