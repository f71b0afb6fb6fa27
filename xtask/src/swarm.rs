//! `cargo xtask swarm`: builds and runs the swarm of `tests/examples/swarm.rs`.

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use shunt_task::stages::{Count, each_line};
use std::path::{Path, PathBuf};

pub const SUMMARY: &str = "random faults on random workloads, one run a seed, judged by the memory oracle";
pub const HELP: &str = "swarm [--seeds N | --minutes N] [--first S] [--fresh N] [--fault KIND] [--every-kind] [--trace]
      [--say] [--lie NAME] [--queues WHERE] [--threads N] [--out DIR]
swarm FILE.toml [--trace] [--say] [--lie NAME] [--queues WHERE]
swarm --front verbs|transfer [--first S] [--seeds N]
swarm --list

Simulates a whole cluster per seed, in parallel, and prints one table: how often each fault was drawn and hit, and
the seeds that failed, each with the command that runs it again. Its spec is written as TOML, ready for
tests/regressions/.

  --seeds N     run N seeds (default 20; with --fresh alone: none)
  --minutes N   run seeds until so long has passed on the wall
  --first S     the first of them (default 0)
  --fresh N     and N seeds that start where the clock says, printed at the start
  --fault KIND  the first fault of every run is of this kind
  --every-kind  fail unless every kind of fault was drawn and hit something
  --trace       print the digest of every run: equal digests, equal runs
  --say         of failed runs also their switches, and what agents said at last
  --lie NAME    the firmware lies like this: a bug put in on purpose
  --queues WHERE  rings and channels lie in memory of the host, or of a device; agents leave channels to kernels
                in both, and a seed has one digest in both
  --threads N   runs at a time (default: the cores)
  --out DIR     where failing runs are written (default target/swarm)
  --front NAME  another program that plays seeds: verbs programs and the library that makes them outlive a NIC, or
                transfers of the transfer engine, each with its own faults and its own judge (default: 1000 seeds)
  --list        the kinds of faults that are drawn, and the lies";

/// What CI runs: the same seeds each time. Fresh ones are for the night.
const CI: [&str; 3] = ["--seeds", "500", "--every-kind"];

/// The program, as `cargo test` builds it: optimised, with every assertion on. Of the whole workspace, so that features
/// are those of `cargo test --workspace`: with others the library and half of what it needs would be built again.
fn build() -> Result<PathBuf> {
    let what = ["build", "--quiet", "--profile", "test", "--workspace", "--example", "swarm"];
    sh::run(sh::cargo().args(what))?;
    Ok(sh::target_dir().join("debug/examples/swarm"))
}

/// Other programs that play seeds: the name of each, its package, its example.
const FRONTS: [(&str, &str, &str); 2] =
    [("verbs", "shunt-tests", "verbs_swarm"), ("transfer", "shunt-transfer-engine", "transfer_swarm")];

/// What follows `--front`: a program, and the first seed and how many as it takes them.
fn front(args: &[String]) -> Result<((&'static str, &'static str), [String; 2])> {
    let (name, rest) = args.split_first().context("--front: expected verbs or transfer, got nothing")?;
    let known = FRONTS.iter().find(|(front, ..)| front == name);
    let Some((_, package, example)) = known else {
        bail!("--front: expected verbs or transfer, got {name:?}")
    };
    let (mut first, mut seeds) = (0_u64, 1000_u64);
    for pair in rest.chunks(2) {
        let number = pair.get(1).and_then(|text| text.parse().ok());
        match (pair[0].as_str(), number) {
            ("--first", Some(number)) => first = number,
            ("--seeds", Some(number)) => seeds = number,
            _ => bail!("expected --first S or --seeds N with a whole number behind --front, got {pair:?}"),
        }
    }
    Ok(((package, example), [first.to_string(), seeds.to_string()]))
}

fn run_front(args: &[String]) -> Result<()> {
    let ((package, example), numbers) = front(args)?;
    let what = ["build", "--quiet", "--profile", "test", "--package", package, "--example", example];
    sh::run(sh::cargo().args(what))?;
    let program = sh::target_dir().join("debug/examples").join(example);
    sh::run(sh::command(&program.to_string_lossy()).args(numbers))
}

pub fn run(args: &[String]) -> Result<()> {
    if let Some(("--front", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return run_front(rest);
    }
    let program = build()?;
    sh::run(sh::command(&program.to_string_lossy()).args(args))
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    count(&build()?, &CI.map(str::to_owned))
}

/// Runs the program and counts runs.
pub fn count(program: &Path, args: &[String]) -> Result<Count> {
    let (mut runs, mut failed) = (None, None);
    let good = each_line(sh::command(&program.to_string_lossy()).args(args), |line| {
        println!("{line}");
        runs = number_before(line, " runs:").or(runs);
        failed = number_before(line, " failed").or(failed);
    })?;
    let (Some(runs), Some(failed)) = (runs, failed) else { bail!("the swarm ended without a result") };
    // Whatever else it found wrong counts as one.
    let failed = if good { failed } else { failed.max(1) };
    Ok(Count::of(runs.saturating_sub(failed), failed))
}

/// `7` of "7 runs: ...".
fn number_before(line: &str, word: &str) -> Option<usize> {
    line.split_once(word)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_takes_a_first_seed_and_a_number_of_them() {
        let of = |text: &str| front(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let (program, numbers) = of("verbs --seeds 7").unwrap();
        assert_eq!((program.1, numbers), ("verbs_swarm", ["0".to_owned(), "7".to_owned()]));
        assert_eq!(of("transfer --first 3").unwrap().1, ["3", "1000"]);
        for wrong in ["gpu", "verbs --seeds", "verbs --seeds x", "verbs --trace 1"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(front(&[]).is_err());
    }

    #[test]
    fn the_last_lines_of_a_swarm_are_read() {
        assert_eq!(number_before("220 runs: 7 failovers, 3 switch-backs", " runs:"), Some(220));
        assert_eq!(number_before("2 failed: [7, 19]", " failed"), Some(2));
        assert_eq!(number_before("seed 7 FAILED", " failed"), None);
        assert_eq!(number_before("50 of 1000 done, 2 of them failed", " failed"), None);
        assert_eq!(number_before("  commands that failed", " failed"), None);
    }
}
