//! Messages: each arrives once, in no order.

use crate::rig::{QKEY, Rig, Weather, ended};
use shunt_soft_srd::format::Status;
use shunt_soft_srd::qp::{Change, Service, State};
use std::collections::BTreeSet;

/// Messages of a test.
const MESSAGES: u16 = 600;
/// Room of each receive, and of each message.
const ROOM: usize = 9000;

/// Bytes of a message: some need one segment, some two, some three.
fn length(request: u16) -> u32 {
    [0, 1, 32, 4032, 4033, 8928][request as usize % 6]
}

/// Sends all messages, and gives back in which order they arrived.
fn run(seed: u64, weather: Weather) -> (Rig, Vec<u16>) {
    let mut rig = Rig::new(seed, Service::Reliable, weather);
    let (mut sent, mut posted, mut done) = (0, 0usize, BTreeSet::new());
    let mut arrived = Vec::new();
    // Eight at a time, each with a place of its own.
    let mut free: Vec<u16> = (0..8).collect();
    let mut place = vec![0; MESSAGES as usize];
    rig.until("all messages", |rig| {
        let to = rig.programs[1].qpn;
        while posted < arrived.len() + 20 {
            rig.programs[1].receive(posted as u16 % 32, posted % 32 * ROOM, ROOM as u16);
            posted += 1;
        }
        while sent < MESSAGES
            && let Some(slot) = free.pop()
        {
            let fill = [sent as u8 ^ 0x5a; ROOM];
            rig.programs[0].memory.put(slot as usize * ROOM, &fill[..length(sent) as usize]);
            place[sent as usize] = slot;
            rig.programs[0].send(sent, slot as usize * ROOM, length(sent), to);
            sent += 1;
        }
        while let Some(seen) = rig.programs[0].poll() {
            assert_eq!((seen.receive, seen.status), (false, 0), "{seen:?}");
            assert!(done.insert(seen.request), "{} completed twice", seen.request);
            free.push(place[seen.request as usize]);
        }
        while let Some(seen) = rig.programs[1].poll() {
            assert_eq!((seen.receive, seen.status), (true, 0), "{seen:?}");
            let message = seen.imm.unwrap() as u16;
            assert_eq!(u32::from(seen.bytes), length(message));
            let got = rig.programs[1].memory.get(seen.request as usize * ROOM, seen.bytes.into());
            assert!(got.iter().all(|byte| *byte == message as u8 ^ 0x5a), "message {message}");
            arrived.push(message);
        }
        done.len() == MESSAGES as usize && arrived.len() >= MESSAGES as usize
    });
    (rig, arrived)
}

#[test]
fn messages_arrive_once_and_in_no_order() {
    let (rig, arrived) = run(1, Weather::default());
    let in_order: Vec<u16> = (0..MESSAGES).collect();
    let mut sorted = arrived.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, in_order);
    assert_ne!(arrived, in_order);
    let counted = rig.counters(1);
    assert!(counted.reordered > 0 && counted.messages == u64::from(MESSAGES), "{counted:?}");
    assert_eq!(rig.counters(0).retransmits, 0);
    assert_eq!(run(1, Weather::default()).1, arrived, "the seed says the order");
}

#[test]
fn what_is_lost_or_doubled_changes_nothing() {
    for seed in 1..=5 {
        let (rig, mut arrived) = run(seed, Weather { lost: 100, doubled: 100 });
        arrived.sort_unstable();
        assert_eq!(arrived, (0..MESSAGES).collect::<Vec<u16>>(), "seed {seed}");
        assert!(rig.lost > 0 && rig.doubled > 0 && rig.counters(0).retransmits > 0, "seed {seed}");
        assert!(rig.counters(1).duplicates > 0, "seed {seed}");
    }
}

#[test]
fn a_message_that_cannot_be_taken_says_why() {
    let mut rig = Rig::new(1, Service::Reliable, Weather::default());
    let to = rig.programs[1].qpn;
    // Nothing is posted there, and one try is all.
    let change = Change { retries: Some(1), ..Change::default() };
    let from = rig.programs[0].qpn;
    rig.programs[0].device.change_qp(from, change).unwrap();
    rig.programs[0].send(1, 0, 10, to);
    let seen = rig.completion(0);
    assert_eq!((seen.request, seen.status), ended(1, Status::NotReady));
    assert_eq!(rig.counters(1).not_ready, 2);
    // Too short: both are told.
    rig.programs[1].receive(7, 0, 9);
    rig.programs[0].send(2, 0, 10, to);
    let (seen, there) = (rig.completion(0), rig.completion(1));
    assert_eq!((seen.request, seen.status), ended(2, Status::BadRemoteLength));
    assert_eq!((there.request, there.status), ended(7, Status::BadLength));
    // No such queue pair.
    rig.programs[0].send(3, 0, 10, to + 5);
    let seen = rig.completion(0);
    assert_eq!((seen.request, seen.status), ended(3, Status::BadRemoteQp));
    // Local mistakes.
    rig.programs[0].send(4, 0, 8929, to);
    rig.programs[0].post(5, 2, 0, 0, to, &[]);
    rig.programs[0].post(6, 0, 1, 0, to, &[1, 0, 0, 0, 0xff]);
    let statuses = [4, 5, 6].map(|_| rig.completion(0)).map(|seen| (seen.request, seen.status));
    let wanted = [ended(4, Status::BadLength), ended(5, Status::BadOperation), ended(6, Status::BadLocalKey)];
    assert_eq!(statuses, wanted);
}

#[test]
fn keys_and_handles_are_those_of_the_receiver_and_of_the_domain() {
    let mut rig = Rig::new(1, Service::Reliable, Weather::default());
    let to = rig.programs[1].qpn;
    let key = |qkey| Change { qkey: Some(qkey), ..Change::default() };
    rig.programs[1].receive(7, 0, 10);
    rig.programs[1].device.change_qp(to, key(QKEY + 1)).unwrap();
    rig.programs[0].send(1, 0, 10, to);
    let seen = rig.completion(0);
    assert_eq!((seen.request, seen.status), ended(1, Status::BadRemoteQp), "another key");
    rig.programs[1].device.change_qp(to, key(QKEY)).unwrap();
    let right = rig.programs[0].handle;
    let other = rig.programs[0].device.add_pd().unwrap();
    for handle in [rig.programs[0].device.add_handle(other, 2, 2).unwrap(), 99] {
        rig.programs[0].handle = handle;
        rig.programs[0].send(2, 0, 10, to);
        let seen = rig.completion(0);
        assert_eq!((seen.request, seen.status), ended(2, Status::BadHandle), "handle {handle}");
    }
    rig.programs[0].handle = right;
    rig.programs[0].send(3, 0, 10, to);
    assert_eq!((rig.completion(0).status, rig.completion(1).request), (0, 7));
}

#[test]
fn a_receiver_that_is_late_gets_its_message() {
    let mut rig = Rig::new(1, Service::Reliable, Weather::default());
    let to = rig.programs[1].qpn;
    rig.programs[0].send(1, 0, 8000, to);
    rig.until("a refusal", |rig| rig.counters(1).not_ready > 3);
    rig.programs[1].receive(7, 0, 8000);
    assert_eq!((rig.completion(0).status, rig.completion(1).bytes), (0, 8000));
}

#[test]
fn who_never_answers_is_given_up() {
    let mut rig = Rig::new(1, Service::Reliable, Weather { lost: 1000, doubled: 0 });
    let to = rig.programs[1].qpn;
    rig.programs[0].send(1, 0, 10, to);
    let seen = rig.completion(0);
    assert_eq!((seen.request, seen.status), ended(1, Status::Unresponsive));
    assert!(rig.lost > 10);
}

#[test]
fn an_error_flushes_everything_once() {
    let mut rig = Rig::new(1, Service::Reliable, Weather { lost: 1000, doubled: 0 });
    let (from, to) = (rig.programs[0].qpn, rig.programs[1].qpn);
    (0..3).for_each(|request| rig.programs[0].send(request, 0, 10, to));
    rig.step();
    rig.programs[0].send(3, 0, 10, to);
    (10..12).for_each(|request| rig.programs[0].receive(request, 0, 10));
    let change = |state| Change { state: Some(state), ..Change::default() };
    rig.programs[0].device.change_qp(from, change(State::Error)).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| rig.programs[0].poll()).collect();
    assert!(all.iter().all(|seen| seen.status == Status::Flushed as u8), "{all:?}");
    let requests: Vec<u16> = all.iter().map(|seen| seen.request).collect();
    assert_eq!(requests, [0, 1, 2, 3, 10, 11]);
    rig.programs[0].device.change_qp(from, change(State::Reset)).unwrap();
    (0..100).for_each(|_| rig.step());
    assert_eq!(rig.programs[0].poll(), None);
}

#[test]
fn datagrams_come_behind_a_header_or_not_at_all() {
    let mut rig = Rig::new(3, Service::Unreliable, Weather { lost: 200, doubled: 0 });
    let to = rig.programs[1].qpn;
    let mut came = 0;
    for n in 0..200u16 {
        rig.programs[1].receive(1, 0, 9000);
        rig.programs[0].memory.put(0, &[n as u8; 5000]);
        rig.programs[0].send(n, 0, 5000, to);
        let seen = rig.completion(0);
        assert_eq!((seen.request, seen.status), (n, 0), "it is complete when it is sent");
        (0..200).for_each(|_| rig.step());
        if let Some(seen) = rig.programs[1].poll() {
            assert_eq!((seen.bytes, seen.imm), (5040, Some(n.into())));
            assert_eq!(rig.programs[1].memory.get(40, 5000), [n as u8; 5000]);
            assert_eq!(rig.programs[1].memory.get(8, 16), 1u128.to_be_bytes(), "who sent it");
            came += 1;
        } else {
            // The receive is still there: the ring would run full.
            rig.programs[1].unreceive();
        }
    }
    assert!(came > 50 && came < 200 && rig.lost > 0, "{came}");
    assert_eq!(rig.counters(0).retransmits, 0);
}
