//! What other processes say, and what is late.

use super::address::Name;
use super::core::{Action, BY_PROGRAM, Core, NO_LISTENER};
use super::id::{EventKind, Id, Link, State};
use super::message::{Kind, Message, Terms};
use std::net::Ipv4Addr;

/// How often an address is looked for.
const LOOK_MS: u64 = 50;
const TIMED_OUT: i32 = -libc::ETIMEDOUT;

/// What became of a way to another process that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No program listens there.
    NoListener,
    /// No NIC has the address.
    NoProcess,
}

impl Core {
    /// What came of looking for an address.
    pub fn found(&mut self, number: u32, peer: Option<Ipv4Addr>) {
        let Some(id) = self.ids.get_mut(&number) else { return };
        let (State::Resolving(_), Some(peer), Some(nic)) = (id.state, peer, id.nic) else { return };
        let ip = self.nics[nic].ip;
        (id.state, id.peer) = (State::Resolved, Some(peer));
        id.source = id.source.map(|source| Name { ip, ..source });
        self.tell(number, EventKind::AddrResolved, 0, Terms::default());
    }

    /// A way that was asked for is not there.
    pub fn refused(&mut self, link: Link, refusal: Refusal) {
        let Some(number) = self.of_link(link) else { return };
        let (kind, status) = match refusal {
            Refusal::NoListener => (EventKind::Rejected, NO_LISTENER.into()),
            Refusal::NoProcess => (EventKind::Unreachable, TIMED_OUT),
        };
        self.end(number, kind, status);
    }

    fn of_link(&self, link: Link) -> Option<u32> {
        self.ids.iter().find(|(_, id)| id.link == Some(link)).map(|(number, _)| *number)
    }

    /// An identifier's connection is over, or will never be; the program is told so.
    pub(super) fn end(&mut self, number: u32, kind: EventKind, status: i32) {
        self.end_with(number, kind, status, Terms::default());
    }

    fn end_with(&mut self, number: u32, kind: EventKind, status: i32, terms: Terms) {
        let Some(id) = self.ids.get_mut(&number) else { return };
        id.state = State::Ended;
        if let Some(link) = id.link.take() {
            self.actions.push(Action::Close(link));
        }
        self.tell(number, kind, status, terms);
    }

    /// The first message that came by a link to a listener. Anything but a request ends it.
    pub fn arrived(&mut self, listener: u32, link: Link, message: Message) {
        let known = self.ids.get(&listener).filter(|id| id.state == State::Listening);
        let (Some(known), Kind::Request) = (known, message.kind) else {
            return self.actions.push(Action::Close(link));
        };
        let nic = self.nics.iter().position(|nic| nic.ip == message.to.0);
        let (Some(nic), Some(source)) = (nic, known.source) else {
            return self.refuse(link, NO_LISTENER, Vec::new());
        };
        let file = known.file;
        let name = |(ip, port): (Ipv4Addr, u16)| Name { is_v6: source.is_v6, ip, port };
        let own = self.own_terms(nic, Terms::default());
        let others = swapped(message.terms);
        let id = Id {
            state: State::Requested,
            nic: Some(nic),
            source: Some(name(message.to)),
            target: Some(name(message.from)),
            peer: Some(message.from.0),
            link: Some(link),
            own,
            others: others.clone(),
            ..Id::new(file, 0)
        };
        let number = self.add(id);
        if !self.tell_request(listener, number, others) {
            self.ids.remove(&number);
            self.refuse(link, BY_PROGRAM, Vec::new());
        }
    }

    /// A message came by a link.
    pub fn message(&mut self, link: Link, message: Message) {
        let Some(number) = self.of_link(link) else { return };
        let Some(id) = self.ids.get_mut(&number) else { return };
        match (message.kind, id.state) {
            (Kind::Reply, State::Connecting(_)) => {
                let terms = swapped(message.terms);
                (id.state, id.others) = (State::Answered, terms.clone());
                self.tell(number, EventKind::ConnectResponse, 0, terms);
            }
            (Kind::Reject, State::Connecting(_) | State::Accepted) => {
                let status = message.reason.into();
                self.end_with(number, EventKind::Rejected, status, message.terms);
            }
            (Kind::Reject, State::Requested | State::Answered) => self.lost(link),
            (Kind::Ready, State::Accepted) => {
                id.state = State::Connected;
                self.tell(number, EventKind::Established, 0, Terms::default());
            }
            // The word that it is ready cannot come any more.
            (Kind::Disconnect, State::Accepted | State::Connected) => {
                id.state = State::Left;
                self.tell(number, EventKind::Disconnected, 0, Terms::default());
            }
            // Both ask for the end at once.
            (Kind::Disconnect, State::Leaving(_)) => {
                self.actions.push(Action::Send(link, Message::plain(Kind::Disconnected)));
                self.end(number, EventKind::Disconnected, 0);
            }
            (Kind::Disconnected, State::Leaving(_)) => self.end(number, EventKind::Disconnected, 0),
            // What makes no sense where it comes is not for us.
            _ => {}
        }
    }

    /// The other end of a link is gone: the process, or what it had there.
    pub fn lost(&mut self, link: Link) {
        let Some(number) = self.of_link(link) else { return };
        let Some(id) = self.ids.get_mut(&number) else { return };
        match id.state {
            State::Connecting(_) | State::Accepted => self.end(number, EventKind::Unreachable, TIMED_OUT),
            State::Connected | State::Leaving(_) => self.end(number, EventKind::Disconnected, 0),
            // The program finds out when it says that it is ready.
            State::Answered => {
                id.is_lost = true;
                id.link = None;
                self.actions.push(Action::Close(link));
            }
            _ => {
                (id.state, id.link) = (State::Ended, None);
                self.actions.push(Action::Close(link));
            }
        }
    }

    /// Does what is due, and says when it must be asked again at the latest.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        let (mut late, mut next) = (Vec::new(), None::<u64>);
        let mut at = |time: u64| next = Some(next.map_or(time, |next| next.min(time)));
        for (number, id) in &self.ids {
            match id.state {
                State::Resolving(until) | State::Connecting(until) | State::Leaving(until)
                    if until <= now =>
                {
                    late.push(*number);
                }
                State::Resolving(until) => {
                    at(until.min(now + LOOK_MS));
                    if let (Some(name), Some(nic)) = (id.target, id.nic) {
                        self.actions.push(Action::Look { id: *number, name, nic });
                    }
                }
                State::Connecting(until) | State::Leaving(until) => at(until),
                _ => {}
            }
        }
        for number in late {
            let Some(id) = self.ids.get_mut(&number) else { continue };
            match id.state {
                // There is no listener on this machine: this process will say so.
                State::Resolving(_) if id.target.is_some_and(Name::is_open) => {
                    let own = id.nic.map(|nic| self.nics[nic].ip);
                    self.found(number, own);
                }
                State::Resolving(_) => {
                    // As it was: the program may ask again.
                    id.state = State::Bound;
                    self.tell(number, EventKind::AddrError, TIMED_OUT, Terms::default());
                }
                State::Leaving(_) => self.end(number, EventKind::Disconnected, TIMED_OUT),
                _ => self.end(number, EventKind::Unreachable, TIMED_OUT),
            }
        }
        next
    }
}

/// As the other end sees it: what one asks for is what the other answers.
fn swapped(terms: Terms) -> Terms {
    Terms { responder_resources: terms.initiator_depth, initiator_depth: terms.responder_resources, ..terms }
}
