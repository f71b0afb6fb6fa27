//! Shared receive queues: WQEs that several queue pairs take from, given back in any order.

use crate::rig::{End, Memory, Options, Rig, header};
use shunt_layout::bits::Field;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::mlx5::eqe;
use shunt_layout::mlx5::prm::cmd::{Opcode as Cmd, Status, output};
use shunt_layout::mlx5::prm::rmp::{self, RMPC_OFFSET, modify, rmpc};
use shunt_layout::mlx5::wqe::{Opcode, inline8, scatter_end};

const LOG_DEPTH: u32 = 3;
const STRIDE: usize = 32;
const RECORD: usize = STRIDE << LOG_DEPTH;

/// A pool as libmlx5 keeps it: a list of free WQEs, linked in memory.
pub struct Pool {
    pub rmpn: u32,
    memory: Memory,
    head: u16,
    tail: u16,
    posted: u16,
}

impl Pool {
    pub fn new(rig: &mut Rig, host: usize) -> Self {
        let memory = Memory::new(RECORD + 64);
        let nic = rig.hosts[host].nic;
        // SAFETY: tests keep their pools as long as they step.
        let umem = unsafe { rig.fabric.nic(nic).register_umem(memory.address(), memory.bytes()) }.unwrap();
        let rmpn = output::OBJECT.get(&rig.command(nic, &create(rig.hosts[host].pd, umem), 16));
        let last = (1 << LOG_DEPTH) - 1;
        let pool = Self { rmpn, memory, head: 0, tail: last, posted: 0 };
        (0..=last).for_each(|index| pool.link(index, (index + 1) & last));
        pool
    }

    fn link(&self, index: u16, next: u16) {
        self.memory.set32(index as usize * STRIDE, (next.to_be() as u32) << 16);
    }

    pub fn post(&mut self, segment: [u32; 4]) -> u16 {
        let (index, at) = (self.head, self.head as usize * STRIDE);
        let next = u16::from_be((self.memory.get64(at) >> 16) as u16);
        assert_ne!(index, self.tail, "the last WQE links the list and is never posted");
        self.memory.set64(at + 16, segment[0] as u64 | (segment[1] as u64) << 32);
        self.memory.set64(at + 24, segment[2] as u64 | (segment[3] as u64) << 32);
        self.head = next;
        self.posted = self.posted.wrapping_add(1);
        self.memory.set32(RECORD, (self.posted as u32).to_be());
        index
    }

    fn give_back(&mut self, index: u16) {
        self.link(self.tail, index);
        self.tail = index;
    }
}

fn create(pd: u32, umem: u32) -> Vec<u8> {
    let mut make = header(Cmd::CreateRmp, 0);
    make.resize(rmp::CONTEXT_COMMAND_BYTES, 0);
    let mut set = |field: Field, value| field.within(RMPC_OFFSET).set(&mut make, value);
    set(rmpc::WQ_TYPE, rmp::WQ_TYPE_LINKED_LIST);
    set(rmpc::PD, pd);
    set(rmpc::LOG_WQ_STRIDE, STRIDE.ilog2());
    set(rmpc::LOG_WQ_SZ, LOG_DEPTH);
    set(rmpc::DBR_UMEM_VALID, 1);
    set(rmpc::DBR_UMEM_ID, umem);
    set(rmpc::WQ_UMEM_VALID, 1);
    set(rmpc::WQ_UMEM_ID, umem);
    rmpc::DBR_ADDR.within(RMPC_OFFSET).set(&mut make, RECORD as u64);
    make
}

fn with_pool(rmpn: u32) -> Options {
    Options { pool: Some(rmpn), ..Options::default() }
}

/// Two pairs from host 0 to host 1, whose ends there share a pool.
fn two_pairs(rig: &mut Rig) -> (Pool, [(End, End); 2]) {
    let pool = Pool::new(rig, 1);
    let pairs = std::array::from_fn(|_| {
        let (mut a, mut b) = (rig.end(0, Options::default()), rig.end(1, with_pool(pool.rmpn)));
        rig.connect(&mut a, 1, b.qpn);
        rig.connect(&mut b, 0, a.qpn);
        (a, b)
    });
    (pool, pairs)
}

fn events(rig: &mut Rig, host: usize) -> Vec<(u8, u32)> {
    rig.run_for(1_000_000);
    let (nic, now) = (rig.hosts[host].nic, rig.now);
    std::iter::from_fn(|| rig.fabric.nic(nic).next_event(now))
        .map(|entry| (eqe::EVENT_TYPE.get(&entry) as u8, eqe::OBJECT.get(&entry)))
        .collect()
}

#[test]
fn pairs_take_from_one_pool_and_software_gives_back_in_any_order() {
    let mut rig = Rig::new(1);
    let (mut pool, mut pairs) = two_pairs(&mut rig);
    for n in 0..200u64 {
        // Two messages, one on each pair; their WQEs go back in the other order.
        for slot in 0..2 {
            pool.post(rig.local(1, 0x100 * slot, 8));
        }
        let mut used = Vec::new();
        for (a, b) in &mut pairs {
            a.post(Opcode::Send, &[inline8(n)]);
            assert_eq!(rig.complete(a, 1)[0].syndrome, 0, "{n}");
            let got = b.poll_receives();
            assert_eq!(got.len(), 1);
            used.push(got[0].counter);
        }
        rig.settle();
        assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(0x100)), (n, n));
        used.into_iter().rev().for_each(|index| pool.give_back(index));
    }
}

#[test]
fn an_empty_pool_answers_receiver_not_ready() {
    let mut rig = Rig::new(1);
    let (mut pool, [(mut a, mut b), _]) = two_pairs(&mut rig);
    a.post_imm(Opcode::RdmaWriteImm, 9, &[rig.remote(1, 8), inline8(4)]);
    rig.ring(&a);
    rig.run_for(2_000_000);
    assert!(a.poll().is_none() && rig.fabric.nic(rig.hosts[1].nic).counters().rnr_naks > 0);
    let index = pool.post(scatter_end());
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
    let got = b.poll_receives();
    assert_eq!((got.len(), got[0].imm, got[0].counter), (1, 9, index));
}

#[test]
fn an_empty_piece_is_no_fault() {
    let mut rig = Rig::new(1);
    let (mut pool, [(mut a, mut b), _]) = two_pairs(&mut rig);
    // As libmlx5 posts a receive for messages without data.
    for n in 0..2 {
        pool.post(rig.local(1, 0, 0));
        match n {
            0 => a.post(Opcode::Send, &[]),
            _ => a.post_imm(Opcode::RdmaWriteImm, 9, &[rig.remote(1, 8), inline8(4)]),
        }
        assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0);
        assert_eq!(b.poll_receives().iter().map(|got| got.syndrome).collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn the_limit_raises_one_event() {
    let mut rig = Rig::new(1);
    let (mut pool, [(mut a, _b), _]) = two_pairs(&mut rig);
    (0..4).for_each(|_| _ = pool.post(rig.local(1, 0, 8)));
    let mut arm = header(Cmd::ModifyRmp, 0);
    arm.resize(rmp::CONTEXT_COMMAND_BYTES, 0);
    modify::RMPN.set(&mut arm, pool.rmpn);
    modify::BITMASK_LOW.set(&mut arm, 1);
    rmpc::LWM.within(RMPC_OFFSET).set(&mut arm, 3);
    rig.command(rig.hosts[1].nic, &arm, 16);
    assert_eq!(events(&mut rig, 1), []);
    for n in 0..3u64 {
        a.post(Opcode::Send, &[inline8(n)]);
        rig.complete(&mut a, 1);
        let expected: &[_] = if n == 1 { &[(eqe::event::RQ_LIMIT, pool.rmpn)] } else { &[] };
        assert_eq!(events(&mut rig, 1), expected, "{n}: two are left after the second");
    }
}

#[test]
fn a_failed_pair_leaves_the_pool_to_the_others() {
    let mut rig = Rig::new(1);
    let (mut pool, [(mut a, mut b), (mut c, mut d)]) = two_pairs(&mut rig);
    let first = pool.post(rig.local(1, 0, 4));
    pool.post(rig.local(1, 0, 8));
    a.post(Opcode::Send, &[inline8(1)]); // too long for four bytes
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, Syndrome::REMOTE_INVALID_REQUEST.0);
    let got = b.poll_receives();
    assert_eq!((got.len(), got[0].counter, got[0].syndrome), (1, first, Syndrome::LOCAL_LENGTH.0));
    assert!(events(&mut rig, 1).contains(&(eqe::event::LAST_WQE, b.qpn)), "and no flush of what is others'");
    assert_eq!(b.poll_receives(), []);
    c.post(Opcode::Send, &[inline8(7)]);
    assert_eq!(rig.complete(&mut c, 1)[0].syndrome, 0);
    assert_eq!(d.poll_receives().len(), 1);
    rig.settle();
    assert_eq!(rig.hosts[1].heap.get64(0), 7);
}

#[test]
fn a_link_out_of_the_pool_fails_the_message_and_writes_nothing() {
    let mut rig = Rig::new(1);
    let (mut pool, [(mut a, mut b), _]) = two_pairs(&mut rig);
    pool.post(rig.local(1, 0, 8));
    pool.link(0, 1 << LOG_DEPTH);
    a.post(Opcode::Send, &[inline8(1)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, Syndrome::REMOTE_OPERATION.0);
    assert_eq!(b.poll_receives()[0].syndrome, Syndrome::LOCAL_QP_OPERATION.0);
    rig.settle();
    assert_eq!(rig.hosts[1].heap.get64(0), 0);
}

#[test]
fn pools_are_made_and_destroyed_like_other_objects() {
    let mut rig = Rig::new(1);
    let (pool, pairs) = two_pairs(&mut rig);
    let (nic, pd) = (rig.hosts[1].nic, rig.hosts[1].pd);
    let refused =
        |rig: &mut Rig, mailbox: &[u8]| output::STATUS.get(&rig.try_command(nic, mailbox, 16)) as u8;
    assert_eq!(refused(&mut rig, &header(Cmd::DestroyRmp, pool.rmpn)), Status::ResBusy as u8);
    let out = rig.command(nic, &header(Cmd::QueryRmp, pool.rmpn), rmp::CONTEXT_COMMAND_BYTES);
    assert_eq!(rmpc::LOG_WQ_SZ.within(RMPC_OFFSET).get(&out), LOG_DEPTH);
    for (_, b) in &pairs {
        rig.command(nic, &header(Cmd::DestroyQp, b.qpn), 16);
    }
    rig.command(nic, &header(Cmd::DestroyRmp, pool.rmpn), 16);
    assert_eq!(refused(&mut rig, &header(Cmd::QueryRmp, pool.rmpn)), Status::BadOutputLen as u8);
    assert_eq!(refused(&mut rig, &header(Cmd::DestroyRmp, pool.rmpn)), Status::BadRes as u8);
    let mut cyclic = create(pd, 1);
    rmpc::WQ_TYPE.within(RMPC_OFFSET).set(&mut cyclic, 1);
    assert_eq!(refused(&mut rig, &cyclic), Status::BadParam as u8);
    let mut outside = create(pd, 1);
    rmpc::WQ_UMEM_OFFSET.within(RMPC_OFFSET).set(&mut outside, u64::MAX);
    assert_eq!(refused(&mut rig, &outside), Status::BadParam as u8);
    let mut huge = create(pd, 1);
    rmpc::LOG_WQ_SZ.within(RMPC_OFFSET).set(&mut huge, 16);
    assert_eq!(refused(&mut rig, &huge), Status::BadParam as u8);
}
