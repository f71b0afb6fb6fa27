//! How processes find each other's queue pairs, and talk.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`folder`] | on one machine: sockets and links in the runtime directory |
//! | [`remote`] | between machines: a place where queue pairs are found, and [`lines`] between processes |
//! | [`book`] | the wall before that place: [`served`] by `shunt store serve`, or on a shelf that a [`clerk`] keeps |
//! | [`shelf`] | the wall before what keeps bytes under names: [`redis_shelf`], [`folder_shelf`]; pure: [`entry`] |
//! | [`remarks`] | what was met and is not used |
//! | [`store`] | the store that `shunt store serve` is; its words: [`store_words`] |
//! | [`store_at`] | where it is, as the user says it |
//!
//! [`Directory`] is what others use: no caller knows which of them is behind it.

pub mod book;
pub mod clerk;
pub mod entry;
pub mod folder;
pub mod folder_shelf;
pub mod lines;
pub mod redis_shelf;
pub mod remarks;
pub mod remote;
mod secret;
pub mod served;
pub mod shelf;
pub mod store;
pub mod store_at;
pub mod store_words;

use book::Book;
use clerk::{Clerk, Desk};
use folder::Folder;
pub use folder::{MESSAGE_MAX, folder, is_alive, private, runtime_directory};
use folder_shelf::FolderShelf;
use lines::Lines;
use redis_shelf::RedisShelf;
use remote::{Remote, own_address};
use served::Served;
use shelf::Shelf;
use shunt_bootstrap::tcp::interface::{self, InterfaceSpec};
use shunt_bootstrap::tcp::{RootAddress, Secret};
use std::io;
use std::net::{IpAddr, SocketAddr};
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

fn resolve(root: &RootAddress) -> io::Result<SocketAddr> {
    root.resolve(RESOLVER).map(|found| found[0]).map_err(io::Error::other)
}

/// The address of this machine where no store says it: of the interface that jobs use as well.
fn address_without_store() -> io::Result<IpAddr> {
    const NAME: &str = "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME";
    let text = std::env::var(NAME).ok().filter(|text| !text.is_empty());
    let read = |text: String| {
        let bad = |want| io::Error::other(format!("{NAME}: expected {want}, got {text:?}"));
        text.parse::<InterfaceSpec>().map_err(bad)
    };
    let spec = text.map(read).transpose()?;
    interface::own_address(spec.as_ref()).map_err(io::Error::other)
}

/// Looks whether a place can be used at all, by what the environment says: nothing is reached.
///
/// # Errors
/// There is no secret, or what is set is none.
pub fn check(at: &StoreAt) -> io::Result<()> {
    match at {
        StoreAt::Folder => Ok(()),
        StoreAt::Tcp(root) => secret::of(root).map(|_| ()),
        StoreAt::Redis(at) => secret::of(&at.root).map(|_| ()),
        StoreAt::Shared(_) => secret::set().map(|_| ()),
    }
}

impl Directory {
    /// Opens this process's socket.
    ///
    /// # Errors
    /// As the system answers; no secret between machines. A store that is not there is no error: it may come.
    pub fn open(at: &StoreAt) -> io::Result<Self> {
        match at {
            StoreAt::Folder => Folder::open().map(Self::Folder),
            StoreAt::Tcp(root) => {
                let secret = secret::of(root)?;
                let at = resolve(root)?;
                let lines = Lines::open(own_address(at)?, &secret)?;
                let served = Served::new(at, &secret, lines.name());
                Ok(Self::remote(lines, Box::new(served)))
            }
            StoreAt::Redis(at) => {
                let secret = secret::of(&at.root)?;
                let lines = Lines::open(own_address(resolve(&at.root)?)?, &secret)?;
                Self::on_shelf(lines, Box::new(RedisShelf::new(at.clone())), &secret)
            }
            StoreAt::Shared(folder) => {
                let secret = secret::set()?;
                let lines = Lines::open(address_without_store()?, &secret)?;
                let shelf = FolderShelf::new(folder, lines.name());
                Self::on_shelf(lines, Box::new(shelf), &secret)
            }
        }
    }

    fn on_shelf(lines: Lines, shelf: Box<dyn Shelf>, secret: &Secret) -> io::Result<Self> {
        let clerk = Clerk::new(shelf, secret, lines.name());
        Ok(Self::remote(lines, Box::new(Desk::open(clerk)?)))
    }

    /// Between machines, with connections and a place where queue pairs are found.
    pub fn remote(lines: Lines, book: Box<dyn Book>) -> Self {
        let remote = Remote::new(lines, book);
        Self::Remote(Box::new((remote.name().to_owned(), Mutex::new(remote))))
    }

    /// Whether new connections can be found there: true on one machine, none while it is not known yet.
    pub fn is_open(&self) -> Option<bool> {
        match self {
            Self::Folder(_) => Some(true),
            Self::Remote(remote) => lock(&remote.1).is_open(),
        }
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

    /// Whether a descriptor becomes ready for all that is to be done next: no connection is being made, and nothing
    /// waits to be sent.
    pub fn tells(&self) -> bool {
        match self {
            Self::Folder(_) => true,
            Self::Remote(remote) => lock(&remote.1).tells(),
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
