//! The network's thread: sockets and timers of one process, all in one poll loop.

pub(super) mod connection;
mod member;
mod mesh;
mod mesh_peer;
mod root;

use super::error::{JoinError, Refusal, Refused};
use super::frame::Frame;
use super::link::{Link, Local, Trouble};
use super::preamble::Purpose;
use super::state::{Phase, Shared};
use connection::{Connection, End, Role};
pub(super) use member::Member;
use mesh_peer::MeshPeer;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
pub(super) use root::Root;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Token of the waker.
pub(super) const WAKE: Token = Token(0);
/// Bytes read at once.
const BUFFER: usize = 64 << 10;
/// Reads of one connection before the others get their turn.
const READS: u32 = 16;
/// Connections in the middle of their handshake, beside one for each rank.
const HALF_OPEN_MAX: usize = 64;
/// How long a closing process waits for its last words to be read.
const LINGER: Duration = Duration::from_secs(1);
/// Before a listener is looked at again that failed: no descriptors left, most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Times that the options set.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    pub keepalive: Duration,
    pub half_open: Duration,
}

/// What this process is in the job.
pub(super) enum Part {
    Root(Root),
    Member(Member),
}

pub(super) struct Driver {
    poll: Poll,
    shared: Arc<Shared>,
    local: Local,
    timing: Timing,
    part: Part,
    listeners: BTreeMap<usize, TcpListener>,
    connections: BTreeMap<usize, Connection>,
    mesh: Vec<MeshPeer>,
    next_token: usize,
    buffer: Vec<u8>,
    /// The next thing that is due.
    due: Option<Instant>,
    /// Connections with more to read.
    unread: Vec<usize>,
    accept_again: Option<Instant>,
    linger: Option<Instant>,
}

impl Driver {
    pub fn new(poll: Poll, shared: Arc<Shared>, local: Local, timing: Timing, part: Part) -> Self {
        let mesh = (0..local.world).map(|_| MeshPeer::default()).collect();
        Self {
            poll,
            shared,
            local,
            timing,
            part,
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            mesh,
            next_token: 1,
            buffer: vec![0; BUFFER],
            due: None,
            unread: Vec::new(),
            accept_again: None,
            linger: None,
        }
    }

    /// Listens at a socket from now on.
    pub fn listen(&mut self, listener: std::net::TcpListener) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let token = self.token();
        self.poll.registry().register(&mut listener, Token(token), Interest::READABLE)?;
        self.listeners.insert(token, listener);
        Ok(())
    }

    /// Runs until the process leaves.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(256);
        if matches!(self.part, Part::Root(_)) {
            self.announce();
        }
        loop {
            self.shared.looking();
            self.due = None;
            self.tick(Instant::now());
            let full = self.obey();
            self.write_all();
            // The one that took all that it was given can be given more.
            let can_take =
                |token: &usize| self.connections.get(token).is_some_and(|one| one.proven && !one.blocked);
            if full.iter().any(can_take) {
                self.due_at(Instant::now());
            }
            if self.linger.is_some_and(|until| self.connections.is_empty() || Instant::now() >= until) {
                return;
            }
            let wait = self.due.map(|due| due.saturating_duration_since(Instant::now()));
            let wait = if self.unread.is_empty() { wait } else { Some(Duration::ZERO) };
            if let Err(error) = self.poll.poll(&mut events, wait)
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                let detail = error.to_string();
                self.fail(JoinError::System { what: "the system cannot wait for sockets", detail });
                return;
            }
            for token in std::mem::take(&mut self.unread) {
                self.read(token);
            }
            for event in &events {
                self.event(event.token(), event.is_writable());
            }
        }
    }

    /// Something is due at `at`.
    fn due_at(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn token(&mut self) -> usize {
        self.next_token += 1;
        self.next_token
    }

    fn event(&mut self, token: Token, writable: bool) {
        if token == WAKE {
            return;
        }
        if self.listeners.contains_key(&token.0) {
            return self.accept(token.0);
        }
        let Some(connection) = self.connections.get_mut(&token.0) else { return };
        connection.blocked &= !writable;
        let was_connected = connection.connected;
        match connection.try_connected() {
            Ok(false) => {}
            Ok(true) => {
                if !was_connected && connection.role == Role::Root {
                    self.root_reached(token.0);
                }
                self.read(token.0);
            }
            Err(end) => self.end(token.0, end),
        }
    }

    fn accept(&mut self, token: usize) {
        loop {
            let Some(listener) = self.listeners.get(&token) else { return };
            match listener.accept() {
                Ok((stream, remote)) => {
                    self.make_room();
                    let link = Link::accept(self.local.clone());
                    self.add(stream, link, Role::Stranger, remote);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.shared.warn(&format!("no connection can be taken: {error}"));
                    self.accept_again = Some(Instant::now() + ACCEPT_AGAIN);
                    return;
                }
            }
        }
    }

    /// Among too many that have not shown who they are, the oldest goes: a rank needs milliseconds.
    fn make_room(&mut self) {
        let strangers = || self.connections.iter().filter(|(_, one)| one.role == Role::Stranger);
        if strangers().count() >= HALF_OPEN_MAX + self.local.world as usize
            && let Some((&oldest, _)) = strangers().min_by_key(|(_, one)| one.since)
        {
            self.end(oldest, Refusal::Crowded.into());
        }
    }

    fn add(&mut self, mut stream: TcpStream, link: Link, role: Role, remote: SocketAddr) -> Option<usize> {
        let token = self.token();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(token), interest) {
            self.shared.warn(&format!("{remote} cannot be watched: {error}"));
            return None;
        }
        self.connections.insert(token, Connection::new(stream, link, role, remote));
        Some(token)
    }

    /// Begins to connect.
    fn connect(&mut self, to: SocketAddr, purpose: Purpose, role: Role) -> Result<usize, End> {
        let stream = TcpStream::connect(to).map_err(End::Socket)?;
        let link = Link::connect(self.local.clone(), purpose);
        let failed = || End::Socket(std::io::Error::other("the socket cannot be watched"));
        self.add(stream, link, role, to).ok_or_else(failed)
    }

    fn read(&mut self, token: usize) {
        for _ in 0..READS {
            let Some(connection) = self.connections.get_mut(&token) else { return };
            let taken = connection.read(&mut self.buffer);
            if connection.link.is_open() && !connection.proven && connection.role != Role::Stranger {
                connection.proven = true;
                if let Role::Peer(rank) = connection.role {
                    self.peer_up(rank, token);
                }
            }
            let role = self.connections.get(&token).map(|one| one.role);
            if let Some(Role::Peer(rank)) = role
                && taken.more
            {
                self.shared.lock().peers[rank as usize].link.heard = Some(Instant::now());
            }
            for frame in taken.frames {
                if let Err(end) = self.frame(token, frame) {
                    return self.end(token, end);
                }
            }
            if let Some(end) = taken.end {
                return self.end(token, end);
            }
            if !taken.more {
                return;
            }
        }
        self.unread.push(token);
    }

    /// A message came.
    fn frame(&mut self, token: usize, frame: Frame) -> Result<(), End> {
        let Some(connection) = self.connections.get(&token) else { return Ok(()) };
        match (connection.role, connection.link.purpose(), frame) {
            (_, _, Frame::Bye { why }) => Err(End::Left(why)),
            (Role::Stranger, Purpose::Join, Frame::Hello { rank, world, mesh }) => {
                self.admit(token, rank, world, mesh)
            }
            (Role::Stranger, Purpose::Mesh { from, .. }, Frame::Ping) => {
                self.peer_up(from, token);
                Ok(())
            }
            (Role::Root, _, frame) => self.heard_root(token, frame),
            (Role::Member(rank), _, Frame::Give { round, bytes }) => self.given(rank, round, bytes),
            (Role::Member(rank), _, Frame::Row { round, to, bytes }) => self.row(rank, round, to, bytes),
            (Role::Member(_) | Role::Peer(_), _, Frame::Ping) => Ok(()),
            (Role::Peer(rank), _, Frame::Datagram { topic, bytes }) => {
                let topic = super::state::Topic::from_wire(topic);
                let topic = topic.ok_or(Refusal::Broken("a topic that does not exist"))?;
                self.shared.receive(topic, rank, bytes);
                Ok(())
            }
            _ => Err(Refusal::Broken("a message out of place").into()),
        }
    }

    /// A connection is over.
    fn end(&mut self, token: usize, end: End) {
        let Some(mut connection) = self.connections.remove(&token) else { return };
        let reason = match &end {
            End::Trouble(Trouble::Here(reason)) => Some(reason.clone()),
            _ if connection.role != Role::Stranger => None,
            End::TimedOut => Some(Refusal::Slow),
            _ => Some(Refusal::Left),
        };
        // Whom we ourselves connect to is told of by who waits for it.
        let ours = connection.role == Role::Root || (connection.role != Role::Stranger && !connection.proven);
        if let Some(reason) = reason
            && !ours
            && self.linger.is_none()
        {
            self.shared.refuse(Refused { from: connection.remote, reason });
        }
        // Counted before the other side can know of it.
        connection.hang_up();
        let _ = self.poll.registry().deregister(&mut connection.stream);
        match connection.role {
            Role::Stranger => {}
            Role::Root => self.root_lost(&end),
            Role::Member(rank) => self.member_gone(rank, token, &end),
            Role::Peer(rank) => self.peer_down(rank, token, &end),
        }
    }

    /// Refuses one who has shown that it has the secret, so that it may know why.
    fn turn_away(&mut self, token: usize, reason: Refusal) -> End {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.link.send(&Frame::Refused(reason.clone()));
        }
        reason.into()
    }

    fn send(&mut self, token: usize, frame: &Frame) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.link.send(frame);
        }
    }

    fn write_all(&mut self) {
        let tokens: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, one)| one.link.pending() > 0 && !one.blocked)
            .map(|(t, _)| *t)
            .collect();
        for token in tokens {
            if let Some(connection) = self.connections.get_mut(&token)
                && let Err(end) = connection.write()
            {
                self.end(token, end);
            }
        }
    }

    /// Whatever time brings.
    fn tick(&mut self, now: Instant) {
        let half_open = self.timing.half_open;
        let late: Vec<usize> = (self.connections.iter())
            .filter(|(_, one)| !one.proven && now >= one.since + half_open)
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            self.end(token, End::TimedOut);
        }
        let next = self.connections.values().filter(|one| !one.proven).map(|one| one.since + half_open).min();
        if let Some(at) = next {
            self.due_at(at);
        }
        match self.accept_again {
            Some(at) if now >= at => {
                self.accept_again = None;
                for token in self.listeners.keys().copied().collect::<Vec<_>>() {
                    self.accept(token);
                }
            }
            Some(at) => self.due_at(at),
            None => {}
        }
        match self.linger {
            Some(until) => self.due_at(until),
            None => {
                self.look_for_root(now);
                self.tend_mesh(now);
            }
        }
    }

    /// Whatever the program wants. The answer is that of [`Driver::send_datagrams`].
    fn obey(&mut self) -> Vec<usize> {
        let (gives, breaks, closing) = {
            let mut state = self.shared.lock();
            (std::mem::take(&mut state.gives), std::mem::take(&mut state.breaks), state.closing)
        };
        for rank in breaks {
            self.break_link(rank);
        }
        for give in gives {
            self.give(give);
        }
        let full = self.send_datagrams();
        if closing && self.linger.is_none() {
            self.leave();
        }
        full
    }

    /// Says good-bye. The other sides close then; what they still read is not cut short.
    fn leave(&mut self) {
        self.linger = Some(Instant::now() + LINGER);
        self.listeners.clear();
        self.connections.retain(|_, one| one.proven);
        let bye = Frame::Bye { why: self.shared.lock().failed.clone().unwrap_or_default() };
        for connection in self.connections.values_mut() {
            connection.link.send(&bye);
        }
        self.due_at(Instant::now());
    }

    /// Joining came to nothing.
    fn fail(&mut self, error: JoinError) {
        self.shared.update(|state| {
            if !matches!(state.phase, Phase::Started | Phase::Failed(_)) {
                state.phase = Phase::Failed(error);
            }
        });
    }
}
