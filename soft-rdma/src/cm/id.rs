//! What a connection manager knows of one identifier.

use super::address::Name;
use super::message::Terms;
use std::net::Ipv4Addr;

/// Numbers of `rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the header's
#[repr(u32)]
pub enum EventKind {
    AddrResolved = 0,
    AddrError = 1,
    RouteResolved = 2,
    ConnectRequest = 4,
    ConnectResponse = 5,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
}

/// An event that a program is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The identifier it happened to; of a request the new one.
    pub id: u32,
    /// The identifier whose count it adds to: of a request the one that listens.
    pub owner: u32,
    /// The program's own number of the owner, as it was then.
    pub uid: u64,
    /// 0, an error below it, or the reason of a refusal.
    pub status: i32,
    /// What the other end said.
    pub terms: Terms,
}

/// Number of a way to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(pub u64);

/// How far an identifier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// New.
    Idle,
    /// It has an address.
    Bound,
    /// It looks for another address until then, ms.
    Resolving(u64),
    /// It knows the other address.
    Resolved,
    /// It knows the way there.
    Routed,
    /// It takes requests.
    Listening,
    /// It asked, and waits until then, ms.
    Connecting(u64),
    /// It was accepted, and has not said that it is ready.
    Answered,
    /// It was asked, and the program has not decided.
    Requested,
    /// The program accepted; the other end is not ready yet.
    Accepted,
    /// Both ends are ready.
    Connected,
    /// It asked for the end, and waits until then, ms.
    Leaving(u64),
    /// The other end asked for the end.
    Left,
    /// It had a connection, or nearly.
    Ended,
}

/// One identifier.
#[derive(Debug)]
pub struct Id {
    /// The open file it belongs to.
    pub file: u64,
    /// The program's own number; 0 while it has none.
    pub uid: u64,
    /// How far it is.
    pub state: State,
    /// Its NIC, by place in the list.
    pub nic: Option<usize>,
    /// Its own address, as programs see it.
    pub source: Option<Name>,
    /// The other end's, as programs see it.
    pub target: Option<Name>,
    /// The address of the NIC at the other end.
    pub peer: Option<Ipv4Addr>,
    /// Addresses may be shared with identifiers that listen elsewhere.
    pub reuse: bool,
    /// Requests that may wait.
    pub backlog: usize,
    /// The way to the other end.
    pub link: Option<Link>,
    /// The other end went away before it was answered.
    pub is_lost: bool,
    /// What this end says.
    pub own: Terms,
    /// What the other end said.
    pub others: Terms,
    /// Exponent of the acknowledgement timeout, if the program wants one.
    pub ack_timeout: Option<u8>,
    /// Events that the program was told of.
    pub reported: u32,
}

impl Id {
    /// A new one.
    pub fn new(file: u64, uid: u64) -> Self {
        Self {
            file,
            uid,
            state: State::Idle,
            nic: None,
            source: None,
            target: None,
            peer: None,
            reuse: false,
            backlog: 0,
            link: None,
            is_lost: false,
            own: Terms::default(),
            others: Terms::default(),
            ack_timeout: None,
            reported: 0,
        }
    }
}
