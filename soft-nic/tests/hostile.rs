//! Peers that send what no peer should: each is refused, counted, and changes nothing outside of what is registered.
//!
//! `Victim::judge` looks at every byte around the two registered parts, at the work that is posted, and that each frame
//! was counted once. The table in docs/TESTING.md has a row for each test here.

use crate::rig::stranger::{EXPOSED, LANDING, Victim};
use crate::rig::{Options, header};
use shunt_layout::mlx5::prm::cmd::Opcode as Cmd;
use shunt_layout::mlx5::prm::qp::State;
use shunt_soft_nic::packet::{AtomicOp, AtomicRequest, Body, Part, Payload, Reth, aeth};

fn write(victim: &Victim, offset: i64, key: u32) -> Body {
    let reth = Reth { address: victim.exposed(offset), rkey: key, bytes: 8 };
    Body::Write { part: Part::Only, reth, payload: Payload::Small([0xee; 32], 8) }
}

fn add(victim: &Victim, offset: i64, key: u32) -> Body {
    let op = AtomicOp::FetchAdd { add: 1, boundary: 0 };
    Body::Atomic(AtomicRequest { address: victim.exposed(offset), rkey: key, bytes: 8, op })
}

/// Sends frames one after the other, lets them arrive, and judges.
fn send(victim: &mut Victim, frames: impl IntoIterator<Item = Vec<u8>>) {
    for frame in frames {
        victim.send(frame);
        victim.rig.run_for(3_000);
    }
    victim.rig.run_for(1_000_000);
    victim.judge();
}

/// Syndromes of the acknowledgements that the NIC sent since the last call.
fn syndromes(victim: &mut Victim) -> Vec<u8> {
    let syndrome = |body: &Body| match body {
        Body::Ack { syndrome, .. } => Some(*syndrome),
        _ => None,
    };
    victim.answers().iter().filter_map(|frame| syndrome(&frame.packet.body)).collect()
}

/// A well-formed write goes through: what the other tests refuse is refused for its defect.
fn works(victim: &mut Victim, psn: u32) {
    let key = victim.key;
    let before = victim.counters().messages;
    let frame = victim.frame(psn, write(victim, 8, key));
    send(victim, [frame]);
    assert_eq!(victim.rig.hosts[0].heap.get64(EXPOSED.start + 8), u64::from_ne_bytes([0xee; 8]));
    assert_eq!(victim.counters().messages, before + 1);
}

#[test]
fn malformed_frames_are_undecodable_and_nothing_else() {
    let mut victim = Victim::new(Options::default());
    let key = victim.key;
    let good = victim.frame(0, write(&victim, 0, key));
    let cut = (0..good.len()).map(|length| good[..length].to_vec());
    let bent = (14..good.len()).map(|at| {
        let mut frame = good.clone();
        frame[at] ^= 0x10;
        frame
    });
    // What switches may change is not covered by the checksum: class, flow label, hop limit, congestion bits.
    let covered = |at: usize| !matches!(at, 15..18 | 21 | 58);
    let bent = bent.enumerate().filter(|(n, _)| covered(n + 14)).map(|(_, frame)| frame);
    let long = (1..9).map(|more| [good.clone(), vec![0; more]].concat());
    let frames: Vec<_> = cut.chain(bent).chain(long).collect();
    let count = frames.len() as u64;
    send(&mut victim, frames);
    let uplink = victim.rig.fabric.uplink_counters();
    assert_eq!((uplink.undecodable, uplink.misaddressed), (count, 0));
    assert_eq!(victim.counters().packets_rx, 0);
    assert!(victim.is_untouched() && victim.answers().is_empty());
    works(&mut victim, 0);
}

#[test]
fn frames_for_nobody_and_for_no_queue_pair_are_counted() {
    let mut victim = Victim::new(Options::default());
    let (key, right) = (victim.key, victim.addresses());
    let body = write(&victim, 0, key);
    let mut wrong_mac = right;
    wrong_mac.destination_mac ^= 1;
    let mut wrong_gid = right;
    wrong_gid.destination ^= 1;
    let frames = [wrong_mac, wrong_gid].map(|to| victim.frame_from(to, 0, body.clone()));
    send(&mut victim, frames);
    assert_eq!(victim.rig.fabric.uplink_counters().misaddressed, 2);
    let qpn = victim.end.qpn;
    victim.end.qpn = qpn + 100;
    let nobody = victim.frame(0, body);
    victim.end.qpn = qpn;
    send(&mut victim, [nobody]);
    assert_eq!((victim.counters().dropped, victim.counters().packets_rx), (1, 1));
    assert!(victim.is_untouched() && victim.answers().is_empty());
    works(&mut victim, 0);
}

#[test]
fn a_spoofed_address_is_dropped_whatever_it_sends() {
    let mut victim = Victim::new(Options::default());
    victim.ask();
    let (key, mut other) = (victim.key, victim.addresses());
    other.source ^= 1;
    let bodies = [
        write(&victim, 0, key),
        add(&victim, 0, key),
        Body::ReadRequest(Reth { address: victim.exposed(0), rkey: key, bytes: 64 }),
        Body::Ack { syndrome: aeth::NAK_REMOTE_ACCESS, msn: 0 },
        Body::ReadResponse { part: Part::Only, msn: 1, payload: Payload::Small([1; 32], 32) },
        Body::AtomicAck { msn: 1, original: 9 },
    ];
    let frames = bodies.map(|body| victim.frame_from(other, 0, body));
    victim.answers();
    send(&mut victim, frames);
    assert_eq!(victim.counters().dropped, 6);
    assert_eq!((victim.counters().messages, victim.counters().naks), (0, 0));
    assert!(victim.is_untouched());
    let state = victim.rig.state(&victim.end);
    assert_eq!(state, State::Rts, "no stranger ends a connection");
    works(&mut victim, 0);
}

#[test]
fn replayed_requests_are_acknowledged_and_not_executed() {
    let mut victim = Victim::new(Options::default());
    let key = victim.key;
    let first = [victim.frame(0, add(&victim, 0, key)), victim.frame(1, write(&victim, 64, key))];
    send(&mut victim, first.clone());
    victim.answers();
    let word = victim.rig.hosts[0].heap.get64(EXPOSED.start);
    // Meanwhile its owner wrote there: a write that is executed again would undo that.
    victim.rig.hosts[0].heap.set64(EXPOSED.start + 64, 7);
    let again: Vec<_> = std::iter::repeat_n(first, 20).flatten().collect();
    send(&mut victim, again);
    assert_eq!(victim.rig.hosts[0].heap.get64(EXPOSED.start), word, "one addition");
    assert_eq!(victim.rig.hosts[0].heap.get64(EXPOSED.start + 64), 7, "one write");
    assert_eq!((victim.counters().duplicates, victim.counters().messages), (40, 2));
    works(&mut victim, 2);
}

#[test]
fn wrong_keys_are_refused_with_a_nak_and_end_the_connection() {
    let own = |victim: &Victim| victim.own_key;
    let keys: [fn(&Victim) -> u32; 5] =
        [|_| 0, |_| u32::MAX, |victim| victim.key ^ 1, |victim| victim.key.wrapping_add(0x100), own];
    for (n, key) in keys.into_iter().enumerate() {
        for (m, make) in [write, add].into_iter().enumerate() {
            let mut victim = Victim::new(Options::default());
            let key = key(&victim);
            // That of the landing part is good for its addresses, but for nobody else.
            let offset = if n == 4 { (LANDING.start - EXPOSED.start) as i64 } else { 0 };
            let frame = victim.frame(0, make(&victim, offset, key));
            send(&mut victim, [frame]);
            assert_eq!(syndromes(&mut victim), [aeth::NAK_REMOTE_ACCESS], "key {n}, request {m}");
            assert_eq!((victim.counters().naks, victim.counters().messages), (1, 0), "key {n}, request {m}");
            assert!(victim.is_untouched(), "key {n}, request {m}");
            assert_eq!(victim.rig.state(&victim.end), State::Err, "key {n}, request {m}");
        }
    }
}

#[test]
fn addresses_out_of_range_are_refused_to_the_byte() {
    let length = EXPOSED.len() as i64;
    for offset in [-1, -8, length - 7, length, length + 0x1000, -0x4000, i64::MAX / 2, i64::MIN / 2] {
        let mut victim = Victim::new(Options::default());
        let key = victim.key;
        let frame = victim.frame(0, write(&victim, offset, key));
        send(&mut victim, [frame]);
        assert_eq!(syndromes(&mut victim), [aeth::NAK_REMOTE_ACCESS], "{offset}");
        assert!(victim.is_untouched(), "{offset}");
    }
    for bytes in [length as u32 + 1, 1 << 30] {
        // The first packet of a long write fits, the message does not: nothing of it may land.
        let mut victim = Victim::new(Options { mtu: 1, ..Options::default() });
        let reth = Reth { address: victim.exposed(0), rkey: victim.key, bytes };
        let payload = Payload::Large(Box::new([0xee; 4096]), 256);
        let frame = victim.frame(0, Body::Write { part: Part::First, reth, payload });
        send(&mut victim, [frame]);
        assert_eq!(syndromes(&mut victim), [aeth::NAK_REMOTE_ACCESS], "{bytes} bytes");
        assert!(victim.is_untouched(), "{bytes} bytes");
        // Nor may a READ bring out what lies behind.
        let mut victim = Victim::new(Options::default());
        let reth = Reth { address: victim.exposed(8), rkey: victim.key, bytes: length as u32 };
        let frame = victim.frame(0, Body::ReadRequest(reth));
        send(&mut victim, [frame]);
        assert_eq!(syndromes(&mut victim), [aeth::NAK_REMOTE_ACCESS], "a READ");
    }
    let mut victim = Victim::new(Options::default());
    let key = victim.key;
    let last = victim.frame(0, write(&victim, length - 8, key));
    send(&mut victim, [last]);
    assert_eq!(victim.counters().messages, 1, "the last eight bytes are inside");
}

#[test]
fn wrong_sequence_numbers_execute_nothing() {
    let mut victim = Victim::new(Options { psn: [0, 1000], ..Options::default() });
    let key = victim.key;
    let ahead = [1001, 1002, 5000, 1000 + (1 << 22)].map(|psn| victim.frame(psn, write(&victim, 0, key)));
    send(&mut victim, ahead);
    assert_eq!(syndromes(&mut victim), [aeth::NAK_SEQUENCE], "one for all that is ahead");
    let behind = [999, 0, 1000u32.wrapping_sub(1 << 20) & 0xff_ffff]
        .map(|psn| victim.frame(psn, write(&victim, 0, key)));
    send(&mut victim, behind);
    assert_eq!((victim.counters().duplicates, victim.counters().messages), (3, 0));
    assert!(victim.is_untouched());
    works(&mut victim, 1000);
}

#[test]
fn answers_to_no_question_are_no_answers() {
    let mut victim = Victim::new(Options::default());
    let response = |part| Body::ReadResponse { part, msn: 1, payload: Payload::Small([0xee; 32], 32) };
    let bodies = [
        response(Part::Only),
        response(Part::Middle),
        Body::AtomicAck { msn: 1, original: 0xeeee },
        Body::Ack { syndrome: aeth::ACK, msn: 5 },
        Body::Ack { syndrome: aeth::NAK_REMOTE_ACCESS, msn: 5 },
    ];
    let frames = [0, 7, 0xff_ffff].map(|psn| bodies.clone().map(|body| victim.frame(psn, body)));
    send(&mut victim, frames.into_iter().flatten());
    assert!(victim.is_untouched());
    assert_eq!((victim.counters().cqes, victim.counters().packets_rx), (0, 15));
    assert_eq!(victim.rig.state(&victim.end), State::Rts);
    works(&mut victim, 0);
}

#[test]
fn a_flood_is_counted_to_the_frame_and_leaves_the_connection_usable() {
    let mut victim = Victim::new(Options::default());
    let (key, mut other) = (victim.key, victim.addresses());
    other.source ^= 1;
    let spoofed = victim.frame_from(other, 0, write(&victim, 0, key));
    let future = victim.frame(9, write(&victim, 0, key));
    let garbage = vec![0xa5; 90];
    let each = 20_000u64;
    for _ in 0..each {
        // All at one time: nothing is paced by answers.
        [&spoofed, &future, &garbage].into_iter().for_each(|frame| victim.send(frame.clone()));
    }
    victim.rig.run_for(10_000_000);
    victim.judge();
    assert_eq!(victim.rig.fabric.uplink_counters().undecodable, each);
    assert_eq!((victim.counters().dropped, victim.counters().packets_rx), (each, 2 * each));
    assert_eq!(syndromes(&mut victim), [aeth::NAK_SEQUENCE], "one answer, not one for each");
    assert!(victim.is_untouched());
    works(&mut victim, 0);
}

#[test]
fn a_key_that_was_taken_back_lets_nothing_in() {
    let mut victim = Victim::new(Options::default());
    works(&mut victim, 0);
    victim.answers();
    let (nic, key) = (victim.rig.hosts[0].nic, victim.key);
    victim.rig.command(nic, &header(Cmd::DestroyMkey, key >> 8), 16);
    victim.remember();
    let frame = victim.frame(1, write(&victim, 64, key));
    send(&mut victim, [frame]);
    assert_eq!(syndromes(&mut victim), [aeth::NAK_REMOTE_ACCESS]);
    assert!(victim.is_untouched());
}

#[test]
#[should_panic(expected = "was written to")]
fn a_byte_outside_is_seen() {
    let victim = Victim::new(Options::default());
    victim.rig.hosts[0].heap.set8(EXPOSED.end, 0xee);
    victim.judge_memory();
}
