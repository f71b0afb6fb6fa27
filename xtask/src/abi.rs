//! `cargo xtask abi`: the committed table of sizes and offsets, held against the code.

use anyhow::Result;
use shunt_task::sh;

pub const SUMMARY: &str = "compare layout/abi.txt with the code; --bless rewrites it";
pub const HELP: &str = "abi [--bless]

Host and device compare only a version number, so the version must change with any size, offset or value
they share. layout/abi.txt holds the table that belongs to ABI_VERSION; the test fails when the code's is
another.

  --bless  rewrite the table; refused while ABI_VERSION is the one the table was made for";

pub fn run(args: &[String]) -> Result<()> {
    let mut command = sh::cargo();
    command.args(["test", "--quiet", "-p", "shunt-layout", "--test", "abi"]);
    match args {
        [] => {}
        [flag] if flag == "--bless" => {
            command.env("SHUNT_ABI_BLESS", "1");
        }
        other => return sh::usage(format!("unknown arguments {other:?}")),
    }
    sh::run(&mut command)
}
