//! What it takes to join a job.

use super::address::RootAddress;
use super::error::JoinError;
use super::interface::InterfaceSpec;
use super::secret::Secret;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{getsockopt, sockopt};
use shunt_layout::ABI_VERSION;
use std::fmt;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Between two signs of life on a mesh connection.
pub const KEEPALIVE_NS: u64 = 200_000_000;
/// How long a connection may take over its handshake.
pub const HALF_OPEN_NS: u64 = 5_000_000_000;

/// Where lines for the user go.
#[derive(Clone)]
pub struct Notices(Arc<dyn Fn(&str) + Send + Sync>);

impl Notices {
    /// To a function of the caller's.
    pub fn new(line: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(line))
    }

    /// Says a line.
    pub(super) fn say(&self, line: &str) {
        (self.0)(line);
    }
}

impl Default for Notices {
    fn default() -> Self {
        Self::new(|line| shunt_settings::complain!("shunt: {line}"))
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

/// What [`TcpNet::join`](super::TcpNet::join) needs to know.
#[derive(Debug)]
pub struct JoinOptions {
    /// This process.
    pub rank: u32,
    /// Processes in the job.
    pub world: u32,
    /// Where rank 0 listens.
    pub root: RootAddress,
    /// Job secret.
    pub secret: Secret,
    /// Interface for the mesh; else the one the root is reached by.
    pub interface: Option<InterfaceSpec>,
    /// Rank 0 only: a socket that listens at the root address already; else one is bound.
    pub listener: Option<TcpListener>,
    /// How long to wait for the others, here and in each all-gather.
    pub patience_ns: u64,
    /// Between two signs of life on a mesh connection.
    pub keepalive_ns: u64,
    /// How long a connection may take over its handshake.
    pub half_open_ns: u64,
    /// ABI version to show; another than this build's is for tests of its refusal.
    pub abi: u32,
    /// Where lines for the user go: whom we wait for and, if the program has no `tracing` subscriber, warnings.
    pub notices: Notices,
}

impl JoinOptions {
    /// The usual ones.
    pub fn new(rank: u32, world: u32, root: RootAddress, secret: Secret) -> Self {
        Self {
            rank,
            world,
            root,
            secret,
            interface: None,
            listener: None,
            patience_ns: crate::bootstrap::PATIENCE_NS,
            keepalive_ns: KEEPALIVE_NS,
            half_open_ns: HALF_OPEN_NS,
            abi: ABI_VERSION,
            notices: Notices::default(),
        }
    }

    /// Refuses what makes no sense.
    pub(super) fn check(&self) -> Result<(), JoinError> {
        let (what, met, want) = if !(1..=crate::WORLD_MAX).contains(&self.world) {
            ("world", u64::from(self.world), format!("a number from 1 to {}", crate::WORLD_MAX))
        } else if self.rank >= self.world {
            ("rank", u64::from(self.rank), format!("a number below {}", self.world))
        } else if self.root.port() == 0 && self.listener.is_none() {
            ("port of the root", 0, "a number from 1 to 65535".to_owned())
        } else if self.keepalive_ns == 0 || self.half_open_ns == 0 {
            ("keepalive or handshake time", 0, "a time above 0".to_owned())
        } else {
            return Ok(());
        };
        Err(JoinError::Value { what, met, want })
    }
}

/// Takes over an inherited listening socket, which must be that of the root's port.
pub fn listener_from_fd(fd: i32, root: &RootAddress) -> Result<TcpListener, JoinError> {
    let refuse = |met: &str| JoinError::Descriptor { fd, met: met.to_owned(), port: root.port() };
    if fd < 3 {
        return Err(refuse("a standard stream"));
    }
    // SAFETY: borrowed for the next call alone, which checks whether the descriptor is open at all.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(borrowed, FcntlArg::F_GETFD).map_err(|_| refuse("not open"))?;
    match getsockopt(&borrowed, sockopt::AcceptConn) {
        Ok(true) => {}
        Ok(false) => return Err(refuse("a socket that does not listen")),
        Err(_) => return Err(refuse("no socket")),
    }
    // SAFETY: the descriptor is open, and the parent that set the variable gave it to this process for this use alone;
    // the caller takes it over once.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // It must not go on to programs that this process starts.
    let _ = fcntl(&listener, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    match listener.local_addr() {
        Ok(local) if local.port() == root.port() => Ok(listener),
        Ok(local) => Err(refuse(&format!("listening at {local}"))),
        Err(_) => Err(refuse("a listening socket of another family")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    fn root(port: u16) -> RootAddress {
        format!("127.0.0.1:{port}").parse().unwrap()
    }

    #[test]
    fn a_listening_socket_of_the_right_port_is_taken_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let taken = listener_from_fd(listener.into_raw_fd(), &root(port)).unwrap();
        assert_eq!(taken.local_addr().unwrap().port(), port);
    }

    #[test]
    fn anything_else_is_refused_with_what_it_is() {
        let error = |fd, root: &RootAddress| listener_from_fd(fd, root).unwrap_err().to_string();
        assert!(error(0, &root(9)).contains("a standard stream"));
        assert!(error(100_000, &root(9)).contains("not open"));
        let file = std::fs::File::open("/dev/null").unwrap().into_raw_fd();
        assert!(error(file, &root(9)).contains("no socket"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap().into_raw_fd();
        assert!(error(stream, &root(9)).contains("does not listen"));
        let other = root(port ^ 1);
        assert!(error(listener.into_raw_fd(), &other).contains(&format!("listening at 127.0.0.1:{port}")));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let options =
            |rank, world, port| JoinOptions::new(rank, world, root(port), Secret::random().unwrap());
        assert_eq!(options(0, 1, 9).check(), Ok(()));
        for bad in [options(0, 0, 9), options(2, 2, 9), options(0, 4097, 9), options(0, 1, 0)] {
            assert!(bad.check().unwrap_err().to_string().contains("expected "));
        }
    }
}
