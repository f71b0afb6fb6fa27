//! `cargo xtask explore`: builds and runs the explorations of `tests/explore`.

use crate::ci::Count;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

pub const SUMMARY: &str = "every interleaving of the switch within bounds, every placement of faults";
pub const HELP: &str = "explore [--faults K] [--ops N] [--runs R] [--night] [--only NAME] [--threads N] [--traces]
        [--list]

Searches all states of the models of the switch, breadth first, then runs what ships in the simulator with faults at
every instant of a run, and with device code stopped before any of its accesses. Prints states or runs of each. Designs
that are known to be wrong are among the models: each must be found. Status 1 if a promise is broken, a wrong design is
not found, or a bound on states is reached.

  --faults K    faults of a run of the whole system (default 2)
  --ops N       its messages, each a put and a signal (default 3)
  --runs R      runs of each round at most; of more placements every so manyeth is taken (default 10000 of one fault,
                8000 of each further one, 700 of one preemption and of two)
  --night       the larger bounds of the models as well
  --only NAME   explorations whose name has NAME in it
  --threads N   explorations at a time (default: the cores)
  --traces      print the shortest trace of every wrong design
  --list        names, and when each is run";

/// The program, optimised, with every assertion on.
fn build() -> Result<PathBuf> {
    // With an example, so that features are those of `cargo test --workspace`, which counts what tests need: with
    // others the library and half of what it needs would be built again.
    let what = ["--workspace", "--bin", "shunt-explore", "--example", "swarm"];
    sh::run(sh::cargo().args(["build", "--quiet", "--profile", "test"]).args(what))?;
    Ok(sh::target_dir().join("debug/shunt-explore"))
}

pub fn run(args: &[String]) -> Result<()> {
    let program = build()?;
    sh::run(sh::command(&program.to_string_lossy()).args(args))
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    let program = build()?;
    let mut child = sh::command(&program.to_string_lossy())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the exploration")?;
    let stdout = child.stdout.take().context("the exploration has no output")?;
    let mut count = None;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        count = summary(&line).or(count);
    }
    let status = child.wait()?;
    let Some(count) = count else { bail!("the exploration ended with {status}") };
    Ok(if status.success() { count } else { Count { failed: count.failed.max(1), ..count } })
}

/// Reads "56 explorations, 9 states, 1.0 s, 2 failed".
fn summary(line: &str) -> Option<Count> {
    let (all, rest) = line.split_once(" explorations, ")?;
    let failed: usize = rest.strip_suffix(" failed")?.rsplit(' ').next()?.parse().ok()?;
    Some(Count::of(all.trim().parse::<usize>().ok()?.saturating_sub(failed), failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_an_exploration_is_read() {
        let line = "56 explorations, 1234567 states, 120.5 s, 2 failed";
        assert_eq!(summary(line), Some(Count::of(54, 2)));
        assert_eq!(summary("kind 1      263578     42      2.2  holds"), None);
    }
}
