//! What the stages of unmodified programs share: a case's verdict and output, and a runtime folder that goes with it.

use anyhow::{Context, Result};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// A runtime directory, short enough for the path of a socket. What killed programs leave goes with it.
pub struct Runtime(PathBuf);

/// In memory, as a login's own runtime directory is: files made on a disk take time of the programs beside them.
const IN_MEMORY: &str = "/dev/shm";

impl Runtime {
    /// Of this process; `name` keeps stages apart.
    pub fn make(name: &str) -> Result<Self> {
        let name = format!("{name}-{}", std::process::id());
        let make = |path: PathBuf| {
            let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
            made.with_context(|| format!("cannot make {}", path.display())).map(|()| Self(path))
        };
        make(Path::new(IN_MEMORY).join(&name)).or_else(|_| make(Path::new("/tmp").join(&name)))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays: {error}", self.0.display());
        }
    }
}

/// A process that does not outlive its case.
pub struct Side(pub Child);

impl Drop for Side {
    fn drop(&mut self) {
        // Ended already, unless the case was given up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints what came of a case, with the ends of its outputs where something is `wrong`, and counts it.
pub fn told(name: &str, took: Duration, wrong: &[String], outputs: &[(&str, PathBuf)]) -> Count {
    let word = if wrong.is_empty() { "ok" } else { "FAILED" };
    println!("  {name:36} {word:7} {:6.2} s", took.as_secs_f64());
    if wrong.is_empty() {
        return Count::ONE;
    }
    wrong.iter().for_each(|line| println!("    {line}"));
    for (side, path) in outputs {
        if let Ok(text) = std::fs::read_to_string(path) {
            println!("    -- {side}\n{}", sh::last_lines(&text, 40));
        }
    }
    Count::of(0, 1)
}

/// Numbers of a name in a JSON text.
pub fn numbers<'t>(text: &'t str, name: &str) -> impl Iterator<Item = u64> + 't {
    let name = format!("\"{name}\":");
    let at = move |from: usize| text.get(from..)?.find(&name).map(|at| from + at + name.len());
    let mut next = at(0);
    std::iter::from_fn(move || {
        let from = next?;
        next = at(from);
        let digits: String = text[from..].trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}
