//! Why an uplink cannot be had.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::path::PathBuf;

/// What keeps an uplink from being opened.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// The name would not do as part of a path.
    #[error("fabric name: expected 1 to 32 letters, digits, dots, dashes or underscores, got {0:?}")]
    Name(String),
    /// A path that a socket address cannot hold.
    #[error(
        "the socket path {0:?} is longer than 107 bytes; choose a shorter runtime directory or fabric name"
    )]
    PathTooLong(PathBuf),
    /// Something else stands where the directory should be.
    #[error("{0:?}: expected a folder, got something else; move it away")]
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
    #[error("{path:?}: expected permissions 700, got {mode:03o}")]
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
    /// A GID that RoCE v2 over IPv4 cannot have.
    #[error("GID: expected ::ffff:a.b.c.d, an address of this machine, got {}", Ipv6Addr::from(*.0))]
    NotIpv4(u128),
    /// No interface has the address.
    #[error("no interface of this machine has the address {0}; `ip address` lists those there are")]
    NotLocal(Ipv4Addr),
    /// Another socket has the port.
    #[error("UDP port {} of {} is in use; each NIC needs an address of its own", .0.port(), .0.ip())]
    PortTaken(SocketAddrV4),
    /// The interface carries smaller packets than the NIC sends.
    #[error("{nic} at {} has path MTU {mtu}; its interface carries {fits}", Ipv6Addr::from(*address))]
    PathMtu {
        /// The NIC.
        nic: String,
        /// Its address.
        address: u128,
        /// Its path MTU.
        mtu: u32,
        /// The largest path MTU that would do.
        fits: u32,
    },
    /// The interface carries no RoCE packet at all.
    #[error("the interface {interface:?} has an MTU of {mtu} bytes; 320 are the least")]
    InterfaceMtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
    },
    /// A rate that is none.
    #[error("rate: expected a number above zero, got {0} Gb/s")]
    Rate(f64),
    /// The system has no more of something.
    #[error("cannot make {what}: {errno}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        errno: rustix::io::Errno,
    },
    /// The system refused a socket.
    #[error("cannot {what} a UDP socket at {address}: {cause}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// Where.
        address: SocketAddrV4,
        /// What the system said.
        cause: io::Error,
    },
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
