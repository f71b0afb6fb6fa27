//! Stages of a tier of tests: run one after the other, each with its time; a failed one does not stop the others.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a stage counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Did what they should.
    pub passed: usize,
    /// Did not.
    pub failed: usize,
    /// Could not be run here: neither.
    pub skipped: usize,
}

impl Count {
    /// One that passed.
    pub const ONE: Self = Self::of(1, 0);

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
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
    }
}

/// One stage.
pub struct Stage {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it runs, in one line.
    pub what: &'static str,
    /// Runs it.
    pub run: fn() -> Result<Count>,
}

/// Shorthand for tables of stages.
pub const fn stage(name: &'static str, what: &'static str, run: fn() -> Result<Count>) -> Stage {
    Stage { name, what, run }
}

/// Prints the stages, one a line.
pub fn list(stages: &[Stage]) {
    for stage in stages {
        println!("  {:10} {}", stage.name, stage.what);
    }
}

/// The stages called `only`; all of them if it is empty.
pub fn chosen<'s>(stages: &'s [Stage], only: &[&str]) -> Result<Vec<&'s Stage>> {
    if let Some(unknown) = only.iter().find(|name| !stages.iter().any(|stage| stage.name == **name)) {
        let names: Vec<&str> = stages.iter().map(|stage| stage.name).collect();
        return sh::usage(format!("no stage is called '{unknown}'; there are {}", names.join(" ")));
    }
    Ok(stages.iter().filter(|stage| only.is_empty() || only.contains(&stage.name)).collect())
}

/// Runs stages and prints a summary; its last line has the sum.
pub fn run(stages: &[&Stage]) -> Result<()> {
    let (start, before) = (Instant::now(), children_cpu());
    let mut lines = Vec::new();
    let mut total = Count::default();
    for stage in stages {
        println!("\n== {}", stage.name);
        let (start, before) = (Instant::now(), children_cpu());
        let count = (stage.run)().unwrap_or_else(|error| {
            println!("{}: {error:#}", stage.name);
            Count { failed: 1, ..Count::default() }
        });
        total += count;
        let word = match count {
            Count { failed: 1.., .. } => "FAILED",
            Count { skipped: 1.., .. } => "skipped",
            _ => "ok",
        };
        lines.push(format!("  {:10} {word:7} {}", stage.name, times(start, before)));
        println!("{}", lines.last().map_or("", String::as_str));
    }
    println!("\n== summary\n{}\n\n{}", lines.join("\n"), last_line(total, &times(start, before)));
    if total.failed != 0 {
        bail!("{} failed", total.failed);
    }
    Ok(())
}

fn last_line(total: Count, times: &str) -> String {
    let Count { passed, failed, skipped } = total;
    let skipped = match skipped {
        0 => "0 skipped".to_owned(),
        some => format!("{some} skipped: this machine cannot run them"),
    };
    format!("{passed} passed, {failed} failed, {skipped}; {}", times.trim_start())
}

/// Time since `start`, and processor time of what was run since.
fn times(start: Instant, before: Duration) -> String {
    let cpu = children_cpu().saturating_sub(before);
    format!("{:7.1} s, {:7.1} s of processor time", start.elapsed().as_secs_f64(), cpu.as_secs_f64())
}

/// Processor time of all processes that this one started and that have ended.
pub fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Duration::from_secs_f64(children_ticks(&stat) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// `cutime` and `cstime` of proc(5).
fn children_ticks(stat: &str) -> u64 {
    // The name of the program may hold anything, also brackets.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Runs a command and hands each line of its standard output on; true if it succeeds.
pub fn each_line(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let name = sh::shown(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{name}`"))?;
    let stdout = child.stdout.take().context("a program without output")?;
    for one in BufReader::new(stdout).lines() {
        line(&one?);
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_chosen_by_name() {
        let stages = [stage("a", "", || Ok(Count::ONE)), stage("b", "", || Ok(Count::of(0, 2)))];
        let names = |only: &[&str]| -> Vec<&str> {
            chosen(&stages, only).unwrap().iter().map(|stage| stage.name).collect()
        };
        assert_eq!(names(&[]), ["a", "b"]);
        assert_eq!(names(&["b"]), ["b"]);
        assert!(chosen(&stages, &["c"]).is_err());
    }

    #[test]
    fn a_failed_stage_fails_the_tier_and_stops_nothing() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static RUN: AtomicUsize = AtomicUsize::new(0);
        let good = stage("good", "", || {
            RUN.fetch_add(1, Ordering::Relaxed);
            Ok(Count::ONE)
        });
        let bad = stage("bad", "", || bail!("broken"));
        assert!(run(&[&good]).is_ok());
        assert!(run(&[&bad, &good]).is_err());
        assert_eq!(RUN.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_last_line_counts_what_was_skipped() {
        let line = |skipped| last_line(Count { passed: 3, failed: 1, skipped }, "  2.0 s");
        assert_eq!(line(0), "3 passed, 1 failed, 0 skipped; 2.0 s");
        assert_eq!(line(2), "3 passed, 1 failed, 2 skipped: this machine cannot run them; 2.0 s");
    }

    #[test]
    fn processor_time_of_children_is_read() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 130 14 15 16";
        assert_eq!(children_ticks(stat), 144, "130 and 14: fields 16 and 17");
    }

    #[test]
    fn lines_of_a_program_are_handed_on() {
        let mut lines = Vec::new();
        let good = each_line(sh::command("printf").arg("a\\nb\\n"), |line| lines.push(line.to_owned()));
        assert!(good.unwrap());
        assert_eq!(lines, ["a", "b"]);
        assert!(!each_line(&mut sh::command("false"), |_| ()).unwrap());
    }
}
