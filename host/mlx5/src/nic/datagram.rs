//! One unreliable datagram queue pair of a rail: agents send each other small messages over it when their own link is
//! cut. PRM: "CREATE_QP", transitions of UD.
//!
//! Posting and polling touch memory alone, so an agent does both in its loop. Nothing here waits: a message that finds
//! no room is lost like one that the network lost.

use super::cq::{Cq, CqShape};
use super::mkey::{Access, Mkey};
use super::pd::Pd;
use super::qp::{ContextMailbox, with_context};
use super::uar::Uar;
use super::umem::{QUEUE_ALIGN, Umem};
use super::{create, destroy, execute};
use crate::devx::Devx;
use crate::error::NicError;
use crate::memory::{GpuMemory, HeapMemory, OwnedSpan, Placement, Span};
use shunt_device::platform::Platform;
use shunt_device::platform::host::{Host, World};
use shunt_layout::mlx5::cqe::{
    self, BYTE_COUNT_OFFSET, CQE_BYTES, FRESH_BYTE, SYNDROME_WORD_OFFSET, TAIL_OFFSET, Tail,
};
use shunt_layout::mlx5::doorbell::{self, RECEIVE_COUNTER_OFFSET, SEND_COUNTER_OFFSET};
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::mlx5::prm::qp::{
    ADS_OFFSET, PM_STATE_MIGRATED, QPC_OFFSET, RQ_TYPE_REGULAR, SERVICE_UD, ads, create as fields, qpc,
};
use shunt_layout::mlx5::wqe::{self, AddressVector, CqeWhen, Opcode as Work, SEGMENT_BYTES, WQEBB_BYTES};
use std::sync::Arc;

/// Bytes in front of every datagram that arrives: room for its GRH.
const GRH_BYTES: usize = 40;
/// Bytes of a buffer.
const BUFFER_BYTES: usize = 256;
/// Longest message.
pub const MESSAGE_MAX: usize = BUFFER_BYTES - GRH_BYTES;
/// log2 of the messages that may wait to be sent.
const LOG_SENDS: u32 = 7;
/// log2 of the messages that may wait to be read: those of a storm between two looks of the agent.
const LOG_RECEIVES: u32 = 10;
/// Blocks of a send request: control, three segments of address, data.
const BLOCKS: u64 = 2;
const LOG_BLOCKS: u32 = LOG_SENDS + BLOCKS.ilog2();
/// Largest message of the QP context, log2: more than a packet is not a datagram.
const LOG_MSG_MAX: u32 = 12;
const PAGE: u64 = 4096;
const LINE: u64 = 64;

const RECEIVE_RING: u64 = (SEGMENT_BYTES as u64) << LOG_RECEIVES;
const SEND_RING: u64 = (WQEBB_BYTES as u64) << LOG_BLOCKS;
/// The receive queue lies in front of the send queue.
const SEND_RING_AT: u64 = RECEIVE_RING;
const SEND_CQ_AT: u64 = (SEND_RING_AT + SEND_RING).next_multiple_of(QUEUE_ALIGN);
const RECEIVE_CQ_AT: u64 = (SEND_CQ_AT + ((CQE_BYTES as u64) << LOG_SENDS)).next_multiple_of(QUEUE_ALIGN);
const RECORDS_AT: u64 = RECEIVE_CQ_AT + ((CQE_BYTES as u64) << LOG_RECEIVES);
const SEND_BUFFERS_AT: u64 = RECORDS_AT + PAGE;
const RECEIVE_BUFFERS_AT: u64 = SEND_BUFFERS_AT + ((BUFFER_BYTES as u64) << LOG_SENDS);
const TOTAL: u64 = RECEIVE_BUFFERS_AT + ((BUFFER_BYTES as u64) << LOG_RECEIVES);
const _: () = assert!(SEND_CQ_AT.is_multiple_of(QUEUE_ALIGN) && RECEIVE_CQ_AT.is_multiple_of(QUEUE_ALIGN));
const _: () = assert!(RECORDS_AT.is_multiple_of(PAGE) && WQEBB_BYTES * BLOCKS as usize >= 5 * SEGMENT_BYTES);

/// Arguments of CREATE_QP.
#[derive(Clone, Copy, Debug)]
pub struct DatagramShape {
    /// Protection domain.
    pub pd: u32,
    /// UAR page of the doorbell.
    pub uar: u32,
    /// CQ of the send queue.
    pub send_cqn: u32,
    /// CQ of the receive queue.
    pub receive_cqn: u32,
    /// log2 of the send queue's blocks.
    pub log_send: u32,
    /// log2 of the receive queue's requests, of one segment each.
    pub log_receive: u32,
    /// Umem of both queues and of the doorbell record.
    pub umem: u32,
    /// Offset of the receive queue, a multiple of 4 KiB; the send queue follows it.
    pub queue_offset: u64,
    /// Offset of the doorbell record.
    pub record_offset: u64,
    /// Format of time stamps.
    pub ts_format: u32,
}

/// CREATE_QP of a datagram queue pair with a receive queue of its own.
pub fn create_in(shape: &DatagramShape) -> ContextMailbox {
    let mut mailbox = with_context(Opcode::CreateQp, 0);
    fields::WQ_UMEM_OFFSET.set(&mut mailbox, shape.queue_offset);
    fields::WQ_UMEM_ID.set(&mut mailbox, shape.umem);
    fields::WQ_UMEM_VALID.set(&mut mailbox, 1);
    let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
    qpc::ST.set(context, SERVICE_UD);
    qpc::PM_STATE.set(context, PM_STATE_MIGRATED);
    qpc::PD.set(context, shape.pd);
    qpc::LOG_SQ_SIZE.set(context, shape.log_send);
    qpc::LOG_RQ_SIZE.set(context, shape.log_receive);
    qpc::LOG_RQ_STRIDE.set(context, 0);
    qpc::TS_FORMAT.set(context, shape.ts_format);
    qpc::UAR_PAGE.set(context, shape.uar);
    qpc::CQN_SND.set(context, shape.send_cqn);
    qpc::CQN_RCV.set(context, shape.receive_cqn);
    qpc::DBR_ADDR.set(context, shape.record_offset);
    qpc::RQ_TYPE.set(context, RQ_TYPE_REGULAR);
    qpc::DBR_UMEM_VALID.set(context, 1);
    qpc::DBR_UMEM_ID.set(context, shape.umem);
    mailbox
}

/// RST2INIT: port 1, its partition, and the key that datagrams must carry.
pub fn init_in(qpn: u32, qkey: u32, pkey_index: u16) -> ContextMailbox {
    let mut mailbox = with_context(Opcode::Rst2InitQp, qpn);
    let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
    qpc::PM_STATE.set(context, PM_STATE_MIGRATED);
    qpc::Q_KEY.set(context, qkey);
    ads::PKEY_INDEX.set(&mut context[ADS_OFFSET..], pkey_index.into());
    ads::VHCA_PORT_NUM.set(&mut context[ADS_OFFSET..], 1);
    mailbox
}

/// INIT2RTR: nobody is connected to; `mtu` is the code of the largest datagram.
pub fn rtr_in(qpn: u32, mtu: u32) -> ContextMailbox {
    let mut mailbox = with_context(Opcode::Init2RtrQp, qpn);
    let context = &mut mailbox[QPC_OFFSET..QPC_OFFSET + qpc::BYTES];
    qpc::MTU.set(context, mtu);
    qpc::LOG_MSG_MAX.set(context, LOG_MSG_MAX);
    ads::VHCA_PORT_NUM.set(&mut context[ADS_OFFSET..], 1);
    mailbox
}

/// RTR2RTS.
pub fn rts_in(qpn: u32) -> ContextMailbox {
    with_context(Opcode::Rtr2RtsQp, qpn)
}

/// A queue pair number that destroys its object.
struct Number {
    devx: Arc<dyn Devx>,
    qpn: u32,
}

impl Drop for Number {
    fn drop(&mut self) {
        destroy(&*self.devx, Opcode::DestroyQp, self.qpn);
    }
}

/// What a datagram queue pair is made of.
pub(crate) struct DatagramSource<'a> {
    pub devx: &'a Arc<dyn Devx>,
    pub world: &'a dyn World,
    pub pd: &'a Pd,
    pub eqn: u32,
    /// MTU code of the port.
    pub mtu: u32,
    /// Format of time stamps.
    pub ts_format: u32,
    /// Index of the port's partition key.
    pub pkey_index: u16,
    /// Key that datagrams must carry to be let in.
    pub qkey: u32,
}

/// Memory and objects, dropped in this order: the queue pair goes before its CQs, both before their memory.
struct Objects {
    qp: Number,
    _cqs: [Cq; 2],
    uar: Uar,
    key: Mkey,
    umem: Umem,
}

impl Objects {
    fn open(source: &DatagramSource<'_>) -> Result<Self, NicError> {
        let devx = source.devx;
        let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let umem = Umem::register(devx, &OwnedSpan::alloc(&memory, TOTAL, Placement::Control)?)?;
        let key = Mkey::create(devx, source.pd.id(), &umem, SEND_BUFFERS_AT..TOTAL, Access::Local)?;
        let span = umem.memory().span();
        memory.fill(span.part(SEND_CQ_AT, RECORDS_AT - SEND_CQ_AT), FRESH_BYTE)?;
        let uar = Uar::map(devx)?;
        let cq = |entries_offset, record: u64, log_entries| {
            let record_offset = RECORDS_AT + record * LINE;
            let (umem, uar, eqn) = (umem.id(), uar.id(), source.eqn);
            Cq::create(devx, &CqShape { umem, entries_offset, record_offset, log_entries, uar, eqn })
        };
        let cqs = [cq(SEND_CQ_AT, 1, LOG_SENDS)?, cq(RECEIVE_CQ_AT, 2, LOG_RECEIVES)?];
        let shape = DatagramShape {
            pd: source.pd.id(),
            uar: uar.id(),
            send_cqn: cqs[0].number(),
            receive_cqn: cqs[1].number(),
            log_send: LOG_BLOCKS,
            log_receive: LOG_RECEIVES,
            umem: umem.id(),
            queue_offset: 0,
            record_offset: RECORDS_AT,
            ts_format: source.ts_format,
        };
        let qp = Number { devx: devx.clone(), qpn: create(&**devx, &create_in(&shape))? };
        execute::<16>(&**devx, &init_in(qp.qpn, source.qkey, source.pkey_index))?;
        Ok(Self { qp, _cqs: cqs, uar, key, umem })
    }

    fn span(&self) -> Span {
        self.umem.memory().span()
    }

    fn memory(&self) -> &dyn GpuMemory {
        &**self.umem.memory().memory()
    }
}

/// A rail's datagram queue pair, sending and receiving.
pub struct Datagrams {
    objects: Objects,
    /// First address of the memory.
    base: u64,
    sent: u64,
    completed: u64,
    received: u64,
    /// Syndrome and vendor syndrome that ended it.
    broken: Option<(u8, u8)>,
}

impl Datagrams {
    /// Makes the queue pair and brings it to RTS, all receive buffers posted.
    pub(crate) fn open(source: &DatagramSource<'_>) -> Result<Self, NicError> {
        let objects = Objects::open(source)?;
        let base = objects.span().address;
        let (memory, lkey_be) = (objects.memory(), objects.key.key_be());
        for slot in 0..1u64 << LOG_RECEIVES {
            let buffer = base + RECEIVE_BUFFERS_AT + slot * BUFFER_BYTES as u64;
            let segment = wqe::data(buffer, lkey_be, BUFFER_BYTES as u32);
            let bytes: Vec<u8> = segment.iter().flat_map(|word| word.to_ne_bytes()).collect();
            memory.write(base + slot * SEGMENT_BYTES as u64, &bytes)?;
        }
        let made = Self { objects, base, sent: 0, completed: 0, received: 0, broken: None };
        made.post_receives(source.world);
        let qpn = made.qpn();
        execute::<16>(&**source.devx, &rtr_in(qpn, source.mtu))?;
        execute::<16>(&**source.devx, &rts_in(qpn))?;
        Ok(made)
    }

    /// Its number.
    pub fn qpn(&self) -> u32 {
        self.objects.qp.qpn
    }

    /// Syndrome and vendor syndrome that ended it; `None` while it works.
    pub fn broken(&self) -> Option<(u8, u8)> {
        self.broken
    }

    /// Every buffer that was read is given back.
    fn post_receives(&self, world: &dyn World) {
        let at = self.base + RECORDS_AT + RECEIVE_COUNTER_OFFSET as u64;
        let counter = doorbell::send_counter(self.received + (1 << LOG_RECEIVES));
        // SAFETY: the record is this object's own.
        unsafe { Host::new(world).store_doorbell_record(pointer(at), counter) }
    }

    /// Sends a message. False if it cannot be sent now: there is no room, or the queue pair ended.
    pub fn send(&mut self, world: &dyn World, to: &AddressVector, message: &[u8]) -> bool {
        self.reap(world);
        let fits = message.len() <= MESSAGE_MAX && self.sent - self.completed < 1 << LOG_SENDS;
        if self.broken.is_some() || !fits || message.is_empty() {
            return false;
        }
        let slot = self.sent & ((1 << LOG_SENDS) - 1);
        let buffer = self.base + SEND_BUFFERS_AT + slot * BUFFER_BYTES as u64;
        if self.objects.memory().write(buffer, message).is_err() {
            return false;
        }
        let index = self.sent * BLOCKS;
        let shifted = self.qpn() << 8;
        let [a, b, c] = to.segments();
        let segments = [
            wqe::ctrl(Work::Send, index as u16, shifted, 5, CqeWhen::Always as u8),
            a,
            b,
            c,
            wqe::data(buffer, self.objects.key.key_be(), message.len() as u32),
        ];
        let ring = self.base + SEND_RING_AT + (index & ((1 << LOG_BLOCKS) - 1)) * WQEBB_BYTES as u64;
        let platform = Host::new(world);
        self.sent += 1;
        let (next, record) = (self.sent * BLOCKS, self.base + RECORDS_AT + SEND_COUNTER_OFFSET as u64);
        let register = self.objects.uar.register();
        // SAFETY: ring, record and register are this object's own and mapped while it lives; a request takes whole
        // blocks of the ring, which does not wrap inside one; `&mut self` makes this the only producer.
        unsafe {
            for (i, segment) in segments.into_iter().enumerate() {
                platform.store_segment(pointer::<u32>(ring).add(4 * i), segment);
            }
            platform.wqes_before_publish();
            platform.store_doorbell_record(pointer(record), doorbell::send_counter(next));
            platform.record_before_register();
            platform.store_register(pointer(register), doorbell::register(next, shifted));
        }
        true
    }

    fn tail(&self, world: &dyn World, entry: u64) -> Tail {
        // SAFETY: entries lie in this object's own memory.
        Tail::from_memory(unsafe { Host::new(world).load_cqe(pointer(entry + TAIL_OFFSET as u64)) })
    }

    fn fails(&mut self, world: &dyn World, entry: u64) {
        // SAFETY: as in `tail`.
        let word = unsafe { Host::new(world).load32(pointer(entry + SYNDROME_WORD_OFFSET as u64)) };
        let [_, _, vendor, syndrome] = word.to_le_bytes();
        self.broken.get_or_insert((syndrome, vendor));
    }

    /// Takes the completions of what was sent.
    fn reap(&mut self, world: &dyn World) {
        while self.completed < self.sent {
            let slot = self.completed & ((1 << LOG_SENDS) - 1);
            let entry = self.base + SEND_CQ_AT + slot * CQE_BYTES as u64;
            let tail = self.tail(world, entry);
            if !tail.belongs_to(self.completed, LOG_SENDS) {
                return;
            }
            self.completed += 1;
            if tail.opcode != cqe::opcode::REQ {
                self.fails(world, entry);
            }
        }
    }

    /// The next message that has arrived: its length, and its bytes in `into`.
    pub fn receive(&mut self, world: &dyn World, into: &mut [u8; MESSAGE_MAX]) -> Option<usize> {
        loop {
            let slot = self.received & ((1 << LOG_RECEIVES) - 1);
            let entry = self.base + RECEIVE_CQ_AT + slot * CQE_BYTES as u64;
            let tail = self.tail(world, entry);
            if !tail.belongs_to(self.received, LOG_RECEIVES) {
                return None;
            }
            let platform = Host::new(world);
            platform.cqe_before_data();
            if !matches!(tail.opcode, cqe::opcode::RESP_SEND | cqe::opcode::RESP_SEND_IMM) {
                self.received += 1;
                self.fails(world, entry);
                continue;
            }
            // SAFETY: as in `tail`.
            let count = unsafe { platform.load32(pointer(entry + BYTE_COUNT_OFFSET as u64)) };
            let bytes = (u32::from_be(count) as usize).saturating_sub(GRH_BYTES).min(MESSAGE_MAX);
            let buffer = u64::from(tail.wqe_counter) & ((1 << LOG_RECEIVES) - 1);
            let from = self.base + RECEIVE_BUFFERS_AT + buffer * BUFFER_BYTES as u64 + GRH_BYTES as u64;
            let read = self.objects.memory().read(from, &mut into[..bytes]);
            self.received += 1;
            self.post_receives(world);
            if read.is_ok() {
                return Some(bytes);
            }
        }
    }
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
