//! How processes find each other's queue pairs, and talk.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`folder`] | on one machine: sockets and links in the runtime directory |
//! | [`remote`] | between machines: a store, and connections between the processes themselves |
//! | [`remarks`] | what was met and is not used |
//! | [`store`] | that store, which `shunt store serve` is; its words: [`store_words`] |
//! | [`store_at`] | where it is, as the user says it |
//!
//! [`Directory`] is what others use: no caller knows which of them is behind it.

pub mod folder;
pub mod remarks;
pub mod remote;
mod secret;
pub mod store;
pub mod store_at;
pub mod store_words;

use folder::Folder;
pub use folder::{MESSAGE_MAX, folder, is_alive, private, runtime_directory};
use remote::Remote;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
pub use store_at::StoreAt;

/// How long the resolver may take over the name of the store's host.
const RESOLVER: Duration = Duration::from_secs(5);

/// This process among those that it may meet.
pub enum Directory {
    /// On one machine.
    Folder(Folder),
    /// On several.
    Remote(Box<(String, Mutex<Remote>)>),
}

fn lock(remote: &Mutex<Remote>) -> MutexGuard<'_, Remote> {
    remote.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Directory {
    /// Opens this process's socket.
    ///
    /// # Errors
    /// As the system answers; no secret between machines.
    pub fn open(at: &StoreAt) -> io::Result<Self> {
        let StoreAt::Tcp(root) = at else { return Folder::open().map(Self::Folder) };
        let secret = secret::of(root)?;
        let found = root.resolve(RESOLVER).map_err(io::Error::other)?;
        let remote = Remote::open(found[0], &secret)?;
        Ok(Self::Remote(Box::new((remote.name().to_owned(), Mutex::new(remote)))))
    }

    /// The name by which others reach this process.
    pub fn name(&self) -> &str {
        match self {
            Self::Folder(folder) => &folder.name,
            Self::Remote(remote) => &remote.0,
        }
    }

    /// A queue pair is this process's.
    ///
    /// # Errors
    /// As the system answers.
    pub fn put(&self, gid: &[u8; 16], qpn: u32) -> io::Result<()> {
        match self {
            Self::Folder(folder) => folder.put(gid, qpn),
            Self::Remote(remote) => {
                lock(&remote.1).put((*gid, qpn));
                Ok(())
            }
        }
    }

    /// It is gone.
    pub fn remove(&self, gid: &[u8; 16], qpn: u32) {
        match self {
            Self::Folder(folder) => folder.remove(gid, qpn),
            Self::Remote(remote) => lock(&remote.1).remove((*gid, qpn)),
        }
    }

    /// Name of a queue pair's process, if that is known by now.
    pub fn get(&self, gid: &[u8; 16], qpn: u32) -> Option<String> {
        match self {
            Self::Folder(folder) => folder.get(gid, qpn),
            Self::Remote(remote) => lock(&remote.1).get((*gid, qpn)),
        }
    }

    /// Sends to a process by its name.
    ///
    /// # Errors
    /// `WouldBlock` if it is not taken now; any other: nobody is there.
    pub fn send(&self, to: &str, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Folder(folder) => folder.send(to, bytes),
            Self::Remote(remote) => lock(&remote.1).send(to, bytes),
        }
    }

    /// The next message: name of the sender, and bytes.
    pub fn receive(&self) -> Option<(String, Vec<u8>)> {
        match self {
            Self::Folder(folder) => folder.receive(),
            Self::Remote(remote) => lock(&remote.1).receive(),
        }
    }

    /// What was met that is not used, and was not told yet.
    pub fn remarks(&self) -> Vec<String> {
        match self {
            Self::Folder(folder) => folder.remarks.take(),
            Self::Remote(remote) => lock(&remote.1).remarks.take(),
        }
    }

    /// Waits until a message is there, or another descriptor is ready to be read, so many milliseconds at most.
    pub fn wait(&self, others: impl Iterator<Item = RawFd>, milliseconds: i32) {
        let own = match self {
            Self::Folder(folder) => vec![folder.fd()],
            Self::Remote(remote) => lock(&remote.1).fds(),
        };
        let one = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut all: Vec<libc::pollfd> = own.into_iter().chain(others).map(one).collect();
        // SAFETY: so many entries, which are ours.
        unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, milliseconds) };
    }
}
