//! `cargo xtask transport`: NVSHMEM's own IBGDA transport on soft NICs, as far as it goes without a GPU.

use crate::prefix::wheel;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};

pub const SUMMARY: &str =
    "NVSHMEM's own IBGDA transport on soft NICs: what it calls, where it stops without a GPU";
pub const HELP: &str = "transport

Takes nvshmem_transport_ibgda.so from the wheel nvidia-nvshmem-cu13, which is fetched into target/ if it can be, and
calls its entry under `shunt soft-rdma run` on what `cargo build --release` made: once with a stub of CUDA's functions
that do nothing, once with one that says that dma-buf is there. Prints each call that reached the devices, how often,
and the last words of each run. A wheel that is not available is reported, and is no failure.";

/// What a run shows of itself in lines that are counted.
const CALL: &str = " trace: ";

pub fn run(args: &[String]) -> Result<()> {
    if let Some(unknown) = args.first() {
        return sh::usage(format!("unknown argument '{unknown}'"));
    }
    let folder = match wheel::folder() {
        Ok(folder) => folder,
        Err(error) if error.is::<wheel::Unreachable>() => {
            println!("skipped: {error:#}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let library = transport(&folder.join("lib"))?;
    let shunt = sh::target_dir().join("release/shunt");
    if !shunt.is_file() {
        bail!("{} is not built: cargo build --release", shunt.display());
    }
    sh::run(sh::cargo().args([
        "build",
        "--release",
        "-p",
        "shunt-soft-rdma",
        "--example",
        "nvshmem_transport",
    ]))?;
    for stub in [&[][..], &["--stub"]] {
        let mut command = sh::command(&shunt.to_string_lossy());
        command.args(["soft-rdma", "run", "--nics", "2", "--log", "trace", "--fabric", "transport", "--"]);
        command.arg(sh::target_dir().join("release/examples/nvshmem_transport")).arg(&library).args(stub);
        command.env("NVSHMEM_IB_ENABLE_IBGDA", "1").env("NVSHMEM_DEBUG", "TRACE");
        let output = command.output().context("cannot start shunt")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("\n== nvshmemt_init {}: {}", stub.join(" "), output.status);
        print!("{}", shown(&text));
    }
    Ok(())
}

fn transport(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nvshmem_transport_ibgda.so"))
    };
    let found = entries.flatten().map(|entry| entry.path()).find(named);
    found.with_context(|| format!("no nvshmem_transport_ibgda.so in {}", folder.display()))
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
