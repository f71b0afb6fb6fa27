//! Programs of UCX: its own perftest, and one of ours that compares what it sends. Both are run where UCX is installed.

use anyhow::Result;
use shunt_task::sh;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Our program.
pub const TAGS: &str = "ucx_tags";
/// UCX's own.
pub const PERFTEST: &str = "ucx_perftest";
/// Lists devices.
pub const INFO: &str = "ucx_info";

/// Its transports that post by verbs, on one NIC, without direct access to the device.
pub const VERBS: &[(&str, &str)] =
    &[("UCX_TLS", "rc_verbs,ud_verbs"), ("UCX_NET_DEVICES", "mlx5_0:1"), ("UCX_IB_MLX5_DEVX", "n")];
/// The same with direct access, and with keys that need none of it.
pub const WITH_DEVX: &[(&str, &str)] = &[
    ("UCX_TLS", "rc_verbs,ud_verbs"),
    ("UCX_NET_DEVICES", "mlx5_0:1"),
    ("UCX_IB_PCI_RELAXED_ORDERING", "off"),
];

/// Datagrams alone.
pub const DATAGRAMS: &[(&str, &str)] = &[("UCX_TLS", "ud_verbs"), ("UCX_NET_DEVICES", "mlx5_0:1")];
/// The same, posted past verbs.
pub const DATAGRAMS_MLX5: &[(&str, &str)] = &[("UCX_TLS", "ud_mlx5"), ("UCX_NET_DEVICES", "mlx5_0:1")];

/// Builds our program where UCX's headers are.
pub fn build(dir: &Path) -> Result<()> {
    let out = dir.join(TAGS);
    if out.exists() {
        std::fs::remove_file(&out)?;
    }
    if Path::new("/usr/include/ucp/api/ucp.h").is_file() {
        let source = sh::root().join("tools/soft-rdma/programs/ucx_tags.c");
        let mut cc = sh::command("cc");
        cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&out).arg(&source).args(["-lucp", "-lucs"]);
        anyhow::ensure!(cc.status()?.success(), "{}: it does not compile", source.display());
    }
    Ok(())
}

/// Where a program is: our own of this file, or where the system finds it.
pub fn place(dir: &Path, program: &str) -> PathBuf {
    if program == TAGS { dir.join(TAGS) } else { program.into() }
}

/// True if a program is there, which this option has end at once.
pub fn runs(program: &str, option: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(option).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Why a program cannot be run here. None if it can, or is none of UCX.
pub fn lacks(dir: &Path, program: &str) -> Option<String> {
    match program {
        TAGS if !dir.join(TAGS).is_file() => Some(format!("{TAGS} needs the package libucx-dev")),
        PERFTEST | INFO if !runs(program, "-h") => Some(format!("{program} needs the package ucx-utils")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_built_is_named_and_others_are_left_alone() {
        let nowhere = Path::new("/nonexistent");
        assert!(lacks(nowhere, TAGS).is_some_and(|why| why.contains(TAGS) && why.contains("libucx-dev")));
        assert_eq!(lacks(nowhere, "ib_write_bw"), None);
        assert_eq!(place(nowhere, TAGS), nowhere.join(TAGS));
        assert_eq!(place(nowhere, PERFTEST), Path::new(PERFTEST));
    }
}
