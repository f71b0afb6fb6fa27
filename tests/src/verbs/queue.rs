//! Queue pairs and completion queues of libibverbs on a soft NIC: rings, posting and polling.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use shunt_device::platform::Platform;
use shunt_device::platform::host::{Host, World};
use shunt_host::error::NicError;
use shunt_host::nic::cq::{Cq, CqShape};
use shunt_host::nic::qp::{Qp, QpShape, ReceiveShape};
use shunt_host::nic::uar::Uar;
use shunt_host::nic::umem::{QUEUE_ALIGN, Umem};
use shunt_host::rail::Rail;
use shunt_layout::mlx5::cqe::{self, CQE_BYTES, FRESH_BYTE, TAIL_OFFSET, Tail};
use shunt_layout::mlx5::doorbell::{
    self, ARM_WORD_OFFSET, Arm, CQ_ARM_OFFSET, RECEIVE_COUNTER_OFFSET, SEND_COUNTER_OFFSET,
};
use shunt_layout::mlx5::wqe::{
    self, CqeWhen, FENCE_BEFORE, INLINE_FLAG, Opcode, SEGMENT_BYTES, SOLICITED_EVENT, Segment, WQEBB_BYTES,
};
use shunt_mlx5_sys as sys;

use super::events::{Events, Told, VerbsChannel};
use super::memory::{EINVAL, ENOMEM, Place, memory, pointer};
use super::shared::VerbsSrq;

/// Segments of a request: all of it is in one block.
const SEGMENTS: usize = WQEBB_BYTES / SEGMENT_BYTES;

/// What was posted and is not known to be complete.
#[derive(Default)]
struct Counters {
    sent: u64,
    send_done: u64,
    received: u64,
    receive_done: u64,
}

/// A queue pair as libibverbs has it. What the program sees lies in front.
#[repr(C)]
pub struct VerbsQp {
    raw: sys::ibv_qp_ex,
    /// At its NIC. Dropped before what it lies in.
    pub qp: Qp,
    /// Where it is.
    pub rail: Arc<Rail>,
    world: Arc<dyn World>,
    uar: Arc<Uar>,
    _umem: Umem,
    base: u64,
    record: u64,
    depths: [u64; 2],
    all_signaled: bool,
    counters: RefCell<Counters>,
    /// By slot: number and opcode of requests, numbers of receives.
    requests: RefCell<Vec<(u64, u32)>>,
    receives: RefCell<Vec<u64>>,
    shared: Option<*const VerbsSrq>,
}

/// A completion queue as libibverbs has it.
#[repr(C)]
pub struct VerbsCq {
    raw: sys::ibv_cq,
    cq: Cq,
    world: Arc<dyn World>,
    uar: Arc<Uar>,
    events: Arc<Events>,
    _umem: Umem,
    base: u64,
    record: u64,
    log: u32,
    taken: RefCell<u64>,
    /// Events that the program has taken.
    events_taken: Cell<u8>,
    /// Queue pairs that complete here: their numbers and where they are.
    members: RefCell<Vec<(u32, *const VerbsQp)>>,
}

impl VerbsCq {
    /// Makes one with so many entries, which tells of them on a channel, if there is one.
    ///
    /// # Safety
    /// The channel is alive until it is destroyed.
    pub unsafe fn make(
        place: &Place<'_>,
        entries: u32,
        channel: *const VerbsChannel,
    ) -> Result<Box<Self>, NicError> {
        let (rail, log) = (place.rail, entries.max(2).next_power_of_two().ilog2());
        let bytes = (CQE_BYTES as u64) << log;
        let record_offset = bytes.next_multiple_of(QUEUE_ALIGN);
        let umem = Umem::register(&rail.devx, &memory(record_offset + QUEUE_ALIGN)?)?;
        let span = umem.memory().span();
        umem.memory().memory().fill(span.part(0, bytes), FRESH_BYTE)?;
        let (uar, eqn) = (place.uar.id(), rail.eqn());
        let shape = CqShape { umem: umem.id(), entries_offset: 0, record_offset, log_entries: log, uar, eqn };
        let cq = Cq::create(&rail.devx, &shape)?;
        let raw = sys::ibv_cq { channel: channel.cast_mut().cast(), ..Default::default() };
        let made = Box::new(Self {
            raw,
            cq,
            world: place.world.clone(),
            uar: place.uar.clone(),
            events: place.events.clone(),
            _umem: umem,
            base: span.address,
            record: span.address + record_offset,
            log,
            taken: RefCell::default(),
            events_taken: Cell::default(),
            members: RefCell::default(),
        });
        if !channel.is_null() {
            let cq = (&raw const *made).cast_mut().cast();
            place.events.tell_of(made.cq.number(), Some(Told { cq, channel }));
        }
        Ok(made)
    }

    /// The next completion makes an event, or one that was not taken does.
    pub fn arm(&self) {
        let (sequence, consumed) = (self.events_taken.get(), *self.taken.borrow() as u32);
        let arm = Arm { sequence, solicited_only: false, consumed };
        let platform = Host::new(&*self.world);
        // SAFETY: record and register are this object's own, and mapped while it lives.
        unsafe {
            platform.store_doorbell_record(pointer(self.record + ARM_WORD_OFFSET as u64), arm.to_record());
            platform.record_before_register();
            let register = self.uar.page() + CQ_ARM_OFFSET as u64;
            platform.store_register(pointer(register), arm.to_register(self.cq.number()));
        }
    }

    /// The program has taken an event of it.
    pub fn event_taken(&self) {
        self.events_taken.set(self.events_taken.get().wrapping_add(1) & 3);
    }

    /// Nothing is told of it any more.
    pub fn hush(&self) {
        self.events.tell_of(self.cq.number(), None);
        let channel: *const VerbsChannel = self.raw.channel.cast();
        if !channel.is_null() {
            // SAFETY: alive until this is destroyed, by who made it.
            unsafe { (*channel).forget((&raw const *self).cast_mut().cast()) };
        }
    }

    /// It has a completion that nobody has taken.
    pub fn has_more(&self) -> bool {
        let taken = *self.taken.borrow();
        let entry = self.base + taken % (1 << self.log) * CQE_BYTES as u64;
        Tail::from_memory(self.word(entry, TAIL_OFFSET).to_be()).belongs_to(taken, self.log)
    }

    fn word(&self, entry: u64, offset: usize) -> u32 {
        // SAFETY: entries lie in this object's own memory, and the NIC writes a tail after the rest of its entry.
        u32::from_be(unsafe { Host::new(&*self.world).load_cqe(pointer(entry + offset as u64)) })
    }

    /// The next completion.
    fn next(&self) -> Option<sys::ibv_wc> {
        loop {
            let mut taken = self.taken.borrow_mut();
            let entry = self.base + *taken % (1 << self.log) * CQE_BYTES as u64;
            let tail = Tail::from_memory(self.word(entry, TAIL_OFFSET).to_be());
            if !tail.belongs_to(*taken, self.log) {
                return None;
            }
            Host::new(&*self.world).cqe_before_data();
            *taken += 1;
            let qpn = self.word(entry, cqe::OPCODE_QPN_OFFSET) & 0xff_ffff;
            let found = self.members.borrow().iter().find(|(number, _)| *number == qpn).map(|(_, qp)| *qp);
            // Of one that was destroyed nothing is told.
            let Some(qp) = found else { continue };
            // SAFETY: who destroys it takes it off this queue before.
            return Some(unsafe { (*qp).completion(self, entry, tail) });
        }
    }

    /// Takes as many as there are room.
    pub fn poll(&self, to: &mut [sys::ibv_wc]) -> usize {
        let mut count = 0;
        while let Some(wc) = to.get_mut(count).and_then(|_| self.next()) {
            to[count] = wc;
            count += 1;
        }
        count
    }

    /// Nothing of this queue pair is told from now on.
    pub fn leave(&self, qpn: u32) {
        self.members.borrow_mut().retain(|(number, _)| *number != qpn);
    }
}

/// What libibverbs says of a syndrome. rdma-core, `mlx5_handle_error_cqe`.
fn status(syndrome: u8) -> u32 {
    match syndrome {
        0x01 => sys::IBV_WC_LOC_LEN_ERR,
        0x02 => sys::IBV_WC_LOC_QP_OP_ERR,
        0x04 => sys::IBV_WC_LOC_PROT_ERR,
        0x05 => sys::IBV_WC_WR_FLUSH_ERR,
        0x10 => sys::IBV_WC_BAD_RESP_ERR,
        0x11 => sys::IBV_WC_LOC_ACCESS_ERR,
        0x12 => sys::IBV_WC_REM_INV_REQ_ERR,
        0x13 => sys::IBV_WC_REM_ACCESS_ERR,
        0x14 => sys::IBV_WC_REM_OP_ERR,
        0x15 => sys::IBV_WC_RETRY_EXC_ERR,
        0x16 => sys::IBV_WC_RNR_RETRY_EXC_ERR,
        0x22 => sys::IBV_WC_REM_ABORT_ERR,
        _ => sys::IBV_WC_GENERAL_ERR,
    }
}

impl VerbsQp {
    /// Makes one, in RST, with as much room as is asked for.
    ///
    /// # Safety
    /// Both completion queues, and a queue of receives that it shares, are alive for as long as it is.
    pub unsafe fn make(place: &Place<'_>, attr: &sys::ibv_qp_init_attr) -> Result<Box<Self>, NicError> {
        let rail = place.rail;
        let logs =
            [attr.cap.max_send_wr, attr.cap.max_recv_wr].map(|wr| wr.max(4).next_power_of_two().ilog2());
        let shared = (!attr.srq.is_null()).then(|| attr.srq.cast_const().cast::<VerbsSrq>());
        let receive_bytes = if shared.is_some() { 0 } else { (SEGMENT_BYTES as u64) << logs[1] };
        let ring_bytes = receive_bytes + ((WQEBB_BYTES as u64) << logs[0]);
        let record_offset = ring_bytes.next_multiple_of(QUEUE_ALIGN);
        let umem = Umem::register(&rail.devx, &memory(record_offset + QUEUE_ALIGN)?)?;
        let base = umem.memory().span().address;
        // SAFETY: alive, by the caller.
        let cqs = [attr.send_cq, attr.recv_cq].map(|cq| unsafe { &*cq.cast::<VerbsCq>() });
        // SAFETY: alive, by the caller.
        let pool = shared.map(|shared| unsafe { (*shared).number });
        let shape = QpShape {
            pd: rail.pd(),
            uar: place.uar.id(),
            cqn: cqs[0].cq.number(),
            log_depth: logs[0],
            user_index: 0,
            umem: umem.id(),
            queue_offset: 0,
            record_offset,
            ts_format: rail.caps.ts_format,
            ece: false,
            receive: Some(ReceiveShape { cqn: cqs[1].cq.number(), log_requests: logs[1], pool }),
        };
        let qp = Qp::create(&rail.devx, &shape)?;
        let depths = logs.map(|log| 1 << log);
        let qp_base = sys::ibv_qp {
            qp_num: qp.number(),
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            ..Default::default()
        };
        let raw = sys::ibv_qp_ex { qp_base, ..Default::default() };
        let made = Box::new(Self {
            raw,
            qp,
            rail: rail.clone(),
            world: place.world.clone(),
            uar: place.uar.clone(),
            _umem: umem,
            base,
            record: base + record_offset,
            depths,
            all_signaled: attr.sq_sig_all != 0,
            counters: RefCell::default(),
            requests: RefCell::new(vec![(0, 0); depths[0] as usize]),
            receives: RefCell::new(vec![0; depths[1] as usize]),
            shared,
        });
        for cq in cqs {
            let member = (made.qp.number(), &raw const *made);
            cq.members.borrow_mut().retain(|(number, _)| *number != member.0);
            cq.members.borrow_mut().push(member);
        }
        Ok(made)
    }

    fn completion(&self, cq: &VerbsCq, entry: u64, tail: Tail) -> sys::ibv_wc {
        let mut counters = self.counters.borrow_mut();
        let error = matches!(tail.opcode, cqe::opcode::REQ_ERR | cqe::opcode::RESP_ERR);
        let mut wc = sys::ibv_wc { qp_num: self.qp.number(), ..Default::default() };
        if error {
            let word = cq.word(entry, cqe::SYNDROME_WORD_OFFSET);
            (wc.status, wc.vendor_err) = (status(word as u8), word >> 8 & 0xff);
        } else {
            wc.byte_len = cq.word(entry, cqe::BYTE_COUNT_OFFSET);
        }
        if matches!(tail.opcode, cqe::opcode::REQ | cqe::opcode::REQ_ERR) {
            let ahead = u64::from(tail.wqe_counter.wrapping_sub(counters.send_done as u16));
            let index = counters.send_done + ahead;
            counters.send_done = index + 1;
            let (wr_id, opcode) = self.requests.borrow()[(index % self.depths[0]) as usize];
            (wc.wr_id, wc.opcode) = (wr_id, opcode);
        } else {
            wc.wr_id = match self.shared {
                // SAFETY: alive for as long as this, by who made it.
                Some(shared) => unsafe { (*shared).completed(tail.wqe_counter) },
                None => {
                    counters.receive_done += 1;
                    self.receives.borrow()[((counters.receive_done - 1) % self.depths[1]) as usize]
                }
            };
            wc.opcode = sys::IBV_WC_RECV;
            if tail.opcode == cqe::opcode::RESP_WRITE_IMM {
                wc.opcode = sys::IBV_WC_RECV_RDMA_WITH_IMM;
            }
            wc.__bindgen_anon_1.imm_data = cq.word(entry, cqe::IMMEDIATE_OFFSET).to_be();
        }
        wc
    }

    /// Puts a request together: its block, and what its completion is called.
    ///
    /// # Safety
    /// The request's list of buffers, and inline data, are as it says.
    unsafe fn block(&self, wr: &sys::ibv_send_wr, index: u64) -> Option<(Vec<Segment>, u32)> {
        let (opcode, name) = match wr.opcode {
            sys::IBV_WR_SEND => (Opcode::Send, sys::IBV_WC_SEND),
            sys::IBV_WR_SEND_WITH_IMM => (Opcode::SendImm, sys::IBV_WC_SEND),
            sys::IBV_WR_RDMA_WRITE => (Opcode::RdmaWrite, sys::IBV_WC_RDMA_WRITE),
            sys::IBV_WR_RDMA_WRITE_WITH_IMM => (Opcode::RdmaWriteImm, sys::IBV_WC_RDMA_WRITE),
            sys::IBV_WR_RDMA_READ => (Opcode::RdmaRead, sys::IBV_WC_RDMA_READ),
            sys::IBV_WR_ATOMIC_FETCH_AND_ADD => (Opcode::AtomicFa, sys::IBV_WC_FETCH_ADD),
            sys::IBV_WR_ATOMIC_CMP_AND_SWP => (Opcode::AtomicCs, sys::IBV_WC_COMP_SWAP),
            _ => return None,
        };
        let mut segments: Vec<Segment> = vec![[0; 4]];
        // SAFETY: the words of these unions are plain, and the opcode says which of them count.
        unsafe {
            match opcode {
                Opcode::Send | Opcode::SendImm => {}
                Opcode::AtomicFa | Opcode::AtomicCs => {
                    let atomic = wr.wr.atomic;
                    let operands = match opcode {
                        Opcode::AtomicFa => wqe::operands8(atomic.compare_add, 0),
                        _ => wqe::operands8(atomic.swap, atomic.compare_add),
                    };
                    segments.push(wqe::remote(atomic.remote_addr, atomic.rkey.to_be()));
                    segments.push(operands);
                }
                _ => segments.push(wqe::remote(wr.wr.rdma.remote_addr, wr.wr.rdma.rkey.to_be())),
            }
        }
        for at in 0..usize::try_from(wr.num_sge).ok()? {
            // SAFETY: so many, by the caller.
            let sge = unsafe { *wr.sg_list.add(at) };
            if sge.length == 0 {
                continue;
            }
            if wr.send_flags & sys::IBV_SEND_INLINE == 0 {
                segments.push(wqe::data(sge.addr, sge.lkey.to_be(), sge.length));
                continue;
            }
            let mut bytes = (sge.length | INLINE_FLAG).to_be_bytes().to_vec();
            // SAFETY: the caller's memory, of this length.
            bytes.extend(unsafe { std::slice::from_raw_parts(pointer::<u8>(sge.addr), sge.length as usize) });
            bytes.resize(bytes.len().next_multiple_of(SEGMENT_BYTES), 0);
            for one in bytes.chunks_exact(4 * size_of::<u32>()) {
                let word = |n: usize| u32::from_ne_bytes([one[n], one[n + 1], one[n + 2], one[n + 3]]);
                segments.push([word(0), word(4), word(8), word(12)]);
            }
        }
        let signaled = self.all_signaled || wr.send_flags & sys::IBV_SEND_SIGNALED != 0;
        let mut flags = if signaled { CqeWhen::Always } else { CqeWhen::OnError } as u8;
        if wr.send_flags & sys::IBV_SEND_FENCE != 0 {
            flags |= FENCE_BEFORE;
        }
        if wr.send_flags & sys::IBV_SEND_SOLICITED != 0 {
            flags |= SOLICITED_EVENT;
        }
        let shifted = self.qp.number() << 8;
        segments[0] = wqe::ctrl(opcode, index as u16, shifted, segments.len() as u8, flags);
        // SAFETY: plain words.
        segments[0][3] = unsafe { wr.__bindgen_anon_1.imm_data };
        (segments.len() <= SEGMENTS).then_some((segments, name))
    }

    /// `post_send` of one request: 0, or an errno.
    ///
    /// # Safety
    /// As of its block.
    pub unsafe fn post_send(&self, wr: &sys::ibv_send_wr) -> i32 {
        let mut counters = self.counters.borrow_mut();
        if counters.sent - counters.send_done >= self.depths[0] {
            return ENOMEM;
        }
        let index = counters.sent;
        // SAFETY: forwarded to the caller.
        let Some((segments, name)) = (unsafe { self.block(wr, index) }) else { return EINVAL };
        self.requests.borrow_mut()[(index % self.depths[0]) as usize] = (wr.wr_id, name);
        counters.sent += 1;
        let receives = if self.shared.is_some() { 0 } else { self.depths[1] };
        let ring = self.base + SEGMENT_BYTES as u64 * receives;
        let at = ring + index % self.depths[0] * WQEBB_BYTES as u64;
        let platform = Host::new(&*self.world);
        // SAFETY: ring, record and register are this object's own and mapped while it lives; nobody else posts while
        // the counters are borrowed.
        unsafe {
            for (i, segment) in segments.into_iter().enumerate() {
                platform.store_segment(pointer::<u32>(at).add(4 * i), segment);
            }
            platform.wqes_before_publish();
            let record = self.record + SEND_COUNTER_OFFSET as u64;
            platform.store_doorbell_record(pointer(record), doorbell::send_counter(counters.sent));
            platform.record_before_register();
            let word = doorbell::register(counters.sent, self.qp.number() << 8);
            platform.store_register(pointer(self.uar.register()), word);
        }
        0
    }

    /// `post_recv` of one receive, of one buffer or none: 0, or an errno.
    ///
    /// # Safety
    /// Its list of buffers is as long as it says.
    pub unsafe fn post_recv(&self, wr: &sys::ibv_recv_wr) -> i32 {
        let mut counters = self.counters.borrow_mut();
        if counters.received - counters.receive_done >= self.depths[1] {
            return ENOMEM;
        }
        let segment = match wr.num_sge {
            0 => wqe::scatter_end(),
            1 => {
                // SAFETY: one, by the caller.
                let sge = unsafe { *wr.sg_list };
                wqe::data(sge.addr, sge.lkey.to_be(), sge.length)
            }
            _ => return EINVAL,
        };
        let slot = counters.received % self.depths[1];
        self.receives.borrow_mut()[slot as usize] = wr.wr_id;
        counters.received += 1;
        let platform = Host::new(&*self.world);
        // SAFETY: ring and record are this object's own and mapped while it lives.
        unsafe {
            platform.store_segment(pointer(self.base + slot * SEGMENT_BYTES as u64), segment);
            platform.wqes_before_publish();
            let record = self.record + RECEIVE_COUNTER_OFFSET as u64;
            platform.store_doorbell_record(pointer(record), doorbell::send_counter(counters.received));
        }
        0
    }

    /// Takes it off its completion queues.
    ///
    /// # Safety
    /// Both are alive.
    pub unsafe fn leave(&self) {
        for cq in [self.raw.qp_base.send_cq, self.raw.qp_base.recv_cq] {
            // SAFETY: alive, by the caller.
            unsafe { (*cq.cast::<VerbsCq>()).leave(self.qp.number()) };
        }
    }
}
