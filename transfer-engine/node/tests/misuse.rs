//! Callbacks that call back, functions that panic, times without end: each harms itself alone, and nothing hangs.

use super::{Own, SOON, described, message, nodes, open, place};
use shunt::soft_nic::{FaultKind, RailAt};
use shunt_transfer::{CallError, Node};
use shunt_transfer_engine::region::Rights;
use shunt_transfer_engine::watch::Goes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// That end 0 still writes into memory of end 1.
pub fn goes_on(nodes: &[Node]) {
    let (from, to) = (Own::new(&nodes[0], 64, 7, Rights::Local), Own::new(&nodes[1], 64, 0, Rights::Write));
    let target = described(&to);
    let written = nodes[0].write(1, 64, None, (&from.region, 0), (&target, 0)).expect("fits");
    assert_eq!(written.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
    assert!(to.get() == [7; 64]);
    nodes[0].deregister(&from.region).expect("unused");
    nodes[1].deregister(&to.region).expect("unused");
}

#[test]
fn a_time_without_end_is_waited_for_like_any_other() {
    let place = place(2, 2);
    let ((a, a_at), (b, _)) = (open(&place, 0), open(&place, 1));
    let peer = b.connect(&a_at, Duration::MAX).expect("it is there");
    assert_eq!(b.connect(&a_at, Duration::MAX).expect("it is known"), peer);
    let back = a.peers().expect("known")[0];
    assert!(a.revoke(back, Duration::MAX).expect("it is there"));
}

#[test]
fn nodes_with_one_port_at_two_addresses_do_not_drive_each_other_out() {
    let place = place(3, 2);
    let (a, a_at) = open(&place, 0);
    let (b, b_at) = open(&place, 1);
    // The same port, at another address of this machine.
    let c = Node::open(&place, 2, 2, &b_at.replace("127.0.0.1", "127.0.0.2")).expect("the address is free");
    let to_a = [&b, &c].map(|node| node.connect(&a_at, SOON).expect("it is there"));
    std::thread::sleep(Duration::from_millis(300));
    let peers = a.peers().expect("known");
    assert_eq!(peers.len(), 2, "{peers:?}");
    for (node, to) in [&b, &c].into_iter().zip(to_a) {
        node.send(to, b"still here").expect("it is there");
        assert_eq!(message(&a).1, b"still here");
    }
    drop((a, b, c));
}

/// Has a node's own thread do something, once.
fn on_its_thread(node: &Node, work: impl FnOnce() + Send + 'static) {
    let (mut looks, mut work) = (0, Some(work));
    let read = move || {
        looks += 1;
        looks
    };
    let each = move |_, _| {
        work.take().into_iter().for_each(|work| work());
        Goes::Off
    };
    node.watch(Box::new(read), Box::new(each)).expect("open");
}

#[test]
fn a_call_from_a_callback_is_refused_and_does_not_wait_for_itself() {
    let nodes = Arc::new(nodes(2, 1));
    let (tell, told) = channel();
    let (own, never) = (nodes.clone(), nodes[0].expect(1, 8, 1, None).expect("open"));
    on_its_thread(&nodes[0], move || {
        let refused = own[0].send(1, b"two").err().map(|error| error.to_string());
        let waits = [
            own[0].counts().is_err(),
            own[0].expect(1, 9, 1, None).is_err(),
            never.wait(Duration::MAX).is_err(),
            own[0].receive(Duration::MAX).is_err(),
        ];
        // What does not wait is answered, and another engine answers.
        let answers = [matches!(never.wait(Duration::ZERO), Ok(None)), own[1].counts().is_ok()];
        drop(own);
        let _ = tell.send((refused, waits, answers));
    });
    let text = "a call: expected a thread of the program's, got the engine's own, in a callback: it would wait for \
                itself";
    assert_eq!(told.recv_timeout(SOON), Ok((Some(text.to_owned()), [true; 4], [true; 2])));
    goes_on(&nodes);
}

#[test]
fn a_node_that_is_dropped_in_its_own_callback_ends() {
    for connected in [false, true] {
        let (tell, told) = channel();
        let place = place(2, 2);
        let (one, other) = if connected {
            let ((a, at), (b, _)) = (open(&place, 0), open(&place, 1));
            b.connect(&at, SOON).expect("it is there");
            (b, a)
        } else {
            let mut both = nodes(2, 1);
            let other = both.remove(1);
            (both.remove(0), other)
        };
        let peer = if connected { one.peers().expect("known")[0] } else { 1 };
        one.send(peer, b"last").expect("short");
        let shared = Arc::new(Mutex::new(None));
        let own = shared.clone();
        on_its_thread(&one, move || {
            let until = Instant::now() + SOON;
            let taken = || std::iter::repeat_with(|| own.lock().expect("no panic").take());
            let node: Option<Node> = taken().find(|node| node.is_some() || Instant::now() > until).flatten();
            let _ = tell.send(node.is_some());
            drop(node);
            let _ = tell.send(true);
        });
        *shared.lock().expect("no panic") = Some(one);
        assert_eq!(told.recv_timeout(SOON), Ok(true), "connected: {connected}");
        assert_eq!(told.recv_timeout(SOON), Ok(true), "connected: {connected}");
        assert_eq!(other.receive(SOON).expect("open").map(|(_, message)| message), Some(b"last".to_vec()));
        drop(other);
    }
}

#[test]
fn a_word_that_cannot_be_read_ends_its_watcher_alone() {
    let nodes = nodes(2, 1);
    let read = || -> u64 { panic!("on purpose, at the first look") };
    let begun = nodes[0].watch(Box::new(read), Box::new(|_, _| Goes::On));
    assert!(!matches!(begun, Err(CallError::Closed)), "the engine goes on");
    let looks = AtomicU64::new(0);
    let read = move || match looks.fetch_add(1, Ordering::Relaxed) {
        0..5 => 0,
        _ => panic!("on purpose, later"),
    };
    let watcher = nodes[0].watch(Box::new(read), Box::new(|_, _| Goes::On)).expect("open");
    std::thread::sleep(Duration::from_millis(20));
    assert!(!nodes[0].unwatch(watcher).expect("open"), "it has ended");
    goes_on(&nodes);
}

/// Cause: the engine's thread registered memory and took it back, and all transfers of the node waited for a NIC that
/// was silent.
#[test]
fn writes_go_on_while_a_registration_waits_for_a_silent_nic() {
    let nodes = nodes(2, 2);
    let own = [0, 1].map(|end| Own::new(&nodes[end], 64, 0, Rights::Write));
    let (target, idle) = (described(&own[1]), Own::new(&nodes[0], 64, 0, Rights::Write).region);
    let write = || {
        let write = nodes[0].write(1, 64, None, (&own[0].region, 0), (&target, 0)).expect("fits");
        assert_eq!(write.wait(SOON).expect("open").map(|end| end.result), Some(Ok(())));
    };
    let (written, memory) = (AtomicU64::new(0), own[0].region.memory());
    let during = std::thread::scope(|scope| {
        let registers = scope.spawn(|| {
            let during = |call: &dyn Fn() -> bool| {
                let before = written.load(Ordering::Relaxed);
                assert!(call(), "a NIC is silent");
                written.load(Ordering::Relaxed) - before
            };
            let register = || nodes[0].register(memory.clone(), Rights::Local).is_err();
            let deregister = || nodes[0].deregister(&idle).is_err();
            // A NIC that did not answer a call is not asked again for a while.
            let most = |call: &dyn Fn() -> bool| {
                let silent = FaultKind::FwTimeout { for_ns: Some(500_000_000) };
                nodes[0].place().nics.inject(RailAt { pe: 0, rail: 1 }, silent).expect("a soft NIC");
                let most = (0..20).map(|_| during(call)).max().unwrap_or(0);
                let tries = (0..5000).map(|_| std::thread::sleep(Duration::from_millis(1)));
                assert!(tries.take_while(|()| register()).count() < 5000, "it answers again");
                most
            };
            [most(&register), most(&deregister)]
        });
        while !registers.is_finished() {
            write();
            written.fetch_add(1, Ordering::Relaxed);
        }
        registers.join().expect("no panic")
    });
    assert!(during.iter().all(|most| *most > 5), "writes while one of 20 calls waited: {during:?}");
    nodes[0].deregister(&idle).expect("it answers again");
    drop(nodes);
}

/// Cause: a NIC that was silent while its node ended was asked once to let go of memory, which stayed allocated.
#[test]
fn memory_is_let_go_of_though_a_nic_is_silent_when_its_node_ends() {
    let mut nodes = nodes(2, 2);
    let own = Own::new(&nodes[0], 64, 0, Rights::Write);
    let (memory, at) = (own.region.memory().clone(), RailAt { pe: 0, rail: 1 });
    drop(own);
    nodes[0].place().nics.inject(at, FaultKind::FwTimeout { for_ns: Some(300_000_000) }).expect("a soft NIC");
    drop(nodes.remove(0));
    assert_eq!(std::sync::Arc::strong_count(&memory), 1, "no NIC has it");
}
