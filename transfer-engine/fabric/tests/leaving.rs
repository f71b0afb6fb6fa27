//! Peers that are cut off, keys that are taken back, and peers that say nothing.

use crate::rig::{TCP, read, write};
use crate::two::{BYTES, PAGES, SECOND, Two, two, two_behind, two_that_wait};
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{OnDone, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::Rights;
use shunt_transfer_engine::transfer::Ended;
use shunt_transfer_engine::watch::Goes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};

const POISON: u8 = 0xee;
/// An endpoint is set aside after this time.
const SHORT: Nanos = Nanos::millis(50);

/// Begins rounds until pages of the last one land, and leaves it under way: where its end comes.
fn under_way(two: &mut Two) -> Receiver<Ended> {
    two.until_rails(2);
    two.fill(1);
    let (send, ends) = channel();
    for imm in 0..8 {
        let send = send.clone();
        two.paged_with(imm, OnDone::Call(Box::new(move |ended| drop(send.send(ended)))));
    }
    two.until("pages", |two| (0..8).map(|imm| two.engines[1].counter(PeerId(0), imm)).sum::<u64>() > 50);
    ends
}

fn poisoned(two: &mut Two) -> bool {
    write(&two.memories[1], 0, &vec![POISON; BYTES as usize]);
    let end = two.now() + Nanos::millis(300);
    while two.now() < end {
        two.step();
    }
    read(&two.memories[1], 0, BYTES as usize).iter().all(|byte| *byte == POISON)
}

#[test]
fn nothing_of_a_peer_that_was_cut_off_lands_although_it_goes_on() {
    let Some(mut two) = two(&[TCP, SECOND]) else { return };
    let ends = under_way(&mut two);
    let left = Arc::new(AtomicBool::new(false));
    let told = left.clone();
    let now = two.now();
    assert!(two.engines[1].leave(now, PeerId(0), Box::new(move || told.store(true, Ordering::Release))));
    // The sender is not stepped: it need not answer.
    two.until_of(1, "a farewell", |_| left.load(Ordering::Acquire));
    assert!(ends.try_recv().is_err(), "it was cut off under way");
    assert!(poisoned(&mut two), "something landed");
}

#[test]
fn a_transfer_into_a_region_that_was_taken_back_ends_as_denied_and_others_go_on() {
    let Some(mut two) = two(&[TCP, SECOND]) else { return };
    let ends = under_way(&mut two);
    two.take_back();
    assert!(poisoned(&mut two), "something landed");
    let mut results = Vec::new();
    two.until("all ends", |_| {
        results.extend(ends.try_iter().map(|ended| ended.result));
        results.len() == 8
    });
    let denied = |result: &&Result<(), TransferError>| matches!(result, Err(TransferError::Denied { .. }));
    assert!(results.iter().any(|result| denied(&result)), "{results:?}");
    assert!(results.iter().all(|result| result.is_ok() || denied(&result)), "{results:?}");
    two.regions[1] = two.engines[1].domain.register(&two.memories[1], Rights::ReadWrite).expect("a region");
    let (reached, done) = (two.expect(99, PAGES.into()), two.paged(99));
    two.until("pages", |_| reached.load(Ordering::Acquire) == 1 && crate::two::is_done(&done));
    two.check(1);
}

#[test]
fn a_transfer_to_a_peer_that_stops_proves_nothing_of_what_was_under_way() {
    let Some(mut two) = two(&[TCP, SECOND]) else { return };
    let ends = under_way(&mut two);
    let mut results = Vec::new();
    // The receiver is not stepped any more.
    two.until_of(0, "all ends", |_| {
        results.extend(ends.try_iter().map(|ended| (ended.result, ended.quiesced.is_some())));
        results.len() == 8
    });
    for (result, quiesced) in &results {
        let fits = match result {
            Ok(()) => true,
            Err(TransferError::Unproven { .. }) => !*quiesced,
            Err(TransferError::Uncertain { .. } | TransferError::PeerLost { .. }) => *quiesced,
            Err(_) => false,
        };
        assert!(fits, "{result:?}");
    }
    assert!(results.iter().any(|(result, _)| result.is_err()), "it was stopped under way");
}

#[test]
fn a_long_write_that_has_started_does_not_go_on_into_a_region_that_was_taken_back() {
    const TRIES: usize = 5;
    let hit = (0..TRIES).any(|_| {
        let Some(mut two) = two(&[TCP, SECOND]) else { return true };
        two.until_rails(2);
        two.fill(1);
        let (source, target) = (two.regions[0].clone(), two.regions[1].describe(Rights::ReadWrite));
        let now = two.now();
        let write = Write { peer: PeerId(1), len: BYTES, imm: Some(1), from: (&source, 0), to: (&target, 0) };
        let pieces = two.engines[0].policy().writes_of(BYTES);
        two.engines[0].submit_write(now, &write, OnDone::None).expect("posted");
        two.until("its first bytes", |two| {
            [0, BYTES / 2].iter().any(|at| read(&two.memories[1], *at, 8) != [0; 8])
        });
        let arrived = two.engines[1].counter(PeerId(0), 1);
        two.take_back();
        assert!(poisoned(&mut two), "something landed");
        arrived < pieces.into()
    });
    assert!(hit, "the write had ended each time");
}

/// Steps end 1 alone, until a word that it watches was seen to change a few times.
fn goes_on(two: &mut Two) {
    let seen = Arc::new(AtomicU64::new(0));
    let (told, mut word) = (seen.clone(), 0);
    let each = move |_, _| {
        told.fetch_add(1, Ordering::Relaxed);
        Goes::On
    };
    let read = move || {
        word += 1;
        word
    };
    let watcher = two.engines[1].watch(Box::new(read), Box::new(each));
    two.until_of(1, "a change of the word", |_| seen.load(Ordering::Relaxed) > 100);
    assert!(two.engines[1].unwatch(watcher));
}

#[test]
fn an_engine_goes_on_while_endpoints_of_a_peer_that_was_cut_off_do_not_close() {
    let gate = Arc::new(AtomicBool::new(false));
    let Some(mut two) = two_behind(&[TCP, SECOND], Some(&gate)) else { return };
    let _ends = under_way(&mut two);
    let (left, now) = (Arc::new(AtomicBool::new(false)), two.now());
    let told = left.clone();
    assert!(two.engines[1].leave(now, PeerId(0), Box::new(move || told.store(true, Ordering::Release))));
    goes_on(&mut two);
    assert!(!left.load(Ordering::Acquire), "nothing is proved while an endpoint is open");
    gate.store(true, Ordering::Release);
    two.until_of(1, "a farewell", |_| left.load(Ordering::Acquire));
    assert!(poisoned(&mut two), "something landed");
}

#[test]
fn an_engine_goes_on_while_a_region_is_taken_back() {
    let gate = Arc::new(AtomicBool::new(false));
    let Some(mut two) = two_behind(&[TCP, SECOND], Some(&gate)) else { return };
    let _ends = under_way(&mut two);
    let region = two.regions[1].clone();
    two.engines[1].domain.deregister(&region);
    goes_on(&mut two);
    let is_over = |two: &mut Two| two.engines[1].domain.deregistered(&region).expect("none is set aside");
    assert!(!is_over(&mut two), "nothing is proved while an endpoint is open");
    gate.store(true, Ordering::Release);
    two.until_of(1, "a region taken back", is_over);
    assert!(poisoned(&mut two), "something landed");
}

/// It was never reported: nothing looked whether the endpoint was closed later.
#[test]
fn a_peer_with_an_endpoint_that_was_set_aside_is_cut_off_once_it_is_closed_after_all() {
    let gate = Arc::new(AtomicBool::new(false));
    let Some(mut two) = two_that_wait(&[TCP, SECOND], Some(&gate), SHORT) else { return };
    let _ends = under_way(&mut two);
    let (left, now) = (Arc::new(AtomicBool::new(false)), two.now());
    let told = left.clone();
    assert!(two.engines[1].leave(now, PeerId(0), Box::new(move || told.store(true, Ordering::Release))));
    is_set_aside(&mut two);
    goes_on(&mut two);
    assert!(!left.load(Ordering::Acquire), "nothing is proved while an endpoint is open");
    gate.store(true, Ordering::Release);
    two.until_of(1, "a farewell", |_| left.load(Ordering::Acquire));
    assert!(poisoned(&mut two), "something landed");
}

/// The memory stayed for good.
#[test]
fn a_region_of_a_rail_where_an_endpoint_was_set_aside_is_free_once_it_is_closed_after_all() {
    let gate = Arc::new(AtomicBool::new(false));
    let Some(mut two) = two_that_wait(&[TCP, SECOND], Some(&gate), SHORT) else { return };
    let _ends = under_way(&mut two);
    let region = two.regions[1].clone();
    two.engines[1].domain.deregister(&region);
    is_set_aside(&mut two);
    let mut said = None;
    two.until_of(1, "an answer", |two| {
        said = match two.engines[1].domain.deregistered(&region) {
            Ok(over) => over.then_some(Ok(())),
            Err(error) => Some(Err(error.to_string())),
        };
        said.is_some()
    });
    let why = said.and_then(Result::err).expect("it may still be written");
    assert!(why.contains("where one was set aside"), "{why}");
    assert!(Arc::strong_count(&two.memories[1]) > 1, "it is kept");
    gate.store(true, Ordering::Release);
    // The other end is not stepped: no path is made again.
    two.until_of(1, "a region taken back", |two| two.engines[1].domain.deregistered(&region) == Ok(true));
    assert_eq!(Arc::strong_count(&two.memories[1]), 1, "it is free");
    assert!(poisoned(&mut two), "something landed");
}

/// Steps end 1 alone, until it says that an endpoint does not close.
fn is_set_aside(two: &mut Two) {
    two.until_of(1, "an endpoint that is set aside", |two| {
        two.engines[1].domain.take_remarks().iter().any(|remark| remark.contains("does not close"))
    });
}

/// Keys stayed good until the endpoints of that moment were closed, and a path that was made again meanwhile took them.
#[test]
fn a_path_that_is_made_while_a_region_is_taken_back_takes_none_of_its_keys() {
    let Some(mut two) = two(&[TCP, SECOND]) else { return };
    let _ends = under_way(&mut two);
    let region = two.regions[1].clone();
    two.engines[1].domain.deregister(&region);
    // Both ends go on, and nobody asks meanwhile whether it is over.
    assert!(poisoned(&mut two), "something landed");
    let is_over = |two: &mut Two| two.engines[1].domain.deregistered(&region).expect("none is set aside");
    two.until("a region taken back", is_over);
}

#[test]
fn memory_of_an_engine_that_is_dropped_stays_until_its_endpoints_are_closed() {
    let gate = Arc::new(AtomicBool::new(false));
    let Some(mut two) = two_behind(&[TCP, SECOND], Some(&gate)) else { return };
    let _ends = under_way(&mut two);
    let taken = crate::rig::memory(4096);
    let more = two.engines[1].domain.register(&taken, Rights::ReadWrite).expect("a region");
    two.engines[1].domain.deregister(&more);
    let Two { engines: [_sender, receiver], memories: [_, memory], .. } = two;
    // That it is dropped does not wait for the gate.
    drop(receiver);
    let is_kept = || [&memory, &taken].map(|memory| Arc::strong_count(memory) > 1);
    assert_eq!(is_kept(), [true; 2], "an endpoint is open that may place bytes there");
    gate.store(true, Ordering::Release);
    crate::rig::until("all memory back", || is_kept() == [false; 2]);
}
