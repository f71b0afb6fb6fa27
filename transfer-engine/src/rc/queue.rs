//! A queue pair of a lane: RC, with a receive queue that immediates and parts of messages consume.

use crate::domain::Op;
use crate::message::PART_BYTES;
use shunt_device::platform::Platform;
use shunt_device::platform::host::{Host, World};
use shunt_layout::mlx5::cqe::{
    self, BYTE_COUNT_OFFSET, CQE_BYTES, FRESH_BYTE, IMMEDIATE_OFFSET, SYNDROME_OFFSET, Syndrome, TAIL_OFFSET,
    Tail,
};
use shunt_layout::mlx5::doorbell::{self, RECEIVE_COUNTER_OFFSET, SEND_COUNTER_OFFSET};
use shunt_layout::mlx5::wqe::{self, CqeWhen, Opcode, SEGMENT_BYTES, Segment, WQEBB_BYTES};
use shunt_mlx5::error::NicError;
use shunt_mlx5::memory::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_mlx5::nic::cq::{Cq, CqShape};
use shunt_mlx5::nic::mkey::{Access, Mkey};
use shunt_mlx5::nic::qp::{Qp, QpShape, ReceiveShape};
use shunt_mlx5::nic::uar::Uar;
use shunt_mlx5::nic::umem::{QUEUE_ALIGN, Umem};
use shunt_mlx5::rail::Rail;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// log2 of both rings.
const LOG: u32 = 7;
/// Requests of a ring.
pub(super) const DEPTH: u64 = 1 << LOG;
/// The receive queue lies in front of the send queue.
const SEND_RING_AT: u64 = DEPTH * SEGMENT_BYTES as u64;
const SEND_CQ_AT: u64 = QUEUE_ALIGN;
const RECEIVE_CQ_AT: u64 = 2 * QUEUE_ALIGN;
const RECORDS_AT: u64 = 3 * QUEUE_ALIGN;
const LINE: u64 = 64;
/// Each slot of either ring has a part of a message of its own, which a SEND brings from one end to the other.
const PART: u64 = PART_BYTES as u64;
const RECEIVED_AT: u64 = 4 * QUEUE_ALIGN;
const SENT_AT: u64 = RECEIVED_AT + DEPTH * PART;
const TOTAL: u64 = SENT_AT + DEPTH * PART;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// What it does.
    pub op: Op,
    /// The bytes of a SEND.
    pub part: &'a [u8],
    /// Memory of this end, its bytes, its key as NICs read it.
    pub local: (u64, u32, u32),
    /// Memory of the other, and its key as NICs read it.
    pub remote: (u64, u32),
}

/// A number that the thread of the domain changes, which posts and polls, its probes included. Workers, which make and
/// fence the queue pair, do neither. No lock: a step of the simulator may be another actor's turn.
#[derive(Default)]
struct Counter(AtomicU64);

impl Counter {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The queue pair, its rings and its memory. Fields are dropped in this order.
pub(super) struct Queue {
    pub qp: Qp,
    cqs: [Cq; 2],
    uar: Uar,
    key: Mkey,
    umem: Umem,
    base: u64,
    posted: Counter,
    completed: Counter,
    /// Completions of the receive queue that were read: of immediates, and of what was flushed.
    received: Counter,
    /// Of these, what peers sent.
    came: Counter,
    /// That number was told: nothing more is taken.
    told: AtomicBool,
    gone: AtomicBool,
}

impl Queue {
    /// Makes one in RST.
    pub fn make(rail: &Arc<Rail>) -> Result<Self, NicError> {
        let devx = &rail.devx;
        let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let umem = Umem::register(devx, &OwnedSpan::alloc(&memory, TOTAL, Placement::Control)?)?;
        let span = umem.memory().span();
        let key = Mkey::create(devx, rail.pd(), &umem, RECEIVED_AT..TOTAL, Access::Local)?;
        memory.fill(span.part(SEND_CQ_AT, RECORDS_AT - SEND_CQ_AT), FRESH_BYTE)?;
        let uar = Uar::map(devx)?;
        let cq = |entries_offset, line: u64| {
            let (umem, uar, eqn) = (umem.id(), uar.id(), rail.eqn());
            let record_offset = RECORDS_AT + line * LINE;
            Cq::create(devx, &CqShape { umem, entries_offset, record_offset, log_entries: LOG, uar, eqn })
        };
        let cqs = [cq(SEND_CQ_AT, 1)?, cq(RECEIVE_CQ_AT, 2)?];
        let shape = QpShape {
            pd: rail.pd(),
            uar: uar.id(),
            cqn: cqs[0].number(),
            log_depth: LOG,
            user_index: 0,
            umem: umem.id(),
            queue_offset: 0,
            record_offset: RECORDS_AT,
            ts_format: rail.caps.ts_format,
            ece: false,
            receive: Some(ReceiveShape { cqn: cqs[1].number(), log_requests: LOG, pool: None }),
        };
        let qp = Qp::create(devx, &shape)?;
        for slot in 0..DEPTH {
            let buffer = wqe::data(span.address + RECEIVED_AT + slot * PART, key.key_be(), PART as u32);
            let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
            memory.write(span.address + slot * SEGMENT_BYTES as u64, &bytes)?;
        }
        Ok(Self {
            qp,
            cqs,
            uar,
            key,
            umem,
            base: span.address,
            posted: Counter::default(),
            completed: Counter::default(),
            received: Counter::default(),
            came: Counter::default(),
            told: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    /// Number of the send queue's completion queue.
    pub fn cqn(&self) -> u32 {
        self.cqs[0].number()
    }

    /// Its NIC has destroyed it: no completion comes any more.
    pub fn destroyed(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// See [`Queue::destroyed`].
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Posts every receive of one that was made just now.
    pub fn post_receives(&self, world: &dyn World) {
        self.top_up(world, 0);
    }

    fn top_up(&self, world: &dyn World, received: u64) {
        let at = self.base + RECORDS_AT + RECEIVE_COUNTER_OFFSET as u64;
        // SAFETY: the record is this object's own, in memory that `umem` keeps.
        unsafe {
            Host::new(world).store_doorbell_record(pointer(at), doorbell::send_counter(received + DEPTH))
        }
    }

    /// How many receives peers took. The sender sends again what it does not cover, so nothing more is taken.
    pub fn tell_came(&self) -> u64 {
        self.told.store(true, Ordering::Release);
        self.came.get()
    }

    /// Index of the next request.
    pub fn next(&self) -> u64 {
        self.posted.get()
    }

    /// True if so many more requests fit.
    pub fn has_room(&self, requests: usize) -> bool {
        self.posted.get() + requests as u64 - self.completed.get() <= DEPTH
    }

    /// Posts requests and rings the doorbell once. There is room for them.
    ///
    /// # Errors
    /// The memory of a part cannot be written.
    pub fn post<'a>(
        &self,
        world: &dyn World,
        requests: impl IntoIterator<Item = Request<'a>>,
    ) -> Result<(), NicError> {
        let mut posted = self.posted.get();
        let shifted = self.qp.number() << 8;
        let platform = Host::new(world);
        for request in requests {
            let (segments, count) = self.placed(request, posted)?.segments(posted, shifted);
            let ring = self.base + SEND_RING_AT + posted % DEPTH * WQEBB_BYTES as u64;
            for (i, segment) in segments.into_iter().take(count).enumerate() {
                // SAFETY: the ring is this object's own, in memory that `umem` keeps; one thread posts, and its caller
                // knows that the slot is free.
                unsafe { platform.store_segment(pointer::<u32>(ring).add(4 * i), segment) };
            }
            posted += 1;
        }
        self.posted.set(posted);
        let record = self.base + RECORDS_AT + SEND_COUNTER_OFFSET as u64;
        // SAFETY: record and register are this object's own, and `umem` and `uar` keep them mapped; one thread
        // posts.
        unsafe {
            platform.wqes_before_publish();
            platform.store_doorbell_record(pointer(record), doorbell::send_counter(posted));
            platform.record_before_register();
            platform.store_register(pointer(self.uar.register()), doorbell::register(posted, shifted));
        }
        Ok(())
    }

    /// A request whose bytes, if it brings its own or they are of no use, lie in the memory of its slot.
    fn placed<'a>(&self, request: Request<'a>, number: u64) -> Result<Request<'a>, NicError> {
        let at = self.base + SENT_AT + number % DEPTH * PART;
        let len = match request.op {
            Op::Send => {
                self.umem.memory().memory().write(at, request.part)?;
                request.part.len() as u32
            }
            Op::Flush => 1,
            Op::Write(_) | Op::Read => return Ok(request),
        };
        Ok(Request { local: (at, len, self.key.key_be()), ..request })
    }

    fn entry(&self, cq_at: u64, number: u64) -> u64 {
        self.base + cq_at + number % DEPTH * CQE_BYTES as u64
    }

    fn tail(&self, world: &dyn World, cq_at: u64, number: u64) -> Option<Tail> {
        let entry = self.entry(cq_at, number);
        // SAFETY: entries lie in this object's own memory, which `umem` keeps.
        let word = unsafe { Host::new(world).load_cqe(pointer(entry + TAIL_OFFSET as u64)) };
        let tail = Tail::from_memory(word);
        tail.belongs_to(number, LOG).then(|| Host::new(world).cqe_before_data()).map(|()| tail)
    }

    /// Looks once at the oldest request that is not complete: its index, and why it was not executed, if it was not.
    pub fn poll_sent(&self, world: &dyn World) -> Option<(u64, Result<(), Syndrome>)> {
        let at = self.completed.get();
        let tail = self.tail(world, SEND_CQ_AT, at)?;
        let failed = tail.opcode != cqe::opcode::REQ;
        let syndrome = failed.then(|| {
            let mut byte = [0];
            let at = self.entry(SEND_CQ_AT, at) + SYNDROME_OFFSET as u64;
            // One that cannot be read says nothing.
            let _ = self.umem.memory().memory().read(at, &mut byte);
            Syndrome(byte[0])
        });
        self.completed.set(at + 1);
        Some((at, syndrome.map_or(Ok(()), Err)))
    }

    /// Takes the immediates and parts of messages that have arrived, and posts their receives again. What was flushed
    /// is passed over.
    ///
    /// # Errors
    /// A completion cannot be read.
    pub fn poll_received(&self, world: &dyn World, mut came: impl FnMut(Came)) -> Result<(), NicError> {
        let before = self.received.get();
        let (mut received, mut taken) = (before, self.came.get());
        if self.told.load(Ordering::Acquire) {
            return Ok(());
        }
        while let Some(tail) = self.tail(world, RECEIVE_CQ_AT, received) {
            let (entry, memory) = (self.entry(RECEIVE_CQ_AT, received), self.umem.memory().memory());
            let word = |offset: usize| {
                let mut bytes = [0; 4];
                memory.read(entry + offset as u64, &mut bytes)?;
                Ok::<_, NicError>(u32::from_be_bytes(bytes))
            };
            match tail.opcode {
                cqe::opcode::RESP_WRITE_IMM => {
                    came(Came::Imm(word(IMMEDIATE_OFFSET)?));
                    taken += 1;
                }
                cqe::opcode::RESP_SEND => {
                    let mut part = vec![0; (word(BYTE_COUNT_OFFSET)? as usize).min(PART_BYTES)];
                    memory.read(self.base + RECEIVED_AT + received % DEPTH * PART, &mut part)?;
                    came(Came::Part(part));
                    taken += 1;
                }
                _ => {}
            }
            received += 1;
            self.received.set(received);
            self.came.set(taken);
        }
        if received != before {
            self.top_up(world, received);
        }
        Ok(())
    }
}

/// What a receive brought.
pub(super) enum Came {
    /// An immediate.
    Imm(u32),
    /// A part of a message.
    Part(Vec<u8>),
}

impl Request<'_> {
    /// A WRITE of nothing.
    pub const NOTHING: Self = Self { op: Op::Write(None), part: &[], local: (0, 0, 0), remote: (0, 0) };

    /// Its segments, and how many it has.
    fn segments(self, index: u64, shifted: u32) -> ([Segment; 3], usize) {
        let Self { op, local: (local, len, lkey_be), remote: (remote, rkey_be), .. } = self;
        let (opcode, imm) = match op {
            Op::Write(None) => (Opcode::RdmaWrite, 0),
            Op::Write(Some(imm)) => (Opcode::RdmaWriteImm, imm),
            Op::Read | Op::Flush => (Opcode::RdmaRead, 0),
            Op::Send => (Opcode::Send, 0),
        };
        // A SEND names no memory of the peer, and always has bytes.
        let is_send = opcode == Opcode::Send;
        let count = if is_send || len == 0 { 2 } else { 3 };
        let ctrl = wqe::ctrl(opcode, index as u16, shifted, count as u8, CqeWhen::Always as u8);
        let ctrl = wqe::with_immediate(ctrl, imm);
        let (remote, data) = (wqe::remote(remote, rkey_be), wqe::data(local, lkey_be, len));
        (if is_send { [ctrl, data, data] } else { [ctrl, remote, data] }, count)
    }
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
