//! `cargo xtask man`: man pages and completions of the programs, which write them themselves.

use anyhow::{Context, Result};
use shunt_task::sh;
use std::fs;
use std::path::{Path, PathBuf};

pub const SUMMARY: &str = "man pages and completions of the programs, in target/man and target/completions";
pub const HELP: &str = "man

Builds the programs (release). Those that people start write a page for each program and each of its commands into
target/man (man -l target/man/shunt-view.1), and completions for bash, fish and zsh into target/completions.";

/// Programs that people start.
pub const PROGRAMS: [&str; 9] = [
    "shunt",
    "shmem_put_bw",
    "moe_pressure",
    "transfer_bw",
    "weight_sync",
    "kv_disagg",
    "moe_proxy",
    "shunt-verbs-check",
    "shunt-devx-check",
];
/// Shells, and the file name that each looks for.
const SHELLS: [(&str, &str); 3] = [("bash", "NAME"), ("fish", "NAME.fish"), ("zsh", "_NAME")];

/// The two folders.
pub struct Pages {
    /// Pages, `NAME.1`.
    pub man: PathBuf,
    /// Completions, in a folder for each shell.
    pub completions: PathBuf,
}

pub fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return sh::usage(format!("unknown arguments {args:?}"));
    }
    build_programs()?;
    let pages = write(&sh::target_dir())?;
    println!("{}\n{}", pages.man.display(), pages.completions.display());
    Ok(())
}

/// Builds all programs and libraries, release: what `cargo build --release` made is not compiled again.
pub fn build_programs() -> Result<()> {
    sh::run(sh::cargo().args(["build", "--quiet", "--release"]))
}

/// Has the programs that were built write theirs below `folder`, in place of what was there.
pub fn write(folder: &Path) -> Result<Pages> {
    let pages = Pages { man: folder.join("man"), completions: folder.join("completions") };
    for folder in [&pages.man, &pages.completions] {
        if folder.is_dir() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
    }
    for program in PROGRAMS {
        let man = if program == "shunt" { "man" } else { "--man" };
        said(program, &[man, &pages.man.to_string_lossy()])?;
        for (shell, file) in SHELLS {
            let asks: &[&str] =
                if program == "shunt" { &["completions", shell] } else { &["--completions", shell] };
            let folder = pages.completions.join(shell);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(file.replace("NAME", program)), said(program, asks)?)?;
        }
    }
    Ok(pages)
}

/// What a program prints.
fn said(program: &str, args: &[&str]) -> Result<Vec<u8>> {
    let path = sh::target_dir().join("release").join(program);
    let output = sh::capture(sh::command(&path.to_string_lossy()).args(args));
    Ok(output.with_context(|| format!("{program} {}", args.join(" ")))?.stdout)
}
