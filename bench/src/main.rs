//! `shmem_put_bw`: parses the command line and exits; everything else is in the library.

use shunt_bench::options::Options;
use shunt_bench::program;
use shunt_bench::usage::Usage;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(status) = shunt_pages::answered::<Options>(std::env::args_os()) {
        return ExitCode::from(status);
    }
    shunt_json::begin::<Options>();
    match Options::from_arguments(std::env::args_os()) {
        Ok(options) => ExitCode::from(program::run(&options)),
        Err(Usage::Clap(error)) => ExitCode::from(shunt_pages::shown(&error)),
        Err(error) => {
            shunt_host::complain!("{error}");
            ExitCode::from(2)
        }
    }
}
