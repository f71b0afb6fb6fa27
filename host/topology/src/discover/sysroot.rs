//! Where files are read from: the machine, a copy of another's files, or a listing. All reads are bounded.

use super::snapshot::{Entry, Listing, ListingError, Stat};
use super::text::natural_order;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Most bytes of one file that are looked at.
const FILE_MAX: u64 = 64 * 1024;
/// Most names of one directory that are looked at.
const NAMES_MAX: usize = 4096;
/// Longest listing.
const LISTING_MAX: u64 = 16 * 1024 * 1024;
/// Most oddities that are kept.
const ODD_MAX: usize = 256;

/// Something that was missing or not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    /// File.
    pub path: String,
    /// What was met.
    pub met: String,
}

/// A root that cannot be used.
#[derive(Debug, Error)]
pub enum RootError {
    /// Neither a folder nor a file.
    #[error("{path}: {error}; expected a folder that holds sys/ and proc/, or a file that --save wrote")]
    Io {
        /// What was asked for.
        path: String,
        /// The system's words.
        error: io::Error,
    },
    /// A file that is no listing.
    #[error("{path}: {error}")]
    Listing {
        /// File.
        path: String,
        /// What is wrong with it.
        error: ListingError,
    },
    /// A file that is too long.
    #[error("{path}: expected at most {LISTING_MAX} bytes, got {bytes}")]
    TooLong {
        /// File.
        path: String,
        /// Its length.
        bytes: u64,
    },
}

enum Body {
    Folder(PathBuf),
    Listing(Listing),
}

/// A root that files are read from. Paths are relative to it, without a slash in front.
pub struct SysRoot {
    body: Body,
    odd: RefCell<Vec<Odd>>,
    /// What was met so far.
    seen: RefCell<Listing>,
}

impl SysRoot {
    /// The machine this runs on.
    pub fn machine() -> Self {
        Self::new(Body::Folder("/".into()))
    }

    fn new(body: Body) -> Self {
        Self { body, odd: RefCell::default(), seen: RefCell::default() }
    }

    /// A folder, or a listing in a file.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let name = || path.display().to_string();
        let io = |error| RootError::Io { path: name(), error };
        let path_real = fs::canonicalize(path).map_err(io)?;
        let meta = fs::metadata(&path_real).map_err(io)?;
        if meta.is_dir() {
            return Ok(Self::new(Body::Folder(path_real)));
        }
        if !meta.is_file() {
            return Err(io(io::Error::other("neither a folder nor a plain file")));
        }
        if meta.len() > LISTING_MAX {
            return Err(RootError::TooLong { path: name(), bytes: meta.len() });
        }
        let text = fs::read_to_string(&path_real).map_err(io)?;
        Self::from_listing(&text).map_err(|error| RootError::Listing { path: name(), error })
    }

    /// A tree written as text, as [`SysRoot::listing`] gives it.
    pub fn from_listing(text: &str) -> Result<Self, ListingError> {
        Ok(Self::new(Body::Listing(Listing::parse(text)?)))
    }

    /// Whether this is the running machine itself.
    pub fn is_machine(&self) -> bool {
        matches!(&self.body, Body::Folder(path) if path == Path::new("/"))
    }

    /// Everything that was met so far, as text that [`SysRoot::from_listing`] takes.
    pub fn listing(&self) -> String {
        self.seen.borrow().write()
    }

    /// Notes something that is not as expected.
    pub fn odd(&self, path: &str, met: impl Into<String>) {
        let mut odd = self.odd.borrow_mut();
        let new = Odd { path: path.to_owned(), met: met.into() };
        if odd.len() < ODD_MAX && !odd.contains(&new) {
            odd.push(new);
        }
    }

    /// The oddities so far; forgets them.
    pub fn take_odd(&self) -> Vec<Odd> {
        self.odd.take()
    }

    /// A file's text without blanks at its ends; `None` if it is not there or cannot be read.
    ///
    /// Copies made by `tar` are padded with zero bytes: sysfs says 4096 for every file. They count as blanks.
    pub fn read(&self, path: &str) -> Option<String> {
        let bytes = match self.entry(path)? {
            Entry::Text(text) => text.into_bytes(),
            Entry::Bytes(bytes) => bytes,
            _ => return None,
        };
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
        self.seen.borrow_mut().note(path, Entry::Text(text.clone()));
        Some(text)
    }

    /// A file's bytes.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let bytes = match self.entry(path)? {
            Entry::Text(text) => text.into_bytes(),
            Entry::Bytes(bytes) => bytes,
            _ => return None,
        };
        self.seen.borrow_mut().note(path, Entry::Bytes(bytes.clone()));
        Some(bytes)
    }

    fn entry(&self, path: &str) -> Option<Entry> {
        let entry = match &self.body {
            Body::Listing(listing) => listing.get(path)?.clone(),
            Body::Folder(root) => match read_bounded(root, path) {
                Ok(bytes) => Entry::Bytes(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
                Err(error) => Entry::Denied(error.to_string()),
            },
        };
        if let Entry::Denied(why) = &entry {
            self.odd(path, why);
            self.seen.borrow_mut().note(path, entry.clone());
        }
        Some(entry)
    }

    /// Names in a directory, `mlx5_2` before `mlx5_10`; empty if it is not there.
    pub fn list(&self, path: &str) -> Vec<String> {
        let mut names = match &self.body {
            Body::Listing(listing) if !listing.exists(path) => return Vec::new(),
            Body::Listing(listing) => listing.below(path),
            Body::Folder(root) => match names_bounded(root, path) {
                Ok(names) => names,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
                Err(error) => {
                    self.odd(path, error.to_string());
                    return Vec::new();
                }
            },
        };
        if names.len() > NAMES_MAX {
            self.odd(path, format!("{} names, looked at {NAMES_MAX}", names.len()));
            names.truncate(NAMES_MAX);
        }
        names.sort_by(|a, b| natural_order(a, b));
        let mut seen = self.seen.borrow_mut();
        seen.note(path, Entry::Here);
        for name in &names {
            seen.note(&format!("{path}/{name}"), Entry::Here);
        }
        names
    }

    /// Where a path leads when all links are followed; `None` if it leads nowhere or out of the root.
    pub fn real(&self, path: &str) -> Option<String> {
        let real = match &self.body {
            Body::Listing(listing) => {
                let real = listing.resolve(path);
                (real != path || listing.exists(path)).then_some(real)?
            }
            Body::Folder(root) => {
                let real = fs::canonicalize(root.join(path)).ok()?;
                let Ok(inside) = real.strip_prefix(root) else {
                    self.odd(path, format!("leads out of the root, to {}", real.display()));
                    return None;
                };
                inside.to_string_lossy().into_owned()
            }
        };
        let entry = if real == path { Entry::Here } else { Entry::Link(real.clone()) };
        self.seen.borrow_mut().note(path, entry);
        Some(real)
    }

    /// Whether something is there.
    pub fn exists(&self, path: &str) -> bool {
        let here = match &self.body {
            Body::Listing(listing) => listing.exists(path),
            Body::Folder(root) => root.join(path).exists(),
        };
        if here {
            self.seen.borrow_mut().note(path, Entry::Here);
        }
        here
    }

    /// Mode and owner.
    pub fn stat(&self, path: &str) -> Option<Stat> {
        let stat = match &self.body {
            Body::Listing(listing) => match listing.get(path)? {
                Entry::Rights(stat) => *stat,
                _ => return None,
            },
            Body::Folder(root) => {
                let meta = fs::metadata(root.join(path)).ok()?;
                Stat { mode: meta.mode() & 0o7777, user: meta.uid(), group: meta.gid() }
            }
        };
        self.seen.borrow_mut().note(path, Entry::Rights(stat));
        Some(stat)
    }
}

/// Reads a plain file inside the root: a copy from elsewhere may hold links that lead out, or pipes that never end.
fn read_bounded(root: &Path, path: &str) -> io::Result<Vec<u8>> {
    let real = fs::canonicalize(root.join(path))?;
    if !real.starts_with(root) {
        return Err(io::Error::other(format!("leads out of the root, to {}", real.display())));
    }
    if !fs::metadata(&real)?.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    let mut bytes = Vec::new();
    File::open(&real)?.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn names_bounded(root: &Path, path: &str) -> io::Result<Vec<String>> {
    let real = fs::canonicalize(root.join(path))?;
    if !real.starts_with(root) {
        return Err(io::Error::other(format!("leads out of the root, to {}", real.display())));
    }
    let names = fs::read_dir(real)?.take(NAMES_MAX + 1);
    names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
