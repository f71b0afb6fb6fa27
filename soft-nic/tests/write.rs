//! RDMA WRITE from mailbox to completion.

use crate::rig;
use crate::rig::{Options, Rig, good};
use shunt_layout::mlx5::prm::qp::{State, qpc};
use shunt_layout::mlx5::wqe::{CqeWhen, Opcode, Segment, inline_small, inline8};

#[test]
fn one_write_from_mailboxes_to_a_completion() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options::default());
    rig.hosts[0].heap.fill(0x100, 64, 9);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x2000), rig.local(0, 0x100, 64)]);
    assert_eq!(rig.complete(&mut a, 1), [good(0, Opcode::RdmaWrite)]);
    assert!(rig.hosts[1].heap.holds(0x2000, 64, 9));
    let entry = a.entry(0);
    // PRM: opcode and QPN at 0x38, counter at 0x3c, opcode and owner at 0x3f, user index at 0x20.
    assert_eq!(entry[0x38..0x3c], (0x0800_0000 | a.qpn).to_be_bytes());
    assert_eq!(entry[0x3c..], [0, 0, 0, 0]);
    assert_eq!(entry[0x20..0x24], 0x77u32.to_be_bytes());
    assert_eq!(
        (rig.state(&a), rig.query(&b, qpc::RMSN), rig.query(&b, qpc::NEXT_RCV_PSN)),
        (State::Rts, 1, 1)
    );
    assert_eq!((rig.query(&a, qpc::NEXT_SEND_PSN), rig.query(&a, qpc::LAST_ACKED_PSN)), (1, 0));
    assert_eq!((rig.query(&a, qpc::HW_SQ_WQEBB_COUNTER), rig.query(&a, qpc::SW_SQ_WQEBB_COUNTER)), (1, 1));
}

#[test]
fn every_length_and_alignment_arrives_whole() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { mtu: 1, ..Options::default() });
    let mut packets = 0;
    for (n, bytes) in [1, 7, 8, 63, 255, 256, 257, 511, 512, 513, 4096, 65_537].into_iter().enumerate() {
        for (from, to) in [(0, 0), (3, 0), (0, 5), (1, 1)] {
            rig.hosts[0].heap.fill(from, bytes, n as u8);
            (0x80000 - 8..0x80000 + bytes + 16).for_each(|at| rig.hosts[1].heap.set8(at, 0));
            a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x80000 + to), rig.local(0, from, bytes as u32)]);
            rig.complete(&mut a, 1);
            assert!(
                rig.hosts[1].heap.holds(0x80000 + to, bytes, n as u8),
                "{bytes} bytes from {from} to {to}"
            );
            assert_eq!(rig.hosts[1].heap.get8(0x80000 + to + bytes), 0, "a byte too many");
            packets += bytes.div_ceil(256) as u32;
        }
    }
    assert_eq!(rig.query(&b, qpc::NEXT_RCV_PSN), packets);
    assert_eq!(rig.query(&b, qpc::RMSN), 48);
}

#[test]
fn inline_zero_length_and_lists() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options::default());
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x40), inline8(0x1122_3344_5566_7788)]);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x50), inline_small(0xabcd, 2)]);
    a.post(Opcode::RdmaWrite, &[[0, 0, 0, 0]]);
    rig.hosts[0].heap.fill(0, 5000, 3);
    let gather = [rig.local(0, 0, 100), rig.local(0, 100, 4000), rig.local(0, 4100, 900)];
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x1000), gather[0], gather[1], gather[2]]);
    let done = rig.complete(&mut a, 4);
    assert_eq!(done.iter().map(|done| done.counter).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(done.iter().all(|done| done.syndrome == 0));
    assert_eq!(a.posted(), 5, "the list takes two blocks");
    let heap = &rig.hosts[1].heap;
    assert_eq!((heap.get64(0x40), heap.get64(0x50)), (0x1122_3344_5566_7788, 0xabcd));
    assert!(heap.holds(0x1000, 5000, 3));
    assert_eq!(rig.query(&b, qpc::RMSN), 4);
}

#[test]
fn long_inline_data_wraps_with_its_ring() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { log_depth: 2, ..Options::default() });
    // 100 inline bytes: ctrl, remote and 7 segments, 3 blocks of 4; the second one wraps, the third does too.
    for round in 0..5u8 {
        let payload: Vec<u8> = (0..100).map(|n| rig::pattern(round, n)).collect();
        let mut raw = (100u32 | 0x8000_0000).to_be_bytes().to_vec();
        raw.extend(&payload);
        raw.resize(112, 0);
        let words = |chunk: &[u8]| {
            std::array::from_fn(|n| u32::from_ne_bytes(chunk[n * 4..n * 4 + 4].try_into().unwrap()))
        };
        let mut body: Vec<Segment> = vec![rig.remote(1, 0x300)];
        body.extend(raw.chunks(16).map(words));
        a.post(Opcode::RdmaWrite, &body);
        assert_eq!(rig.complete(&mut a, 1), [good(round as u16 * 3, Opcode::RdmaWrite)]);
        assert!(rig.hosts[1].heap.holds(0x300, 100, round), "round {round}");
    }
}

#[test]
fn unsignalled_work_completes_silently_and_nop_in_order() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    let quiet = CqeWhen::OnError as u8;
    a.post_with(Opcode::RdmaWrite as u8, 0, quiet, &[rig.remote(1, 0), inline8(5)]);
    // NVSHMEM's NOP has a second segment that nobody wrote.
    a.post(Opcode::Nop, &[[0xdead_beef; 4]]);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 8), inline8(6)]);
    a.post(Opcode::Nop, &[]);
    let done = rig.complete(&mut a, 3);
    assert_eq!(done, [good(1, Opcode::Nop), good(2, Opcode::RdmaWrite), good(3, Opcode::Nop)]);
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(8)), (5, 6));
}

#[test]
fn index_and_psn_wrap() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { psn: [0xff_fff0, 0x80_0000], mtu: 1, ..Options::default() });
    let mut expected = 0xff_fff0;
    for n in 0..70_000u64 {
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x40), inline8(n)]);
        expected = (expected + 1) & 0xff_ffff;
        if n % 61 == 60 || n == 69_999 {
            let count = if n % 61 == 60 { 61 } else { 69_999 % 61 + 1 };
            let done = rig.complete(&mut a, count);
            assert_eq!(done.last().unwrap().counter, n as u16);
            assert_eq!(rig.hosts[1].heap.get64(0x40), n);
        }
    }
    assert_eq!(rig.query(&b, qpc::NEXT_RCV_PSN), expected);
    assert_eq!(rig.query(&b, qpc::RMSN), 70_000);
    assert_eq!(rig.fabric.nic(rig.hosts[0].nic).counters().retransmits, 0);
}

#[test]
fn a_long_message_crosses_the_psn_wrap() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { psn: [0xff_ff00, 0], mtu: 1, ..Options::default() });
    let bytes = 256 * 2000 + 7;
    rig.hosts[0].heap.fill(0, bytes, 1);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, bytes as u32)]);
    a.post(Opcode::RdmaRead, &[rig.remote(1, 0), rig.local(0, 0x100000, bytes as u32)]);
    assert_eq!(rig.complete(&mut a, 2).len(), 2);
    assert!(rig.hosts[1].heap.holds(0, bytes, 1) && rig.hosts[0].heap.holds(0x100000, bytes, 1));
    assert_eq!(rig.query(&b, qpc::NEXT_RCV_PSN), 2 * 2001 - 0x100);
}

#[test]
fn doorbells_are_never_taken_backwards() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    for n in 0..4 {
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 8 * n), inline8(n as u64 + 1)]);
    }
    assert_eq!(rig.complete(&mut a, 4).len(), 4);
    rig.ring_register(&a, 2);
    rig.run_for(100_000);
    assert!(a.poll().is_none(), "an old index is no new work");
    rig.ring_register(&a, 4 + 65);
    rig.run_for(100_000);
    assert!(a.poll().is_none(), "an index beyond the ring is no work");
    assert_eq!(rig.fabric.nic(rig.hosts[0].nic).counters().bad_doorbells, 2);
}

#[test]
fn a_doorbell_overwritten_in_a_shared_page_is_found_in_its_record() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    let (mut c, _d) = rig.pair(0, 1, Options::default());
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    c.post(Opcode::RdmaWrite, &[rig.remote(1, 8), inline8(2)]);
    rig.ring(&a);
    rig.ring(&c);
    rig.settle();
    assert_eq!((a.poll().is_some(), c.poll().is_some()), (true, true));
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(8)), (1, 2));
}

#[test]
fn libmlx5_rings_with_the_last_index() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 8), inline8(2)]);
    // ds in the doorbell: the index is the last WQE's own.
    rig.ring_register(&a, 1);
    let address = rig.hosts[0].uar.address + 0x800;
    // SAFETY: the page lives as long as the NIC.
    let register = unsafe { std::sync::atomic::AtomicU64::from_ptr(address as *mut u64) };
    let ds = 3u64.to_be(); // the low byte of the second dword
    register.fetch_or(ds, std::sync::atomic::Ordering::Relaxed);
    rig.settle();
    assert_eq!(rig.hosts[1].heap.get64(8), 2);
}

#[test]
fn work_announced_before_rts_is_sent_at_rts() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = (rig.end(0, Options::default()), rig.end(1, Options::default()));
    rig.connect(&mut b, 0, a.qpn);
    let nic = rig.hosts[0].nic;
    rig.command(nic, &rig::rst2init(&a), 16);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x10), inline8(3)]);
    rig.ring(&a);
    rig.run_for(1_000_000);
    assert_eq!(rig.hosts[1].heap.get64(0x10), 0);
    rig.connect_from_init(&mut a, 1, b.qpn);
    rig.run_for(1_000_000);
    assert_eq!(a.poll(), Some(good(0, Opcode::RdmaWrite)));
    assert_eq!(rig.hosts[1].heap.get64(0x10), 3);
}
