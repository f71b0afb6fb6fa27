//! The facade's example beside the scenarios of the stage `mlx5`: on the soft NICs of its own process, and the same
//! program through libibverbs and libmlx5 on the interposer's.

use anyhow::{Context, Result};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::Path;
use std::process::{Command, Stdio};

/// What it prints, whatever its NICs are.
const LINES: [&str; 2] = ["PE 1 has \"sent over the first port\"", "PE 1 has \"sent over the other one\""];

/// Builds the example by itself, though its packages are compiled once more with fewer features: in one call with the
/// programs it would give them the features that tests of other packages ask for.
pub fn build() -> Result<()> {
    sh::run(sh::cargo().args(["build", "--quiet", "--release", "-p", "shunt", "--example", "put"]))
}

/// The command lines, by name.
fn runs(release: &Path) -> [(&'static str, Vec<String>); 2] {
    let [put, shunt] =
        ["examples/put", "shunt"].map(|name| release.join(name).to_string_lossy().into_owned());
    // Of the shell that runs it, the parent is the program.
    let down = format!("{shunt} soft-rdma fault --pid $PPID mlx5_0 down");
    let through = ["soft-rdma", "run", "--nics", "4", "--fabric", "ci-facade", "--"].map(str::to_owned);
    let interposed = [shunt].into_iter().chain(through).chain([put.clone(), down]).collect();
    [("facade-put", vec![put]), ("mlx5-facade-put", interposed)]
}

/// What is wrong with a run.
fn wrong(exit: Option<i32>, output: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if exit != Some(0) {
        wrong.push(format!("exit status {exit:?}, not 0"));
    }
    let lacks = LINES.iter().filter(|line| !output.lines().any(|said| said == **line));
    wrong.extend(lacks.map(|line| format!("does not say '{line}'")));
    let switches = output.lines().find_map(|line| line.strip_prefix("PE 0 switched ")?.split(' ').next());
    if !switches.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count > 0)) {
        wrong.push("no channel switched".to_owned());
    }
    wrong
}

/// Part of the stage `mlx5` of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    let mut count = Count::default();
    for (name, words) in runs(&sh::target_dir().join("release")) {
        let mut command = Command::new("timeout");
        let output = command.arg("60").args(&words).stdin(Stdio::null()).output();
        let output = output.context("cannot start timeout")?;
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let wrong = wrong(output.status.code(), &text.concat());
        count += Count::told(name, &wrong);
        if !wrong.is_empty() {
            println!("    {}\n{}", words.join(" "), sh::last_lines(&text.concat(), 40));
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_must_end_well_tell_both_texts_and_switch() {
        let good = format!("{}\n{}\nPE 0 switched 1 time(s)\n", LINES[0], LINES[1]);
        assert!(wrong(Some(0), &good).is_empty());
        assert_eq!(wrong(None, &good).len(), 1);
        assert_eq!(wrong(Some(0), &good.replace(LINES[1], "")).len(), 1);
        assert_eq!(wrong(Some(0), &good.replace("switched 1", "switched 0")).len(), 1);
        assert_eq!(wrong(Some(1), "error: no such NIC").len(), 4);
    }
}
