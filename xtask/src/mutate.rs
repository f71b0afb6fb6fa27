//! `cargo xtask mutate`: the protocol with one part taken away at a time, and the scenarios that must notice.

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use shunt_task::stages::{Count, each_line};
use std::fs;
use std::path::{Path, PathBuf};

pub const SUMMARY: &str = "named breaks of the protocol, each of which a scenario must catch";
pub const HELP: &str = "mutate [--only NAME] [--against NAME] [--plain NAME] [--promises] [--list] [--threads N]
       [--say]

Builds the simulator with the feature `mutants` and runs the table of tests/src/mutations.rs: each break of
layout/src/mutant.rs with the scenarios that must catch it, and these without it, which must be clean. One table:
the mutant, what it breaks, the scenario, the run that caught it, the time.

  --only NAME  only mutants and scenarios whose names hold NAME
  --against NAME  every mutant that --only names against scenarios whose names hold NAME, in the table or not
  --plain NAME no mutants: the scenarios whose names hold NAME, every run of them
  --promises   of the table only as many rows as hold a break of every invariant and rule
  --list       the mutants, what they break, the scenarios that must catch them
  --threads N  runs at a time (default: the cores)
  --say        print what each mutant was caught by";

/// What every binary holds that can be broken: `MARK` of layout/src/mutant.rs.
const MARK: &[u8] = b"shunt-mutants-are-built-in";

/// The program, optimised, with every assertion on.
fn build() -> Result<PathBuf> {
    // The workspace's features, as the other stages' builds: what has no breaks is built once for all of them.
    let what = ["build", "--quiet", "--profile", "test", "--workspace", "--features", "shunt-tests/mutants"];
    sh::run(sh::cargo().args(what).args(["--example", "mutate"]))?;
    let program = sh::target_dir().join("debug/examples/mutate");
    if !holds_mark(&program)? {
        bail!("{} does not hold the mark that release artifacts must not hold", program.display());
    }
    Ok(program)
}

pub fn run(args: &[String]) -> Result<()> {
    let program = build()?;
    sh::run(sh::command(&program.to_string_lossy()).args(args))
}

/// Runs the program and counts breaks.
pub fn count(program: &Path, args: &[String]) -> Result<Count> {
    let mut count = None;
    let good = each_line(sh::command(&program.to_string_lossy()).args(args), |line| {
        println!("{line}");
        count = last_line(line).or(count);
    })?;
    let Some(mut count) = count else { bail!("the mutants ended without a result") };
    if !good {
        count.failed = count.failed.max(1);
    }
    Ok(count)
}

/// Reads "74 mutants caught, 2 missed, 1 scenarios not clean; 81.0 s".
fn last_line(line: &str) -> Option<Count> {
    let number = |text: &str| text.split(' ').next()?.parse::<usize>().ok();
    let (caught, rest) = line.split_once(" mutants caught, ")?;
    let (missed, rest) = rest.split_once(" missed, ")?;
    Some(Count::of(caught.parse().ok()?, missed.parse::<usize>().ok()? + number(rest)?))
}

fn holds_mark(file: &Path) -> Result<bool> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(bytes.windows(MARK.len()).any(|part| part == MARK))
}

/// Fails if any artifact of a release build could be broken.
pub fn absent_from_release() -> Result<()> {
    let folder = sh::target_dir().join("release");
    let mut looked_at = 0;
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_none_or(|end| end != "d") {
            looked_at += 1;
            if holds_mark(&path)? {
                bail!("{} was built with the feature `mutants`", path.display());
            }
        }
    }
    if looked_at == 0 {
        bail!("{} holds no artifact", folder.display());
    }
    println!("{looked_at} release artifacts hold no mutant");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_read() {
        let line = "74 mutants caught, 2 missed, 1 scenarios not clean; 81.0 s";
        assert_eq!(last_line(line), Some(Count::of(74, 3)));
        assert_eq!(last_line("no-truth rule 12"), None);
    }

    #[test]
    fn the_mark_is_the_one_in_the_code() {
        let source = fs::read(sh::root().join("layout/src/mutant.rs")).unwrap();
        assert!(source.windows(MARK.len()).any(|part| part == MARK));
    }
}
