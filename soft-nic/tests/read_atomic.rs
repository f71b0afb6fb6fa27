//! RDMA READ and the atomics: results, limits, fences, duplicates.

mod rig;

use rig::{Options, Rig, good};
use shunt_layout::mlx5::prm::qp::qpc;
use shunt_layout::mlx5::wqe::{CqeWhen, FENCE_BEFORE, Opcode, Segment, inline8};

/// Operands as they lie in a WQE.
fn operands(words: [u64; 2]) -> Segment {
    let [a, b] = words.map(|word| [((word >> 32) as u32).to_be(), (word as u32).to_be()]);
    [a[0], a[1], b[0], b[1]]
}

fn operands32(words: [u32; 4]) -> Segment {
    words.map(u32::to_be)
}

const SIGNALLED: u8 = CqeWhen::Always as u8;

#[test]
fn reads_of_every_length_land_in_lists() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { mtu: 1, ..Options::default() });
    rig.hosts[1].heap.fill(0x1000, 70_000, 4);
    let mut packets = 0;
    for bytes in [1usize, 8, 255, 256, 257, 1000, 65_000] {
        let first = bytes / 3;
        let mut body = vec![rig.remote(1, 0x1000)];
        if first > 0 {
            body.push(rig.local(0, 0x20003, first as u32));
        }
        body.push(rig.local(0, 0x20003 + first, (bytes - first) as u32));
        a.post(Opcode::RdmaRead, &body);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
        assert!(rig.hosts[0].heap.holds(0x20003, bytes, 4), "{bytes} bytes");
        packets += bytes.div_ceil(256) as u32;
    }
    a.post(Opcode::RdmaRead, &[[0; 4]]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
    assert_eq!(rig.query(&b, qpc::NEXT_RCV_PSN), packets + 1);
    assert_eq!(rig.query(&b, qpc::RMSN), 8, "a READ is one message");
}

#[test]
fn more_reads_than_the_responder_remembers_wait_at_the_requester() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { log_reads: 1, ..Options::default() });
    (0..32).for_each(|n| rig.hosts[1].heap.set64(n * 8, n as u64 + 100));
    for n in 0..32 {
        a.post(Opcode::RdmaRead, &[rig.remote(1, n * 8), rig.local(0, 0x1000 + n * 8, 8)]);
    }
    assert!(rig.complete(&mut a, 32).iter().all(|done| done.syndrome == 0));
    assert!((0..32).all(|n| rig.hosts[0].heap.get64(0x1000 + n * 8) == n as u64 + 100));
}

#[test]
fn plain_atomics() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.hosts[1].heap.set64(0x40, 10);
    let (target, result) = (rig.remote(1, 0x40), |rig: &Rig, n: usize| rig.local(0, n * 8, 8));
    a.post(Opcode::AtomicFa, &[target, operands([5, 0]), result(&rig, 0)]);
    a.post(Opcode::AtomicCs, &[target, operands([99, 15]), result(&rig, 1)]);
    a.post(Opcode::AtomicCs, &[target, operands([1, 15]), result(&rig, 2)]);
    let done = rig.complete(&mut a, 3);
    assert_eq!(done[0], good(0, Opcode::AtomicFa));
    assert_eq!(rig.hosts[1].heap.get64(0x40), 99);
    let heap = &rig.hosts[0].heap;
    assert_eq!([heap.get64(0), heap.get64(8), heap.get64(16)], [10, 15, 99], "results in host order");
}

#[test]
fn masked_atomics_of_both_sizes() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.hosts[1].heap.set64(0x40, 0x1111_2222_3333_4444);
    let remote = rig.remote(1, 0x40);
    let (cs, fa) = (Opcode::AtomicMaskedCs as u8, Opcode::AtomicMaskedFa as u8);
    // 8 bytes, two blocks: swap the low half only, whatever the old value (compare mask 0).
    let body = [remote, operands([!0, 0]), operands([0xffff_ffff, 0]), rig.local(0, 0, 8)];
    a.post_with(cs, 9, SIGNALLED, &body);
    assert_eq!(a.posted(), 2);
    // 8 bytes, boundary all ones: exclusive or.
    a.post_with(fa, 9, SIGNALLED, &[remote, operands([0xff, !0]), rig.local(0, 8, 8)]);
    // 4 bytes: the add stays in its half; the result is big-endian.
    let body = [rig.remote(1, 0x44), operands32([1, 0, 0, 0]), rig.local(0, 16, 4)];
    a.post_with(fa, 8, SIGNALLED, &body);
    let body = [rig.remote(1, 0x40), operands32([7, 0xffff_ff00, !0, !0]), rig.local(0, 20, 4)];
    a.post_with(cs, 8, SIGNALLED, &body);
    assert!(rig.complete(&mut a, 4).iter().all(|done| done.syndrome == 0));
    assert_eq!(rig.hosts[1].heap.get64(0x40), 0x1111_2223_0000_0007);
    let heap = &rig.hosts[0].heap;
    assert_eq!((heap.get64(0), heap.get64(8)), (0x1111_2222_3333_4444, 0x1111_2222_ffff_ffff));
    assert_eq!((heap.get32(16), heap.get32(20)), (0x1111_2222u32.to_be(), 0xffff_ff00u32.to_be()));
}

#[test]
fn a_two_block_atomic_may_start_in_the_last_block() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { log_depth: 2, ..Options::default() });
    for n in 0..3 {
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(n)]);
    }
    rig.complete(&mut a, 3);
    let body = [rig.remote(1, 0), operands([77, 2]), operands([!0, !0]), rig.local(0, 0, 8)];
    a.post_with(Opcode::AtomicMaskedCs as u8, 9, SIGNALLED, &body);
    assert_eq!(rig.complete(&mut a, 1), [good(3, Opcode::AtomicMaskedCs)]);
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[0].heap.get64(0)), (77, 2));
}

#[test]
fn a_fence_waits_for_the_read_before_it() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.hosts[1].heap.set64(0, 42);
    a.post(Opcode::RdmaRead, &[rig.remote(1, 0), rig.local(0, 0x10, 8)]);
    let write = Opcode::RdmaWrite as u8;
    a.post_with(write, 0, SIGNALLED | FENCE_BEFORE, &[rig.remote(1, 0x20), rig.local(0, 0x10, 8)]);
    rig.complete(&mut a, 2);
    assert_eq!(rig.hosts[1].heap.get64(0x20), 42, "the write sends what the READ brought");
}

#[test]
fn lost_answers_are_asked_for_again_and_atomics_applied_once() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { mtu: 1, ..Options::default() });
    rig.hosts[1].heap.fill(0x1000, 2000, 8);
    rig.hosts[1].heap.set64(0, 7);
    rig.inject(0, "drop-acks=2ms");
    a.post(Opcode::AtomicFa, &[rig.remote(1, 0), operands([1, 0]), rig.local(0, 0, 8)]);
    a.post(Opcode::RdmaRead, &[rig.remote(1, 0x1000), rig.local(0, 0x1000, 2000)]);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 8), inline8(3)]);
    assert!(rig.complete(&mut a, 3).iter().all(|done| done.syndrome == 0));
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[0].heap.get64(0)), (8, 7));
    assert!(rig.hosts[0].heap.holds(0x1000, 2000, 8));
    assert_eq!(rig.query(&b, qpc::RMSN), 3, "duplicates do not count");
    let nic = rig.hosts[1].nic;
    assert!(rig.fabric.nic(nic).counters().duplicates > 0);
    assert!(rig.hits()[0] > 0);
}

#[test]
fn an_atomic_whose_answer_never_comes_was_applied_once() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { retry: 3, ..Options::default() });
    rig.inject(0, "lost-atomic-response");
    a.post(Opcode::AtomicFa, &[rig.remote(1, 0), operands([1, 0]), rig.local(0, 0, 8)]);
    let done = rig.complete(&mut a, 1);
    assert_eq!((done[0].syndrome, done[0].vendor), (0x15, 0x81));
    assert_eq!(rig.hosts[1].heap.get64(0), 1);
    assert_eq!(rig.hits(), [4], "the first attempt and three retries");
}

#[test]
fn loopback_pairs_work_while_the_port_is_down() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 0, Options::default());
    rig.inject(0, "down");
    rig.hosts[0].heap.set64(0, 6);
    a.post(Opcode::RdmaRead, &[rig.remote(0, 0), rig.local(0, 0x10, 8)]);
    assert_eq!(rig.complete(&mut a, 1), [good(0, Opcode::RdmaRead)]);
    assert_eq!(rig.hosts[0].heap.get64(0x10), 6);
}
