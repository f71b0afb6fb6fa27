//! Nothing that comes from outside makes the NIC panic: mailboxes, packets, rings, doorbells.

use crate::rig::{Options, Rig};
use proptest::prelude::*;
use shunt_layout::mlx5::prm::cmd::{Opcode as Cmd, input};
use shunt_layout::mlx5::wqe::{AddressVector, Opcode};
use shunt_soft_nic::packet::{AtomicOp, AtomicRequest, Body, Datagram, Packet, Part, Payload, Reth};
use std::sync::atomic::{AtomicU64, Ordering};

fn any_payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        Just(Payload::Empty),
        (any::<[u8; 32]>(), 0u8..=32).prop_map(|(bytes, len)| Payload::Small(bytes, len)),
        (any::<u8>(), 0u16..=4096).prop_map(|(byte, len)| Payload::Large(Box::new([byte; 4096]), len)),
    ]
}

fn any_part() -> impl Strategy<Value = Part> {
    prop_oneof![Just(Part::First), Just(Part::Middle), Just(Part::Last), Just(Part::Only)]
}

/// An address near one that means something, or anything.
fn near(base: u64) -> impl Strategy<Value = u64> + Clone {
    prop_oneof![(0u64..9000).prop_map(move |offset| base + offset), any::<u64>()]
}

fn any_body(base: u64, key: u32) -> impl Strategy<Value = Body> {
    let key = prop_oneof![4 => Just(key), 1 => any::<u32>()];
    let bytes = prop_oneof![0u32..10_000, any::<u32>()];
    let reth =
        (near(base), key.clone(), bytes).prop_map(|(address, rkey, bytes)| Reth { address, rkey, bytes });
    let op = prop_oneof![
        any::<(u64, u64)>().prop_map(|(add, boundary)| AtomicOp::FetchAdd { add, boundary }),
        any::<(u64, u64, u64, u64)>().prop_map(|(compare, swap, compare_mask, swap_mask)| {
            AtomicOp::CompareSwap { compare, swap, compare_mask, swap_mask }
        }),
    ];
    let imm = any::<Option<u32>>();
    let send = (any_part(), imm.clone(), any_payload()).prop_map(|(part, imm, payload)| Body::Send {
        part,
        imm,
        payload,
    });
    let datagram = (any::<u128>(), any::<u32>(), 0u32..3, imm, any_payload()).prop_map(
        |(destination, source_qpn, qkey, imm, payload)| {
            Body::Datagram(Box::new(Datagram { destination, source_qpn, qkey, imm, payload }))
        },
    );
    let write_imm = (any_part(), reth.clone(), any::<u32>(), any_payload())
        .prop_map(|(part, reth, imm, payload)| Body::WriteImm { part, reth, imm, payload });
    let atomic = (near(base), key, 0u32..=16, op)
        .prop_map(|(address, rkey, bytes, op)| Body::Atomic(AtomicRequest { address, rkey, bytes, op }));
    prop_oneof![
        (any_part(), reth.clone(), any_payload()).prop_map(|(part, reth, payload)| Body::Write {
            part,
            reth,
            payload
        }),
        reth.prop_map(Body::ReadRequest),
        send,
        datagram,
        write_imm,
        atomic,
        (any_part(), any::<u32>(), any_payload()).prop_map(|(part, msn, payload)| Body::ReadResponse {
            part,
            msn,
            payload
        }),
        any::<(u8, u32)>().prop_map(|(syndrome, msn)| Body::Ack { syndrome, msn }),
        any::<(u32, u64)>().prop_map(|(msn, original)| Body::AtomicAck { msn, original }),
    ]
}

/// A mailbox: any bytes, half the time with an opcode that exists and objects that may.
fn any_mailbox() -> impl Strategy<Value = Vec<u8>> {
    let opcode = proptest::sample::select(Cmd::ALL);
    let known = (
        opcode,
        proptest::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 16..300),
        0u32..0x500,
    )
        .prop_map(|(opcode, mut bytes, object)| {
            input::OPCODE.set(&mut bytes, opcode as u32);
            input::OBJECT.set(&mut bytes, object);
            bytes
        });
    prop_oneof![known, proptest::collection::vec(any::<u8>(), 0..300)]
}

/// A control segment that is nearly right, then anything.
fn any_block() -> impl Strategy<Value = ([u64; 8], u8, u8, bool)> {
    let opcode =
        proptest::sample::select(vec![0u8, 1, 8, 9, 0x0a, 0x0b, 0x10, 0x11, 0x12, 0x14, 0x15, 0x25, 0xff]);
    (any::<[u64; 8]>(), opcode, 0u8..64, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mailboxes(mailboxes in proptest::collection::vec((any_mailbox(), 0usize..5000), 1..40)) {
        let mut rig = Rig::new(1);
        let _pair = rig.pair(0, 1, Options::default());
        let nic = rig.hosts[0].nic;
        for (mailbox, out_len) in mailboxes {
            let out = rig.try_command(nic, &mailbox, out_len);
            prop_assert_eq!(out.len(), out_len.max(16));
        }
        rig.run_for(1_000_000);
    }

    #[test]
    fn packets(
        seed in any::<u64>(),
        bodies in proptest::collection::vec((any_body(0, 0), 0i32..6, any::<bool>()), 1..60),
    ) {
        let mut rig = Rig::new(1);
        // An atomic and a READ outstanding, so that answers find something to belong to.
        let datagram = (seed & 8 != 0).then_some(1);
        let log_rq = (seed & 16 != 0).then_some(3);
        let mtu = 1 + (seed % 5) as u32;
        let (mut a, mut b) = rig.pair(0, 1, Options { mtu, log_rq, datagram, ..Options::default() });
        for n in 0..if log_rq.is_some() { 8 } else { 0 } {
            b.post_receive(&[rig.local(1, n * 0x1000, n as u32 * 700 + 1)]);
        }
        rig.inject(1, "blackhole-tx=100us");
        a.post(Opcode::RdmaRead, &[rig.remote(1, 0), rig.local(0, 0, 5000)]);
        let body = [rig.remote(1, 0), [0; 4], rig.local(0, 0, 8)];
        a.post(Opcode::AtomicFa, &body);
        rig.ring(&a);
        rig.run_for(5_000);
        let (base, key) = (rig.hosts[1].heap.address(), rig.hosts[1].key);
        for (mut body, psn, to_b) in bodies {
            // Half the requests name a real key and place.
            match &mut body {
                Body::Write { reth, .. } | Body::WriteImm { reth, .. } | Body::ReadRequest(reth) if to_b => {
                    (reth.address, reth.rkey) = (base + reth.address % 9000, key);
                }
                Body::Atomic(request) if to_b => {
                    (request.address, request.rkey) = (base + request.address % 9000, key);
                }
                _ => {}
            }
            let (from, to) = if to_b { (0, 1) } else { (1, 0) };
            let source = u128::from_be_bytes(rig.fabric.nic(rig.hosts[from as usize].nic).config().gid);
            let qpn = if to_b { b.qpn } else { a.qpn };
            let psn = psn.wrapping_sub(1) as u32;
            let packet = Packet { from, to, source, qpn, psn, ack_request: true, solicited: false, body };
            let forged = rig.fabric.forge(packet);
            prop_assert!(forged);
            rig.run_for(3_000);
        }
        rig.settle();
    }

    #[test]
    fn rings(
        blocks in proptest::collection::vec(any_block(), 1..60),
        next in any::<u16>(),
        datagram in any::<Option<u32>>(),
    ) {
        let mut rig = Rig::new(1);
        let options = Options { retry: 0, rnr_retry: 1, ack_timeout: 1, datagram, ..Options::default() };
        let (mut a, _b) = rig.pair(0, 1, options);
        for (words, opcode, ds, named) in blocks {
            let at = (a.posted() as usize * 64) % (64 << 6);
            (0..8).for_each(|n| a.control.set64(at + n * 8, words[n]));
            if named {
                let ctrl = (a.posted() as u16 as u32) << 8 | opcode as u32 | (words[0] as u32 & 1) << 27;
                let second = (a.qpn << 8 | ds as u32).to_be();
                a.control.set64(at, ctrl.to_be() as u64 | (second as u64) << 32);
            }
            a.skip_posted(1);
        }
        rig.ring(&a);
        rig.run_for(1_000_000);
        rig.ring_register(&a, next as u64);
        rig.settle();
    }

    #[test]
    fn receive_queues(
        wqes in proptest::collection::vec((any::<[u64; 8]>(), any::<bool>()), 1..20),
        counters in proptest::collection::vec(any::<u16>(), 1..5),
        arms in proptest::collection::vec(any::<u64>(), 0..5),
        datagram in any::<bool>(),
    ) {
        let mut rig = Rig::new(1);
        let datagram = datagram.then_some(1);
        let options = Options { log_rq: Some(3), rnr_retry: 1, min_rnr: 1, datagram, ..Options::default() };
        let (mut a, mut b) = rig.pair(0, 1, options);
        for (words, near) in wqes {
            let mut list: Vec<[u32; 4]> =
                words.chunks_exact(2).map(|w| [w[0] as u32, (w[0] >> 32) as u32, w[1] as u32, 7]).collect();
            if near {
                list.truncate(2);
                list.push(rig.local(1, words[0] as usize % (1 << 20), words[1] as u32 % 5000));
            }
            b.post_receive(&list);
            match datagram {
                None => a.post(Opcode::Send, &[rig.local(0, 0, words[2] as u32 % 5000 + 1)]),
                Some(qkey) => {
                    let remote = rig.fabric.nic(rig.hosts[1].nic).config().clone();
                    let (qpn, rmac, rgid) = (b.qpn, remote.mac, remote.gid);
                    let (rlid, tclass, hop_limit, flow_label) = (0, 0, 0, 0);
                    let to = AddressVector {
                        qkey, qpn, full: true, rlid, service_level: 0, rmac, tclass, hop_limit, grh: false,
                        source_gid_index: 0, flow_label, rgid,
                    };
                    let data = rig.local(0, 0, words[2] as u32 % 4096 + 1);
                    let body: Vec<[u32; 4]> = to.segments().into_iter().chain([data]).collect();
                    a.post(Opcode::Send, &body);
                }
            }
        }
        rig.ring(&a);
        rig.run_for(1_000_000);
        for counter in counters {
            b.control.set32(b.record(), (counter as u32).to_be());
            rig.run_for(1_000_000);
        }
        for arm in arms {
            let address = rig.hosts[1].uar.address + 0x20;
            // SAFETY: the page lives as long as the NIC, and doorbells are atomic stores.
            unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(arm, Ordering::Release);
            rig.run_for(1_000);
        }
        rig.settle();
    }
}
