//! The programs that need a GPU, where a build leaves them and where a packed folder has them.

use crate::gpu::parts::Arch;
use crate::gpu::wheels;
use crate::prefix;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};

/// Where the packed folder has compute-sanitizer's package.
pub const SANITIZER: &str = "sanitizer";

/// Where each program of the rows lies.
pub struct Programs {
    pub check: PathBuf,
    pub stream: PathBuf,
    /// Ours in CUDA C++.
    pub calls: PathBuf,
    /// Ours in DeepEP's roles: name and file.
    pub deep_ep: Vec<(String, PathBuf)>,
    /// Those of the prefix: of each family, and those that measure.
    pub prefix: Vec<(String, PathBuf)>,
    /// What starts them, a process for each PE.
    pub launcher: PathBuf,
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
            prefix: of_prefix().map(|name| (name.to_owned(), prefix::program(name))).collect(),
            launcher: target.join("release/shunt"),
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
            prefix: of_prefix().map(|name| (name.to_owned(), bin.join("prefix").join(name))).collect(),
            launcher: bin.join("shunt"),
            libraries: Some(folder.join("lib")),
            sanitizer: sanitizer.ok_or_else(|| "it was not packed".to_owned()),
        }
    }

    /// Each that is always there, with the name it has in messages.
    pub fn files(&self) -> Vec<&Path> {
        let ours = [&self.check, &self.stream, &self.calls].map(PathBuf::as_path);
        let deep_ep = self.deep_ep.iter().map(|(_, file)| file.as_path());
        ours.into_iter().chain(deep_ep).chain(self.of_prefix()).collect()
    }

    /// The prefix's, and what starts them.
    pub fn of_prefix(&self) -> Vec<&Path> {
        let programs = self.prefix.iter().map(|(_, file)| file.as_path());
        programs.chain([self.launcher.as_path()]).collect()
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

/// Names of the prefix's programs.
fn of_prefix() -> impl Iterator<Item = &'static str> {
    prefix::FAMILIES.into_iter().chain(prefix::MEASURES)
}

/// Builds what the rows start, but for the device code, which was built before.
pub fn build(arches: &[&Arch]) -> Result<()> {
    let mut build = sh::command("cargo");
    let packages = ["shunt-bench", "shunt-moe-pressure", "shunt-gpu-check", "shunt-cli"];
    build.args(["build", "--release", "--bins"]).args(packages.iter().flat_map(|package| ["-p", package]));
    sh::capture(&mut build).context("the programs that launch kernels do not build")?;
    let mut args = vec!["--deep-ep".to_owned(), "--programs".to_owned()];
    args.extend(arches.iter().flat_map(|arch| ["--arch".to_owned(), arch.name.to_owned()]));
    prefix::run(&args)
}
