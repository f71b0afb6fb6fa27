//! Completion events: the arm register, the record behind it, solicited completions, errors.

use crate::rig;
use crate::rig::{End, Options, Rig};
use shunt_layout::mlx5::doorbell::{Arm, CQ_ARM_OFFSET};
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::cmd::Opcode as Cmd;
use shunt_layout::mlx5::prm::cq::{self, cqc};
use shunt_layout::mlx5::wqe::{CqeWhen, Opcode, SOLICITED_EVENT, inline8};
use std::sync::atomic::{AtomicU64, Ordering};

fn options() -> Options {
    Options { log_rq: Some(5), ..Options::default() }
}

/// CQNs of the completion events there are.
fn events(rig: &mut Rig, host: usize) -> Vec<u32> {
    rig.run_for(1_000_000);
    let (nic, now) = (rig.hosts[host].nic, rig.now);
    std::iter::from_fn(|| rig.fabric.nic(nic).next_event(now))
        .filter(|entry| eqe::EVENT_TYPE.get(entry) == eqe::event::COMPLETION as u32)
        .map(|entry| eqe::OBJECT.get(&entry))
        .collect()
}

/// Arms the receive CQ: record, then register.
fn arm(rig: &Rig, end: &End, request: Arm) {
    end.control.set32(end.record() + 20, request.to_record());
    ring(rig, end, request.to_register(end.receive_cqn));
}

fn ring(rig: &Rig, end: &End, value: u64) {
    let address = rig.hosts[end.host].uar.address + CQ_ARM_OFFSET as u64;
    // SAFETY: the page lives as long as the NIC, and doorbells are atomic stores.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(value, Ordering::Release);
}

fn send(rig: &mut Rig, a: &mut End, b: &mut End, flags: u8) {
    b.post_receive(&[rig.local(1, 0, 64)]);
    a.post_with(Opcode::Send as u8, 0, CqeWhen::Always as u8 | flags, &[inline8(1)]);
    assert_eq!(rig.complete(a, 1)[0].syndrome, 0);
}

fn any(sequence: u8, consumed: u32) -> Arm {
    Arm { sequence, solicited_only: false, consumed }
}

fn solicited(sequence: u8, consumed: u32) -> Arm {
    Arm { sequence, solicited_only: true, consumed }
}

fn state(rig: &mut Rig, end: &End) -> u32 {
    let nic = rig.hosts[end.host].nic;
    let out = rig.command(nic, &rig::header(Cmd::QueryCq, end.receive_cqn), 272);
    cqc::ST.within(cq::CQC_OFFSET).get(&out)
}

#[test]
fn one_event_for_each_request() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    send(&mut rig, &mut a, &mut b, 0);
    assert_eq!((events(&mut rig, 1), state(&mut rig, &b)), (vec![], 0), "no event was asked for");
    arm(&rig, &b, any(0, 1));
    assert_eq!((events(&mut rig, 1), state(&mut rig, &b)), (vec![], cq::ST_ARMED));
    send(&mut rig, &mut a, &mut b, 0);
    send(&mut rig, &mut a, &mut b, 0);
    assert_eq!((events(&mut rig, 1), state(&mut rig, &b)), (vec![b.receive_cqn], cq::ST_FIRED));
    arm(&rig, &b, any(0, 3));
    send(&mut rig, &mut a, &mut b, 0);
    assert_eq!(events(&mut rig, 1), [], "a request from before the event is void");
    arm(&rig, &b, any(1, 3));
    assert_eq!(events(&mut rig, 1), [b.receive_cqn], "one completion is newer than the request");
    arm(&rig, &b, any(2, 4));
    assert_eq!(events(&mut rig, 1), []);
}

#[test]
fn solicited_events() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    arm(&rig, &b, solicited(0, 0));
    send(&mut rig, &mut a, &mut b, 0);
    assert_eq!((events(&mut rig, 1), state(&mut rig, &b)), (vec![], cq::ST_SOLICITED_ARMED));
    send(&mut rig, &mut a, &mut b, SOLICITED_EVENT);
    assert_eq!(events(&mut rig, 1), [b.receive_cqn]);
    arm(&rig, &b, solicited(1, 2));
    send(&mut rig, &mut a, &mut b, 0);
    assert_eq!(events(&mut rig, 1), []);
    // An error counts as solicited.
    b.post_receive(&[]);
    rig.fence(&b);
    assert_eq!(events(&mut rig, 1), [b.receive_cqn]);
}

#[test]
fn the_page_is_the_queues_own() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    let other = rig.fabric.nic(rig.hosts[1].nic).alloc_uar();
    let address = other.address + CQ_ARM_OFFSET as u64;
    // SAFETY: as in `ring`.
    let register = unsafe { AtomicU64::from_ptr(address as *mut u64) };
    register.store(any(0, 0).to_register(b.receive_cqn), Ordering::Release);
    rig.run_for(1_000);
    send(&mut rig, &mut a, &mut b, 0);
    assert_eq!(events(&mut rig, 1), []);
    for nonsense in [0, 0x3ff, 0x400 + 999, 0xff_ffff] {
        ring(&rig, &b, any(1, 5).to_register(nonsense));
        rig.run_for(1_000);
    }
    assert_eq!(events(&mut rig, 1), []);
}

#[test]
fn a_request_overwritten_in_the_register_is_found_in_its_record() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    let (mut c, mut d) = rig.pair(0, 1, options());
    // Both before the NIC looks: the register keeps the second only.
    arm(&rig, &b, any(1, 0));
    arm(&rig, &d, any(1, 0));
    rig.run_for(1_000);
    send(&mut rig, &mut a, &mut b, 0);
    send(&mut rig, &mut c, &mut d, 0);
    let mut fired = events(&mut rig, 1);
    fired.sort();
    assert_eq!(fired, [b.receive_cqn, d.receive_cqn]);
}

#[test]
fn first_requests_of_two_queues_are_both_seen() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    let (mut c, mut d) = rig.pair(0, 1, options());
    // As libmlx5 numbers them: sequence 0, index 0, which leaves the first record as it was.
    arm(&rig, &b, any(0, 0));
    arm(&rig, &d, any(0, 0));
    rig.run_for(1_000);
    send(&mut rig, &mut a, &mut b, 0);
    send(&mut rig, &mut c, &mut d, 0);
    let mut fired = events(&mut rig, 1);
    fired.sort();
    assert_eq!(fired, [b.receive_cqn, d.receive_cqn]);
    // Asked again before anybody looked: what the event told of is no news.
    arm(&rig, &b, any(1, 0));
    assert_eq!(events(&mut rig, 1), []);
    send(&mut rig, &mut a, &mut b, 0);
    assert_eq!(events(&mut rig, 1), [b.receive_cqn]);
}

#[test]
fn a_first_request_that_was_overwritten_asks_for_what_came_before_it() {
    let mut rig = Rig::new(1);
    let (mut a, mut b) = rig.pair(0, 1, options());
    let (_c, d) = rig.pair(0, 1, options());
    send(&mut rig, &mut a, &mut b, 0);
    // The completion is there and was not looked at. Both requests are rung in one register; the second stays.
    arm(&rig, &b, any(0, 0));
    arm(&rig, &d, any(0, 0));
    assert_eq!(events(&mut rig, 1), [b.receive_cqn]);
}

#[test]
fn a_send_queue_is_armed_like_any_other() {
    let mut rig = Rig::new(1);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    ring(&rig, &a, any(0, 0).to_register(a.cqn));
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    rig.complete(&mut a, 1);
    assert_eq!(events(&mut rig, 0), [a.cqn]);
    // Without arming, a WQE can ask by itself.
    a.post_with(Opcode::RdmaWrite as u8, 0, CqeWhen::Event as u8, &[rig.remote(1, 0), inline8(1)]);
    rig.complete(&mut a, 1);
    assert_eq!(events(&mut rig, 0), [a.cqn]);
}
