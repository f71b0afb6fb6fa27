//! Prints what is left of the bandwidth of eight rate-limited rails when rails die: `spread [RAIL ...]`.

use std::process::ExitCode;

use shunt_tests::spread;

fn main() -> ExitCode {
    let rails: Result<Vec<u32>, _> = std::env::args().skip(1).map(|rail| rail.parse()).collect();
    match rails {
        Ok(rails) if rails.iter().all(|rail| *rail < 8) && rails.len() < 8 => {
            println!("{}", spread::run(if rails.is_empty() { &[2, 3] } else { &rails }));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!(
                "spread [RAIL ...]: rails that die one after the other; numbers from 0 to 7, at most 7 of them"
            );
            ExitCode::from(2)
        }
    }
}
