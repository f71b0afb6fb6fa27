//! Where the program to run is: next to this one, then in PATH.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Not found, and where it is not.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotFound {
    /// Nothing of this name is there.
    #[error("{name:?}: expected a program, got {}", nothing(name, looked))]
    Nowhere {
        /// As it was given.
        name: OsString,
        /// Folders or files looked at.
        looked: Vec<PathBuf>,
    },
    /// A path to a directory.
    #[error("{0:?}: expected a program, got a folder")]
    Directory(PathBuf),
    /// A path to a file that nobody may execute.
    #[error("{0:?}: expected a program, got a file that is not executable; run `chmod +x` if it is a script")]
    NotExecutable(PathBuf),
}

/// What was found instead of a program.
fn nothing(name: &OsStr, looked: &[PathBuf]) -> String {
    if looked.iter().any(|path| path == Path::new(name)) {
        return "no such file".into();
    }
    let Some((beside, path)) = looked.split_first() else { return "none: PATH is empty".into() };
    format!(
        "none in {} or in the {} folders of PATH; build it, or name its file",
        beside.display(),
        path.len()
    )
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Finds a program by its name or path.
pub fn find(name: &OsStr) -> Result<PathBuf, NotFound> {
    let beside = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(name, beside.into_iter().chain(std::env::split_paths(&path)))
}

fn find_in(name: &OsStr, folders: impl Iterator<Item = PathBuf>) -> Result<PathBuf, NotFound> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Ok(_) if is_program(&path) => Ok(path),
            Ok(about) if about.is_dir() => Err(NotFound::Directory(path)),
            Ok(_) => Err(NotFound::NotExecutable(path)),
            Err(_) => Err(NotFound::Nowhere { name: name.to_owned(), looked: vec![path] }),
        };
    }
    let mut looked = Vec::new();
    for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
        let path = folder.join(name);
        if !name.is_empty() && is_program(&path) {
            return Ok(path);
        }
        looked.push(folder);
    }
    Err(NotFound::Nowhere { name: name.to_owned(), looked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_taken_in_order_and_named_when_nothing_is_there() {
        let folders = || ["/nonexistent", "", "/bin", "/usr/bin"].into_iter().map(PathBuf::from);
        assert_eq!(find_in(OsStr::new("sh"), folders()), Ok("/bin/sh".into()));
        let error = find_in(OsStr::new("no-such-program"), folders()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"no-such-program\": expected a program, got none in /nonexistent or in the 2 folders of PATH; \
             build it, or name its file"
        );
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        assert_eq!(find_in(OsStr::new("/bin/sh"), std::iter::empty()), Ok("/bin/sh".into()));
        let error = find_in(OsStr::new("./sh"), std::iter::once("/bin".into())).unwrap_err();
        assert_eq!(error.to_string(), "\"./sh\": expected a program, got no such file");
        let met = |path: &str| find_in(OsStr::new(path), std::iter::empty()).unwrap_err();
        assert_eq!(met("/etc/passwd"), NotFound::NotExecutable("/etc/passwd".into()));
        assert_eq!(met("/etc/"), NotFound::Directory("/etc/".into()));
    }
}
