//! `moe_pressure`: MoE layers on soft NICs that fail; everything is in the library.

use shunt_moe_pressure::options::MoeOptions;
use std::process::ExitCode;

fn main() -> ExitCode {
    let answered = shunt_pages::answered::<MoeOptions>(std::env::args_os());
    ExitCode::from(answered.unwrap_or_else(|| shunt_moe_pressure::main(std::env::args_os())))
}
