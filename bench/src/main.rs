//! `shmem_put_bw`: parses the command line and exits; everything else is in the library.

use shunt_bench::options::{Options, Usage};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Options::from_arguments(std::env::args_os()) {
        Ok(_) => {
            eprintln!("error: the runner is not part of this build");
            ExitCode::from(1)
        }
        Err(Usage::Clap(error)) => error.exit(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
