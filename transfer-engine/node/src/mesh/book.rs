//! Who is known, by which connection, and what is to be done. Pure.
//!
//! Two nodes have one relation with each other at a time, which survives the end of a connection: either of them dials
//! again, for as long as the give-up time. Where both dial at once, the connection that the smaller of the two numbers
//! dialled is kept.
//!
//! A node is its number, and no address. Several may be reached at one, behind a NAT or one after the other, and one
//! node at several. So who dials a node that it knows says whom it means, and who wants an address learns whose it is
//! by the answer.

use super::words::{Hello, Id};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// A connection. Never used twice.
pub(super) type Line = u64;
/// A wish to know somebody, as the caller numbers it.
pub(super) type Wish = u64;

/// Pause between two attempts to reach somebody.
const AGAIN: Duration = Duration::from_millis(100);
/// Two dial each other at once where one of them has done so for less than this time.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Relations that are over and that the other one may not know to be.
const OVER: usize = 1024;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Do {
    /// Connect.
    Dial(Line, SocketAddr),
    /// Say hello, with the relation that is known, to whom it may concern or to one alone.
    Hello(Line, Option<Id>, Option<Id>),
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
    /// What was dialled, and since when.
    to: Option<(SocketAddr, Instant)>,
    /// Who is to answer, if that is known.
    meant: Option<Id>,
    /// Whose it is, once that was said.
    of: Option<Id>,
}

struct Peer {
    number: Option<u32>,
    relation: Id,
    /// Where it is dialled.
    at: SocketAddr,
    /// It has answered there.
    answers_at: BTreeSet<SocketAddr>,
    /// The address that it names, and the host from which it came.
    names: (SocketAddr, IpAddr),
    line: Option<Line>,
    /// Since when it has no connection, and when one is dialled next.
    broken: Option<(Instant, Instant)>,
    /// Wishes that it has fulfilled and that wait for lanes to it.
    waiting: u32,
    /// One of them had a lane, or it was there before them: it does not leave when they give up.
    stays: bool,
}

struct Wanted {
    wish: Wish,
    to: SocketAddr,
    until: Instant,
    again: Instant,
    /// Why there is no answer yet.
    why: String,
}

/// The book of one node.
pub(super) struct Book {
    me: Id,
    rails: usize,
    give_up: Duration,
    lines: BTreeMap<Line, Connection>,
    next: Line,
    peers: BTreeMap<Id, Peer>,
    /// The last relations that this node has ended.
    over: VecDeque<Id>,
    wanted: Vec<Wanted>,
    /// No wish is fulfilled any more.
    refuses: bool,
    out: Vec<Do>,
}

impl Book {
    /// Of a node with so many rails, without peers. One without a connection for `give_up` has left.
    pub fn new(me: Id, rails: usize, give_up: Duration) -> Self {
        let (lines, peers, over) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        let (wanted, out) = (Vec::new(), Vec::new());
        Self { me, rails, give_up, lines, next: 0, peers, over, wanted, refuses: false, out }
    }

    /// What is to be done, in order.
    pub fn take(&mut self) -> Vec<Do> {
        take(&mut self.out)
    }

    fn line(&mut self, to: Option<(SocketAddr, Instant)>, meant: Option<Id>) -> Line {
        self.next += 1;
        self.lines.insert(self.next, Connection { to, meant, of: None });
        self.next
    }

    /// Somebody has connected.
    pub fn accepted(&mut self) -> Line {
        self.line(None, None)
    }

    /// Somebody is to be known, by a time. [`Book::waited`] ends a wish that is fulfilled.
    pub fn want(&mut self, now: Instant, wish: Wish, to: SocketAddr, until: Instant) {
        self.peers.values_mut().filter(|peer| peer.waiting == 0).for_each(|peer| peer.stays = true);
        self.wanted.push(Wanted { wish, to, until, again: now, why: "no answer".to_owned() });
        if self.refuses {
            return self.refuse_all();
        }
        self.fulfil();
    }

    /// Wishes that are fulfilled.
    fn fulfil(&mut self) {
        let Self { peers, wanted, out, .. } = self;
        wanted.retain(|wanted| {
            let is_it = |peer: &&mut Peer| peer.answers_at.contains(&wanted.to) && peer.line.is_some();
            let known = peers.values_mut().filter(is_it);
            let Some((peer, number)) = known.filter_map(|peer| peer.number.map(|it| (peer, it))).next()
            else {
                return true;
            };
            peer.waiting += 1;
            out.push(Do::Answered(wanted.wish, Ok(number)));
            false
        });
    }

    /// Dials an address, for one that is meant or for whoever is there, unless that is under way.
    fn dial(&mut self, now: Instant, to: SocketAddr, meant: Option<Id>) {
        let is_it = |line: &Connection| line.to.is_some_and(|(at, _)| at == to) && line.meant == meant;
        if self.lines.values().any(|line| line.of.is_none() && is_it(line)) {
            return;
        }
        let line = self.line(Some((to, now)), meant);
        let relation = meant.and_then(|id| self.peers.get(&id)).map(|peer| peer.relation);
        self.out.extend([Do::Dial(line, to), Do::Hello(line, relation, meant)]);
    }

    /// Lines on which this node dials that address, for this node or whoever is there, and knows of no answer.
    fn dialled(&self, to: SocketAddr, id: Id) -> impl Iterator<Item = (Line, Instant)> {
        let is_it = move |(line, one): (&Line, &Connection)| match one {
            Connection { to: Some((at, since)), of: None, meant } => {
                (*at == to && meant.is_none_or(|meant| meant == id)).then_some((*line, *since))
            }
            _ => None,
        };
        self.lines.iter().filter_map(is_it)
    }

    /// Time passes.
    pub fn tick(&mut self, now: Instant) {
        let Self { wanted, out, .. } = self;
        wanted.retain(|wanted| {
            if wanted.until <= now {
                out.push(Do::Answered(wanted.wish, Err(wanted.why.clone())));
            }
            wanted.until > now
        });
        let mut dial = Vec::new();
        for wanted in self.wanted.iter_mut().filter(|wanted| wanted.again <= now) {
            wanted.again = now + AGAIN;
            dial.push((wanted.to, None));
        }
        let mut gone = Vec::new();
        for (id, peer) in &mut self.peers {
            let Some((since, again)) = &mut peer.broken else { continue };
            if *since + self.give_up <= now {
                gone.push(*id);
            } else if *again <= now {
                *again = now + AGAIN;
                dial.push((peer.at, Some(*id)));
            }
        }
        gone.iter().for_each(|id| self.forget(id, false));
        dial.into_iter().for_each(|(to, meant)| self.dial(now, to, meant));
    }

    /// When [`Book::tick`] has something to do next.
    pub fn next_time(&self) -> Option<Instant> {
        let wanted = self.wanted.iter().flat_map(|wanted| [wanted.until, wanted.again]);
        let broken = self.peers.values().filter_map(|peer| peer.broken);
        wanted.chain(broken.flat_map(|(since, again)| [since + self.give_up, again])).min()
    }

    /// A peer is gone, and its connections with it.
    fn forget(&mut self, id: &Id, tell: bool) {
        let Some(peer) = self.peers.remove(id) else { return };
        self.over.truncate(OVER - 1);
        self.over.push_front(peer.relation);
        peer.number.into_iter().for_each(|number| self.out.push(Do::Leave(number)));
        let is_its = |(line, one): (&Line, &Connection)| (one.of == Some(*id)).then_some(*line);
        let lines: Vec<_> = self.lines.iter().filter_map(is_its).collect();
        lines.into_iter().for_each(|line| self.drop_line(line, tell));
    }

    fn drop_line(&mut self, line: Line, tell: bool) {
        if self.lines.remove(&line).is_some() {
            self.out.push(Do::Drop(line, tell));
        }
    }

    /// Wishes for an address do not come true, however often it is dialled.
    fn deny(&mut self, to: SocketAddr, why: &str) {
        let denied = self.wanted.extract_if(.., |wanted| wanted.to == to);
        self.out.extend(denied.map(|wanted| Do::Answered(wanted.wish, Err(why.to_owned()))));
    }

    /// Why there is nothing to be had of who says hello, if so.
    fn unfit(&self, hello: &Hello) -> Option<String> {
        let got = hello.address.rails();
        if hello.id == self.me {
            return Some("that is this node itself".to_owned());
        }
        (got != self.rails).then(|| format!("rails: expected {} as here, got {got}", self.rails))
    }

    /// Somebody says who it is, on a connection from `from`; `fresh` is a number for a new relation.
    pub fn hello(&mut self, now: Instant, (line, from): (Line, SocketAddr), hello: Hello, fresh: Id) {
        let Some(Connection { to, of: None, .. }) = self.lines.get(&line) else {
            return self.drop_line(line, false);
        };
        let (dialled, id) = (to.map(|(to, _)| to), hello.id);
        let at = dialled.unwrap_or_else(|| hello.reached(from.ip()));
        if hello.meant.is_some_and(|meant| meant != self.me) {
            // It looks for another one, at an address that leads here.
            return self.drop_line(line, false);
        }
        if let Some(why) = self.unfit(&hello) {
            match dialled {
                Some(to) => self.deny(to, &why),
                // It finds the same.
                None => self.out.push(Do::Hello(line, None, None)),
            }
            return self.drop_line(line, dialled.is_none());
        }
        let rivals: Vec<_> = self.dialled(at, id).filter(|_| dialled.is_none()).collect();
        if self.me < id && rivals.iter().any(|(_, since)| now < *since + AT_ONCE) {
            return self.drop_line(line, false);
        }
        rivals.into_iter().for_each(|(line, _)| self.drop_line(line, false));
        match self.peers.get(&id).map(|peer| peer.relation) {
            Some(relation) if hello.relation == Some(relation) => self.again(line, &id, dialled),
            // It does not know whom it has dialled, or knows of no relation any more. It is told, and says which.
            Some(relation) if dialled.is_none() => {
                self.is_of(line, id);
                self.out.push(Do::Hello(line, Some(relation), None));
            }
            _ if dialled.is_some()
                && hello.relation.is_some_and(|relation| self.over.contains(&relation)) =>
            {
                // It does not know yet that this one is over. It is told, and dialled again.
                self.drop_line(line, true);
            }
            _ => self.begin((line, at, from.ip()), hello, dialled.is_none().then_some(fresh)),
        }
    }

    /// A connection is that of a peer, who has it if it has none.
    fn is_of(&mut self, line: Line, id: Id) {
        self.lines.get_mut(&line).into_iter().for_each(|line| line.of = Some(id));
        if let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.line.is_none()) {
            (peer.line, peer.broken) = (Some(line), None);
        }
    }

    /// The two stay who they are, on this connection.
    fn again(&mut self, line: Line, id: &Id, dialled: Option<SocketAddr>) {
        self.is_of(line, *id);
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.answers_at.extend(dialled);
        let relation = peer.relation;
        if dialled.is_none() {
            // Who dials has none: that which is known here is dead.
            let old = peer.line.replace(line).filter(|old| *old != line);
            old.into_iter().for_each(|old| self.drop_line(old, false));
            self.out.push(Do::Hello(line, Some(relation), None));
        } else if peer.line != Some(line) {
            // It was dialled by another of its addresses.
            self.drop_line(line, false);
        }
        self.fulfil();
    }

    /// Two begin a relation. Who is dialled names it.
    fn begin(&mut self, (line, at, from): (Line, SocketAddr, IpAddr), hello: Hello, own: Option<Id>) {
        let Some(relation) = own.or(hello.relation) else {
            // It goes on to look for another relation.
            return self.drop_line(line, false);
        };
        let (id, names) = (hello.id, (hello.at, from));
        // An earlier relation is over. So is that of a process without a connection whose place was this very one: of
        // one machine, no two listen there.
        let is_place = !hello.at.ip().is_unspecified();
        let is_before = |(known, peer): (&Id, &Peer)| {
            (*known == id || is_place && peer.names == names && peer.line.is_none()).then_some(*known)
        };
        let before: Vec<Id> = self.peers.iter().filter_map(is_before).collect();
        before.iter().for_each(|known| self.forget(known, false));
        let answers_at = own.is_none().then_some(at).into_iter().collect();
        let (line_to, number, broken, waiting, stays) = (None, None, None, 0, false);
        let peer = Peer { number, relation, at, answers_at, names, line: line_to, broken, waiting, stays };
        self.peers.insert(id, peer);
        self.is_of(line, id);
        if own.is_some() {
            self.out.push(Do::Hello(line, Some(relation), None));
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

    /// A connection has ended; `for_good`: who is there would refuse it again.
    pub fn over(&mut self, now: Instant, line: Line, (why, for_good): (&str, bool)) {
        let Some(Connection { to, of, meant }) = self.lines.remove(&line) else { return };
        match to.filter(|_| meant.is_none()) {
            Some((to, _)) if for_good => self.deny(to, why),
            Some((to, _)) => {
                let theirs = self.wanted.iter_mut().filter(|wanted| wanted.to == to);
                theirs.for_each(|wanted| wanted.why = why.to_owned());
            }
            None => {}
        }
        let peer = of.and_then(|id| self.peers.get_mut(&id)).filter(|peer| peer.line == Some(line));
        if let Some(peer) = peer {
            (peer.line, peer.broken) = (None, Some((now, now)));
        }
    }

    fn numbered(&self, number: u32) -> Option<Id> {
        self.peers.iter().find(|(_, peer)| peer.number == Some(number)).map(|(id, _)| *id)
    }

    /// A wish that a peer has fulfilled waits no more: it had a lane, or gave up. A peer that is of no use to any is
    /// told, and the engine cuts it off.
    pub fn waited(&mut self, number: u32, had_a_lane: bool) {
        let Some(id) = self.numbered(number) else { return };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.waiting = peer.waiting.saturating_sub(1);
        peer.stays |= had_a_lane;
        if peer.waiting == 0 && !peer.stays {
            self.forget(&id, true);
        }
    }

    /// A peer was cut off at this end: it is told.
    pub fn cut(&mut self, number: u32) {
        self.numbered(number).into_iter().for_each(|id| {
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
        self.refuses = true;
        let failed = take(&mut self.wanted).into_iter();
        self.out.extend(failed.map(|wanted| Do::Answered(wanted.wish, Err("this node leaves".to_owned()))));
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
