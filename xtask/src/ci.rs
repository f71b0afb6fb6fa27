//! `cargo xtask ci`: the one test command. Everything a change must pass, on a machine without GPU and NIC.

use crate::scenarios_list::{SCENARIOS, SOFT_RDMA, TWO_HOSTS};
use crate::{
    bindings, check, explore, fuzz, gpu, mutate, prefix, profiles, ptx, python, run_scenarios, sh, soft_rdma,
    swarm, tidy,
};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

pub const SUMMARY: &str = "the one test command: all stages below, with their times";
pub const HELP: &str = "ci [--only STAGE]... [--list]

Stages, in order; a failed one does not stop the others, the exit status tells.
  tools      C and C++ compilers, the RDMA headers and libraries, libclang, tshark, Scapy, Open MPI, Python's
             virtual environments, rustfmt, clippy: installed where apt-get and rustup can
  format     cargo fmt --check
  clippy     warnings are errors
  tidy       house rules
  bindings   the committed FFI of libibverbs and libmlx5 against their headers
  tests      cargo test --workspace
  swarm      900 fixed and 100 fresh seeds of the simulator, every kind of fault among them
  explore    every interleaving of the switch within bounds
  mutate     named breaks of the protocol: a scenario must catch each
  fuzz       parsers of what strangers send under libFuzzer, a few seconds each, from the corpus that is kept
  gpu        device code for sm_80, sm_90, sm_100: PTX, machine code held against its table, link with CUDA C++
  ptx        that PTX executed without a GPU, against soft NICs: entry points, library, MoE, ports that go down
  build      all programs and libraries, release; nothing of it can be broken by name
  prefix     the folder that programs take in NVSHMEM's place: made, linked from C and C++, held against NVSHMEM 3.8.0
  scenarios  the main program's runs, in one process and in several, as listed in xtask/src/scenarios_list.rs
  mlx5       those of them that also run through libibverbs and libmlx5, on the interposer's soft NICs; what must be
             refused there; the report of `shunt doctor --first-day`
  profiles   some of both on every kind of device (soft-nic/src/profile/table.rs)
  python     the wheel of python/, installed into a fresh virtual environment; its README's example and its tests
  soft-rdma  unmodified RDMA programs on soft NICs, as listed in xtask/src/soft_rdma_cases.rs
  netns      two hosts as network namespaces, RoCE v2 between them, links taken down by `ip link`; skipped where
             namespaces are not permitted

  --only STAGE  only this one; may be repeated
  --list        print the scenarios' command lines";

/// What a stage counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub passed: usize,
    pub failed: usize,
    /// Could not be run here: neither.
    pub skipped: usize,
}

impl Count {
    const ONE: Self = Self::of(1, 0);

    /// So many of either, and none that could not be run.
    pub const fn of(passed: usize, failed: usize) -> Self {
        Self { passed, failed, skipped: 0 }
    }

    /// Prints what came of one check, and counts it.
    pub fn told(name: &str, wrong: &[String]) -> Self {
        println!("  {name:36} {}", if wrong.is_empty() { "ok" } else { "FAILED" });
        wrong.iter().for_each(|line| println!("    {line}"));
        Self::of(usize::from(wrong.is_empty()), usize::from(!wrong.is_empty()))
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// A stage's name and what it does.
type Stage = (&'static str, fn() -> Result<Count>);

const STAGES: &[Stage] = &[
    ("tools", || tools().map(|()| Count::ONE)),
    ("format", || check::formatting().map(|()| Count::ONE)),
    ("clippy", || check::clippy().map(|()| Count::ONE)),
    ("tidy", || tidy::run(&[]).map(|()| Count::ONE)),
    ("bindings", || bindings::run(&[]).map(|()| Count::ONE)),
    ("tests", tests),
    ("swarm", swarm::stage),
    ("explore", explore::stage),
    ("mutate", mutate::stage),
    ("fuzz", fuzz::stage),
    ("gpu", gpu::stage),
    ("ptx", ptx::stage),
    ("build", || build().map(|()| Count::ONE)),
    ("prefix", prefix::stage),
    ("scenarios", run_scenarios::all),
    ("mlx5", run_scenarios::soft_rdma),
    ("profiles", profiles::stage),
    ("python", python::stage),
    ("soft-rdma", soft_rdma::stage),
    ("netns", run_scenarios::two_hosts),
];

pub fn run(args: &[String]) -> Result<()> {
    let mut only: Vec<&str> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => return list(),
            "--only" => match args.next() {
                Some(stage) => only.push(stage),
                None => return sh::usage("--only needs a stage"),
            },
            other => return sh::usage(format!("unknown argument '{other}'")),
        }
    }
    if let Some(unknown) = only.iter().find(|name| !STAGES.iter().any(|(stage, _)| stage == *name)) {
        let stages: Vec<&str> = STAGES.iter().map(|(stage, _)| *stage).collect();
        return sh::usage(format!("no stage is called '{unknown}'; there are {}", stages.join(" ")));
    }
    let mut lines = Vec::new();
    let mut total = Count::default();
    for (name, stage) in STAGES.iter().filter(|(name, _)| only.is_empty() || only.contains(name)) {
        println!("\n== {name}");
        let start = Instant::now();
        let count = stage().unwrap_or_else(|error| {
            println!("{name}: {error:#}");
            Count { failed: 1, ..Count::default() }
        });
        total += count;
        let word = match count {
            Count { failed: 1.., .. } => "FAILED",
            Count { skipped: 1.., .. } => "skipped",
            _ => "ok",
        };
        lines.push(format!("  {name:10} {word:7} {:7.1} s", start.elapsed().as_secs_f64()));
        println!("{}", lines.last().map_or("", String::as_str));
    }
    println!("\n== summary\n{}\n\n{} passed, {} failed", lines.join("\n"), total.passed, total.failed);
    if total.skipped > 0 {
        println!("{} skipped: this machine cannot run them", total.skipped);
    }
    if total.failed != 0 {
        bail!("{} failed", total.failed);
    }
    Ok(())
}

fn list() -> Result<()> {
    for scenario in SCENARIOS.iter().chain(SOFT_RDMA).chain(TWO_HOSTS) {
        println!("{:36} exit {}  {}", scenario.name, scenario.exit, scenario.command_line());
    }
    Ok(())
}

/// Packages of programs that are not ours, and a file of each.
const RDMA_PROGRAMS: &[(&str, &str)] = &[
    ("ibverbs-providers", "/etc/libibverbs.d/mlx5.driver"),
    ("ibverbs-utils", "/usr/bin/ibv_devinfo"),
    ("iproute2", "/usr/bin/rdma"),
    ("perftest", "/usr/bin/ib_write_bw"),
    ("python3-pyverbs", "/usr/share/doc/rdma-core/tests/mlx5_prm_structs.py.gz"),
];

/// Installs what the other stages need and a bare machine lacks.
fn tools() -> Result<()> {
    let mut packages = Vec::new();
    if !sh::exists("cc") {
        packages.extend(["gcc", "libc6-dev"]);
    }
    if !sh::exists("c++") {
        packages.push("g++");
    }
    if !Path::new("/usr/include/infiniband/mlx5dv.h").is_file() {
        packages.push("libibverbs-dev");
    }
    packages.extend(
        RDMA_PROGRAMS.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| package),
    );
    if !bindings::has_libclang() {
        packages.push("libclang-dev");
    }
    // Who reads the soft NIC's packets besides ourselves.
    if !sh::exists("tshark") {
        packages.push("tshark");
    }
    if !Path::new("/usr/lib/python3/dist-packages/scapy").is_dir() {
        packages.push("python3-scapy");
    }
    let can = |module: &str| sh::stdout_of(sh::command("python3").args(["-c", module])).is_some();
    if !can("import ensurepip, venv") {
        packages.push("python3-venv");
    }
    // The MPI plugin is built with what a machine has.
    if !sh::exists("mpicc") || !sh::exists("mpirun") {
        packages.extend(["libopenmpi-dev", "openmpi-bin"]);
    }
    if !packages.is_empty() {
        if !sh::exists("apt-get") {
            bail!("missing: {}; there is no apt-get to install them with", packages.join(", "));
        }
        let apt = || {
            let mut command = sh::command("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive");
            command
        };
        sh::capture(apt().args(["-q", "update"]))?;
        // Small images leave documentation out; rdma-core's descriptions of mailboxes are among it.
        let keep = "Dpkg::Options::=--path-include=/usr/share/doc/rdma-core/tests/*";
        let install = ["-q", "install", "-y", "--no-install-recommends", "--reinstall", "-o", keep];
        sh::capture(apt().args(install).args(&packages))?;
        println!("installed {}", packages.join(", "));
    }
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if sh::stdout_of(sh::cargo().args([tool, "--version"])).is_none() {
            sh::capture(sh::command("rustup").args(["component", "add", component]))?;
            println!("added {component}");
        }
    }
    Ok(())
}

/// `cargo test`, its lines passed on and its results summed up.
fn tests() -> Result<Count> {
    let mut command = sh::cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]).env("CI", "1").stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo test")?;
    let stdout = child.stdout.take().context("cargo test has no output")?;
    let mut count = Count::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        if let Some(more) = test_result(&line) {
            count.passed += more.passed;
            count.failed += more.failed;
        }
    }
    let status = child.wait()?;
    if !status.success() && count.failed == 0 {
        bail!("cargo test ended with {status}");
    }
    if count.passed == 0 {
        bail!("cargo test ran no test");
    }
    Ok(count)
}

/// Reads "test result: ok. 12 passed; 0 failed; …".
fn test_result(line: &str) -> Option<Count> {
    let rest = line.strip_prefix("test result: ")?;
    let before =
        |word: &str| rest.split(word).next()?.rsplit([' ', ';']).find(|part| !part.is_empty())?.parse().ok();
    Some(Count::of(before(" passed")?, before(" failed")?))
}

/// Programs and the library that gives others soft NICs.
fn build() -> Result<()> {
    sh::run(sh::cargo().args(["build", "--quiet", "--release"]))?;
    mutate::absent_from_release()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_cargo_test_are_read() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 7 filtered out; finished";
        assert_eq!(test_result(line), Some(Count::of(12, 3)));
        let line =
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(test_result(line), Some(Count::of(1, 0)));
        assert_eq!(test_result("test a ... ok"), None);
    }

    #[test]
    fn unknown_stages_and_arguments_are_refused() {
        for args in [&["--only", "nothing"][..], &["--only"], &["--fast"]] {
            assert!(run(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()).is_err(), "{args:?}");
        }
    }
}
