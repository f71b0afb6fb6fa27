//! The programs that need a GPU, where a build leaves them and as a folder that is carried to a machine which has a GPU
//! and no compilers.

use super::{ARCHES, KERNELS, wheels};
use crate::{prefix, sh};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The line that runs all rows, in the packed folder.
const SCRIPT: &str = "run.sh";
const SCRIPT_TEXT: &str = r#"#!/bin/sh
# Runs every row on this machine's GPU and prints one table; --only ROW: those whose names hold ROW.
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/bin/xtask" gpu run --packed "$here" "$@"
"#;
/// Where the packed folder has compute-sanitizer's package.
const SANITIZER: &str = "sanitizer";

/// Where each program of the rows lies.
pub struct Programs {
    pub check: PathBuf,
    pub stream: PathBuf,
    /// Ours in CUDA C++.
    pub calls: PathBuf,
    /// Ours in DeepEP's roles: name and file.
    pub deep_ep: Vec<(String, PathBuf)>,
    /// Where those find the prefix's host library, unless they know.
    pub libraries: Option<PathBuf>,
    /// Why it is not there, if it could not be had.
    pub sanitizer: Result<PathBuf, String>,
}

impl Programs {
    /// Where the builds of this workspace leave them.
    pub fn built() -> Self {
        let target = sh::target_dir();
        Self {
            check: target.join("release/gpu_check"),
            stream: target.join("release/shmem_put_bw"),
            calls: target.join("gpu/calls"),
            deep_ep: prefix::deep_ep_programs()
                .map(|name| (name.to_owned(), prefix::deep_ep_program(name)))
                .collect(),
            libraries: None,
            sanitizer: Err("not asked for".to_owned()),
        }
    }

    /// Where a packed folder has them.
    pub fn packed(folder: &Path) -> Self {
        let bin = folder.join("bin");
        let sanitizer = wheels::find_file(&folder.join(SANITIZER), "compute-sanitizer");
        Self {
            check: bin.join("gpu_check"),
            stream: bin.join("shmem_put_bw"),
            calls: bin.join("calls"),
            deep_ep: prefix::deep_ep_programs()
                .map(|name| (name.to_owned(), bin.join("deep-ep").join(name)))
                .collect(),
            libraries: Some(folder.join("lib")),
            sanitizer: sanitizer.ok_or_else(|| "it was not packed".to_owned()),
        }
    }

    /// Each that is always there, with the name it has in messages.
    fn files(&self) -> Vec<&Path> {
        let ours = [&self.check, &self.stream, &self.calls];
        ours.into_iter().chain(self.deep_ep.iter().map(|(_, file)| file)).map(PathBuf::as_path).collect()
    }

    /// Names what is missing, all of it.
    ///
    /// # Errors
    /// A file is not there.
    pub fn all_there(&self) -> Result<()> {
        let missing: Vec<String> = self
            .files()
            .into_iter()
            .filter(|file| !file.is_file())
            .map(|file| file.display().to_string())
            .collect();
        if !missing.is_empty() {
            bail!(
                "not there: {}; `cargo xtask gpu pack --out DIR` makes the whole folder",
                missing.join(", ")
            );
        }
        Ok(())
    }
}

/// Builds what the rows start, but for the device code, which was built before.
pub fn build() -> Result<()> {
    let mut build = sh::command("cargo");
    build.args(["build", "--release", "-p", "shunt-bench", "--bins"]);
    sh::capture(&mut build).context("the programs that launch kernels do not build")?;
    prefix::run(&["--deep-ep".to_owned()])
}

/// Packs what was built into `out`, with compute-sanitizer where it can be had.
pub fn pack(out: &Path) -> Result<()> {
    build()?;
    let mut built = Programs::built();
    built.sanitizer = wheels::sanitizer().map_err(|error| format!("{error:#}"));
    if let Err(why) = &built.sanitizer {
        println!("without compute-sanitizer, whose rows will fail: {why}");
    }
    let target = sh::target_dir();
    let cubins: Vec<(String, PathBuf)> = ARCHES
        .iter()
        .map(|arch| {
            let name = format!("gpu/{}/{KERNELS}.cubin", arch.name);
            let from = target.join(&name);
            (name, from)
        })
        .filter(|(_, from)| from.is_file())
        .collect();
    let library = ("lib/libnvshmem_host.so.3".to_owned(), target.join("prefix/lib/libnvshmem_host.so.3"));
    let runner = std::env::current_exe().context("where this program lies")?;
    let others: Vec<(String, PathBuf)> = cubins.into_iter().chain([library]).collect();
    fill(out, &built, &runner, &others)?;
    let bytes = size(out)?;
    println!("packed {}, {} MiB: {}/{SCRIPT} runs all rows", out.display(), bytes >> 20, out.display());
    Ok(())
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
    others.iter().try_for_each(|(name, from)| copy(from, &out.join(name)))?;
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
}
