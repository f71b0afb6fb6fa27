//! RDMA READ and the atomics: results, limits, fences, duplicates.

use crate::rig::{Options, Rig, good};
use shunt_layout::mlx5::prm::qp::qpc;
use shunt_layout::mlx5::wqe::{CqeWhen, FENCE_BEFORE, Opcode, Segment, inline8};
use shunt_soft_nic::packet::{AtomicOp, AtomicRequest, Body, Packet};

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
fn an_atomic_may_be_made_to_act_twice_or_not_at_all_once() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(1, "double-atomic");
    rig.inject(1, "skip-atomic");
    let mut add = |rig: &mut Rig, by: u64| {
        a.post(Opcode::AtomicFa, &[rig.remote(1, 0), operands([by, 0]), rig.local(0, 0, 8)]);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
        (rig.hosts[0].heap.get64(0), rig.hosts[1].heap.get64(0))
    };
    assert_eq!(add(&mut rig, 0), (0, 0), "nothing would change");
    assert_eq!(add(&mut rig, 5), (0, 0), "answered, not executed");
    assert_eq!(add(&mut rig, 5), (0, 10), "executed twice");
    assert_eq!(add(&mut rig, 5), (10, 15));
    assert_eq!(rig.hits(), [1, 1]);
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

/// One atomic as the PRM has it: opcode, opmod, operand segments, and what it does to which word.
struct Golden {
    opcode: Opcode,
    opmod: u8,
    operands: &'static [[u32; 4]],
    bytes: u32,
    before: u64,
    after: u64,
}

#[test]
fn golden_atomics() {
    let golden = |opcode, opmod, operands, bytes, before, after| {
        let (before, after): (u64, u64) = (before, after);
        Golden { opcode, opmod, operands, bytes, before, after }
    };
    use Opcode::{AtomicCs, AtomicFa, AtomicMaskedCs, AtomicMaskedFa};
    let table = [
        // swap, compare
        golden(AtomicCs, 0, &[[1, 2, 3, 4]], 8, 0x3_0000_0004, 0x1_0000_0002),
        golden(AtomicCs, 0, &[[1, 2, 3, 4]], 8, 0x3_0000_0005, 0x3_0000_0005),
        // add; what lies in the compare field is ignored
        golden(AtomicFa, 0, &[[0, 2, 9, 9]], 8, u64::MAX, 1),
        // 32 bits: swap, compare, swap mask, compare mask; the neighbour stays
        golden(
            AtomicMaskedCs,
            8,
            &[[0xaa, 0x12, 0xff, 0xf0]],
            4,
            0x7777_7777_0000_001f,
            0x7777_7777_0000_00aa,
        ),
        golden(
            AtomicMaskedCs,
            8,
            &[[0xaa, 0x12, 0xff, 0xf0]],
            4,
            0x7777_7777_0000_002f,
            0x7777_7777_0000_002f,
        ),
        golden(AtomicMaskedCs, 8, &[[0xaa, 0, 0x0f, 0]], 4, 0xffff_ffff, 0xffff_fffa),
        // 64 bits: two segments
        golden(AtomicMaskedCs, 9, &[[5, 6, 7, 8], [!0, 0, 0, !0]], 8, 0x9_0000_0008, 0x5_0000_0008),
        golden(AtomicMaskedCs, 9, &[[5, 6, 7, 8], [!0, 0, 0, !0]], 8, 0x9_0000_0009, 0x9_0000_0009),
        // 32 bits: add, boundary; the carry is cut above bit 7 and at the end
        golden(AtomicMaskedFa, 8, &[[0x01, 0x80, 0, 0]], 4, 0x1_0000_00ff, 0x1_0000_0000),
        golden(AtomicMaskedFa, 8, &[[1, 0, 0, 0]], 4, 0x1_ffff_ffff, 0x1_0000_0000),
        // 64 bits: add, boundary; as two fields of 32, then as exclusive or
        golden(AtomicMaskedFa, 9, &[[1, 1, 0, 0x8000_0000]], 8, 0x1_ffff_ffff, 0x2_0000_0000),
        golden(AtomicMaskedFa, 9, &[[0, 0xff, !0, !0]], 8, 0x0f0f, 0x0ff0),
    ];
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    for (n, case) in table.iter().enumerate() {
        rig.hosts[1].heap.set64(0x40, case.before);
        let mut body = vec![rig.remote(1, 0x40)];
        body.extend(case.operands.iter().map(|words| operands32(*words)));
        body.push(rig.local(0, 0, case.bytes));
        a.post_with(case.opcode as u8, case.opmod, SIGNALLED, &body);
        let done = rig.complete(&mut a, 1);
        assert_eq!((done[0].syndrome, done[0].opcode), (0, case.opcode as u8), "case {n}");
        assert_eq!(rig.hosts[1].heap.get64(0x40), case.after, "case {n}");
        match case.bytes {
            4 => assert_eq!(rig.hosts[0].heap.get32(0), (case.before as u32).to_be(), "case {n}"),
            _ => assert_eq!(rig.hosts[0].heap.get64(0), case.before, "case {n}"),
        }
    }
    // Only sizes of 4 and 8 bytes, only with their own number of segments.
    let wrong: [(u8, u8, usize); 5] =
        [(0x14, 0, 1), (0x15, 7, 1), (0x15, 0x0a, 1), (0x14, 9, 1), (0x15, 9, 2)];
    for (opcode, opmod, segments) in wrong {
        let (mut a, _b) = rig.pair(0, 1, Options::default());
        let mut body = vec![rig.remote(1, 0x40)];
        body.extend((0..segments).map(|_| [0; 4]));
        body.push(rig.local(0, 0, 8));
        a.post_with(opcode, opmod, SIGNALLED, &body);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x02, "opcode {opcode:#x} opmod {opmod:#x}");
    }
}

#[test]
fn a_nop_marks_the_end_of_a_two_block_atomic() {
    // What NVSHMEM posts: the atomic unsignalled, then one block whose second segment nobody wrote.
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { collapsed: true, ..Options::default() });
    for round in 0..40u64 {
        let body = [rig.remote(1, 0), operands([round, 0]), operands([!0, 0]), rig.local(0, 0, 8)];
        a.post_with(Opcode::AtomicMaskedCs as u8, 9, 0, &body);
        a.post_with(Opcode::Nop as u8, 0, SIGNALLED, &[[0xdead_beef; 4]]);
        rig.ring(&a);
        rig.run_for(100_000);
        let entry = a.entry(0);
        assert_eq!(entry[0x3c..0x3e], (round as u16 * 3 + 2).to_be_bytes());
        assert_eq!((entry[0x38], entry[0x3f] >> 4), (0, 0), "the NOP's opcode, no error");
        assert_eq!(rig.hosts[1].heap.get64(0), round);
    }
    assert_eq!(rig.query(&b, qpc::RMSN), 40, "a NOP is no message");
}

#[test]
fn duplicates_of_atomics_are_answered_from_memory_or_not_at_all() {
    let mut rig = Rig::new(1);
    // It remembers four.
    let (mut a, b) = rig.pair(0, 1, Options { log_reads: 2, ..Options::default() });
    for n in 0..6 {
        a.post(Opcode::AtomicFa, &[rig.remote(1, 0), operands([1, 0]), rig.local(0, n * 8, 8)]);
    }
    rig.complete(&mut a, 6);
    let source = u128::from_be_bytes(rig.fabric.nic(rig.hosts[0].nic).config().gid);
    let (address, rkey, qpn) = (rig.hosts[1].heap.address(), rig.hosts[1].key, b.qpn);
    let nic = rig.hosts[1].nic;
    let mut answers = vec![];
    for psn in 0..6 {
        // Not even the operation it carries matters.
        let request =
            AtomicRequest { address, rkey, bytes: 8, op: AtomicOp::FetchAdd { add: 100, boundary: 0 } };
        let body = Body::Atomic(request);
        let packet = Packet { from: 0, to: 1, source, qpn, psn, ack_request: true, solicited: false, body };
        let before = rig.fabric.nic(nic).counters().packets_tx;
        assert!(rig.fabric.forge(packet));
        rig.run_for(100_000);
        answers.push(rig.fabric.nic(nic).counters().packets_tx - before);
    }
    assert_eq!(answers, [0, 0, 1, 1, 1, 1], "the two oldest are forgotten, and dropped");
    assert_eq!(rig.hosts[1].heap.get64(0), 6);
    assert_eq!((0..6).map(|n| rig.hosts[0].heap.get64(n * 8)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}
