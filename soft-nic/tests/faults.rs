//! Every fault strikes, says how often, and does what its line says.

use crate::rig;
use crate::rig::{End, Options, Rig, good, header};
use shunt_layout::mlx5::cqe::Tail;
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::cmd::Opcode as Cmd;
use shunt_layout::mlx5::prm::port::vport_state;
use shunt_layout::mlx5::prm::qp::{State, qpc};
use shunt_layout::mlx5::wqe::{Opcode, Segment, inline8};
use shunt_soft_nic::fault::WAITS;
use shunt_soft_nic::{FaultKind, RailAt};

fn write8(rig: &Rig, a: &mut End, offset: usize, value: u64) {
    let remote = rig.remote(1, offset);
    a.post(Opcode::RdmaWrite, &[remote, inline8(value)]);
}

fn port_events(rig: &mut Rig, host: usize) -> Vec<u8> {
    let (nic, now) = (rig.hosts[host].nic, rig.now);
    std::iter::from_fn(|| rig.fabric.nic(nic).next_event(now))
        .filter(|entry| eqe::EVENT_TYPE.get(entry) == eqe::event::PORT_CHANGE as u32)
        .map(|entry| eqe::SUB_TYPE.get(&entry) as u8)
        .collect()
}

fn port_is_up(rig: &mut Rig, host: usize) -> bool {
    let nic = rig.hosts[host].nic;
    vport_state::STATE.get(&rig.command(nic, &header(Cmd::QueryVportState, 0), 16)) == 1
}

#[test]
fn a_port_that_comes_back_in_time_costs_a_retry() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(0, "down=2ms");
    write8(&rig, &mut a, 0, 5);
    rig.ring(&a);
    rig.run_for(49_000);
    assert_eq!(port_events(&mut rig, 0), [], "the event takes its time");
    rig.run_for(2_000);
    assert_eq!(port_events(&mut rig, 0), [eqe::port::DOWN]);
    assert!(!port_is_up(&mut rig, 0));
    assert_eq!(rig.state(&a), State::Rts, "a dead port errs no queue pair");
    assert_eq!(rig.complete(&mut a, 1), [good(0, Opcode::RdmaWrite)]);
    assert!(port_is_up(&mut rig, 0));
    assert_eq!(port_events(&mut rig, 0), [eqe::port::ACTIVE]);
    assert_eq!(rig.hits(), [4], "down, up, and two packets");
}

#[test]
fn down_up_and_flap() {
    let mut rig = Rig::new(1);
    rig.inject(0, "up");
    rig.inject(0, "down");
    rig.run_for(100_000);
    rig.inject(0, "down");
    rig.inject(0, "up");
    rig.run_for(100_000);
    assert_eq!(port_events(&mut rig, 0), [eqe::port::DOWN, eqe::port::ACTIVE]);
    assert_eq!(rig.hits(), [0, 1, 0, 1], "what changed nothing has no hits");
    rig.inject(1, "flap=10ms/3");
    rig.run_for(24_000_000);
    assert_eq!(port_events(&mut rig, 1), [1, 4, 1, 4, 1]);
    rig.run_for(10_000_000);
    assert_eq!(port_events(&mut rig, 1), [4]);
    assert_eq!(rig.hits()[4], 6);
}

#[test]
fn black_holes_are_silent_and_one_way() {
    for (fault, arrives) in [("blackhole-rx", true), ("blackhole-tx", false), ("drop-acks", true)] {
        let mut rig = Rig::new(1);
        let (mut a, _b) = rig.pair(0, 1, Options { retry: 1, ..Options::default() });
        rig.inject(0, fault);
        write8(&rig, &mut a, 0, 5);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x15, "{fault}");
        assert_eq!(rig.hosts[1].heap.get64(0) == 5, arrives, "{fault}");
        assert_eq!(rig.hits(), [2], "{fault}");
        rig.run_for(1_000_000);
        assert_eq!(port_events(&mut rig, 0), []);
    }
}

#[test]
fn drop_acks_spares_requests() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, Options::default());
    rig.inject(0, "drop-acks=500us");
    b.post(Opcode::RdmaWrite, &[rig.remote(0, 0), inline8(9)]);
    rig.complete(&mut b, 1);
    assert_eq!(rig.hosts[0].heap.get64(0), 9);
    write8(&rig, &mut a, 0, 5);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0, "the time passed, the retry is acknowledged");
    assert_eq!(rig.hits(), [1]);
}

/// Nothing passes while a port is held; nothing is lost, and what comes then comes in order.
#[test]
fn a_held_port_loses_nothing() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(1, "hold=500us");
    for value in 1..=3 {
        write8(&rig, &mut a, 0, value);
        rig.ring(&a);
        rig.run_for(100_000);
        assert_eq!(rig.hosts[1].heap.get64(0), 0, "{value} is held");
    }
    assert_eq!(rig.complete(&mut a, 3), [0, 1, 2].map(|index| good(index, Opcode::RdmaWrite)));
    assert_eq!(rig.hosts[1].heap.get64(0), 3);
    assert!(rig.hits()[0] >= 3, "{:?}", rig.hits());
}

/// Mixed work over a bad link ends as over a good one, each atomic applied once.
#[test]
fn go_back_n_survives_loss_duplication_and_reordering() {
    for faults in [
        &["drop=0.05"][..],
        &["dup=0.2"],
        &["reorder=5"],
        &["drop=0.03", "dup=0.1", "reorder=9", "delay=3us"],
        &["drop=0.02", "placement-delay=20us"],
    ] {
        let mut rig = Rig::new(1);
        let options = Options { mtu: 1, ack_timeout: 3, psn: [0xff_ffc0, 0x7f_fff0], ..Options::default() };
        let (mut a, b) = rig.pair(0, 1, options);
        faults.iter().for_each(|fault| rig.inject(1, fault));
        for round in 0..60usize {
            let bytes = 1 + round * 97 % 3000;
            rig.hosts[0].heap.fill(0, bytes, round as u8);
            a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x1000), rig.local(0, 0, bytes as u32)]);
            a.post(Opcode::AtomicFa, &[rig.remote(1, 0), [0, 1u32.to_be(), 0, 0], rig.local(0, 0x8000, 8)]);
            a.post(Opcode::RdmaRead, &[rig.remote(1, 0x1000), rig.local(0, 0x4000, bytes as u32)]);
            write8(&rig, &mut a, 8, round as u64);
            let done = rig.complete(&mut a, 4);
            assert!(done.iter().all(|done| done.syndrome == 0), "{faults:?} round {round}: {done:?}");
            rig.run_for(50_000); // What is placed late is placed by now.
            assert!(rig.hosts[1].heap.holds(0x1000, bytes, round as u8), "{faults:?} round {round}");
            assert!(rig.hosts[0].heap.holds(0x4000, bytes, round as u8), "{faults:?} round {round}");
            assert_eq!(rig.hosts[0].heap.get64(0x8000), round as u64, "{faults:?}");
            assert_eq!(rig.hosts[1].heap.get64(8), round as u64);
        }
        assert_eq!(rig.hosts[1].heap.get64(0), 60);
        assert_eq!(rig.query(&b, qpc::RMSN), 240, "{faults:?}");
        assert!(rig.hits().iter().all(|hits| *hits > 0), "{faults:?} {:?}", rig.hits());
    }
}

#[test]
fn one_gap_is_one_nak() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { mtu: 1, ..Options::default() });
    rig.inject(0, "blackhole-tx=1us");
    write8(&rig, &mut a, 0, 1);
    rig.ring(&a);
    rig.run_for(1_000);
    rig.hosts[0].heap.fill(0, 10_000, 2);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x1000), rig.local(0, 0, 10_000)]);
    let start = rig.now;
    assert_eq!(rig.complete(&mut a, 2).len(), 2);
    assert!(rig.now - start < 100_000, "the NAK comes long before the timer");
    let nic = rig.hosts[1].nic;
    assert_eq!(rig.fabric.nic(nic).counters().naks, 1);
    assert!(rig.hosts[1].heap.holds(0x1000, 10_000, 2));
}

#[test]
fn slow_and_rail_rate_pace_packets() {
    // 1000 packets of 4096 bytes (and headers) at 8 Gb/s: a byte a nanosecond.
    let bytes = 1_000_000u32;
    for (fault, expected) in [(None, 0), (Some("slow=8"), 1_000_000), (Some("slow=1gbps"), 8_000_000)] {
        let mut rig = Rig::new(1);
        let (mut a, _b) = rig.pair(0, 1, Options { ack_timeout: 16, ..Options::default() });
        fault.iter().for_each(|fault| rig.inject(0, fault));
        let start = rig.now;
        a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, bytes)]);
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
        let took = rig.now - start;
        assert!((expected..expected + expected / 20 + 20_000).contains(&took), "{fault:?}: {took} ns");
    }
}

#[test]
fn a_rate_is_shared_by_the_pairs_of_a_port() {
    let mut rig = Rig::with(1, |config| config.rail_gbps = Some(8.0));
    let options = Options { ack_timeout: 16, ..Options::default() };
    let (mut a, _b) = rig.pair(0, 1, options);
    let (mut c, _d) = rig.pair(0, 1, options);
    for end in [&mut a, &mut c] {
        end.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, 500_000)]);
        rig.ring(end);
    }
    let start = rig.now;
    rig.run_for(900_000);
    assert!(a.poll().is_none() && c.poll().is_none(), "neither was served before the other");
    rig.run_for(200_000);
    assert!(a.poll().is_some() && c.poll().is_some());
    assert!(rig.now - start < 1_200_000);
}

#[test]
fn coarse_steps_reach_the_rate_when_they_may_catch_up() {
    let delivered = |catch_up: u64| {
        let mut rig = Rig::with(1, |config| config.rail_gbps = Some(80.0));
        let (mut a, _b) = rig.pair(0, 1, Options { ack_timeout: 18, ..Options::default() });
        rig.fabric.set_catch_up(catch_up);
        for _ in 0..50 {
            a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, 2_000_000)]);
        }
        rig.ring(&a);
        for _ in 0..50 {
            rig.now += 100_000;
            while rig.fabric.step(rig.now) {}
        }
        let nic = rig.hosts[1].nic;
        rig.fabric.nic(nic).counters().bytes_rx
    };
    // 5 ms at ten bytes a nanosecond, less headers and the first steps.
    assert!((45_000_000..=60_000_000).contains(&delivered(1_000_000)), "{}", delivered(1_000_000));
    assert!(delivered(0) < 1_000_000, "a packet a step");
}

#[test]
fn late_completions_come_in_order() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(0, "late-cqe=1ms/10us");
    write8(&rig, &mut a, 0, 1);
    rig.ring(&a);
    rig.run_for(20_000);
    write8(&rig, &mut a, 0, 2);
    rig.ring(&a);
    rig.run_for(500_000);
    assert_eq!(rig.hosts[1].heap.get64(0), 2);
    assert!(a.poll().is_none(), "the second waits for the first, which is late");
    rig.run_for(600_000);
    assert_eq!((a.poll().map(|d| d.counter), a.poll().map(|d| d.counter)), (Some(0), Some(1)));
    assert_eq!(rig.hits(), [1]);
}

#[test]
fn a_lost_doorbell_is_made_good_by_the_next() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(0, "lost-doorbell");
    write8(&rig, &mut a, 0, 1);
    rig.ring(&a);
    rig.run_for(10_000_000);
    assert!(a.poll().is_none());
    write8(&rig, &mut a, 0, 2);
    assert_eq!(rig.complete(&mut a, 2).len(), 2);
    assert_eq!(rig.hits(), [1]);
}

#[test]
fn a_nic_that_is_gone_answers_nothing_and_comes_back() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, Options { retry: 0, ..Options::default() });
    rig.inject(1, "nic-gone=50ms");
    write8(&rig, &mut a, 0, 1);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x15);
    let nic = rig.hosts[1].nic;
    let id = rig.fabric.nic(nic).command_submit(rig.now, &header(Cmd::Nop, 0), 16);
    b.post(Opcode::RdmaWrite, &[rig.remote(0, 0), inline8(3)]);
    rig.ring(&b);
    rig.run_for(10_000_000);
    let now = rig.now;
    assert!(rig.fabric.nic(nic).command_poll(now, id).is_none());
    assert!(b.poll().is_none());
    assert!(rig.hits()[0] >= 2);
    rig.run_for(60_000_000);
    let now = rig.now;
    assert!(rig.fabric.nic(nic).command_poll(now, id).is_some());
    assert!(b.poll().is_some(), "the doorbell was waiting in its register");
}

#[test]
fn firmware_that_hangs_spares_the_data_path() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(0, "fw-timeout=5ms");
    let nic = rig.hosts[0].nic;
    let id = rig.fabric.nic(nic).command_submit(rig.now, &header(Cmd::Nop, 0), 16);
    write8(&rig, &mut a, 0, 1);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
    rig.run_for(1_000_000);
    let now = rig.now;
    assert!(rig.fabric.nic(nic).command_poll(now, id).is_none());
    rig.run_for(5_000_000);
    let now = rig.now;
    assert!(rig.fabric.nic(nic).command_poll(now, id).is_some());
    assert_eq!(rig.hits(), [1]);
}

#[test]
fn events_are_lost_or_late() {
    let mut rig = Rig::new(1);
    rig.inject(0, "event-lost");
    rig.inject(1, "event-late=1ms");
    rig.inject(0, "down");
    rig.inject(1, "down");
    rig.run_for(500_000);
    assert_eq!((port_events(&mut rig, 0), port_events(&mut rig, 1)), (vec![], vec![]));
    rig.run_for(600_000);
    assert_eq!((port_events(&mut rig, 0), port_events(&mut rig, 1)), (vec![], vec![eqe::port::DOWN]));
    assert_eq!(rig.hits()[..2], [1, 1]);
}

#[test]
fn completions_fail_and_flushes_go_missing() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(0, "cqe-error=0x10");
    rig.inject(0, "missing-flush");
    write8(&rig, &mut a, 0, 1);
    write8(&rig, &mut a, 8, 2);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x10);
    rig.run_for(10_000_000);
    assert!(a.poll().is_none());
    assert_eq!(rig.hits(), [1, 1]);
}

#[test]
fn a_partial_write_places_its_head_only() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { mtu: 1, retry: 1, ..Options::default() });
    rig.inject(1, "partial-write=2");
    rig.hosts[0].heap.fill(0, 2000, 3);
    write8(&rig, &mut a, 0x100, 7);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0x1000), rig.local(0, 0, 2000)]);
    let done = rig.complete(&mut a, 2);
    assert_eq!((done[0].syndrome, done[1].syndrome), (0, 0x15));
    assert!(rig.hosts[1].heap.holds(0x1000, 512, 3));
    assert_eq!(rig.hosts[1].heap.get64(0x1000 + 512), 0);
    assert_eq!((rig.query(&b, qpc::RMSN), rig.query(&b, qpc::NEXT_RCV_PSN)), (1, 3));
    assert!(rig.hits()[0] > 0);
}

#[test]
fn revoked_keys_and_moved_addresses() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(1, "rkey-revoked=1ms");
    write8(&rig, &mut a, 0, 1);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x13);
    let (mut c, _d) = rig.pair(0, 1, Options { retry: 1, ..Options::default() });
    rig.inject(1, "gid-change");
    write8(&rig, &mut c, 0, 1);
    assert_eq!(rig.complete(&mut c, 1)[0].syndrome, 0x15);
    assert_eq!(rig.hits(), [1, 3], "the change and two lost packets");
    let (mut e, _f) = rig.pair(0, 1, Options::default());
    write8(&rig, &mut e, 0, 4);
    assert_eq!(rig.complete(&mut e, 1)[0].syndrome, 0, "a recreated pair finds it");
}

fn large(rig: &mut Rig, a: &mut End) {
    rig.hosts[0].heap.fill(0, 9000, 6);
    let body: [Segment; 2] = [rig.remote(1, 0x1000), rig.local(0, 0, 9000)];
    a.post(Opcode::RdmaWrite, &body);
}

#[test]
fn sabotage_breaks_what_it_says() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    rig.inject(1, "corrupt");
    write8(&rig, &mut a, 0, 5);
    large(&mut rig, &mut a);
    rig.complete(&mut a, 2);
    assert_eq!(rig.hosts[1].heap.get64(0), 5, "signals are spared");
    let wrong = (0..9000).filter(|n| rig.hosts[1].heap.get8(0x1000 + n) != rig::pattern(6, *n)).count();
    assert_eq!((wrong, rig.hits()[0]), (1, 1));

    rig.inject(1, "double-signal");
    let word = rig.hosts[1].heap.address();
    rig.fabric.watch_word(word);
    write8(&rig, &mut a, 0, 6);
    write8(&rig, &mut a, 0, 7);
    rig.complete(&mut a, 2);
    assert_eq!(rig.fabric.watched(word).not_increasing, 0);
    rig.run_for(2_000_000);
    assert_eq!(rig.hosts[1].heap.get64(0), 6, "the old value came again");
    let watch = rig.fabric.watched(word);
    assert_eq!((watch.writes, watch.last, watch.not_increasing), (3, 6, 1));

    rig.inject(1, "swap-signal");
    (0x1000..0x1000 + 9000).for_each(|at| rig.hosts[1].heap.set8(at, 0));
    large(&mut rig, &mut a);
    write8(&rig, &mut a, 0, 8);
    rig.complete(&mut a, 2);
    assert_eq!(rig.hosts[1].heap.get64(0), 8);
    assert!((0x1000..0x1000 + 9000).all(|at| rig.hosts[1].heap.get8(at) == 0), "the signal came first");
    rig.run_for(2_000_000);
    assert!(rig.hosts[1].heap.holds(0x1000, 9000, 6));
    assert_eq!(rig.hits(), [1, 1, 3]);
}

#[test]
fn faults_are_reported_as_planned() {
    let mut rig = Rig::new(2);
    let kind: FaultKind = "drop=0.5/10ms".parse().unwrap();
    rig.fabric.plan(5_000_000_000, RailAt { pe: 1, rail: 1 }, kind);
    assert_eq!(rig.fabric.next_due(), Some(5_000_000_000));
    let report = &rig.fabric.faults()[0];
    assert_eq!((report.at_ns, report.at.to_string().as_str(), report.hits), (5_000_000_000, "1.1", 0));
    assert_eq!(report.kind.to_string(), "drop=0.5/10ms");
}

/// A fault planned for a time hit nothing where the machine was quicker than its author's.
#[test]
fn a_fault_may_wait_for_packets() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { retry: 1, ..Options::default() });
    let at = rig.hosts[0].at;
    rig.fabric.plan_after(2, at, FaultKind::Down { for_ns: None });
    // What a NIC sends to itself passes no port. A program that tried its devices so was hit before it began.
    let (mut here, _there) = rig.pair(0, 0, Options::default());
    for n in 0..4 {
        write8(&rig, &mut here, 0, n);
        rig.ring(&here);
        rig.complete(&mut here, 1);
    }
    rig.run_for(100_000_000);
    assert_eq!(rig.fabric.faults()[0].at_ns, WAITS);
    write8(&rig, &mut a, 0, 5);
    rig.ring(&a);
    rig.complete(&mut a, 1);
    assert!(port_is_up(&mut rig, 0), "one packet was sent");
    write8(&rig, &mut a, 0, 6);
    rig.ring(&a);
    rig.complete(&mut a, 1);
    rig.run_for(1_000);
    assert!(!port_is_up(&mut rig, 0));
    let report = &rig.fabric.faults()[0];
    assert!(report.hits > 0 && report.at_ns <= rig.now, "{report:?}");
}

#[test]
fn one_seed_is_one_run() {
    let run = || {
        let mut rig = Rig::new(1);
        let (mut a, _b) = rig.pair(0, 1, Options { ack_timeout: 3, ..Options::default() });
        rig.inject(0, "drop=0.2");
        for n in 0..50 {
            write8(&rig, &mut a, 0, n);
            assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
        }
        let nic = rig.hosts[0].nic;
        (rig.now, rig.hits(), rig.fabric.nic(nic).counters())
    };
    assert_eq!(run(), run());
}

#[test]
fn rnr_makes_requests_wait_and_loses_none() {
    let mut rig = Rig::new(1);
    let (mut a, b) = rig.pair(0, 1, Options { mtu: 1, min_rnr: 1, retry: 0, ..Options::default() });
    rig.inject(1, "rnr=1ms");
    rig.hosts[0].heap.fill(0, 2000, 6);
    rig.hosts[1].heap.set64(0x8000, 4);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), rig.local(0, 0, 2000)]);
    a.post(Opcode::RdmaRead, &[rig.remote(1, 0x8000), rig.local(0, 0x8000, 8)]);
    let start = rig.now;
    assert!(rig.complete(&mut a, 2).iter().all(|done| done.syndrome == 0));
    assert!((1_000_000..1_100_000).contains(&(rig.now - start)), "{}", rig.now - start);
    assert!(rig.hosts[1].heap.holds(0, 2000, 6));
    assert_eq!((rig.hosts[0].heap.get64(0x8000), rig.query(&b, qpc::RMSN)), (4, 2));
    let hits = rig.hits()[0];
    assert!((30..110).contains(&hits), "{hits}");
    let nic = rig.hosts[1].nic;
    assert_eq!(rig.fabric.nic(nic).counters().rnr_naks, hits);
}

#[test]
fn rnr_that_lasts_uses_the_retries_up() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options { rnr_retry: 3, ..Options::default() });
    rig.inject(1, "rnr");
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0x16);
    assert_eq!((rig.hits(), rig.hosts[1].heap.get64(0)), (vec![4], 0));
}

#[test]
fn garbage_in_a_fresh_completion_queue_fools_only_who_did_not_initialise_it() {
    for collapsed in [false, true] {
        let mut rig = Rig::new(1);
        rig.inject(0, "cqe-garbage-init");
        let options = Options { log_cq: 3, collapsed, ..Options::default() };
        let (mut a, _b) = rig.pair(0, 1, options);
        assert_eq!(rig.hits(), [1], "one queue was made on this NIC");
        let (entry, last) = (a.entry(0), a.cq_offset() + 7 * 64 + 0x3f);
        assert_eq!((entry[0], entry[0x3f]), (0xa5, 0xff), "all but the ownership byte");
        assert_eq!(a.control.get8(last), if collapsed { 0xff } else { 0x01 }, "and of that the owner bit");
        for n in 0..20u64 {
            if !collapsed {
                assert_eq!(a.poll(), None, "before {n}");
            }
            a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(n)]);
            rig.ring(&a);
            rig.run_for(1_000_000);
            match collapsed {
                false => assert_eq!(a.poll(), Some(good(n as u16, Opcode::RdmaWrite))),
                true => assert_eq!(a.entry(0)[0x3c..0x3e], (n as u16).to_be_bytes()),
            }
        }
        // Memory that is zero because nobody wrote it: now it looks complete.
        let (nic, umem, uar) = (rig.hosts[0].nic, rig.hosts[0].umem, rig.hosts[0].uar.id);
        rig.command(nic, &rig::cq_mailbox(umem, uar, options, 0, 0x1000), 16);
        let tail = Tail::from_memory(rig.hosts[0].heap.get32(0x3c));
        assert!(tail.belongs_to(0, 3) && tail.wqe_counter == 0);
        assert_eq!(rig.hits(), [2]);
    }
}
