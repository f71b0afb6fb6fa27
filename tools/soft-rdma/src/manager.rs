//! Programs that connect by librdmacm: how each names its side, and how one sees that its server listens.

use shunt_task::sh;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Those of Debian's `rdmacm-utils`.
const PROGRAMS: [&str; 2] = ["rping", "rdma_client"];

/// True for a program that connects by librdmacm, with these arguments.
pub fn connects(program: &str, args: &str) -> bool {
    PROGRAMS.contains(&program)
        || program.starts_with("ib_") && args.split_whitespace().any(|arg| arg == "-R")
}

/// Why a program cannot be run here. None if it can, or is none of librdmacm's.
pub fn lacks(program: &str) -> Option<String> {
    let found = || {
        let look = sh::command("sh").args(["-c", &format!("command -v {program}")]).output();
        look.is_ok_and(|found| found.status.success())
    };
    let is_missing = PROGRAMS.contains(&program) && !found();
    is_missing.then(|| format!("{program} needs the package rdmacm-utils"))
}

/// The program of a side.
pub fn program(program: &str, client: bool) -> &str {
    if program == "rdma_client" && !client { "rdma_server" } else { program }
}

/// What makes it that side.
pub fn side(program: &str, client: bool, port: u16) -> Vec<String> {
    let port = port.to_string();
    let words: &[&str] = match (program, client) {
        ("rping", false) => &["-s", "-p", &port],
        ("rping", true) => &["-c", "-a", "127.0.0.1", "-p", &port],
        ("rdma_client", true) => &["-s", "127.0.0.1", "-p", &port],
        (_, false) => &["-p", &port],
        (_, true) => &["-p", &port, "127.0.0.1"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Waits until a process of a fabric listens at a port.
pub fn listens(child: &mut Child, runtime: &Path, port: u16, until: Instant) -> anyhow::Result<bool> {
    let directory = runtime.join(format!("shunt/fabric-ci-{port}"));
    let end = format!("-{port}.sock");
    while Instant::now() < until && child.try_wait()?.is_none() {
        let is_it = |entry: std::fs::DirEntry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("cm-") && name.ends_with(&end)
        };
        if std::fs::read_dir(&directory).is_ok_and(|entries| entries.flatten().any(is_it)) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_named_as_each_program_has_it() {
        assert_eq!(side("rping", false, 7).join(" "), "-s -p 7");
        assert_eq!(side("rping", true, 7).join(" "), "-c -a 127.0.0.1 -p 7");
        assert_eq!(side("ib_write_bw", true, 7).join(" "), "-p 7 127.0.0.1");
        assert_eq!(side("rdma_client", false, 7).join(" "), "-p 7");
        assert_eq!(program("rdma_client", false), "rdma_server");
        assert!(connects("ib_write_bw", "-R -n 5") && !connects("ib_write_bw", "-n 5"));
        assert_eq!(lacks("ib_write_bw"), None, "its absence fails a case");
    }
}
