//! `cargo xtask transport`: NVSHMEM's own transports on soft NICs, as far as each goes without a GPU.

use crate::prefix::wheel::{self, Release};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::{Path, PathBuf};

pub const SUMMARY: &str = "NVSHMEM's own transports on soft NICs: data between two processes, no GPU";
pub const HELP: &str = "transport [--calls]

Takes transports from wheels of nvidia-nvshmem-cu13, which are fetched into target/ if they can be, and runs them under
`shunt soft-rdma run` on what `cargo build --release` made, in the host library's place a program that says what it
found (soft-rdma/examples/nvshmem_transport):
  data     two processes put, get and signal; every byte is compared
  connect  two processes connect: in that release registering memory needs CUDA's driver
  init     what needs CUDA's driver to begin with: counted as skipped
A wheel that is not available is reported, and is no failure.

  --calls  also what reached the devices: a table of calls, and what the transport says";

/// What a run shows of itself in lines that are counted.
const CALL: &str = " trace: ";

/// A transport of a release, and how far it goes.
struct Run {
    release: Release,
    transport: &'static str,
    goes: &'static str,
}

const RUNS: [Run; 5] = [
    Run { release: wheel::HOST_MEMORY, transport: "ibrc", goes: "data" },
    Run { release: wheel::HOST_MEMORY, transport: "ibdevx", goes: "data" },
    Run { release: wheel::NEWEST, transport: "ibrc", goes: "connect" },
    Run { release: wheel::NEWEST, transport: "ibdevx", goes: "connect" },
    Run { release: wheel::NEWEST, transport: "ibgda", goes: "init" },
];

/// What a transport that cannot begin says.
const NO_DRIVER: &str = "cudaMalloc failed";

pub fn run(args: &[String]) -> Result<()> {
    let calls = match args {
        [] => false,
        [arg] if arg == "--calls" => true,
        [unknown, ..] => return sh::usage(format!("unknown argument '{unknown}'")),
    };
    match all(calls) {
        Err(error) if error.is::<wheel::Unreachable>() => {
            println!("skipped: {error:#}");
            Ok(())
        }
        other => other,
    }
}

/// The part of the night.
///
/// # Errors
/// What failed; [`wheel::Unreachable`].
pub fn night(_: &[String]) -> Result<()> {
    all(false)
}

fn all(calls: bool) -> Result<()> {
    let shunt = sh::target_dir().join("release/shunt");
    if !shunt.is_file() {
        bail!("{} is not built: cargo build --release", shunt.display());
    }
    let folders = RUNS.map(|run| wheel::folder_of(&run.release));
    let mut example = sh::cargo();
    example.args(["build", "--release", "-p", "shunt-soft-rdma", "--example", "nvshmem_transport"]);
    sh::run(&mut example)?;
    let mut total = Count::default();
    for (run, folder) in RUNS.iter().zip(folders) {
        total += one(run, &transport(&folder?.join("lib"), run.transport)?, &shunt, calls)?;
    }
    let Count { passed, failed, skipped } = total;
    println!("transport: {passed} passed, {failed} failed, {skipped} skipped: they need a GPU");
    if failed > 0 { bail!("{failed} of {} transports failed", RUNS.len()) } else { Ok(()) }
}

/// One transport in a fabric of its own.
fn one(run: &Run, library: &Path, shunt: &Path, calls: bool) -> Result<Count> {
    let fabric = format!("transport-{}", std::process::id());
    let log = if calls { "trace" } else { "warn" };
    let mut command = sh::command(&shunt.to_string_lossy());
    command.args(["soft-rdma", "run", "--nics", "2", "--log", log, "--fabric", &fabric, "--"]);
    command.arg(sh::target_dir().join("release/examples/nvshmem_transport")).arg(library).arg(run.goes);
    command.env("NVSHMEM_DEBUG", if calls { "TRACE" } else { "WARN" });
    let output = command.output().context("cannot start shunt")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    if calls {
        print!("{}", shown(&text));
    }
    let name = format!("{} of {}, {}", run.transport, run.release.version, run.goes);
    if run.goes == "init" && text.contains(NO_DRIVER) {
        println!("  {name:36} skipped: it asks CUDA's driver for memory");
        return Ok(Count { skipped: 1, ..Count::default() });
    }
    let wrong = if output.status.success() { Vec::new() } else { text.lines().map(str::to_owned).collect() };
    Ok(Count::told(&name, &wrong))
}

fn transport(folder: &Path, which: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let start = format!("nvshmem_transport_{which}.so");
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start));
    let found = entries.flatten().map(|entry| entry.path()).find(named);
    found.with_context(|| format!("no {start} in {}", folder.display()))
}

/// A table of calls in the order of their first, and what was said besides.
fn shown(text: &str) -> String {
    let (mut calls, mut words): (Vec<(String, usize)>, String) = (Vec::new(), String::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Some((_, call)) = line.split_once(CALL) else {
            words += &format!("  {line}\n");
            continue;
        };
        // Which of the devices it was makes no other call of it.
        let call = call
            .split_once(": ")
            .filter(|(name, _)| name.starts_with("mlx5_"))
            .map_or(call, |(_, rest)| rest);
        match calls.iter_mut().find(|(known, _)| known == call) {
            Some((_, times)) => *times += 1,
            None => calls.push((call.to_owned(), 1)),
        }
    }
    let rows: Vec<String> = calls.iter().map(|(call, times)| format!("| {call} | {times} |\n")).collect();
    format!("{words}| call | times |\n| --- | ---: |\n{}", rows.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_over_devices_and_words_are_kept() {
        let text = "shunt soft-rdma[7] trace: mlx5_0: QueryHcaCap op_mod 0x0: OK\n\
                    shunt soft-rdma[7] trace: mlx5_1: QueryHcaCap op_mod 0x0: OK\n\
                    shunt soft-rdma[7] trace: object 0x1 method 0x2: done\n\ncudaMalloc failed.\n";
        let shown = shown(text);
        assert!(shown.contains("| QueryHcaCap op_mod 0x0: OK | 2 |\n| object 0x1 method 0x2: done | 1 |"));
        assert!(shown.starts_with("  cudaMalloc failed.\n"), "{shown}");
    }

    #[test]
    fn arguments_are_refused() {
        assert_eq!(sh::status_of(&run(&["--fast".to_owned()]).unwrap_err()), 2);
    }
}
