//! The files of `--json`, `--plot`, `--report` and `--trace`: tried before any work, so that a run is not made for
//! nothing, and written at its end. What a file held stays until then.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The variable that names timelines.
const EVENTS: &str = "SHUNT_EVENTS";

/// A file that cannot be written. Exit status 2.
#[derive(Debug, thiserror::Error)]
pub enum BadOutput {
    /// It could not be opened.
    #[error("error: {option} {}: {met}; {want}", path.display())]
    Open {
        /// The option, `--json` for one.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        met: io::Error,
        /// What would be right.
        want: &'static str,
    },
    /// Both options, or a variable and an option, name one file.
    #[error("error: {one} and {other} both name {}; give each a file of its own", path.display())]
    Same {
        /// An option.
        one: &'static str,
        /// Another.
        other: &'static str,
        /// The file.
        path: PathBuf,
    },
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

/// Device and inode of a file, if it is there and regular.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    let data = std::fs::metadata(path).ok().filter(|data| data.is_file())?;
    Some((data.dev(), data.ino()))
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
        let data = file.metadata()?;
        // A pipe or a device has no length.
        if data.is_file() {
            // It was another process's probe, which has removed it.
            if identity_of(&self.path) != Some((data.dev(), data.ino())) {
                return std::fs::write(&self.path, text);
            }
            file.set_len(0)?;
        }
        file.write_all(text.as_bytes())
    }
}

/// An option, and the file it names.
pub type Wanted<'a> = (&'static str, Option<&'a Path>);

/// All files.
#[derive(Debug, Default)]
pub struct Outputs {
    files: Vec<(&'static str, Output)>,
}

impl Outputs {
    /// Opens what was asked for; what is not there is made for a moment, to see that it can be. `timelines`: files of
    /// `SHUNT_EVENTS`, which are written meanwhile.
    ///
    /// # Errors
    /// What was given and what is expected. Nothing is left behind.
    pub fn open(wanted: &[Wanted<'_>], timelines: &[PathBuf]) -> Result<Self, BadOutput> {
        let mut probes: Vec<(&'static str, Probe)> = Vec::new();
        for &(other, path) in wanted {
            let Some(path) = path else { continue };
            let probe = Probe::open(other, path)?;
            let identity = probe.identity();
            let same = |(_, before): &&(_, Probe)| identity.is_some() && before.identity() == identity;
            if let Some((one, before)) = probes.iter().find(same) {
                return Err(BadOutput::Same { one, other, path: before.path.clone() });
            }
            // What was not there is there now, if it is the same one.
            if identity.is_some() && timelines.iter().any(|path| identity_of(path) == identity) {
                return Err(BadOutput::Same { one: EVENTS, other, path: path.to_owned() });
            }
            probes.push((other, probe));
        }
        let keep = |(option, probe): (&'static str, Probe)| {
            let path = probe.path.clone();
            let want = "name a file that can be written";
            let kept = probe.keep().map_err(|met| BadOutput::Open { option, path, met, want })?;
            Ok((option, kept))
        };
        Ok(Self { files: probes.into_iter().map(keep).collect::<Result<_, _>>()? })
    }

    /// Writes each with the text that `text` makes of its option.
    ///
    /// # Errors
    /// One for each file that could not be written, with its name.
    pub fn write(self, text: impl Fn(&'static str) -> String) -> Vec<String> {
        let mut errors = Vec::new();
        for (option, mut output) in self.files {
            if let Err(error) = output.replace(&text(option)) {
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
        let error = Outputs::open(&[("--json", Some(&fresh)), ("--plot", Some(&missing))], &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--plot") && error.contains("folder that exists"), "{error}");
        assert!(!fresh.exists());
        let error = Outputs::open(&[("--json", Some(&folder))], &[]).unwrap_err().to_string();
        assert!(error.contains("--json") && error.contains("not a folder"), "{error}");
        let again = folder.join("./fresh.json");
        let wanted = [("--json", Some(&*fresh)), ("--plot", None), ("--trace", Some(&*again))];
        let error = Outputs::open(&wanted, &[]).unwrap_err();
        assert!(error.to_string().contains("--json and --trace both name"), "{error}");
        assert!(!fresh.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_a_timeline_goes_to_is_refused_and_keeps_what_it_holds() {
        let folder = folder("timeline");
        let (there, fresh) = (folder.join("0.jsonl"), folder.join("1.jsonl"));
        std::fs::write(&there, "a line\n").unwrap();
        let timelines = [folder.join("./0.jsonl"), folder.join("./1.jsonl")];
        for file in [&there, &fresh] {
            let error = Outputs::open(&[("--json", Some(file))], &timelines).unwrap_err().to_string();
            let name = file.display();
            assert_eq!(
                error,
                format!("error: SHUNT_EVENTS and --json both name {name}; give each a file of its own")
            );
        }
        assert!(!fresh.exists(), "a refusal leaves nothing behind");
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "a line\n");
        let other = folder.join("other.json");
        assert!(Outputs::open(&[("--json", Some(&other))], &timelines).is_ok());
        // Devices take what both say.
        let null = Path::new("/dev/null");
        assert!(Outputs::open(&[("--json", Some(null))], &[null.to_owned()]).is_ok());
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Cause: of two processes with one file one found the other's probe, and wrote into what that had removed.
    #[test]
    fn a_file_that_another_process_has_removed_meanwhile_is_made_again() {
        let folder = folder("removed");
        let file = folder.join("both.json");
        let probe = Probe::open("--json", &file).unwrap();
        let outputs = Outputs::open(&[("--json", Some(&file))], &[]).unwrap();
        drop(probe);
        assert_eq!(outputs.write(|_| "kept".into()), Vec::<String>::new());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_is_there_once_it_has_its_content() {
        let folder = folder("fresh");
        let fresh = folder.join("new.json");
        let outputs = Outputs::open(&[("--json", Some(&fresh))], &[]).unwrap();
        assert!(!fresh.exists(), "a run that is cut short leaves nothing");
        assert_eq!(outputs.write(|_| "new".into()), Vec::<String>::new());
        assert_eq!(std::fs::read_to_string(&fresh).unwrap(), "new");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_would_wait_for_a_reader_is_refused_and_devices_are_not() {
        let folder = folder("pipe");
        let pipe = folder.join("ff");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = Outputs::open(&[("--json", Some(&pipe))], &[]).unwrap_err().to_string();
        assert!(error.contains("no regular file") && error.contains("name a regular file"), "{error}");
        let null = Outputs::open(&[("--json", Some(Path::new("/dev/null")))], &[]).unwrap();
        assert_eq!(null.write(|_| "gone".into()), Vec::<String>::new());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn content_stays_until_the_end_and_goes_then() {
        let folder = folder("content");
        let file = folder.join("old.json");
        std::fs::write(&file, "a long text of an older run").unwrap();
        drop(Outputs::open(&[("--json", Some(&file))], &[]).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a long text of an older run");
        let outputs = Outputs::open(&[("--json", Some(&file))], &[]).unwrap();
        assert_eq!(outputs.write(|_| "new".into()), Vec::<String>::new());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
