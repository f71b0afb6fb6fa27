//! A folder that several machines mount as the place of entries. A name gets its bytes by a rename, and nothing is
//! locked. Instants are the file server's own: clocks of machines differ.

use super::entry::ENTRY_MAX;
use super::shelf::Shelf;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long an entry that nobody renews stays.
const LEASE: Duration = Duration::from_secs(3600);

/// The folder.
pub struct FolderShelf {
    folder: PathBuf,
    /// Ends the names of files that are being written: no other process has it.
    mark: String,
}

impl FolderShelf {
    /// One that is not looked at yet. `owner` is a name that no other process has.
    pub fn new(folder: &Path, owner: &str) -> Self {
        let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        Self { folder: folder.to_owned(), mark: owner.chars().map(letter).collect() }
    }

    /// Writes a file that nobody looks for, and gives its name.
    fn write(&self, key: &str, value: &[u8]) -> io::Result<PathBuf> {
        let path = self.folder.join(format!(".{key}.{}", self.mark));
        // Left by an earlier process of this name.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Not through a link that somebody laid there.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)?;
        file.write_all(value)?;
        file.sync_all()?;
        Ok(path)
    }

    fn sweep(&self, now: SystemTime) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let ours = name.to_str().is_some_and(|name| name.trim_start_matches('.').starts_with("qp-"));
            let age = || now.duration_since(entry.metadata().ok()?.modified().ok()?).ok();
            if ours && age().is_some_and(|age| age > LEASE) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

impl Shelf for FolderShelf {
    fn place(&self) -> String {
        format!("file://{}", self.folder.display())
    }

    fn connect(&mut self) -> io::Result<()> {
        let failed = |error| io::Error::other(format!("expected a folder to write into, got: {error}"));
        let probe = self.write("probe", b"").map_err(failed)?;
        let now = fs::metadata(&probe).and_then(|found| found.modified());
        fs::remove_file(&probe).map_err(failed)?;
        self.sweep(now.map_err(failed)?).map_err(failed)
    }

    fn put(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let fresh = self.write(key, value)?;
        fs::rename(fresh, self.folder.join(key))
    }

    fn get(&mut self, key: &str) -> io::Result<Option<Vec<u8>>> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(self.folder.join(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.folder.is_dir() => return Ok(None),
            // A link is no entry.
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(Some(Vec::new())),
            Err(error) => return Err(error),
        };
        read(file).map(Some)
    }

    fn remove(&mut self, key: &str) -> io::Result<()> {
        match fs::remove_file(self.folder.join(key)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.folder.is_dir() => Ok(()),
            answer => answer,
        }
    }

    fn renewal(&self) -> Duration {
        LEASE / 6
    }
}

/// What is in a file, as far as an entry may be long; nothing of what is no file.
fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(ENTRY_MAX as u64 + 1).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn bytes_are_found_by_name_and_what_is_no_file_is_not_read() {
        let folder = std::env::temp_dir().join(format!("shunt-verbs-shelf-{}", std::process::id()));
        let mut here = FolderShelf::new(&folder, "10.0.0.1:1");
        let missing = here.connect().unwrap_err().to_string();
        assert!(missing.starts_with("expected a folder to write into, got: "), "{missing}");
        fs::create_dir(&folder).unwrap();
        let mut there = FolderShelf::new(&folder, "10.0.0.2:1");
        here.connect().unwrap();
        assert_eq!(here.get("qp-1").unwrap(), None);
        here.put("qp-1", b"one").unwrap();
        there.put("qp-1", b"two").unwrap();
        assert_eq!(here.get("qp-1").unwrap().as_deref(), Some(&b"two"[..]));
        here.remove("qp-1").unwrap();
        here.remove("qp-1").unwrap();
        assert_eq!(there.get("qp-1").unwrap(), None);
        fs::write(folder.join("elsewhere"), "far").unwrap();
        symlink("elsewhere", folder.join("qp-2")).unwrap();
        fs::create_dir(folder.join("qp-3")).unwrap();
        fs::write(folder.join("qp-4"), [7; 2 * ENTRY_MAX]).unwrap();
        assert_eq!(here.get("qp-2").unwrap().as_deref(), Some(&b""[..]), "a link");
        assert_eq!(here.get("qp-3").unwrap().as_deref(), Some(&b""[..]), "a folder");
        assert_eq!(
            here.get("qp-4").unwrap().map(|bytes| bytes.len()),
            Some(ENTRY_MAX + 1),
            "no more than that"
        );
        // What nobody has renewed for long goes, and files of others stay.
        let old = SystemTime::now() - 2 * LEASE;
        for name in ["qp-5", ".qp-6.x", "elsewhere"] {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(old).unwrap();
        }
        here.connect().unwrap();
        let mut left: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["elsewhere", "qp-2", "qp-3", "qp-4"]);
        fs::remove_dir_all(&folder).unwrap();
        assert!(here.get("qp-1").is_err() && here.put("qp-1", b"x").is_err() && here.remove("qp-1").is_err());
    }
}
