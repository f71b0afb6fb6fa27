//! The programs that need a GPU as a folder that is carried to a machine which has a GPU and no compilers.

use super::programs::{Programs, SANITIZER, build};
use super::{fatbin, rows};
use crate::gpu::parts::{ARCHES, Arch, KERNELS};
use crate::gpu::wheels;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The line that runs all rows, in the packed folder.
const SCRIPT: &str = "run.sh";
const SCRIPT_TEXT: &str = r#"#!/bin/sh
# Runs every row on this machine's GPU and prints one table; --only ROW: those whose names hold ROW.
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/bin/xtask" gpu run --packed "$here" "$@"
"#;
/// The prefix's host library, in a packed folder and where it was built.
fn library() -> (String, PathBuf) {
    let name = "lib/libshunt_nvshmem.so.3";
    (name.to_owned(), sh::target_dir().join("prefix").join(name))
}

/// Packs what was built into `out`, with compute-sanitizer where it is wanted and can be had.
pub fn pack(out: &Path, arches: &[&Arch], sanitizer: bool) -> Result<()> {
    build(arches)?;
    let mut built = Programs::built();
    if sanitizer {
        built.sanitizer = wheels::sanitizer().map_err(|error| format!("{error:#}"));
    }
    if let Err(why) = &built.sanitizer {
        println!("without compute-sanitizer, whose rows will fail: {why}");
    }
    let target = sh::target_dir();
    let cubins: Vec<(String, PathBuf)> = arches
        .iter()
        .map(|arch| {
            let name = format!("gpu/{}/{KERNELS}.cubin", arch.name);
            let from = target.join(&name);
            (name, from)
        })
        .filter(|(_, from)| from.is_file())
        .collect();
    let runner = std::env::current_exe().context("where this program lies")?;
    let others: Vec<(String, PathBuf)> = cubins.into_iter().chain([library()]).collect();
    fill(out, &built, &runner, &others)?;
    resolved(&Programs::packed(out), arches)?;
    let bytes = size(out)?;
    println!("packed {}, {} MiB: {}/{SCRIPT} runs all rows", out.display(), bytes >> 20, out.display());
    Ok(())
}

/// What a folder for a machine with a GPU has of the prefix, packed and started: for every architecture, all
/// libraries there, and without a GPU each row says so. Answers with the number of programs.
///
/// # Errors
/// One is missing, lacks an architecture or a library, or cannot be started.
pub fn check_prefix() -> Result<usize> {
    let out = sh::target_dir().join("packed-prefix");
    let (built, packed) = (Programs::built(), Programs::packed(&out));
    for (from, to) in built.of_prefix().into_iter().zip(packed.of_prefix()) {
        copy(from, to)?;
        bare(to)?;
    }
    let (name, from) = library();
    copy(&from, &out.join(&name))?;
    bare(&out.join(&name))?;
    let arches: Vec<&Arch> = ARCHES.iter().collect();
    let bytes = resolved(&packed, &arches)?;
    let ran = rows::start_of_prefix(&packed)?;
    let count = packed.prefix.len();
    println!("packed {count} programs of the prefix, {} MiB, {ran} rows run on a GPU", bytes >> 20);
    Ok(count)
}

/// Each program of the prefix has machine code for these architectures, and the system finds each of its libraries;
/// answers with the bytes of all.
fn resolved(packed: &Programs, arches: &[&Arch]) -> Result<u64> {
    let numbers = arches.iter().filter_map(|arch| arch.name.trim_start_matches("sm_").parse().ok());
    let numbers: BTreeSet<u64> = numbers.collect();
    let mut bytes = 0;
    for (name, file) in &packed.prefix {
        let held = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        bytes += held.len() as u64;
        let containers = fatbin::containers(&held);
        if containers.is_empty() || containers.iter().any(|has| !has.is_superset(&numbers)) {
            bail!(
                "{name} has machine code for {containers:?} in its containers, and needs {numbers:?} in each"
            );
        }
    }
    let libraries = packed.libraries.clone().unwrap_or_default();
    for file in packed.of_prefix() {
        let mut ldd = sh::command("ldd");
        ldd.arg(file).env("LD_LIBRARY_PATH", &libraries);
        let said =
            sh::stdout_of(&mut ldd).with_context(|| format!("ldd does not read {}", file.display()))?;
        let missing: Vec<&str> =
            said.lines().filter(|line| line.contains("not found")).map(str::trim).collect();
        if !missing.is_empty() {
            bail!("{} does not find {}", file.display(), missing.join(", "));
        }
    }
    Ok(bytes)
}

/// Copies everything into the folder and writes its script.
fn fill(out: &Path, built: &Programs, runner: &Path, others: &[(String, PathBuf)]) -> Result<()> {
    // What lies there is not removed: it may be somebody's.
    if out.exists() && !out.join(SCRIPT).is_file() && std::fs::read_dir(out)?.next().is_some() {
        bail!("{} is there, is not empty, and was not packed by this: name another folder", out.display());
    }
    built.all_there()?;
    let packed = Programs::packed(out);
    for (from, to) in built.files().into_iter().zip(packed.files()) {
        copy(from, to)?;
        bare(to)?;
    }
    let carried = out.join("bin/xtask");
    copy(runner, &carried)?;
    bare(&carried)?;
    others.iter().try_for_each(|(name, from)| {
        copy(from, &out.join(name))?;
        if *name == library().0 { bare(&out.join(name)) } else { Ok(()) }
    })?;
    if let Ok(program) = &built.sanitizer {
        let package = program.parent().context("compute-sanitizer is in no folder")?;
        copy_folder(package, &out.join(SANITIZER))?;
    }
    let file = out.join(SCRIPT);
    std::fs::write(&file, SCRIPT_TEXT)?;
    sh::capture(sh::command("chmod").arg("+x").arg(&file))?;
    Ok(())
}

/// Leaves debug information out, where there is a `strip`: it is most of what would be carried.
fn bare(file: &Path) -> Result<()> {
    if sh::exists("strip") {
        sh::capture(sh::command("strip").arg("--strip-debug").arg(file))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a file is in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let (from, to) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() { copy_folder(&from, &to)? } else { copy(&from, &to)? }
    }
    Ok(())
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        bytes += if path.is_dir() { size(&path)? } else { path.metadata()?.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a file for each program, as a build would leave them.
    fn pretended(name: &str) -> (PathBuf, Programs) {
        let root = std::env::temp_dir().join(format!("shunt-pack-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let built =
            Programs { sanitizer: Err("no network".to_owned()), ..Programs::packed(&root.join("built")) };
        for file in built.files() {
            // Anything that `strip` takes.
            copy(Path::new("/bin/true"), file).unwrap();
        }
        (root, built)
    }

    #[test]
    fn a_packed_folder_has_all_that_its_script_starts() {
        let (root, built) = pretended("whole");
        let out = root.join("out");
        fill(&out, &built, Path::new("/bin/true"), &[]).unwrap();
        Programs::packed(&out).all_there().unwrap();
        let ended = sh::command(&out.join(SCRIPT).to_string_lossy()).status().unwrap();
        assert!(ended.success(), "its runner is `true` here");
        // Again into the same folder, but not over somebody's.
        fill(&out, &built, Path::new("/bin/true"), &[]).unwrap();
        let refused = fill(&root.join("built"), &built, Path::new("/bin/true"), &[]).unwrap_err();
        assert!(refused.to_string().contains("name another folder"), "{refused}");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_is_missing_is_named() {
        let (root, built) = pretended("missing");
        std::fs::remove_file(&built.check).unwrap();
        let refused = fill(&root.join("out"), &built, Path::new("/bin/true"), &[]).unwrap_err().to_string();
        assert!(refused.contains("gpu_check") && !refused.contains("shmem_put_bw,"), "{refused}");
        std::fs::remove_dir_all(root).unwrap();
    }

    /// `true` links the C library alone, and has no device code.
    #[test]
    fn a_program_without_device_code_or_a_library_is_refused() {
        let (root, built) = pretended("resolved");
        let refused = resolved(&built, &[&ARCHES[0]]).unwrap_err().to_string();
        assert!(refused.contains("rma has machine code for []") && refused.contains("80"), "{refused}");
        // Of libraries alone: none is missing.
        assert_eq!(resolved(&Programs { prefix: Vec::new(), ..built }, &[]).unwrap(), 0);
        std::fs::remove_dir_all(root).unwrap();
    }
}
