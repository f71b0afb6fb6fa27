//! `cargo xtask ptx`: builds the device code's PTX and runs it on the machine of `tests/ptx`.

use crate::gpu::library;
use anyhow::{Result, bail};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::PathBuf;

pub const SUMMARY: &str = "execute the PTX we ship without a GPU, against soft NICs, with ports that go down";
pub const HELP: &str = "ptx [--short] [--arch sm_NN] [--seed N] [--only NAME] [--counts]

Builds the device code as `cargo xtask gpu` does, and executes it: all entry points, the library's functions, MoE layers
of both modes, each with a strict memory and with one that delays what no fence holds, and with a port that goes down.
Every byte is held against the model that the CPU's tests use. Then defects are put into the text, each of which must be
found, and the costs of operations are counted (label: PTX machine). Status 1 if a run is wrong, an entry point was not
run, or a defect is missed.

  --short      the first scenario of each entry point, every third of MoE's: what CI runs
  --arch sm_NN the architecture (default sm_90)
  --seed N     seed of delays and of the order in which lanes run
  --only NAME  scenarios whose name holds NAME
  --counts     the costs alone";

/// The program, optimised, with every assertion on.
fn build() -> Result<PathBuf> {
    // As for the explorer: with the features of `cargo test --workspace`.
    let what = ["--workspace", "--bin", "shunt-ptx", "--example", "swarm"];
    sh::run(sh::cargo().args(["build", "--quiet", "--profile", "test"]).args(what))?;
    Ok(sh::target_dir().join("debug/shunt-ptx"))
}

pub fn run(args: &[String]) -> Result<()> {
    let mut rest = args.to_vec();
    let arch = match rest.iter().position(|arg| arg == "--arch") {
        Some(at) if at + 1 < rest.len() => rest.drain(at..at + 2).next_back().unwrap_or_default(),
        Some(_) => return sh::usage("--arch: expected a name such as sm_90, got none"),
        None => "sm_90".to_owned(),
    };
    let files = [library::kernels_ptx(&arch)?, library::device_library_ptx(&arch)?];
    sh::run(sh::command(&build()?.to_string_lossy()).args(files).args(rest))
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    run(&["--short".to_owned()]).map(|()| Count::of(1, 0))
}

/// The part of `cargo xtask night`: all scenarios, on each architecture.
pub fn night(args: &[String]) -> Result<()> {
    for arch in ["sm_80", "sm_90", "sm_100"] {
        if let Err(error) = run(&[&["--arch".to_owned(), arch.to_owned()], args].concat()) {
            bail!("{arch}: {error:#}");
        }
    }
    Ok(())
}
