//! `cargo xtask bindings`: the committed FFI of libibverbs and libmlx5, held against the installed headers.
//!
//! bindgen is compiled for this task alone: the task runs itself again with the feature that brings it in.

use crate::bindings_home::{HOME, rdma_core_line};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::Path;

pub const SUMMARY: &str = "compare mlx5-sys/src/generated with the RDMA headers; --bless rewrites it";
pub const HELP: &str = "bindings [--bless]

Generates the FFI of infiniband/verbs.h and infiniband/mlx5dv.h with bindgen and compares it with what is
committed in mlx5-sys/src/generated. Needs libibverbs-dev and libclang (apt: libclang-dev). Headers of another
rdma-core than the committed files were made from cannot be compared: the task says so and ends with success.

  --bless  rewrite the files";

pub fn run(args: &[String]) -> Result<()> {
    let bless = match args {
        [] => false,
        [flag] if flag == "--bless" => true,
        other => return sh::usage(format!("unknown arguments {other:?}")),
    };
    let installed = rdma_core()?;
    let committed = std::fs::read_to_string(sh::root().join(HOME).join("mod.rs")).unwrap_or_default();
    if !bless && !committed.contains(&rdma_core_line(&installed)) {
        let line = format!("{HOME} was made from another rdma-core than {installed}: not compared");
        if std::env::var_os("CI").is_some() {
            bail!("{line}, and CI is set: install the one it names");
        }
        println!("{line}");
        return Ok(());
    }
    generate(bless, &installed)
}

#[cfg(feature = "bindings")]
fn generate(bless: bool, installed: &str) -> Result<()> {
    crate::bindings_generate::run(bless, installed)
}

#[cfg(not(feature = "bindings"))]
fn generate(bless: bool, _installed: &str) -> Result<()> {
    let mut command = sh::cargo();
    command.args(["run", "--quiet", "-p", "xtask", "--features", "bindings", "--", "bindings"]);
    command.args(bless.then_some("--bless"));
    sh::run(&mut command)
}

/// Where the package files of libraries lie, below `/usr`.
const PKGCONFIG: &[&str] = &[
    "lib/x86_64-linux-gnu/pkgconfig",
    "lib/aarch64-linux-gnu/pkgconfig",
    "lib64/pkgconfig",
    "lib/pkgconfig",
    "share/pkgconfig",
];

/// The installed rdma-core, e.g. "44.0", by its package file.
fn rdma_core() -> Result<String> {
    let usr = Path::new("/usr");
    let text =
        PKGCONFIG.iter().find_map(|dir| std::fs::read_to_string(usr.join(dir).join("libibverbs.pc")).ok());
    let text = text.context("no libibverbs.pc below /usr: install libibverbs-dev (rdma-core-devel)")?;
    version(&text).context("libibverbs.pc names no version of rdma-core")
}

/// "Version: 1.14.44.0" holds the library's own version and that of rdma-core behind it.
fn version(package_file: &str) -> Option<String> {
    let line = package_file.lines().find_map(|line| line.strip_prefix("Version:"))?;
    let (_, core) = line.trim().split_once('.')?.1.split_once('.')?;
    Some(core.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_rdma_core_is_read() {
        assert_eq!(
            version("Name: libibverbs\nVersion: 1.14.44.0\nLibs: -libverbs\n").as_deref(),
            Some("44.0")
        );
        assert_eq!(version("Name: libibverbs\n"), None);
        assert_eq!(version("Version: 44\n"), None);
    }

    #[test]
    fn unknown_arguments_are_refused() {
        assert_eq!(sh::status_of(&run(&["--fast".to_owned()]).unwrap_err()), 2);
    }
}
