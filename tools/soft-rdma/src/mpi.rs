//! Programs of MPI: one of ours whose ranks compare what they send, over UCX. It is run where Open MPI is installed.

use crate::ucx;
use anyhow::Result;
use shunt_task::sh;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Our program.
pub const TAGS: &str = "mpi_tags";

/// MPI over UCX, whose transports post by verbs. A rank's messages to itself go by NIC, too.
pub const VERBS: &[(&str, &str)] =
    &[("UCX_TLS", "rc_v"), ("UCX_NET_DEVICES", "mlx5_0:1"), ("UCX_IB_MLX5_DEVX", "n")];

/// What starts ranks: as root as well, and on fewer cores than there are ranks.
pub fn launcher() -> Command {
    let mut command = sh::command("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ucx"]);
    command
}

/// Builds our program where there is a compiler for it.
pub fn build(dir: &Path) -> Result<()> {
    let out = dir.join(TAGS);
    if out.exists() {
        std::fs::remove_file(&out)?;
    }
    if ucx::runs("mpicc", "--version") && ucx::runs("mpirun", "--version") {
        let source = sh::root().join("tools/soft-rdma/programs/mpi_tags.c");
        let mut cc = sh::command("mpicc");
        cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&out).arg(&source);
        anyhow::ensure!(cc.status()?.success(), "{}: it does not compile", source.display());
    }
    Ok(())
}

/// Where a program is: our own of this file, or as UCX has it.
pub fn place(dir: &Path, program: &str) -> PathBuf {
    if program == TAGS { dir.join(TAGS) } else { ucx::place(dir, program) }
}

/// Why a program cannot be run here. None if it can, or is none of MPI.
pub fn lacks(dir: &Path, program: &str) -> Option<String> {
    let lacks = program == TAGS && !dir.join(TAGS).is_file();
    lacks.then(|| format!("{TAGS} needs the packages libopenmpi-dev and openmpi-bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_built_is_named_and_others_are_left_alone() {
        let nowhere = Path::new("/nonexistent");
        assert!(lacks(nowhere, TAGS).is_some_and(|why| why.contains(TAGS) && why.contains("openmpi-bin")));
        assert_eq!(lacks(nowhere, ucx::TAGS), None);
        assert_eq!(place(nowhere, TAGS), nowhere.join(TAGS));
        assert_eq!(place(nowhere, ucx::TAGS), nowhere.join(ucx::TAGS));
    }
}
