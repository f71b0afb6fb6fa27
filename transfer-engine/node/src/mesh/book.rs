//! Who is known, by which connection, and what is to be done. Pure.
//!
//! Two nodes have one relation with each other at a time, which survives the end of a connection: either of them dials
//! again, for as long as the give-up time. Where both dial at once, the connection that the smaller of the two numbers
//! dialled is kept.

use super::words::{Hello, Id};
use std::collections::BTreeMap;
use std::mem::take;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A connection. Never used twice.
pub(super) type Line = u64;
/// A wish to know somebody, as the caller numbers it.
pub(super) type Wish = u64;

/// Pause between two attempts to reach somebody.
const AGAIN: Duration = Duration::from_millis(100);
/// What was dialled before two had a relation comes within this time, or is dialled again.
const STALE: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Do {
    /// Connect.
    Dial(Line, SocketAddr),
    /// Say hello, with the relation that is known.
    Hello(Line, Option<Id>),
    /// End a connection; with a word, if the other one is to know that it was cut off.
    Drop(Line, bool),
    /// The engine takes a peer up: [`Book::joined`] says its number.
    Join(Id, Box<Hello>, bool),
    /// The engine cuts a peer off.
    Leave(u32),
    /// A wish is fulfilled, by this peer, or it failed.
    Answered(Wish, Result<u32, String>),
}

struct Connection {
    /// Whom it dialled.
    to: Option<SocketAddr>,
    /// Whose it is, once that was said.
    of: Option<Id>,
}

struct Peer {
    number: Option<u32>,
    relation: Id,
    begun: Instant,
    at: SocketAddr,
    line: Option<Line>,
    /// Since when it has no connection, and when one is dialled next.
    broken: Option<(Instant, Instant)>,
}

struct Wanted {
    wish: Wish,
    to: SocketAddr,
    until: Instant,
    again: Instant,
    /// Why there is no answer yet, and whether one of the two has said so.
    why: (String, bool),
}

/// The book of one node.
pub(super) struct Book {
    me: Id,
    rails: usize,
    give_up: Duration,
    lines: BTreeMap<Line, Connection>,
    next: Line,
    peers: BTreeMap<Id, Peer>,
    wanted: Vec<Wanted>,
    out: Vec<Do>,
}

impl Book {
    /// Of a node with so many rails, without peers. One without a connection for `give_up` has left.
    pub fn new(me: Id, rails: usize, give_up: Duration) -> Self {
        let (lines, peers) = (BTreeMap::new(), BTreeMap::new());
        Self { me, rails, give_up, lines, next: 0, peers, wanted: Vec::new(), out: Vec::new() }
    }

    /// What is to be done, in order.
    pub fn take(&mut self) -> Vec<Do> {
        take(&mut self.out)
    }

    fn line(&mut self, to: Option<SocketAddr>) -> Line {
        self.next += 1;
        self.lines.insert(self.next, Connection { to, of: None });
        self.next
    }

    /// Somebody has connected.
    pub fn accepted(&mut self) -> Line {
        self.line(None)
    }

    /// Somebody is to be known, by a time.
    pub fn want(&mut self, now: Instant, wish: Wish, to: SocketAddr, until: Instant) {
        self.wanted.push(Wanted { wish, to, until, again: now, why: ("no answer".to_owned(), false) });
        self.fulfil();
    }

    /// Wishes that are fulfilled.
    fn fulfil(&mut self) {
        let Self { peers, wanted, out, .. } = self;
        wanted.retain(|wanted| {
            let known = peers.values().filter(|peer| peer.at == wanted.to && peer.line.is_some());
            let number = known.filter_map(|peer| peer.number).next();
            number.into_iter().for_each(|number| out.push(Do::Answered(wanted.wish, Ok(number))));
            number.is_none()
        });
    }

    fn is_dialled(&self, to: SocketAddr) -> bool {
        self.lines.values().any(|line| line.to == Some(to) && line.of.is_none())
    }

    fn dial(&mut self, to: SocketAddr) {
        if !self.is_dialled(to) {
            let line = self.line(Some(to));
            let known = self.peers.values().find(|peer| peer.at == to);
            self.out.extend([Do::Dial(line, to), Do::Hello(line, known.map(|peer| peer.relation))]);
        }
    }

    /// Time passes.
    pub fn tick(&mut self, now: Instant) {
        let Self { wanted, out, .. } = self;
        wanted.retain(|wanted| {
            if wanted.until <= now {
                out.push(Do::Answered(wanted.wish, Err(wanted.why.0.clone())));
            }
            wanted.until > now
        });
        let mut dial = Vec::new();
        for wanted in self.wanted.iter_mut().filter(|wanted| wanted.again <= now) {
            wanted.again = now + AGAIN;
            dial.push(wanted.to);
        }
        let mut gone = Vec::new();
        for (id, peer) in &mut self.peers {
            let Some((since, again)) = &mut peer.broken else { continue };
            if *since + self.give_up <= now {
                gone.push(*id);
            } else if *again <= now {
                *again = now + AGAIN;
                dial.push(peer.at);
            }
        }
        gone.iter().for_each(|id| self.forget(id, false));
        dial.into_iter().for_each(|to| self.dial(to));
    }

    /// When [`Book::tick`] has something to do next.
    pub fn next_time(&self) -> Option<Instant> {
        let wanted = self.wanted.iter().flat_map(|wanted| [wanted.until, wanted.again]);
        let broken = self.peers.values().filter_map(|peer| peer.broken);
        wanted.chain(broken.flat_map(|(since, again)| [since + self.give_up, again])).min()
    }

    /// A peer is gone, and its connection with it.
    fn forget(&mut self, id: &Id, tell: bool) {
        let Some(peer) = self.peers.remove(id) else { return };
        peer.number.into_iter().for_each(|number| self.out.push(Do::Leave(number)));
        if let Some(line) = peer.line {
            self.drop_line(line, tell);
        }
    }

    fn drop_line(&mut self, line: Line, tell: bool) {
        if self.lines.remove(&line).is_some() {
            self.out.push(Do::Drop(line, tell));
        }
    }

    fn refuse(&mut self, line: Line, at: SocketAddr, why: &str) {
        let theirs = self.wanted.iter_mut().filter(|wanted| wanted.to == at);
        theirs.for_each(|wanted| wanted.why = (why.to_owned(), true));
        self.drop_line(line, false);
    }

    /// Somebody says who it is, on a connection from `from`; `fresh` is a number for a new relation.
    pub fn hello(&mut self, now: Instant, (line, from): (Line, SocketAddr), hello: Hello, fresh: Id) {
        let Some(Connection { to, of: None }) = self.lines.get(&line) else {
            return self.drop_line(line, false);
        };
        let (dialled, id) = (to.is_some(), hello.id);
        let at = to.unwrap_or_else(|| hello.reached(from.ip()));
        if id == self.me {
            return self.refuse(line, at, "that is this node itself");
        }
        let got = hello.address.rails();
        if got != self.rails {
            if !dialled {
                // It finds the same.
                self.out.push(Do::Hello(line, None));
                return self.drop_line(line, true);
            }
            return self.refuse(line, at, &format!("rails: expected {} as here, got {got}", self.rails));
        }
        let new = self.peers.get(&id).is_some_and(|peer| peer.line.is_some() && now < peer.begun + STALE);
        if !dialled && new && hello.relation.is_none() {
            // It dialled before it knew that the two are connected.
            return self.drop_line(line, false);
        }
        if !dialled && self.is_dialled(at) {
            if self.me < id {
                return self.drop_line(line, false);
            }
            let rival = |(line, other): (&Line, &Connection)| {
                (other.to == Some(at) && other.of.is_none()).then_some(*line)
            };
            let rivals: Vec<_> = self.lines.iter().filter_map(rival).collect();
            rivals.into_iter().for_each(|line| self.drop_line(line, false));
        }
        if let Some(line) = self.lines.get_mut(&line) {
            line.of = Some(id);
        }
        let known = self.peers.get(&id).map(|peer| peer.relation);
        match known {
            Some(relation) if hello.relation == known => {
                let peer = self.peers.get_mut(&id).into_iter();
                let old = peer.filter_map(|peer| {
                    peer.broken = None;
                    peer.line.replace(line)
                });
                let old: Vec<_> = old.collect();
                old.into_iter().for_each(|old| self.drop_line(old, false));
                if !dialled {
                    self.out.push(Do::Hello(line, Some(relation)));
                }
                self.fulfil();
            }
            _ => self.begin((now, line, at), hello, (!dialled).then_some(fresh)),
        }
    }

    /// Two begin a relation. Who is dialled names it.
    fn begin(&mut self, (begun, line, at): (Instant, Line, SocketAddr), hello: Hello, own: Option<Id>) {
        let Some(relation) = own.or(hello.relation) else {
            return self.refuse(line, at, "it did not say what the hello is called");
        };
        let id = hello.id;
        // An earlier relation is over, and so is that of a process that was there before.
        let before = self.peers.iter().filter(|(known, peer)| **known == id || peer.at == at);
        let before: Vec<Id> = before.map(|(known, _)| *known).collect();
        before.iter().for_each(|known| self.forget(known, false));
        self.peers.insert(id, Peer { number: None, relation, begun, at, line: Some(line), broken: None });
        if own.is_some() {
            self.out.push(Do::Hello(line, Some(relation)));
        }
        self.out.push(Do::Join(id, Box::new(hello), self.me < id));
    }

    /// The engine has taken a peer up, under a number.
    pub fn joined(&mut self, id: &Id, number: u32) {
        match self.peers.get_mut(id) {
            Some(peer) => peer.number = Some(number),
            None => self.out.push(Do::Leave(number)),
        }
        self.fulfil();
    }

    /// Who speaks on a connection.
    pub fn speaker(&self, line: Line) -> Option<u32> {
        self.peers.get(&self.lines.get(&line)?.of?)?.number
    }

    /// The connection to a peer.
    pub fn line_to(&self, number: u32) -> Option<Line> {
        self.peers.values().find(|peer| peer.number == Some(number))?.line
    }

    /// Peers without a connection.
    pub fn broken(&self) -> impl Iterator<Item = u32> {
        self.peers.values().filter(|peer| peer.line.is_none()).filter_map(|peer| peer.number)
    }

    /// Who speaks on a connection says that it leaves.
    pub fn bye(&mut self, line: Line) {
        match self.lines.get(&line).and_then(|line| line.of) {
            Some(id) => self.forget(&id, false),
            None => self.drop_line(line, false),
        }
    }

    /// A connection has ended.
    pub fn over(&mut self, now: Instant, line: Line, why: &str) {
        let Some(Connection { to, of }) = self.lines.remove(&line) else { return };
        let theirs = self.wanted.iter_mut().filter(|wanted| Some(wanted.to) == to && !wanted.why.1);
        theirs.for_each(|wanted| wanted.why.0 = why.to_owned());
        let peer = of.and_then(|id| self.peers.get_mut(&id)).filter(|peer| peer.line == Some(line));
        if let Some(peer) = peer {
            (peer.line, peer.broken) = (None, Some((now, now)));
        }
    }

    /// A peer was cut off at this end: it is told.
    pub fn cut(&mut self, number: u32) {
        let id = self.peers.iter().find(|(_, peer)| peer.number == Some(number)).map(|(id, _)| *id);
        id.into_iter().for_each(|id| {
            self.peers.get_mut(&id).into_iter().for_each(|peer| peer.number = None);
            self.forget(&id, true);
        });
    }

    /// This node leaves.
    pub fn leave(&mut self) {
        let all: Vec<Id> = self.peers.keys().copied().collect();
        all.iter().for_each(|id| self.forget(id, true));
        self.refuse_all();
    }

    /// Wishes are not fulfilled any more.
    pub fn refuse_all(&mut self) {
        let failed = take(&mut self.wanted).into_iter();
        self.out.extend(failed.map(|wanted| Do::Answered(wanted.wish, Err("this node leaves".to_owned()))));
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
