//! What of NVSHMEM's device functions the headers have: by what a compiler for a GPU sees declared, held against a list
//! of those of NVSHMEM's own headers, and a table by family in docs/COMPAT.md.

use super::coverage::{Part, listed, settle};
use super::family::family;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::collections::BTreeSet;
use std::process::Command;

/// Those of NVSHMEM.
pub const LIST: &str = "nvshmem-compat/nvshmem-3.8.0-device.txt";
/// What begins the table.
const BEGIN: &str = "<!-- generated: cargo xtask prefix --bless, device functions -->\n";
/// Includes the headers.
const SOURCE: &str = "#include <nvshmem.h>\n#include <nvshmemx.h>\n";

/// Functions that are not there, and why; a `*` ends a name that stands for all that begin so.
pub const ABSENT: &[(&str, &str)] = &[
    ("nvshmem_global_exit", "ends the job from a kernel: the host ends it, and a kernel ends itself"),
    ("nvshmem_half_atomic_*", "NICs have no atomics of 16 bits"),
    (
        "nvshmemx_half_atomic_*",
        "the same; NICs add whole numbers alone, and the host's call is a loop of compare-and-swap",
    ),
    (
        "nvshmemx_float_atomic_*",
        "NICs add whole numbers alone; the host's call is a loop of compare-and-swap",
    ),
    (
        "nvshmemx_double_atomic_*",
        "NICs add whole numbers alone; the host's call is a loop of compare-and-swap",
    ),
    (
        "nvshmemx_ask_smem",
        "shared memory for copies by TMA over NVLink; PEs reach each other through NICs alone",
    ),
    ("nvshmemx_give_smem", "the same"),
    ("nvshmemx_release_smem", "the same"),
    ("nvshmemx_signal_counted_reset", "counted signals: words that NVSHMEM 3.8's own transport counts"),
];

/// The family of a device function: that of its name without the group of threads.
fn device_family(name: &str) -> &'static str {
    let groups = ["_warpgroup", "_warp", "_block"];
    family(groups.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name))
}

/// Functions that preprocessed text declares for a device. What is said to be `on_stream` is the host's, whatever its
/// declaration says.
fn declared(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let code: String = lines.collect::<Vec<_>>().join(" ");
    let for_device = |part: &&str| part.contains("__attribute__((device))");
    let name = |part: &str| {
        let at = part.match_indices("nvshmem").map(|(at, _)| at).find(|at| {
            let before = part[..*at].chars().next_back();
            let name = part[*at..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            let starts = name.starts_with("nvshmem_") || name.starts_with("nvshmemx_");
            let is_word = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
            starts && is_word && part[at + name.len()..].trim_start().starts_with('(')
        })?;
        part[at..].split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned)
    };
    let names = code.split([';', '{', '}']).filter(for_device).filter_map(name);
    names.filter(|name| !name.ends_with("_on_stream")).collect()
}

/// What the headers that this compiler is told of declare.
fn of_headers(mut nvcc: Command) -> Result<BTreeSet<String>> {
    let source = sh::target_dir().join("prefix-device/declared.cu");
    std::fs::write(&source, SOURCE)?;
    let output =
        sh::capture(nvcc.args(["-E", "-x", "cu"]).arg(&source)).context("the headers do not compile")?;
    let names = declared(&String::from_utf8_lossy(&output.stdout));
    if names.len() < 1000 {
        bail!("device functions of `{}`: expected thousands, got {}", sh::shown(&nvcc), names.len());
    }
    Ok(names)
}

/// Holds our headers against the list, and the table against both; answers with how many of the list are there. `nvcc`:
/// a compiler with our headers.
pub fn check(nvcc: Command, bless: bool) -> Result<usize> {
    let part =
        Part { begin: BEGIN, absent: ABSENT, family: device_family, missing: "an error of the compiler" };
    settle(&part, &of_headers(nvcc)?, &listed(LIST)?, bless)
}

/// Holds the list against NVSHMEM's own headers. `nvcc`: a compiler with those.
///
/// # Errors
/// They differ.
pub fn compare(nvcc: Command) -> Result<()> {
    let (wheel, listed) = (of_headers(nvcc)?, listed(LIST)?);
    let differ: Vec<&String> = wheel.symmetric_difference(&listed).collect();
    if !differ.is_empty() {
        bail!("{LIST} and the headers of the wheel differ in {differ:?}");
    }
    println!("wheel: {} device functions, as listed", wheel.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_declared_for_a_device_is_found_once() {
        let text = "# 1 \"x\"\nstatic __attribute__((device)) inline int nvshmemx_barrier_warp(int team) { return \
                    nvshmem_my_pe(); }\nint nvshmem_malloc(int bytes);\nextern \"C\" { __attribute__((host)) \
                    __attribute__((device)) void\nnvshmem_int_p (int *to); }\n__attribute__((device)) void \
                    nvshmemx_int_p_on_stream(int);\n__attribute__((device)) void my_nvshmem_x(int);";
        let names: Vec<String> = declared(text).into_iter().collect();
        assert_eq!(names, ["nvshmem_int_p", "nvshmemx_barrier_warp"]);
    }

    #[test]
    fn groups_of_threads_have_the_family_of_one() {
        assert_eq!(device_family("nvshmemx_int_put_nbi_block"), "put, get");
        assert_eq!(device_family("nvshmemx_barrier_warpgroup"), "barrier, sync");
        assert_eq!(device_family("nvshmem_int_g"), "p, g");
    }

    #[test]
    fn every_reason_is_of_a_function_that_there_is() {
        let listed = listed(LIST).unwrap();
        for (pattern, _) in ABSENT {
            let start = pattern.trim_end_matches('*');
            assert!(listed.iter().any(|name| name.starts_with(start)), "{pattern}");
        }
    }
}
