//! Dynamically connected transport: one initiator, the targets that its WQEs name, paths that come and go.

use crate::rig::{End, Memory, Options, Rig, cq_mailbox, good, header};
use crate::shared_receive::Pool;
use shunt_layout::bits::Field;
use shunt_layout::mlx5::cqe::{CQE_BYTES, FRESH_BYTE, Syndrome, opcode};
use shunt_layout::mlx5::prm::cmd::{Opcode as Cmd, Status, output};
use shunt_layout::mlx5::prm::dct::{self, DCTC_OFFSET, dctc};
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mlx5::wqe::{AddressVector, Opcode, Segment, inline8};
use shunt_soft_nic::packet::{Body, DcSetup, DcStep, Packet, Part, Payload, Reth};
use std::ops::RangeInclusive;

const KEY: u64 = 0x0102_0304_5623_ceaf;

/// A target with a pool and a CQ of its own.
struct Target {
    host: usize,
    dctn: u32,
    pool: Pool,
    cq: Memory,
}

impl Target {
    fn new(rig: &mut Rig, host: usize) -> Self {
        let (pool, options) = (Pool::new(rig, host), Options::default());
        let ring = CQE_BYTES << options.log_cq;
        let cq = Memory::new(ring + 64);
        (0..ring).for_each(|at| cq.set8(at, FRESH_BYTE));
        let (nic, uar, pd) = (rig.hosts[host].nic, rig.hosts[host].uar.id, rig.hosts[host].pd);
        // SAFETY: tests keep their targets as long as they step.
        let umem = unsafe { rig.fabric.nic(nic).register_umem(cq.address(), cq.bytes()) }.unwrap();
        let cqn = output::OBJECT.get(&rig.command(nic, &cq_mailbox(umem, uar, options, 0, ring), 16));
        let dctn = output::OBJECT.get(&rig.command(nic, &create(pd, cqn, pool.rmpn), 16));
        Self { host, dctn, pool, cq }
    }

    fn vector(&self, rig: &mut Rig) -> AddressVector {
        let at = rig.fabric.nic(rig.hosts[self.host].nic).config().clone();
        AddressVector {
            qkey: 0,
            qpn: self.dctn,
            full: true,
            rlid: 0,
            service_level: 0,
            rmac: at.mac,
            tclass: 0,
            hop_limit: 64,
            grh: false,
            source_gid_index: 0,
            flow_label: 0,
            rgid: at.gid,
        }
    }

    /// A WQE's segments behind the control segment: this target, then `rest`.
    fn to(&self, rig: &mut Rig, rest: &[Segment]) -> Vec<Segment> {
        addressed(self.vector(rig), KEY, rest)
    }
}

fn addressed(to: AddressVector, key: u64, rest: &[Segment]) -> Vec<Segment> {
    let mut vector = to.segments();
    (vector[0][0], vector[0][1]) = (((key >> 32) as u32).to_be(), (key as u32).to_be());
    vector.iter().chain(rest).copied().collect()
}

fn create(pd: u32, cqn: u32, rmpn: u32) -> Vec<u8> {
    let mut make = header(Cmd::CreateDct, 0);
    make.resize(dct::CONTEXT_COMMAND_BYTES, 0);
    let mut set = |field: Field, value| field.within(DCTC_OFFSET).set(&mut make, value);
    set(dctc::USER_INDEX, 0x99);
    set(dctc::CQN, cqn);
    set(dctc::ATOMIC_MODE, 3);
    for right in [dctc::RRE, dctc::RWE, dctc::RAE] {
        set(right, 1);
    }
    set(dctc::MIN_RNR_NAK, 12);
    set(dctc::SRQN_XRQN, rmpn);
    set(dctc::PD, pd);
    set(dctc::MTU, 5);
    dctc::DC_ACCESS_KEY.within(DCTC_OFFSET).set(&mut make, KEY);
    make
}

fn initiator(rig: &mut Rig, host: usize, options: Options) -> End {
    let mut end = rig.end(host, Options { initiator: true, ..options });
    rig.connect(&mut end, host, 0);
    end
}

fn add(value: u64) -> Segment {
    [((value >> 32) as u32).to_be(), (value as u32).to_be(), 0, 0]
}

/// Writes, adds and reads at targets in turn, in each of the `rounds` from 1 on; every effect is there once.
fn in_turn(rig: &mut Rig, a: &mut End, targets: &[Target], rounds: RangeInclusive<u64>) {
    for round in rounds {
        for (n, target) in targets.iter().enumerate() {
            let word = 0x100 * n;
            let write = target.to(rig, &[rig.remote(target.host, word), inline8(round)]);
            a.post(Opcode::RdmaWrite, &write);
            let fetch =
                [rig.remote(target.host, word + 8), add(n as u64 + 1), rig.local(0, 0x8000 + 16 * n, 8)];
            let fetch = target.to(rig, &fetch);
            a.post(Opcode::AtomicFa, &fetch);
            let read = [rig.remote(target.host, word), rig.local(0, 0x9000 + 16 * n, 8)];
            let read = target.to(rig, &read);
            a.post(Opcode::RdmaRead, &read);
        }
        let done = rig.complete(a, 3 * targets.len());
        assert!(done.iter().all(|one| one.syndrome == 0), "{done:?}");
        for (n, target) in targets.iter().enumerate() {
            let (word, by) = (0x100 * n, n as u64 + 1);
            let heap = &rig.hosts[target.host].heap;
            assert_eq!((heap.get64(word), heap.get64(word + 8)), (round, round * by), "target {n}");
            let mine = &rig.hosts[0].heap;
            assert_eq!(mine.get64(0x8000 + 16 * n), (round - 1) * by, "fetched at {n}");
            assert_eq!(mine.get64(0x9000 + 16 * n), round, "read at {n}");
        }
    }
}

#[test]
fn each_wqe_goes_to_the_target_that_it_names() {
    let mut rig = Rig::new(2);
    let targets = [1, 2].map(|host| Target::new(&mut rig, host));
    let mut a = initiator(&mut rig, 0, Options::default());
    in_turn(&mut rig, &mut a, &targets, 1..=1);
    let nics = targets.each_ref().map(|target| rig.hosts[target.host].nic);
    let objects = nics.map(|nic| rig.fabric.nic(nic).live_objects());
    in_turn(&mut rig, &mut a, &targets, 2..=9);
    let more = nics.map(|nic| rig.fabric.nic(nic).live_objects());
    assert_eq!(more, objects.map(|count| count + 1), "a target keeps two paths of an initiator");
}

#[test]
fn one_target_needs_one_path() {
    let mut rig = Rig::new(1);
    let target = Target::new(&mut rig, 1);
    let mut a = initiator(&mut rig, 0, Options::default());
    let nic = rig.hosts[1].nic;
    let before = rig.fabric.nic(nic).live_objects();
    rig.hosts[0].heap.fill(0x1_0000, 70_000, 5);
    let body = [rig.remote(1, 0x2_0000), rig.local(0, 0x1_0000, 70_000)];
    let body = target.to(&mut rig, &body);
    for _ in 0..5 {
        a.post(Opcode::RdmaWrite, &body);
    }
    a.post(Opcode::Nop, &[]);
    let done = rig.complete(&mut a, 6);
    assert!(done.iter().all(|one| one.syndrome == 0), "{done:?}");
    assert!(rig.hosts[1].heap.holds(0x2_0000, 70_000, 5));
    assert_eq!(rig.fabric.nic(nic).live_objects(), before + 1);
}

#[test]
fn what_is_lost_on_the_way_is_asked_for_and_sent_again() {
    let mut rig = Rig::new(2);
    let targets = [1, 2].map(|host| Target::new(&mut rig, host));
    let mut a = initiator(&mut rig, 0, Options::default());
    for host in 0..3 {
        rig.inject(host, "drop=0.1");
    }
    in_turn(&mut rig, &mut a, &targets, 1..=30);
    assert!(rig.hits().iter().all(|hits| *hits > 0), "{:?}", rig.hits());
}

#[test]
fn doubled_and_late_packets_change_nothing() {
    let mut rig = Rig::new(2);
    let targets = [1, 2].map(|host| Target::new(&mut rig, host));
    let mut a = initiator(&mut rig, 0, Options::default());
    for host in 0..3 {
        rig.inject(host, "dup=0.5");
    }
    in_turn(&mut rig, &mut a, &targets, 1..=20);
    assert!(rig.hits().iter().all(|hits| *hits > 0), "{:?}", rig.hits());
}

#[test]
fn a_message_lands_in_the_targets_pool() {
    let mut rig = Rig::new(1);
    let mut target = Target::new(&mut rig, 1);
    let mut a = initiator(&mut rig, 0, Options::default());
    target.pool.post(rig.local(1, 0x40, 8));
    let body = target.to(&mut rig, &[inline8(0x1234)]);
    a.post(Opcode::Send, &body);
    assert_eq!(rig.complete(&mut a, 1), [good(0, Opcode::Send)]);
    rig.settle();
    assert_eq!(rig.hosts[1].heap.get64(0x40), 0x1234);
    // Version 1 of a CQE names the user's index; the opcode stands in the last byte.
    assert_eq!(target.cq.get8(63) >> 4, opcode::RESP_SEND);
    assert_eq!(u32::from_be(target.cq.get32(0x2c)), 8, "bytes");
}

/// One WQE that fails: its syndrome, and that nothing was written.
fn refused(change: impl FnOnce(&mut Rig, &Target) -> Vec<Segment>, syndrome: Syndrome) {
    let mut rig = Rig::new(1);
    let target = Target::new(&mut rig, 1);
    let mut a = initiator(&mut rig, 0, Options { retry: 2, ..Options::default() });
    let body = change(&mut rig, &target);
    a.post(Opcode::RdmaWrite, &body);
    let done = rig.complete(&mut a, 1);
    assert_eq!(done[0].syndrome, syndrome.0, "{done:?}");
    rig.settle();
    assert_eq!((rig.state(&a), rig.hosts[1].heap.get64(0)), (State::Err, 0));
}

#[test]
fn what_a_target_refuses_and_what_is_no_target() {
    let write = |rig: &mut Rig| [rig.remote(1, 0), inline8(7)];
    let other = |rig: &mut Rig, target: &Target, change: fn(&mut AddressVector), key| {
        let (mut vector, rest) = (target.vector(rig), write(rig));
        change(&mut vector);
        addressed(vector, key, &rest)
    };
    refused(|rig, target| other(rig, target, |_| {}, KEY ^ 1), Syndrome::REMOTE_ACCESS);
    refused(|rig, target| other(rig, target, |to| to.qpn += 100, KEY), Syndrome::RETRY_EXCEEDED);
    refused(|rig, target| other(rig, target, |to| to.rgid = [7; 16], KEY), Syndrome::RETRY_EXCEEDED);
    refused(|rig, target| other(rig, target, |to| to.full = false, KEY), Syndrome::LOCAL_QP_OPERATION);
    refused(|rig, _| write(rig).to_vec(), Syndrome::LOCAL_QP_OPERATION);
}

#[test]
fn an_initiator_that_was_reset_begins_again() {
    let mut rig = Rig::new(1);
    let target = Target::new(&mut rig, 1);
    let mut a = initiator(&mut rig, 0, Options::default());
    let body = [rig.remote(1, 0), inline8(1)];
    let body = target.to(&mut rig, &body);
    a.post(Opcode::RdmaWrite, &body);
    rig.complete(&mut a, 1);
    rig.command(rig.hosts[0].nic, &header(Cmd::Qp2Rst, a.qpn), 16);
    a.restart_sends();
    rig.connect(&mut a, 0, 0);
    let body = [rig.remote(1, 0), inline8(2)];
    let body = target.to(&mut rig, &body);
    a.post(Opcode::RdmaWrite, &body);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
    assert_eq!(rig.hosts[1].heap.get64(0), 2);
}

#[test]
fn a_target_is_no_queue_pair_and_goes_with_its_paths() {
    let mut rig = Rig::new(1);
    let nic = rig.hosts[1].nic;
    let target = Target::new(&mut rig, 1);
    let before = rig.fabric.nic(nic).live_objects();
    let mut a = initiator(&mut rig, 0, Options { retry: 1, ..Options::default() });
    let body = [rig.remote(1, 0), inline8(1)];
    let body = target.to(&mut rig, &body);
    a.post(Opcode::RdmaWrite, &body);
    rig.complete(&mut a, 1);
    assert_eq!(rig.fabric.nic(nic).live_objects(), before + 1);
    let path = target.dctn + 1;
    for (command, object) in [
        (Cmd::DestroyQp, target.dctn),
        (Cmd::Qp2Err, target.dctn),
        (Cmd::DestroyQp, path),
        (Cmd::DestroyDct, path),
        (Cmd::DestroyDct, target.dctn + 50),
    ] {
        let answer = rig.try_command(nic, &header(command, object), 16);
        assert_eq!(answer[0], Status::BadRes as u8, "{command:?}");
    }
    let told = rig.command(nic, &header(Cmd::QueryDct, target.dctn), dct::CONTEXT_COMMAND_BYTES);
    let get = |field: Field| field.within(DCTC_OFFSET).get(&told);
    assert_eq!((get(dctc::USER_INDEX), get(dctc::MTU), get(dctc::RAE)), (0x99, 5, 1));
    assert_eq!(dctc::DC_ACCESS_KEY.within(DCTC_OFFSET).get(&told), KEY);
    rig.command(nic, &header(Cmd::DestroyDct, target.dctn), 16);
    assert_eq!(rig.fabric.nic(nic).live_objects(), before - 1);
    a.post(Opcode::RdmaWrite, &body);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, Syndrome::RETRY_EXCEEDED.0);
}

/// A copy of a question that comes when the path is in use gets no answer: a process that begins again with a number
/// that was used must not take the old path for its own.
#[test]
fn a_late_copy_of_a_question_is_not_answered() {
    let mut rig = Rig::new(1);
    let target = Target::new(&mut rig, 1);
    let asker = initiator(&mut rig, 0, Options::default());
    let at = rig.fabric.nic(rig.hosts[0].nic).config().clone();
    let (source, mac) =
        (u128::from_be_bytes(at.gid), at.mac.iter().fold(0, |mac, byte| mac << 8 | *byte as u64));
    let (host, key) = (&rig.hosts[1], rig.hosts[1].key);
    let (nic, reth) = (host.nic, Reth { address: host.heap.address(), rkey: key, bytes: 0 });
    let setup = DcSetup { step: DcStep::Connect, number: 77, qpn: asker.qpn, mtu: 4096, key: KEY, mac };
    let mut answers = |qpn, body: Body| {
        let before = rig.fabric.nic(nic).counters().packets_tx;
        let packet =
            Packet { from: 0, to: 1, source, qpn, psn: 40, ack_request: true, solicited: false, body };
        assert!(rig.fabric.forge(packet));
        rig.run_for(100_000);
        rig.fabric.nic(nic).counters().packets_tx - before
    };
    let question = || Body::Dc(Box::new(setup));
    assert_eq!([answers(target.dctn, question()), answers(target.dctn, question())], [1, 1], "asked again");
    let write = Body::Write { part: Part::Only, reth, payload: Payload::Empty };
    assert_eq!(answers(target.dctn + 1, write), 1, "the path works");
    assert_eq!(answers(target.dctn, question()), 0);
}
