//! `shmem_put_bw`: parses the command line and exits; everything else is in the library.

use shunt_bench::options::Options;
use shunt_bench::program;
use shunt_bench::usage::Usage;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(status) = shunt_pages::answered::<Options>(std::env::args_os()) {
        return ExitCode::from(status);
    }
    shunt_json::begin::<Options>();
    match Options::from_arguments(std::env::args_os()) {
        Ok(options) => ExitCode::from(program::run(&options)),
        // Prints to stdout and exits 0 for --help and --version, else to stderr and exits 2.
        Err(Usage::Clap(error)) => match error.print().and_then(|()| std::io::stdout().flush()) {
            Err(lost) if lost.kind() != ErrorKind::BrokenPipe => {
                shunt_host::complain!("error: stdout: {lost}");
                ExitCode::from(1)
            }
            _ => ExitCode::from(error.exit_code() as u8),
        },
        Err(error) => {
            shunt_host::complain!("{error}");
            ExitCode::from(2)
        }
    }
}
