//! Running other programs: where the workspace is, which cargo, what a failure says.

use anyhow::{Context, Error, Result, bail};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

/// A task was called in a wrong way: exit status 2.
#[derive(Debug)]
pub struct BadUsage(pub String);

impl fmt::Display for BadUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; see --help", self.0)
    }
}

impl std::error::Error for BadUsage {}

/// Refuses what a task was called with.
pub fn usage<T>(met: impl Into<String>) -> Result<T> {
    Err(Error::new(BadUsage(met.into())))
}

/// A command that ended with something else than 0.
#[derive(Debug)]
struct Ended {
    line: String,
    status: ExitStatus,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ended with {}", self.line, self.status)
    }
}

impl std::error::Error for Ended {}

/// The exit status that an error stands for: that of the command that failed, 2 for bad usage, else 1.
pub fn status_of(error: &Error) -> u8 {
    if error.is::<BadUsage>() {
        return 2;
    }
    let ended = error.downcast_ref::<Ended>().and_then(|ended| ended.status.code());
    ended.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// The folder that cargo builds into.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A command at the workspace's root, without what `cargo run` told this program about itself: those
/// variables would make the inner build differ from one started by hand, and be built again each time.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "CARGO" {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// `cargo` of the pinned toolchain.
pub fn cargo() -> Command {
    command("cargo")
}

/// How a command line reads in a message.
pub fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Runs a command with its output on ours; fails if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        return Err(Error::new(Ended { line: shown(command), status }));
    }
    Ok(())
}

/// Runs a command and keeps its output; fails with the end of its error output if it fails.
pub fn capture(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}:\n{}", shown(command), output.status, last_lines(&text, 60));
    }
    Ok(output)
}

/// The standard output of a command, if it runs and succeeds.
pub fn stdout_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// True if `program` can be started at all.
pub fn exists(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// A program on the path, or in `target/tools`, where `cargo install` of `install` puts it once.
pub fn tool(name: &str, install: &[&str]) -> Result<PathBuf> {
    if exists(name) {
        return Ok(name.into());
    }
    let tools = target_dir().join("tools");
    let program = tools.join("bin").join(name);
    if !program.is_file() {
        let mut command = cargo();
        command.args(["install", "--quiet", "--locked", "--root"]).arg(&tools).args(install);
        capture(&mut command).context("a network with the registry of crates is needed")?;
    }
    Ok(program)
}

/// The last `count` lines of `text`.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_the_workspace() {
        assert!(root().join("Cargo.lock").is_file());
    }

    #[test]
    fn a_failing_command_says_what_it_printed() {
        let error =
            capture(command("sh").args(["-c", "echo the cause >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("the cause") && error.contains('3'), "{error}");
    }

    #[test]
    fn an_error_stands_for_a_status() {
        let failed = run(command("sh").args(["-c", "exit 3"])).context("more words").unwrap_err();
        assert_eq!(status_of(&failed), 3);
        assert_eq!(status_of(&usage::<()>("wrong").unwrap_err()), 2);
        assert_eq!(status_of(&run(command("sh").args(["-c", "kill -9 $$"])).unwrap_err()), 1);
        assert_eq!(status_of(&anyhow::anyhow!("anything")), 1);
    }

    #[test]
    fn last_lines_of_a_short_text_are_all_of_it() {
        assert_eq!(last_lines("a\nb", 5), "a\nb");
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
    }
}
