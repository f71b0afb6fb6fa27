//! What of NVSHMEM's host interface the library exports: a table by family, kept in docs/COMPAT.md.

use super::family::{ABSENT, FAMILIES, family, reason};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

const BEGIN: &str = "<!-- generated: cargo xtask prefix --bless -->\n";
const END: &str = "<!-- end -->\n";

/// Functions that a shared library exports.
pub fn exported(library: &Path) -> Result<BTreeSet<String>> {
    let output = sh::capture(sh::command("nm").args(["-D", "--defined-only"]).arg(library))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let function = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        (kind == "T").then(|| name.split('@').next().unwrap_or(name).to_owned())
    };
    Ok(text.lines().filter_map(function).collect())
}

/// Variables that NVSHMEM's host library exports.
pub const VARIABLES: [&str; 8] = [
    "nvshmem_debug_file",
    "nvshmem_debug_level",
    "nvshmem_debug_mask",
    "nvshmem_debug_output_lock",
    "nvshmem_error",
    "nvshmem_nvtx_options",
    "nvshmem_options",
    "nvshmem_selected_device_transport",
];

/// Variables of the interface that a shared library exports.
pub fn variables(library: &Path) -> Result<Vec<String>> {
    let output = sh::capture(sh::command("nm").args(["-D", "--defined-only"]).arg(library))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let variable = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        let name = name.split('@').next().unwrap_or(name);
        (["B", "D"].contains(&kind) && name.starts_with("nvshmem")).then(|| name.to_owned())
    };
    let mut found: Vec<String> = text.lines().filter_map(variable).collect();
    found.sort();
    Ok(found)
}

/// A committed list of functions.
pub fn listed(file: &str) -> Result<BTreeSet<String>> {
    let path = sh::root().join(file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// That of the host library.
pub fn theirs() -> Result<BTreeSet<String>> {
    listed("nvshmem-compat/nvshmem-3.8.0.txt")
}

/// A part of the interface: where its table stands, what is not there, what calling that is.
pub struct Part {
    pub begin: &'static str,
    pub absent: &'static [(&'static str, &'static str)],
    pub family: fn(&str) -> &'static str,
    pub missing: &'static str,
}

/// Functions of the host library.
const HOST: Part = Part { begin: BEGIN, absent: ABSENT, family, missing: "an error of the linker" };

/// Holds the library against the list, and the table against both.
pub fn check(library: &Path, bless: bool) -> Result<()> {
    let (ours, theirs) = (exported(library)?, theirs()?);
    let variables = variables(library)?;
    if variables != VARIABLES {
        bail!("variables of the interface: expected {VARIABLES:?}, got {variables:?}");
    }
    let foreign = |name: &&String| !name.starts_with("nvshmem") && !name.starts_with("shunt_nvshmem_");
    if let Some(name) = ours.iter().find(foreign) {
        bail!("the library exports {name}, which is no function of the interface");
    }
    settle(&HOST, &ours, &theirs, bless).map(|_| ())
}

/// Holds a part against its list, and its table against both; answers with how many of the list are there.
pub fn settle(part: &Part, ours: &BTreeSet<String>, theirs: &BTreeSet<String>, bless: bool) -> Result<usize> {
    let reason = |name: &String| reason(part.absent, name);
    let unexplained: Vec<&String> = theirs.difference(ours).filter(|name| reason(name).is_none()).collect();
    if !unexplained.is_empty() {
        bail!("{} functions are not there and no reason is given: {unexplained:?}", unexplained.len());
    }
    let there: Vec<&String> = ours.intersection(theirs).filter(|name| reason(name).is_some()).collect();
    if !there.is_empty() {
        bail!("a reason is given why these are not there, and they are: {there:?}");
    }
    let path = sh::root().join("docs/COMPAT.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let begin = part.begin;
    let (before, rest) = text.split_once(begin).context("docs/COMPAT.md has no such generated part")?;
    let (had, after) = rest.split_once(END).context("the generated part of docs/COMPAT.md has no end")?;
    let table = table(part, ours, theirs);
    if bless {
        std::fs::write(&path, format!("{before}{begin}{table}{END}{after}"))?;
    } else if had != table {
        bail!("a table in docs/COMPAT.md is not that of the build; cargo xtask prefix --bless rewrites it");
    }
    let both = ours.intersection(theirs).count();
    println!("coverage: {both} of NVSHMEM's {} functions, {} more", theirs.len(), ours.len() - both);
    Ok(both)
}

fn table(part: &Part, ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> String {
    let mut out = String::from(
        "| family | NVSHMEM 3.8.0 | there | not there | only here |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    let mut sums = [0; 4];
    for name in FAMILIES {
        let of = |names: &BTreeSet<String>| {
            names.iter().filter(|one| (part.family)(one) == *name).cloned().collect::<BTreeSet<String>>()
        };
        let (mine, wheel) = (of(ours), of(theirs));
        let both = mine.intersection(&wheel).count();
        let row = [wheel.len(), both, wheel.len() - both, mine.len() - both];
        if row == [0; 4] {
            continue;
        }
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
        let _ = writeln!(out, "| {name} | {} | {} | {} | {} |", row[0], row[1], row[2], row[3]);
    }
    let _ = writeln!(out, "| all | {} | {} | {} | {} |", sums[0], sums[1], sums[2], sums[3]);
    let _ =
        writeln!(out, "\nNot there: calling one is {}.\n\n| function | why |\n| --- | --- |", part.missing);
    for (pattern, reason) in part.absent {
        let _ = writeln!(out, "| `{pattern}` | {reason} |");
    }
    out += "\n";
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_counts_both_sides() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let table = table(
            &HOST,
            &names(&["nvshmem_int_put", "nvshmem_int_test", "shunt_nvshmem_resolve"]),
            &names(&["nvshmem_int_put", "nvshmemx_team_init"]),
        );
        assert!(
            table.contains("| put, get | 1 | 1 | 0 | 0 |") && table.contains("| all | 2 | 1 | 1 | 2 |"),
            "{table}"
        );
        assert!(table.contains("| `nvshmemx_team_init` | teams"), "{table}");
    }

    #[test]
    fn every_reason_is_of_a_function_that_there_is() {
        let theirs = theirs().unwrap();
        for (pattern, _) in ABSENT {
            let start = pattern.trim_end_matches('*');
            assert!(theirs.iter().any(|name| name.starts_with(start)), "{pattern}");
        }
    }
}
