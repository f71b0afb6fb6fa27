//! Two managers that talk through vectors, and commands as bytes.

use super::address::Name;
use super::commands::{self, Body, Caller, HEADER, Header, number};
use super::connections::Refusal;
use super::core::{Action, BY_PROGRAM, Core, NO_LISTENER, NicInfo};
use super::id::{EventKind, Link};
use super::message::{Kind, Message, Terms};
use proptest::prelude::*;
use rustix::io::Errno;
use std::net::Ipv4Addr;

const FILE: u64 = 7;
const PORT: u16 = 7174;

fn ip(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

fn name(ip: Ipv4Addr, port: u16) -> Name {
    Name { is_v6: false, ip, port }
}

fn manager(n: u8) -> Core {
    let nic = NicInfo { ip: ip(n), guid: n.into(), index: 0, mtu: if n == 1 { 4096 } else { 1024 } };
    let mut core = Core::new(vec![nic], n.into());
    core.open(FILE);
    core
}

fn terms(private: &[u8]) -> Terms {
    Terms {
        qp_num: 0x41,
        responder_resources: 1,
        initiator_depth: 2,
        retry_count: 7,
        rnr_retry_count: 6,
        private: private.to_vec(),
        ..Terms::default()
    }
}

fn kinds(core: &mut Core) -> Vec<(EventKind, u32, i32)> {
    std::iter::from_fn(|| core.take_event(FILE)).map(|event| (event.kind, event.id, event.status)).collect()
}

/// A server that listens, and a client that is about to connect to it.
struct Pair {
    server: Core,
    client: Core,
    listener: u32,
    /// The client's identifier.
    id: u32,
    /// The server's end of the way.
    link: Link,
}

fn pair() -> Pair {
    let (mut server, mut client) = (manager(1), manager(2));
    let listener = server.create(FILE, 100);
    server.bind(FILE, listener, name(Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    server.listen(FILE, listener, 1).unwrap();
    let listens = Action::Listen { id: listener, ips: vec![ip(1)], port: PORT };
    assert_eq!(server.take_actions(), [listens]);
    let id = client.create(FILE, 200);
    client.resolve(FILE, id, (None, name(ip(1), PORT)), (0, 500)).unwrap();
    client.found(id, Some(ip(1)));
    client.resolve_route(FILE, id).unwrap();
    assert_eq!(kinds(&mut client), [(EventKind::AddrResolved, id, 0), (EventKind::RouteResolved, id, 0)]);
    client.take_actions();
    let link = server.new_link();
    Pair { server, client, listener, id, link }
}

fn dialled(core: &mut Core) -> (Link, Message) {
    match core.take_actions().pop() {
        Some(Action::Dial(link, message, _)) => (link, message),
        other => panic!("expected a dial, got {other:?}"),
    }
}

fn sent(core: &mut Core) -> Message {
    let actions = core.take_actions();
    let message = actions.into_iter().find_map(|action| match action {
        Action::Send(_, message) => Some(message),
        _ => None,
    });
    message.expect("a message")
}

impl Pair {
    /// The client asks; the server's identifier for it, and the client's way.
    fn ask(&mut self) -> (u32, Link) {
        self.client.connect(FILE, self.id, terms(b"hello"), 0).unwrap();
        let (way, request) = dialled(&mut self.client);
        self.server.arrived(self.listener, self.link, request);
        let event = self.server.take_event(FILE).unwrap();
        assert_eq!((event.kind, event.owner, event.uid), (EventKind::ConnectRequest, self.listener, 100));
        (event.id, way)
    }

    /// Both are connected.
    fn connect(&mut self) -> (u32, Link) {
        let (of_server, way) = self.ask();
        self.server.accept(FILE, of_server, 101, terms(b"welcome")).unwrap();
        let reply = sent(&mut self.server);
        self.client.message(way, reply);
        assert_eq!(kinds(&mut self.client), [(EventKind::ConnectResponse, self.id, 0)]);
        self.client.ready(FILE, self.id).unwrap();
        let ready = sent(&mut self.client);
        self.server.message(self.link, ready);
        assert_eq!(kinds(&mut self.server), [(EventKind::Established, of_server, 0)]);
        (of_server, way)
    }
}

#[test]
fn a_connection_is_made_and_ended_by_both() {
    let mut pair = pair();
    let (of_server, way) = pair.connect();
    pair.client.disconnect(FILE, pair.id, 10).unwrap();
    let leave = sent(&mut pair.client);
    assert_eq!(leave.kind, Kind::Disconnect);
    pair.server.message(pair.link, leave);
    assert_eq!(kinds(&mut pair.server), [(EventKind::Disconnected, of_server, 0)]);
    assert_eq!(kinds(&mut pair.client), [], "the other end has not agreed");
    pair.server.disconnect(FILE, of_server, 11).unwrap();
    let left = sent(&mut pair.server);
    pair.client.message(way, left);
    assert_eq!(kinds(&mut pair.client), [(EventKind::Disconnected, pair.id, 0)]);
    // Three of the client's, and the two that led there.
    assert_eq!(pair.client.destroy(FILE, pair.id), Ok(4));
    assert_eq!(pair.client.destroy(FILE, pair.id), Err(Errno::NOENT));
}

#[test]
fn each_end_knows_what_the_other_said() {
    let mut pair = pair();
    pair.client.connect(FILE, pair.id, terms(b"hello"), 0).unwrap();
    let (_, request) = dialled(&mut pair.client);
    assert_eq!((request.to, request.from.0, request.terms.mtu), ((ip(1), PORT), ip(2), 1024));
    pair.server.arrived(pair.listener, pair.link, request);
    let event = pair.server.take_event(FILE).unwrap();
    // What the client asks for is what the server answers.
    assert_eq!((event.terms.responder_resources, event.terms.initiator_depth), (2, 1));
    assert_eq!(event.terms.private, b"hello");
    let bytes = event.write();
    assert_eq!((bytes.len(), bytes[28..33].to_vec(), bytes[284]), (336, b"hello".to_vec(), 56));
    // RTR: the smaller packet, READs allowed, the other queue pair and its GID.
    let attributes = pair.server.attributes(&pair.server.ids[&event.id], 2).unwrap();
    assert_eq!((attributes[12], attributes[32], attributes[36]), (3, 0x41, 0b1110));
    assert_eq!(attributes[50..56], [255, 255, 10, 0, 0, 2]);
    assert_eq!((attributes[130], attributes[131], attributes[135]), (1, 2, 7));
    assert_eq!(pair.client.attributes(&pair.client.ids[&pair.id], 2), Err(Errno::INVAL), "no answer yet");
}

#[test]
fn the_end_of_a_process_is_told() {
    let mut pair = pair();
    let (of_server, way) = pair.connect();
    pair.server.lost(pair.link);
    assert_eq!(kinds(&mut pair.server), [(EventKind::Disconnected, of_server, 0)]);
    pair.client.close(FILE);
    assert_eq!(pair.client.take_actions(), [Action::Close(way)]);
}

#[test]
fn the_end_of_a_process_before_its_word_is_told() {
    // Before it answers.
    let mut first = pair();
    let (_, way) = first.ask();
    first.client.lost(way);
    assert_eq!(kinds(&mut first.client), [(EventKind::Unreachable, first.id, -libc::ETIMEDOUT)]);
    // Before it is accepted: the program has no number for it, and its accept fails.
    let mut second = pair();
    let (of_server, _) = second.ask();
    second.server.lost(second.link);
    assert_eq!(kinds(&mut second.server), []);
    assert_eq!(second.server.accept(FILE, of_server, 101, terms(b"")), Err(Errno::INVAL));
    // After it accepted, before the client says that it is ready.
    let mut third = pair();
    let (of_server, way) = third.ask();
    third.server.accept(FILE, of_server, 101, terms(b"")).unwrap();
    let reply = sent(&mut third.server);
    third.client.message(way, reply);
    third.client.lost(way);
    assert_eq!(kinds(&mut third.client), [(EventKind::ConnectResponse, third.id, 0)]);
    third.client.ready(FILE, third.id).unwrap();
    assert_eq!(kinds(&mut third.client), [(EventKind::Disconnected, third.id, 0)]);
}

#[test]
fn refusals_have_their_reasons() {
    let mut by_program = pair();
    let (of_server, way) = by_program.ask();
    by_program.server.reject(FILE, of_server, BY_PROGRAM, b"no".to_vec()).unwrap();
    let refusal = sent(&mut by_program.server);
    by_program.client.message(way, refusal);
    let event = by_program.client.take_event(FILE).unwrap();
    assert_eq!((event.kind, event.status, &event.terms.private[..]), (EventKind::Rejected, 28, &b"no"[..]));
    let mut nothing_there = pair();
    nothing_there.client.connect(FILE, nothing_there.id, terms(b""), 0).unwrap();
    let (way, _) = dialled(&mut nothing_there.client);
    nothing_there.client.refused(way, Refusal::NoListener);
    let refused = (EventKind::Rejected, nothing_there.id, NO_LISTENER.into());
    assert_eq!(kinds(&mut nothing_there.client), [refused]);
    // One request waits; the next is refused.
    let mut full = pair();
    full.client.connect(FILE, full.id, terms(b""), 0).unwrap();
    let (_, request) = dialled(&mut full.client);
    full.server.arrived(full.listener, full.link, request.clone());
    let link = full.server.new_link();
    full.server.arrived(full.listener, link, request);
    assert_eq!(sent(&mut full.server).reason, BY_PROGRAM);
    assert_eq!(full.server.ids.len(), 2);
    full.server.destroy(FILE, full.listener).unwrap();
    assert_eq!(full.server.ids.len(), 0, "requests that wait go with their listener");
}

#[test]
fn what_is_late_ends() {
    let mut client = manager(2);
    let id = client.create(FILE, 200);
    client.resolve(FILE, id, (None, name(ip(9), PORT)), (1000, 500)).unwrap();
    client.found(id, None);
    assert!(client.tick(1499).is_some());
    assert_eq!(kinds(&mut client), []);
    assert_eq!(client.tick(1500), None);
    assert_eq!(kinds(&mut client), [(EventKind::AddrError, id, -libc::ETIMEDOUT)]);
    let mut pair = pair();
    let (_, _) = pair.connect();
    pair.client.disconnect(FILE, pair.id, 0).unwrap();
    assert_eq!(pair.client.tick(4000), None);
    assert_eq!(kinds(&mut pair.client), [(EventKind::Disconnected, pair.id, -libc::ETIMEDOUT)]);
    let mut slow = self::pair();
    slow.client.connect(FILE, slow.id, terms(b""), 0).unwrap();
    assert_eq!(slow.client.tick(0), Some(60_000));
    slow.client.tick(60_000);
    assert_eq!(kinds(&mut slow.client), [(EventKind::Unreachable, slow.id, -libc::ETIMEDOUT)]);
}

#[test]
fn a_listener_of_this_machine_is_looked_for_and_its_lack_is_no_error_of_addresses() {
    let mut client = manager(2);
    let id = client.create(FILE, 200);
    client.resolve(FILE, id, (None, name(Ipv4Addr::LOCALHOST, PORT)), (0, 5000)).unwrap();
    client.found(id, None);
    client.tick(999);
    assert_eq!(kinds(&mut client), []);
    client.tick(1000);
    assert_eq!(kinds(&mut client), [(EventKind::AddrResolved, id, 0)]);
    assert_eq!(client.ids[&id].peer, Some(ip(2)));
}

#[test]
fn ports_belong_to_one() {
    let mut core = manager(1);
    let bound = |core: &mut Core, ip, port| {
        let id = core.create(FILE, 1);
        core.bind(FILE, id, name(ip, port))
    };
    assert_eq!(bound(&mut core, Ipv4Addr::UNSPECIFIED, PORT), Ok(()));
    assert_eq!(bound(&mut core, ip(1), PORT), Err(Errno::ADDRINUSE));
    assert_eq!(bound(&mut core, ip(1), PORT + 1), Ok(()));
    assert_eq!(bound(&mut core, ip(3), PORT), Err(Errno::ADDRNOTAVAIL));
    assert_eq!(bound(&mut core, ip(1), 0), Ok(()));
    assert_eq!(bound(&mut core, ip(1), 0), Ok(()));
    core.close(FILE);
    assert_eq!(bound(&mut core, ip(1), PORT), Ok(()));
}

#[test]
fn an_identifier_moves_with_its_events() {
    let mut pair = pair();
    let (of_server, _) = pair.ask();
    pair.server.open(8);
    assert_eq!(pair.server.migrate(FILE, 8, of_server), Ok(0));
    assert_eq!(pair.server.destroy(FILE, of_server), Err(Errno::INVAL), "it is another file's");
    pair.server.accept(8, of_server, 101, terms(b"")).unwrap();
    pair.server.message(pair.link, Message::plain(Kind::Ready));
    assert!(!pair.server.has_event(FILE));
    assert_eq!(pair.server.take_event(8).map(|event| event.kind), Some(EventKind::Established));
}

struct NoProgram;

impl Caller for NoProgram {
    fn file_of(&self, _: u32) -> Result<u64, Errno> {
        Err(Errno::BADF)
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }

    fn now(&self) -> u64 {
        0
    }
}

fn header(command: u32, input: u16, room: u16) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&command.to_ne_bytes());
    bytes[4..6].copy_from_slice(&input.to_ne_bytes());
    bytes[6..].copy_from_slice(&room.to_ne_bytes());
    bytes
}

#[test]
fn commands_that_are_none_are_refused_as_the_kernel_does() {
    let read = |command, input, written| Header::read(&header(command, input, 0), written).map(drop);
    assert_eq!(read(number::CREATE_ID, 24, 32), Ok(()));
    assert_eq!(read(number::CREATE_ID, 24, 31), Err(Errno::INVAL), "it says more than was written");
    assert_eq!(read(number::GET_OPTION, 0, 8), Err(Errno::NOSYS));
    assert_eq!(read(number::JOIN_MCAST + 1, 0, 8), Err(Errno::INVAL));
    assert_eq!(read(u32::MAX, 0, 8), Err(Errno::INVAL));
    let mut core = manager(1);
    let mut create = [0; 24];
    create[16..18].copy_from_slice(&0x0106u16.to_ne_bytes());
    let mut run = |command, room, body: &[u8]| {
        let header = Header::read(&header(command, body.len() as u16, room), body.len() + HEADER)?;
        commands::run(&mut core, FILE, header, &Body::new(body), &NoProgram)
    };
    assert_eq!(run(number::CREATE_ID, 3, &create), Err(Errno::NOSPC));
    assert_eq!(run(number::CREATE_ID, 4, &create), Ok(Some((0, vec![0; 4]))));
    create[16..18].copy_from_slice(&0x0111u16.to_ne_bytes());
    assert_eq!(run(number::CREATE_ID, 4, &create), Err(Errno::OPNOTSUPP), "datagrams");
    create[16..18].copy_from_slice(&5u16.to_ne_bytes());
    assert_eq!(run(number::CREATE_ID, 4, &create), Err(Errno::INVAL));
    assert_eq!(run(number::LISTEN, 0, &9u32.to_ne_bytes()), Err(Errno::NOENT));
    assert_eq!(run(number::CONNECT, 0, &[0; 288]), Err(Errno::INVAL));
    assert_eq!(run(number::RESOLVE_ROUTE, 0, &[0; 8]), Err(Errno::INVAL));
    assert_eq!(run(number::DISCONNECT, 0, &[0; 4]), Err(Errno::INVAL));
    assert_eq!(run(number::INIT_QP_ATTR, 144, &[0; 16]), Err(Errno::INVAL), "it has no NIC");
    assert_eq!(run(number::JOIN_MCAST, 4, &[0; 160]), Err(Errno::INVAL));
    let mut query = [0; 16];
    query[12] = 3;
    assert_eq!(run(number::QUERY, 280, &query), Err(Errno::NOSYS));
}

proptest! {
    /// Whatever a program writes, and in whatever order, is answered.
    #[test]
    fn no_command_panics(
        commands in prop::collection::vec((0u32..23, prop::collection::vec(0u8..9, 0..300), 0u16..300), 1..40),
    ) {
        let mut core = manager(1);
        for (command, body, room) in commands {
            let header = header(command, body.len() as u16, room);
            if let Ok(header) = Header::read(&header, body.len() + HEADER) && command != number::GET_EVENT {
                let _ = commands::run(&mut core, FILE, header, &Body::new(&body), &NoProgram);
            }
            while let Some(event) = core.take_event(FILE) {
                event.write();
            }
            core.take_actions();
        }
    }
}
