//! Where `shunt topology` and `shunt doctor` read from, and files they write.

use clap::Args;
use shunt_host::discover::{RootError, SysRoot};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The root options that both share.
#[derive(Args)]
pub struct Root {
    /// Look at a copy of another machine's sys/ and proc/, or at a file that --save wrote, and not at this machine.
    #[arg(long, value_name = "DIR|FILE")]
    root: Option<PathBuf>,
    /// Write everything that was read into FILE, as text that --root takes.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// A file that cannot be written.
#[derive(Debug, Error)]
#[error("{path}: {error}; name a file in a folder that exists and may be written")]
pub struct CannotWrite {
    path: String,
    error: std::io::Error,
}

/// A root that cannot be used.
#[derive(Debug, Error)]
pub enum BadRoot {
    /// It cannot be opened or read.
    #[error(transparent)]
    Open(#[from] RootError),
    /// Nothing of a machine is in it.
    #[error("{}: expected sys/ and proc/ in it, or a file that --save wrote", .0.display())]
    Neither(PathBuf),
}

/// Two options name one file.
#[derive(Debug, Error)]
#[error("{option} and --save both name {}; give each its own file", path.display())]
pub struct SameFile {
    option: &'static str,
    path: PathBuf,
}

impl Root {
    /// Opens it.
    pub fn open(&self) -> Result<SysRoot, BadRoot> {
        let root = self.root.as_deref().map_or_else(|| Ok(SysRoot::machine()), SysRoot::open)?;
        // Both are asked for, so that what is saved of a machine without devices reads as one.
        let here = ["sys", "proc"].map(|folder| root.exists(folder));
        match &self.root {
            Some(path) if here == [false, false] => Err(BadRoot::Neither(path.clone())),
            _ => Ok(root),
        }
    }

    /// Refuses a file that --save names too.
    pub fn check_other(&self, option: &'static str, path: &Path) -> Result<(), SameFile> {
        match &self.save {
            Some(save) if same_file(save, path) => Err(SameFile { option, path: path.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Writes what was read, if asked for.
    pub fn keep(&self, root: &SysRoot) -> Result<(), CannotWrite> {
        self.save.as_deref().map_or(Ok(()), |path| save(path, &root.listing()))
    }
}

/// Whether two names lead to one plain file, there or still to be made.
fn same_file(one: &Path, other: &Path) -> bool {
    if let (Ok(one), Ok(other)) = (one.metadata(), other.metadata()) {
        return one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some((folder.unwrap_or(Path::new(".")).canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    place(one).is_some() && place(one) == place(other)
}

/// Writes a file.
pub fn save(path: &Path, text: &str) -> Result<(), CannotWrite> {
    std::fs::write(path, text).map_err(|error| CannotWrite { path: path.display().to_string(), error })
}
