//! House rules of one Rust file. Pure: a path and its text in, findings out.
//!
//! The text is first split into code and comments by a small lexer, so that a rule about code is not set off
//! by a string or a comment, and a rule about comments not by code.

use std::fmt;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File, relative to the root.
    pub path: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong and what would be right.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

pub const LINE_MAX: usize = 120;
pub const FILE_MAX: usize = 500;
pub const FUNCTION_MAX: usize = 70;

/// The one file that may hold assembly, with the folder of its parts.
const ASM_HOME: &str = "device/src/platform/nvptx.rs";
const ASM_PARTS: &str = "device/src/platform/nvptx/";
/// Barriers between a processor and devices.
const BARRIERS: &str = "device/src/platform/dma.rs";
/// What kernels compute, memory left alone.
const ASM_MATH: &str = "kernels/src/nvptx_math.rs";
/// The one file of device code that may use `core::sync::atomic`: elsewhere it means something else on a GPU.
const ATOMIC_HOME: &str = "device/src/platform/host.rs";

/// Code that runs in people's programs: there a reader of stderr that is gone ends nothing.
const IN_PROGRAMS: &[&str] = &[
    "bench/",
    "cli/",
    "deep-ep-bridge/",
    "host/",
    "nvshmem-compat/",
    "python/",
    "soft-nic/",
    "soft-rdma/",
    "transfer-engine/",
    "verbs/",
];

/// What must not be left in code.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"]; // the rule's own words

/// What a generator wrote: held against its source by `cargo xtask bindings`, not judged here.
const GENERATED: &[&str] = &["mlx5-sys/src/generated/", "libfabric-sys/src/generated/"];

/// True for a file that a generator wrote.
pub fn is_generated(path: &str) -> bool {
    GENERATED.iter().any(|folder| path.starts_with(folder))
}

/// All rules on one file.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if is_generated(path) {
        return Vec::new();
    }
    let source = Source::new(path, text);
    let mut out = Vec::new();
    source.lengths(&mut out);
    source.functions(&mut out);
    source.unfinished(&mut out);
    source.stderr(&mut out);
    source.assembly(&mut out);
    source.atomics(&mut out);
    source.unsafe_blocks(&mut out);
    out
}

/// A file as the rules see it: the same lines three times.
struct Source<'t> {
    path: &'t str,
    lines: Vec<&'t str>,
    /// Code alone; strings, characters and comments are blanks.
    code: Vec<String>,
    /// Comments alone.
    comments: Vec<String>,
}

impl<'t> Source<'t> {
    fn new(path: &'t str, text: &'t str) -> Self {
        let (code, comments) = split(text);
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        Self { path, lines: text.lines().collect(), code: lines(code), comments: lines(comments) }
    }

    fn find(&self, out: &mut Vec<Finding>, line: usize, text: impl Into<String>) {
        out.push(Finding { path: self.path.to_owned(), line, text: text.into() });
    }

    fn is_test_file(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/") || self.path.ends_with("_tests.rs")
    }

    fn lengths(&self, out: &mut Vec<Finding>) {
        for (i, line) in self.lines.iter().enumerate() {
            let length = line.chars().count();
            if length > LINE_MAX && !line.contains("://") {
                self.find(out, i + 1, format!("{length} columns, at most {LINE_MAX}"));
            }
        }
        let exempt = self.is_test_file() || self.path.starts_with("layout/src/mlx5/prm/");
        if self.lines.len() > FILE_MAX && !exempt {
            self.find(out, 0, format!("{} lines, at most {FILE_MAX}", self.lines.len()));
        }
    }

    /// Lengths of functions, from the line of `fn` to that of the closing brace.
    fn functions(&self, out: &mut Vec<Finding>) {
        let code = self.code.join("\n");
        for (at, name) in function_names(&code) {
            let Some(end) = body_end(&code[at..]) else { continue };
            let first = line_of(&code, at);
            let length = line_of(&code, at + end) - first + 1;
            if length > FUNCTION_MAX {
                self.find(out, first, format!("{name} has {length} lines, at most {FUNCTION_MAX}"));
            }
        }
    }

    fn unfinished(&self, out: &mut Vec<Finding>) {
        for (i, code) in self.code.iter().enumerate() {
            for word in UNFINISHED.iter().filter(|word| holds_word(code, word)) {
                self.find(out, i + 1, format!("`{word}` left in the code"));
            }
        }
    }

    /// Up to the file's tests, and not in programs that are tests themselves.
    fn stderr(&self, out: &mut Vec<Finding>) {
        let apart =
            ["/tests/", "/examples/", "/benches/", "/bin/", "/gpu-check/", "/build.rs", "verbs/count/"];
        let is_shipped = IN_PROGRAMS.iter().any(|start| self.path.starts_with(start));
        if !is_shipped
            || self.path.ends_with("_tests.rs")
            || apart.iter().any(|part| self.path.contains(part))
        {
            return;
        }
        let shipped = self.code.iter().take_while(|code| !code.contains("#[cfg(test)]"));
        for (i, _) in shipped.enumerate().filter(|(_, code)| holds_word(code, "eprintln!")) {
            self.find(out, i + 1, "`eprintln!` panics on a closed stderr: use `complain!`".to_owned());
        }
    }

    fn assembly(&self, out: &mut Vec<Finding>) {
        if [ASM_HOME, ASM_MATH, BARRIERS].contains(&self.path) || self.path.starts_with(ASM_PARTS) {
            return;
        }
        for (i, code) in self.code.iter().enumerate() {
            if ["asm!", "global_asm!", "naked_asm!"].iter().any(|word| holds_word(code, word)) {
                self.find(
                    out,
                    i + 1,
                    format!("assembly lives in {ASM_HOME}, {ASM_MATH} and {BARRIERS} alone"),
                );
            }
        }
    }

    fn atomics(&self, out: &mut Vec<Finding>) {
        if !self.path.starts_with("device/src/") || [ATOMIC_HOME, BARRIERS].contains(&self.path) {
            return;
        }
        for (i, code) in self.code.iter().enumerate() {
            if code.contains("sync::atomic") {
                self.find(
                    out,
                    i + 1,
                    format!("atomics of device code live in {ATOMIC_HOME}: use `Platform`"),
                );
            }
        }
    }

    /// Each `unsafe` block or implementation has a comment with `SAFETY:` in front of its statement, on its
    /// line, or one for "all blocks" in front of the item it lies in.
    fn unsafe_blocks(&self, out: &mut Vec<Finding>) {
        for (i, code) in self.code.iter().enumerate() {
            let mut rest = code.as_str();
            while let Some(at) = find_word(rest, "unsafe") {
                rest = &rest[at + "unsafe".len()..];
                let next = self.next_word(i, rest);
                if (next.starts_with('{') || next.starts_with("impl")) && !self.is_justified(i) {
                    self.find(
                        out,
                        i + 1,
                        "an unsafe block needs a `// SAFETY:` comment: which invariant, and what keeps it",
                    );
                    break;
                }
            }
        }
    }

    /// What follows on this line or, if nothing does, on the next that holds code.
    fn next_word<'s>(&'s self, line: usize, rest: &'s str) -> &'s str {
        let here = rest.trim_start();
        if !here.is_empty() {
            return here;
        }
        self.code[line + 1..].iter().map(|code| code.trim_start()).find(|code| !code.is_empty()).unwrap_or("")
    }

    fn is_justified(&self, line: usize) -> bool {
        // Up to the start of the statement: past its own lines, attributes and comments.
        let mut at = line;
        loop {
            if self.comments[at].contains("SAFETY") {
                return true;
            }
            let Some(above) = at.checked_sub(1) else { break };
            let code = self.code[above].trim_end();
            let statement_ends =
                code.ends_with([';', '}']) || (code.ends_with('{') && !code.contains("unsafe"));
            if statement_ends && !self.comments[above].contains("SAFETY") {
                break;
            }
            at = above;
        }
        // The item this lies in starts at the last line without indentation.
        let is_item = |code: &&String| code.starts_with(|c: char| c.is_alphabetic());
        let item = self.code[..=line].iter().rposition(|code| is_item(&code)).unwrap_or(0);
        let head = self.comments[..item].iter().rev().zip(self.code[..item].iter().rev());
        head.take_while(|(comment, code)| !comment.trim().is_empty() || code.trim_start().starts_with('#'))
            .any(|(comment, _)| comment.contains("SAFETY (all blocks"))
    }
}

/// Lines of a file outside of items under `#[cfg(test)]`.
pub fn lines_without_tests(text: &str) -> usize {
    const TEST: &str = "#[cfg(test)]";
    let (mut lines, mut from) = (text.lines().count(), 0);
    if !text.contains(TEST) {
        return lines;
    }
    let (code, _) = split(text);
    while let Some(at) = code[from..].find(TEST) {
        let (first, rest) = (from + at, &code[from + at + TEST.len()..]);
        from = first + TEST.len() + item_end(rest).map_or(rest.len(), |end| end + 1);
        lines -= code[first..from].matches('\n').count() + 1;
    }
    lines
}

/// Splits text into code and comments of the same shape: what is in one is blank in the other; strings are
/// blank in both, quotes kept in code.
fn split(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut at = 0;
    while at < chars.len() {
        let (kind, end) = token(&chars, at);
        for &c in &chars[at..end] {
            let blank = if c == '\n' { '\n' } else { ' ' };
            code.push(if kind == Token::Code { c } else { blank });
            comments.push(if kind == Token::Comment { c } else { blank });
        }
        at = end;
    }
    (code, comments)
}

/// Strings and characters alone, line by line; code and comments are blanks.
pub fn literals(text: &str) -> String {
    let (code, comments) = split(text);
    let of = |((c, code), comment): ((char, char), char)| if code == ' ' && comment == ' ' { c } else { ' ' };
    let chars = text.chars().zip(code.chars()).zip(comments.chars());
    chars.map(|chars| if chars.0.0 == '\n' { '\n' } else { of(chars) }).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Code,
    Comment,
    Literal,
}

/// The kind and the end of what starts at `at`.
fn token(chars: &[char], at: usize) -> (Token, usize) {
    let starts = |text: &str| chars[at..].iter().copied().take(text.len()).eq(text.chars());
    let after_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if starts("//") {
        let end = chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |n| at + n);
        return (Token::Comment, end);
    }
    if starts("/*") {
        return (Token::Comment, block_comment_end(chars, at));
    }
    if !after_word
        && (starts("r\"") || starts("r#") || starts("br\"") || starts("br#"))
        && let Some(end) = raw_string_end(chars, at)
    {
        return (Token::Literal, end);
    }
    if chars[at] == '"' {
        return (Token::Literal, quoted_end(chars, at, '"'));
    }
    if chars[at] == '\'' && is_character(chars, at) {
        return (Token::Literal, quoted_end(chars, at, '\''));
    }
    (Token::Code, at + 1)
}

/// A quote that opens a character and not a lifetime: `'x'` or `'\…'`.
fn is_character(chars: &[char], at: usize) -> bool {
    chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'')
}

fn quoted_end(chars: &[char], at: usize, quote: char) -> usize {
    let mut i = at + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0usize, at);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => {
                (depth, i) = (depth - 1, i + 2);
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

/// End of `r"…"` or `r#"…"#`; `None` for a raw identifier.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let mut i = at + chars[at..].iter().take_while(|c| **c == 'b' || **c == 'r').count();
    let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
    i += hashes;
    if chars.get(i) != Some(&'"') {
        return None;
    }
    let closes = |from: usize| chars[from..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
    let close = (i + 1..chars.len()).find(|&n| chars[n] == '"' && closes(n + 1))?;
    Some((close + 1 + hashes).min(chars.len()))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Position of `word` where no letter stands before it.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find(word) {
        let at = from + at;
        let before = text[..at].chars().next_back().is_some_and(is_word);
        let after = text[at + word.len()..].chars().next().is_some_and(is_word);
        let word_goes_on = word.chars().next_back().is_some_and(is_word) && after;
        if !before && !word_goes_on {
            return Some(at);
        }
        from = at + word.len();
    }
    None
}

fn holds_word(text: &str, word: &str) -> bool {
    find_word(text, word).is_some()
}

/// Position and name of each function.
fn function_names(code: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut from = 0;
    while let Some(at) = find_word(&code[from..], "fn") {
        let at = from + at;
        let name: String = code[at + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
        // Without a name it is the type `fn(..)`.
        if !name.is_empty() {
            out.push((at, name));
        }
        from = at + 2;
    }
    out
}

/// Length of the text from `fn` to the brace that closes its body; `None` for a declaration.
fn body_end(code: &str) -> Option<usize> {
    item_end(code).filter(|end| code[*end..].starts_with('}'))
}

/// Length of the text up to what ends an item: the brace that closes its body, or a semicolon.
fn item_end(code: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut brackets = 0usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return Some(at),
            '{' => depth += 1,
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
#[path = "tidy_source_tests.rs"]
mod tests;
