//! Links in Markdown: each relative one must lead to a file of the tree, and each anchor to a heading of that file.

use crate::tidy_source::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The book's list of pages.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Findings in all Markdown of `texts` (path from the root, text).
pub fn check(root: &Path, texts: &BTreeMap<String, String>) -> Vec<Finding> {
    let pages = || texts.iter().filter(|(path, _)| path.ends_with(".md"));
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages().map(|(path, text)| (path.as_str(), anchors(text))).collect();
    let exists = |path: &str| texts.contains_key(path) || root.join(path).exists();
    let mut findings: Vec<Finding> =
        pages().flat_map(|(path, text)| of_page(path, text, &anchors, &exists)).collect();
    if let Some(summary) = texts.get(SUMMARY) {
        let listed: BTreeSet<String> = lines(summary)
            .flat_map(|(_, line)| {
                targets(line).filter_map(|target| joined(SUMMARY, target)).collect::<Vec<_>>()
            })
            .collect();
        let missing = pages().map(|(path, _)| path).filter(|path| {
            path.starts_with("docs/") && path.as_str() != SUMMARY && !listed.contains(path.as_str())
        });
        findings.extend(missing.map(|path| Finding {
            path: SUMMARY.to_owned(),
            line: 0,
            text: format!("{path} is not in the book"),
        }));
    }
    findings
}

fn of_page(
    path: &str,
    text: &str,
    anchors: &BTreeMap<&str, BTreeSet<String>>,
    exists: &dyn Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, prose) in prose(text) {
        for target in targets(&prose) {
            let (file, anchor) = target.split_once('#').map_or((target, None), |(file, at)| (file, Some(at)));
            let full = if file.is_empty() { Some(path.to_owned()) } else { joined(path, file) };
            let wrong = match (&full, anchor) {
                (None, _) => Some("leads out of the tree".to_owned()),
                (Some(full), _) if !exists(full) => Some(format!("no such file: {full}")),
                (Some(full), Some(anchor)) => match anchors.get(full.as_str()) {
                    Some(known) if !known.contains(anchor) => Some(format!("no heading #{anchor} in {full}")),
                    _ => None,
                },
                _ => None,
            };
            let finding =
                |why| Finding { path: path.to_owned(), line, text: format!("link {target}: {why}") };
            findings.extend(wrong.map(finding));
        }
    }
    findings
}

/// Lines outside of fenced blocks, with their numbers from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((i + 1, line))
    })
}

/// The same with what is between backticks taken out. Used for words, too.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    lines(text).map(|(number, line)| (number, line.split('`').step_by(2).collect::<Vec<_>>().join("`")))
}

/// Targets of `[..](target)` that are relative.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let ends = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    ends.map(|target| target.split(' ').next().unwrap_or(target))
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:") && !target.is_empty())
}

/// Where `target` of a page leads, from the root; `None` if above it.
fn joined(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Anchors of a page's headings, as forges and mdBook make them: small letters, blanks as hyphens, no punctuation.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in lines(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: char| c.is_alphanumeric() || "-_ ".contains(c);
        let slug: String = title.trim().to_lowercase().chars().filter(|c| kept(*c)).collect();
        let slug = slug.replace(' ', "-");
        let again = (1..).map(|n| format!("{slug}-{n}"));
        let free = std::iter::once(slug.clone()).chain(again).find(|slug| !found.contains(slug));
        found.extend(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let texts = pages.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        check(Path::new("/nowhere"), &texts).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_leads_nowhere_is_found() {
        let pages = [
            (
                "README.md",
                "[a](docs/a.md) [b](docs/gone.md)\n[c](docs/a.md#two-words) [d](docs/a.md#three)\n[e](../x)",
            ),
            ("docs/a.md", "# Two words\n[up](../README.md) [here](#two-words) [not](#here)"),
        ];
        let expected = [
            "README.md:1: link docs/gone.md: no such file: docs/gone.md",
            "README.md:2: link docs/a.md#three: no heading #three in docs/a.md",
            "README.md:3: link ../x: leads out of the tree",
            "docs/a.md:2: link #here: no heading #here in docs/a.md",
        ];
        assert_eq!(found(&pages), expected);
    }

    #[test]
    fn pages_that_the_book_lacks() {
        let pages = [(SUMMARY, "- [a](a.md)"), ("docs/a.md", ""), ("docs/b/c.md", ""), ("README.md", "")];
        assert_eq!(found(&pages), ["docs/SUMMARY.md:0: docs/b/c.md is not in the book"]);
    }

    #[test]
    fn headings_code_and_other_hosts() {
        let page = "# A `b`, c's!\n## Same\n## Same\n```\n# not a heading\n[x](gone.md)\n```\n`[x](gone.md)`\n\
                    [1](#a-b-cs) [2](#same-1) [3](https://example.org/#y) [4](#not-a-heading)\n";
        assert_eq!(
            found(&[("a.md", page)]),
            ["a.md:9: link #not-a-heading: no heading #not-a-heading in a.md"]
        );
    }
}
