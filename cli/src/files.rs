//! Where `shunt topology` and `shunt doctor` read from, and files they write.

use clap::Args;
use shunt_host::discover::{RootError, SysRoot};
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
#[error("{path}: {error}; a file in a folder that exists and may be written is right")]
pub struct CannotWrite {
    path: String,
    error: std::io::Error,
}

impl Root {
    /// Opens it.
    pub fn open(&self) -> Result<SysRoot, RootError> {
        self.root.as_deref().map_or_else(|| Ok(SysRoot::machine()), SysRoot::open)
    }

    /// Writes what was read, if asked for.
    pub fn keep(&self, root: &SysRoot) -> Result<(), CannotWrite> {
        self.save.as_deref().map_or(Ok(()), |path| save(path, &root.listing()))
    }
}

/// Writes a file.
pub fn save(path: &Path, text: &str) -> Result<(), CannotWrite> {
    std::fs::write(path, text).map_err(|error| CannotWrite { path: path.display().to_string(), error })
}
