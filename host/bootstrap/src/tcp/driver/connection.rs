//! A connection: its socket, its link, and what it is for.

use super::super::error::Refusal;
use super::super::frame::Frame;
use super::super::link::{Link, Trouble};
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Instant;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nobody knows yet.
    Stranger,
    /// The root.
    Root,
    /// A rank that joined here.
    Member(u32),
    /// A rank of the mesh.
    Peer(u32),
}

/// How a connection ends.
#[derive(Debug)]
pub enum End {
    /// The other side closed it.
    Closed,
    /// The socket failed.
    Socket(io::Error),
    /// One side refuses the other.
    Trouble(Trouble),
    /// Its time was up.
    TimedOut,
    /// The other side said so, and what went wrong there if anything did.
    Left(String),
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Trouble(Trouble::Here(refusal))
    }
}

impl End {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            Self::Closed => "the connection was closed".to_owned(),
            Self::Socket(error) => error.to_string(),
            Self::Trouble(Trouble::Here(reason)) => reason.to_string(),
            Self::Trouble(Trouble::There(reason)) => format!("it refuses us: {reason}"),
            Self::TimedOut => "no answer in time".to_owned(),
            Self::Left(why) if why.is_empty() => "it left in good order".to_owned(),
            Self::Left(why) => format!("it failed: {why}"),
        }
    }
}

/// What one look at the socket brought.
#[derive(Default)]
pub struct Taken {
    pub frames: Vec<Frame>,
    pub end: Option<End>,
    /// There may be more to read.
    pub more: bool,
}

/// A connection.
pub struct Connection {
    pub stream: TcpStream,
    pub link: Link,
    pub role: Role,
    pub remote: SocketAddr,
    /// Since when it is there.
    pub since: Instant,
    /// When something was last written.
    pub sent: Instant,
    /// The socket is connected.
    pub connected: bool,
    /// The other side has shown that it has the secret, now.
    pub proven: bool,
    /// The socket takes no more for now.
    pub blocked: bool,
}

impl Connection {
    pub fn new(stream: TcpStream, link: Link, role: Role, remote: SocketAddr) -> Self {
        let now = Instant::now();
        let connected = role == Role::Stranger;
        // Small messages are not held back for larger ones to come.
        let _ = stream.set_nodelay(true);
        Self { stream, link, role, remote, since: now, sent: now, connected, proven: false, blocked: false }
    }

    /// Sees whether the socket is connected by now.
    pub fn try_connected(&mut self) -> Result<bool, End> {
        if self.connected {
            return Ok(true);
        }
        if let Some(error) = self.stream.take_error().map_err(End::Socket)? {
            return Err(End::Socket(error));
        }
        match self.stream.peer_addr() {
            // Nobody listens, and the system gave this very socket the port it calls: it would talk to itself.
            Ok(peer) if self.stream.local_addr().is_ok_and(|local| local == peer) => {
                Err(End::Socket(ErrorKind::ConnectionRefused.into()))
            }
            Ok(_) => {
                self.connected = true;
                let _ = self.stream.set_nodelay(true);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(End::Socket(error)),
        }
    }

    /// Reads once, as much as fits into `buffer`.
    pub fn read(&mut self, buffer: &mut [u8]) -> Taken {
        let mut taken = Taken::default();
        match self.stream.read(buffer) {
            Ok(0) => taken.end = Some(End::Closed),
            Ok(bytes) => {
                let fed = self.link.feed(&buffer[..bytes]);
                taken.more = fed.is_ok();
                loop {
                    match self.link.next() {
                        Ok(Some(frame)) => taken.frames.push(frame),
                        Ok(None) => break,
                        Err(trouble) => {
                            taken.end = Some(End::Trouble(trouble));
                            return taken;
                        }
                    }
                }
                taken.end = fed.err().map(End::Trouble);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => taken.more = true,
            Err(error) => taken.end = Some(End::Socket(error)),
        }
        taken
    }

    /// Writes what the socket takes.
    pub fn write(&mut self) -> Result<(), End> {
        while self.connected && !self.blocked {
            let bytes = self.link.outgoing();
            if bytes.is_empty() {
                break;
            }
            match self.stream.write(bytes) {
                Ok(0) => return Err(End::Closed),
                Ok(bytes) => {
                    self.link.written(bytes);
                    self.sent = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(End::Socket(error)),
            }
        }
        Ok(())
    }

    /// Last words, and the end. What is still unread may make the system cut them short.
    pub fn hang_up(&mut self) {
        let _ = self.write();
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
