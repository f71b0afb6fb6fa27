//! Where the sockets of a fabric lie: a directory that nobody but this user gets into.

use super::UplinkError;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longest fabric name.
const NAME_MAX: usize = 32;
/// How long another process may hold the lock. Opening sockets takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// The runtime directory of this user: `$XDG_RUNTIME_DIR/shunt`, else `/tmp/shunt-UID`. The variable outlives its
/// directory where a session ended: one that is not there counts as not set.
pub fn runtime_directory() -> PathBuf {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match base.filter(|base| base.is_absolute() && base.is_dir()) {
        Some(base) => base.join("shunt"),
        None => PathBuf::from(format!("/tmp/shunt-{}", user())),
    }
}

/// The user whose rights this process has.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The directory of a fabric below a runtime directory, made if it is not there; for nobody but this user.
pub fn fabric_directory(runtime: &Path, name: &str) -> Result<PathBuf, UplinkError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(allowed) {
        return Err(UplinkError::Name(name.into()));
    }
    private(runtime)?;
    let directory = runtime.join(format!("fabric-{name}"));
    private(&directory)?;
    Ok(directory)
}

/// Removes what processes that were killed left of a fabric: for the one that made its name up, and knows that nobody
/// uses it any more.
pub fn remove_fabric(name: &str) -> Result<(), UplinkError> {
    let runtime = runtime_directory();
    if !runtime.join(format!("fabric-{name}")).exists() {
        return Ok(());
    }
    let directory = fabric_directory(&runtime, name)?;
    fs::remove_dir_all(&directory).map_err(UplinkError::io("cannot remove", &directory))
}

/// The same for a fabric that may be in use: nothing is removed while a socket in it answers or somebody holds a
/// directory in it. True if it is gone.
pub fn remove_unused_fabric(name: &str) -> Result<bool, UplinkError> {
    remove_unused_in(&runtime_directory(), name)
}

/// The same, in a runtime directory of the caller's choice.
pub fn remove_unused_in(runtime: &Path, name: &str) -> Result<bool, UplinkError> {
    if !runtime.join(format!("fabric-{name}")).exists() {
        return Ok(true);
    }
    let directory = fabric_directory(runtime, name)?;
    let _lock = lock(&directory)?;
    let entries = fs::read_dir(&directory).map_err(UplinkError::io("cannot list", &directory))?;
    for entry in entries {
        let path = entry.map_err(UplinkError::io("cannot list", &directory))?.path();
        if is_held(&path) {
            return Ok(false);
        }
    }
    fs::remove_dir_all(&directory).map_err(UplinkError::io("cannot remove", &directory))?;
    Ok(true)
}

/// True unless it is certain that no live process has this socket or this directory.
fn is_held(path: &Path) -> bool {
    match path.extension() {
        Some(end) if end == "sock" => !is_stale(path),
        _ if path.is_dir() => {
            File::open(path).map_or(true, |held| matches!(held.try_lock(), Err(TryLockError::WouldBlock)))
        }
        _ => false,
    }
}

/// True for a socket that nobody has open, of whatever kind it was.
pub(super) fn is_stale(path: &Path) -> bool {
    let Ok(probe) = UnixDatagram::unbound() else { return false };
    probe.connect(path).is_err_and(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes the sockets of addresses whose processes are gone. What cannot be removed is left: the one that takes its
/// address says why.
pub(super) fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let stale: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_address(path) && is_stale(path))
        .collect();
    if stale.is_empty() {
        return; // Many processes that start at once do not wait for each other's looks.
    }
    let Ok(_lock) = lock(directory) else { return };
    for path in stale.iter().filter(|path| is_stale(path)) {
        let _ = fs::remove_file(path);
    }
}

/// True for the name of an address's socket. Others than those are made without the lock.
fn is_address(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".sock"));
    name.is_some_and(|name| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Makes a directory for this user alone, or makes sure that an existing one is.
fn private(path: &Path) -> Result<(), UplinkError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            return Err(UplinkError::io("cannot make the directory", path)(cause));
        }
        _ => {}
    }
    // Not through a link: in /tmp anybody may have put one here.
    let found = fs::symlink_metadata(path).map_err(UplinkError::io("cannot look at", path))?;
    if !found.is_dir() {
        return Err(UplinkError::NotADirectory(path.into()));
    }
    let (owner, me) = (found.uid(), user());
    if owner != me {
        return Err(UplinkError::Owner { path: path.into(), owner, me });
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(UplinkError::Permissions { path: path.into(), mode });
    }
    Ok(())
}

/// Held while stale sockets are told from live ones: two processes that take over one address must not each remove
/// what the other has just made.
pub(super) fn lock(directory: &Path) -> Result<File, UplinkError> {
    let path = directory.join("lock");
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(UplinkError::io("cannot open", &path))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(cause)) => return Err(UplinkError::io("cannot lock", path)(cause)),
            Err(TryLockError::WouldBlock) if start.elapsed() > PATIENCE => {
                return Err(UplinkError::Locked(path));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
        }
    }
}
