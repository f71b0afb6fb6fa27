//! SEND, immediate data and receive queues: landing, completions, limits, RNR, flushes.

use crate::rig;
use crate::rig::{End, Got, Options, Rig, good, heap_key};
use shunt_layout::mlx5::cqe::opcode::{RESP_ERR, RESP_SEND, RESP_SEND_IMM, RESP_WRITE_IMM};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::mkey::{MKC_OFFSET, mkc};
use shunt_layout::mlx5::prm::qp::{State, qpc};
use shunt_layout::mlx5::wqe::{CqeWhen, Opcode, SOLICITED_EVENT, Segment, data, inline8};
use shunt_soft_nic::packet::{Body, Packet, Part, Payload, Reth};

fn options() -> Options {
    Options { log_rq: Some(4), min_rnr: 1, ..Options::default() }
}

fn events(rig: &mut Rig, host: usize) -> Vec<(u8, u32)> {
    let (nic, now) = (rig.hosts[host].nic, rig.now);
    std::iter::from_fn(|| rig.fabric.nic(nic).next_event(now))
        .map(|entry| (eqe::EVENT_TYPE.get(&entry) as u8, eqe::OBJECT.get(&entry)))
        .collect()
}

fn got(opcode: u8, counter: u16, bytes: u32, imm: u32) -> Got {
    Got { opcode, counter, bytes, imm, ..Got::default() }
}

fn failed(counter: u16, syndrome: u8, vendor: u8) -> Got {
    Got { opcode: RESP_ERR, counter, syndrome, vendor, ..Got::default() }
}

fn flushed(counter: u16) -> Got {
    failed(counter, 0x05, 0xf9)
}

#[test]
fn sends_of_every_length_land_in_lists() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, Options { mtu: 1, ..options() });
    let mut packets = 0;
    for (n, bytes) in [1u32, 8, 255, 256, 257, 1000, 65_000].into_iter().enumerate() {
        rig.hosts[0].heap.fill(0, bytes as usize, n as u8);
        let first = bytes / 3;
        let mut list: Vec<Segment> = vec![];
        if first > 0 {
            list.push(rig.local(1, 0x20003, first));
        }
        list.push(rig.local(1, 0x20003 + first as usize, bytes - first + 5));
        b.post_receive(&list);
        a.post_imm(Opcode::SendImm, 0xa0 + n as u32, &[rig.local(0, 0, bytes)]);
        assert_eq!(rig.complete(&mut a, 1), [good(n as u16, Opcode::SendImm)]);
        assert_eq!(b.poll_receives(), [got(RESP_SEND_IMM, n as u16, bytes, 0xa0 + n as u32)]);
        assert!(rig.hosts[1].heap.holds(0x20003, bytes as usize, n as u8), "{bytes} bytes");
        packets += bytes.div_ceil(256);
    }
    assert_eq!((rig.query(&b, qpc::NEXT_RCV_PSN), rig.query(&b, qpc::RMSN)), (packets, 7));
    assert_eq!((rig.query(&b, qpc::HW_RQ_COUNTER), rig.query(&b, qpc::SW_RQ_COUNTER)), (7, 7));
}

#[test]
fn what_a_receive_completion_tells() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    (0..6).for_each(|n| b.post_receive(&[rig.local(1, 0x1000 * n, 64)]));
    let solicited = CqeWhen::Always as u8 | SOLICITED_EVENT;
    a.post(Opcode::Send, &[inline8(7)]);
    a.post_all(Opcode::Send as u8, 0, solicited, 0, &[]);
    a.post_all(Opcode::SendImm as u8, 0, solicited, 0x0102_0304, &[inline8(8)]);
    a.post_imm(Opcode::RdmaWriteImm, 0xffff_ffff, &[rig.remote(1, 0x8000), rig.local(0, 0, 5000)]);
    a.post_imm(Opcode::RdmaWriteImm, 9, &[[0; 4]]);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x9000), inline8(9)]);
    assert!(rig.complete(&mut a, 6).iter().all(|done| done.syndrome == 0));
    let expected = [
        got(RESP_SEND, 0, 8, 0),
        Got { solicited: true, ..got(RESP_SEND, 1, 0, 0) },
        Got { solicited: true, ..got(RESP_SEND_IMM, 2, 8, 0x0102_0304) },
        got(RESP_WRITE_IMM, 3, 5000, 0xffff_ffff),
        got(RESP_WRITE_IMM, 4, 0, 9),
    ];
    assert_eq!(b.poll_receives(), expected);
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(0x2000)), (7, 8));
    assert_eq!(rig.hosts[1].heap.get64(0x3000), 0, "a WRITE does not touch the list");
    assert_eq!(rig.query(&b, qpc::RMSN), 6);
}

#[test]
fn golden_bytes_of_receive_completions() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    b.post_receive(&[rig.local(1, 0, 64)]);
    a.post_all(Opcode::SendImm as u8, 0, 8 | SOLICITED_EVENT, 0x0a0b_0c0d, &[inline8(1)]);
    rig.complete(&mut a, 1);
    let ring = b.cq_offset() + (64 << b.options.log_cq);
    let byte = |at: usize| b.control.get8(ring + at);
    let word = |at: usize| [byte(at), byte(at + 1), byte(at + 2), byte(at + 3)];
    assert_eq!((word(0x20), word(0x24)), ([0, 0, 0, 0x77], [0x0a, 0x0b, 0x0c, 0x0d]));
    assert_eq!((word(0x18), word(0x2c)), ([0; 4], [0, 0, 0, 8]));
    assert_eq!(word(0x38), b.qpn.to_be_bytes());
    assert_eq!(word(0x3c), [0, 0, 0, 0x32], "opcode 3, solicited, first pass");
    // A flushed one.
    b.post_receive(&[rig.local(1, 0, 64)]);
    rig.fence(&b);
    rig.settle();
    let word = |at: usize| [64, 65, 66, 67].map(|n| b.control.get8(ring + at + n));
    assert_eq!((word(0x34), word(0x3c)), ([0, 0, 0xf9, 0x05], [0, 1, 0, 0xe0]));
}

#[test]
fn a_receiver_that_is_late_is_waited_for() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, Options { mtu: 1, retry: 0, ..options() });
    rig.hosts[0].heap.fill(0, 1000, 3);
    // The last part of a WRITE waits too; its data has landed by then.
    a.post_imm(Opcode::RdmaWriteImm, 5, &[rig.remote(1, 0x4000), rig.local(0, 0, 1000)]);
    a.post(Opcode::Send, &[rig.local(0, 0, 1000)]);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x8000), inline8(1)]);
    rig.ring(&a);
    rig.run_for(205_000);
    assert_eq!((a.poll(), b.poll_receive()), (None, None));
    assert!(rig.hosts[1].heap.holds(0x4000, 768, 3) && rig.hosts[1].heap.get64(0x8000) == 0);
    let nic = rig.hosts[1].nic;
    let naks = rig.fabric.nic(nic).counters().rnr_naks;
    assert!((10..30).contains(&naks), "every 10 us and the way there and back: {naks}");
    b.post_receive(&[]);
    rig.run_for(100_000);
    assert_eq!(b.poll_receives(), [got(RESP_WRITE_IMM, 0, 1000, 5)]);
    assert_eq!(a.poll(), Some(good(0, Opcode::RdmaWriteImm)));
    b.post_receive(&[rig.local(1, 0, 1000)]);
    assert_eq!(rig.complete(&mut a, 2).len(), 2);
    assert_eq!(b.poll_receives(), [got(RESP_SEND, 1, 1000, 0)]);
    assert!(rig.hosts[1].heap.holds(0, 1000, 3) && rig.hosts[1].heap.get64(0x8000) == 1);
    let counters = rig.fabric.nic(nic).counters();
    assert_eq!((counters.naks, counters.duplicates), (0, 0), "waiting loses nothing and repeats nothing");
}

#[test]
fn rnr_retries_are_counted_and_timed() {
    for (rnr_retry, attempts) in [(0, 1), (3, 4)] {
        let mut rig = Rig::new(1);
        let (mut a, b) = rig.pair(0, 1, Options { rnr_retry, min_rnr: 12, ..options() });
        let start = rig.now;
        a.post(Opcode::Send, &[inline8(1)]);
        a.post(Opcode::Send, &[inline8(2)]);
        let done = rig.complete(&mut a, 2);
        assert_eq!((done[0].syndrome, done[0].vendor, done[0].opcode), (0x16, 0, 0x0a));
        assert_eq!((done[1].syndrome, done[1].vendor), (0x05, 0xf5));
        let nic = rig.hosts[1].nic;
        assert_eq!(rig.fabric.nic(nic).counters().rnr_naks, attempts);
        let took = rig.now - start;
        let waits = (attempts - 1) * 640_000;
        assert!((waits..waits + 50_000).contains(&took), "{took} ns");
        assert_eq!((rig.state(&a), rig.state(&b)), (State::Err, State::Rts));
    }
}

#[test]
fn a_doubled_rnr_nak_is_one() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, Options { rnr_retry: 3, min_rnr: 12, ..options() });
    rig.inject(1, "dup=1");
    a.post(Opcode::Send, &[inline8(1)]);
    rig.ring(&a);
    rig.run_for(1_500_000);
    b.post_receive(&[rig.local(1, 0, 8)]);
    assert_eq!(rig.complete(&mut a, 1), [good(0, Opcode::Send)], "three waits are allowed, three there were");
    assert_eq!(b.poll_receives(), [got(RESP_SEND, 0, 8, 0)]);
    assert!(rig.hits()[0] > 3);
}

#[test]
fn progress_restores_rnr_retries() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, Options { rnr_retry: 2, min_rnr: 12, ..options() });
    for n in 0..5u16 {
        a.post(Opcode::Send, &[inline8(n as u64)]);
        rig.ring(&a);
        rig.run_for(1_000_000);
        b.post_receive(&[rig.local(1, 0, 8)]);
        rig.run_for(1_000_000);
        assert_eq!(a.poll(), Some(good(n, Opcode::Send)), "two waits each time");
    }
}

#[test]
fn rnr_storms_end() {
    // For ever is for ever, but nothing spins: a minute of waiting is a bounded number of steps, and 2ERR ends it.
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { min_rnr: 19, ..options() });
    (0..40).for_each(|n| a.post(Opcode::Send, &[inline8(n)]));
    rig.ring(&a);
    rig.settle();
    let nic = rig.hosts[1].nic;
    let naks = rig.fabric.nic(nic).counters().rnr_naks;
    assert!((7000..8000).contains(&naks), "7.68 ms each in a minute: {naks}");
    rig.fence(&a);
    rig.run_for(100_000);
    assert!((0..40).all(|_| a.poll().is_some_and(|done| done.syndrome == 0x05)));
    assert_eq!(rig.state(&b), State::Rts);
    let left = rig.fabric.nic(nic).counters().rnr_naks;
    rig.settle();
    assert_eq!(rig.fabric.nic(nic).counters().rnr_naks, left);
}

#[test]
fn a_pair_without_a_receive_queue_is_never_ready() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { rnr_retry: 1, ..Options::default() });
    a.post(Opcode::Send, &[inline8(1)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x16);
    assert_eq!(rig.state(&b), State::Rts);
}

#[test]
fn a_message_longer_than_its_buffer_fails_both_ends() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, Options { mtu: 1, ..options() });
    b.post_receive(&[rig.local(1, 0, 100), rig.local(1, 0x1000, 400)]);
    b.post_receive(&[rig.local(1, 0, 4096)]);
    a.post(Opcode::Send, &[rig.local(0, 0, 500)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0, "500 bytes fit");
    assert_eq!(b.poll_receives(), [got(RESP_SEND, 0, 500, 0)]);
    a.post(Opcode::Send, &[rig.local(0, 0, 4097)]);
    let done = rig.complete(&mut a, 1);
    assert_eq!((done[0].syndrome, done[0].vendor), (0x12, 0x89));
    rig.settle();
    assert_eq!(b.poll_receives(), [failed(1, 0x01, 0x32)]);
    assert_eq!((rig.state(&a), rig.state(&b)), (State::Err, State::Err));
    assert_eq!(rig.query(&b, qpc::RMSN), 1, "what failed does not count");
    assert_eq!(events(&mut rig, 1), [(eqe::event::WQ_INVALID_REQUEST, b.qpn)]);
}

#[test]
fn a_receive_buffer_that_no_key_allows_is_a_remote_operation_error() {
    type Bad = fn(&mut Rig) -> Segment;
    let cases: [(Bad, u8, u8); 5] = [
        (|rig| data(rig.hosts[1].heap.address(), 7, 64), 0x04, 0x51),
        (|rig| rig.local(1, rig::HEAP - 4, 64), 0x04, 0x51),
        (
            |rig| {
                let mut mailbox = heap_key(&rig.hosts[1]);
                mkc::LW.within(MKC_OFFSET).set(&mut mailbox, 0);
                let out = rig.command(rig.hosts[1].nic, &mailbox, 16);
                let key = shunt_layout::mlx5::prm::cmd::output::OBJECT.get(&out) << 8 | 0x5a;
                data(rig.hosts[1].heap.address(), key.to_be(), 64)
            },
            0x04,
            0x51,
        ),
        // Zero bytes are 2^31: no fault of the list, but no key allows them here.
        (|rig| data(rig.hosts[1].heap.address(), 7, 0), 0x04, 0x51),
        (|_| [0x8000_0008u32.to_be(), 0, 0, 0], 0x02, 0x32),
    ];
    for (n, (bad, syndrome, vendor)) in cases.into_iter().enumerate() {
        let mut rig = Rig::new(1);
        let (mut a, mut b) = rig.pair(0, 1, options());
        let list = [bad(&mut rig)];
        b.post_receive(&list);
        b.post_receive(&[]);
        a.post(Opcode::Send, &[inline8(1)]);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x14, "case {n}");
        rig.settle();
        assert_eq!(b.poll_receives(), [failed(0, syndrome, vendor), flushed(1)], "case {n}");
        assert_eq!(events(&mut rig, 1), [(eqe::event::WQ_CATASTROPHIC, b.qpn)], "case {n}");
    }
}

#[test]
fn sequences_that_make_no_message_are_refused() {
    fn send(part: Part, bytes: u16) -> Body {
        Body::Send { part, imm: None, payload: Payload::Large(Box::new([1; 4096]), bytes) }
    }
    let whole = |part: Part| Body::Write { part, reth: Reth::default(), payload: Payload::Empty };
    let imm = |part: Part| Body::WriteImm { part, reth: Reth::default(), imm: 0, payload: Payload::Empty };
    let cases: Vec<Vec<Body>> = vec![
        vec![send(Part::Middle, 256)],
        vec![send(Part::Last, 8)],
        vec![send(Part::First, 255)],
        vec![send(Part::Only, 257)],
        vec![send(Part::First, 256), send(Part::Last, 0)],
        vec![send(Part::First, 256), send(Part::First, 256)],
        vec![send(Part::First, 256), whole(Part::Only)],
        vec![send(Part::First, 256), whole(Part::Last)],
        vec![send(Part::First, 256), imm(Part::Last)],
        vec![send(Part::First, 256), Body::ReadRequest(Reth::default())],
        vec![imm(Part::First)],
        vec![imm(Part::Last)],
    ];
    for (n, bodies) in cases.into_iter().enumerate() {
        let mut rig = Rig::new(1);
        let (_a, mut b) = rig.pair(0, 1, Options { mtu: 1, ..options() });
        b.post_receive(&[rig.local(1, 0, 4096)]);
        let source = u128::from_be_bytes(rig.fabric.nic(rig.hosts[0].nic).config().gid);
        for (psn, body) in bodies.into_iter().enumerate() {
            let (qpn, psn) = (b.qpn, psn as u32);
            let packet =
                Packet { from: 0, to: 1, source, qpn, psn, ack_request: true, solicited: false, body };
            assert!(rig.fabric.forge(packet));
        }
        rig.settle();
        assert_eq!(rig.state(&b), State::Err, "case {n}");
        assert_eq!(b.poll_receives(), [flushed(0)], "case {n}: the buffer is given back, used or not");
    }
}

#[test]
fn a_failed_pair_gives_back_its_buffers_late_ones_too() {
    let mut rig = Rig::new(1);
    let (_a, mut b) = rig.pair(0, 1, Options { mtu: 1, ..options() });
    (0..3).for_each(|_| b.post_receive(&[rig.local(1, 0, 4096)]));
    // One has begun to fill when the pair fails.
    let source = u128::from_be_bytes(rig.fabric.nic(rig.hosts[0].nic).config().gid);
    let payload = Payload::Large(Box::new([9; 4096]), 256);
    let body = Body::Send { part: Part::First, imm: None, payload };
    let packet =
        Packet { from: 0, to: 1, source, qpn: b.qpn, psn: 0, ack_request: false, solicited: false, body };
    assert!(rig.fabric.forge(packet));
    rig.run_for(10_000);
    assert_eq!((rig.hosts[1].heap.get8(0), rig.query(&b, qpc::NEXT_RCV_PSN)), (9, 1));
    rig.fence(&b);
    rig.run_for(50_000);
    assert_eq!(b.poll_receives(), [flushed(0), flushed(1), flushed(2)]);
    b.post_receive(&[]);
    b.post_receive(&[]);
    rig.run_for(50_000);
    rig.settle();
    assert_eq!(b.poll_receives(), [flushed(3), flushed(4)], "no doorbell told of them");
}

#[test]
fn a_receive_queue_that_minds_overruns_takes_its_pair_along() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, Options { log_cq: 1, overrun_ignore: false, ..options() });
    (0..5).for_each(|_| b.post_receive(&[]));
    for n in 0..3u16 {
        a.post(Opcode::Send, &[]);
        rig.ring(&a);
        rig.run_for(2_000_000);
        if n < 2 {
            assert_eq!(a.poll(), Some(good(n, Opcode::Send)));
        }
    }
    let kinds: Vec<_> = events(&mut rig, 1).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [eqe::event::CQ_ERROR]);
    assert_eq!(rig.state(&b), State::Err);
    assert_eq!(b.poll_receives().len(), 2);
}

#[test]
fn nonsense_in_the_receive_counter_is_not_believed() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    b.control.set32(b.record(), 17u32.to_be());
    a.post(Opcode::Send, &[]);
    rig.ring(&a);
    rig.run_for(100_000);
    assert_eq!((a.poll(), b.poll_receive()), (None, None), "17 of 16");
    b.post_receive(&[]);
    rig.run_for(100_000);
    assert_eq!(b.poll_receives(), [got(RESP_SEND, 0, 0, 0)]);
}

#[test]
fn receive_indices_wrap() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    for round in 0..0x1_0010_u32 / 8 {
        (0..8).for_each(|_| b.post_receive(&[rig.local(1, 0, 8)]));
        (0..8).for_each(|n| a.post_with(Opcode::Send as u8, 0, if n == 7 { 8 } else { 0 }, &[inline8(n)]));
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
        let counters: Vec<u16> = b.poll_receives().iter().map(|got| got.counter).collect();
        assert_eq!(counters, (0..8).map(|n| (round * 8 + n) as u16).collect::<Vec<_>>());
    }
}

#[test]
fn a_reset_pair_starts_over() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    b.post_receive(&[]);
    a.post(Opcode::Send, &[]);
    rig.complete(&mut a, 1);
    let nic = rig.hosts[1].nic;
    rig.command(nic, &rig::header(shunt_layout::mlx5::prm::cmd::Opcode::Qp2Rst, b.qpn), 16);
    b.control.set32(b.record(), 0);
    assert_eq!((rig.state(&b), rig.query(&b, qpc::HW_RQ_COUNTER)), (State::Rst, 0));
    rig.connect(&mut b, 0, a.qpn);
    let (mut c, mut d) = (a, b);
    // Its PSN starts at zero again; the other end's does not.
    assert_eq!(c.poll(), None);
    rig.fence(&c);
    rig.command(rig.hosts[0].nic, &rig::header(shunt_layout::mlx5::prm::cmd::Opcode::Qp2Rst, c.qpn), 16);
    c = reconnected(&mut rig, c, d.qpn);
    d.restart_receives();
    d.post_receive(&[rig.local(1, 0x100, 8)]);
    c.post(Opcode::Send, &[inline8(77)]);
    rig.ring(&c);
    rig.settle();
    assert_eq!(
        d.poll_receives(),
        [got(RESP_SEND, 0, 0, 0), got(RESP_SEND, 0, 8, 0)],
        "the old one, then the new"
    );
    assert_eq!(rig.hosts[1].heap.get64(0x100), 77);
}

/// The same end, connected again, its send queue at index 0.
fn reconnected(rig: &mut Rig, mut end: End, remote: u32) -> End {
    end.restart_sends();
    rig.connect(&mut end, 1, remote);
    end
}
