//! How processes of one machine find each other's queue pairs: a folder of this user's with a socket for each process
//! and a link from each queue pair to the socket of its process.

use super::remarks::Remarks;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Longest message that a datagram socket of the system carries with its defaults, with room to spare.
pub const MESSAGE_MAX: usize = 64 << 10;

/// The runtime directory of this user: `$XDG_RUNTIME_DIR/shunt`, else `/tmp/shunt-UID`. The variable outlives its
/// directory where a session ended: one that is not there counts as not set.
pub fn runtime_directory() -> PathBuf {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match base.filter(|base| base.is_absolute() && base.is_dir()) {
        Some(base) => base.join("shunt"),
        None => PathBuf::from(format!("/tmp/shunt-{}", user())),
    }
}

fn user() -> u32 {
    // SAFETY: the call has no conditions.
    unsafe { libc::geteuid() }
}

/// Makes a folder for this user alone, or makes sure that one is.
///
/// # Errors
/// It cannot be made, or others get into it.
pub fn private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not through a link: in /tmp anybody may have put one here.
    let found = fs::symlink_metadata(path)?;
    let ours = found.is_dir() && found.uid() == user() && found.mode() & 0o077 == 0;
    let met = || {
        let (owner, mode) = (found.uid(), found.mode() & 0o777);
        format!(
            "{}: expected a folder of mode 700 of user {}, got mode {mode:o} of user {owner}",
            path.display(),
            user()
        )
    };
    if ours { Ok(()) } else { Err(io::Error::other(met())) }
}

/// The folder of what is told of queue pairs, made if it is not there.
///
/// # Errors
/// As [`private`].
pub fn folder() -> io::Result<PathBuf> {
    let runtime = runtime_directory();
    private(&runtime)?;
    let folder = runtime.join("verbs");
    private(&folder)?;
    Ok(folder)
}

/// Room for a message, and for one that is too long.
fn room() -> Mutex<Vec<u8>> {
    Mutex::new(vec![0; 2 * MESSAGE_MAX])
}

/// This process in the folder.
pub struct Folder {
    folder: PathBuf,
    /// Name of its socket.
    pub name: String,
    /// What was met that is not used.
    pub remarks: Remarks,
    socket: UnixDatagram,
    /// Where messages arrive. It is kept: one so large, made anew, is mapped and unmapped.
    buffer: Mutex<Vec<u8>>,
}

impl Folder {
    /// Opens this process's socket.
    ///
    /// # Errors
    /// As the system answers.
    pub fn open() -> io::Result<Self> {
        let folder = folder()?;
        sweep(&folder);
        let name = format!("{}.sock", std::process::id());
        let path = folder.join(&name);
        // Of an earlier process of this number.
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path)?;
        socket.set_nonblocking(true)?;
        Ok(Self { folder, name, remarks: Remarks::default(), socket, buffer: room() })
    }

    fn entry(&self, gid: &[u8; 16], qpn: u32) -> PathBuf {
        let gid: String = gid.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("qp-{gid}-{qpn:06x}"))
    }

    /// A queue pair is this process's.
    ///
    /// # Errors
    /// As the system answers.
    pub fn put(&self, gid: &[u8; 16], qpn: u32) -> io::Result<()> {
        let entry = self.entry(gid, qpn);
        let fresh = entry.with_extension(std::process::id().to_string());
        let _ = fs::remove_file(&fresh);
        symlink(&self.name, &fresh)?;
        fs::rename(&fresh, &entry)
    }

    /// It is gone.
    pub fn remove(&self, gid: &[u8; 16], qpn: u32) {
        let entry = self.entry(gid, qpn);
        let ours = fs::read_link(&entry).is_ok_and(|to| to == Path::new(&self.name));
        if ours {
            let _ = fs::remove_file(&entry);
        }
    }

    /// Name of the socket of a queue pair's process.
    pub fn get(&self, gid: &[u8; 16], qpn: u32) -> Option<String> {
        let entry = self.entry(gid, qpn);
        let to = match fs::read_link(&entry) {
            Ok(to) => to,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => return self.forged(&entry, "something else"),
        };
        let name = to.to_str().filter(|name| is_socket_name(name));
        name.map_or_else(|| self.forged(&entry, &format!("one to {to:?}")), |name| Some(name.to_owned()))
    }

    /// An entry that this library has not made.
    fn forged(&self, entry: &Path, met: &str) -> Option<String> {
        self.remarks.add(format!("{}: expected a link to PID.sock, got {met}; remove it", entry.display()));
        None
    }

    /// Sends to the process of a socket's name.
    ///
    /// # Errors
    /// `WouldBlock` if it is not taken now; any other: nobody is there.
    pub fn send(&self, to: &str, bytes: &[u8]) -> io::Result<()> {
        self.socket.send_to(bytes, self.folder.join(to)).map(|_| ())
    }

    /// The next message: name of the sender's socket, and bytes.
    pub fn receive(&self) -> Option<(String, Vec<u8>)> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        let name = from.as_pathname()?.file_name()?.to_str()?.to_owned();
        Some((name, buffer[..length].to_vec()))
    }

    /// Becomes ready when a message is there.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.folder.join(&self.name));
    }
}

/// Removes sockets of processes that are gone, and links to none.
fn sweep(folder: &Path) {
    let entries = || fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let gone = |path: &PathBuf| {
        let number =
            path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok());
        let socket = path.extension().is_some_and(|end| end == "sock");
        socket && number.is_some_and(|number| !is_alive(number))
    };
    for path in entries().filter(gone) {
        let _ = fs::remove_file(path);
    }
    let leads_nowhere = |path: &PathBuf| path.is_symlink() && !path.exists();
    for path in entries().filter(leads_nowhere) {
        let _ = fs::remove_file(path);
    }
}

/// True for the names that processes give their sockets.
fn is_socket_name(name: &str) -> bool {
    let number = name.strip_suffix(".sock").unwrap_or_default();
    number.parse::<u32>().is_ok_and(|parsed| parsed.to_string() == number)
}

/// True if a process of this number is there.
pub fn is_alive(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, name: &str) -> Folder {
        let socket = UnixDatagram::bind(folder.join(name)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let remarks = Remarks::default();
        Folder { folder: folder.to_owned(), name: name.to_owned(), remarks, socket, buffer: room() }
    }

    #[test]
    fn a_queue_pair_leads_to_its_process_and_messages_name_their_sender() {
        let folder = std::env::temp_dir().join(format!("shunt-verbs-directory-{}", std::process::id()));
        private(&folder).unwrap();
        let (one, other) = (open(&folder, "1.sock"), open(&folder, "2.sock"));
        one.put(&[5; 16], 0x99).unwrap();
        assert_eq!(other.get(&[5; 16], 0x99).as_deref(), Some("1.sock"));
        assert_eq!(other.get(&[5; 16], 0x98), None);
        other.put(&[5; 16], 0x99).unwrap();
        one.remove(&[5; 16], 0x99);
        assert_eq!(one.get(&[5; 16], 0x99).as_deref(), Some("2.sock"), "it has another owner now");
        one.send("2.sock", b"abc").unwrap();
        assert_eq!(other.receive(), Some(("1.sock".to_owned(), b"abc".to_vec())));
        assert_eq!(other.receive(), None);
        // A process whose queue pair is connected to itself talks to itself.
        other.send("2.sock", b"own").unwrap();
        assert_eq!(other.receive(), Some(("2.sock".to_owned(), b"own".to_vec())));
        // An entry that leads anywhere else is not followed, and is told once.
        assert_eq!(one.remarks.take(), [""; 0]);
        for (qpn, to) in [(1, "/etc/2.sock"), (2, "../2.sock"), (3, "x.sock"), (4, "02.sock"), (5, "")] {
            let entry = one.entry(&[5; 16], qpn);
            if to.is_empty() {
                fs::write(entry, "2.sock").unwrap()
            } else {
                symlink(to, entry).unwrap()
            }
            assert_eq!((one.get(&[5; 16], qpn), one.get(&[5; 16], qpn)), (None, None), "{to}");
            let told = one.remarks.take();
            assert!(told.len() == 1 && told[0].contains("expected a link to PID.sock, got "), "{told:?}");
        }
        drop(other);
        assert!(one.send("2.sock", b"abc").is_err());
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(private(&folder).unwrap_err().to_string().contains("expected a folder of mode 700"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
