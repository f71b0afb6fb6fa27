//! A capture file with every kind of frame, for Wireshark to look at:
//! `cargo run -p shunt-soft-nic --example frames -- FILE.pcap`, then
//! `tshark -r FILE.pcap --disable-protocol rpcordma` (which takes any SEND for one of its own).
//!
//! The two opcodes of our own, 0xc0 and 0xc1, are the only ones it does not know.

use shunt_soft_nic::packet::{
    AtomicOp, AtomicRequest, Body, Datagram, ELSEWHERE, Packet, Part, Payload, Reth, aeth,
};
use shunt_soft_nic::wire::{Addresses, Outer, encode};
use std::fs::File;
use std::io::{self, Write};

const ADDRESSES: Addresses = Addresses {
    source: 0xffff_0a00_0001,
    destination: 0xffff_0a01_0102,
    source_mac: 0x0253_4800_0000,
    destination_mac: 0x0253_4801_0101,
};

fn payload(bytes: usize) -> Payload {
    let mut small = [0; 32];
    (0..bytes).for_each(|n| small[n] = n as u8 + 1);
    Payload::Small(small, bytes as u8)
}

fn bodies() -> Vec<Body> {
    let reth = Reth { address: 0x7f00_1234_5678, rkey: 0x00a1_b25a, bytes: 5 };
    let mut bodies = vec![Body::ReadRequest(reth), Body::AtomicAck { msn: 4, original: 99 }];
    for part in [Part::First, Part::Middle, Part::Last, Part::Only] {
        bodies.push(Body::Send { part, imm: None, payload: payload(8) });
        bodies.push(Body::Write { part, reth, payload: payload(8) });
        bodies.push(Body::ReadResponse { part, msn: 3, payload: payload(5) });
        if part.ends() {
            bodies.push(Body::Send { part, imm: Some(7), payload: payload(3) });
            bodies.push(Body::WriteImm { part, reth, imm: 0xabcd, payload: payload(7) });
        }
    }
    for syndrome in [aeth::ACK, aeth::rnr(12), aeth::NAK_SEQUENCE, aeth::NAK_REMOTE_ACCESS] {
        bodies.push(Body::Ack { syndrome, msn: 4 });
    }
    for (bytes, mask, boundary) in [(8, u64::MAX, 0), (8, 0xff, 1 << 31), (4, 0xff, 1 << 15)] {
        let swap = AtomicOp::CompareSwap { compare: 1, swap: 2, compare_mask: mask, swap_mask: mask };
        for op in [swap, AtomicOp::FetchAdd { add: 3, boundary }] {
            bodies.push(Body::Atomic(AtomicRequest { address: reth.address, rkey: reth.rkey, bytes, op }));
        }
    }
    for imm in [None, Some(5)] {
        let destination = ADDRESSES.destination;
        let datagram =
            Datagram { destination, source_qpn: 0x42, qkey: 0x1122_3344, imm, payload: payload(12) };
        bodies.push(Body::Datagram(Box::new(datagram)));
    }
    bodies
}

fn main() -> io::Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected FILE.pcap, got no file"));
    };
    let mut file = File::create(path)?;
    // Magic number, version 2.4, no time zone, whole packets, Ethernet.
    for word in [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        file.write_all(&word.to_le_bytes())?;
    }
    for (psn, body) in (0u32..).zip(bodies()) {
        let (from, to, source) = (ELSEWHERE, ELSEWHERE, ADDRESSES.source);
        let (qpn, ack_request, solicited) = (0x41, true, false);
        let packet = Packet { from, to, source, qpn, psn, ack_request, solicited, body };
        let mut frame = Vec::new();
        encode(&packet, &ADDRESSES, Outer::Grh, &mut frame);
        for word in [psn, 0, frame.len() as u32, frame.len() as u32] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(&frame)?;
    }
    Ok(())
}
