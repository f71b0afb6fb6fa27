//! `cargo xtask explore`: builds and runs the explorations of `tests/explore`.

use anyhow::{Result, bail};
use shunt_task::sh;
use shunt_task::stages::{Count, each_line};
use std::path::{Path, PathBuf};

pub const SUMMARY: &str = "every interleaving of the switch within bounds, every placement of faults";
pub const HELP: &str = "explore [--faults K] [--ops N] [--runs R] [--small | --night] [--only NAME] [--queues WHERE]
        [--threads N] [--traces] [--list]

Searches all states of the models of the switch, breadth first, then runs what ships in the simulator with faults at
every instant of a run, and with device code stopped before any of its accesses. Then a verbs queue pair that is moved,
by every schedule up to a bound (`--only verbs`: these alone). Prints states or runs of each. Designs that are known to
be wrong are among the models: each must be found. Status 1 if a promise is broken, a wrong design is not found, or a
bound on states is reached.

  --faults K    faults of a run of the whole system (default 2)
  --ops N       its messages, each a put and a signal (default 3)
  --runs R      runs of each round at most; of more placements every so manyeth is taken (default 10000 of one fault,
                8000 of each further one, 700 of one preemption and of two, all of a verbs queue pair)
  --small       of the models only those with few states, and those that must be found wrong
  --night       the larger bounds of the models and of a verbs queue pair as well; of that all schedules, whatever
                --runs says
  --only NAME   explorations whose name has NAME in it
  --queues WHERE  rings and channels of the whole system lie in memory of the host, or of a device; agents leave
                switches to kernels in both
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
    count(&build()?, &[])
}

/// Runs the program and counts explorations.
pub fn count(program: &Path, args: &[String]) -> Result<Count> {
    let mut count = None;
    let good = each_line(sh::command(&program.to_string_lossy()).args(args), |line| {
        println!("{line}");
        count = summary(line).or(count);
    })?;
    let Some(count) = count else { bail!("the exploration ended without a result") };
    Ok(if good { count } else { Count { failed: count.failed.max(1), ..count } })
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
