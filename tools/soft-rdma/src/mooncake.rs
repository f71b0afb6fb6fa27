//! Mooncake's transfer engine: a program of ours runs it, where a Python here has one of its wheels.

use crate::verbs_cases::{Case, Must, case};
use anyhow::Result;
use shunt_task::sh;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Our program.
pub const PROGRAM: &str = "mooncake.py";

/// 10 GiB in blocks of 64 KiB, which are some 2.6 million packets.
const TEN: &str = "--bytes 10G --block 64K";
/// The port is down and up, twice.
const TWICE: &str = "400000packets:mlx5_0:down=1500ms;1600000packets:mlx5_0:down=1500ms";

/// What runs by name, and at night. An endpoint of Mooncake has two queue pairs.
pub const CASES: &[Case] = &[
    Case {
        shim: false,
        must: Must::Fail,
        ..case("mooncake-without-shunt", PROGRAM, "--bytes 1G", "20000packets:mlx5_0:down=1500ms")
    },
    Case { pairs: 2, ..case("mooncake-short", PROGRAM, "--bytes 1G", "50000packets:mlx5_0:down=1500ms") },
    // No port event: what tells it otherwise is an event of the queue pair.
    Case { pairs: 2, ..case("mooncake-acks", PROGRAM, "--bytes 1G", "50000packets:mlx5_0:drop-acks=1500ms") },
    Case { pairs: 2, ..case("mooncake-10g", PROGRAM, TEN, TWICE) },
];

/// No wheel of it is here.
#[derive(Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// A Python that has the wheel, if one is in `PATH` or the system's.
fn python() -> Option<&'static str> {
    static FOUND: OnceLock<Option<&str>> = OnceLock::new();
    let has =
        |python: &&str| sh::stdout_of(sh::command(python).args(["-c", "import mooncake.engine"])).is_some();
    *FOUND.get_or_init(|| ["python3", "/usr/bin/python3"].into_iter().find(has))
}

/// A Python that can load Mooncake's engine.
#[derive(Debug)]
pub struct Wheel {
    python: PathBuf,
    /// What the wheel was unpacked into, where Python does not have it.
    folder: Option<PathBuf>,
}

impl Wheel {
    /// Of a virtual environment, or of a folder that the wheel was unpacked into.
    ///
    /// # Errors
    /// Neither is there, or its engine cannot be loaded.
    pub fn at(place: &Path) -> Result<Self> {
        let place = std::path::absolute(place)?;
        let python = place.join("bin/python3");
        let wheel = match (python.is_file(), place.join("mooncake").is_dir()) {
            (true, _) => Self { python, folder: None },
            (false, true) => Self { python: "python3".into(), folder: Some(place.clone()) },
            (false, false) => {
                let met = place.display();
                return sh::usage(format!(
                    "--mooncake: expected a virtual environment or an unpacked wheel, got '{met}'"
                ));
            }
        };
        let mut env = sh::command("env");
        wheel.add_to(&mut env);
        match sh::capture(env.args(["-c", "import mooncake.engine"])) {
            Ok(_) => Ok(wheel),
            Err(error) => sh::usage(format!("--mooncake {}: {error:#}", place.display())),
        }
    }

    /// What starts its Python, behind other words.
    pub fn add_to(&self, command: &mut Command) {
        if let Some(folder) = &self.folder {
            command.env("PYTHONPATH", folder);
        }
        command.arg(&self.python);
    }
}

/// Our program, as a file.
pub fn script() -> PathBuf {
    sh::root().join("tools/soft-rdma/programs").join(PROGRAM)
}

/// Why it cannot be run here. None if it can, or if this is another program.
pub fn lacks(program: &str) -> Option<String> {
    let is_missing = program == PROGRAM && python().is_none();
    is_missing.then(|| {
        format!("{PROGRAM} needs a python3 with the wheel mooncake-transfer-engine, or -non-cuda, in PATH")
    })
}

/// What starts it; none for another program.
pub fn words(program: &str) -> Option<[String; 2]> {
    let python = python().unwrap_or("python3");
    (program == PROGRAM).then(|| [python.to_owned(), script().display().to_string()])
}

/// Lines of a log that are errors: of glog, whose lines begin with a letter and the date.
pub fn errors(log: &str) -> impl Iterator<Item = &str> {
    let is = |line: &&str| {
        let (letter, rest) = line.split_at_checked(1).unwrap_or_default();
        ["E", "F"].contains(&letter) && rest.starts_with(|one: char| one.is_ascii_digit())
    };
    log.lines().filter(is)
}

/// Errors in the logs of both ends, the first of each.
pub fn logged(files: &[&Path]) -> Vec<String> {
    let first = |file: &&Path| {
        let log = std::fs::read_to_string(file).unwrap_or_default();
        let count = errors(&log).count();
        errors(&log).next().map(|line| format!("{count} errors in {}: {line}", file.display()))
    };
    files.iter().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_log_are_told_from_other_lines() {
        let log = "I1128 14:30:00.000001 7 a.cpp:1] well\nE1128 14:30:00.000002 7 a.cpp:2] bad\nError?\n\
                   W1128 14:30:00.000003 7 a.cpp:3] hm\nF1128 14:30:00.000004 7 a.cpp:4] worse\nä";
        assert_eq!(errors(log).count(), 2);
        assert!(errors(log).all(|line| line.contains("bad") || line.contains("worse")));
        assert_eq!(lacks("ib_write_bw"), None);
        assert!(words("ib_write_bw").is_none() && words(PROGRAM).is_some_and(|it| it[1].ends_with(PROGRAM)));
    }
}
