//! Frames from the network: decoded, judged and executed by a NIC that has work under way.
//!
//! ```text
//! setup 1 | frame: how 1, length 2, bytes | frame | ...
//! ```
//!
//! Without help nearly every input would end at the checksum, or name a key that nobody has. `how` says what is put
//! right before a frame is sent; what is not put right is the input's.

use crate::input::Input;
use crate::rig::Options;
use crate::rig::stranger::{EXPOSED, LANDING, Victim};
use shunt_layout::mlx5::prm::qp::State;
use shunt_soft_nic::packet::{AtomicOp, AtomicRequest, Body, Part, Payload, Reth, aeth};
use shunt_soft_nic::wire::{Icrc, ROCE_PORT};

/// The bytes are a frame from its first one on; else from the BTH to what is before the checksum.
const WHOLE: u8 = 1;
/// In front of the BTH stand IPv4 and UDP, not a GRH.
const UDP: u8 = 2;
/// It is for the victim's queue pair.
const AIM: u8 = 4;
/// Address and key are those of what is exposed, or of somewhere near.
const PLACE: u8 = 8;
/// Its checksum is right.
const SEAL: u8 = 16;
/// The frame before it comes once more after it.
const AGAIN: u8 = 32;
/// A millisecond passes after it, not a few microseconds.
const LATER: u8 = 64;
/// It comes from an address that the queue pair knows nothing of.
const SPOOF: u8 = 128;

/// Nobody needs more frames to break something; more only cost time.
const FRAMES_MAX: usize = 64;
const FRAME_BYTES: u16 = 0x1fff;

fn options(setup: u8) -> Options {
    Options {
        mtu: 1 + u32::from(setup & 7) % 5,
        log_rq: (setup & 8 != 0).then_some(3),
        datagram: (setup & 16 != 0).then_some(1),
        ack_timeout: 4,
        retry: 2,
        ..Options::default()
    }
}

/// Feeds frames to a victim and judges what is left of it.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let setup = input.u8();
    let mut victim = Victim::new(options(setup));
    if setup & 8 != 0 {
        for n in 0..8usize {
            let list = [victim.landing(n * 500, n as u32 * 70 + 1)];
            victim.end.post_receive(&list);
        }
    }
    victim.remember();
    if setup & 0x30 == 0x20 {
        victim.ask();
    }
    let mut last = Vec::new();
    for _ in 0..FRAMES_MAX {
        if input.is_empty() {
            break;
        }
        let how = input.u8();
        let length = input.u16() & FRAME_BYTES;
        let frame = framed(&victim, how, input.bytes(length.into()));
        victim.send(frame.clone());
        if how & AGAIN != 0 && !last.is_empty() {
            victim.send(std::mem::take(&mut last));
        }
        last = frame;
        victim.rig.run_for(if how & LATER != 0 { 1_000_000 } else { 3_000 });
    }
    victim.rig.run_for(5_000_000);
    victim.judge();
    victim.answers();
    let state = victim.rig.state(&victim.end);
    assert!(matches!(state, State::Rts | State::Err), "packets took the queue pair to {state:?}");
}

/// A frame of an input's bytes.
fn framed(victim: &Victim, how: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = if how & WHOLE != 0 { vec![] } else { outer(victim, how, bytes.len() + 4) };
    let bth = frame.len();
    frame.extend_from_slice(bytes);
    if how & WHOLE != 0 {
        return frame;
    }
    if how & AIM != 0 && bytes.len() >= 12 {
        frame[bth + 5..bth + 8].copy_from_slice(&victim.end.qpn.to_be_bytes()[1..]);
    }
    if how & PLACE != 0 && bytes.len() >= 28 {
        let at = bth + 12;
        let met = u64::from_be_bytes(frame[at..at + 8].try_into().expect("eight bytes"));
        // A quarter before it, a quarter behind.
        let span = 2 * EXPOSED.len() as u64;
        let offset = (met % span) as i64 - EXPOSED.len() as i64 / 2;
        frame[at..at + 8].copy_from_slice(&victim.exposed(offset).to_be_bytes());
        frame[at + 8..at + 12].copy_from_slice(&victim.key.to_be_bytes());
    }
    let sum = if how & SEAL != 0 { checksum(&frame, how & UDP != 0, bth) } else { [0; 4] };
    frame.extend(sum);
    frame
}

/// Ethernet, and what stands between it and the BTH.
fn outer(victim: &Victim, how: u8, behind: usize) -> Vec<u8> {
    let mut addresses = victim.addresses();
    addresses.source ^= u128::from(how & SPOOF != 0);
    let mut out = addresses.destination_mac.to_be_bytes()[2..].to_vec();
    out.extend(&addresses.source_mac.to_be_bytes()[2..]);
    if how & UDP == 0 {
        out.extend([0x89, 0x15, 0x60, 0, 0, 0]);
        out.extend((behind as u16).to_be_bytes());
        out.extend([0x1b, 64]);
        out.extend(addresses.source.to_be_bytes());
        out.extend(addresses.destination.to_be_bytes());
    } else {
        out.extend([0x08, 0x00, 0x45, 0]);
        out.extend((behind as u16 + 28).to_be_bytes());
        out.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        out.extend((addresses.source as u32).to_be_bytes());
        out.extend((addresses.destination as u32).to_be_bytes());
        out.extend(ROCE_PORT.to_be_bytes());
        out.extend(ROCE_PORT.to_be_bytes());
        out.extend((behind as u16 + 8).to_be_bytes());
        out.extend([0, 0]);
    }
    out
}

/// The checksum that belongs behind a frame, fields that switches change taken as ones.
fn checksum(frame: &[u8], udp: bool, bth: usize) -> [u8; 4] {
    let mut covered = frame[14..].to_vec();
    let changing: &[(usize, u8)] = match udp {
        false => &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)],
        true => &[(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff), (26, 0xff), (27, 0xff)],
    };
    changing.iter().for_each(|(at, ones)| covered[*at] |= ones);
    if let Some(congestion) = covered.get_mut(bth - 14 + 4) {
        *congestion = 0xff;
    }
    let mut icrc = Icrc::default();
    icrc.update(&covered);
    icrc.finish()
}

/// One of each kind of packet, in sequence and out of it, sealed and not.
pub fn seeds() -> Vec<Vec<u8>> {
    let victim = Victim::new(Options::default());
    let small = |bytes: u8| Payload::Small([7; 32], bytes);
    let large = |bytes: u16| Payload::Large(Box::new([9; 4096]), bytes);
    let reth = |address: u64, bytes: u32| Reth { address, rkey: victim.key, bytes };
    let inside = EXPOSED.len() as u64 / 2;
    let op = AtomicOp::FetchAdd { add: 3, boundary: 0 };
    let swap = AtomicOp::CompareSwap { compare: 1, swap: 2, compare_mask: 3, swap_mask: 4 };
    let word = |op, bytes| Body::Atomic(AtomicRequest { address: inside + 8, rkey: victim.key, bytes, op });
    let write = |part, at, bytes, payload| Body::Write { part, reth: reth(at, bytes), payload };
    let none = Reth { address: 0, rkey: 0, bytes: 0 };
    let rows: Vec<Vec<Body>> = vec![
        vec![write(Part::Only, inside, 8, small(8)), write(Part::Only, inside, 8, small(8))],
        vec![write(Part::Only, inside - 4, 8, small(8))],
        vec![write(Part::Only, inside + EXPOSED.len() as u64 - 4, 8, small(8))],
        vec![
            write(Part::First, inside, 600, large(256)),
            Body::Write { part: Part::Middle, reth: none, payload: large(256) },
            Body::Write { part: Part::Last, reth: none, payload: large(88) },
        ],
        vec![Body::WriteImm { part: Part::Only, reth: reth(inside, 5), imm: 7, payload: small(5) }],
        vec![Body::Send { part: Part::Only, imm: None, payload: small(9) }; 3],
        vec![
            Body::Send { part: Part::First, imm: None, payload: large(256) },
            Body::Send { part: Part::Last, imm: Some(3), payload: small(4) },
        ],
        vec![Body::ReadRequest(reth(inside, 1000)), word(op, 8), word(swap, 8), word(op, 4), word(swap, 4)],
        vec![
            Body::ReadResponse { part: Part::First, msn: 1, payload: large(256) },
            Body::ReadResponse { part: Part::Middle, msn: 1, payload: large(256) },
            Body::AtomicAck { msn: 2, original: 5 },
        ],
        vec![Body::Ack { syndrome: aeth::ACK, msn: 1 }, Body::Ack { syndrome: aeth::NAK_SEQUENCE, msn: 0 }],
        vec![Body::Ack { syndrome: aeth::rnr(1), msn: 0 }, Body::Ack { syndrome: 0x62, msn: 0 }],
    ];
    let mut seeds = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        // Each with a receive queue and without, with questions open; some with datagrams.
        for setup in [0, 8, 0x20, 0x18] {
            let mut seed = vec![setup];
            for (psn, body) in row.iter().enumerate() {
                let frame = victim.frame(psn as u32, body.clone());
                let bytes = &frame[54..frame.len() - 4];
                let mut how = AIM | SEAL | if bytes.len() >= 28 && n != 5 && n != 6 { PLACE } else { 0 };
                how |= [0, UDP, AGAIN, LATER, SPOOF][(n + psn) % 5];
                seed.push(how);
                seed.extend((bytes.len() as u16).to_le_bytes());
                seed.extend(bytes);
            }
            seeds.push(seed);
        }
        let frame = victim.frame(0, row[0].clone());
        let mut whole = vec![0, WHOLE];
        whole.extend((frame.len() as u16).to_le_bytes());
        whole.extend(frame);
        seeds.push(whole);
    }
    debug_assert!(LANDING.len() >= 8 * 500);
    seeds
}
