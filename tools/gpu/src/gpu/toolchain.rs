//! rustc for nvptx64: which one, and how it is called. No linker takes part: PTX is what rustc would hand to one.

use super::parts::{Arch, Part};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "nvptx64-nvidia-cuda";

/// A compiler with the sources of `core`.
pub struct Toolchain {
    name: Option<String>,
    bootstrap: bool,
}

impl Toolchain {
    /// The nightly if there is one, else the pinned stable as its own nightly; rust-src added where it is
    /// missing.
    pub fn find(asked: Option<&str>) -> Result<Self> {
        let list = sh::stdout_of(sh::command("rustup").args(["toolchain", "list"])).unwrap_or_default();
        let nightly = list.lines().filter_map(|line| line.split_whitespace().next());
        let nightly = nightly.filter(|name| name.starts_with("nightly")).min_by_key(|name| name.len());
        let name = asked.or(nightly).map(str::to_owned);
        let bootstrap = !name.as_deref().is_some_and(|name| name.starts_with("nightly"));
        let toolchain = Self { name, bootstrap };
        if !toolchain.has_sources() {
            let mut add = sh::command("rustup");
            add.args(["component", "add", "rust-src"]);
            if let Some(name) = &toolchain.name {
                add.args(["--toolchain", name]);
            }
            sh::capture(&mut add).context("the PTX build needs rust-src, and rustup could not add it")?;
            if !toolchain.has_sources() {
                bail!("rustup added rust-src, but {} has no sources of core", toolchain.describe());
            }
        }
        Ok(toolchain)
    }

    /// A program of it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = sh::command(program);
        if let Some(name) = &self.name {
            command.env("RUSTUP_TOOLCHAIN", name);
        }
        if self.bootstrap {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }

    fn has_sources(&self) -> bool {
        let sysroot = sh::stdout_of(self.command("rustc").args(["--print", "sysroot"])).unwrap_or_default();
        Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file()
    }

    pub fn describe(&self) -> String {
        let version = sh::stdout_of(self.command("rustc").arg("--version")).unwrap_or_default();
        let how = if self.bootstrap { " with RUSTC_BOOTSTRAP=1" } else { "" };
        format!("{}{how}", version.trim())
    }
}

/// What a module is compiled to.
pub struct Output {
    /// rustc's name of it.
    emit: &'static str,
    /// Ends of the names of the file, and of that which says what it was made of.
    ends: [&'static str; 2],
    /// Cargo's own folder: of one compiler, or each would throw away what the other made.
    work: &'static str,
    cargo: &'static [&'static str],
}

/// What ptxas assembles.
pub const PTX: Output = Output { emit: "asm", ends: ["ptx", "inputs"], work: "build", cargo: &[] };
/// What LLVM links; by a compiler that may be older than the one that the workspace asks for.
pub const BITCODE: Output = Output {
    emit: "llvm-bc",
    ends: ["bc", "bc.inputs"],
    work: "build-bitcode",
    cargo: &["--ignore-rust-version"],
};

/// Compiles one module for one architecture; returns the PTX file.
pub fn build(toolchain: &Toolchain, module: &Part, arch: &Arch) -> Result<PathBuf> {
    build_as(&PTX, toolchain, module, arch)
}

/// The same to something else.
pub fn build_as(output: &Output, toolchain: &Toolchain, module: &Part, arch: &Arch) -> Result<PathBuf> {
    let results = sh::target_dir().join("gpu");
    let out = results.join(arch.name).join(module.name).with_extension(output.ends[0]);
    std::fs::create_dir_all(results.join(arch.name))?;
    let (inputs, made_of) = (inputs(toolchain, module, arch)?, out.with_extension(output.ends[1]));
    if out.is_file() && std::fs::read_to_string(&made_of).is_ok_and(|had| had == inputs) {
        return Ok(out);
    }
    // What fails half way is made again.
    let _ = std::fs::remove_file(&made_of);
    // Cargo's own folder: it cleans none that it did not make.
    let work = results.join(output.work);
    if !out.is_file() && work.is_dir() {
        // Cargo does not know of the file, so it would find nothing to do.
        let mut clean = toolchain.command("cargo");
        clean
            .args(["clean", "-p", "shunt-kernels", "--target", TARGET, "--release", "--target-dir"])
            .arg(&work);
        sh::capture(&mut clean)?;
    }
    let mut command = toolchain.command("cargo");
    command
        .args(["rustc", "-p", "shunt-kernels", "--lib", "--release", "-Zbuild-std=core", "--target", TARGET])
        .args(module.cargo)
        .args(output.cargo)
        .arg("--target-dir")
        .arg(&work)
        .args(["--", "-C"])
        .arg(format!("target-cpu={}", arch.name))
        .arg("-C")
        .arg(format!("target-feature=+{}", arch.feature))
        // Line tables make ptxas build for a debugger.
        .args(["-C", "debuginfo=0", "-C", "panic=abort"])
        .arg(format!("--emit={}={}", output.emit, out.display()));
    let said = sh::capture(&mut command)?;
    for warning in own_warnings(&String::from_utf8_lossy(&said.stderr)) {
        println!("  {warning}");
    }
    std::fs::write(&made_of, inputs)?;
    Ok(out)
}

/// Folders of the packages that a module is made of, and what else decides how.
const PACKAGES: [&str; 3] = ["kernels", "device", "layout"];
const BESIDE: [&str; 3] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];

/// What a module is made of: a line for each file, with a hash of what it holds, and how it is compiled. Cargo keeps
/// one build of a package and forgets it with other flags, so that each architecture would be compiled at each call.
fn inputs(toolchain: &Toolchain, module: &Part, arch: &Arch) -> Result<String> {
    let mut files: Vec<PathBuf> = BESIDE.iter().map(|file| sh::root().join(file)).collect();
    for package in PACKAGES {
        let folder = sh::root().join(package);
        files.push(folder.join("Cargo.toml"));
        files_below(&folder.join("src"), &mut files)?;
    }
    files.sort();
    let mut text = format!("{} {} {} {:?}\n", toolchain.describe(), arch.name, arch.feature, module.cargo);
    for file in files {
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        text += &format!("{:016x} {}\n", hasher.finish(), file.display());
    }
    Ok(text)
}

fn files_below(folder: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() { files_below(&path, out)? } else { out.push(path) }
    }
    Ok(())
}

/// Warnings that name one of our files, a line each: that of the target feature is known and says nothing
/// new.
fn own_warnings(stderr: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut title = "";
    for line in stderr.lines() {
        if line.starts_with("warning: ") {
            title = line;
        } else if let Some(place) = line.trim_start().strip_prefix("--> ")
            && !title.is_empty()
        {
            out.push(format!("{title} ({place})"));
            title = "";
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::parts::{ARCHES, PARTS};

    #[test]
    fn a_module_is_made_of_every_source_and_of_how_it_is_compiled() {
        let toolchain = Toolchain { name: None, bootstrap: true };
        let of = |part: usize, arch: usize| inputs(&toolchain, &PARTS[part], &ARCHES[arch]).unwrap();
        let text = of(0, 0);
        for file in ["kernels/src/lib.rs", "device/src/lib.rs", "layout/src/lib.rs", "/Cargo.lock"] {
            assert!(text.contains(file), "{file} is not among {text}");
        }
        assert!(text.contains("rustc ") && text != of(0, 1) && text != of(1, 0));
    }

    #[test]
    fn only_our_own_warnings_are_shown() {
        let text = "warning: unstable feature specified\n  = note\n\n\
                    warning: unused variable\n --> kernels/src/put.rs:3:1\n\n\
                    warning: `x` generated 1 warning";
        assert_eq!(own_warnings(text), ["warning: unused variable (kernels/src/put.rs:3:1)"]);
    }
}
