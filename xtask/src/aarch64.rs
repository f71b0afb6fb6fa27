//! `cargo xtask night --only aarch64`: the workspace for a processor that is not this machine's (Grace, for one).

use anyhow::{Result, bail};
use shunt_task::sh;
use std::process::Command;

/// What it is compiled for.
const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Programs that it takes, and Debian's packages that have them.
const NEEDS: [(&str, &str); 2] = [
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu and libc6-dev-arm64-cross"),
    ("qemu-aarch64", "qemu-user"),
];
/// What users start or link.
const PRODUCTS: &[&str] = &[
    "shunt-cli",
    "shunt-bench",
    "shunt-moe-pressure",
    "shunt-nvshmem-compat",
    "shunt-nvshmem-native",
    "shunt-soft-rdma-preload",
    "shunt-verbs-preload",
    "shunt-transfer-capi",
    "shunt-deep-ep-job",
];
/// Those whose tests ask nothing of the kernel that qemu-user does not have.
const PURE: &[&str] = &["shunt-layout", "shunt-device", "shunt-kernels", "shunt-wire", "shunt-settings"];

/// Compiles all of it, and runs the tests that are pure under qemu-user.
pub fn night(_: &[String]) -> Result<()> {
    for (program, packages) in NEEDS {
        if !sh::exists(program) {
            bail!("{program}: expected on the PATH, got none; install {packages}");
        }
    }
    sh::run(cargo("check").args(packages(PRODUCTS)))?;
    sh::run(cargo("test").args(["--lib", "--tests"]).args(packages(PURE)))
}

/// Cargo of a nightly, which compiles the standard library from its source: no toolchain of that target is needed.
fn cargo(task: &str) -> Command {
    let mut command = sh::command("cargo");
    command.args(["+nightly", task, "--quiet", "-Zbuild-std", "--target", TARGET]);
    command.arg("--target-dir").arg(sh::target_dir().join("aarch64"));
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", NEEDS[0].0);
    command.env("CC_aarch64_unknown_linux_gnu", NEEDS[0].0);
    command.env(
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
        format!("{} -L /usr/aarch64-linux-gnu", NEEDS[1].0),
    );
    command
}

fn packages(names: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    names.iter().flat_map(|name| ["-p", name])
}
