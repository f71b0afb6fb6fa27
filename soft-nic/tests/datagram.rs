//! Unreliable datagrams: addresses, keys, the header in front, silence where nobody listens.

use crate::rig;
use crate::rig::{End, Got, Options, Rig, good, rst2init};
use shunt_layout::mlx5::cqe::opcode::{RESP_ERR, RESP_SEND, RESP_SEND_IMM};
use shunt_layout::mlx5::cqe::{GRH_FLAG, OVER_UDP_IPV4};
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mlx5::wqe::{AddressVector, CqeWhen, Opcode, SOLICITED_EVENT, Segment, inline8};
use shunt_soft_nic::LinkLayer;

const QKEY: u32 = 0x1122_3344;

fn options() -> Options {
    Options { datagram: Some(QKEY), log_rq: Some(4), ..Options::default() }
}

/// A datagram end, ready.
fn end(rig: &mut Rig, host: usize, options: Options) -> End {
    let mut end = rig.end(host, options);
    rig.connect(&mut end, host, 0);
    end
}

fn to(rig: &mut Rig, target: &End) -> AddressVector {
    let remote = rig.fabric.nic(rig.hosts[target.host].nic).config().clone();
    AddressVector {
        qkey: QKEY,
        qpn: target.qpn,
        full: true,
        rlid: 0,
        service_level: 0,
        rmac: remote.mac,
        tclass: 0,
        hop_limit: 64,
        grh: false,
        source_gid_index: 0,
        flow_label: 0,
        rgid: remote.gid,
    }
}

fn body(to: AddressVector, data: &[Segment]) -> Vec<Segment> {
    to.segments().iter().chain(data).copied().collect()
}

/// Over RoCE v2. UCX takes the kind of header from the completion, and drops a datagram whose header then names another
/// destination: where the kind was left out, no wire-up was ever answered.
fn got(from: &End, counter: u16, bytes: u32) -> Got {
    let origin = GRH_FLAG | OVER_UDP_IPV4 | from.qpn;
    Got { opcode: RESP_SEND, counter, bytes, origin, ..Got::default() }
}

#[test]
fn a_datagram_lands_behind_its_header() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = (end(&mut rig, 0, options()), end(&mut rig, 1, options()));
    b.post_receive(&[rig.local(1, 0x1000, 20), rig.local(1, 0x2000, 28)]);
    b.post_receive(&[rig.local(1, 0x3000, 4136)]);
    let there = to(&mut rig, &b);
    a.post(Opcode::Send, &body(there, &[inline8(0x77)]));
    rig.hosts[0].heap.fill(0, 4096, 9);
    let flags = CqeWhen::Always as u8 | SOLICITED_EVENT;
    a.post_all(Opcode::SendImm as u8, 0, flags, 0xabcd, &body(there, &[rig.local(0, 0, 4096)]));
    let start = rig.now;
    assert_eq!(rig.complete(&mut a, 2), [good(0, Opcode::Send), good(2, Opcode::SendImm)]);
    assert_eq!(rig.now, start, "complete as soon as sent");
    rig.settle();
    let imm = Got { opcode: RESP_SEND_IMM, imm: 0xabcd, solicited: true, ..got(&a, 1, 4136) };
    assert_eq!(b.poll_receives(), [got(&a, 0, 48), imm]);
    let heap = &rig.hosts[1].heap;
    let data: Vec<u8> = (0..8).map(|n| heap.get8(0x2014 + n)).collect();
    assert_eq!(data, [0x77, 0, 0, 0, 0, 0, 0, 0], "behind 40 bytes, 20 of them in the first buffer");
    assert!(heap.holds(0x3028, 4096, 9));
    // Between IPv4-mapped addresses: an IPv4 header in the second half.
    let ip: Vec<u8> = (0..20).map(|n| heap.get8(0x2000 + n)).collect();
    assert_eq!((ip[0], ip[9], &ip[12..]), (0x45, 17, &[10, 0, 0, 1, 10, 0, 0, 2][..]), "{ip:?}");
    let nic = rig.hosts[1].nic;
    assert_eq!(rig.fabric.nic(nic).counters().packets_tx, 0, "nothing is acknowledged");
}

#[test]
fn keys_and_addresses_select_who_hears_it() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = (end(&mut rig, 0, options()), end(&mut rig, 1, options()));
    (0..8).for_each(|_| b.post_receive(&[rig.local(1, 0, 100)]));
    let there = to(&mut rig, &b);
    let own = rig.end(0, Options::default());
    let wrong = [
        AddressVector { qkey: QKEY ^ 1, ..there },
        AddressVector { qpn: there.qpn + 77, ..there },
        AddressVector { qpn: own.qpn, ..there },
        AddressVector { rmac: [2; 6], ..there },
        AddressVector { rgid: [7; 16], ..there },
    ];
    for vector in wrong {
        a.post(Opcode::Send, &body(vector, &[inline8(1)]));
    }
    // A key with its top bit set stands for the sender's own.
    a.post(Opcode::Send, &body(AddressVector { qkey: 0x8000_0000, ..there }, &[inline8(2)]));
    assert!(rig.complete(&mut a, 6).iter().all(|done| done.syndrome == 0), "the sender never knows");
    rig.settle();
    assert_eq!(b.poll_receives(), [got(&a, 0, 48)]);
    assert_eq!(rig.hosts[1].heap.get64(40), 2);
}

#[test]
fn without_a_buffer_it_is_lost() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = (end(&mut rig, 0, options()), end(&mut rig, 1, options()));
    let there = to(&mut rig, &b);
    a.post(Opcode::Send, &body(there, &[inline8(1)]));
    rig.complete(&mut a, 1);
    rig.settle();
    b.post_receive(&[rig.local(1, 0, 100)]);
    a.post(Opcode::Send, &body(there, &[inline8(2)]));
    rig.complete(&mut a, 1);
    rig.settle();
    assert_eq!(b.poll_receives(), [got(&a, 0, 48)]);
    assert_eq!(rig.hosts[1].heap.get64(40), 2);
    let nic = rig.hosts[1].nic;
    let counters = rig.fabric.nic(nic).counters();
    assert_eq!((counters.dropped, counters.rnr_naks, counters.naks), (1, 0, 0));
}

#[test]
fn a_buffer_without_room_for_the_header_is_a_local_error() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = (end(&mut rig, 0, options()), end(&mut rig, 1, options()));
    b.post_receive(&[rig.local(1, 0, 47)]);
    let there = to(&mut rig, &b);
    a.post(Opcode::Send, &body(there, &[inline8(1)]));
    rig.complete(&mut a, 1);
    rig.settle();
    let failed = Got { opcode: RESP_ERR, syndrome: 1, vendor: 0x32, ..Got::default() };
    assert_eq!(b.poll_receives(), [failed]);
    assert_eq!((rig.state(&a), rig.state(&b)), (State::Rts, State::Err));
}

#[test]
fn what_a_datagram_pair_refuses_to_send() {
    type Post = fn(&mut Rig, &mut End, AddressVector);
    let cases: [(Post, u8); 6] = [
        (|rig, a, _| a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]), 0x02),
        (|_, a, _| a.post(Opcode::Send, &[inline8(1)]), 0x02),
        (|_, a, to| a.post(Opcode::Send, &body(AddressVector { full: false, ..to }, &[inline8(1)])), 0x02),
        (|rig, a, to| a.post(Opcode::Send, &body(to, &[rig.local(0, 0, 4097)])), 0x01),
        (|rig, a, to| a.post(Opcode::Send, &body(to, &[rig.local(0, rig::HEAP - 4, 8)])), 0x04),
        (|rig, a, to| a.post(Opcode::RdmaRead, &body(to, &[rig.local(0, 0, 8)])), 0x02),
    ];
    for (n, (post, syndrome)) in cases.into_iter().enumerate() {
        let mut rig = Rig::new(1);
        let (mut a, b) = (end(&mut rig, 0, options()), end(&mut rig, 1, options()));
        let there = to(&mut rig, &b);
        a.post(Opcode::Nop, &[]);
        post(&mut rig, &mut a, there);
        let done = rig.complete(&mut a, 2);
        assert_eq!((done[0].syndrome, done[1].syndrome), (0, syndrome), "case {n}");
        assert_eq!(rig.state(&a), State::Err);
    }
}

#[test]
fn datagrams_to_oneself_and_from_many() {
    let mut rig = Rig::new(2);
    let mut ends: Vec<End> = (0..4).map(|host| end(&mut rig, host, options())).collect();
    (0..4).for_each(|_| ends[0].post_receive(&[rig.local(0, 0, 64)]));
    let there = to(&mut rig, &ends[0]);
    for n in 0..4 {
        ends[n].post(Opcode::Send, &body(there, &[inline8(n as u64)]));
        rig.complete(&mut ends[n], 1);
        rig.settle();
        // GIDs of different rails are different subnets, but the fabric is one.
        let expected = got(&ends[n], n as u16, 48);
        assert_eq!(ends[0].poll_receives(), [expected]);
        assert_eq!(rig.hosts[0].heap.get64(40), n as u64);
    }
}

#[test]
fn infiniband_by_lid_and_by_gid() {
    let mut rig = Rig::with(1, |config| {
        config.link_layer = LinkLayer::InfiniBand;
        config.gid[0] = 0xfe;
    });
    let mut b = rig.end(1, options());
    let mut a = rig.end(0, options());
    for end in [&mut a, &mut b] {
        rig.connect(end, 0, 0);
    }
    (0..2).for_each(|n| b.post_receive(&[rig.local(1, n * 0x100, 64)]));
    let there = to(&mut rig, &b);
    let lid = rig.fabric.nic(rig.hosts[1].nic).config().lid;
    let nowhere = AddressVector { rgid: [0; 16], rmac: [0; 6], rlid: lid, ..there };
    a.post(Opcode::Send, &body(nowhere, &[inline8(5)]));
    a.post(Opcode::Send, &body(AddressVector { grh: true, rmac: [0; 6], ..there }, &[inline8(6)]));
    rig.complete(&mut a, 2);
    rig.settle();
    let from = |origin, counter| Got { origin, ..got(&a, counter, 48) };
    assert_eq!(b.poll_receives(), [from(a.qpn, 0), from(GRH_FLAG | a.qpn, 1)]);
    let heap = &rig.hosts[1].heap;
    assert_eq!((heap.get64(40), heap.get64(0x128)), (5, 6));
    assert_eq!((heap.get64(0), heap.get8(0x100)), (0, 0x60), "no GRH, and one");
}

#[test]
fn states_gate_datagrams() {
    let mut rig = Rig::new(1);
    let mut a = end(&mut rig, 0, options());
    let mut b = rig.end(1, options());
    let nic = rig.hosts[1].nic;
    rig.command(nic, &rst2init(&b), 16);
    b.post_receive(&[rig.local(1, 0, 64)]);
    let there = to(&mut rig, &b);
    a.post(Opcode::Send, &body(there, &[inline8(1)]));
    rig.complete(&mut a, 1);
    rig.settle();
    assert_eq!(b.poll_receive(), None, "INIT hears nothing");
    rig.connect_from_init(&mut b, 0, 0);
    a.post(Opcode::Send, &body(there, &[inline8(2)]));
    rig.complete(&mut a, 1);
    rig.settle();
    assert_eq!(b.poll_receives(), [got(&a, 0, 48)]);
    rig.fence(&b);
    b.post_receive(&[rig.local(1, 0, 64)]);
    a.post(Opcode::Send, &body(there, &[inline8(3)]));
    rig.complete(&mut a, 1);
    rig.settle();
    let flushed = Got { opcode: RESP_ERR, counter: 1, syndrome: 5, vendor: 0xf9, ..Got::default() };
    assert_eq!(b.poll_receives(), [flushed]);
    assert_eq!(rig.hosts[1].heap.get64(40), 2);
}
