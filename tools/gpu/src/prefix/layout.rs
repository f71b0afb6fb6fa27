//! Structures and constants of NVSHMEM's interface, ours against those of its own headers: one program, compiled with
//! either, must print the same.

use super::wheel;
use crate::gpu::wheels::{self, Toolkit};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};

/// The program.
const SOURCE: &str = "nvshmem-compat/layout/layout.cc";
/// NVSHMEM's headers include CUDA's C++ library.
const CCCL: &[&str] = &["nvidia-cuda-cccl==13.3.5.0.6"];

/// CUDA's C++ library, fetched if it is not there.
pub fn cccl() -> Result<PathBuf> {
    let home = wheels::fetch("gpu-cccl", CCCL)?;
    let cuda = home.join("nvidia/cu13/include/cccl");
    if !cuda.join("cuda/std").is_dir() {
        bail!("{} holds no cuda/std", cuda.display());
    }
    Ok(cuda)
}

/// What the program prints, a line for each size, offset and value.
fn printed(name: &str, headers: &Path, toolkit: &Toolkit, cccl: &Path) -> Result<String> {
    let program = sh::target_dir().join(format!("layout-{name}"));
    let mut compile = sh::command("c++");
    compile.args(["-std=c++17", "-Wno-invalid-offsetof", SOURCE, "-I"]).arg(headers);
    for system in [toolkit.include(), cccl.to_path_buf()] {
        compile.arg("-isystem").arg(system);
    }
    sh::capture(compile.arg("-o").arg(&program))
        .with_context(|| format!("{SOURCE} does not compile with the headers of {}", headers.display()))?;
    sh::stdout_of(&mut sh::command(&program.to_string_lossy())).context("the program of layouts fails")
}

/// Lines that only one of two texts has.
fn differences<'t>(ours: &'t str, theirs: &'t str) -> Vec<&'t str> {
    let only = |one: &'t str, other: &str| {
        let lines: Vec<&'t str> = one.lines().filter(|line| !other.lines().any(|has| has == *line)).collect();
        lines
    };
    [only(ours, theirs), only(theirs, ours)].concat()
}

/// Holds our headers against the wheel's.
///
/// # Errors
/// [`wheel::Unreachable`], or a size, an offset or a value differs.
pub fn compare(headers: &Path, toolkit: &Toolkit) -> Result<()> {
    let cccl = cccl()?;
    let ours = printed("ours", headers, toolkit, &cccl)?;
    let theirs = printed("wheel", &wheel::folder()?.join("include"), toolkit, &cccl)?;
    let differ = differences(&ours, &theirs);
    if !differ.is_empty() {
        bail!("sizes, offsets or values are not those of NVSHMEM's headers: {differ:#?}");
    }
    if !ours.contains("size nvshmemi_ibgda_device_state_v2 8384") {
        bail!("{SOURCE} prints no layout of the state");
    }
    println!("layouts: {} sizes, offsets and values, as in NVSHMEM's headers", ours.lines().count());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn an_offset_that_moved_is_found() {
        let (ours, theirs) = ("size s 8\nat s.a 0\n", "size s 8\nat s.a 4\nat s.b 6\n");
        assert_eq!(differences(ours, theirs), ["at s.a 0", "at s.a 4", "at s.b 6"]);
        assert!(differences(ours, ours).is_empty());
    }
}
