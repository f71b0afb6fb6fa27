//! How long the sentences of the pages are. Tables, headings and code are no sentences; what stands between backticks
//! is one word.

use crate::links;
use crate::tidy_source::Finding;
use std::collections::BTreeMap;

/// Words that a sentence of all pages may have in the mean.
const MOST: f64 = 18.0;

/// A finding if the pages' sentences are too long in the mean; it names the pages with the longest ones.
pub fn check(texts: &BTreeMap<String, String>) -> Option<Finding> {
    let pages = texts.iter().filter(|(path, _)| is_page(path));
    let mut counts: Vec<(&str, usize, usize)> = pages
        .map(|(path, text)| {
            let lengths = lengths(text);
            (path.as_str(), lengths.iter().sum(), lengths.len())
        })
        .collect();
    let words: usize = counts.iter().map(|(_, words, _)| words).sum();
    let sentences: usize = counts.iter().map(|(.., sentences)| sentences).sum();
    let mean = words as f64 / sentences.max(1) as f64;
    if mean <= MOST {
        return None;
    }
    // By the words that they have too many.
    counts.sort_by_key(|(_, words, sentences)| (MOST * *sentences as f64) as i64 - *words as i64);
    let worst: Vec<&str> = counts.iter().take(3).map(|(path, ..)| *path).collect();
    Some(Finding {
        path: worst[0].to_owned(),
        line: 1,
        text: format!(
            "sentences of all pages: expected at most {MOST} words in the mean, got {mean:.1}; shorten some of {}",
            worst.join(", ")
        ),
    })
}

/// Pages that people read; dated results say what was found on their day.
fn is_page(path: &str) -> bool {
    let root = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].contains(&path);
    root || path.starts_with("docs/") && path.ends_with(".md")
}

/// Words of each sentence.
fn lengths(text: &str) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut words = 0;
    let mut last = 0;
    for (number, line) in links::prose(text) {
        let line = line.trim();
        let is_item = line.starts_with("* ") || line.starts_with("- ") || is_numbered(line);
        let is_none = line.is_empty() || line.starts_with(['|', '#', '<', '>']);
        if is_item || is_none || number != last + 1 {
            end(&mut words, &mut lengths);
        }
        last = number;
        if is_none {
            continue;
        }
        for word in without_targets(line).split_whitespace() {
            let counts = word.contains(|c: char| c.is_alphanumeric() || c == '`');
            words += usize::from(counts && !(is_item && words == 0 && is_numbered(&format!("{word} "))));
            if word.trim_end_matches([')', '"', '*', '\'']).ends_with(['.', '!', '?']) {
                end(&mut words, &mut lengths);
            }
        }
    }
    end(&mut words, &mut lengths);
    lengths
}

fn end(words: &mut usize, lengths: &mut Vec<usize>) {
    if *words > 0 {
        lengths.push(std::mem::take(words));
    }
}

/// The line begins with the number of an item.
fn is_numbered(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

/// `[text](target)` is its text.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_counted_in_words() {
        let text = "# A title of five words\n\nOne two\nthree. Four `five six` [seven eight](a/b.md#c), nine!\n\n\
                    | a | table |\n\n```\ncode of no words.\n```\n1. An item\n2. Another\n* And a third. Its end";
        assert_eq!(lengths(text), [3, 5, 2, 1, 3, 2]);
    }

    #[test]
    fn long_sentences_are_refused_in_the_mean_of_all_pages() {
        let page = |words: usize| format!("{}.", vec!["word"; words].join(" "));
        let of = |pages: &[(&str, usize)]| {
            check(&pages.iter().map(|(path, words)| ((*path).to_owned(), page(*words))).collect())
        };
        assert!(of(&[("README.md", 26), ("docs/A.md", 10), ("bench/results/1.md", 90)]).is_none());
        let finding = of(&[("README.md", 10), ("docs/A.md", 27)]).unwrap();
        assert!(finding.path == "docs/A.md" && finding.text.contains("got 18.5"), "{finding}");
    }
}
