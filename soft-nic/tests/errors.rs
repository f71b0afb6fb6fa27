//! What goes wrong, and with which syndrome.

use crate::rig;
use crate::rig::{Done, End, Options, Rig, heap_key};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::mkey::{MKC_OFFSET, mkc};
use shunt_layout::mlx5::prm::qp::{State, qpc};
use shunt_layout::mlx5::wqe::{CqeWhen, Opcode, Segment, ctrl, data, inline8, remote};

fn flushed(counter: u16, opcode: Opcode) -> Done {
    Done { counter, syndrome: 0x05, vendor: 0xf5, opcode: opcode as u8 }
}

fn events(rig: &mut Rig, host: usize) -> Vec<(u8, u32)> {
    let nic = rig.hosts[host].nic;
    let now = rig.now;
    std::iter::from_fn(|| rig.fabric.nic(nic).next_event(now))
        .map(|entry| (eqe::EVENT_TYPE.get(&entry) as u8, eqe::OBJECT.get(&entry)))
        .collect()
}

/// Posts a good write, `bad`, and a good write behind it; gives back the three completions.
fn around(rig: &mut Rig, a: &mut End, bad: &[Segment], opcode: Opcode) -> Vec<Done> {
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    a.post(opcode, bad);
    a.post_with(Opcode::RdmaWrite as u8, 0, CqeWhen::OnError as u8, &[rig.remote(1, 8), inline8(2)]);
    rig.complete(a, 3)
}

#[test]
fn a_bad_remote_key_is_refused_by_the_responder() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options::default());
    let bad = [remote(rig.hosts[1].heap.address(), 0x1234u32.to_be()), rig.local(0, 0, 8)];
    let done = around(&mut rig, &mut a, &bad, Opcode::RdmaWrite);
    assert_eq!(done[0].syndrome, 0);
    assert_eq!(done[1], Done { counter: 1, syndrome: 0x13, vendor: 0x88, opcode: 8 });
    assert_eq!(done[2], flushed(2, Opcode::RdmaWrite), "flushed although it was not signalled");
    assert_eq!((rig.state(&a), rig.state(&b)), (State::Err, State::Err));
    rig.run_for(1_000_000);
    assert_eq!(rig.hosts[1].heap.get64(8), 0);
    assert_eq!(events(&mut rig, 0), [(eqe::event::WQ_CATASTROPHIC, a.qpn)]);
    assert_eq!(events(&mut rig, 1), [(eqe::event::WQ_ACCESS, b.qpn)]);
    assert_eq!(rig.query(&b, qpc::RMSN), 1, "what was refused does not count");
}

#[test]
fn remote_bounds_and_rights() {
    type Bad = fn(&Rig) -> (Opcode, Vec<Segment>);
    let cases: [(Bad, [u32; 3], u8); 6] = [
        (|rig| (Opcode::RdmaWrite, vec![rig.remote(1, rig::HEAP - 4), rig.local(0, 0, 8)]), [1, 1, 1], 0x13),
        (|rig| (Opcode::RdmaRead, vec![rig.remote(1, rig::HEAP), rig.local(0, 0, 8)]), [1, 1, 1], 0x13),
        (|rig| (Opcode::RdmaWrite, vec![rig.remote(1, 0), rig.local(0, 0, 8)]), [1, 0, 1], 0x12),
        (|rig| (Opcode::RdmaRead, vec![rig.remote(1, 0), rig.local(0, 0, 8)]), [0, 1, 1], 0x12),
        (|rig| (Opcode::AtomicFa, vec![rig.remote(1, 0), [0; 4], rig.local(0, 0, 8)]), [1, 1, 0], 0x12),
        (|rig| (Opcode::AtomicFa, vec![rig.remote(1, 4), [0; 4], rig.local(0, 0, 8)]), [1, 1, 1], 0x12),
    ];
    for (n, (bad, allow, syndrome)) in cases.into_iter().enumerate() {
        let mut rig = Rig::new(1);
        let (mut a, b) = rig.pair(0, 1, Options { allow, ..Options::default() });
        let (opcode, body) = bad(&rig);
        a.post(opcode, &body);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, syndrome, "case {n}");
        assert_eq!(rig.state(&b), State::Err, "case {n}");
    }
}

#[test]
fn a_read_before_a_refused_write_is_answered_first() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.hosts[1].heap.set64(0, 5);
    a.post(Opcode::RdmaRead, &[rig.remote(1, 0), rig.local(0, 0, 8)]);
    a.post(Opcode::RdmaWrite, &[remote(8, 0), rig.local(0, 0, 8)]);
    let done = rig.complete(&mut a, 2);
    assert_eq!((done[0].syndrome, done[1].syndrome), (0, 0x13));
    assert_eq!(rig.hosts[0].heap.get64(0), 5);
}

#[test]
fn keys_know_their_domain_and_their_low_byte() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    let nic = rig.hosts[1].nic;
    let other = rig.command(nic, &rig::header(shunt_layout::mlx5::prm::cmd::Opcode::AllocPd, 0), 16);
    let mut mailbox = heap_key(&rig.hosts[1]);
    mkc::PD.within(MKC_OFFSET).set(&mut mailbox, shunt_layout::mlx5::prm::cmd::output::OBJECT.get(&other));
    let out = rig.command(nic, &mailbox, 16);
    let key = shunt_layout::mlx5::prm::cmd::output::OBJECT.get(&out) << 8 | 0x5a;
    a.post(Opcode::RdmaWrite, &[remote(rig.hosts[1].heap.address(), key.to_be()), inline8(1)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x13, "another protection domain");
    let (mut c, _d) = rig.pair(0, 1, Options::default());
    let wrong = rig.hosts[1].key ^ 1;
    c.post(Opcode::RdmaWrite, &[remote(rig.hosts[1].heap.address(), wrong.to_be()), inline8(1)]);
    assert_eq!(rig.complete(&mut c, 1)[0].syndrome, 0x13, "another low byte");
}

#[test]
fn local_errors_wait_for_the_work_before_them() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options::default());
    let bad = [rig.remote(1, 16), data(rig.hosts[0].heap.address(), 7, 8)];
    let done = around(&mut rig, &mut a, &bad, Opcode::RdmaWrite);
    assert_eq!(done[0].syndrome, 0);
    assert_eq!(done[1], Done { counter: 1, syndrome: 0x04, vendor: 0x51, opcode: 8 });
    assert_eq!(done[2], flushed(2, Opcode::RdmaWrite));
    assert_eq!(rig.hosts[1].heap.get64(0), 1);
    assert_eq!(rig.state(&b), State::Rts, "the responder saw nothing wrong");
    let (mut c, _d) = rig.pair(0, 1, Options::default());
    let end = rig::HEAP as u32;
    c.post(Opcode::RdmaRead, &[rig.remote(1, 0), rig.local(0, end as usize - 4, 8)]);
    assert_eq!(rig.complete(&mut c, 1)[0].syndrome, 0x04, "a READ must land inside its key");
}

#[test]
fn malformed_work_is_a_local_operation_error() {
    let cases: [fn(&mut Rig, &mut End); 6] = [
        |rig, a| a.post(Opcode::SendInval, &[rig.local(0, 0, 8)]),
        |rig, a| a.post_with(0x77, 0, 8, &[rig.local(0, 0, 8)]),
        |rig, a| a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, 0)]),
        |rig, a| a.post(Opcode::AtomicFa, &[rig.remote(1, 0), rig.local(0, 0, 8)]),
        |rig, a| a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), [0x8000_0040u32.to_be(), 0, 0, 0]]),
        |_, a| {
            // Somebody else's control segment: the slot was announced before it was written.
            a.write_segments(&[ctrl(Opcode::RdmaWrite, 9, a.qpn << 8, 3, 8)]);
            a.skip_posted(1);
        },
    ];
    for (n, post) in cases.into_iter().enumerate() {
        let mut rig = Rig::new(1);
        let (mut a, _b) = rig.pair(0, 1, Options::default());
        post(&mut rig, &mut a);
        let done = rig.complete(&mut a, 1);
        assert_eq!((done[0].syndrome, done[0].vendor), (0x02, 0x32), "case {n}");
    }
}

#[test]
fn retries_are_counted_and_timed() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { retry: 3, ack_timeout: 10, ..Options::default() });
    rig.inject(1, "blackhole-rx");
    let start = rig.now;
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 8), inline8(2)]);
    let done = rig.complete(&mut a, 2);
    assert_eq!(done[0], Done { counter: 0, syndrome: 0x15, vendor: 0x81, opcode: 8 });
    assert_eq!(done[1], flushed(1, Opcode::RdmaWrite));
    // The first attempt and three retries, each with 4.096 us << 10.
    let took = rig.now - start;
    assert!((4 * 4_194_304..4 * 4_194_304 + 100_000).contains(&took), "{took} ns");
    assert_eq!(rig.hits(), [8]);
    assert_eq!((rig.state(&a), rig.state(&b)), (State::Err, State::Rts));
    // Posted after ERR: flushed likewise, once the doorbell rings.
    a.post(Opcode::RdmaRead, &[rig.remote(1, 0), rig.local(0, 0, 8)]);
    assert_eq!(rig.complete(&mut a, 1), [flushed(2, Opcode::RdmaRead)]);
}

#[test]
fn a_timeout_of_zero_never_expires() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { ack_timeout: 0, ..Options::default() });
    rig.inject(1, "blackhole-rx");
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    rig.ring(&a);
    rig.settle();
    assert!(a.poll().is_none());
    assert_eq!(rig.state(&a), State::Rts);
}

#[test]
fn two_err_flushes_and_silences_both_halves() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options::default());
    rig.inject(1, "blackhole-rx=1ms");
    for n in 0..3 {
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(n)]);
    }
    rig.ring(&a);
    rig.run_for(50_000);
    rig.fence(&a);
    rig.run_for(100_000);
    let done: Vec<_> = std::iter::from_fn(|| a.poll()).collect();
    assert_eq!(done, (0..3).map(|n| flushed(n, Opcode::RdmaWrite)).collect::<Vec<_>>());
    rig.fence(&b);
    rig.settle();
    assert_eq!(rig.hosts[1].heap.get64(0), 0);
    assert_eq!((rig.query(&b, qpc::RMSN), rig.query(&b, qpc::NEXT_RCV_PSN)), (0, 0));
}

#[test]
fn a_fenced_responder_drops_what_comes_later_and_keeps_its_count() {
    for quirk in [false, true] {
        let mut rig = Rig::with(1, |config| config.quirks.rmsn_cleared_by_2err = quirk);
        let (mut a, b) = rig.pair(0, 1, Options { retry: 1, ..Options::default() });
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
        rig.complete(&mut a, 1);
        rig.fence(&b);
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(2)]);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x15);
        assert_eq!(rig.hosts[1].heap.get64(0), 1);
        assert_eq!(rig.query(&b, qpc::RMSN), if quirk { 0 } else { 1 });
        assert_eq!(rig.query(&b, qpc::NEXT_RCV_PSN), 1);
    }
}

#[test]
fn a_collapsed_queue_shows_the_newest_completion() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { collapsed: true, log_cq: 2, ..Options::default() });
    for n in 0..10u16 {
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
        rig.ring(&a);
        rig.run_for(1_000_000);
        let entry = a.entry(0);
        assert_eq!(entry[0x3c..0x3e], n.to_be_bytes());
        assert_eq!(entry[0x3f], (n >> 2 & 1) as u8, "the owner bit counts on as if the ring were there");
        assert!((64..256).all(|at| a.control.get8(a.cq_offset() + at) == 0xff), "only entry 0 is written");
    }
    a.post(Opcode::RdmaWrite, &[remote(0, 0), inline8(1)]);
    a.post(Opcode::RdmaWrite, &[remote(0, 0), inline8(1)]);
    rig.ring(&a);
    rig.run_for(1_000_000);
    assert_eq!(
        (a.entry(0)[0x37], a.entry(0)[0x3c..0x3e].to_vec()),
        (0x05, vec![0, 11]),
        "the flush covers the cause"
    );
}

#[test]
fn a_queue_that_minds_overruns_dies_of_one() {
    let mut rig = Rig::new(1);
    let options = Options { log_cq: 1, overrun_ignore: false, ..Options::default() };
    let (mut a, _b) = rig.pair(0, 1, options);
    for _ in 0..3 {
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    }
    rig.ring(&a);
    rig.settle();
    let kinds: Vec<u8> = events(&mut rig, 0).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [eqe::event::CQ_ERROR]);
    assert_eq!(rig.state(&a), State::Err);
    assert_eq!((a.poll().map(|done| done.counter), a.poll().map(|done| done.counter)), (Some(0), Some(1)));
}

#[test]
fn an_unreachable_address_is_retried_and_given_up() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) =
        (rig.end(0, Options { retry: 0, ..Options::default() }), rig.end(1, Options::default()));
    rig.connect(&mut a, 1, b.qpn + 99);
    rig.connect(&mut b, 0, a.qpn);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x15, "no such QPN: dropped silently");
    let nic = rig.hosts[1].nic;
    assert_eq!(rig.fabric.nic(nic).counters().dropped, 1);
}
