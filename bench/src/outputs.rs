//! The files of `--json` and `--plot`: tried before any work, so that a run is not made for nothing, and
//! written at its end. What a file held stays until then.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that cannot be written. Exit status 2.
#[derive(Debug, thiserror::Error)]
pub enum BadOutput {
    /// It could not be opened.
    #[error("error: {option} {}: {met}; {want}", path.display())]
    Open {
        /// `--json` or `--plot`.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        met: io::Error,
        /// What would be right.
        want: &'static str,
    },
    /// Both options name one file.
    #[error("error: --json and --plot both name {}; give each a file of its own", .0.display())]
    Same(PathBuf),
}

/// One file.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    /// Open, if it was there before. What was not is made at the end: a run that is cut short leaves nothing.
    file: Option<File>,
}

/// A file that could be opened.
struct Probe {
    path: PathBuf,
    file: File,
    /// It was not there before.
    fresh: bool,
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.fresh {
            // What cannot be removed is an empty file: nothing to fail for.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Probe {
    fn open(option: &'static str, path: &Path) -> Result<Self, BadOutput> {
        let bad = |met, want| BadOutput::Open { option, path: path.to_owned(), met, want };
        if would_hang(path) {
            let met = io::Error::other("it is no regular file");
            return Err(bad(met, "name a regular file, or one that is not there yet"));
        }
        let fresh = OpenOptions::new().write(true).create_new(true).open(path);
        let (opened, fresh) = match fresh {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (OpenOptions::new().write(true).open(path), false)
            }
            other => (other, true),
        };
        let file = opened.map_err(|met| {
            let want = match met.kind() {
                ErrorKind::NotFound => "name a file in a folder that exists",
                ErrorKind::IsADirectory => "name a file, not a folder",
                ErrorKind::PermissionDenied => "name a file that this user may write",
                _ => "name a file that can be written",
            };
            bad(met, want)
        })?;
        Ok(Self { path: path.to_owned(), file, fresh })
    }

    /// Device and inode of a regular file.
    fn identity(&self) -> Option<(u64, u64)> {
        let data = self.file.metadata().ok().filter(|data| data.is_file())?;
        Some((data.dev(), data.ino()))
    }

    /// Keeps it open if it was there before.
    fn keep(self) -> io::Result<Output> {
        let file = if self.fresh { None } else { Some(self.file.try_clone()?) };
        Ok(Output { path: self.path.clone(), file })
    }
}

/// A pipe waits for a reader that may never come; those the system hands out have theirs.
fn would_hang(path: &Path) -> bool {
    let other = std::fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir());
    other && !path.starts_with("/dev")
}

impl Output {
    fn replace(&mut self, text: &str) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return std::fs::write(&self.path, text).inspect_err(|_| {
                // Half a result is none.
                let _ = std::fs::remove_file(&self.path);
            });
        };
        // A pipe or a device has no length.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        file.write_all(text.as_bytes())
    }
}

/// Both files.
#[derive(Debug)]
pub struct Outputs {
    json: Option<Output>,
    plot: Option<Output>,
}

impl Outputs {
    /// Opens what was asked for; what is not there is made for a moment, to see that it can be.
    ///
    /// # Errors
    /// What was met and what would be right. Nothing is left behind.
    pub fn open(json: Option<&Path>, plot: Option<&Path>) -> Result<Self, BadOutput> {
        let json = json.map(|path| Probe::open("--json", path)).transpose()?;
        let plot = plot.map(|path| Probe::open("--plot", path)).transpose()?;
        if let (Some(one), Some(other)) = (&json, &plot)
            && one.identity().is_some()
            && one.identity() == other.identity()
        {
            return Err(BadOutput::Same(one.path.clone()));
        }
        let keep = |option, probe: Option<Probe>| {
            let path = probe.as_ref().map(|probe| probe.path.clone()).unwrap_or_default();
            let want = "name a file that can be written";
            probe.map(Probe::keep).transpose().map_err(|met| BadOutput::Open { option, path, met, want })
        };
        Ok(Self { json: keep("--json", json)?, plot: keep("--plot", plot)? })
    }

    /// Writes both. The texts are made only where somebody wants them.
    ///
    /// # Errors
    /// One for each file that could not be written, with its name.
    pub fn write(mut self, json: impl Fn() -> String, plot: impl Fn() -> String) -> Vec<String> {
        let mut errors = Vec::new();
        let texts: [(&mut Option<Output>, &dyn Fn() -> String); 2] =
            [(&mut self.json, &json), (&mut self.plot, &plot)];
        for (output, text) in texts {
            if let Some(output) = output
                && let Err(error) = output.replace(&text())
            {
                errors.push(format!("{}: {error}", output.path.display()));
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("shmem-put-bw-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_cannot_be_written_is_refused_and_nothing_is_left_behind() {
        let folder = folder("refused");
        let fresh = folder.join("fresh.json");
        let missing = folder.join("no/such.svg");
        let error = Outputs::open(Some(&fresh), Some(&missing)).unwrap_err().to_string();
        assert!(error.contains("--plot") && error.contains("folder that exists"), "{error}");
        assert!(!fresh.exists());
        let error = Outputs::open(Some(&folder), None).unwrap_err().to_string();
        assert!(error.contains("--json") && error.contains("not a folder"), "{error}");
        let error = Outputs::open(Some(&fresh), Some(&folder.join("./fresh.json"))).unwrap_err();
        assert!(error.to_string().contains("both name"), "{error}");
        assert!(!fresh.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_is_there_once_it_has_its_content() {
        let folder = folder("fresh");
        let fresh = folder.join("new.json");
        let outputs = Outputs::open(Some(&fresh), None).unwrap();
        assert!(!fresh.exists(), "a run that is cut short leaves nothing");
        assert_eq!(outputs.write(|| "new".into(), || unreachable!()), Vec::<String>::new());
        assert_eq!(std::fs::read_to_string(&fresh).unwrap(), "new");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_would_wait_for_a_reader_is_refused_and_devices_are_not() {
        let folder = folder("pipe");
        let pipe = folder.join("ff");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = Outputs::open(Some(&pipe), None).unwrap_err().to_string();
        assert!(error.contains("no regular file") && error.contains("name a regular file"), "{error}");
        let null = Outputs::open(Some(Path::new("/dev/null")), None).unwrap();
        assert_eq!(null.write(|| "gone".into(), || unreachable!()), Vec::<String>::new());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn content_stays_until_the_end_and_goes_then() {
        let folder = folder("content");
        let file = folder.join("old.json");
        std::fs::write(&file, "a long text of an older run").unwrap();
        drop(Outputs::open(Some(&file), None).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a long text of an older run");
        let outputs = Outputs::open(Some(&file), None).unwrap();
        assert_eq!(outputs.write(|| "new".into(), || unreachable!()), Vec::<String>::new());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
