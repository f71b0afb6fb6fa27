//! Plain English: words that stop a stranger must not be in what people read, which is Markdown and messages.

use crate::links;
use crate::tidy_source::{self, Finding};

/// Words of our dialect, and what to write.
const DIALECT: &[(&str, &str)] = &[
    ("anew", "again"),
    ("as ever", "as before"),
    ("be had", "available"),
    ("be right", "expected X, got Y"),
    ("begun", "started"),
    ("for ever", "forever, or: without a limit"),
    ("graves", "a queue that destroys"),
    ("in vain", "without success"),
    ("is had", "is available"),
    ("is right", "expected X, got Y"),
    ("are right", "expected X, got Y"),
    ("met", "found, got, returned"),
    ("news", "events, messages"),
    ("nobody", "no PE, no caller, ..: name it"),
    ("of late", "recently"),
    ("owe", "has not answered yet"),
    ("owed", "has not answered yet"),
    ("owes", "has not answered yet"),
    ("right are", "expected X, got Y"),
    ("right is", "expected X, got Y"),
    ("somebody", "name it"),
    ("what of them", "which of them"),
    ("whoever", "the caller, the PE that, .."),
    ("whom", "name it"),
];

/// Places that may keep them: path, and why. To stay empty.
const ALLOWED: &[&str] = &[];

/// Dated results say what was found on their day; the lists here and the tests of these rules are the words themselves.
const SKIPPED: &[&str] =
    &["bench/results/", "xtask/src/words.rs", "mlx5-sys/src/generated/", "libfabric-sys/src/generated/"];

/// Findings in a file that people read.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if SKIPPED.iter().chain(ALLOWED).any(|skipped| path.starts_with(skipped)) {
        return Vec::new();
    }
    if path.ends_with(".md") {
        return links::prose(text).flat_map(|(line, text)| of_line(path, line, &text)).collect();
    }
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let help = text.contains("Parser") || text.contains("Subcommand") || text.contains("ValueEnum");
    let literals = without_captures(&tidy_source::literals(text));
    let messages = literals.lines().enumerate().flat_map(|(i, line)| of_line(path, i + 1, line));
    // A doc comment of clap's is what `--help` prints.
    let docs = text.lines().enumerate().filter(|(_, line)| help && line.trim_start().starts_with("///"));
    messages.chain(docs.flat_map(|(i, line)| of_line(path, i + 1, line))).collect()
}

/// Without `{name}`: that is code.
fn without_captures(text: &str) -> String {
    let mut parts = text.split('{');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find('}').filter(|end| !part[..*end].contains([' ', '"', '\n']));
        out.push('{');
        out.push_str(end.map_or(part, |end| &part[end..]));
    }
    out
}

fn of_line(path: &str, line: usize, text: &str) -> Vec<Finding> {
    let lower = text.to_lowercase();
    let edge = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || "-_'".contains(c));
    let stands = |word: &str| {
        lower.match_indices(word).any(|(at, _)| {
            edge(lower[..at].chars().next_back()) && edge(lower[at + word.len()..].chars().next())
        })
    };
    let said = DIALECT.iter().filter(|(word, _)| stands(word));
    said.map(|(word, instead)| Finding {
        path: path.to_owned(),
        line,
        text: format!("\"{word}\" is no plain English: {instead} (xtask/src/words.rs)"),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(path: &str, text: &str) -> Vec<usize> {
        check(path, text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn in_pages_but_not_in_code() {
        assert_eq!(words("a.md", "Nobody waits.\n`nobody` waits\n```\nnobody\n```\nmet, or method"), [1, 6]);
        assert_eq!(words("bench/results/2026-11-26.md", "nobody"), [0usize; 0]);
    }

    #[test]
    fn in_messages_and_help_but_not_in_comments() {
        let code = "// nobody\nfn met() { panic!(\"3 is right\") }\n/// Whom to ask.\nlet a = \"has met b\";\n\
                    f(\"{met:#x} {whom}\");";
        assert_eq!(words("a/src/b.rs", code), [2, 4]);
        assert_eq!(words("a/src/b.rs", &format!("{code}\n#[derive(Parser)]")), [2, 4, 3]);
    }
}
