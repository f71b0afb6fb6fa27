//! A queue pair of a process: RC, with a receive queue whose buffers are posted as soon as it is made.

use std::sync::{Arc, Mutex};

use shunt_device::platform::Platform;
use shunt_device::platform::host::{Host, World};
use shunt_host::agent::endpoint::{Endpoint, Half, Maker, Prober};
use shunt_host::connect::card::HalfCard;
use shunt_host::error::NicError;
use shunt_host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt_host::nic::cq::{Cq, CqShape};
use shunt_host::nic::mkey::{Access, Mkey};
use shunt_host::nic::qp::{MASK_24, Qp, QpShape, QpTruth, QpTuning, ReceiveShape, RemoteEnd};
use shunt_host::nic::uar::Uar;
use shunt_host::nic::umem::{QUEUE_ALIGN, Umem};
use shunt_host::rail::Rail;
use shunt_layout::mlx5::cqe::{self, CQE_BYTES, FRESH_BYTE, TAIL_OFFSET, Tail};
use shunt_layout::mlx5::doorbell::{self, RECEIVE_COUNTER_OFFSET, SEND_COUNTER_OFFSET};
use shunt_layout::mlx5::wqe::{self, CqeWhen, Opcode, SEGMENT_BYTES, Segment, WQEBB_BYTES};

/// log2 of both rings.
const LOG: u32 = 6;
/// Requests of a ring.
pub(super) const DEPTH: u64 = 1 << LOG;
const BUFFER_BYTES: u64 = 64;
/// The receive queue lies in front of the send queue.
const SEND_RING_AT: u64 = DEPTH * SEGMENT_BYTES as u64;
const SEND_CQ_AT: u64 = QUEUE_ALIGN;
const RECEIVE_CQ_AT: u64 = 2 * QUEUE_ALIGN;
const RECORDS_AT: u64 = 3 * QUEUE_ALIGN;
const LINE: u64 = 64;
const BUFFERS_AT: u64 = 4 * QUEUE_ALIGN;
const TOTAL: u64 = BUFFERS_AT + DEPTH * BUFFER_BYTES;

/// Every queue pair that was made for the paths of a process, by (key, incarnation), for those who post on them.
pub(super) type Made = Arc<Mutex<Vec<((usize, u32), Arc<Queue>)>>>;

/// What one work request does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// SEND of a number.
    Send(u64),
    /// WRITE of a number.
    Write {
        /// The number.
        value: u64,
        /// Where.
        to: u64,
        /// Under which key, big-endian.
        rkey_be: u32,
    },
    /// WRITE of nothing.
    Nothing,
}

#[derive(Default)]
struct Counters {
    posted: u64,
    completed: u64,
    received: u64,
}

/// The queue pair, its rings and its memory. Fields are dropped in this order.
pub(super) struct Queue {
    qp: Qp,
    cqs: [Cq; 2],
    uar: Uar,
    _key: Mkey,
    umem: Umem,
    base: u64,
    counters: Mutex<Counters>,
}

impl Queue {
    fn make(rail: &Arc<Rail>) -> Result<Self, NicError> {
        let devx = &rail.devx;
        let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let umem = Umem::register(devx, &OwnedSpan::alloc(&memory, TOTAL, Placement::Control)?)?;
        let span = umem.memory().span();
        let key = Mkey::create(devx, rail.pd(), &umem, BUFFERS_AT..TOTAL, Access::Local)?;
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
            let buffer =
                wqe::data(span.address + BUFFERS_AT + slot * BUFFER_BYTES, key.key_be(), BUFFER_BYTES as u32);
            let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
            memory.write(span.address + slot * SEGMENT_BYTES as u64, &bytes)?;
        }
        Ok(Self { qp, cqs, uar, _key: key, umem, base: span.address, counters: Mutex::default() })
    }

    fn memory(&self) -> &dyn GpuMemory {
        &**self.umem.memory().memory()
    }

    /// Every buffer that was read is given back.
    fn post_receives(&self, world: &dyn World, received: u64) {
        let at = self.base + RECORDS_AT + RECEIVE_COUNTER_OFFSET as u64;
        // SAFETY: the record is this object's own.
        unsafe {
            Host::new(world).store_doorbell_record(pointer(at), doorbell::send_counter(received + DEPTH))
        }
    }

    /// Index of the next request.
    pub(super) fn next(&self) -> u64 {
        self.counters.lock().expect("one thread").posted
    }

    /// True if one more request fits.
    pub(super) fn has_room(&self) -> bool {
        let counters = self.counters.lock().expect("one thread");
        counters.posted - counters.completed < DEPTH
    }

    /// Posts a request and rings the doorbell. There is room for it.
    pub(super) fn post(&self, world: &dyn World, work: Work) {
        let mut counters = self.counters.lock().expect("one thread");
        let (index, shifted) = (counters.posted, self.qp.number() << 8);
        let ctrl = |opcode, ds| wqe::ctrl(opcode, index as u16, shifted, ds, CqeWhen::Always as u8);
        let segments: [Segment; 3] = match work {
            Work::Send(value) => [ctrl(Opcode::Send, 2), wqe::inline8(value), [0; 4]],
            Work::Write { value, to, rkey_be } => {
                [ctrl(Opcode::RdmaWrite, 3), wqe::remote(to, rkey_be), wqe::inline8(value)]
            }
            Work::Nothing => [ctrl(Opcode::RdmaWrite, 2), wqe::remote(0, 0), [0; 4]],
        };
        counters.posted += 1;
        let ring = self.base + SEND_RING_AT + index % DEPTH * WQEBB_BYTES as u64;
        let record = self.base + RECORDS_AT + SEND_COUNTER_OFFSET as u64;
        let platform = Host::new(world);
        // SAFETY: ring, record and register are this object's own and mapped while it lives; the lock makes this the
        // only producer.
        unsafe {
            for (i, segment) in segments.into_iter().enumerate() {
                platform.store_segment(pointer::<u32>(ring).add(4 * i), segment);
            }
            platform.wqes_before_publish();
            platform.store_doorbell_record(pointer(record), doorbell::send_counter(counters.posted));
            platform.record_before_register();
            platform
                .store_register(pointer(self.uar.register()), doorbell::register(counters.posted, shifted));
        }
    }

    fn tail(&self, world: &dyn World, cq_at: u64, number: u64) -> Option<Tail> {
        let entry = self.base + cq_at + number % DEPTH * CQE_BYTES as u64;
        // SAFETY: entries lie in this object's own memory.
        let tail =
            Tail::from_memory(unsafe { Host::new(world).load_cqe(pointer(entry + TAIL_OFFSET as u64)) });
        tail.belongs_to(number, LOG).then(|| Host::new(world).cqe_before_data()).map(|()| tail)
    }

    /// Looks once at the oldest request that is not complete: its index, and whether it was executed.
    pub(super) fn poll_sent(&self, world: &dyn World) -> Option<(u64, bool)> {
        let mut counters = self.counters.lock().expect("one thread");
        let tail = self.tail(world, SEND_CQ_AT, counters.completed)?;
        counters.completed += 1;
        Some((counters.completed - 1, tail.opcode == cqe::opcode::REQ))
    }

    /// The number of the next SEND that has arrived. Buffers that were flushed are passed over.
    pub(super) fn poll_received(&self, world: &dyn World) -> Option<u64> {
        let mut counters = self.counters.lock().expect("one thread");
        loop {
            let tail = self.tail(world, RECEIVE_CQ_AT, counters.received)?;
            counters.received += 1;
            if tail.opcode != cqe::opcode::RESP_SEND {
                continue;
            }
            let buffer = u64::from(tail.wqe_counter) % DEPTH;
            let mut bytes = [0; 8];
            let from = self.base + BUFFERS_AT + buffer * BUFFER_BYTES;
            self.memory().read(from, &mut bytes).expect("a buffer of this queue pair");
            self.post_receives(world, counters.received);
            return Some(u64::from_le_bytes(bytes));
        }
    }
}

/// The queue pair as the engine sees it.
struct TalkEndpoint {
    queue: Arc<Queue>,
    rail: Arc<Rail>,
    world: Arc<dyn World>,
    incarnation: u32,
    psn: u32,
}

impl Endpoint for TalkEndpoint {
    fn rail(&self) -> u32 {
        self.rail.index
    }

    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Each has memory of its own.
    fn variant(&self) -> u32 {
        self.incarnation & 1
    }

    fn psn(&self) -> u32 {
        self.psn
    }

    fn card(&self) -> HalfCard {
        let qpn = self.queue.qp.number();
        HalfCard { qpn, psn: self.psn, incarnation: self.incarnation, ece: 0, rail: self.rail.card() }
    }

    fn init(&self) -> Result<(), NicError> {
        self.queue.qp.init(self.rail.address().pkey_index)?;
        self.queue.post_receives(&*self.world, 0);
        Ok(())
    }

    fn connect(&self, remote: &HalfCard) -> Result<(), NicError> {
        let route = self.rail.route(&self.card(), remote)?;
        let tuning = self.rail.fit(&QpTuning::default());
        self.queue.qp.connect(RemoteEnd { qpn: remote.qpn, psn: remote.psn }, self.psn, &route, &tuning)
    }

    fn to_error(&self) -> Result<(), NicError> {
        self.queue.qp.to_error()
    }

    fn query(&self) -> Result<QpTruth, NicError> {
        self.queue.qp.query()
    }

    fn destroy(&self) -> Result<(), NicError> {
        self.queue.qp.destroy(self.queue.cqs[0].number())
    }

    fn query_and_destroy(&self) -> Result<Option<u32>, NicError> {
        let truth = self.queue.qp.query_if_there(self.queue.cqs[0].number())?;
        self.destroy()?;
        Ok(truth.map(|truth| truth.next_send_psn))
    }

    unsafe fn prober(&self) -> Box<dyn Prober> {
        Box::new(TalkProber(self.queue.clone()))
    }
}

struct TalkProber(Arc<Queue>);

impl Prober for TalkProber {
    fn post(&mut self, world: &dyn World) {
        self.0.post(world, Work::Nothing);
    }

    fn poll(&mut self, world: &dyn World) -> Option<Result<(), NicError>> {
        let failed = |index| NicError::Completion {
            nic: "a soft NIC".into(),
            qpn: self.0.qp.number(),
            index,
            syndrome: 0,
            vendor: 0,
        };
        self.0.poll_sent(world).map(|(index, executed)| if executed { Ok(()) } else { Err(failed(index)) })
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn next_index(&self) -> u64 {
        self.0.next()
    }
}

/// Makes the queue pairs of one path.
pub(super) struct TalkMaker {
    /// The path.
    pub key: usize,
    /// Where they are found afterwards.
    pub made: Made,
    /// The clock.
    pub world: Arc<dyn World>,
}

impl Maker for TalkMaker {
    fn make(&self, rail: &Arc<Rail>, (incarnation, _): (u32, u32), psn: u32) -> Result<Half, NicError> {
        let queue = Arc::new(Queue::make(rail)?);
        self.made.lock().expect("one thread").push(((self.key, incarnation), queue.clone()));
        let (rail, world) = (rail.clone(), self.world.clone());
        Ok(Arc::new(TalkEndpoint { queue, rail, world, incarnation, psn: psn & MASK_24 }))
    }
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
