//! A connection between two processes that belong to no job: messages of bytes, encrypted by a secret that both have.
//!
//! The bytes are those of a job's mesh ([`super::preamble`], [`super::frame`]): who dials counts as rank 1 of two, who
//! is dialled as rank 0, and the number of the job is made of the secret and a name that both know. The first message
//! of the side that dials is at most [`FIRST_MAX`] long.

use super::driver::connection::{Connection, End, Role};
use super::error::Refusal;
use super::frame::{Frame, HELLO_MAX};
use super::link::{Link, Local, Trouble};
use super::preamble::{PROTOCOL, Purpose};
use super::secret::{Secret, digest};
use mio::net::TcpStream;
use nix::sys::socket::{setsockopt, sockopt};
use shunt_layout::ABI_VERSION;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Longest first message of the side that dials.
pub const FIRST_MAX: usize = HELLO_MAX - 1;
/// How long a connection may take until the other side has shown that it has the secret.
const PATIENCE: Duration = Duration::from_secs(5);

/// What connections of one kind share.
#[derive(Clone, Debug)]
pub struct Realm {
    secret: Secret,
    job: [u8; 16],
}

impl Realm {
    /// By its name, which tells it from others with the same secret.
    pub fn new(secret: &Secret, name: &str) -> Self {
        let secret = secret.of_job(name);
        let number = digest(&[&secret.key()[..], b"pipe"].concat());
        let mut job = [0; 16];
        job.copy_from_slice(&number[..16]);
        Self { secret, job }
    }

    fn local(&self, rank: u32) -> Local {
        let (versions, secret) = ((PROTOCOL, ABI_VERSION), self.secret.clone());
        Local { rank, world: 2, versions, secret, job: Some(self.job) }
    }
}

/// A machine that dies says nothing. The kernel asks it after so many seconds of silence, so often, and so many seconds
/// apart.
const SILENT_SECONDS: u32 = 2;
const ASKED: u32 = 3;
const APART_SECONDS: u32 = 1;
/// What was sent and is not acknowledged for so long ends the connection as well. A process that is stopped, whose
/// kernel has no room for more, is given that time.
const UNANSWERED_MS: u32 = 30_000;

fn keep_alive(stream: &impl AsFd) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &SILENT_SECONDS)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &APART_SECONDS)?;
    setsockopt(stream, sockopt::TcpKeepCount, &ASKED)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &UNANSWERED_MS)?;
    Ok(())
}

/// One connection. Nothing of it waits.
pub struct Pipe {
    connection: Connection,
    over: Option<Over>,
}

/// Why one has ended, and whether the other side would refuse it again.
#[derive(Debug)]
struct Over {
    why: String,
    is_refused: bool,
}

impl From<End> for Over {
    fn from(end: End) -> Self {
        let is_refused = match &end {
            End::Trouble(Trouble::Here(why) | Trouble::There(why)) => matches!(
                why,
                Refusal::Garbage | Refusal::Protocol { .. } | Refusal::Abi { .. } | Refusal::Secret
            ),
            _ => false,
        };
        Self { why: end.text(), is_refused }
    }
}

impl From<&str> for Over {
    fn from(why: &str) -> Self {
        Self { why: why.to_owned(), is_refused: false }
    }
}

impl Pipe {
    /// Begins to connect.
    ///
    /// # Errors
    /// As the system answers at once; later, [`Pipe::over`] says it.
    pub fn dial(realm: &Realm, to: SocketAddr) -> io::Result<Self> {
        let link = Link::connect(realm.local(1), Purpose::Mesh { from: 1, to: 0 });
        let stream = TcpStream::connect(to)?;
        keep_alive(&stream)?;
        Ok(Self { connection: Connection::new(stream, link, Role::Peer(0), to), over: None })
    }

    /// Takes what was accepted.
    ///
    /// # Errors
    /// As the system answers.
    pub fn accept(realm: &Realm, stream: std::net::TcpStream, from: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let link = Link::accept(realm.local(0));
        keep_alive(&stream)?;
        let stream = TcpStream::from_std(stream);
        Ok(Self { connection: Connection::new(stream, link, Role::Stranger, from), over: None })
    }

    /// Its descriptor, to wait for.
    pub fn fd(&self) -> RawFd {
        self.connection.stream.as_raw_fd()
    }

    /// Why it has ended, if it has.
    pub fn over(&self) -> Option<&str> {
        self.over.as_ref().map(|over| over.why.as_str())
    }

    /// True if it has ended because of what does not change while the other process lives: its secret, its version, or
    /// that it is none of this library.
    pub fn is_refused(&self) -> bool {
        self.over.as_ref().is_some_and(|over| over.is_refused)
    }

    /// Bytes that the system has not taken.
    pub fn pending(&self) -> usize {
        self.connection.link.pending()
    }

    /// Whether its descriptor becomes ready for all that is to be done next: it is there, and nothing waits to be
    /// written; or it has ended.
    pub fn tells(&self) -> bool {
        self.over.is_some() || self.connection.proven && self.pending() == 0
    }

    /// Sends a message, now or as soon as the connection is there.
    pub fn send(&mut self, bytes: Vec<u8>) {
        if self.over.is_none() {
            self.connection.link.send(&Frame::Datagram { topic: 0, bytes });
        }
    }

    /// Writes what waits, and takes what has come.
    pub fn carry_on(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        if self.over.is_some() {
            return messages;
        }
        if let Err(why) = self.step(&mut messages) {
            self.over = Some(why);
            self.connection.hang_up();
        }
        messages
    }

    fn step(&mut self, messages: &mut Vec<Vec<u8>>) -> Result<(), Over> {
        let connection = &mut self.connection;
        if !connection.proven && connection.since + PATIENCE < Instant::now() {
            return Err("no answer in time".into());
        }
        if !connection.try_connected()? {
            return Ok(());
        }
        let mut buffer = [0; 16 << 10];
        loop {
            let taken = connection.read(&mut buffer);
            for frame in taken.frames {
                let Frame::Datagram { bytes, .. } = frame else {
                    return Err("it sends what belongs to a job".into());
                };
                messages.push(bytes);
            }
            if let Some(end) = taken.end {
                return Err(end.into());
            }
            if !taken.more {
                break;
            }
        }
        connection.proven |= connection.link.is_open();
        connection.blocked = false;
        Ok(connection.write()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn both(here: &Realm, there: &Realm) -> (Pipe, Pipe) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = Pipe::dial(here, listener.local_addr().unwrap()).unwrap();
        let (stream, from) = listener.accept().unwrap();
        (dialled, Pipe::accept(there, stream, from).unwrap())
    }

    /// Carries both on until `done`, or until it is clear that it will not be.
    fn carry(
        (a, b): (&mut Pipe, &mut Pipe),
        mut done: impl FnMut(Vec<Vec<u8>>, Vec<Vec<u8>>) -> bool,
    ) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            let (from_b, from_a) = (a.carry_on(), b.carry_on());
            if done(from_b, from_a) {
                return true;
            }
            if a.over().is_some() && b.over().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[test]
    fn messages_go_both_ways_in_order_and_an_end_is_told() {
        let realm = Realm::new(&Secret::from_text("sixteen letters!").unwrap(), "test");
        let (mut a, mut b) = both(&realm, &realm);
        a.send(b"first".to_vec());
        a.send(vec![7; 200_000]);
        b.send(b"back".to_vec());
        let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
        let all = carry((&mut a, &mut b), |from_b, from_a| {
            at_a.extend(from_b);
            at_b.extend(from_a);
            at_a.len() == 1 && at_b.len() == 2
        });
        assert!(all, "{:?} {:?}", a.over(), b.over());
        assert_eq!((at_a, at_b), (vec![b"back".to_vec()], vec![b"first".to_vec(), vec![7; 200_000]]));
        drop(a);
        let until = Instant::now() + Duration::from_secs(20);
        while b.over().is_none() && Instant::now() < until {
            b.carry_on();
        }
        assert!(b.over().is_some() && !b.is_refused(), "the other side is gone");
    }

    /// A node whose machine lost its power was there forever.
    #[test]
    fn both_sides_are_asked_by_the_kernel_whether_they_live() {
        let realm = Realm::new(&Secret::from_text("sixteen letters!").unwrap(), "test");
        let (a, b) = both(&realm, &realm);
        for pipe in [&a, &b] {
            let stream = &pipe.connection.stream;
            let is_on = nix::sys::socket::getsockopt(stream, sockopt::KeepAlive).unwrap();
            let asked = nix::sys::socket::getsockopt(stream, sockopt::TcpKeepCount).unwrap();
            assert_eq!((is_on, asked), (true, ASKED));
        }
    }

    #[test]
    fn another_secret_and_another_realm_are_refused() {
        let secret = Secret::from_text("sixteen letters!").unwrap();
        let other = Secret::from_text("seventeen letters").unwrap();
        for there in [Realm::new(&other, "test"), Realm::new(&secret, "another")] {
            let (mut a, mut b) = both(&Realm::new(&secret, "test"), &there);
            a.send(b"first".to_vec());
            assert!(!carry((&mut a, &mut b), |_, from_a| !from_a.is_empty()));
            assert!(b.over().is_some_and(|why| why.contains("secret")), "{:?}", b.over());
            assert!(a.is_refused() && b.is_refused(), "{:?} {:?}", a.over(), b.over());
        }
    }
}
