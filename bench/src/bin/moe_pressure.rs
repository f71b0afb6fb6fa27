//! `moe_pressure`: MoE layers on soft NICs that fail; everything is in the library.

use shunt_bench::moe;
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(moe::main(std::env::args_os()))
}
