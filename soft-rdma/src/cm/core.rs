//! The connection manager of one process: what its identifiers are, and what the program's commands do to them.
//!
//! It makes no system call. What it wants done outside is in [`Core::take_actions`]; what comes of that, and what other
//! processes say, is for `connections`. Time is a number of milliseconds that the caller has.

use super::address::Name;
use super::id::{Event, EventKind, Id, Link, State};
use super::message::{Kind, Message, Terms};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::Ipv4Addr;

/// How long the other end may think about a request: a program that accepts may have much to make ready.
const ANSWER_MS: u64 = 60_000;
/// How long it may take to agree to the end of a connection.
const LEAVE_MS: u64 = 4_000;
/// How long a listener on this machine is looked for: programs close one and open the next.
const OPEN_MS: u64 = 1_000;
/// Most requests that may wait, whatever a program asks for.
const BACKLOG_MOST: usize = 1024;
/// Ports that are given to those who ask for none.
const FREE_PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// A refusal for want of a listener.
pub const NO_LISTENER: u16 = 8;
/// A refusal by the program.
pub const BY_PROGRAM: u16 = 28;

/// Bytes of private data that a request has room for.
pub const REQUEST_PRIVATE: usize = 56;
/// And an answer.
pub const REPLY_PRIVATE: usize = 196;
/// And a refusal.
pub const REJECT_PRIVATE: usize = 148;

/// A NIC that connections may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicInfo {
    /// The address that its GID stands for.
    pub ip: Ipv4Addr,
    /// GUID of the device.
    pub guid: u64,
    /// Index of the device.
    pub index: u32,
    /// Bytes of a packet at most.
    pub mtu: u16,
}

/// What shall happen outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Find out which NIC has an address, and answer with `found`.
    Look {
        /// Who asks.
        id: u32,
        /// The address and the port.
        name: Name,
        /// The NIC that is to go there.
        nic: usize,
    },
    /// Take requests at this port of NICs, and name the identifier with each.
    Listen {
        /// Who takes them.
        id: u32,
        /// The NICs' addresses.
        ips: Vec<Ipv4Addr>,
        /// The port.
        port: u16,
    },
    /// Take none any more.
    Unlisten {
        /// Who took them.
        id: u32,
    },
    /// Go to an address, and send this there. Asked for at this time.
    Dial(Link, Message, u64),
    /// Send this.
    Send(Link, Message),
    /// The way is not needed any more.
    Close(Link),
}

/// The connection manager of one process.
pub struct Core {
    pub(super) nics: Vec<NicInfo>,
    pub(super) ids: BTreeMap<u32, Id>,
    /// Events of each open file.
    files: HashMap<u64, VecDeque<Event>>,
    pub(super) actions: Vec<Action>,
    next_id: u32,
    next_link: u64,
    next_port: u16,
    psn: u32,
}

impl Core {
    /// With these NICs; `seed` is where packet numbers begin.
    pub fn new(nics: Vec<NicInfo>, seed: u32) -> Self {
        let (ids, files) = (BTreeMap::new(), HashMap::new());
        let next_port = FREE_PORTS.start() + (seed % 16_384) as u16;
        Self { nics, ids, files, actions: Vec::new(), next_id: 0, next_link: 0, next_port, psn: seed }
    }

    /// What shall happen outside, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// A number for a way to another process.
    pub fn new_link(&mut self) -> Link {
        self.next_link += 1;
        Link(self.next_link)
    }

    /// A file was opened.
    pub fn open(&mut self, file: u64) {
        self.files.insert(file, VecDeque::new());
    }

    /// A file is closed, and so is all that belongs to it.
    pub fn close(&mut self, file: u64) {
        let ids: Vec<u32> = self.ids.iter().filter(|(_, id)| id.file == file).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| _ = self.remove(id));
        self.files.remove(&file);
    }

    /// True while a file has events.
    pub fn has_event(&self, file: u64) -> bool {
        self.files.get(&file).is_some_and(|events| !events.is_empty())
    }

    /// The next event of a file.
    pub fn take_event(&mut self, file: u64) -> Option<Event> {
        let mut event = self.files.get_mut(&file)?.pop_front()?;
        if let Some(owner) = self.ids.get_mut(&event.owner) {
            owner.reported += 1;
            event.uid = owner.uid;
        }
        Some(event)
    }

    /// Puts an event back that could not be told.
    pub fn untake_event(&mut self, file: u64, event: Event) {
        if let Some(owner) = self.ids.get_mut(&event.owner) {
            owner.reported -= 1;
        }
        if let Some(events) = self.files.get_mut(&file) {
            events.push_front(event);
        }
    }

    /// A NIC, by place in the list.
    pub fn nic(&self, at: usize) -> NicInfo {
        self.nics[at]
    }

    /// Tells the program of an event. One of a connection that the program has no number for yet is kept from it.
    pub(super) fn tell(&mut self, id: u32, kind: EventKind, status: i32, terms: Terms) {
        let Some(known) = self.ids.get(&id) else { return };
        if known.uid != 0 {
            let event = Event { kind, id, owner: id, uid: known.uid, status, terms };
            self.files.entry(known.file).or_default().push_back(event);
        }
    }

    /// Tells the program of a request. False if so many wait already that it is refused.
    pub(super) fn tell_request(&mut self, listener: u32, id: u32, terms: Terms) -> bool {
        let Some(known) = self.ids.get(&listener) else { return false };
        let events = self.files.entry(known.file).or_default();
        let waits = |event: &&Event| event.kind == EventKind::ConnectRequest && event.owner == listener;
        if events.iter().filter(waits).count() >= known.backlog {
            return false;
        }
        let kind = EventKind::ConnectRequest;
        events.push_back(Event { kind, id, owner: listener, uid: known.uid, status: 0, terms });
        true
    }

    /// CREATE_ID.
    pub fn create(&mut self, file: u64, uid: u64) -> u32 {
        self.add(Id::new(file, uid))
    }

    pub(super) fn add(&mut self, id: Id) -> u32 {
        let number = self.next_id;
        self.next_id += 1;
        self.ids.insert(number, id);
        number
    }

    /// An identifier of a file: ENOENT if there is none of that number, EINVAL if it belongs to another file.
    pub fn id(&mut self, file: u64, id: u32) -> Result<&mut Id, Errno> {
        let known = self.ids.get_mut(&id).ok_or(Errno::NOENT)?;
        if known.file == file { Ok(known) } else { Err(Errno::INVAL) }
    }

    /// DESTROY_ID: how many events of it the program was told of.
    pub fn destroy(&mut self, file: u64, id: u32) -> Result<u32, Errno> {
        self.id(file, id)?;
        Ok(self.remove(id))
    }

    /// Ends whatever an identifier has, and forgets it and its events.
    fn remove(&mut self, number: u32) -> u32 {
        let Some(id) = self.ids.remove(&number) else { return 0 };
        match (id.state, id.link) {
            (State::Listening, _) => self.actions.push(Action::Unlisten { id: number }),
            (State::Requested | State::Answered, Some(link)) => self.refuse(link, BY_PROGRAM, Vec::new()),
            // The other end takes it for the end of the connection.
            (_, Some(link)) => self.actions.push(Action::Close(link)),
            (_, None) => {}
        }
        let events = self.files.get_mut(&id.file).map(std::mem::take).unwrap_or_default();
        let (gone, kept): (VecDeque<Event>, _) = events.into_iter().partition(|event| event.owner == number);
        if let Some(events) = self.files.get_mut(&id.file) {
            *events = kept;
        }
        // Nobody was told of these.
        for event in gone.into_iter().filter(|event| event.id != number) {
            self.remove(event.id);
        }
        id.reported
    }

    /// Refuses what came by a link, and leaves it.
    pub(super) fn refuse(&mut self, link: Link, reason: u16, private: Vec<u8>) {
        let terms = Terms { private, ..Terms::default() };
        self.actions.push(Action::Send(link, Message { reason, terms, ..Message::plain(Kind::Reject) }));
        self.actions.push(Action::Close(link));
    }

    /// The NIC with an address; `None` is any.
    fn nic_of(&self, name: Name) -> Result<Option<usize>, Errno> {
        if name.is_open() {
            return Ok(None);
        }
        let at = self.nics.iter().position(|nic| nic.ip == name.ip);
        at.map(Some).ok_or(Errno::ADDRNOTAVAIL)
    }

    /// True if the port is somebody's at this address. Ends of connections have ports of their own kind.
    fn is_taken(&self, name: Name, reuse: bool) -> bool {
        let meets = |other: Name| other.is_open() || name.is_open() || other.ip == name.ip;
        self.ids.values().any(|id| {
            let binds = !matches!(id.state, State::Requested | State::Accepted | State::Connected);
            let shares = reuse && id.reuse && id.state != State::Listening;
            let same = id.source.is_some_and(|other| other.port == name.port && meets(other));
            same && binds && id.peer.is_none() && !shares
        })
    }

    fn free_port(&mut self) -> Result<u16, Errno> {
        for _ in FREE_PORTS {
            let port = self.next_port;
            self.next_port = if FREE_PORTS.contains(&(port + 1)) { port + 1 } else { *FREE_PORTS.start() };
            let taken = |id: &Id| id.source.is_some_and(|source| source.port == port);
            if !self.ids.values().any(taken) {
                return Ok(port);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// BIND.
    pub fn bind(&mut self, file: u64, number: u32, name: Name) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        if id.state != State::Idle {
            return Err(Errno::INVAL);
        }
        let reuse = id.reuse;
        let nic = self.nic_of(name)?;
        let port = match name.port {
            0 => self.free_port()?,
            _ if self.is_taken(name, reuse) => return Err(Errno::ADDRINUSE),
            port => port,
        };
        let id = self.id(file, number)?;
        (id.state, id.nic, id.source) = (State::Bound, nic, Some(Name { port, ..name }));
        Ok(())
    }

    /// RESOLVE_ADDR.
    pub fn resolve(
        &mut self,
        file: u64,
        number: u32,
        (source, target): (Option<Name>, Name),
        (now, timeout): (u64, u64),
    ) -> Result<(), Errno> {
        if self.id(file, number)?.state == State::Idle {
            let any = Name { is_v6: target.is_v6, ..Name::ANY };
            self.bind(file, number, source.unwrap_or(any))?;
        }
        let rail = self.nics.iter().position(|nic| nic.ip.octets()[..2] == target.ip.octets()[..2]);
        let nics = self.nics.len();
        let id = self.id(file, number)?;
        if id.state != State::Bound || id.source.is_some_and(|source| source.is_v6 != target.is_v6) {
            return Err(Errno::INVAL);
        }
        // One of the rail that the other end is on, where there is one.
        let nic = id.nic.or(rail).unwrap_or(0);
        if nic >= nics {
            return Err(Errno::NODEV);
        }
        let timeout = if target.is_open() { timeout.min(OPEN_MS) } else { timeout };
        (id.state, id.nic, id.target) = (State::Resolving(now + timeout), Some(nic), Some(target));
        self.actions.push(Action::Look { id: number, name: target, nic });
        Ok(())
    }

    /// RESOLVE_ROUTE: every NIC of the fabric reaches every other.
    pub fn resolve_route(&mut self, file: u64, number: u32) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        if id.state != State::Resolved {
            return Err(Errno::INVAL);
        }
        id.state = State::Routed;
        self.tell(number, EventKind::RouteResolved, 0, Terms::default());
        Ok(())
    }

    /// LISTEN.
    pub fn listen(&mut self, file: u64, number: u32, backlog: i32) -> Result<(), Errno> {
        if self.id(file, number)?.state == State::Idle {
            self.bind(file, number, Name::ANY)?;
        }
        let id = self.id(file, number)?;
        let State::Bound = id.state else { return Err(Errno::INVAL) };
        let Some(source) = id.source else { return Err(Errno::INVAL) };
        let wanted = usize::try_from(backlog).unwrap_or(0);
        id.backlog = if wanted == 0 { BACKLOG_MOST } else { wanted.min(BACKLOG_MOST) };
        id.state = State::Listening;
        let nic = id.nic;
        let ips = match nic {
            Some(nic) => vec![self.nics[nic].ip],
            None => self.nics.iter().map(|nic| nic.ip).collect(),
        };
        self.actions.push(Action::Listen { id: number, ips, port: source.port });
        Ok(())
    }

    /// What an end says of itself: with a packet number and the packet size of its NIC.
    pub(super) fn own_terms(&mut self, nic: usize, wanted: Terms) -> Terms {
        // Numbers that differ from connection to connection; 24 bits of them count.
        self.psn = self.psn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Terms { psn: self.psn >> 8, mtu: self.nics[nic].mtu, ..wanted }
    }

    /// CONNECT.
    pub fn connect(&mut self, file: u64, number: u32, wanted: Terms, now: u64) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        let (Some(nic), Some(source), Some(target), Some(peer)) = (id.nic, id.source, id.target, id.peer)
        else {
            return Err(Errno::INVAL);
        };
        if id.state != State::Routed || wanted.private.len() > REQUEST_PRIVATE {
            return Err(Errno::INVAL);
        }
        let (terms, link) = (self.own_terms(nic, wanted), self.new_link());
        let id = self.id(file, number)?;
        (id.state, id.link, id.own) = (State::Connecting(now + ANSWER_MS), Some(link), terms.clone());
        let (from, to) = ((source.ip, source.port), (peer, target.port));
        let request = Message { from, to, terms, ..Message::plain(Kind::Request) };
        self.actions.push(Action::Dial(link, request, now));
        Ok(())
    }

    /// ACCEPT with terms: of a request.
    pub fn accept(&mut self, file: u64, number: u32, uid: u64, wanted: Terms) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        let (State::Requested, Some(link)) = (id.state, id.link) else {
            return Err(Errno::INVAL);
        };
        if wanted.private.len() > REPLY_PRIVATE {
            return Err(Errno::INVAL);
        }
        // The packet number may be in the queue pair already.
        let (psn, mtu) = (id.own.psn, id.own.mtu);
        // An answer has no such count: the one that asked has given it.
        let terms = Terms { psn, mtu, retry_count: 0, ..wanted };
        (id.state, id.uid, id.own) = (State::Accepted, uid, terms.clone());
        self.actions.push(Action::Send(link, Message { terms, ..Message::plain(Kind::Reply) }));
        Ok(())
    }

    /// ACCEPT without terms: of an answer.
    pub fn ready(&mut self, file: u64, number: u32) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        if id.state != State::Answered {
            return Err(Errno::INVAL);
        }
        id.state = State::Connected;
        match (id.link, id.is_lost) {
            (Some(link), false) => {
                self.actions.push(Action::Send(link, Message::plain(Kind::Ready)));
            }
            _ => self.end(number, EventKind::Disconnected, 0),
        }
        Ok(())
    }

    /// REJECT.
    pub fn reject(&mut self, file: u64, number: u32, reason: u16, private: Vec<u8>) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        let (State::Requested | State::Answered, Some(link)) = (id.state, id.link) else {
            return Err(Errno::INVAL);
        };
        if private.len() > REJECT_PRIVATE {
            return Err(Errno::INVAL);
        }
        (id.state, id.link) = (State::Ended, None);
        self.refuse(link, reason, private);
        Ok(())
    }

    /// DISCONNECT.
    pub fn disconnect(&mut self, file: u64, number: u32, now: u64) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        match (id.state, id.link) {
            (State::Connected | State::Accepted, Some(link)) => {
                id.state = State::Leaving(now + LEAVE_MS);
                self.actions.push(Action::Send(link, Message::plain(Kind::Disconnect)));
            }
            (State::Left, Some(link)) => {
                (id.state, id.link) = (State::Ended, None);
                self.actions.push(Action::Send(link, Message::plain(Kind::Disconnected)));
                self.actions.push(Action::Close(link));
            }
            // It is done already.
            (State::Left | State::Leaving(_) | State::Ended, _) => {}
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// NOTIFY that a message came by the queue pair.
    pub fn established(&mut self, file: u64, number: u32) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        match id.state {
            State::Accepted => {
                id.state = State::Connected;
                self.tell(number, EventKind::Established, 0, Terms::default());
                Ok(())
            }
            State::Connected => Err(Errno::ISCONN),
            _ => Err(Errno::INVAL),
        }
    }

    /// MIGRATE_ID: an identifier of file `from` belongs to file `to`, with its events.
    pub fn migrate(&mut self, from: u64, to: u64, number: u32) -> Result<u32, Errno> {
        let id = self.id(from, number)?;
        id.file = to;
        let reported = id.reported;
        let events = self.files.get_mut(&from).map(std::mem::take).unwrap_or_default();
        let (moved, kept): (VecDeque<Event>, _) = events.into_iter().partition(|event| event.owner == number);
        // Requests that wait belong to the file that will be told of them.
        for event in moved.iter().filter(|event| event.id != number) {
            if let Some(request) = self.ids.get_mut(&event.id) {
                request.file = to;
            }
        }
        self.files.insert(from, kept);
        self.files.entry(to).or_default().extend(moved);
        Ok(reported)
    }
}
