//! The rail's own QP pair, both ends on one NIC: for the placement flush, the start-up proof, and
//! fetching atomics that this PE executes for others.
//!
//! Its memory is host memory of its own, whatever device-visible memory the rail serves.

use super::caps::Caps;
use super::ece;
use super::mkey::{Access, Mkey};
use super::pd::Pd;
use super::qp::{QpTuning, RemoteEnd, Route};
use super::queue::{At, Door, Producer, Queue, QueueSource, Reach, RingSpan, RingVariant};
use super::umem::{QUEUE_ALIGN, Umem};
use crate::devx::Devx;
use crate::error::NicError;
use crate::memory::{GpuMemory, HeapMemory, OwnedSpan, Placement, Region, Span};
use crate::nic::caps::PortAddress;
use std::sync::Arc;

/// log2 of the rings' depth: a proof posts fewer requests than this, a flush one at a time.
const LOG_DEPTH: u32 = 4;
/// The same of the ring from which atomics are posted: a burst of them outlasts a command.
const LOG_ATOMICS: u32 = 9;
/// Blocks of that ring.
pub(crate) const ATOMICS_BLOCKS: u64 = 1 << LOG_ATOMICS;
const PAGE: u64 = 4096;
/// Send queue and two CQs.
const RINGS: u64 = 3;
const QUEUES: u64 = 6;
/// The queue with the deep ring is the last.
const DEEP_QUEUE: u64 = QUEUES - 1;
const _: () = assert!(ATOMICS_BLOCKS * 64 <= QUEUE_ALIGN);
const RECORD_LINE: u64 = 64;
const RECORDS_AT: u64 = QUEUES * RINGS * QUEUE_ALIGN;
const DATA_AT: u64 = RECORDS_AT + PAGE;
/// Bytes of each of the two data areas.
pub(crate) const DATA_BYTES: u64 = 16 * 1024;
/// Where answers of fetching atomics land, and their marks.
const ANSWER_AT: u64 = DATA_AT + 2 * DATA_BYTES;
const ANSWER_BYTES: u64 = 64;
const TOTAL: u64 = ANSWER_AT + ANSWER_BYTES;

/// Which pair of the private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairUse {
    Flush = 0,
    Proof = 1,
    Atomics = 2,
    /// Fetching atomics for others. Its rings are those of the proof, which is over by then.
    Fetch = 3,
}

/// How a pair is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairShape {
    pub which: PairUse,
    pub incarnation: u32,
    /// The requester's first PSN.
    pub psn: u32,
    /// Answers go to this queue pair instead of to the requester, so that they are lost.
    pub answers_to: Option<u32>,
}

/// Host memory of a rail's own, with a key. Dropped key first.
pub(crate) struct PrivateMemory {
    key: Mkey,
    umem: Umem,
}

impl PrivateMemory {
    pub fn open(devx: &Arc<dyn Devx>, pd: &Pd) -> Result<Self, NicError> {
        let memory: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
        let umem = Umem::register(devx, &OwnedSpan::alloc(&memory, TOTAL, Placement::Control)?)?;
        let key = Mkey::create(devx, pd.id(), &umem, DATA_AT..TOTAL, Access::Remote)?;
        Ok(Self { key, umem })
    }

    pub fn key_be(&self) -> u32 {
        self.key.key_be()
    }

    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    pub fn memory(&self) -> &dyn GpuMemory {
        &**self.umem.memory().memory()
    }

    /// One of the two data areas.
    pub fn data(&self, area: u64) -> Span {
        self.umem.memory().span().part(DATA_AT + area * DATA_BYTES, DATA_BYTES)
    }

    /// Where the answer of a fetching atomic lands.
    pub fn answer(&self) -> Span {
        self.umem.memory().span().part(ANSWER_AT, ANSWER_BYTES)
    }

    fn at(&self, offset: u64) -> At {
        At { address: self.umem.memory().span().address + offset, offset }
    }

    fn rings(&self, pair: PairUse, end: u64) -> RingSpan {
        let queue = match (pair, end) {
            (PairUse::Atomics | PairUse::Fetch, 0) => DEEP_QUEUE,
            (PairUse::Atomics | PairUse::Fetch, _) => DEEP_QUEUE - 1,
            _ => pair as u64 * 2 + end,
        };
        let first = queue * RINGS * QUEUE_ALIGN;
        let variant = |which: u64| RingVariant {
            completion_queue: self.at(first + (1 + which) * QUEUE_ALIGN),
            queue_record: self.at(RECORDS_AT + (queue * 4 + which * 2) * RECORD_LINE),
            completion_record: self.at(RECORDS_AT + (queue * 4 + which * 2 + 1) * RECORD_LINE),
        };
        RingSpan {
            send_queue: self.at(first),
            variants: [variant(0), variant(1)],
            user_index: queue as u32,
            region: Region::Host,
        }
    }
}

/// What a pair is made of.
pub(crate) struct PairSource<'a> {
    pub queues: QueueSource<'a>,
    pub private: &'a PrivateMemory,
    pub caps: &'a Caps,
    pub address: PortAddress,
    pub tuning: QpTuning,
    pub traffic_class: u8,
    pub service_level: u8,
    pub nic: &'a str,
}

/// A connected pair. The host posts on `requester`.
pub(crate) struct Pair {
    pub producer: Producer,
    pub requester: Queue,
    pub responder: Queue,
}

/// The pair that fetching atomics run on; made again after a failure.
#[derive(Default)]
pub(crate) struct FetchPair {
    pub pair: Option<Pair>,
    /// The last one, while the NIC has not said that it is gone. Nothing is made in its place meanwhile.
    pub retired: Option<Pair>,
    pub incarnation: u32,
    /// Messages posted on this pair so far.
    pub posted: u32,
    /// Atomics posted so far, on any pair.
    pub number: u64,
}

impl Pair {
    /// Makes and connects both ends.
    pub fn create(source: &PairSource<'_>, shape: PairShape) -> Result<Self, NicError> {
        let PairShape { which, incarnation, psn, answers_to } = shape;
        let ends = [source.private.rings(which, 0), source.private.rings(which, 1)];
        let deep = matches!(which, PairUse::Atomics | PairUse::Fetch);
        let log_depth = if deep { LOG_ATOMICS } else { LOG_DEPTH };
        let pkey_index = source.address.pkey_index;
        let requester = Queue::create(&source.queues, &ends[0], log_depth, incarnation, pkey_index)?;
        let responder = Queue::create(&source.queues, &ends[1], LOG_DEPTH, incarnation, pkey_index)?;
        let route = Route {
            link: source.caps.link,
            gid: source.address.gid,
            mac: source.address.mac,
            lid: source.address.lid,
            gid_index: source.address.gid_index,
            mtu: source.address.mtu,
            udp_sport: 0xc000,
            pkey_index,
            traffic_class: source.traffic_class,
            service_level: source.service_level,
            global: false,
            loopback: source.caps.force_loopback,
            // As paths are, so that what is proved holds for them.
            ece: ece::common(requester.qp.ece(), responder.qp.ece()),
        };
        let back = psn ^ 0x80_0000;
        let to_requester = RemoteEnd { qpn: answers_to.unwrap_or(requester.qp.number()), psn };
        let to_responder = RemoteEnd { qpn: responder.qp.number(), psn: back };
        responder.qp.connect(to_requester, back, &route, &source.tuning)?;
        requester.qp.connect(to_responder, psn, &route, &source.tuning)?;
        let door = Door { register: requester.uar.register(), qpn: requester.qp.number() };
        // SAFETY: the rings lie in the rail's private memory, which the rail drops after its pairs; each pair
        // has rings of its own, and this is its only producer.
        let producer = unsafe {
            Producer::new(source.nic.into(), &ends[0], incarnation, log_depth, door, Reach::Pointers)
        };
        Ok(Self { producer, requester, responder })
    }
}
