//! What docs/FAILOVER.md draws of the code and docs/ORDERING.md lists of it, held against the code.
//!
//! Tables and drawings stand between `<!-- NAME -->` and `<!-- end of NAME -->`; `cargo xtask docs --bless` writes them
//! again. States and observations come from the types, their meanings from the comments above them, the ways from step
//! to step from the functions that carry the steps out.

use shunt_host::agent::health::{Action, Health, Observation};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Lines of the block that `head` opens, without its first and last.
fn block<'s>(source: &'s str, head: &str) -> Vec<&'s str> {
    let mut lines = source.lines().skip_while(|line| !line.trim_start().starts_with(head));
    let opening = lines.next().unwrap_or_else(|| panic!("no {head:?}"));
    let indent = opening.len() - opening.trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    lines.take_while(|line| !line.starts_with(&end)).collect()
}

/// Variants of an enum, each with what its comment says.
fn variants(source: &str, name: &str) -> Vec<(String, String)> {
    let (mut out, mut words) = (Vec::new(), Vec::new());
    for line in block(source, &format!("pub enum {name} {{")) {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            words.push(text.trim().to_owned());
        } else if line.starts_with(char::is_alphabetic) {
            let variant = line.split([' ', ',', '=']).next().unwrap_or_default();
            out.push((variant.to_owned(), words.join(" ").replace('`', "").replace(['[', ']'], "")));
            words.clear();
        }
    }
    assert!(!out.is_empty(), "{name} has no variants");
    out
}

fn meanings(title: &str, variants: &[(String, String)]) -> String {
    let mut text = format!("| {title} | means |\n| --- | --- |\n");
    variants.iter().for_each(|(name, meaning)| writeln!(text, "| {name} | {meaning} |").unwrap());
    text
}

/// The table of path health: what is not in it keeps its state and does nothing.
fn health() -> String {
    let mut text = "| state | observation | next | action |\n| --- | --- | --- | --- |\n".to_owned();
    let mut drawing = "```mermaid\nstateDiagram-v2\n    [*] --> Ready\n".to_owned();
    for state in Health::ALL {
        let mut ways: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for what in Observation::ALL {
            let (next, action) = state.observe(what);
            if (next, action) != (state, Action::Keep) {
                writeln!(text, "| {state:?} | {what:?} | {next:?} | {action:?} |").unwrap();
                ways.entry(format!("{next:?}")).or_default().push(format!("{what:?}"));
            }
        }
        for (next, what) in ways {
            writeln!(drawing, "    {state:?} --> {next}: {}", what.join(", ")).unwrap();
        }
    }
    let source = read("host/recovery/src/health.rs");
    let words = |title, name| meanings(title, &variants(&source, name));
    let parts = [words("state", "Health"), words("observation", "Observation"), words("action", "Action")];
    format!("{text}\n{drawing}```\n\n{}", parts.join("\n"))
}

/// Functions of the switch: what each calls of the others, and the steps it enters.
#[derive(Default)]
struct Function {
    calls: BTreeSet<String>,
    enters: BTreeSet<String>,
}

/// The words behind every `mark`.
fn words_after<'s>(text: &'s str, mark: &'s str) -> impl Iterator<Item = &'s str> {
    text.split(mark).skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    })
}

/// Names of what is called with arguments. Without any it is a part of the channel, or a word of its memory.
fn called(body: &str) -> impl Iterator<Item = &str> {
    let calls = body.match_indices('(').filter(|(at, _)| !body[*at..].starts_with("()"));
    calls.map(|(at, _)| {
        let before = body[..at].trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        &body[before.len()..at]
    })
}

fn functions() -> (BTreeMap<String, Function>, String) {
    let folder = root().join("device/src/switch");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut all, mut dispatch) = (BTreeMap::new(), String::new());
    for file in files {
        let source = std::fs::read_to_string(file).unwrap();
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        for part in source.split("\n    fn ").flat_map(|part| part.split(" fn ")).skip(1) {
            let name = words_after(&format!("\0{part}"), "\0").next().unwrap_or_default().to_owned();
            // Comments end with the function before: what they name is not called.
            let body: String = part.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            if name == "drive_slow" {
                dispatch.clone_from(&body);
            }
            let function: &mut Function = all.entry(name).or_default();
            function.calls.extend(called(&body).map(str::to_owned));
            let marks = ["enter(at, Step::", "enter(word, Step::", ".cleared(Step::", ".at_step(Step::"];
            for mark in marks {
                function.enters.extend(words_after(&body, mark).map(str::to_owned));
            }
            if body.contains(".opened(") {
                function.enters.insert("Idle".to_owned());
            }
        }
    }
    (all, dispatch)
}

/// Steps that a function may enter, by itself or through those it calls.
fn entered(name: &str, all: &BTreeMap<String, Function>, seen: &mut BTreeSet<String>) -> BTreeSet<String> {
    let Some(function) = all.get(name).filter(|_| seen.insert(name.to_owned())) else {
        return BTreeSet::new();
    };
    let mut out = function.enters.clone();
    function.calls.iter().for_each(|call| out.extend(entered(call, all, seen)));
    out
}

/// Steps of the switch, each with the steps that may follow.
fn steps() -> String {
    let (all, dispatch) = functions();
    let mut text = "| step | means | may be followed by |\n| --- | --- | --- |\n".to_owned();
    let mut drawing = "```mermaid\nstateDiagram-v2\n    [*] --> Idle\n".to_owned();
    let known = variants(&read("layout/src/state/channel.rs"), "Step");
    for (step, meaning) in &known {
        let arm = dispatch.split(&format!("Step::{step} =>")).nth(1).unwrap_or_default();
        let arm = arm.split("Step::").next().unwrap_or_default();
        let mut next = BTreeSet::new();
        for call in called(arm) {
            next.extend(entered(call, &all, &mut BTreeSet::new()));
        }
        for step in &next {
            assert!(known.iter().any(|(name, _)| name == step), "{step} is no step");
        }
        let names: Vec<&str> = next.iter().map(String::as_str).collect();
        let shown = if names.is_empty() { "-".to_owned() } else { names.join(", ") };
        writeln!(text, "| {step} | {meaning} | {shown} |").unwrap();
        names.iter().for_each(|next| writeln!(drawing, "    {step} --> {next}").unwrap());
    }
    format!("{text}\n{drawing}```\n")
}

/// `text` with the part of this name replaced.
fn with_part(text: &str, name: &str, part: &str) -> String {
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let before = text.split(&open).next().unwrap_or_default();
    let after = text.split(&close).nth(1).unwrap_or_else(|| panic!("docs/FAILOVER.md has no {close}"));
    assert!(text.contains(&open), "docs/FAILOVER.md has no {open}");
    format!("{before}{open}{part}{close}{after}")
}

#[test]
fn states_and_steps_in_failover_are_those_of_the_code() {
    let met = read("docs/FAILOVER.md");
    let mut right = met.clone();
    for (name, part) in [("path health", health()), ("steps of a switch", steps())] {
        right = with_part(&right, name, &part);
    }
    if std::env::var_os("SHUNT_DOCS_BLESS").is_some() {
        std::fs::write(root().join("docs/FAILOVER.md"), &right).unwrap();
        return;
    }
    let other = met.lines().zip(right.lines()).find(|(met, right)| met != right);
    assert!(met == right, "`cargo xtask docs --bless` rewrites it; the first line that differs: {other:?}");
}

#[test]
fn every_step_but_the_last_goes_on_and_each_is_reached() {
    let text = steps();
    for (step, _) in variants(&read("layout/src/state/channel.rs"), "Step") {
        let row = text.lines().find(|line| line.starts_with(&format!("| {step} |"))).unwrap();
        assert_eq!(row.ends_with("| - |"), step == "Dead", "{row}");
        let reached = text.lines().any(|line| line.ends_with(&format!("--> {step}")));
        assert!(reached, "nothing leads to {step}");
    }
}

/// Methods of the trait, by their names.
fn methods() -> Vec<String> {
    let source = read("device/src/platform/mod.rs");
    let lines = block(&source, "pub trait Platform");
    let name = |line: &str| words_after(&format!(" {}", line.trim()), " fn ").next().map(str::to_owned);
    lines.into_iter().filter(|line| !line.trim_start().starts_with("//")).filter_map(name).collect()
}

#[test]
fn every_access_of_the_platform_is_listed_with_what_it_pairs_with_or_as_unordered() {
    let ordering = read("docs/ORDERING.md");
    let methods = methods();
    assert!(methods.len() > 20, "{methods:?}");
    let listed = |name: &String| {
        let mark = format!("`{name}`");
        let row =
            |line: &str| line.strip_prefix('|').is_some_and(|l| l.split('|').next().unwrap().contains(&mark));
        ordering.lines().any(row)
    };
    let missing: Vec<_> = methods.iter().filter(|name| !listed(name)).collect();
    assert!(missing.is_empty(), "docs/ORDERING.md has no row for {missing:?}");
}
