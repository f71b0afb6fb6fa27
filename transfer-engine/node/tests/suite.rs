//! Nodes of one process, each with its own thread, on soft NICs: what a program does with them.

mod bad_input;
mod forked;
mod leaving;
mod misuse;
mod watching;

use shunt::host::gpu::{Span, lend};
use shunt::soft_nic::{FaultKind, RailAt};
use shunt_transfer::pending::CancelHow;
use shunt_transfer::{CallError, Change, NicKind, Node, Place, Region, Source, Wish};
use shunt_transfer_engine::engine::Share;
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::watch::Goes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);

fn nodes(ends: u32, rails: u32) -> Vec<Node> {
    let source = Source::find(Wish { nic: NicKind::Soft, rails, soft_gbps: 1.0 }).expect("software is there");
    let nodes = Node::start(Place::alone(&source, ends).expect("NICs"), rails).expect("connected");
    assert_eq!(
        nodes.iter().map(|node| (node.end(), node.ends())).collect::<Vec<_>>(),
        [(0, ends), (1, ends)]
    );
    nodes
}

/// Memory of this program, 3 bytes off any alignment, and lent to a node.
struct Own {
    bytes: Box<[u8]>,
    region: Region,
}

const OFF: usize = 3;

impl Own {
    fn new(node: &Node, len: usize, byte: u8, rights: Rights) -> Self {
        let mut bytes = vec![byte; len + OFF].into_boxed_slice();
        let address = bytes.as_mut_ptr().expose_provenance() as u64 + OFF as u64;
        // SAFETY: the box outlives the nodes, which each test drops first, and is looked at when transfers have ended.
        let memory = unsafe { lend(Span { address, bytes: len as u64 }, Box::new(())) };
        let region = node.register(memory.expect("it is memory"), rights).expect("registered");
        Self { bytes, region }
    }

    fn get(&self) -> Vec<u8> {
        let span = self.region.memory().span();
        let mut bytes = vec![0; span.bytes as usize];
        self.region.memory().memory().read(span.address, &mut bytes).expect("inside");
        bytes
    }

    fn put(&self, bytes: &[u8]) {
        self.region.memory().memory().write(self.region.memory().span().address, bytes).expect("inside");
    }
}

fn described(own: &Own) -> MrDesc {
    MrDesc::from_bytes(&own.region.describe().to_bytes()).expect("as it was sent")
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn writes_pages_and_reads_arrive_while_a_port_goes_down_and_comes_back() {
    let nodes = nodes(2, 2);
    let len = 1 << 20;
    let (from, to) =
        (Own::new(&nodes[0], len, 0, Rights::Read), Own::new(&nodes[1], len, 0, Rights::ReadWrite));
    from.put(&pattern(len));
    let target = described(&to);
    let fail = |kind| nodes[0].place().nics.inject(RailAt { pe: 0, rail: 0 }, kind).expect("a soft NIC");
    let writes = u64::from(nodes[0].writes_of(len as u64).expect("open"));
    for round in 0..6 {
        if round == 2 {
            fail(FaultKind::Down { for_ns: None });
        }
        if round == 4 {
            fail(FaultKind::Up);
        }
        to.put(&vec![0; len]);
        let expected = nodes[1].expect(0, round, writes, Some(SOON)).expect("open");
        let written =
            nodes[0].write(1, len as u64, Some(round), (&from.region, 0), (&target, 0)).expect("fits");
        assert_eq!(expected.wait(SOON).expect("open"), Some(Ok(())));
        let end = written.wait(SOON).expect("open").expect("in time");
        assert_eq!((end.result, end.is_quiet), (Ok(()), true));
        assert!(to.get() == pattern(len), "round {round}");
    }
    // Pages the other way round, then all of it read back by the end that was written to.
    let page = 4096;
    let count = (len / page) as u32;
    let pages = |indices: Vec<u32>| Pages { indices, stride: page as u64, offset: 0 };
    let (forth, back) = (pages((0..count).collect()), pages((0..count).rev().collect()));
    let expected = nodes[1].expect(0, 77, count.into(), Some(SOON)).expect("open");
    nodes[0].write_pages(1, page as u64, Some(77), (&from.region, forth), (&target, back)).expect("fits");
    assert_eq!(expected.wait(SOON).expect("open"), Some(Ok(())));
    let turned: Vec<u8> = pattern(len).chunks(page).rev().flatten().copied().collect();
    assert!(to.get() == turned);
    let source = described(&from);
    let read = nodes[1].read(0, len as u64, (&source, 0), (&to.region, 0)).expect("fits");
    assert_eq!(read.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
    assert!(to.get() == pattern(len));
    let counts = nodes[0].counts().expect("open");
    assert!(counts.closed > 0, "{counts:?}");
    let until = Instant::now() + SOON;
    while nodes[0].rails_to(1).expect("open").len() < 2 {
        assert!(Instant::now() < until, "the rail comes back");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(nodes);
    assert!(from.bytes[..OFF] == [0; OFF] && to.bytes[..OFF] == [0; OFF], "beside the regions");
}

#[test]
fn wrong_calls_post_nothing_and_harm_nothing() {
    let nodes = nodes(2, 1);
    let (own, other) = (Own::new(&nodes[0], 64, 1, Rights::Local), Own::new(&nodes[1], 64, 2, Rights::Read));
    let target = described(&other);
    let refused = |error: Result<_, CallError>| match error {
        Ok(_) => panic!("it is refused"),
        Err(error) => error.to_string(),
    };
    let write = |peer, len, at| nodes[0].write(peer, len, None, (&own.region, at), (&target, 0)).map(|_| ());
    assert_eq!(refused(write(0, 8, 0)), "peer: expected another end of the job, got 0 at end 0");
    assert_eq!(refused(write(2, 8, 0)), "peer: expected another end of the job, got 2 at end 0");
    assert!(refused(write(1, 8, 0)).contains("described for writes of peers, got one of reads"));
    assert!(refused(write(1, 8, 60)).contains("expected bytes within 64 of the region, got 60 + 8"));
    let foreign = "region: expected one of this node, got one of another node";
    let from = &other.region;
    let pages = || Pages { indices: vec![0], stride: 8, offset: 0 };
    let write_pages = nodes[0].write_pages(1, 8, None, (from, pages()), (&target, pages())).map(|_| ());
    let share = Share { peer: PeerId(1), len: 8, imm: None, from: 0, to: (&target, 0) };
    for result in [
        nodes[0].write(1, 8, None, (from, 0), (&target, 0)).map(|_| ()),
        nodes[0].read(1, 8, (&target, 0), (from, 0)).map(|_| ()),
        nodes[0].scatter(from, &[share]).map(|_| ()),
        nodes[0].deregister(from),
        write_pages,
    ] {
        assert_eq!(refused(result), foreign);
    }
    assert!(nodes[0].expect(1, 5, 0, None).is_err(), "nothing is awaited");
    let missing = nodes[0].expect(1, 5, 1, Some(Duration::from_millis(20))).expect("open");
    assert!(matches!(
        missing.wait(SOON).expect("open"),
        Some(Err(TransferError::Missing { imm: 5, got: 0, .. }))
    ));
    let read = nodes[0].read(1, 64, (&target, 0), (&own.region, 0)).expect("fits");
    assert_eq!(read.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
    assert_eq!(own.get(), [2; 64]);
    drop(nodes);
}

#[test]
fn a_transfer_that_is_cancelled_ends_quiet_and_one_of_a_closed_node_says_so() {
    let mut nodes = nodes(2, 2);
    let len = 8 << 20;
    let (from, to) = (Own::new(&nodes[0], len, 9, Rights::Local), Own::new(&nodes[1], len, 0, Rights::Write));
    let target = described(&to);
    let begin = |node: &Node| node.write(1, len as u64, None, (&from.region, 0), (&target, 0)).expect("fits");
    let cancelled = begin(&nodes[0]);
    cancelled.cancel(CancelHow::Now);
    let end = cancelled.wait(SOON).expect("open").expect("in time");
    assert!(end.is_quiet && matches!(end.result, Err(TransferError::Cancelled { .. })), "{end:?}");
    let drained = begin(&nodes[0]);
    drained.cancel(CancelHow::Drain(SOON));
    assert!(drained.wait(SOON).expect("open").expect("in time").is_quiet);
    let expected = nodes[0].expect(1, 1, 1, None).expect("open");
    let waiter = std::thread::spawn(move || expected.wait(SOON));
    drop(nodes.remove(0));
    assert!(matches!(waiter.join().expect("it waits"), Err(CallError::Closed)));
    drop(nodes);
}

#[test]
fn messages_come_in_order_and_once_while_a_port_goes_down_and_memory_that_is_gone_is_refused() {
    let nodes = nodes(2, 2);
    let fail = |kind| nodes[0].place().nics.inject(RailAt { pe: 0, rail: 1 }, kind).expect("a soft NIC");
    let message = |number: u32| vec![number as u8; (number as usize * 37) % 5000];
    let mut sent = Vec::new();
    for number in 0..300 {
        if number == 100 {
            fail(FaultKind::Down { for_ns: None });
        }
        if number == 200 {
            fail(FaultKind::Up);
        }
        sent.push(nodes[0].send(1, &message(number)).expect("short"));
        let (peer, got) = nodes[1].receive(SOON).expect("open").expect("in time");
        assert!(peer == 0 && got == message(number), "message {number}");
    }
    for sent in sent {
        assert_eq!(sent.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
    }
    assert_eq!(nodes[1].receive(Duration::ZERO).expect("open"), None, "each once");
    nodes[0].send(1, b"four").expect("short");
    assert_eq!(nodes[1].receive_within(3, SOON).expect("open"), Some(Err(4)), "it is left where it is");
    assert_eq!(nodes[1].receive_within(4, SOON).expect("open"), Some(Ok((0, b"four".to_vec()))));
    assert!(nodes[0].counts().expect("open").closed > 0, "the port was used");
    assert!(nodes[0].send(1, &vec![0; (1 << 20) + 1]).is_err(), "longer than a message may be");
    // A description whose keys no NIC knows: refused by the peer's NIC, and the lane is there again for the others.
    let (from, to) = (Own::new(&nodes[0], 64, 7, Rights::Local), Own::new(&nodes[1], 64, 0, Rights::Write));
    let keys: Vec<u32> = (0..2).map(|rail| 0x7766_5500 + rail).collect();
    let span = to.region.memory().span();
    let wrong = Mr::new(span.address, span.bytes, &keys).expect("a region").describe(Rights::Write);
    let refused = nodes[0].write(1, 64, None, (&from.region, 0), (&wrong, 0)).expect("fits");
    let end = refused.wait(SOON).expect("open").expect("in time");
    assert!(end.is_quiet && matches!(end.result, Err(TransferError::Denied { .. })), "{end:?}");
    assert_eq!(to.get(), [0; 64]);
    let target = described(&to);
    let written = nodes[0].write(1, 64, None, (&from.region, 0), (&target, 0)).expect("fits");
    assert_eq!(written.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
    assert_eq!(to.get(), [7; 64]);
    drop(nodes);
}

#[test]
fn nothing_lands_in_a_region_that_was_taken_back_nor_of_a_peer_that_was_cut_off() {
    let nodes = nodes(2, 2);
    let len = 1 << 20;
    let (from, to) = (Own::new(&nodes[0], len, 9, Rights::Local), Own::new(&nodes[1], len, 0, Rights::Write));
    let (target, other) = (described(&to), Own::new(&nodes[1], len, 0, Rights::Write));
    let other_target = described(&other);
    let begin = |target: &MrDesc| {
        let write = || nodes[0].write(1, len as u64, Some(1), (&from.region, 0), (target, 0));
        (0..8).map(|_| write().expect("fits")).collect::<Vec<_>>()
    };
    assert!(nodes[0].write(1, len as u64, None, (&from.region, 0), (&other_target, 0)).is_ok());
    assert!(nodes[0].deregister(&from.region).is_err(), "a transfer uses it");
    // The sender is in the middle of it.
    let transfers = begin(&target);
    nodes[1].deregister(&to.region).expect("the NICs take it back");
    to.put(&vec![0xee; len]);
    let mut denied = 0;
    for transfer in transfers {
        let end = transfer.wait(SOON).expect("open").expect("in time");
        assert!(matches!(end.result, Ok(()) | Err(TransferError::Denied { .. })), "{end:?}");
        assert!(end.is_quiet, "{end:?}");
        denied += u64::from(end.result.is_err());
    }
    assert!(denied > 0 && to.get() == vec![0xee; len], "{denied} denied");
    // Packets of the next ones are held back, and come when their sender is cut off.
    for rail in 0..2 {
        let hold = FaultKind::Hold { for_ns: 200_000_000 };
        nodes[0].place().nics.inject(RailAt { pe: 0, rail }, hold).expect("a soft NIC");
    }
    let transfers = begin(&other_target);
    let expected = nodes[1].expect(0, 77, 1, None).expect("open");
    std::thread::sleep(Duration::from_millis(20));
    assert!(nodes[1].revoke(0, SOON).expect("it is there"), "its queue pairs are destroyed");
    other.put(&vec![0xdd; len]);
    assert!(matches!(expected.wait(SOON).expect("open"), Some(Err(TransferError::Missing { .. }))));
    assert!(nodes[1].revoke(0, SOON).expect("it was there"), "asked again");
    assert!(
        nodes[1]
            .send(0, b"late")
            .expect("it ends")
            .wait(SOON)
            .expect("open")
            .expect("in time")
            .result
            .is_err()
    );
    for transfer in transfers {
        transfer.wait(SOON).expect("open").expect("in time");
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(other.get() == vec![0xdd; len], "it wrote after it was cut off");
    drop(nodes);
}

fn place(ends: u32, rails: u32) -> Arc<Place> {
    let source = Source::find(Wish { nic: NicKind::Soft, rails, soft_gbps: 1.0 }).expect("software is there");
    Arc::new(Place::alone(&source, ends).expect("NICs"))
}

fn open(place: &Arc<Place>, end: u32) -> (Node, String) {
    let node = Node::open(place, end, 2, "127.0.0.1:0").expect("it is this machine");
    let at = node.listens_at().expect("it listens").to_string();
    (node, at)
}

/// The next message of a node.
fn message(node: &Node) -> (u32, Vec<u8>) {
    node.receive(SOON).expect("open").expect("in time")
}

#[test]
fn nodes_connect_leave_and_connect_again_and_write_while_a_port_goes_down() {
    let place = place(4, 2);
    let ((a, a_at), (b, b_at)) = (open(&place, 0), open(&place, 1));
    // Both dial at once.
    let (from_a, from_b) = std::thread::scope(|threads| {
        let other = threads.spawn(|| b.connect(&a_at, SOON));
        (a.connect(&b_at, SOON).expect("it is there"), other.join().expect("it ends").expect("it is there"))
    });
    assert_eq!((a.peers().expect("known"), b.peers().expect("known")), (vec![from_a], vec![from_b]));
    assert_eq!(a.connect(&b_at, SOON).expect("it is known"), from_a);
    assert_eq!(a.next_change(SOON).expect("a node"), Some(Change::Joined(from_a)));
    let len = 1 << 20;
    let (from, to) = (Own::new(&a, len, 0, Rights::Local), Own::new(&b, len, 0, Rights::Write));
    from.put(&pattern(len));
    let target = described(&to);
    for round in 0..4 {
        let fail = |kind| place.nics.inject(RailAt { pe: 1, rail: 0 }, kind).expect("a soft NIC");
        match round {
            1 => _ = fail(FaultKind::Down { for_ns: None }),
            3 => _ = fail(FaultKind::Up),
            _ => {}
        }
        to.put(&vec![0; len]);
        let written = a.write(from_a, len as u64, None, (&from.region, 0), (&target, 0)).expect("fits");
        assert_eq!(written.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
        a.send(from_a, &[round]).expect("short");
        assert_eq!(message(&b), (from_b, vec![round]));
        assert!(to.get() == pattern(len), "round {round}");
    }
    assert!(a.counts().expect("open").closed > 0, "the port was used");
    // It ends, and another one starts at its address.
    drop(b);
    assert_eq!(a.next_change(SOON).expect("a node"), Some(Change::Left(from_a)));
    assert!(
        a.write(from_a, 1, None, (&from.region, 0), (&target, 0)).is_err()
            && a.peers().expect("known").is_empty()
    );
    let c = Node::open(&place, 2, 2, &b_at).expect("the address is free");
    let third = a.connect(&b_at, SOON).expect("it is there");
    assert!(third != from_a, "it is another one");
    let to = Own::new(&c, len, 0, Rights::Write);
    let target = described(&to);
    let written = a.write(third, len as u64, None, (&from.region, 0), (&target, 0)).expect("fits");
    assert_eq!(written.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
    assert!(to.get() == pattern(len));
    // One cuts the other off, and they connect again.
    let back = c.peers().expect("known")[0];
    assert!(c.revoke(back, SOON).expect("it is there"));
    let changes = || std::iter::from_fn(|| a.next_change(SOON).expect("a node"));
    assert!(changes().any(|change| change == Change::Left(third)));
    let again = c.connect(&a_at, SOON).expect("it is there");
    assert!(again != back && c.send(again, b"again").is_ok());
    assert_eq!(message(&a).1, b"again");
    drop((a, c));
}

#[test]
fn nodes_that_cannot_connect_say_why() {
    let place = place(2, 2);
    let (a, at) = open(&place, 0);
    let soon = Duration::from_millis(300);
    let why = |node: &Node, to: &str| node.connect(to, soon).expect_err("no node is there").to_string();
    assert!(why(&a, &at).contains("this node itself"), "{}", why(&a, &at));
    assert!(why(&a, "127.0.0.1:9").contains("refused"), "{}", why(&a, "127.0.0.1:9"));
    assert!(why(&a, "nonsense").contains("HOST:PORT"), "{}", why(&a, "nonsense"));
    let b = Node::open(&place, 1, 1, "127.0.0.1:0").expect("it is this machine");
    assert!(why(&b, &at).starts_with(&at), "{}", why(&b, &at));
    assert!(Node::open(&place, 1, 2, "0.0.0.0:0").is_err(), "others reach it, and there is no secret");
    assert!(a.exchange(b"mine").is_err() && a.send(7, b"late").is_err());
    let job = &nodes(2, 1)[0];
    assert!(job.connect(&at, soon).is_err() && job.next_change(soon).is_err(), "it is an end of a job");
}

#[test]
fn a_scatter_is_cancelled_and_a_barrier_ends_once_both_are_there() {
    let nodes = nodes(2, 2);
    let len = 8 << 20;
    let own = [0, 1].map(|end| Own::new(&nodes[end], len, 0, Rights::Write));
    let targets = own.each_ref().map(described);
    let share =
        |from| Share { peer: PeerId(1), len: len as u64 / 2, imm: None, from, to: (&targets[1], from) };
    let scattered = nodes[0].scatter(&own[0].region, &[share(0), share(len as u64 / 2)]).expect("fits");
    scattered.cancel(CancelHow::Now);
    let ends = scattered.wait(SOON).expect("open").expect("in time");
    let cancelled =
        |end: &shunt_transfer::pending::End| matches!(end.result, Err(TransferError::Cancelled { .. }));
    assert!(ends.len() == 2 && ends.iter().all(|end| end.is_quiet && cancelled(end)), "{ends:?}");
    let meet = |end: usize, imm, patience| {
        let other = 1 - end;
        nodes[end].barrier(imm, &own[end].region, &[(other as u32, &targets[other])], patience).expect("fits")
    };
    let alone = meet(0, 5, Duration::from_millis(20)).wait(SOON).expect("open").expect("in time");
    let failed = alone.expect_err("the other end does not come");
    assert!(matches!(failed[..], [(PeerId(1), TransferError::Missing { imm: 5, .. })]), "{failed:?}");
    let both = [0, 1].map(|end| meet(end, 6, SOON));
    assert_eq!(both.map(|met| met.wait(SOON).expect("open")), [Some(Ok(())), Some(Ok(()))]);
    assert!(nodes[0].barrier(7, &own[1].region, &[(1, &targets[1])], SOON).is_err(), "another node's region");
    drop(nodes);
}

#[test]
fn who_waits_in_a_call_is_told_when_a_node_begins_to_end() {
    let place = place(2, 2);
    let (node, _) = open(&place, 0);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("bound").to_string();
    std::thread::scope(|threads| {
        let message = threads.spawn(|| node.receive(Duration::MAX));
        let change = threads.spawn(|| node.next_change(Duration::MAX));
        let connect = threads.spawn(|| node.connect(&at, Duration::from_secs(1000)));
        std::thread::sleep(Duration::from_millis(50));
        node.stop();
        assert!(matches!(message.join().expect("it ends"), Err(CallError::Closed)));
        assert!(matches!(change.join().expect("it ends"), Err(CallError::Closed)));
        let why = connect.join().expect("it ends").expect_err("it has no peer").to_string();
        assert!(why.contains("this node leaves"), "{why}");
    });
}

#[test]
fn words_that_change_are_told_until_nobody_watches() {
    let nodes = nodes(2, 1);
    let (word, (tell, told)) = (Arc::new(AtomicU64::new(3)), channel());
    let read = word.clone();
    let each = move |old, new| {
        let _ = tell.send((old, new));
        Goes::On
    };
    let watcher =
        nodes[1].watch(Box::new(move || read.load(Ordering::Relaxed)), Box::new(each)).expect("open");
    word.store(5, Ordering::Release);
    assert_eq!(told.recv_timeout(SOON), Ok((3, 5)));
    assert!(nodes[1].unwatch(watcher).expect("open") && !nodes[1].unwatch(watcher).expect("open"));
    word.store(6, Ordering::Release);
    assert!(told.recv_timeout(Duration::from_millis(20)).is_err(), "it has ended");
    drop(nodes);
}
