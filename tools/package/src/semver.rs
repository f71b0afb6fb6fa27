//! What changed in the API of the crates that may be published, held against what their version says.
//!
//! The check is cargo-semver-checks: it compares rustdoc's JSON of two trees. No crate is on a registry yet, so the
//! older tree is a commit.

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::process::{Command, Stdio};

/// What `cargo install` makes, once.
const TOOL: &[&str] = &["cargo-semver-checks", "--version", "^0.51"];

/// A crate that may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub version: String,
}

/// Compares the crates with those of a commit; prints what is found.
pub fn check(packages: &[Package], baseline: Option<&str>) -> Result<Count> {
    let (there, version) = match baseline.map(str::to_owned).or_else(last_release) {
        Some(revision) => (at(&revision)?, revision),
        None => {
            println!(
                "API: no release yet (no tag, and the version never changed): --baseline REV names a commit"
            );
            return Ok(Count { skipped: packages.len(), ..Count::default() });
        }
    };
    let (old, new): (Vec<_>, Vec<_>) =
        packages.iter().partition(|package| there.names.contains(&package.name));
    println!("API: {} crates of {version}, version {}, {} are new", old.len(), there.version, new.len());
    let program = sh::tool(TOOL[0], TOOL)?;
    let mut count = Count::default();
    for package in old {
        let mut compare = sh::command(&program.to_string_lossy());
        compare.args(arguments(package, &version, &there.version));
        count += Count::told(&package.name, &wrong(&mut compare)?);
    }
    Ok(count)
}

/// What is not as the version says.
fn wrong(compare: &mut Command) -> Result<Vec<String>> {
    let line = sh::shown(compare);
    let output = compare.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))?;
    let text =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    Ok(judge(output.status.success(), &text, &line))
}

/// What a run found. One that compared nothing is no good one.
fn judge(success: bool, text: &str, line: &str) -> Vec<String> {
    match text.lines().any(|line| line.trim_start().starts_with("Checked [")) {
        true if success => Vec::new(),
        true => breaks(text),
        false => vec![format!("`{line}` compared nothing"), sh::last_lines(text, 30)],
    }
}

/// Each rule that is broken, with the first items that break it.
fn breaks(text: &str) -> Vec<String> {
    const ITEMS: usize = 3;
    let (mut found, mut items) = (Vec::new(), 0);
    let more = |items: usize| {
        items.checked_sub(ITEMS).filter(|more| *more > 0).map(|more| format!("  and {more} more"))
    };
    for line in text.lines() {
        if let Some(rule) = line.strip_prefix("--- failure ") {
            found.extend(more(items));
            found.push(rule.trim_end_matches(" ---").to_owned());
            items = 0;
        } else if line.starts_with("  ") && line.trim_start().len() + 2 == line.len() {
            items += 1;
            found.extend((items <= ITEMS).then(|| shortened(line)));
        }
    }
    found.extend(more(items));
    found.extend(text.lines().map(str::trim).find(|line| line.starts_with("Summary ")).map(str::to_owned));
    found
}

/// An item without the folders that the tool and this checkout are in.
fn shortened(line: &str) -> String {
    let here = format!("{}/", sh::root().display());
    let line = line.replace(&here, "");
    match line.split_once("target/semver-checks/git-") {
        Some((before, path)) => format!("{before}{}", path.splitn(3, '/').nth(2).unwrap_or(path)),
        None => line,
    }
}

/// Where the version stays, what is added is no break; where it was raised, it says by itself what may change.
fn arguments(package: &Package, revision: &str, before: &str) -> Vec<String> {
    let mut words =
        vec!["semver-checks", "--color", "never", "-p", &package.name, "--baseline-rev", revision];
    if package.version == before {
        words.extend(["--release-type", "minor"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

/// A tree that is compared with.
struct Tree {
    /// Packages in it.
    names: Vec<String>,
    /// The version that they share.
    version: String,
}

/// The tree of a commit.
fn at(revision: &str) -> Result<Tree> {
    let known = format!("{revision}^{{commit}}");
    if git(&["rev-parse", "--verify", "--quiet", &known]).is_none() {
        return sh::usage(format!("--baseline: expected a commit of this repository, got {revision}"));
    }
    let manifests = git(&["grep", "-h", "-E", "^name = ", revision, "--", "*Cargo.toml"]);
    let root = git(&["show", &format!("{revision}:Cargo.toml")]);
    let version = root.as_deref().and_then(version_of).map(str::to_owned);
    let names = manifests.as_deref().map_or(Vec::new(), names_of);
    match version {
        Some(version) if !names.is_empty() => Ok(Tree { names, version }),
        _ => bail!("{revision}: expected a workspace with packages and a version, got none"),
    }
}

/// The newest tag before this commit; where there is none, the newest commit that raised the version.
fn last_release() -> Option<String> {
    let tag = git(&["describe", "--tags", "--abbrev=0", "--first-parent", "HEAD^"]);
    tag.map(|tag| tag.trim().to_owned()).or_else(|| {
        let commits = git(&["log", "--format=%H", "-G^version = ", "--", "Cargo.toml"])?;
        let raised = |commit: &&str| {
            git(&["show", "--format=", commit, "--", "Cargo.toml"]).is_some_and(|it| raises(&it))
        };
        commits.lines().find(raised).map(str::to_owned)
    })
}

/// Whether a change of the root's manifest replaces the version.
fn raises(change: &str) -> bool {
    ["-version = ", "+version = "].iter().all(|part| change.lines().any(|line| line.starts_with(part)))
}

/// Values of `name` in lines of manifests.
fn names_of(lines: &str) -> Vec<String> {
    lines.lines().filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// The version in the root's manifest.
fn version_of(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

/// What git prints; none where it fails.
fn git(words: &[&str]) -> Option<String> {
    sh::stdout_of(sh::command("git").args(words).stderr(Stdio::null()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(version: &str) -> Package {
        Package { name: "shunt".into(), version: version.into() }
    }

    #[test]
    fn additions_are_no_break_and_a_raised_version_speaks_for_itself() {
        let same = arguments(&package("0.1.0"), "abc", "0.1.0").join(" ");
        assert!(same.ends_with("-p shunt --baseline-rev abc --release-type minor"), "{same}");
        assert!(!arguments(&package("0.2.0"), "abc", "0.1.0").contains(&"--release-type".to_owned()));
    }

    #[test]
    fn a_break_and_a_run_that_compared_nothing_are_findings() {
        let good = "    Checking a v0.1.0 -> v0.1.0\n     Checked [   0.1s] 202 checks: 202 pass, 58 skip\n";
        assert!(judge(true, good, "c").is_empty());
        let items: String =
            (0..5).map(|number| format!("  function a::f{number}, previously in file b.rs:1\n")).collect();
        let bad = format!(
            "{good}\n--- failure function_missing: gone ---\n\nDescription:\nGone.\n        ref: a\n\n\
             Failed in:\n{items}\n     Summary semver requires new major version: 1 major and 0 minor checks failed\n"
        );
        let said = judge(false, &bad, "c");
        assert_eq!(said.len(), 6, "{said:?}");
        assert_eq!((said[0].as_str(), said[4].as_str()), ("function_missing: gone", "  and 2 more"));
        assert!(said[1].contains("a::f0") && said[5].starts_with("Summary semver requires"), "{said:?}");
        let there = format!(
            "  fn f, previously in file {}/target/semver-checks/git-a/0123/b/c.rs:1",
            sh::root().display()
        );
        assert_eq!(shortened(&there), "  fn f, previously in file b/c.rs:1");
        for success in [true, false] {
            let said = judge(success, "error: package `shunt` not found", "c").concat();
            assert!(said.starts_with("`c` compared nothing") && said.contains("not found"), "{said}");
        }
    }

    #[test]
    fn a_release_is_a_version_in_the_place_of_another() {
        assert!(raises("-version = \"0.1.0\"\n+version = \"0.2.0\"\n"));
        assert!(!raises("+version = \"0.1.0\"\n+name = \"a\"\n"));
        assert_eq!(version_of("[workspace]\n[workspace.package]\nversion = \"0.1.0\"\n"), Some("0.1.0"));
        assert_eq!(names_of("name = \"shunt\"\nname = \"transfer_bw\"\n"), ["shunt", "transfer_bw"]);
    }

    /// This repository has the crates, and knows what it does not have.
    #[test]
    fn a_tree_is_read_from_a_commit() {
        let here = at("HEAD").expect("a tree");
        assert!(here.names.iter().any(|name| name == "shunt") && here.version.starts_with("0."));
        let error = at("no-such-commit").err().expect("refused").to_string();
        assert!(
            error.contains("--baseline: expected a commit of this repository, got no-such-commit"),
            "{error}"
        );
    }
}
