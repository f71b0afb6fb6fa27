//! `moe_pressure`: MoE layers on soft NICs that fail; everything is in the library.

use shunt_bench::moe;
use shunt_bench::moe::options::MoeOptions;
use std::process::ExitCode;

fn main() -> ExitCode {
    let answered = shunt_pages::answered::<MoeOptions>(std::env::args_os());
    ExitCode::from(answered.unwrap_or_else(|| moe::main(std::env::args_os())))
}
