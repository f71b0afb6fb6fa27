//! Ends of a job that end in order, and peers that are cut off: what the others are told, and when it is proved.

use super::{Own, SOON, described, nodes, open, place};
use shunt::host::connect::tcp::JoinOptions;
use shunt::host::job::Joining;
use shunt::soft_nic::{FaultKind, RailAt};
use shunt_transfer::transport::{Names, Reorder};
use shunt_transfer::{Change, NicKind, Node, Place, Secret, Source, Transport, Way, Wish};
use shunt_transfer_engine::engine::Share;
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::Rights;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

fn source() -> Source {
    Source::find(Wish { nic: NicKind::Soft, rails: 1, soft_gbps: 1.0 }).expect("software is there")
}

fn job(ends: u32) -> Vec<Node> {
    Node::start(Place::alone(&source(), ends).expect("NICs"), 1).expect("connected")
}

/// The last end of a job ends: what the first one has under way to it, and awaits of it, ends as such.
fn is_told(mut nodes: Vec<Node>) {
    let own: Vec<_> = nodes.iter().map(|node| Own::new(node, 64, 0, Rights::Write)).collect();
    let targets: Vec<_> = own.iter().map(described).collect();
    let gone = nodes.len() - 1;
    let peer = gone as u32;
    // What was sent before is there, also if nobody has looked.
    nodes[gone]
        .write(0, 64, Some(1), (&own[gone].region, 0), (&targets[0], 0))
        .expect("fits")
        .wait(SOON)
        .expect("open");
    nodes[gone].send(0, b"last words").expect("short").wait(SOON).expect("open");
    let awaited = nodes[0].expect(peer, 2, 1, None).expect("open");
    drop(nodes.pop());
    assert!(matches!(
        awaited.wait(SOON).expect("open"),
        Some(Err(TransferError::Missing { imm: 2, got: 0, .. }))
    ));
    let write =
        |to| nodes[0].write(to, 64, None, (&own[0].region, 0), (&targets[to as usize], 0)).expect("fits");
    let ended = |to| write(to).wait(SOON).expect("open").expect("in time").result;
    assert!(matches!(ended(peer), Err(TransferError::PeerLeft { .. })));
    assert!(nodes[0].revoke(peer, SOON).expect("it was there"), "nothing of it lands any more");
    assert_eq!(nodes[0].receive(SOON).expect("open"), Some((peer, b"last words".to_vec())));
    let late = nodes[0].expect(peer, 3, 1, None).expect("open").wait(SOON).expect("open");
    assert!(matches!(late, Some(Err(TransferError::Missing { .. }))), "{late:?}");
    // The others go on.
    for to in 1..peer {
        assert_eq!(ended(to), Ok(()));
        let share =
            |to| Share { peer: PeerId(to), len: 64, imm: None, from: 0, to: (&targets[to as usize], 0) };
        let shares = nodes[0].scatter(&own[0].region, &[share(to), share(peer)]).expect("fits");
        let ends = shares.wait(SOON).expect("open").expect("in time");
        assert_eq!(ends[0].result, Ok(()));
        assert!(matches!(ends[1].result, Err(TransferError::PeerLeft { .. })), "{ends:?}");
    }
    drop(nodes);
}

#[test]
fn the_others_of_a_job_are_told_at_once_that_an_end_has_left() {
    is_told(job(3));
}

/// Cause: a write to an end of a simulated network that had ended was executed, and told as written.
#[test]
fn the_others_are_told_on_a_simulated_network_as_well() {
    for reorder in [Reorder::None, Reorder::All] {
        let way = Way { transport: Transport::Sim, reorder, ..Way::default() };
        let names = Names { transport: "", provider: "", addresses: "", nic: "", gbps: "" };
        let wish = Wish { nic: NicKind::Soft, rails: 1, soft_gbps: 1.0 };
        let source = Source::by(&way, &names, wish).expect("it needs nothing");
        is_told(Node::start(Place::alone(&source, 3).expect("rails"), 1).expect("connected"));
    }
}

#[test]
fn the_others_are_told_in_their_own_processes_as_well() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let root = listener.local_addr().expect("bound");
    let mut listener = Some(listener);
    let fabric = format!("leaving-{}", std::process::id());
    let ends = [0, 1].map(|rank| {
        let secret = Secret::from_text("a secret of these tests").expect("a secret");
        let options =
            JoinOptions { listener: listener.take(), ..JoinOptions::new(rank, 2, root.into(), secret) };
        let joining = Joining { options, fabric: fabric.clone(), made_up: true };
        std::thread::spawn(move || {
            let place = Place::join(&source(), joining).expect("joined");
            Node::start(place, 1).expect("connected").remove(0)
        })
    });
    is_told(ends.map(|end| end.join().expect("no panic")).into());
}

#[test]
fn a_peer_whose_fence_was_not_proved_in_time_is_asked_for_again() {
    for _ in 0..5 {
        let nodes = job(2);
        let in_time = nodes[0].revoke(1, Duration::ZERO).expect("it is there");
        assert!(nodes[0].revoke(1, SOON).expect("it was there"), "its queue pairs are destroyed");
        assert!(nodes[0].revoke(1, Duration::ZERO).expect("it was there"), "that stays so");
        if !in_time {
            return;
        }
    }
    panic!("each fence was proved before it was asked for");
}

#[test]
fn a_node_that_is_connected_by_two_of_its_addresses_is_one() {
    let place = super::place(2, 2);
    let secret = || Secret::from_text("a secret of these tests").expect("a secret");
    let open = |end, at| Node::open_with(&place, end, 2, at, secret()).expect("it is this machine");
    let (one, two) = (open(0, "0.0.0.0:0"), open(1, "0.0.0.0:0"));
    let port = two.listens_at().expect("it listens").port();
    let [first, second] = ["127.0.0.1", "127.0.0.2"].map(|host| {
        let peer = one.connect(&format!("{host}:{port}"), SOON).expect("it is there");
        one.send(peer, host.as_bytes()).expect("short");
        assert_eq!(two.receive(SOON).expect("open").map(|(_, said)| said), Some(host.as_bytes().to_vec()));
        peer
    });
    assert_eq!(
        (first, one.peers().expect("a node"), two.peers().expect("a node").len()),
        (second, vec![first], 1)
    );
    assert_eq!(one.next_change(SOON).expect("a node"), Some(Change::Joined(first)));
    assert_eq!(one.next_change(Duration::ZERO).expect("a node"), None, "it has not left");
    let own = one.listens_at().expect("it listens").port();
    let why = one.connect(&format!("127.0.0.2:{own}"), 1000 * SOON).expect_err("it is itself").to_string();
    assert!(why.ends_with("that is this node itself"), "{why}");
}

/// Cause: a call that found no lane in time raised, and left the peer joined, without lanes, at both ends.
#[test]
fn a_peer_to_which_no_lane_opens_in_time_is_as_if_it_had_never_been_connected() {
    let place = place(2, 2);
    let ((a, _), (b, at)) = (open(&place, 0), open(&place, 1));
    let fail = |kind| {
        for rail in 0..2 {
            place.nics.inject(RailAt { pe: 1, rail }, kind).expect("a soft NIC");
        }
    };
    fail(FaultKind::Down { for_ns: None });
    for _ in 0..2 {
        let why = a.connect(&at, Duration::from_millis(300)).expect_err("its ports are down").to_string();
        assert!(why.contains("expected a lane over 2 rails within 300ms, got none"), "{why}");
        assert!(a.peers().expect("open").is_empty(), "no call finds it");
    }
    for node in [&a, &b] {
        // That one has left comes with its proof, which may be after the next one has joined.
        let told = [(); 4].map(|()| node.next_change(SOON).expect("open").expect("in time"));
        let of = |pick: fn(&Change) -> Option<u32>| told.iter().filter_map(pick).collect::<BTreeSet<_>>();
        let joined = of(|change| if let Change::Joined(peer) = change { Some(*peer) } else { None });
        let left = of(|change| if let Change::Left(peer) = change { Some(*peer) } else { None });
        assert!(joined == left && joined.len() == 2, "{told:?}");
        let at = |change| told.iter().position(|one| *one == change);
        assert!(joined.iter().all(|peer| at(Change::Joined(*peer)) < at(Change::Left(*peer))), "{told:?}");
    }
    fail(FaultKind::Up);
    let peer = a.connect(&at, SOON).expect("it is there");
    a.send(peer, b"here").expect("short");
    assert_eq!(super::message(&b).1, b"here");
    drop((a, b));
}

/// Two nodes whose lanes do not open before the second thread's short calls have given up; then `long` has a peer to
/// which messages go. Starts vary, so that calls give up before and after the other one is answered.
fn the_longer_one_has_a_lane(rounds: u32, long: impl Fn(&Node, &Node) -> u32 + Sync, is_at_b: bool) {
    for round in 0..rounds {
        let place = place(2, 2);
        let ((a, _), (b, at)) = (open(&place, 0), open(&place, 1));
        let fail = |kind| {
            (0..2).for_each(|rail| _ = place.nics.inject(RailAt { pe: 1, rail }, kind).expect("a soft NIC"));
        };
        fail(FaultKind::Down { for_ns: None });
        let peer = std::thread::scope(|scope| {
            let long = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(10) * round);
                long(&a, &b)
            });
            for _ in 0..3 {
                a.connect(&at, Duration::from_millis(70)).expect_err("its ports are down");
            }
            fail(FaultKind::Up);
            long.join().expect("no panic")
        });
        let (from, to) = if is_at_b { (&b, &a) } else { (&a, &b) };
        from.send(peer, b"here").expect("short");
        assert_eq!(super::message(to).1, b"here");
        drop((a, b));
    }
}

/// Cause: a call with a short deadline had the peer leave that another thread's longer call waited for.
#[test]
fn a_call_that_gives_up_leaves_the_longer_one_of_another_thread_its_peer() {
    let at = |node: &Node| node.listens_at().expect("it listens").to_string();
    the_longer_one_has_a_lane(20, |a, b| a.connect(&at(b), SOON).expect("its ports are up"), false);
}

/// Cause: the longer call of two nodes that connect to each other ended with the shorter one: its peer had left.
#[test]
fn a_call_that_gives_up_does_not_end_the_longer_one_of_its_peer() {
    let at = |node: &Node| node.listens_at().expect("it listens").to_string();
    the_longer_one_has_a_lane(10, |a, b| b.connect(&at(a), SOON).expect("its ports are up"), true);
}

/// Cause: a call that began after its node had begun to end waited until its time was over.
#[test]
fn a_node_that_ends_answers_a_call_that_begins_later() {
    let place = place(2, 2);
    let (a, _) = open(&place, 0);
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    a.stop();
    let why = a.connect(&nobody, 1000 * SOON).expect_err("it ends").to_string();
    assert!(why.ends_with("this node leaves"), "{why}");
}

/// Cause: a peer was said to be cut off once its queue pairs were destroyed. What their NICs had accepted, and not
/// brought into memory yet, landed after that.
#[test]
fn what_a_nic_has_accepted_is_in_memory_before_its_peer_counts_as_cut_off() {
    let nodes = nodes(2, 2);
    let (len, part) = (64 << 20, 1 << 20);
    let from = Own::new(&nodes[0], part, 1, Rights::Read);
    let to = Own::new(&nodes[1], len, 0, Rights::ReadWrite);
    let target = described(&to);
    for rail in 0..2 {
        let late = FaultKind::PlacementDelay { by_ns: 30_000_000, for_ns: None };
        nodes[1].place().nics.inject(RailAt { pe: 1, rail }, late).expect("a soft NIC");
    }
    for at in (0..len as u64).step_by(part) {
        nodes[0].write(1, part as u64, None, (&from.region, 0), (&target, at)).expect("fits");
    }
    let span = to.region.memory().span();
    let mut first = [0];
    while first == [0] {
        std::thread::sleep(Duration::from_millis(1));
        to.region.memory().memory().read(span.address, &mut first).expect("inside");
    }
    assert!(nodes[1].revoke(0, SOON).expect("it is there"), "nothing of it lands any more");
    let now = to.get();
    std::thread::sleep(Duration::from_millis(100));
    assert!(to.get() == now, "something landed later");
    assert!(now.contains(&0), "it was cut off while it wrote");
    drop(nodes);
}
