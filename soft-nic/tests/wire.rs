//! Frames: golden bytes, witnesses from elsewhere, round trips, and what a stranger may send.

use proptest::prelude::*;
use shunt_soft_nic::packet::{
    AtomicOp, AtomicRequest, Body, Datagram, DcSetup, DcStep, ELSEWHERE, MTU_MAX, Packet, Part, Payload,
    Reth, aeth,
};
use shunt_soft_nic::wire::{Addresses, FRAME_MAX, Icrc, Outer, ROCE_PORT, WireError, decode, encode};

/// Every field that a frame keeps, as text: bodies have no equality of their own.
fn shown(packet: &Packet, addresses: &Addresses) -> String {
    format!("{packet:?} {addresses:?}")
}

fn addresses() -> Addresses {
    Addresses {
        source: 0xffff_0a00_0001,
        destination: 0xffff_0a01_0102,
        source_mac: 0x0253_4800_0000,
        destination_mac: 0x0253_4801_0101,
    }
}

fn payload(bytes: &[u8]) -> Payload {
    match bytes.len() {
        0 => Payload::Empty,
        len @ 1..=32 => {
            let mut small = [0; 32];
            small[..len].copy_from_slice(bytes);
            Payload::Small(small, len as u8)
        }
        len => {
            let mut large = Box::new([0; MTU_MAX]);
            large[..len].copy_from_slice(bytes);
            Payload::Large(large, len as u16)
        }
    }
}

fn packet(qpn: u32, psn: u32, ack_request: bool, body: Body) -> Packet {
    let (from, to, source) = (ELSEWHERE, ELSEWHERE, addresses().source);
    Packet { from, to, source, qpn, psn, ack_request, solicited: false, body }
}

/// RoCE v2, as NICs that choose a source port send it.
const UDP: Outer = Outer::Udp { source_port: 0xc000, destination_port: ROCE_PORT };

fn encoded(packet: &Packet) -> Vec<u8> {
    encoded_as(packet, Outer::Grh)
}

fn encoded_as(packet: &Packet, outer: Outer) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(packet, &addresses(), outer, &mut frame);
    frame
}

fn unhex(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Written down field by field from the specification; the checksums are zlib's over the masked bytes.
#[test]
fn golden_frames() {
    let outer = |length: &str| {
        let grh = format!("60000000{length}1b40");
        let gids = "00000000000000000000ffff0a00000100000000000000000000ffff0a010102";
        format!("0253480101010253480000008915{grh}{gids}")
    };
    let reth = Reth { address: 0x7f00_1234_5678, rkey: 0x00a1_b25a, bytes: 5 };
    let write = Body::Write { part: Part::Only, reth, payload: payload(b"shunt") };
    let swap = AtomicOp::CompareSwap { compare: 1, swap: 2, compare_mask: u64::MAX, swap_mask: u64::MAX };
    let add = AtomicOp::FetchAdd { add: 3, boundary: 0x8000_8000 };
    let atomic = |bytes, op| AtomicRequest { address: reth.address, rkey: reth.rkey, bytes, op };
    let datagram = Datagram {
        destination: addresses().destination,
        source_qpn: 0x42,
        qkey: 0x1122_3344,
        imm: Some(0xdead_beef),
        payload: payload(b"hi!!"),
    };
    let (key, mac) = (0x1122_3344_5566_7788, 0x0253_4801_0101);
    let connect = DcSetup { step: DcStep::Connect, number: 0x0102_0304, qpn: 0x42, mtu: 4096, key, mac };
    let ud = Packet { solicited: true, ..packet(1, 3, false, Body::Datagram(Box::new(datagram))) };
    let cases = [
        (
            packet(0x41, 7, true, write),
            "0028",
            "0a70ffff000000418000000700007f001234567800a1b25a000000057368756e74000000792387de",
        ),
        (
            packet(0x41, 7, false, Body::Ack { syndrome: aeth::ACK, msn: 9 }),
            "0014",
            "1140ffff00000041000000071f000009c9a5537d",
        ),
        (
            packet(0x41, 0xff_fffe, true, Body::Atomic(atomic(8, swap))),
            "002c",
            "1340ffff0000004180fffffe00007f001234567800a1b25a0000000000000002000000000000000141edd5ef",
        ),
        (
            packet(0x41, 0x10, true, Body::Atomic(atomic(4, add))),
            "0030",
            "c140ffff000000418000001000007f001234567800a1b25a00000004000000000000000300000000\
             80008000b6161929",
        ),
        (
            packet(0x41, 7, false, Body::Dc(Box::new(connect))),
            "0030",
            "c240ffff000000410000000700000000010203040000004200001000112233445566778800000253\
             480101018bfee917",
        ),
        (ud, "0020", "65c0ffff00000001000000031122334400000042deadbeef68692121eea3caa5"),
    ];
    for (packet, length, rest) in cases {
        let frame = encoded(&packet);
        assert_eq!(hex(&frame), outer(length) + rest);
        let back = decode(&frame).unwrap();
        assert_eq!(shown(&back.packet, &back.addresses), shown(&packet, &addresses()));
    }
}

/// ICRCs of packets that were not made here. RoCE v2, but the checksum is the same function: its IP, UDP and
/// transport headers are masked below as its annex says.
#[test]
fn checksums_of_others() {
    // A congestion notification captured on a ConnectX-4 Lx (in Scapy's tests of its RoCE layer).
    let captured = "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118\
                    0000000000000000000000000000000000000000";
    // A UC SEND of the same source, its checksum computed there.
    let built = "450100400478400040110000c0a80007c0a80007c00012b7002c00002460ffff000000d300cf1710\
                 4630818be28935d90e9a95505401be885e500000";
    for (text, icrc) in [(captured, "82fd002a"), (built, "78f353f3")] {
        let mut frame = [vec![0; 12], vec![8, 0], unhex(text), unhex(icrc)].concat();
        // Neither is an opcode of ours; that is found out behind the checksum.
        assert_eq!(decode(&frame).unwrap_err(), WireError::Opcode(frame[42]));
        frame[70] ^= 1;
        assert!(matches!(decode(&frame), Err(WireError::Icrc { .. })));
        let mut bytes = unhex(text);
        // Type of service, time to live, IP and UDP checksums, the transport header's reserved byte.
        for at in [1, 8, 10, 11, 26, 27, 32] {
            bytes[at] = 0xff;
        }
        let mut crc = Icrc::default();
        bytes.chunks(7).for_each(|chunk| crc.update(chunk));
        assert_eq!(hex(&crc.finish()), icrc);
    }
}

/// RoCE v2 from its headers to its checksum, worked out elsewhere.
#[test]
fn golden_packets() {
    let [near, far] = [0xffff_0a00_0001, 0xffff_0a00_0002];
    let there = Addresses { source: near, destination: far, source_mac: 1, destination_mac: 2 };
    let back = Addresses { source: far, destination: near, source_mac: 2, destination_mac: 1 };
    let reth = Reth { address: 0x1000, rkey: 0x1234, bytes: 4 };
    let write = Body::Write { part: Part::Only, reth, payload: payload(&[1, 2, 3, 4]) };
    let op = AtomicOp::FetchAdd { add: 1, boundary: 0 };
    let atomic = AtomicRequest { address: 0x2000, rkey: 0x1234, bytes: 8, op };
    let cases = [
        (
            packet(0xabc, 7, true, write),
            there,
            "0a40ffff00000abc80000007000000000000100000001234000000040102\
          03043ab792c7",
        ),
        (
            packet(0xdef, 7, false, Body::Ack { syndrome: aeth::ACK, msn: 1 }),
            back,
            "1140ffff00000def000000071f0000017de5aa73",
        ),
        (
            packet(0xabc, 8, true, Body::Atomic(atomic)),
            there,
            "1440ffff00000abc800000080000000000002000000012340000\
          00000000000100000000000000001 2b1e8b8",
        ),
    ];
    for (packet, addresses, transport) in cases {
        let mut frame = Vec::new();
        encode(&packet, &addresses, UDP, &mut frame);
        assert_eq!(hex(&frame[42..]), hex(&unhex(transport)));
        assert_eq!(hex(&frame[12..14]), "0800");
        let total = frame.len() - 14;
        assert_eq!(hex(&frame[14..24]), format!("4500{total:04x}000040004011"));
        // The sum over a right header is all ones.
        let sum: u32 =
            frame[14..34].chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]) as u32).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(hex(&frame[34..42]), format!("c00012b7{:04x}0000", total - 20));
        let found = decode(&frame).unwrap();
        assert_eq!((found.outer, found.addresses), (UDP, addresses));
    }
}

#[test]
fn what_is_not_checksummed_may_change_on_the_way() {
    let sent = packet(0x41, 7, true, Body::ReadRequest(Reth { address: 8, rkey: 9, bytes: 10 }));
    let frame = encoded(&sent);
    // Hop limit; class and flow label; the transport header's congestion bits.
    for (at, bits) in [(14 + 7, 0xff), (14 + 1, 0xff), (14, 0x0f), (54 + 4, 0xc0)] {
        let mut changed = frame.clone();
        changed[at] ^= bits;
        let back = decode(&changed).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert_eq!(shown(&back.packet, &back.addresses), shown(&sent, &addresses()));
    }
    let frame = encoded_as(&sent, UDP);
    // Type of service, time to live, both checksums; the transport header's congestion bits.
    for (at, bits) in [(15, 0xff), (22, 0xff), (24, 0xff), (25, 0xff), (40, 0xff), (41, 0xff), (46, 0xc0)] {
        let mut changed = frame.clone();
        changed[at] ^= bits;
        let back = decode(&changed).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert_eq!(shown(&back.packet, &back.addresses), shown(&sent, &addresses()));
    }
    // All that stays is: identification, ports, addresses.
    for at in [18, 19, 26, 33, 34, 37] {
        let mut changed = frame.clone();
        changed[at] ^= 1;
        assert!(matches!(decode(&changed), Err(WireError::Icrc { .. })), "byte {at}");
    }
}

/// Changes a frame and makes its checksum right again.
fn forged(frame: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let udp = frame[12] == 8;
    let mut frame = frame[..frame.len() - 4].to_vec();
    change(&mut frame);
    let all = frame.len() + 4;
    let (lengths, masked): (&[(usize, usize)], &[usize]) = match udp {
        true => (&[(16, 14), (38, 34)], &[1, 8, 10, 11, 26, 27, 32]),
        false => (&[(18, 54)], &[1, 2, 3, 7, 44]),
    };
    for (at, from) in lengths {
        frame[*at..at + 2].copy_from_slice(&((all - from) as u16).to_be_bytes());
    }
    let mut bytes = frame[14..].to_vec();
    masked.iter().for_each(|at| bytes[*at] = 0xff);
    bytes[0] |= if udp { 0 } else { 0x0f };
    let mut icrc = Icrc::default();
    icrc.update(&bytes);
    frame.extend(icrc.finish());
    frame
}

/// Every way to be wrong with a right checksum.
#[test]
fn every_error_has_its_name() {
    let reth = Reth { address: 8, rkey: 9, bytes: 10 };
    let read = encoded(&packet(1, 2, true, Body::ReadRequest(reth)));
    let write =
        encoded(&packet(1, 2, true, Body::Write { part: Part::Only, reth, payload: payload(b"12345") }));
    let ack = encoded(&packet(1, 2, false, Body::Ack { syndrome: aeth::ACK, msn: 1 }));
    let op = AtomicOp::FetchAdd { add: 1, boundary: 0 };
    let atomic = AtomicRequest { address: 8, rkey: 9, bytes: 4, op };
    let atomic = encoded(&packet(1, 2, true, Body::Atomic(atomic)));
    let error = |frame: &[u8]| decode(frame).expect_err("a wrong frame");
    let change = |frame: &[u8], at: usize, byte: u8| error(&forged(frame, |frame| frame[at] = byte));
    assert_eq!(error(&[]), WireError::Short { met: 0, least: 70 });
    assert_eq!(error(&read[..69]), WireError::Short { met: 69, least: 70 });
    assert_eq!(error(&forged(&read, |f| f.truncate(70))), WireError::Short { met: 74, least: 86 });
    assert_eq!(change(&read, 12, 0x08), WireError::EtherType(0x0815));
    assert_eq!(change(&read, 14, 0x40), WireError::GrhVersion(4));
    assert_eq!(change(&read, 20, 0x11), WireError::NextHeader(0x11));
    assert_eq!(change(&read, 54, 0x15), WireError::Opcode(0x15));
    assert_eq!(change(&read, 55, 0x41), WireError::TransportVersion(1));
    assert_eq!(change(&read, 56, 0x12), WireError::PartitionKey(0x12ff));
    assert_eq!(change(&read, 78, 0x81), WireError::MessageLength(0x8100_000a));
    assert_eq!(change(&read, 55, 0x50), WireError::Padding { opcode: 0x0c, pad: 1, bytes: 0 });
    assert_eq!(change(&ack, 66, 0x40), WireError::Syndrome(0x40));
    assert_eq!(change(&ack, 66, 0x9f), WireError::Syndrome(0x9f));
    assert_eq!(change(&atomic, 81, 2), WireError::AtomicBytes(2));
    let setup = DcSetup { step: DcStep::Refuse, number: 1, qpn: 2, mtu: 256, key: 3, mac: 4 };
    let setup = encoded(&packet(1, 2, false, Body::Dc(Box::new(setup))));
    assert_eq!(change(&setup, 69, 3), WireError::DcStep(3));
    let unwanted = forged(&read, |frame| frame.extend([0; 4]));
    assert_eq!(error(&unwanted), WireError::Unwanted { opcode: 0x0c, bytes: 4 });
    assert_eq!(error(&forged(&write, |frame| frame.push(0))), WireError::Payload(9));
    let long = forged(&write, |frame| frame.extend([0; MTU_MAX]));
    assert_eq!(error(&long), WireError::Payload(MTU_MAX + 8));
    let mut cut = read.clone();
    cut.pop();
    assert_eq!(error(&cut), WireError::PayloadLength { said: 32, met: 31 });
    let mut broken = read.clone();
    broken[66] ^= 1;
    assert!(matches!(error(&broken), WireError::Icrc { .. }));
    assert!(error(&broken).to_string().contains("expected "));
}

/// The same for what only RoCE v2 has.
#[test]
fn every_error_of_ip_and_udp_has_its_name() {
    let reth = Reth { address: 8, rkey: 9, bytes: 10 };
    let read = encoded_as(&packet(1, 2, true, Body::ReadRequest(reth)), UDP);
    assert_eq!(read.len(), 74);
    let error = |frame: &[u8]| decode(frame).expect_err("a wrong frame");
    let change = |at: usize, byte: u8| error(&forged(&read, |frame| frame[at] = byte));
    assert_eq!(error(&read[..57]), WireError::Short { met: 57, least: 58 });
    assert_eq!(error(&forged(&read, |f| f.truncate(58))), WireError::Short { met: 62, least: 74 });
    assert_eq!(change(14, 0x46), WireError::IpVersion(0x46));
    assert_eq!(change(14, 0x65), WireError::IpVersion(0x65));
    assert_eq!(change(23, 6), WireError::Protocol(6));
    assert_eq!(change(20, 0x60), WireError::Fragment(0x6000));
    assert_eq!(change(21, 1), WireError::Fragment(0x4001));
    assert_eq!(change(42, 0x81), WireError::Opcode(0x81));
    assert_eq!(change(42, 0x24), WireError::Opcode(0x24));
    let mut wrong = read.clone();
    wrong[17] += 4;
    assert_eq!(error(&wrong), WireError::TotalLength { said: 64, met: 60 });
    let mut wrong = read.clone();
    wrong[39] -= 4;
    assert_eq!(error(&wrong), WireError::UdpLength { said: 36, met: 40 });
    // May be a fragment or not, says the bit; an identification is nobody's business, and checksummed.
    assert!(decode(&forged(&read, |frame| frame[20] = 0)).is_ok());
    assert!(decode(&forged(&read, |frame| frame[18] = 77)).is_ok());
}

fn outers() -> impl Strategy<Value = Outer> {
    let udp = |(source_port, destination_port)| Outer::Udp { source_port, destination_port };
    prop_oneof![Just(Outer::Grh), any::<(u16, u16)>().prop_map(udp)]
}

fn parts() -> impl Strategy<Value = Part> {
    prop_oneof![Just(Part::First), Just(Part::Middle), Just(Part::Last), Just(Part::Only)]
}

fn payloads() -> impl Strategy<Value = Payload> {
    let sizes = prop_oneof![0..40usize, 0..=MTU_MAX, Just(MTU_MAX)];
    (sizes, any::<u8>()).prop_map(|(bytes, seed)| {
        payload(&(0..bytes).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed)).collect::<Vec<_>>())
    })
}

fn reths() -> impl Strategy<Value = Reth> {
    (any::<u64>(), any::<u32>(), 0..=1u32 << 31).prop_map(|(address, rkey, bytes)| Reth {
        address,
        rkey,
        bytes,
    })
}

fn atomics() -> impl Strategy<Value = AtomicRequest> {
    let mask = || prop_oneof![Just(u64::MAX), any::<u64>()];
    let swap =
        (any::<u64>(), any::<u64>(), mask(), mask()).prop_map(|(compare, swap, compare_mask, swap_mask)| {
            AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask }
        });
    let add = (any::<u64>(), prop_oneof![Just(0), any::<u64>()])
        .prop_map(|(add, boundary)| AtomicOp::FetchAdd { add, boundary });
    (any::<u64>(), any::<u32>(), prop_oneof![Just(4u32), Just(8)], prop_oneof![swap, add])
        .prop_map(|(address, rkey, bytes, op)| AtomicRequest { address, rkey, bytes, op })
}

/// Every body as a decoder gives it back: without what its part does not carry.
fn bodies() -> impl Strategy<Value = Body> {
    let write = (parts(), reths(), payloads()).prop_map(|(part, reth, payload)| Body::Write {
        part,
        reth: if part.starts() { reth } else { Reth::default() },
        payload,
    });
    let write_imm =
        (any::<bool>(), reths(), any::<u32>(), payloads()).prop_map(|(only, reth, imm, payload)| {
            Body::WriteImm {
                part: if only { Part::Only } else { Part::Last },
                reth: if only { reth } else { Reth::default() },
                imm,
                payload,
            }
        });
    let send = (parts(), any::<Option<u32>>(), payloads()).prop_map(|(part, imm, payload)| Body::Send {
        part,
        imm: imm.filter(|_| part.ends()),
        payload,
    });
    let read = (parts(), 0..1u32 << 24, payloads()).prop_map(|(part, msn, payload)| Body::ReadResponse {
        part,
        msn: if part == Part::Middle { 0 } else { msn },
        payload,
    });
    let syndromes = prop_oneof![0..0x40u8, 0x60..0x80u8];
    let ack = (syndromes, 0..1u32 << 24).prop_map(|(syndrome, msn)| Body::Ack { syndrome, msn });
    let answer = (0..1u32 << 24, any::<u64>()).prop_map(|(msn, original)| Body::AtomicAck { msn, original });
    let datagram = (0..1u32 << 24, any::<u32>(), any::<Option<u32>>(), payloads()).prop_map(
        |(source_qpn, qkey, imm, payload)| {
            let destination = addresses().destination;
            Body::Datagram(Box::new(Datagram { destination, source_qpn, qkey, imm, payload }))
        },
    );
    let step = prop_oneof![Just(DcStep::Connect), Just(DcStep::Accept), Just(DcStep::Refuse)];
    let dc = (step, any::<u32>(), 0..1u32 << 24, any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
        |(step, number, qpn, mtu, key, mac)| Body::Dc(Box::new(DcSetup { step, number, qpn, mtu, key, mac })),
    );
    let (request, atomic) = (reths().prop_map(Body::ReadRequest), atomics().prop_map(Body::Atomic));
    prop_oneof![write, write_imm, send, read, ack, answer, datagram, dc, request, atomic]
}

fn packets() -> impl Strategy<Value = Packet> {
    (0..1u32 << 24, 0..1u32 << 24, any::<bool>(), any::<bool>(), bodies()).prop_map(
        |(qpn, psn, ack_request, solicited, body)| Packet {
            solicited,
            ..packet(qpn, psn, ack_request, body)
        },
    )
}

proptest! {
    #[test]
    fn what_is_sent_is_what_arrives(packets in prop::collection::vec((packets(), outers()), 1..4)) {
        for (packet, outer) in &packets {
            let frame = encoded_as(packet, *outer);
            prop_assert!(frame.len() <= FRAME_MAX && frame.len().is_multiple_of(2));
            let back = decode(&frame).unwrap();
            prop_assert_eq!(back.outer, *outer);
            prop_assert_eq!(shown(&back.packet, &back.addresses), shown(packet, &addresses()));
        }
    }

    #[test]
    fn a_mutated_frame_is_refused_or_the_same(
        (packet, outer) in (packets(), outers()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..4),
    ) {
        let frame = encoded_as(&packet, outer);
        let mut changed = frame.clone();
        for (at, bits) in changes {
            let at = at.index(changed.len());
            changed[at] ^= bits;
        }
        // Accepted only if nothing changed but what the checksum leaves out: MACs and what switches change.
        if let Ok(back) = decode(&changed) {
            prop_assert_eq!(format!("{:?}", back.packet), format!("{:?}", packet));
        }
    }

    #[test]
    fn a_frame_cut_or_lengthened_is_refused(
        (packet, outer) in (packets(), outers()),
        by in 1..200usize,
        longer in any::<bool>(),
    ) {
        let mut frame = encoded_as(&packet, outer);
        if longer {
            frame.extend(std::iter::repeat_n(0, by));
        } else {
            frame.truncate(frame.len().saturating_sub(by));
        }
        prop_assert!(decode(&frame).is_err());
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).is_err());
    }

    /// Garbage in every field behind a right checksum: whatever it decodes to, it encodes to the same again.
    #[test]
    fn forged_fields_decode_to_what_they_say_or_not_at_all(
        (packet, outer) in (packets(), outers()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in 0..8usize,
    ) {
        let frame = forged(&encoded_as(&packet, outer), |frame| {
            for (at, byte) in changes {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            frame.truncate((frame.len() - cut).max(66));
        });
        if let Ok(back) = decode(&frame) {
            let mut again = Vec::new();
            encode(&back.packet, &back.addresses, back.outer, &mut again);
            let once_more = decode(&again).unwrap();
            prop_assert_eq!(
                shown(&once_more.packet, &once_more.addresses),
                shown(&back.packet, &back.addresses)
            );
        }
    }
}
