//! The MPI plugin, built where an mpicc is found, and the conformance programs under mpirun.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The plugin's source, and its name beside the library.
const SOURCE: &str = "nvshmem-compat/mpi/bootstrap.c";
const PLUGIN: &str = "nvshmem_bootstrap_mpi.so.3";
/// Sizes of jobs under mpirun, and families of the suite, all of them where none is named. A port goes down in the
/// middle of each. Eight processes and their soft NICs are many for two cores: they have the families that move most,
/// and all of them at night.
pub const RUNS: [(u32, &str); 4] = [(2, ""), (8, "rma"), (8, "amo"), (8, "reduce")];
pub const NIGHT: [(u32, &str); 3] = [(3, ""), (4, ""), (8, "")];

/// Builds the plugin into the prefix; false where there is no mpicc.
pub fn plugin(out: &Path) -> Result<bool> {
    if !sh::exists("mpicc") {
        println!("no mpicc: the prefix has no MPI plugin");
        return Ok(false);
    }
    let mut command = sh::command("mpicc");
    command.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", SOURCE, "-o"]);
    sh::capture(command.arg(out.join("lib").join(PLUGIN))).context("mpicc does not build the MPI plugin")?;
    println!("MPI plugin: built with mpicc");
    Ok(true)
}

/// The conformance programs, linked with the prefix.
fn suite(out: &Path) -> Result<PathBuf> {
    let folder = sh::root().join("nvshmem-compat/conformance");
    let program = sh::target_dir().join("conformance");
    let mut command = sh::command("cc");
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
    for entry in std::fs::read_dir(&folder)? {
        let source = entry?.path();
        if source.extension().is_some_and(|end| end == "c") {
            command.arg(source);
        }
    }
    let lib = out.join("lib");
    command.arg("-I").arg(out.join("include")).arg("-L").arg(&lib).arg("-lnvshmem_host").arg("-ldl");
    sh::capture(command.arg(format!("-Wl,-rpath,{}", lib.display())).arg("-o").arg(&program))?;
    Ok(program)
}

/// What PE 0 prints: a line for each family.
fn lines(command: &mut Command) -> Result<String> {
    let usual = [
        ("NVSHMEM_SYMMETRIC_SIZE", "32M"),
        ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "1"),
        ("SHUNT_GIVE_UP", "60s"),
        ("SHUNT_RECOVERY_WINDOW", "20ms"),
        ("SHUNT_CALL_DEADLINE", "240s"),
        ("SHUNT_SUSPECT", "1s"),
        ("SHUNT_SUSPECT_FLOOR", "1s"),
    ];
    let output = sh::capture(command.envs(usual))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("are left on its soft NICs") {
        bail!("{}: {}", sh::shown(command), sh::last_lines(&said, 20));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the suite under mpirun: with a port down in the middle of each family it must print what it prints without one
/// under `shunt run`. Answers with the number of runs.
pub fn conformance(out: &Path, shunt: &Path, runs: &[(u32, &str)]) -> Result<usize> {
    if !sh::exists("mpirun") {
        println!("no mpirun: nothing ran under it");
        return Ok(0);
    }
    let program = suite(out)?;
    for (pes, family) in runs.iter().copied() {
        let family = Some(family).filter(|name| !name.is_empty());
        let mut calm = sh::command(&shunt.to_string_lossy());
        calm.args(["run", "-n", &pes.to_string(), "--"]).arg(&program).args(family);
        let want = lines(&mut calm)?;
        let mut launched = sh::command("mpirun");
        launched.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        launched.args(["--oversubscribe", "--bind-to", "none", "-n", &pes.to_string()]).arg(&program);
        let met = lines(launched.args(family).arg("--fault"))?;
        if met != want || want.is_empty() {
            bail!("{pes} PEs under mpirun, ports down: printed\n{met}and under shunt run without\n{want}");
        }
        println!("conformance: {pes} PEs under mpirun, ports down, {}", family.unwrap_or("all families"));
    }
    Ok(2 * runs.len())
}
