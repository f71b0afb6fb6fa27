//! The MPI plugin, built where an mpicc is found, and the conformance programs under mpirun.

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The plugin's source, and its name beside the library.
const SOURCE: &str = "nvshmem-compat/mpi/bootstrap.c";
const PLUGIN: &str = "nvshmem_bootstrap_mpi.so.3";
/// Which jobs are run with a port that goes down in the middle of each family.
pub struct Runs {
    /// PEs, and families of the suite, all of them where none is named.
    pub jobs: &'static [(u32, &'static str)],
    /// Under what.
    launchers: &'static [Launcher],
}

#[derive(Clone, Copy)]
enum Launcher {
    Shunt,
    Mpirun,
}

/// Of the stage: what runs under `shunt run` is among the tests. Eight processes and their soft NICs are many for two
/// cores: they have the families that move most.
pub const RUNS: Runs =
    Runs { jobs: &[(2, ""), (8, "rma"), (8, "amo"), (8, "reduce")], launchers: &[Launcher::Mpirun] };
/// At night all of them.
pub const NIGHT: Runs = Runs {
    jobs: &[(1, ""), (2, ""), (3, ""), (4, ""), (8, "")],
    launchers: &[Launcher::Shunt, Launcher::Mpirun],
};

impl Launcher {
    fn command(self, shunt: &Path, pes: u32, program: &Path) -> Command {
        let pes = pes.to_string();
        let mut command = match self {
            Self::Shunt => sh::command(&shunt.to_string_lossy()),
            Self::Mpirun => sh::command("mpirun"),
        };
        match self {
            Self::Shunt => command.args(["run", "-n", &pes, "--"]),
            Self::Mpirun => command
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .args(["--oversubscribe", "--bind-to", "none", "-n", &pes]),
        };
        command.arg(program);
        command
    }

    fn name(self) -> &'static str {
        match self {
            Self::Shunt => "shunt run",
            Self::Mpirun => "mpirun",
        }
    }
}

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

/// What PE 0 prints: a line for each family; and how often channels left a path, of all PEs.
fn lines(command: &mut Command) -> Result<(String, u64)> {
    let usual = [
        // Ports go down on request.
        ("SHUNT_NIC", "soft"),
        ("NVSHMEM_SYMMETRIC_SIZE", "32M"),
        ("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "1"),
        ("SHUNT_GIVE_UP", "60s"),
        ("SHUNT_RECOVERY_WINDOW", "20ms"),
        ("SHUNT_CALL_DEADLINE", "600s"),
        ("SHUNT_SUSPECT", "1s"),
        ("SHUNT_SUSPECT_FLOOR", "1s"),
    ];
    let output = sh::capture(command.envs(usual))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("are left on its soft NICs") {
        bail!("{}: {}", sh::shown(command), sh::last_lines(&said, 20));
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), failovers(&said)))
}

/// The sum over all PEs, of what they say at their end.
fn failovers(said: &str) -> u64 {
    let count = |line: &str| line.split(" failovers").next()?.rsplit(' ').next()?.parse::<u64>().ok();
    said.lines().filter(|line| line.contains(" failovers")).filter_map(count).sum()
}

/// Runs the suite: with a port down in the middle of each family it must print what it prints without one under
/// `shunt run`, and channels must have left their paths. Answers with the number of runs.
pub fn conformance(out: &Path, shunt: &Path, runs: &Runs) -> Result<usize> {
    if !sh::exists("mpirun") {
        println!("no mpirun: nothing ran under it");
        return Ok(0);
    }
    let program = suite(out)?;
    for (pes, family) in runs.jobs.iter().copied() {
        let (family, start) = (Some(family).filter(|name| !name.is_empty()), Instant::now());
        let (want, calm) = lines(Launcher::Shunt.command(shunt, pes, &program).args(family))?;
        let what = family.unwrap_or("all families");
        let took = start.elapsed().as_secs_f64();
        println!("conformance: {pes} PEs, {what}: {took:.1} s, {calm} failovers without a fault");
        for launcher in runs.launchers {
            let start = Instant::now();
            let mut launched = launcher.command(shunt, pes, &program);
            let (met, left) = lines(launched.args(family).arg("--fault"))?;
            let name = launcher.name();
            if met != want || want.is_empty() {
                bail!(
                    "{pes} PEs under {name}, ports down: printed\n{met}and under shunt run without\n{want}"
                );
            }
            if pes > 1 && left == 0 {
                bail!("{pes} PEs under {name}, ports down: no channel left its path");
            }
            let (took, same) = (start.elapsed().as_secs_f64(), want.lines().count());
            println!("  {name}, ports down: {same} lines the same, {left} failovers, {took:.1} s");
        }
    }
    Ok(runs.jobs.len() * (1 + runs.launchers.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failovers_are_those_of_all_pes() {
        let said = "[rank 1] PE 1: 3 failovers, 2 back\nPE 0: 4 failovers, 4 back\nelse\n";
        assert_eq!((failovers(said), failovers("nothing")), (7, 0));
    }

    #[test]
    fn the_night_has_every_size_under_both_launchers() {
        assert_eq!(NIGHT.jobs.iter().map(|(pes, _)| *pes).collect::<Vec<_>>(), [1, 2, 3, 4, 8]);
        assert!(NIGHT.jobs.iter().all(|(_, family)| family.is_empty()));
        assert_eq!(NIGHT.launchers.iter().map(|l| l.name()).collect::<Vec<_>>(), ["shunt run", "mpirun"]);
    }
}
