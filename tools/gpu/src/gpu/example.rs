//! The crate outside the workspace, built by the very lines of its README, and what others take from the registry's
//! point of view: the packages of `layout` and `device`.

use super::findings;
use super::toolchain::Toolchain;
use super::wheels::Toolkit;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};

/// Where it is, and the architecture its README names.
const FOLDER: &str = "examples/rust-kernel";
const ARCH: &str = "sm_90";

/// Runs the README's commands, audits the PTX, assembles it.
pub fn build(toolchain: &Toolchain, toolkit: &Toolkit) -> Result<()> {
    let folder = sh::root().join(FOLDER);
    let readme = std::fs::read_to_string(folder.join("README.md"))
        .with_context(|| format!("{FOLDER} has no README"))?;
    let lines = commands(&readme);
    if lines.is_empty() {
        bail!("{FOLDER}/README.md names no command");
    }
    let ptx = folder.join("target/send.ptx");
    let built = folder.join("target");
    if !ptx.is_file() && built.is_dir() {
        // Cargo does not know of the file, so it would find nothing to do.
        std::fs::remove_dir_all(&built)?;
    }
    for line in lines {
        // The toolchain found stands in for the one named, which need not be called so on this machine.
        let mut command = toolchain.command("cargo");
        command.args(line.iter().filter(|word| !word.starts_with('+')));
        sh::capture(command.current_dir(&folder).env_remove("CARGO_TARGET_DIR"))?;
    }
    let text = std::fs::read_to_string(&ptx)
        .with_context(|| format!("{FOLDER}/README.md made no {}", ptx.display()))?;
    let faults = findings::of_text(&text)?;
    if !faults.is_empty() {
        bail!("{FOLDER}: {}", faults.join("; "));
    }
    let cubin = ptx.with_extension("cubin");
    sh::capture(toolkit.program("ptxas").args(["-c", "-arch", ARCH]).arg(&ptx).arg("-o").arg(&cubin))?;
    println!("built {FOLDER} as its README says");
    Ok(())
}

/// Packs `layout` and `device` as they would be published, and builds what was packed: `device` with the packed
/// `layout`. They depend on nothing else, so no registry is asked.
pub fn package() -> Result<()> {
    forget_packed()?;
    let folder = sh::target_dir().join("packed");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let mut command = sh::cargo();
    command.args(["package", "--offline", "--allow-dirty", "-p", "shunt-layout", "-p", "shunt-device"]);
    let output = sh::capture(command.arg("--target-dir").arg(&folder))?;
    warnings(&String::from_utf8_lossy(&output.stderr)).for_each(|line| println!("cargo package: {line}"));
    for package in ["shunt-layout", "shunt-device"] {
        let mut list = sh::cargo();
        list.args(["package", "--quiet", "--allow-dirty", "--list", "-p", package]);
        let files = sh::stdout_of(&mut list).with_context(|| format!("{package} cannot be listed"))?;
        if let Some(stray) = files.lines().find(|file| !belongs(Path::new(file))) {
            bail!("{stray} would be published with {package}");
        }
    }
    println!("packed shunt-layout and shunt-device, and built them from what was packed");
    Ok(())
}

/// What is packed passes through a registry of cargo's own, whose sources it unpacks once for each version and path,
/// and takes for unchanged ever after, as it does what it compiled of them: ours change without their version.
fn forget_packed() -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let Some(home) = home else { return Ok(()) };
    // Their names are those of registries without a host.
    let registries = std::fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
    for registry in registries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"-")) {
        for package in std::fs::read_dir(registry.path())?.flatten() {
            if package.file_name().as_encoded_bytes().starts_with(b"shunt-") {
                std::fs::remove_dir_all(package.path())
                    .with_context(|| format!("cannot remove {}", package.path().display()))?;
            }
        }
    }
    Ok(())
}

/// What cargo and the compiler warn of.
fn warnings(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with("warning"))
}

/// What belongs in a package: manifests, sources, tests, and tables that tests read.
fn belongs(file: &Path) -> bool {
    let known = ["rs", "toml", "orig", "lock", "json", "txt", "c", "h", "md"];
    file.extension().is_some_and(|end| known.iter().any(|known| end == *known))
}

/// The command lines that start with `cargo` in fenced blocks.
fn commands(readme: &str) -> Vec<Vec<String>> {
    let mut fenced = false;
    let mut out = Vec::new();
    for line in readme.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if let Some(arguments) = line.strip_prefix("cargo ").filter(|_| fenced) {
            out.push(arguments.split_whitespace().map(str::to_owned).collect());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_in_fences() {
        let readme = "cargo no\n```\ncargo +nightly rustc --release\nls\n```\ncargo no\n";
        assert_eq!(commands(readme), [["+nightly", "rustc", "--release"]]);
    }

    #[test]
    fn warnings_are_told_from_progress() {
        let text = "   Packaging a\nwarning: unused\n  |\nwarning[E1]: x\n    Finished\n";
        assert_eq!(warnings(text).collect::<Vec<_>>(), ["warning: unused", "warning[E1]: x"]);
    }

    #[test]
    fn strays_are_told_from_sources() {
        assert!(belongs(Path::new("src/lib.rs")) && belongs(Path::new(".cargo_vcs_info.json")));
        assert!(!belongs(Path::new("core.1234")) && !belongs(Path::new("src/lib.rs.swp")));
    }
}
