//! Programs that lie next to this one, run to their end or to a time limit.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Lines of a program's last words.
const LAST_LINES: usize = 6;

/// A folder of this process's own, removed when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it.
    pub fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("shunt-first-day-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program `name` in this one's folder, or where it was looked for.
pub fn sibling(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program's own folder: {error}"))?;
    let path = own.with_file_name(name);
    if path.is_file() { Ok(path) } else { Err(format!("{} is not there", path.display())) }
}

/// How a program ended.
pub struct Ended {
    /// Its status; `None`: it ran past the limit and was killed.
    pub status: Option<ExitStatus>,
    /// Its last lines.
    pub last: String,
}

impl Ended {
    /// Status and last words, for a row.
    pub fn words(&self) -> String {
        let how = self.status.map_or("killed at its time limit".into(), |status| status.to_string());
        format!("{how}; last lines: {}", self.last)
    }
}

/// Runs a program with its own process group.
pub fn run(
    program: &Path,
    arguments: &[String],
    limit: Duration,
    scratch: &Scratch,
) -> std::io::Result<Ended> {
    let log = scratch.file("output");
    let out = File::create(&log)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
    let mut child = command.spawn()?;
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            None => {
                let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
                child.wait()?;
                break None;
            }
        }
    };
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join(" / ");
    Ok(Ended { status, last })
}
