//! The copy of the tree in which the protocol can be broken.
//!
//! Shipped code holds no breaks. They are patches in `tests/mutants/`, one for each file that has any, under that
//! file's own path: each adds the questions `Mutant::NAME.on()` where a break is to be made. Here the tree is copied,
//! all patches are applied, and the copy is built once: which break is on is chosen at run time.
//!
//! The copy lies in the target folder and keeps what did not change, so that cargo builds only what did; it builds into
//! the same target folder, so crates of others are built once for both.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to do with a patch that does not apply any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Fail.
    Refused,
    /// Apply the hunks that fit, and name those that do not.
    Kept,
}

/// Where the patches are.
const PATCHES: &str = "tests/mutants";

fn folder() -> PathBuf {
    sh::target_dir().join("mutants")
}

/// The copy.
pub fn tree() -> PathBuf {
    folder().join("tree")
}

/// Paths of the files that git knows, or would.
fn files() -> Result<Vec<PathBuf>> {
    let mut list = sh::command("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let names = String::from_utf8(sh::capture(&mut list)?.stdout).context("a file's name is not UTF-8")?;
    let mut paths: Vec<PathBuf> =
        names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    paths.retain(|path| sh::root().join(path).is_file());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// The file that a patch is for: `tests/mutants/device/src/poller.rs.patch` is for `device/src/poller.rs`.
fn patched_by(patch: &Path) -> Option<PathBuf> {
    let inside = patch.strip_prefix(PATCHES).ok()?;
    (inside.extension()? == "patch").then(|| inside.with_extension(""))
}

/// `git` outside any repository: inside one it would take the names in a patch for names from that one's root.
fn git_apart(at: &Path) -> Command {
    let mut git = sh::command("git");
    git.current_dir(at).env("GIT_CEILING_DIRECTORIES", at.parent().unwrap_or(at));
    git
}

/// The patched files, with their bytes.
fn patched(files: &[PathBuf], stale: Stale) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let stage = folder().join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot empty {}", stage.display()))?;
    }
    fs::create_dir_all(&stage)?;
    let mut out = BTreeMap::new();
    for patch in files {
        let Some(file) = patched_by(patch) else { continue };
        let staged = stage.join(&file);
        fs::create_dir_all(staged.parent().unwrap_or(&stage))?;
        fs::copy(sh::root().join(&file), &staged)
            .with_context(|| format!("{} is for a file that is not there", patch.display()))?;
        let mut apply = git_apart(&stage);
        apply.args(["apply", "--whitespace=nowarn"]).args((stale == Stale::Kept).then_some("--reject"));
        let applied = sh::capture(apply.arg(sh::root().join(patch)));
        let rejected = format!("{}.rej", staged.display());
        match applied {
            Err(_) if Path::new(&rejected).is_file() => println!("not applied: {rejected}"),
            other => {
                let help = || format!("{} does not apply; see `cargo xtask mutate --help`", patch.display());
                other.with_context(help)?;
            }
        }
        out.insert(file, fs::read(&staged)?);
    }
    if out.is_empty() {
        bail!("{PATCHES} holds no patch");
    }
    Ok(out)
}

/// Writes a file unless it holds these bytes: what is not written is not built again.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|met| met == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes what is not in the tree any more.
fn remove_others(at: &Path, base: &Path, files: &[PathBuf]) -> Result<()> {
    for entry in fs::read_dir(at)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, base, files)?;
        } else if path
            .strip_prefix(base)
            .is_ok_and(|inside| files.binary_search(&inside.to_path_buf()).is_err())
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Makes the copy, or brings it up to date.
pub fn make(stale: Stale) -> Result<PathBuf> {
    let (files, tree) = (files()?, tree());
    let patched = patched(&files, stale)?;
    for file in &files {
        match patched.get(file) {
            Some(bytes) => put(&tree.join(file), bytes)?,
            None => put(&tree.join(file), &fs::read(sh::root().join(file))?)?,
        }
    }
    remove_others(&tree, &tree, &files)?;
    Ok(tree)
}

/// Writes the patches again from the copy, which somebody edited: for each file that differs from the shipped one.
pub fn save() -> Result<()> {
    let (files, tree) = (files()?, tree());
    let mut count = 0;
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
        if !tree.join(file).is_file() {
            continue;
        }
        let patch = sh::root().join(PATCHES).join(format!("{}.patch", file.display()));
        let same = fs::read(tree.join(file)).ok() == fs::read(sh::root().join(file)).ok();
        if same {
            if patch.exists() {
                fs::remove_file(&patch)?;
            }
            continue;
        }
        put(&patch, difference(file, &tree)?.as_bytes())?;
        count += 1;
    }
    println!("{count} patches in {PATCHES}");
    Ok(())
}

/// What the copy of a file has that the shipped one has not, as a patch.
fn difference(file: &Path, tree: &Path) -> Result<String> {
    let name = file.display();
    let mut diff = sh::command("git");
    diff.args(["diff", "--no-index", "--no-color", "--no-ext-diff", "-U2"]);
    // Ends with 1 where the files differ.
    let output = diff.arg(sh::root().join(file)).arg(tree.join(file)).output()?;
    let text = String::from_utf8(output.stdout).context("a file is not UTF-8")?;
    let hunks = text.find("\n@@").with_context(|| format!("{name} does not differ"))?;
    Ok(format!("--- a/{name}\n+++ b/{name}{}", &text[hunks..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_lies_under_the_path_of_its_file() {
        let of = |path: &str| patched_by(Path::new(path));
        assert_eq!(of("tests/mutants/device/src/a.rs.patch"), Some(PathBuf::from("device/src/a.rs")));
        assert_eq!(of("tests/mutants/README.md"), None);
        assert_eq!(of("device/src/a.rs"), None);
    }

    #[test]
    fn every_patch_applies_and_adds_a_break() {
        let files = files().unwrap();
        for (file, bytes) in patched(&files, Stale::Refused).unwrap() {
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.contains("Mutant::"), "{} has no break", file.display());
        }
    }

    #[test]
    fn shipped_device_code_has_no_break() {
        for file in files().unwrap() {
            if file.starts_with("device/src") || file.starts_with("kernels/src") {
                let text = fs::read_to_string(sh::root().join(&file)).unwrap_or_default();
                assert!(!text.contains("Mutant::"), "{} asks for a break", file.display());
            }
        }
    }
}
