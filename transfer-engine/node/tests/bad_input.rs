//! What makes no sense, a row each: the error, before anything is posted and in time, while another transfer goes on.

use super::{Own, SOON, described, nodes, open, pattern, place};
use shunt::soft_nic::uplink::remove_unused_fabric;
use shunt_transfer::connect::connect;
use shunt_transfer::{CallError, NicKind, NoNode, Node, Place, Secret, Source, Wish};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::message::MESSAGE_MAX;
use shunt_transfer_engine::rc::address_from_bytes;
use shunt_transfer_engine::region::{MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_fabric::error::FabricError;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;
/// What a call may wait for a peer that does not answer.
const SHORT: Duration = Duration::from_millis(300);
/// Far longer than a row may take: what cannot change is not waited for.
const LONG: Duration = Duration::from_secs(1000);

/// An error by its kind, and its text.
fn told(error: &CallError) -> String {
    let kind = match error {
        CallError::Transfer(TransferError::Description { .. }) => "Description",
        CallError::Transfer(TransferError::OutOfRegion { .. }) => "OutOfRegion",
        CallError::Transfer(TransferError::Rights { .. }) => "Rights",
        CallError::Transfer(TransferError::Refused { .. }) => "Refused",
        CallError::NotConnected { .. } => "NotConnected",
        other => return format!("{other:?}"),
    };
    format!("{kind}: {error}")
}

/// What rows use.
struct Ground {
    nodes: Vec<Node>,
    own: Own,
    /// Memory of the other end that peers may write, and that they may read alone.
    write: Own,
    read: Own,
    place: Arc<shunt_transfer::Place>,
    one: Node,
    at: String,
}

impl Ground {
    fn new() -> Self {
        let (nodes, place) = (nodes(2, 2), place(3, 2));
        let len = (PAGE * PAGES) as usize;
        let own = Own::new(&nodes[0], len, 7, Rights::Local);
        let [write, read] = [Rights::Write, Rights::Read].map(|rights| Own::new(&nodes[1], len, 1, rights));
        let (one, at) = open(&place, 0);
        Self { nodes, own, write, read, place, one, at }
    }
}

/// Its name, what it does, and what it is told: the empty text where there is no error.
type Row = (&'static str, fn(&Ground) -> String, &'static str);

fn refused<T>(result: Result<T, CallError>) -> String {
    result.map_or_else(|error| told(&error), |_| String::new())
}

fn refused_node(result: Result<Node, NoNode>) -> String {
    match result {
        Err(NoNode::Refused(text)) => format!("NoNode::Refused: {text}"),
        Err(other) => format!("{other:?}"),
        Ok(_) => String::new(),
    }
}

fn another_version(_: &Ground) -> String {
    refused(address_from_bytes(b"STE\x09 of another version").map_err(CallError::from))
}

fn cut_description(on: &Ground) -> String {
    let bytes = on.write.region.describe().to_bytes();
    refused(MrDesc::from_bytes(&bytes[..bytes.len() - 1]).map_err(CallError::from))
}

fn page_beyond(on: &Ground) -> String {
    let pages = |last| Pages { indices: vec![0, last], stride: PAGE, offset: 0 };
    let (from, to) = (pages(1), pages(PAGES as u32));
    let target = described(&on.write);
    refused(on.nodes[0].write_pages(1, PAGE, Some(1), (&on.own.region, from), (&target, to)))
}

fn rights_missing(on: &Ground) -> String {
    refused(on.nodes[0].write(1, PAGE, Some(1), (&on.own.region, 0), (&described(&on.read), 0)))
}

fn three_rails_of_two(on: &Ground) -> String {
    refused_node(Node::open(&on.place, 1, 3, "127.0.0.1:0"))
}

/// Both ends are told, by each other's address.
fn other_rails_at_the_other_end(_: &Ground) -> String {
    let place = place(2, 3);
    let ends = place.members().into_iter().zip([3, 2]).map(|(member, rails)| {
        let nics = place.nics.clone();
        std::thread::spawn(move || connect(member, &nics, rails).map(|_| ()))
    });
    let ends: Vec<_> = ends.collect();
    let told = ends.into_iter().map(|end| match end.join().expect("no panic") {
        Err(error @ NoNode::Rails { .. }) => format!("NoNode::Rails: {error}"),
        other => format!("{other:?}"),
    });
    told.collect::<Vec<_>>().join(" | ")
}

fn count_of_none(on: &Ground) -> String {
    refused(on.nodes[1].expect(0, 2, 0, Some(SOON)))
}

/// It is kept: no error.
fn immediate_before_it_is_expected(on: &Ground) -> String {
    let target = described(&on.write);
    let write = on.nodes[0].write(1, 0, Some(3), (&on.own.region, 0), (&target, 0)).expect("fits");
    assert_eq!(write.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
    let until = Instant::now() + SOON;
    while on.nodes[1].counter(0, 3).expect("open") == 0 {
        assert!(Instant::now() < until, "it arrives");
        std::thread::sleep(Duration::from_millis(1));
    }
    let reached = on.nodes[1].expect(0, 3, 1, Some(SOON)).expect("open").wait(SOON).expect("open");
    reached.expect("in time").map_or_else(|error| error.to_string(), |()| String::new())
}

/// Its transfer ends as any other, and who else asked is told.
fn callback_that_panics(on: &Ground) -> String {
    let target = described(&on.write);
    let write = on.nodes[0].write(1, 0, None, (&on.own.region, 0), (&target, 0)).expect("fits");
    let (tell, heard) = channel();
    write.when_ended(|| panic!("on purpose"));
    write.when_ended(move || _ = tell.send(()));
    heard.recv_timeout(SOON).expect("the other one is told");
    let end = write.wait(SOON).expect("open").expect("in time");
    write.when_ended(|| panic!("on purpose, after the end"));
    end.result.map_or_else(|error| error.to_string(), |()| String::new())
}

fn wrong_secret(on: &Ground) -> String {
    let secret = Secret::from_text("fedcba9876543210").expect("a secret");
    let node = Node::open_with(&on.place, 2, 2, "127.0.0.1:0", secret).expect("it is this machine");
    refused(node.connect(&on.at, LONG)).replace(&on.at, "AT")
}

fn itself(on: &Ground) -> String {
    refused(on.one.connect(&on.at, LONG)).replace(&on.at, "AT")
}

fn node_with_other_rails(on: &Ground) -> String {
    let node = Node::open(&on.place, 2, 1, "127.0.0.1:0").expect("it is this machine");
    refused(node.connect(&on.at, LONG)).replace(&on.at, "AT")
}

fn what_is_no_node(on: &Ground) -> String {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = other.local_addr().expect("bound").to_string();
    let serves = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("it is dialled");
        // It may be gone already.
        let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let told = refused(on.one.connect(&at, LONG)).replace(&at, "AT");
    serves.join().expect("no panic");
    told
}

fn address_of_another_machine(on: &Ground) -> String {
    let secret = Secret::from_text("fedcba9876543210").expect("a secret");
    refused_node(Node::open_with(&on.place, 1, 2, "192.0.2.1:0", secret))
}

fn peer_that_never_answers(on: &Ground) -> String {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("bound").to_string();
    refused(on.one.connect(&at, SHORT)).replace(&at, "AT")
}

fn region_of_another_node(on: &Ground) -> String {
    refused(on.nodes[0].write(1, PAGE, Some(1), (&on.write.region, 0), (&described(&on.write), 0)))
}

fn message_too_long(on: &Ground) -> String {
    refused(on.nodes[0].send(1, &vec![0; MESSAGE_MAX + 1]))
}

const ROWS: [Row; 17] = [
    (
        "address of another version",
        another_version,
        "Refused: address: expected one of a transfer engine of this version, got card begins with 0x09455453, a \
         address of a transfer engine begins with 0x54454101",
    ),
    (
        "description that is cut short",
        cut_description,
        "Description: a region's description: expected base, length, rights and keys, got bytes that end \
         early; both ends must run the same version",
    ),
    (
        "page beyond the region",
        page_beyond,
        "OutOfRegion: target page: expected bytes within 262144 of the region, got 262144 + 4096",
    ),
    (
        "rights that are missing",
        rights_missing,
        "Rights: target: expected a region that was described for writes of peers, got one of reads",
    ),
    ("3 rails of 2", three_rails_of_two, "NoNode::Refused: rails of end 1: expected 1 to 2, got 3"),
    (
        "3 rails here, 2 at the other end",
        other_rails_at_the_other_end,
        "NoNode::Rails: lanes to end 1: expected 3 rails as at end 0, got 2; give every end as many | \
         NoNode::Rails: lanes to end 0: expected 2 rails as at end 1, got 3; give every end as many",
    ),
    ("a count of 0", count_of_none, "Refused: immediates to expect: expected one or more, got none"),
    ("an immediate before it is expected", immediate_before_it_is_expected, ""),
    ("a callback that panics", callback_that_panics, ""),
    (
        "another secret",
        wrong_secret,
        "NotConnected: AT: expected a node that answers, got none: it refuses us: it does not have the same \
         secret",
    ),
    (
        "the node itself",
        itself,
        "NotConnected: AT: expected a node that answers, got none: that is this node itself",
    ),
    (
        "a node with other rails",
        node_with_other_rails,
        "NotConnected: AT: expected a node that answers, got none: rails: expected 1 as here, got 2",
    ),
    (
        "what is no node",
        what_is_no_node,
        "NotConnected: AT: expected a node that answers, got none: its first bytes are not Shunt's",
    ),
    (
        "an address of another machine",
        address_of_another_machine,
        "NoNode::Refused: 192.0.2.1:0: Cannot assign requested address (os error 99)",
    ),
    (
        "a peer that never answers",
        peer_that_never_answers,
        "NotConnected: AT: expected a node that answers, got none: no answer",
    ),
    (
        "a region of another node",
        region_of_another_node,
        "Refused: region: expected one of this node, got one of another node",
    ),
    (
        "a message that is too long",
        message_too_long,
        "Refused: bytes of a message: expected 2^20 at most, got 1048577",
    ),
];

/// Ends a loop when it is dropped.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_makes_no_sense_has_its_error_in_time_and_harms_nothing() {
    let ground = Arc::new(Ground::new());
    let len = 1 << 20;
    let [from, to] = [(0, Rights::Local), (1, Rights::Write)].map(|(end, rights)| {
        let own = Own::new(&ground.nodes[end], len, 0, rights);
        own.put(&if end == 0 { pattern(len) } else { vec![0; len] });
        own
    });
    let (target, stop, rounds) = (described(&to), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        let beside = threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let write = ground.nodes[0].write(1, len as u64, None, (&from.region, 0), (&target, 0));
                let end = write.expect("fits").wait(SOON).expect("open").expect("in time");
                assert_eq!((end.result, end.is_quiet), (Ok(()), true));
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Also where a row fails: the scope waits for that thread.
        let _stop = StopAtEnd(&stop);
        for (name, row, expected) in ROWS {
            let ((tell, heard), on) = (channel(), ground.clone());
            let thread = std::thread::spawn(move || _ = tell.send(row(&on)));
            let met = heard.recv_timeout(SOON).unwrap_or_else(|_| panic!("{name}: no answer, or a panic"));
            thread.join().expect("it has answered");
            assert_eq!(met, expected, "{name}");
            let (before, until) = (rounds.load(Ordering::Relaxed), Instant::now() + SOON);
            while rounds.load(Ordering::Relaxed) == before {
                assert!(
                    !beside.is_finished() && Instant::now() < until,
                    "{name}: the transfer beside it goes on"
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert!(to.get() == pattern(len), "the transfer beside");
    for (imm, memory) in [(1, &ground.write), (2, &ground.read)] {
        assert_eq!(ground.nodes[1].counter(0, imm).expect("open"), 0, "nothing was posted");
        assert!(memory.get().iter().all(|byte| *byte == 1), "nothing was posted");
    }
    assert_eq!(ground.nodes[1].receive(Duration::ZERO).expect("open"), None, "nothing was posted");
    // Nodes first: they use the memory.
    drop(Arc::into_inner(ground).expect("rows are over"));
}

#[test]
fn an_address_of_libfabric_that_is_another_machines_is_refused_before_anybody_waits() {
    let source = |address: &str| Source::libfabric("tcp", 1, &[address.to_owned()]);
    match source("127.0.0.1") {
        Err(NoNode::Libfabric(FabricError::Load(error))) => {
            println!("SKIPPED: {error}");
            return assert!(std::env::var_os("CI").is_none(), "CI is set, and libfabric is missing");
        }
        other => drop(other.expect("this machine's")),
    }
    let error = source("192.0.2.1").err().expect("no machine has it").to_string();
    assert!(error.starts_with("addresses: expected those of this machine, got 192.0.2.1: "), "{error}");
}

/// The error of the second job said nothing of the variable that keeps them apart.
#[test]
fn two_jobs_on_one_fabric_are_told_how_to_have_one_each() {
    let source =
        Source::find(Wish { nic: NicKind::Soft, rails: 1, soft_gbps: 1.0 }).expect("software is there");
    let fabric = format!("jobs-{}", std::process::id());
    let first = Place::beside(&source, 0, &fabric).expect("its place is free");
    let second = Place::beside(&source, 0, &fabric).err().expect("its place is taken").to_string();
    assert!(
        second.contains("a live process has the address") && second.contains("SHUNT_FABRIC=NAME"),
        "{second}"
    );
    drop(first);
    let _ = remove_unused_fabric(&fabric);
}
