//! A tree of files as text: one line a file, readable and diffable. Fixtures are written so, and `--save` writes one.
//!
//! ```text
//! # a comment
//! sys/class/infiniband/mlx5_0/ports/1/state = 4: ACTIVE
//! sys/class/infiniband/mlx5_0/device => sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0
//! dev/infiniband/uverbs0 @ 0666:0:0
//! sys/bus/pci/devices/0000:15:01.0/config ~ 4096 100:0d000100 106:1d00
//! sys/module/mlx5_ib/
//! ```
//!
//! `=` is a file's text (`\n`, `\\`), `=>` where a link leads, `@` mode (octal), user and group of something that is
//! not read, `~` length and what is not zero of a binary file (both in hexadecimal, but the length), and a slash at the
//! end something that is there. What lies below a link is found below its target too.

use std::collections::BTreeMap;
use std::fmt::Write;
use thiserror::Error;

/// Mode and owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
}

/// What a path of a listing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Here,
    Text(String),
    Bytes(Vec<u8>),
    Link(String),
    Rights(Stat),
    /// There, but the operating system would not let it be read: its words.
    Denied(String),
}

/// A line of a listing that is not understood.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: expected {want}, got \"{met}\"")]
pub struct ListingError {
    /// Line, from 1.
    pub line: usize,
    /// What was met.
    pub met: String,
    /// What would be right.
    pub want: &'static str,
}

/// Longest binary file of a listing: PCIe's configuration space is 4096 bytes.
const BYTES_MAX: usize = 4096;
const KINDS: &str =
    "PATH = TEXT, PATH => PATH, PATH @ MODE:USER:GROUP, PATH ~ LENGTH AT:BYTES.., PATH ! REASON or PATH/";

/// A tree of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    entries: BTreeMap<String, Entry>,
}

impl Listing {
    pub fn parse(text: &str) -> Result<Self, ListingError> {
        let mut entries = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fail = |want| ListingError { line: at + 1, met: line.chars().take(80).collect(), want };
            let (path, entry) = parse_line(line).map_err(fail)?;
            entries.insert(path, entry);
        }
        Ok(Self { entries })
    }

    /// Notes what was met at a path. What says more replaces what says less.
    pub fn note(&mut self, path: &str, entry: Entry) {
        if entry != Entry::Here || !self.entries.contains_key(path) {
            self.entries.insert(path.to_owned(), entry);
        }
    }

    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path).or_else(|| self.entries.get(&self.resolve(path)))
    }

    /// The path with the links on its way followed: a bounded number, a listing may hold a circle.
    pub fn resolve(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for _ in 0..8 {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            let link = ends.rev().find_map(|end| match self.entries.get(&path[..end]) {
                Some(Entry::Link(target)) => Some(format!("{target}{}", &path[end..])),
                _ => None,
            });
            match link {
                Some(next) => path = next,
                None => break,
            }
        }
        path
    }

    /// Names directly below a path, as the tree has them.
    pub fn below(&self, path: &str) -> Vec<String> {
        let mut out = Vec::new();
        for path in [path.to_owned(), self.resolve(path)] {
            let prefix = format!("{path}/");
            let inside = self.entries.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
            for (key, _) in inside {
                let name = key[prefix.len()..].split('/').next().unwrap_or_default();
                if !name.is_empty() && out.last().is_none_or(|last| last != name) {
                    out.push(name.to_owned());
                }
            }
        }
        out.sort();
        out.dedup();
        out
    }

    pub fn exists(&self, path: &str) -> bool {
        self.get(path).is_some() || !self.below(path).is_empty()
    }

    /// The text that [`Listing::parse`] reads.
    pub fn write(&self) -> String {
        let mut out = String::new();
        for (path, entry) in &self.entries {
            // Nothing can fail: the target is a string.
            let _ = match entry {
                Entry::Here => writeln!(out, "{path}/"),
                Entry::Text(text) => writeln!(out, "{path} = {}", escape(text)),
                Entry::Link(target) => writeln!(out, "{path} => {target}"),
                Entry::Rights(Stat { mode, user, group }) => {
                    writeln!(out, "{path} @ {mode:04o}:{user}:{group}")
                }
                Entry::Denied(why) => writeln!(out, "{path} ! {}", escape(why)),
                Entry::Bytes(bytes) => writeln!(out, "{path} ~ {}{}", bytes.len(), sparse(bytes)),
            };
        }
        out
    }
}

fn parse_line(line: &str) -> Result<(String, Entry), &'static str> {
    let Some((path, rest)) = line.split_once(' ') else {
        return match line.strip_suffix('/') {
            Some(path) if !path.is_empty() => Ok((path.to_owned(), Entry::Here)),
            _ => Err(KINDS),
        };
    };
    let (kind, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let entry = match kind {
        "=" => Entry::Text(unescape(value).ok_or("text with \\n and \\\\ alone behind backslashes")?),
        "=>" => Entry::Link(value.trim().trim_matches('/').to_owned()),
        "!" => Entry::Denied(unescape(value).ok_or("text with \\n and \\\\ alone behind backslashes")?),
        "@" => Entry::Rights(rights(value).ok_or("@ MODE:USER:GROUP, mode in octal, such as 0660:0:0")?),
        "~" => Entry::Bytes(bytes(value).ok_or("~ LENGTH AT:BYTES.., such as ~ 4096 100:0d000100")?),
        _ => return Err(KINDS),
    };
    if path.starts_with('/') || path.is_empty() {
        return Err("a path without a slash in front");
    }
    Ok((path.trim_end_matches('/').to_owned(), entry))
}

fn rights(text: &str) -> Option<Stat> {
    let mut parts = text.trim().split(':');
    let (mode, user, group) = (parts.next()?, parts.next()?, parts.next()?);
    let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777)?;
    parts.next().is_none().then_some(Stat { mode, user: user.parse().ok()?, group: group.parse().ok()? })
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split_whitespace();
    let length = parts.next()?.parse().ok().filter(|length| *length <= BYTES_MAX)?;
    let mut out = vec![0; length];
    for part in parts {
        let (at, digits) = part.split_once(':')?;
        let at = usize::from_str_radix(at, 16).ok()?;
        if digits.len() % 2 != 0 || !digits.is_ascii() {
            return None;
        }
        for (i, pair) in digits.as_bytes().chunks_exact(2).enumerate() {
            let value = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
            *out.get_mut(at.checked_add(i)?)? = value;
        }
    }
    Some(out)
}

/// Runs of bytes that are not all zero, four by four.
fn sparse(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (at, word) in bytes.chunks(4).enumerate().filter(|(_, word)| word.iter().any(|byte| *byte != 0)) {
        let digits: String = word.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = write!(out, " {:x}:{digits}", at * 4);
    }
    out
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn links_are_followed_and_circles_end() {
        let text = "a/device => b/c\nb/c/numa = 1\nx => y\ny => x\nb/c/d/e = 2\n";
        let listing = Listing::parse(text).unwrap();
        assert_eq!(listing.get("a/device/numa"), Some(&Entry::Text("1".into())));
        assert_eq!(listing.below("a/device"), ["d", "numa"]);
        assert!(listing.exists("a/device/d") && !listing.exists("x/z"));
    }

    #[test]
    fn lines_that_are_not_understood_are_named() {
        for bad in
            ["a", "a ? b", "/a = 1", "a @ 9:0:0", "a ~ 5000", "a ~ 4 3:aabb", "a ~ 4 zz", "a = \\q", "/"]
        {
            let error = Listing::parse(&format!("# first\n{bad}\n")).unwrap_err();
            assert_eq!((error.line, error.met.as_str()), (2, bad));
        }
    }

    fn entry() -> impl Strategy<Value = Entry> {
        prop_oneof![
            Just(Entry::Here),
            "[\\x20-\\x7e\n\r\\\\é]{0,20}".prop_map(Entry::Text),
            "[a-z0-9:./]{0,10}[a-z]".prop_map(|target| Entry::Link(target.trim_matches('/').into())),
            (0u32..0o10000, 0u32..9, 0u32..9).prop_map(|(mode, user, group)| Entry::Rights(Stat {
                mode,
                user,
                group
            })),
            proptest::collection::vec(any::<u8>(), 0..64).prop_map(Entry::Bytes),
            "[a-z ]{0,9}".prop_map(Entry::Denied),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            entries in proptest::collection::btree_map("[a-z]{1,4}(/[a-z0-9:.]{1,4}){0,2}", entry(), 0..12),
        ) {
            let listing = Listing { entries };
            prop_assert_eq!(Listing::parse(&listing.write()), Ok(listing));
        }

        #[test]
        fn any_text_is_a_tree_or_an_error(text in "(\\PC{0,20}|[a-c/=~@> 0-9:]{0,20}\n){0,6}") {
            if let Ok(listing) = Listing::parse(&text) {
                for path in ["a", "a/b", "c"] {
                    let _ = (listing.get(path), listing.below(path), listing.resolve(path));
                }
            }
        }
    }
}
