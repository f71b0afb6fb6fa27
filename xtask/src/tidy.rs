//! `cargo xtask tidy`: the house rules that no compiler checks, as a test.

use crate::tidy_source::{self, Finding};
use crate::{links, modules, sentences, words};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub const SUMMARY: &str = "house rules: sizes, unsafe, assembly, crate arrows, words that must not stay";
pub const HELP: &str = "tidy [--shrink]

Fails on, in Rust files: lines over 120 columns, files over 500 lines (tests and the PRM tables excepted),
functions over 70 lines, assembly outside device/src/platform/nvptx.rs and its folder, an unsafe block without a SAFETY
comment, core::sync::atomic in device code outside platform/host.rs, code left unfinished, tests left out.
A test file that its folder's suite.rs does not name: it would not run.
In manifests: a dependency against the arrows below, default-run outside bench.
Packages of more than 9000 lines without tests (counted as xtask/src/modules/sizes.rs says).
Circles of modules that use each other, and types of more than 60 methods, but those in xtask/allowed.txt (the rule
stands in xtask/src/modules/mod.rs); --shrink takes off that list what is gone or smaller.
In all text: paths of one machine, names of registry hosts.
In Markdown: relative links and anchors that lead nowhere, pages that the book lacks.
In Markdown, messages and --help: words that are no plain English (xtask/src/words.rs).
In README and docs: more than 18 words a sentence in the mean (xtask/src/sentences.rs).

  layout <- device <- kernels      layout, soft-nic/{wire,fault} <- soft-nic/hca <- soft-nic
  soft-nic/srd <- soft-nic
  tools/task <- tools/* <- xtask -> none of the others
  layout, device, mlx5-sys <- the crates below host/ <- host <- host/runtime <- nvshmem-compat
  soft-nic <- host/soft-devx <- host/runtime      layout, device, kernels, host <- deep-ep-bridge
  deep-ep-bridge, host/runtime <- deep-ep-bridge/job <- python      tests, bench, cli -> all of them
  layout, soft-nic/fault <- bench/figures <- bench, bench/moe      device <- bench/oracle <- bench <- bench/gpu-check
  layout, soft-nic <- soft-rdma/machine <- soft-rdma/uverbs <- soft-rdma <- soft-rdma/preload
  soft-rdma/machine <- host/runtime
  host/{recovery,mlx5,bootstrap,settings} <- verbs <- verbs/preload, cli      mlx5-sys <- verbs/count
  host/bootstrap <- verbs/directory <- verbs, cli      verbs/near <- verbs/journal <- verbs
  host/{recovery,mlx5,bootstrap} <- transfer-engine <- transfer-engine/node <- transfer-engine/capi, python, tests
  transfer-engine, libfabric-sys, host/{mlx5,bootstrap,recovery} <- transfer-engine/fabric
  transfer-engine/node, bench/figures, cli/{json,pages} <- transfer-engine/program <- transfer-engine/{bw,kv,weights}";

/// Folders that are not ours to judge.
const SKIPPED: &[&str] = &["target", ".git"];
/// Endings of files that are text.
const TEXT: &[&str] = &["rs", "toml", "md", "sh", "c", "h", "cu", "cuh", "txt", "yml", "yaml", "json", "py"];

/// Who may depend on whom. A package that is not listed may depend on none of ours.
const ARROWS: &[(&str, &[&str])] = &[
    ("shunt-layout", &[]),
    ("shunt-device", &["shunt-layout"]),
    ("shunt-kernels", &["shunt-layout", "shunt-device"]),
    // The example outside the workspace.
    ("rust-kernel", &["shunt-device"]),
    ("shunt-concurrency", &["shunt-layout", "shunt-device", "shunt-verbs-near"]),
    ("shunt-soft-wire", &[]),
    ("shunt-soft-fault", &[]),
    ("shunt-soft-hca", &["shunt-layout", "shunt-soft-wire", "shunt-soft-fault"]),
    ("shunt-soft-srd", &[]),
    (
        "shunt-soft-nic",
        &["shunt-layout", "shunt-soft-wire", "shunt-soft-fault", "shunt-soft-hca", "shunt-soft-srd"],
    ),
    ("shunt-soft-machine", &["shunt-layout", "shunt-soft-nic"]),
    ("shunt-soft-uverbs", &["shunt-layout", "shunt-soft-nic", "shunt-soft-machine"]),
    ("shunt-soft-rdma", &["shunt-layout", "shunt-soft-nic", "shunt-soft-machine", "shunt-soft-uverbs"]),
    ("shunt-soft-rdma-preload", &["shunt-soft-rdma"]),
    ("shunt-mlx5-sys", &[]),
    ("shunt-libfabric-sys", &[]),
    (
        "shunt-verbs",
        &[
            "shunt-layout",
            "shunt-device",
            "shunt-bootstrap",
            "shunt-mlx5",
            "shunt-mlx5-sys",
            "shunt-recovery",
            "shunt-settings",
            "shunt-verbs-directory",
            "shunt-verbs-journal",
            "shunt-verbs-near",
        ],
    ),
    ("shunt-verbs-directory", &["shunt-bootstrap"]),
    ("shunt-verbs-journal", &["shunt-layout", "shunt-mlx5-sys", "shunt-verbs-near"]),
    ("shunt-verbs-near", &[]),
    ("shunt-verbs-preload", &["shunt-verbs", "shunt-mlx5-sys"]),
    ("shunt-verbs-count", &["shunt-mlx5-sys"]),
    (
        "shunt-transfer-engine",
        &["shunt-layout", "shunt-device", "shunt-bootstrap", "shunt-mlx5", "shunt-recovery", "shunt-wire"],
    ),
    ("shunt-task", &[]),
    ("shunt-gpu-tool", &["shunt-task"]),
    ("shunt-soft-rdma-tool", &["shunt-task"]),
    ("shunt-package-tool", &["shunt-task", "shunt-gpu-tool"]),
    ("shunt-soak-tool", &["shunt-task", "shunt-soft-rdma-tool"]),
    (
        "xtask",
        &["shunt-task", "shunt-gpu-tool", "shunt-package-tool", "shunt-soft-rdma-tool", "shunt-soak-tool"],
    ),
    ("shunt-settings", &[]),
    ("shunt-json", &[]),
    ("shunt-oracle", &["shunt-device"]),
    ("shunt-figures", &["shunt-layout", "shunt-soft-fault"]),
    ("shunt-pages", &["shunt-settings"]),
    ("shunt-wire", &["shunt-layout"]),
    ("shunt-mlx5", &["shunt-layout", "shunt-device", "shunt-mlx5-sys", "shunt-wire"]),
    ("shunt-cuda", &["shunt-layout", "shunt-mlx5"]),
    ("shunt-soft-devx", &["shunt-layout", "shunt-device", "shunt-mlx5", "shunt-soft-nic"]),
    ("shunt-topology", &["shunt-settings"]),
    ("shunt-bootstrap", &["shunt-layout", "shunt-device", "shunt-settings"]),
    ("shunt-telemetry", &["shunt-layout", "shunt-settings"]),
    ("shunt-membership", &["shunt-layout", "shunt-wire"]),
    ("shunt-recovery", &["shunt-layout", "shunt-device", "shunt-bootstrap", "shunt-mlx5"]),
    (
        "shunt-doctor",
        &[
            "shunt-layout",
            "shunt-device",
            "shunt-bootstrap",
            "shunt-mlx5",
            "shunt-mlx5-sys",
            "shunt-topology",
        ],
    ),
    (
        "shunt-host",
        &[
            "shunt-layout",
            "shunt-device",
            "shunt-bootstrap",
            "shunt-cuda",
            "shunt-membership",
            "shunt-mlx5",
            "shunt-recovery",
            "shunt-settings",
            "shunt-telemetry",
            "shunt-topology",
            "shunt-wire",
        ],
    ),
    (
        "shunt",
        &[
            "shunt-layout",
            "shunt-device",
            "shunt-host",
            "shunt-soft-devx",
            "shunt-soft-nic",
            "shunt-soft-machine",
        ],
    ),
    ("shunt-nvshmem-compat", &["shunt-layout", "shunt-device", "shunt-soft-nic", "shunt-host", "shunt"]),
    ("shunt-nvshmem-native", &["shunt-kernels"]),
    ("shunt-deep-ep-bridge", &["shunt-layout", "shunt-device", "shunt-kernels", "shunt-host"]),
    (
        "shunt-deep-ep-job",
        &[
            "shunt-layout",
            "shunt-device",
            "shunt-kernels",
            "shunt-host",
            "shunt-soft-nic",
            "shunt",
            "shunt-deep-ep-bridge",
        ],
    ),
    (
        "shunt-transfer-fabric",
        &["shunt-bootstrap", "shunt-libfabric-sys", "shunt-mlx5", "shunt-recovery", "shunt-transfer-engine"],
    ),
    ("shunt-transfer", &["shunt-settings", "shunt", "shunt-transfer-engine", "shunt-transfer-fabric"]),
    ("shunt-transfer-capi", &["shunt-soft-nic", "shunt-transfer", "shunt-transfer-engine"]),
    (
        "shunt-transfer-program",
        &["shunt-settings", "shunt", "shunt-transfer", "shunt-figures", "shunt-json", "shunt-pages"],
    ),
    (
        "shunt-python",
        &[
            "shunt-layout",
            "shunt-soft-nic",
            "shunt-deep-ep-bridge",
            "shunt-deep-ep-job",
            "shunt-transfer-engine",
            "shunt-transfer",
        ],
    ),
];
/// What their tests may depend on besides.
const TEST_ARROWS: &[(&str, &[&str])] = &[
    ("shunt-telemetry", &["shunt-json"]),
    ("shunt-doctor", &["shunt-soft-devx", "shunt-soft-nic"]),
    ("shunt-host", &["shunt-soft-devx", "shunt-soft-nic"]),
    ("shunt-deep-ep-bridge", &["shunt-soft-nic", "shunt-tests"]),
    ("shunt-transfer-capi", &["shunt-task"]),
    ("shunt-transfer-fabric", &["shunt-device"]),
];
/// Packages above all others: they may depend on anything but each other's users.
const TOP: &[&str] = &[
    "shunt-tests",
    "shunt-explore",
    "shunt-conformance",
    "shunt-fuzz",
    "shunt-ptx",
    "shunt-bench",
    "shunt-moe-pressure",
    "shunt-gpu-check",
    "shunt-cli",
    "shunt-transfer-bw",
    "shunt-weight-sync",
    "shunt-kv",
    "shunt-moe-proxy",
    "shunt-transfer-virtual",
];

/// Words that must not be in any text. Put together here, so that this file does not hold them.
const BANNED: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("crates", ".io"), "a registry host"),
    (concat!("pypi", ".org"), "a registry host"),
    (concat!("pythonhosted", ".org"), "a registry host"),
    (concat!("static.rust-", "lang.org"), "a registry host"),
    (concat!("rustup", ".rs"), "a registry host"),
    (concat!("deb.deb", "ian.org"), "a registry host"),
];

pub fn run(args: &[String]) -> Result<()> {
    let shrink = match args {
        [] => false,
        [flag] if flag == "--shrink" => true,
        other => return sh::usage(format!("unknown arguments {other:?}")),
    };
    let root = sh::root();
    let mut files = Vec::new();
    collect(&root, &mut files).context("cannot list the tree")?;
    files.sort();
    let mut findings = Vec::new();
    let mut suites = Vec::new();
    let mut texts = BTreeMap::new();
    for file in &files {
        let path = file.strip_prefix(&root).unwrap_or(file).to_string_lossy().into_owned();
        let text = std::fs::read_to_string(file).with_context(|| format!("{path} is not UTF-8"))?;
        findings.extend(check(&path, &text));
        if path.ends_with("/tests/suite.rs") {
            suites.push((path.clone(), text.clone()));
        }
        texts.insert(path, text);
    }
    let paths: Vec<String> = texts.keys().cloned().collect();
    findings.extend(suites.iter().flat_map(|(suite, text)| left_out(suite, text, &paths)));
    if shrink {
        modules::shrink(&root, &texts)?;
    }
    findings.extend(modules::check(&root, &texts)?);
    findings.extend(links::check(&root, &texts));
    findings.extend(sentences::check(&texts));
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings in {} files", findings.len(), files.len());
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

/// All rules that hold for one file.
fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = banned_words(path, text);
    findings.extend(words::check(path, text));
    if path.ends_with(".rs") {
        findings.extend(tidy_source::check(path, text));
    }
    if path.ends_with("Cargo.toml") {
        findings.extend(manifest(path, text));
    }
    findings
}

fn collect(dir: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_symlink() || SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            let ours = !name.starts_with('.') || name == ".ci" || name == ".cargo";
            if ours {
                collect(&path, out)?;
            }
        } else if TEXT.iter().any(|end| path.extension().is_some_and(|have| have == *end))
            || path.parent().and_then(Path::file_name).is_some_and(|parent| parent == ".ci")
        {
            out.push(path);
        }
    }
    Ok(())
}

/// Files beside a `suite.rs` that it does not name: no test in them is ever built.
fn left_out(suite: &str, text: &str, paths: &[String]) -> Vec<Finding> {
    let folder = suite.trim_end_matches("suite.rs");
    let named = |module: &str| text.lines().any(|line| line == format!("mod {module};"));
    let modules = paths.iter().filter_map(|path| path.strip_prefix(folder)?.strip_suffix(".rs"));
    modules
        .filter(|module| !module.contains('/') && *module != "suite" && !named(module))
        .map(|module| Finding {
            path: suite.to_owned(),
            line: 1,
            text: format!("{module}.rs beside it is not named: its tests never run"),
        })
        .collect()
}

fn banned_words(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for (word, what) in BANNED {
            // `fixtures/root/sys` is no path of a machine: something stands before the slash.
            let stands_alone = line.match_indices(word).any(|(at, _)| {
                !word.starts_with('/')
                    || !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}".contains(c))
            });
            if stands_alone {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: i + 1,
                    text: format!("{word}: {what}"),
                });
            }
        }
    }
    findings
}

fn manifest(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |line: usize, text: String| findings.push(Finding { path: path.to_owned(), line, text });
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split('=').next().is_some_and(|have| have.trim() == key))?;
        Some(line.split('=').nth(1)?.trim().trim_matches('"').to_owned())
    };
    let name = value("name").unwrap_or_default();
    let of = |arrows: &'static [(&str, &[&str])]| {
        arrows.iter().find(|(package, _)| *package == name).map_or(&[][..], |(_, allowed)| *allowed)
    };
    let (allowed, in_tests) = (of(ARROWS), of(TEST_ARROWS));
    let mut section = String::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        }
        if line.starts_with("default-run") && path != "bench/Cargo.toml" {
            add(
                i + 1,
                "default-run belongs in bench/Cargo.toml, so that `cargo run` has one program".to_owned(),
            );
        }
        // `[dependencies.name]` names its package in the section itself.
        let dependency = match section.split_once("dependencies.") {
            Some((_, package)) if line.starts_with('[') => package,
            _ if section.ends_with("dependencies") && !section.starts_with("workspace") => {
                line.split(['=', '.', ' ']).next().unwrap_or_default()
            }
            _ => continue,
        };
        let ours = dependency.starts_with("shunt-") || ["shunt", "xtask"].contains(&dependency);
        let test = section.contains("dev-dependencies") && in_tests.contains(&dependency);
        if ours && !TOP.contains(&name.as_str()) && !test && !allowed.contains(&dependency) {
            add(i + 1, format!("{name} -> {dependency}: against the arrows (cargo xtask tidy --help)"));
        }
        if ours && TOP.contains(&name.as_str()) && dependency == "xtask" {
            add(i + 1, format!("{name} -> xtask: nothing depends on the tasks"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fires(path: &str, text: &str, part: &str) {
        let found: Vec<String> = check(path, text).into_iter().map(|finding| finding.text).collect();
        assert!(found.iter().any(|text| text.contains(part)), "{part:?} not in {found:?}");
    }

    fn silent(path: &str, text: &str) {
        assert_eq!(check(path, text), Vec::new(), "{text:?}");
    }

    fn package(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}\n")
    }

    #[test]
    fn test_files_that_no_suite_names() {
        let paths = [
            "a/tests/suite.rs",
            "a/tests/one.rs",
            "a/tests/two.rs",
            "a/tests/rig/mod.rs",
            "b/tests/three.rs",
        ];
        let found = left_out("a/tests/suite.rs", "mod one;\nmod rig;\n", &paths.map(str::to_owned));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.starts_with("two.rs "), "{found:?}");
    }

    #[test]
    fn arrows_the_wrong_way() {
        let on = |dependency: &str| format!("[dependencies]\n{dependency} = {{ workspace = true }}");
        fires("layout/Cargo.toml", &package("shunt-layout", &on("shunt-device")), "against the arrows");
        fires("soft-nic/Cargo.toml", &package("shunt-soft-nic", &on("shunt-host")), "against the arrows");
        fires("device/Cargo.toml", &package("shunt-device", &on("shunt-soft-nic")), "against the arrows");
        fires("xtask/Cargo.toml", &package("xtask", &on("shunt-layout")), "against the arrows");
        fires("new/Cargo.toml", &package("shunt-new", &on("shunt-layout")), "against the arrows");
        fires("tests/Cargo.toml", &package("shunt-tests", &on("xtask")), "nothing depends");
        fires("host/Cargo.toml", &package("shunt-host", &on("shunt-soft-nic")), "against the arrows");
        fires("nvshmem-compat/Cargo.toml", &package("shunt-device", &on("shunt")), "against the arrows");
        silent("host/Cargo.toml", &package("shunt-host", &on("shunt-soft-nic").replace('[', "[dev-")));
        silent("tests/Cargo.toml", &package("shunt-tests", &on("shunt-bench")));
        silent("layout/Cargo.toml", &package("shunt-layout", &on("zerocopy")));
    }

    #[test]
    fn arrows_in_every_kind_of_section() {
        for section in [
            "[dev-dependencies]\nshunt-host.workspace = true",
            "[target.'cfg(unix)'.dependencies]\nshunt-host = { path = \"../host\" }",
            "[build-dependencies]\nshunt-host = \"0.1\"",
            "[dependencies.shunt-host]\npath = \"../host\"",
        ] {
            fires("layout/Cargo.toml", &package("shunt-layout", section), "against the arrows");
        }
        silent("Cargo.toml", "[workspace.dependencies]\nshunt-host = { path = \"host\" }\n");
    }

    #[test]
    fn one_default_program() {
        fires("host/Cargo.toml", &package("shunt-host", "default-run = \"a\""), "default-run");
        silent("bench/Cargo.toml", &package("shunt-bench", "default-run = \"shmem_put_bw\""));
    }

    #[test]
    fn banned_words_in_any_text() {
        for (word, what) in BANNED {
            fires("README.md", &format!("see {word}x"), what);
            fires("host/src/a.rs", &format!("// {word}x"), what);
        }
        silent("host/src/a.rs", concat!("// fixtures/ro", "ot/sys and ${dir}/wo", "rk/x"));
    }

    #[test]
    fn source_rules_are_applied_to_rust_files_only() {
        fires("host/src/a.rs", "fn a() { todo!() }", "todo!"); // text the rule is tried on
        silent("docs/a.md", "todo!()"); // text the rule is tried on
    }

    #[test]
    fn the_tree_is_found() {
        let mut files = Vec::new();
        collect(&sh::root(), &mut files).unwrap();
        let has = |end: &str| files.iter().any(|file| file.ends_with(end));
        assert!(has("layout/src/lib.rs") && has("xtask/Cargo.toml") && has(".cargo/config.toml"));
        assert!(!files.iter().any(|file| file.components().any(|part| part.as_os_str() == "target")));
    }
}
