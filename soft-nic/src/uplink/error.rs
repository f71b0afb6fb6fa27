//! Why an uplink cannot be had.

use std::io;
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// What keeps an uplink from being opened.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// The name would not do as part of a path.
    #[error("fabric name {0:?}; 1 to 32 letters, digits, dots, dashes or underscores are right")]
    Name(String),
    /// A path that a socket address cannot hold.
    #[error(
        "the socket path {0:?} is longer than 107 bytes; choose a shorter runtime directory or fabric name"
    )]
    PathTooLong(PathBuf),
    /// Something else stands where the directory should be.
    #[error("{0:?} is no directory; move it away")]
    NotADirectory(PathBuf),
    /// The directory belongs to somebody else.
    #[error("{path:?} belongs to user {owner}, not to user {me}; remove it or set XDG_RUNTIME_DIR")]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        me: u32,
    },
    /// Others may get into the directory.
    #[error("{path:?} has permissions {mode:03o}; 700 is right")]
    Permissions {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A process that is alive has this address.
    #[error("a live process has the address {} in fabric {fabric:?}; each NIC needs its own", Ipv6Addr::from(*address))]
    Taken {
        /// The address.
        address: u128,
        /// The fabric.
        fabric: String,
    },
    /// Another process is opening sockets and does not come to an end.
    #[error("another process holds {0:?} for too long; is it stopped?")]
    Locked(PathBuf),
    /// The system refused.
    #[error("{what} {path:?}: {cause}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

impl UplinkError {
    /// For `map_err`.
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Io { what, path, cause }
    }
}
