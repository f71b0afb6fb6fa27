//! What processes of a job tell each other. The first byte says as what the rest is read.
//!
//! Whatever is accepted must write itself as the very bytes that were read: nothing is made up, nothing is left out.

use shunt_host::agent::message::{Home, Message, PairId, SideTruth};
use shunt_host::connect::card::{HalfCard, PeCard, RailCard, halves_from_bytes, halves_to_bytes};
use shunt_host::connect::tcp::error::Refusal;
use shunt_host::connect::tcp::frame::{BODY_MAX, Frame, HEAD, HELLO_MAX};
use shunt_host::connect::tcp::preamble::{FIXED, LENGTH, PROTOCOL, Preamble, Purpose};
use shunt_host::connect::tcp::{Secret, UniqueId};
use shunt_host::nic::caps::Link;
use shunt_host::ranks::message::Message as MaskMessage;
use shunt_host::ranks::message::Word;
use shunt_host::ranks::set::RankSet;
use std::sync::Arc;

/// How many readers there are.
const READERS: u8 = 9;
/// Version of the protocol and ABI version of the side that reads.
const OURS: (u32, u32) = (PROTOCOL, 7);
/// Ranks of the job.
const RANKS: u32 = 70;

/// Reads the bytes as what the first of them says.
pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % READERS {
        0 => preamble(bytes),
        1 => stream(bytes, BODY_MAX),
        2 => stream(bytes, HELLO_MAX),
        3 => unique_id(bytes),
        4 => same(bytes, HalfCard::from_bytes(bytes).ok().map(|card| card.to_bytes())),
        5 => same(bytes, PeCard::from_bytes(bytes).ok().map(|card| card.to_bytes())),
        6 => same(bytes, halves_from_bytes(bytes).ok().map(|halves| halves_to_bytes(&halves))),
        7 => same(bytes, Message::from_bytes(bytes).ok().map(|message| message.to_bytes())),
        _ => same(bytes, MaskMessage::from_bytes(RANKS, bytes).ok().map(|message| message.to_bytes())),
    }
}

fn same(read: &[u8], written: Option<Vec<u8>>) {
    if let Some(written) = written {
        assert_eq!(written, read, "what was read writes itself as other bytes");
    }
}

fn preamble(bytes: &[u8]) {
    match Preamble::decode(bytes, OURS) {
        Ok(Some(read)) => assert_eq!(read.encode()[..], bytes[..LENGTH]),
        Ok(None) => assert!(bytes.len() < LENGTH, "all of it is there"),
        Err(Refusal::Garbage) => {}
        Err(_) => assert!(bytes.len() >= FIXED, "a version that was not read"),
    }
}

/// Messages one behind the other, as a connection takes them in.
fn stream(mut bytes: &[u8], max: usize) {
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
        let Ok(length) = Frame::body_length(*head, max) else { return };
        assert!(length <= max);
        let Some((body, rest)) = rest.split_at_checked(length) else { return };
        let Ok(frame) = Frame::decode(head[4], body) else { return };
        let encoded = frame.encode();
        let mut written = encoded.head;
        written.extend(encoded.tail.iter().flat_map(|tail| tail.iter()));
        // A refusal is put into words, and some words stand for several numbers.
        if !matches!(frame, Frame::Refused(_)) {
            assert_eq!(written, bytes[..HEAD + length], "{frame:?}");
        }
        bytes = rest;
    }
}

fn unique_id(bytes: &[u8]) {
    same(bytes, UniqueId::from_bytes(bytes).ok().map(|id| id.to_bytes().to_vec()));
    if let Some(id) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<UniqueId>().ok()) {
        assert_eq!(id.to_text().to_lowercase(), String::from_utf8_lossy(bytes).trim().to_lowercase());
    }
}

/// One of each.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut add = |which: u8, bytes: &[u8]| {
        let mut seed = vec![which];
        seed.extend(bytes);
        seeds.push(seed);
    };
    for purpose in [Purpose::Join, Purpose::Mesh { from: 3, to: 1 }] {
        let bytes = Preamble { protocol: OURS.0, abi: OURS.1, purpose }.encode();
        add(0, &bytes);
        add(0, &bytes[..FIXED]);
    }
    let mut all = Vec::new();
    for frame in frames() {
        let encoded = frame.encode();
        let mut bytes = encoded.head;
        bytes.extend(encoded.tail.iter().flat_map(|tail| tail.iter()));
        add(1, &bytes);
        all.extend(bytes);
    }
    add(1, &all);
    add(2, &all);
    if let Ok(secret) = Secret::from_text("sixteen characters, at least") {
        for root in ["127.0.0.1:7000", "[::1]:7000"] {
            let id = UniqueId::new(root.parse().expect("an address"), secret.clone());
            add(3, &id.to_bytes());
            add(3, id.to_text().as_bytes());
        }
    }
    let rail =
        RailCard { index: 1, link: Link::Ethernet, mtu: 5, lid: 0, mac: [2; 6], gid: [3; 16], name: [0; 16] };
    let half = HalfCard { qpn: 7, psn: 8, incarnation: 9, ece: 0x3000_0001, rail };
    add(4, &half.to_bytes());
    let card = PeCard {
        pe: 1,
        channels_per_pe: 2,
        backups: 1,
        log_depth: 6,
        log2_chunk: 20,
        ordering: 0,
        fetch: 1,
        plain_atomics: 1,
        uncounted: 0,
        heap_base: 1 << 40,
        heap_bytes: 1 << 30,
        draw: [5; 16],
        rails: vec![rail],
        datagrams: vec![3],
        rkeys: vec![vec![1, 2]],
        data_rkeys: vec![vec![3, 4]],
    };
    add(5, &card.to_bytes());
    add(6, &halves_to_bytes(&[Some(half), None, Some(half)]));
    for message in messages(half) {
        add(7, &message.to_bytes());
    }
    for word in [Word::Lost(RankSet::of(RANKS, |rank| rank % 23 == 0)), Word::Ask(Default::default())] {
        add(8, &MaskMessage { epoch: 1 << 40 | 7, word }.to_bytes());
    }
    seeds
}

fn frames() -> Vec<Frame> {
    let (bytes, mesh) = (Arc::new(vec![1, 2, 3]), "10.0.0.1:700".parse().expect("an address"));
    vec![
        Frame::Hello { rank: 1, world: 4, mesh },
        Frame::Welcome { job: [7; 16] },
        Frame::Waiting { missing: vec![1, 2] },
        Frame::Start { mesh: vec![mesh, "[::1]:9".parse().expect("an address")] },
        Frame::Refused(Refusal::Garbage),
        Frame::Give { round: 1, bytes: bytes.clone() },
        Frame::Row { round: 1, to: 2, bytes: bytes.clone() },
        Frame::Piece { round: 1, rank: 2, bytes },
        Frame::Gone { rank: 2, why: "killed".into() },
        Frame::Ping,
        Frame::Datagram { topic: 1, bytes: vec![4; 9] },
        Frame::Bye { why: "a rail".to_owned() },
    ]
}

fn messages(card: HalfCard) -> Vec<Message> {
    let id = PairId { channel: 1, slot: 2, incarnation: 3 };
    let home = Home { rail: 1, version: 2 };
    vec![
        Message::Fence(id),
        Message::Truth(id, SideTruth::Exact { executed: 4, next_rcv_psn: 5 }),
        Message::Truth(id, SideTruth::Fenced),
        Message::Truth(id, SideTruth::Dead),
        Message::Left(id),
        Message::Make(id, card, 1, home),
        Message::Made(id, card, home),
        Message::Up(id),
        Message::Proved(id),
        Message::Home { channel: 1, home },
        Message::AskHome { channel: 1, version: 2, rails: 3, pressing: true },
        Message::Port { rail: 1, down: true, at_ns: 7 },
    ]
}
