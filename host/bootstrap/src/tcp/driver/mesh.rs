//! The mesh: a connection between each two ranks, made by the higher one, made again when it breaks.

use super::Driver;
use super::connection::{End, Role};
use crate::tcp::frame::Frame;
use crate::tcp::preamble::Purpose;
use crate::tcp::state::{LinkReason, Phase};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// First pause before a connection is tried again; each is twice the one before.
const BACKOFF: Duration = Duration::from_millis(10);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// A datagram that could not be sent for so long is dropped.
const STALE: Duration = Duration::from_secs(1);
/// Bytes handed to a connection ahead of what its socket takes.
const AHEAD: usize = 256 << 10;

fn reason(end: &End) -> LinkReason {
    match end {
        End::Closed => LinkReason::Closed,
        End::Socket(error) => match error.kind() {
            ErrorKind::ConnectionRefused => LinkReason::Refused,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => LinkReason::Closed,
            ErrorKind::TimedOut => LinkReason::TimedOut,
            _ => LinkReason::Failed(error.to_string()),
        },
        End::TimedOut => LinkReason::TimedOut,
        End::Left(why) if why.is_empty() => LinkReason::Left,
        End::Left(_) => LinkReason::Failed(end.text()),
        End::Trouble(_) => LinkReason::Failed(end.text()),
    }
}

impl Driver {
    /// All ranks are there: the mesh begins.
    pub(super) fn start(&mut self, addresses: Vec<SocketAddr>) {
        let (now, rank) = (Instant::now(), self.local.rank as usize);
        for (peer, address) in addresses.into_iter().enumerate() {
            self.mesh[peer].address = Some(address);
            self.mesh[peer].try_at = (peer < rank).then_some(now);
        }
        self.due_at(now);
        self.shared.update(|state| {
            // To itself a process is always connected.
            let own = &mut state.peers[rank].link;
            (own.up, own.since, own.reason) = (true, now, LinkReason::Connected);
            state.phase = Phase::Started;
        });
    }

    /// Connects to lower ranks, and gives signs of life.
    pub(super) fn tend_mesh(&mut self, now: Instant) {
        for rank in 0..self.local.rank {
            let peer = &mut self.mesh[rank as usize];
            let (Some(at), Some(address), None) = (peer.try_at, peer.address, peer.token) else { continue };
            if now < at {
                self.due_at(at);
                continue;
            }
            peer.try_at = None;
            let purpose = Purpose::Mesh { from: self.local.rank, to: rank };
            match self.connect(address, purpose, Role::Peer(rank)) {
                Ok(token) => self.mesh[rank as usize].token = Some(token),
                Err(end) => self.peer_missed(rank, &end),
            }
        }
        let keepalive = self.timing.keepalive;
        let mut next = None;
        for connection in self.connections.values_mut() {
            if !matches!(connection.role, Role::Peer(_)) || !connection.proven {
                continue;
            }
            if now >= connection.sent + keepalive && connection.link.pending() == 0 {
                connection.link.send(&Frame::Ping);
            }
            // What waits for the socket is sign of life enough.
            let at =
                if connection.link.pending() > 0 { now + keepalive } else { connection.sent + keepalive };
            next = Some(next.map_or(at, |next: Instant| next.min(at)));
        }
        if let Some(at) = next {
            self.due_at(at);
        }
    }

    /// The connection to a peer is there. One that was there before is not: the peer knows of its end, we do not yet.
    pub(super) fn peer_up(&mut self, rank: u32, token: usize) {
        let old = self.mesh[rank as usize].token.replace(token);
        if let Some(old) = old
            && old != token
            && let Some(mut connection) = self.connections.remove(&old)
        {
            let _ = self.poll.registry().deregister(&mut connection.stream);
        }
        self.mesh[rank as usize].backoff = Duration::ZERO;
        if let Some(connection) = self.connections.get_mut(&token) {
            let accepted = connection.role == Role::Stranger;
            connection.role = Role::Peer(rank);
            connection.proven = true;
            if !accepted {
                // The other side believes in us once it hears us.
                connection.link.send(&Frame::Ping);
            }
        }
        let now = Instant::now();
        self.shared.update(|state| {
            let link = &mut state.peers[rank as usize].link;
            (link.up, link.since, link.heard, link.reason) = (true, now, Some(now), LinkReason::Connected);
        });
    }

    /// The connection to a peer is over.
    pub(super) fn peer_down(&mut self, rank: u32, token: usize, end: &End) {
        let peer = &mut self.mesh[rank as usize];
        if peer.token == Some(token) {
            peer.token = None;
            peer.left |= matches!(end, End::Left(_));
            self.peer_missed(rank, end);
        }
    }

    /// Fault injection: the connection to a peer breaks.
    pub(super) fn break_link(&mut self, rank: u32) {
        if let Some(token) = self.mesh.get(rank as usize).and_then(|peer| peer.token) {
            self.end(token, End::Socket(std::io::Error::other("broken on purpose")));
        }
    }

    fn peer_missed(&mut self, rank: u32, end: &End) {
        let now = Instant::now();
        let connects = rank < self.local.rank;
        let peer = &mut self.mesh[rank as usize];
        if connects && !peer.left {
            peer.backoff = (peer.backoff * 2).clamp(BACKOFF, BACKOFF_MAX);
            let at = now + peer.backoff;
            peer.try_at = Some(at);
            self.due_at(at);
        }
        self.shared.update(|state| {
            let link = &mut state.peers[rank as usize].link;
            if link.up {
                (link.up, link.since) = (false, now);
            }
            link.reason = reason(end);
        });
    }

    /// Hands waiting datagrams to their connections; drops those that waited for too long. The answer is the
    /// connections that were given as much as they should hold.
    pub(super) fn send_datagrams(&mut self) -> Vec<usize> {
        let mut full = Vec::new();
        let now = Instant::now();
        let shared = self.shared.clone();
        let mut state = shared.lock();
        let mut stale_at: Option<Instant> = None;
        for (peer, seen) in state.peers.iter_mut().zip(&self.mesh) {
            let connection = seen.token.and_then(|token| self.connections.get_mut(&token));
            let mut link = connection.filter(|one| one.proven).map(|one| &mut one.link);
            while let Some(first) = peer.queue.front() {
                if now >= first.at + STALE {
                    peer.pop();
                    shared.count_dropped(1);
                    continue;
                }
                match &mut link {
                    Some(link) if link.pending() < AHEAD => {
                        let Some(message) = peer.pop() else { break };
                        link.send(&Frame::Datagram { topic: message.topic as u8, bytes: message.bytes });
                        shared.count_sent();
                    }
                    _ => {
                        full.extend(seen.token);
                        let at = first.at + STALE;
                        stale_at = Some(stale_at.map_or(at, |stale| stale.min(at)));
                        break;
                    }
                }
            }
        }
        drop(state);
        if let Some(at) = stale_at {
            self.due_at(at);
        }
        full
    }
}
