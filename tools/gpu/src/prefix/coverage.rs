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

/// The committed list.
pub fn theirs() -> Result<BTreeSet<String>> {
    let path = sh::root().join("nvshmem-compat/nvshmem-3.8.0.txt");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Holds the library against the list, and the table against both.
pub fn check(library: &Path, bless: bool) -> Result<()> {
    let (ours, theirs) = (exported(library)?, theirs()?);
    let variables = variables(library)?;
    if variables != VARIABLES {
        bail!("variables of the interface: expected {VARIABLES:?}, got {variables:?}");
    }
    let unexplained: Vec<&String> = theirs.difference(&ours).filter(|name| reason(name).is_none()).collect();
    if !unexplained.is_empty() {
        bail!("{} functions are not there and no reason is given: {unexplained:?}", unexplained.len());
    }
    let there: Vec<&String> = ours.intersection(&theirs).filter(|name| reason(name).is_some()).collect();
    if !there.is_empty() {
        bail!("a reason is given why these are not there, and they are: {there:?}");
    }
    let foreign = |name: &&String| !name.starts_with("nvshmem") && !name.starts_with("shunt_nvshmem_");
    if let Some(name) = ours.iter().find(foreign) {
        bail!("the library exports {name}, which is no function of the interface");
    }
    let path = sh::root().join("docs/COMPAT.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (before, rest) = text.split_once(BEGIN).context("docs/COMPAT.md has no generated part")?;
    let (had, after) = rest.split_once(END).context("the generated part of docs/COMPAT.md has no end")?;
    let table = table(&ours, &theirs);
    if bless {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}"))?;
    } else if had != table {
        bail!(
            "the table in docs/COMPAT.md is not that of the library; cargo xtask prefix --bless rewrites it"
        );
    }
    let both = ours.intersection(&theirs).count();
    println!("coverage: {both} of NVSHMEM's {} functions, {} more", theirs.len(), ours.len() - both);
    Ok(())
}

fn table(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> String {
    let mut out = String::from(
        "| family | NVSHMEM 3.8.0 | there | not there | only here |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    let mut sums = [0; 4];
    for name in FAMILIES {
        let of =
            |names: &BTreeSet<String>| names.iter().filter(|one| family(one) == *name).cloned().collect();
        let (mine, wheel): (BTreeSet<String>, BTreeSet<String>) = (of(ours), of(theirs));
        let both = mine.intersection(&wheel).count();
        let row = [wheel.len(), both, wheel.len() - both, mine.len() - both];
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += value;
        }
        let _ = writeln!(out, "| {name} | {} | {} | {} | {} |", row[0], row[1], row[2], row[3]);
    }
    let _ = writeln!(out, "| all | {} | {} | {} | {} |", sums[0], sums[1], sums[2], sums[3]);
    out += "\nNot there: calling one is an error of the linker.\n\n| function | why |\n| --- | --- |\n";
    for (pattern, reason) in ABSENT {
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
