//! A directory per process that goes with it.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What keeps the tree from being made.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path:?}: {cause}")]
pub struct TreeError {
    /// What was tried.
    pub what: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What the system said.
    pub cause: io::Error,
}

impl TreeError {
    pub(super) fn new(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self { what, path, cause }
    }
}

/// Names of trees: this and the process's number.
pub(super) const PREFIX: &str = "sysfs-";
/// Names while a tree is not locked yet.
const FRESH: &str = "fresh-";
/// A tree that is not locked after so long never will be.
const FRESH_FOR: Duration = Duration::from_secs(60);
/// Names tried for one process: another machine's process may have the same number in a shared directory.
const TRIES: u32 = 16;

/// A tree of files. The one that holds the lock on its directory is alive; it is removed when this is dropped.
pub struct Tree {
    root: PathBuf,
    /// What files that change said when they were written last.
    pub(super) written: HashMap<String, String>,
    /// The directory, locked.
    _lock: File,
    /// Who made it: a child that was forked has only the picture.
    process: u32,
}

impl Tree {
    /// Makes an empty tree in the directory of a fabric, and removes those of processes that are gone.
    pub fn new(fabric: &Path) -> Result<Self, TreeError> {
        remove_stale(fabric);
        let process = std::process::id();
        for n in 0..TRIES {
            let suffix = if n == 0 { format!("{process}") } else { format!("{process}-{n}") };
            let fresh = fabric.join(format!("{FRESH}{suffix}"));
            match DirBuilder::new().mode(0o700).create(&fresh) {
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(TreeError::new("cannot make", &fresh))?,
            }
            let lock = File::open(&fresh).map_err(TreeError::new("cannot open", &fresh))?;
            lock.lock_shared().map_err(TreeError::new("cannot lock", &fresh))?;
            // Only now has it a name that others look at: one that is not locked is stale.
            let root = fabric.join(format!("{PREFIX}{suffix}"));
            if fs::rename(&fresh, &root).is_ok() {
                return Ok(Self { root, written: HashMap::new(), _lock: lock, process });
            }
            fs::remove_dir(&fresh).map_err(TreeError::new("cannot remove", &fresh))?;
        }
        let path = fabric.join(format!("{PREFIX}{process}"));
        Err(TreeError::new("cannot find a free name like", &path)(io::ErrorKind::AlreadyExists.into()))
    }

    /// Its first directory, which stands for `/`.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // What stays is removed by the next process that looks.
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Removes trees that nobody holds. What cannot be removed is left: it harms nobody.
fn remove_stale(fabric: &Path) {
    let Ok(entries) = fs::read_dir(fabric) else { return };
    for entry in entries.flatten() {
        let (name, age) = (entry.file_name(), entry.metadata().and_then(|found| found.modified()));
        let old = age.is_ok_and(|since| since.elapsed().is_ok_and(|age| age > FRESH_FOR));
        let name = name.to_string_lossy();
        if !(name.starts_with(PREFIX) || name.starts_with(FRESH) && old) {
            continue;
        }
        let Ok(directory) = File::open(entry.path()) else { continue };
        match directory.try_lock() {
            Ok(()) => {
                let _ = fs::remove_dir_all(entry.path());
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}
