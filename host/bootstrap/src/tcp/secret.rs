//! The job secret: where it comes from, and the key made of it.

use super::error::SecretError;
use blake2::{Blake2s256, Blake2sMac, Digest};
use nix::unistd::geteuid;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a secret looks like.
pub use shunt_settings::syntax::SECRET as SYNTAX;
/// Fewer characters can be tried out by an attacker that recorded one key exchange.
const SHORTEST: usize = 16;
/// A file longer than this is no secret.
const LONGEST: u64 = 4096;
/// Name of the per-user secret in the runtime directory.
const DEFAULT_FILE: &str = "secret";

/// The key that all processes of a job share. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Bytes that nobody can guess.
pub(super) fn random() -> Result<[u8; 32], SecretError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| SecretError::Random { detail: error.to_string() })?;
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// BLAKE2s of bytes.
pub(crate) fn digest(bytes: &[u8]) -> [u8; 32] {
    Blake2s256::digest(bytes).into()
}

fn failed(path: &Path, error: std::io::Error) -> SecretError {
    SecretError::File { path: path.to_owned(), detail: error.to_string() }
}

impl Secret {
    /// A key of 32 random bytes.
    pub fn random() -> Result<Self, SecretError> {
        Ok(Self(random()?))
    }

    /// From text: what a variable or a file holds. Blanks at both ends do not count.
    pub fn from_text(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if text.chars().count() < SHORTEST {
            return Err(SecretError::Short { met: text.chars().count() });
        }
        let mut hash = Blake2s256::new();
        hash.update(b"shunt job secret 1\0");
        hash.update(text.as_bytes());
        Ok(Self(hash.finalize().into()))
    }

    /// From a file that only its owner, who is this user, can read.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        // The rights are those of the open file: the name may change its meaning in between.
        let mut file = File::open(path).map_err(|error| failed(path, error))?;
        let about = file.metadata().map_err(|error| failed(path, error))?;
        let (owner, mode) = (about.uid(), about.mode() & 0o777);
        if mode & 0o077 != 0 {
            return Err(SecretError::Readable { path: path.to_owned(), mode });
        }
        if owner != geteuid().as_raw() && owner != 0 {
            return Err(SecretError::Owner { path: path.to_owned(), owner });
        }
        let mut text = String::new();
        (&mut file).take(LONGEST).read_to_string(&mut text).map_err(|error| failed(path, error))?;
        Self::from_text(&text)
    }

    /// This user's own secret in `directory`, made at first use. The one that comes second takes what the first made.
    pub fn of_user(directory: &Path) -> Result<Self, SecretError> {
        own_directory(directory)?;
        let path = directory.join(DEFAULT_FILE);
        match Self::from_file(&path) {
            // Another process may have made it since.
            Err(SecretError::File { .. }) if path.exists() => return Self::from_file(&path),
            Err(SecretError::File { .. }) => {}
            answer => return answer,
        }
        // Written whole under a name of its own, then linked: nobody reads half a secret.
        let draft = directory.join(format!(".secret-{}-{}", std::process::id(), hex(&random()?[..8])));
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            let bytes = random().map_err(std::io::Error::other)?;
            file.write_all(format!("{}\n", hex(&bytes)).as_bytes())?;
            file.sync_all()?;
            match fs::hard_link(&draft, &path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                answer => answer,
            }
        };
        let written = write();
        let _ = fs::remove_file(&draft);
        written.map_err(|error| failed(&path, error))?;
        Self::from_file(&path)
    }

    /// The key of one of the jobs that share this secret, by what tells it from the others.
    pub fn of_job(&self, id: &str) -> Self {
        Self(digest(&[b"shunt job 1\0", &self.0[..], id.as_bytes()].concat()))
    }

    /// 128 bits that only who has the secret can make of these bytes (keyed BLAKE2s). `realm` tells what they are for.
    pub fn tag(&self, realm: &str, bytes: &[u8]) -> [u8; 16] {
        use blake2::digest::{FixedOutput, KeyInit, Update, consts::U16};
        let key = self.of_job(realm);
        let mut mac: Blake2sMac<U16> = KeyInit::new_from_slice(key.key()).expect("32 bytes are a key");
        Update::update(&mut mac, bytes);
        mac.finalize_fixed().into()
    }

    /// The key itself.
    pub(super) fn key(&self) -> &[u8; 32] {
        &self.0
    }

    /// A key as it stands in a unique id.
    pub(super) fn from_key(key: [u8; 32]) -> Self {
        Self(key)
    }
}

/// The directory for this user's sockets and secrets: `$XDG_RUNTIME_DIR/shunt`, else `/tmp/shunt-UID`. The variable
/// outlives its directory where a session ended: one that is not there counts as not set, as it does for the fabric.
pub fn runtime_directory(lookup: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    match lookup("XDG_RUNTIME_DIR").filter(|path| path.starts_with('/') && Path::new(path).is_dir()) {
        Some(path) => PathBuf::from(path).join("shunt"),
        None => PathBuf::from(format!("/tmp/shunt-{}", geteuid())),
    }
}

/// Makes the directory if it is missing, and refuses one that belongs to somebody else or is open to others.
pub fn own_directory(path: &Path) -> Result<(), SecretError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(path, error)),
        _ => {}
    }
    // Not through a link: in /tmp anybody can lay one.
    let about = fs::symlink_metadata(path).map_err(|error| failed(path, error))?;
    let (owner, mode) = (about.uid(), about.mode() & 0o777);
    if !about.is_dir() {
        return Err(SecretError::File {
            path: path.to_owned(),
            detail: "expected a folder, got something else; move it away".to_owned(),
        });
    }
    if owner != geteuid().as_raw() {
        return Err(SecretError::Owner { path: path.to_owned(), owner });
    }
    if mode & 0o077 != 0 {
        return Err(SecretError::Readable { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory that is gone when the test is over.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("shunt-test-{}", hex(&random().unwrap()[..8])));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const TEXT: &str = "a secret of more than sixteen";

    #[test]
    fn the_same_text_is_the_same_key_and_it_is_not_printed() {
        let secret = Secret::from_text(TEXT).unwrap();
        assert_eq!(Secret::from_text(&format!(" {TEXT}\n")).unwrap(), secret);
        assert_ne!(Secret::from_text(&TEXT[1..]).unwrap(), secret);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(Secret::from_text(" fifteen letters").unwrap_err(), SecretError::Short { met: 15 });
        assert_ne!(Secret::random().unwrap(), Secret::random().unwrap());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let scratch = Scratch::new();
        let path = scratch.0.join("file");
        assert!(matches!(Secret::from_file(&path), Err(SecretError::File { .. })));
        fs::write(&path, TEXT).unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let answer = Secret::from_file(&path);
            match good {
                true => assert_eq!(answer.unwrap(), Secret::from_text(TEXT).unwrap()),
                false => assert_eq!(answer.unwrap_err(), SecretError::Readable { path: path.clone(), mode }),
            }
        }
    }

    #[test]
    fn all_processes_of_a_user_agree_on_one_secret() {
        let scratch = Scratch::new();
        let directory = scratch.0.join("run");
        // Often: one that found no file, and found it a moment later, once failed with the first answer.
        for _ in 0..200 {
            let _ = fs::remove_dir_all(&directory);
            let made: Vec<Secret> = std::thread::scope(|scope| {
                let all: Vec<_> =
                    (0..8).map(|_| scope.spawn(|| Secret::of_user(&directory).unwrap())).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert!(made.iter().all(|secret| *secret == made[0]));
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "no drafts are left");
        }
        assert_eq!(fs::metadata(directory.join("secret")).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(matches!(Secret::of_user(&directory), Err(SecretError::Readable { .. })));
    }

    #[test]
    fn a_directory_through_a_link_is_refused() {
        let scratch = Scratch::new();
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(&scratch.0, &link).unwrap();
        assert!(matches!(own_directory(&link), Err(SecretError::File { .. })));
    }

    #[test]
    fn where_the_runtime_directory_is() {
        assert_eq!(runtime_directory(&|_| Some("/usr".into())), Path::new("/usr/shunt"));
        let own = PathBuf::from(format!("/tmp/shunt-{}", geteuid()));
        assert_eq!(runtime_directory(&|_| None), own);
        assert_eq!(runtime_directory(&|_| Some(String::new())), own);
        assert_eq!(runtime_directory(&|_| Some("/no/such/directory".into())), own, "it is gone");
    }
}
