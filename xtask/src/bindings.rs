//! `cargo xtask bindings`: the committed FFI of C libraries, held against the installed headers.
//!
//! bindgen is compiled for this task alone: the task runs itself again with the feature that brings it in.

use crate::bindings_home::{Home, LIBFABRIC, RDMA_CORE};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::Path;

pub const SUMMARY: &str = "compare the committed FFI with the headers of RDMA libraries; --bless rewrites it";
pub const HELP: &str = "bindings [--bless]

Generates the FFI of infiniband/verbs.h and infiniband/mlx5dv.h, and of rdma/fabric.h and what belongs to it, with
bindgen, and compares it with what is committed in mlx5-sys/src/generated and libfabric-sys/src/generated. Needs
libibverbs-dev, libfabric-dev and libclang (apt: libclang-dev). Headers of another version than the committed files
were made from cannot be compared: the task says so and goes on.

  --bless  rewrite the files";

/// All that are committed.
const HOMES: [&Home; 2] = [&RDMA_CORE, &LIBFABRIC];

pub fn run(args: &[String]) -> Result<()> {
    let bless = match args {
        [] => false,
        [flag] if flag == "--bless" => true,
        other => return sh::usage(format!("unknown arguments {other:?}")),
    };
    let mut fit = false;
    for home in HOMES {
        fit |= bless || is_comparable(home)?;
    }
    if fit { generate(bless) } else { Ok(()) }
}

/// True if the installed headers are those that the committed files were made from.
fn is_comparable(home: &Home) -> Result<bool> {
    let Home { folder, project, .. } = home;
    let installed = installed(home)?;
    let committed = std::fs::read_to_string(sh::root().join(folder).join("mod.rs")).unwrap_or_default();
    let fit = committed.contains(&home.line(&installed));
    if !fit {
        let line = format!("{folder} was made from another {project} than {installed}: not compared");
        if std::env::var_os("CI").is_some() {
            bail!("{line}, and CI is set: install the one it names");
        }
        println!("{line}");
    }
    Ok(fit)
}

#[cfg(feature = "bindings")]
fn generate(bless: bool) -> Result<()> {
    for home in HOMES {
        if bless || is_comparable(home)? {
            crate::bindings_generate::run(home, bless, &installed(home)?)?;
        }
    }
    Ok(())
}

#[cfg(not(feature = "bindings"))]
fn generate(bless: bool) -> Result<()> {
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

/// The installed version of a project, e.g. "44.0", by its package file.
fn installed(home: &Home) -> Result<String> {
    let (usr, file) = (Path::new("/usr"), home.package_file);
    let text = PKGCONFIG.iter().find_map(|dir| std::fs::read_to_string(usr.join(dir).join(file)).ok());
    let text = text.with_context(|| format!("no {file} below /usr: install {}", home.install))?;
    home.version(&text).with_context(|| format!("{file} names no version of {}", home.project))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_arguments_are_refused() {
        assert_eq!(sh::status_of(&run(&["--fast".to_owned()]).unwrap_err()), 2);
    }
}
