//! Two links, back to back.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

const VERSIONS: (u32, u32) = (preamble::PROTOCOL, 7);

fn local(rank: u32, secret: &str) -> Local {
    let secret = Secret::from_text(secret).unwrap();
    Local { rank, world: 4, versions: VERSIONS, secret, job: Some([7; 16]) }
}

const SECRET: &str = "sixteen characters, at least";

/// Moves bytes in pieces of `piece` until nothing moves, or trouble: of the side that connects, of the other.
fn talk(a: &mut Link, b: &mut Link, piece: usize) -> (Option<Trouble>, Option<Trouble>) {
    fn pass(from: &mut Link, to: &mut Link, piece: usize) -> (bool, Option<Trouble>) {
        let bytes = from.outgoing().to_vec();
        from.written(bytes.len());
        for part in bytes.chunks(piece) {
            if let Err(trouble) = to.feed(part) {
                return (true, Some(trouble));
            }
        }
        (!bytes.is_empty(), None)
    }
    let (mut here, mut there) = (None, None);
    loop {
        let (moved, trouble) = pass(a, b, piece);
        there = there.or(trouble);
        let (back, trouble) = pass(b, a, piece);
        here = here.or(trouble);
        if (!moved && !back) || here.is_some() {
            return (here, there);
        }
    }
}

fn pair(a: Local, b: Local, purpose: Purpose) -> (Link, Link) {
    (Link::connect(a, purpose), Link::accept(b))
}

#[test]
fn messages_go_both_ways_in_order_whatever_the_pieces() {
    for piece in [1, 7, 1000, 1 << 20] {
        let (mut a, mut b) = pair(local(3, SECRET), local(0, SECRET), Purpose::Join);
        a.send(&Frame::Ping);
        assert_eq!(talk(&mut a, &mut b, piece), (None, None));
        assert!(a.is_open() && b.is_open());
        assert_eq!((b.next(), b.next()), (Ok(Some(Frame::Ping)), Ok(None)));
        let large = Frame::Give { round: 3, bytes: Arc::new((0..100_000u32).map(|i| i as u8).collect()) };
        let bye = Frame::Bye { why: "a NIC".to_owned() };
        for frame in [&large, &bye] {
            a.send(frame);
            b.send(frame);
        }
        assert_eq!(talk(&mut a, &mut b, piece), (None, None));
        for side in [&mut a, &mut b] {
            assert_eq!(side.next().unwrap().as_ref(), Some(&large));
            assert_eq!((side.next(), side.pending()), (Ok(Some(bye.clone())), 0));
        }
    }
}

#[test]
fn a_wrong_secret_is_told_to_both() {
    let (mut a, mut b) = pair(local(3, "another secret than that"), local(0, SECRET), Purpose::Join);
    let (here, there) = talk(&mut a, &mut b, 100);
    assert_eq!(there, Some(Trouble::Here(Refusal::Secret)));
    assert_eq!(here, Some(Trouble::There(Refusal::Secret)));
}

#[test]
fn another_version_is_told_to_both_before_any_key_is_used() {
    let old = Local { versions: (preamble::PROTOCOL, 6), ..local(3, SECRET) };
    let (mut a, mut b) = pair(old, local(0, SECRET), Purpose::Join);
    let (here, there) = talk(&mut a, &mut b, 100);
    assert_eq!(there, Some(Trouble::Here(Refusal::Abi { theirs: 6, ours: 7 })));
    assert_eq!(here, Some(Trouble::Here(Refusal::Abi { theirs: 7, ours: 6 })));
}

#[test]
fn a_mesh_connection_is_bound_to_its_job_and_its_ranks() {
    let mesh = |from, to| Purpose::Mesh { from, to };
    let (mut a, mut b) = pair(local(3, SECRET), local(1, SECRET), mesh(3, 1));
    assert_eq!(talk(&mut a, &mut b, 100), (None, None));
    assert_eq!(b.purpose(), mesh(3, 1));
    let other_job = Local { job: Some([8; 16]), ..local(3, SECRET) };
    let (mut a, mut b) = pair(other_job, local(1, SECRET), mesh(3, 1));
    assert_eq!(talk(&mut a, &mut b, 100).1, Some(Trouble::Here(Refusal::Secret)));
    for (from, to, at) in [(3, 1, 2), (1, 3, 3), (2, 2, 2), (4, 1, 1)] {
        let mut wide = local(from, SECRET);
        wide.world = 9;
        let (mut a, mut b) = pair(wide, local(at, SECRET), mesh(from, to));
        // Either side may find the fault first: the side that connects knows its own mistakes once it is answered.
        let (here, there) = talk(&mut a, &mut b, 100);
        assert_eq!(there, Some(Trouble::Here(Refusal::Stray { from, to })), "{from} {to} {at} {here:?}");
    }
    let (mut a, mut b) = pair(local(3, SECRET), local(1, SECRET), Purpose::Join);
    assert!(matches!(talk(&mut a, &mut b, 100).1, Some(Trouble::Here(Refusal::Broken(_)))));
}

#[test]
fn the_first_message_is_short() {
    let (mut a, mut b) = pair(local(3, SECRET), local(0, SECRET), Purpose::Join);
    a.send(&Frame::Datagram { topic: 0, bytes: vec![0; HELLO_MAX] });
    assert_eq!(talk(&mut a, &mut b, 100), (None, None));
    assert_eq!(b.next(), Err(Trouble::Here(Refusal::Broken("a message is too long"))));
}

#[test]
fn a_record_that_was_changed_or_repeated_is_noticed() {
    for repeat in [false, true] {
        let (mut a, mut b) = pair(local(3, SECRET), local(0, SECRET), Purpose::Join);
        talk(&mut a, &mut b, 100);
        a.send(&Frame::Ping);
        let mut record = a.outgoing().to_vec();
        match repeat {
            true => b.feed(&record).unwrap(),
            false => record[4] ^= 1,
        }
        assert!(matches!(b.feed(&record), Err(Trouble::Here(Refusal::Broken(_)))));
    }
}

#[test]
fn a_refusal_in_the_clear_counts_for_nothing_once_keys_are_there() {
    let (mut a, mut b) = pair(local(3, SECRET), local(0, SECRET), Purpose::Join);
    talk(&mut a, &mut b, 100);
    let mut forged = vec![0xff, 0xff, 4];
    forged.extend([0; 8]);
    assert!(matches!(a.feed(&forged), Err(Trouble::Here(Refusal::Broken(_)))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn garbage_at_any_point_never_panics(
        garbage in prop::collection::vec(any::<u8>(), 0..400),
        after in 0usize..200,
        connecting: bool,
    ) {
        let (mut a, mut b) = pair(local(3, SECRET), local(0, SECRET), Purpose::Join);
        let mut left = after;
        // So many good bytes, then garbage.
        for _ in 0..4 {
            let good = a.outgoing().to_vec();
            a.written(good.len());
            if connecting || good.len() <= left {
                b.feed(&good).unwrap();
            }
            let back = b.outgoing().to_vec();
            b.written(back.len());
            if !connecting || back.len() <= left {
                a.feed(&back).unwrap();
            }
            left = left.saturating_sub(good.len().max(back.len()));
        }
        let victim = if connecting { &mut a } else { &mut b };
        let mut over = victim.feed(&garbage).is_err();
        while let Ok(Some(_)) = victim.next() {}
        over |= victim.next().is_err();
        // Random bytes are no message of ours.
        prop_assert!(over || victim.next() == Ok(None));
    }
}
