//! A process that forks: its child has no thread that drives an engine.

use super::{Own, SOON, described, nodes, open, place};
use crate::misuse::goes_on;
use shunt_transfer::Node;
use shunt_transfer_engine::region::Rights;
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::FromRawFd as _;
use std::time::{Duration, Instant};

/// Has a child of this process do something, and waits for its end: its exit status, or `None` if it hangs.
fn in_a_child(work: impl FnOnce() -> bool) -> Option<i32> {
    // SAFETY: the child does no more than `work`, and ends without anything that is done at an exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: it takes a number.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    assert!(child > 0, "a child");
    let (until, mut status) = (Instant::now() + SOON, 0);
    // SAFETY: the child is this test's own, and the status lies on its stack.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if Instant::now() > until {
            // SAFETY: the child is this test's own, and was not waited for to its end.
            unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, &raw mut status, 0)) };
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(status)
}

#[test]
fn a_child_is_told_that_its_engine_is_closed_and_harms_nothing_of_its_parent() {
    let both = nodes(2, 2);
    let place = place(2, 2);
    let ((a, _), (b, b_at)) = (open(&place, 0), open(&place, 1));
    let peer = a.connect(&b_at, SOON).expect("it is there");
    let own = Own::new(&both[0], 4096, 1, Rights::Write);
    let target = described(&own);
    let sent = both[0].send(1, &[1; 1000]).expect("short");
    let status = in_a_child(|| {
        let is_closed = both[0].counts().is_err()
            && both[0].write(1, 16, None, (&own.region, 0), (&target, 0)).is_err()
            && both[0].deregister(&own.region).is_err()
            && both[1].receive(Duration::MAX).is_err()
            && both[0].exchange(b"mine").is_err()
            && a.connect(&b_at, Duration::MAX).is_err()
            && a.next_change(Duration::MAX).is_err()
            && a.revoke(peer, Duration::MAX).is_err()
            && sent.wait(Duration::MAX).map_or(true, |end| end.is_some());
        // SAFETY: the child drops its own copies, and ends without a look at them.
        drop(unsafe { (std::ptr::read(&raw const both), std::ptr::read(&raw const a)) });
        is_closed
    });
    assert_eq!(status, Some(0), "expected the end of the child with all calls refused");
    goes_on(&both);
    a.send(peer, b"still here").expect("it is there");
    assert_eq!(super::message(&b).1, b"still here");
    drop((both, a, b));
}

/// Cause: a child that lived on kept the socket of its parent's node, and nothing could listen there once the parent's
/// node had ended.
#[test]
fn a_child_that_lives_on_does_not_keep_the_address_of_its_parents_node() {
    let place = place(2, 2);
    let (node, at) = open(&place, 0);
    // SAFETY: the child waits for its end, and does nothing else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: it waits for a signal.
            unsafe { libc::pause() };
        }
    }
    assert!(child > 0, "a child");
    drop(node);
    let again = Node::open(&place, 1, 2, &at).map(|node| node.listens_at().expect("it listens").to_string());
    let mut status = 0;
    // SAFETY: the child is this test's own, and was not waited for; the status lies on the stack.
    unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, &raw mut status, 0)) };
    assert_eq!(again.expect("the address is free"), at);
}

/// Cause: a child that lived on held its parent's connections, so that a peer did not see the end of a parent that was
/// killed.
#[test]
fn a_child_has_no_connection_of_its_parents_nodes() {
    let place = place(2, 2);
    let ((a, a_at), (b, b_at)) = (open(&place, 0), open(&place, 1));
    let peer = a.connect(&b_at, SOON).expect("it is there");
    let ports = [&a_at, &b_at].map(|at| at.parse::<SocketAddr>().expect("an address").port());
    let status = in_a_child(|| {
        let held = std::fs::read_dir("/proc/self/fd").expect("a list").filter_map(|file| {
            let number = file.ok()?.file_name().to_str()?.parse().ok()?;
            // SAFETY: it is asked for its addresses, and closed by no one here.
            let socket = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(number) });
            let own = socket.local_addr().ok()?.port();
            let other = socket.peer_addr().map_or(0, |other| other.port());
            (ports.contains(&own) || ports.contains(&other)).then_some(number)
        });
        held.count() == 0
    });
    assert_eq!(status, Some(0), "expected no socket of either node in the child");
    a.send(peer, b"still here").expect("it is there");
    assert_eq!(super::message(&b).1, b"still here");
    drop((a, b));
}
