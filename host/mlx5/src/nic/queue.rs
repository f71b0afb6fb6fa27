//! A QP with its CQ, rings and doorbell; and the host's own producer on such a queue.
//!
//! Paths lend theirs to device code. The host itself posts on loopback pairs, and probes on revived paths.

use super::cq::{Cq, CqShape};
use super::qp::{Qp, QpShape};
use super::uar::Uar;
use crate::devx::Devx;
use crate::error::{GpuError, NicError};
use crate::memory::{GpuMemory, Region, Span};
use shunt_device::Amo;
use shunt_device::platform::Platform;
use shunt_device::platform::host::{Host, World};
use shunt_device::wqe_write::{self, Answer, Place};
use shunt_layout::mlx5::cqe::{self, CQE_BYTES, FRESH_BYTE, SYNDROME_WORD_OFFSET, TAIL_OFFSET, Tail};
use shunt_layout::mlx5::doorbell::{self, RECORD_BYTES, SEND_COUNTER_OFFSET, UAR_PAGE_BYTES};
use shunt_layout::mlx5::wqe::{self, CqeWhen, Opcode, Segment, WQEBB_BYTES};
use std::sync::Arc;

/// A place in a umem: the same byte as an address and as an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Absolute address.
    pub address: u64,
    /// Offset in the umem.
    pub offset: u64,
}

/// What a new incarnation gets fresh: completions and doorbells of the old one may still be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingVariant {
    /// Completion queue.
    pub completion_queue: At,
    /// The QP's doorbell record.
    pub queue_record: At,
    /// The CQ's doorbell record.
    pub completion_record: At,
}

/// The memory of one half of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpan {
    /// Send queue: the journal, so there is one for all incarnations.
    pub send_queue: At,
    /// One for each half that its NIC may still have: a half takes one that no other has.
    pub variants: [RingVariant; 2],
    /// User index of the QP.
    pub user_index: u32,
    /// Whose memory it is.
    pub region: Region,
}

impl RingSpan {
    /// A variant by its number, modulo 2.
    pub fn variant(&self, number: u32) -> &RingVariant {
        &self.variants[number as usize & 1]
    }
}

/// What queues of one NIC are made of.
pub(crate) struct QueueSource<'a> {
    pub devx: &'a Arc<dyn Devx>,
    pub memory: &'a dyn GpuMemory,
    pub pd: u32,
    pub eqn: u32,
    pub umem: u32,
    pub ts_format: u32,
    pub ece: bool,
}

/// A QP, its CQ and its doorbell page. Fields are dropped in this order: a QP goes before its CQ.
pub(crate) struct Queue {
    pub qp: Qp,
    pub cq: Cq,
    pub uar: Uar,
}

impl Queue {
    /// Makes CQ and QP in fresh memory; the QP is in INIT.
    pub fn create(
        source: &QueueSource<'_>,
        rings: &RingSpan,
        log_depth: u32,
        variant: u32,
        pkey_index: u16,
    ) -> Result<Self, NicError> {
        let queue = Self::make(source, rings, log_depth, variant)?;
        queue.qp.init(pkey_index)?;
        Ok(queue)
    }

    /// The same; the QP is in RST.
    pub fn make(
        source: &QueueSource<'_>,
        rings: &RingSpan,
        log_depth: u32,
        variant: u32,
    ) -> Result<Self, NicError> {
        let variant = rings.variant(variant);
        let entries =
            Span { address: variant.completion_queue.address, bytes: (CQE_BYTES as u64) << log_depth };
        source.memory.fill(entries, FRESH_BYTE)?;
        for record in [variant.queue_record, variant.completion_record] {
            source.memory.write(record.address, &[0; RECORD_BYTES])?;
        }
        let uar = Uar::map(source.devx)?;
        source.memory.map_registers(uar.page(), UAR_PAGE_BYTES as u64)?;
        let cq = Cq::create(
            source.devx,
            &CqShape {
                umem: source.umem,
                entries_offset: variant.completion_queue.offset,
                record_offset: variant.completion_record.offset,
                log_entries: log_depth,
                uar: uar.id(),
                eqn: source.eqn,
            },
        )?;
        let qp = Qp::create(
            source.devx,
            &QpShape {
                pd: source.pd,
                uar: uar.id(),
                cqn: cq.number(),
                log_depth,
                user_index: rings.user_index,
                umem: source.umem,
                queue_offset: rings.send_queue.offset,
                record_offset: variant.queue_record.offset,
                ts_format: source.ts_format,
                ece: source.ece,
                receive: None,
            },
        )?;
        Ok(Self { qp, cq, uar })
    }
}

/// One work request of the host. All are signalled.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// RDMA WRITE of `bytes` from `local` under `lkey_be`.
    Write {
        /// Source.
        local: Span,
        /// Its key, big-endian.
        lkey_be: u32,
        /// Target address.
        remote: u64,
        /// Target key, big-endian.
        rkey_be: u32,
    },
    /// RDMA WRITE of eight bytes that travel in the request.
    WriteInline {
        /// The value.
        value: u64,
        /// Target address.
        remote: u64,
        /// Target key, big-endian.
        rkey_be: u32,
    },
    /// RDMA WRITE of nothing: one message that changes nothing.
    WriteNothing,
    /// RDMA READ into `local`.
    Read {
        /// Where the data lands.
        local: Span,
        /// Its key, big-endian.
        lkey_be: u32,
        /// Source address.
        remote: u64,
        /// Source key, big-endian.
        rkey_be: u32,
    },
    /// An atomic on the word at `remote`, as device code encodes it.
    Atomic {
        /// What it does.
        amo: Amo,
        /// Where the answer lands.
        answer: u64,
        /// Its key, big-endian.
        lkey_be: u32,
        /// Target address.
        remote: u64,
        /// Target key, big-endian.
        rkey_be: u32,
    },
}

impl Request {
    /// Blocks of the send queue that it takes.
    fn blocks(self) -> u64 {
        if let Self::Atomic { amo, .. } = self { amo.blocks() } else { 1 }
    }

    fn segments(self, index: u64, qpn_shifted: u32) -> ([Segment; 5], usize) {
        let three = |[a, b, c]: [Segment; 3], count| ([a, b, c, [0; 4], [0; 4]], count);
        let ctrl = |opcode, ds| wqe::ctrl(opcode, index as u16, qpn_shifted, ds, CqeWhen::Always as u8);
        let data = |span: Span, key| wqe::data(span.address, key, span.bytes as u32);
        match self {
            Self::Write { local, lkey_be, remote, rkey_be } => {
                three([ctrl(Opcode::RdmaWrite, 3), wqe::remote(remote, rkey_be), data(local, lkey_be)], 3)
            }
            Self::WriteInline { value, remote, rkey_be } => {
                three([ctrl(Opcode::RdmaWrite, 3), wqe::remote(remote, rkey_be), wqe::inline8(value)], 3)
            }
            Self::WriteNothing => three([ctrl(Opcode::RdmaWrite, 2), wqe::remote(0, 0), [0; 4]], 2),
            Self::Read { local, lkey_be, remote, rkey_be } => {
                three([ctrl(Opcode::RdmaRead, 3), wqe::remote(remote, rkey_be), data(local, lkey_be)], 3)
            }
            Self::Atomic { amo, answer, lkey_be, remote, rkey_be } => {
                let answer = Answer { at: answer, lkey_be, tag: 0 };
                let atomic = wqe_write::atomic(Place { index, qpn_shifted }, remote, rkey_be, amo, answer);
                (atomic.segments, usize::from(atomic.ds))
            }
        }
    }
}

/// How the host reaches the rings of a queue.
#[derive(Clone)]
pub enum Reach {
    /// Through their addresses.
    Pointers,
    /// By copies: they lie in memory of the device.
    Copies(Arc<dyn GpuMemory>),
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if let Self::Pointers = self { "Pointers" } else { "Copies" })
    }
}

impl Reach {
    /// Stores the words of a WQE's segment, or of a doorbell record. False if the memory refused.
    ///
    /// # Safety
    /// The words lie in a queue's rings or records, which are mapped.
    unsafe fn store<const N: usize>(&self, platform: Host<'_>, at: u64, words: [u32; N]) -> bool {
        match self {
            Self::Copies(memory) => memory.write(at, words.map(u32::to_le_bytes).as_flattened()).is_ok(),
            Self::Pointers => {
                for (i, word) in words.into_iter().enumerate() {
                    // SAFETY: forwarded to the caller. Release: a NIC that reads a record may fetch at once.
                    unsafe { platform.store32(pointer::<u32>(at).add(i), word) };
                }
                true
            }
        }
    }

    /// Loads a word of a completion.
    ///
    /// # Errors
    /// The memory refused.
    ///
    /// # Safety
    /// As for `store`.
    unsafe fn load(&self, platform: Host<'_>, at: u64) -> Result<u32, GpuError> {
        let mut word = [0; 4];
        match self {
            // SAFETY: forwarded to the caller.
            Self::Pointers => return Ok(unsafe { platform.load_cqe(pointer(at)) }),
            Self::Copies(memory) => memory.read(at, &mut word)?,
        }
        Ok(u32::from_le_bytes(word))
    }
}

/// The host as the only producer of a queue.
#[derive(Clone, Debug)]
pub struct Producer {
    nic: String,
    reach: Reach,
    send_queue: u64,
    completion_queue: u64,
    record: u64,
    register: u64,
    qpn: u32,
    log_depth: u32,
    next: u64,
    done: u64,
    /// Second blocks of what was posted: they get no completion.
    wide: u64,
}

impl Producer {
    /// A producer that starts at index 0 of a fresh queue.
    ///
    /// # Safety
    /// The addresses are those of a queue of this depth, stay valid while this object lives, and nobody else
    /// posts on the queue meanwhile.
    pub unsafe fn new(
        nic: String,
        rings: &RingSpan,
        variant: u32,
        log_depth: u32,
        door: Door,
        reach: Reach,
    ) -> Self {
        let variant = rings.variant(variant);
        Self {
            nic,
            reach,
            send_queue: rings.send_queue.address,
            completion_queue: variant.completion_queue.address,
            record: variant.queue_record.address + SEND_COUNTER_OFFSET as u64,
            register: door.register,
            qpn: door.qpn,
            log_depth,
            next: 0,
            done: 0,
            wide: 0,
        }
    }

    /// Index of the next request: what a path row's `next_index` must be when device code takes over.
    pub fn next_index(&self) -> u64 {
        self.next
    }

    /// True if one more request fits. Second blocks count for ever: what posts such ends soon.
    pub fn has_room(&self) -> bool {
        self.next + (self.wide > 0) as u64 - self.done < 1 << self.log_depth
    }

    /// True if so many blocks more fit. Where all posted is complete and they do not, second blocks have used the ring
    /// up: a new queue is needed.
    pub fn has_room_for(&self, blocks: u64) -> bool {
        self.next + blocks - self.done <= 1 << self.log_depth
    }

    /// Writes a request and rings the doorbell. Returns its index. Memory that refuses the copy is not rung for: who
    /// waits finds the request overdue.
    ///
    /// # Panics
    /// If the ring is full: the host posts a few requests and waits for them.
    pub fn post(&mut self, world: &dyn World, request: Request) -> u64 {
        assert!(self.has_room(), "host requests never fill a ring");
        let (index, blocks) = (self.next, request.blocks());
        let (segments, count) = request.segments(index, self.qpn << 8);
        let platform = Host::new(world);
        self.next += blocks;
        self.wide += blocks - 1;
        let reach = &self.reach;
        // SAFETY: `new`'s caller vouches for the addresses; each segment lies inside the ring, whose end a second block
        // may lie behind.
        unsafe {
            let mut stored = true;
            for (i, segment) in segments[..count].iter().enumerate() {
                let block = (index + i as u64 / 4) & ((1 << self.log_depth) - 1);
                let at = self.send_queue + block * WQEBB_BYTES as u64 + (i % 4 * 16) as u64;
                stored &= reach.store(platform, at, *segment);
            }
            platform.wqes_before_publish();
            if stored && reach.store(platform, self.record, [doorbell::send_counter(self.next)]) {
                platform.record_before_register();
                platform.store_register(pointer(self.register), doorbell::register(self.next, self.qpn << 8));
            }
        }
        index
    }

    /// Looks once at the oldest request that is not complete. `None`: nothing new.
    pub fn poll(&mut self, world: &dyn World) -> Option<Result<u64, NicError>> {
        let entry = self.completion_queue + (self.done & ((1 << self.log_depth) - 1)) * CQE_BYTES as u64;
        let platform = Host::new(world);
        // SAFETY: `new`'s caller vouches for the addresses; the entry lies inside the ring.
        let tail = match unsafe { self.reach.load(platform, entry + TAIL_OFFSET as u64) } {
            Ok(word) => Tail::from_memory(word),
            Err(error) => return Some(Err(error.into())),
        };
        if !tail.belongs_to(self.done, self.log_depth) {
            return None;
        }
        platform.cqe_before_data();
        let index = self.done;
        self.done += 1;
        if tail.opcode == cqe::opcode::REQ {
            return Some(Ok(index));
        }
        // SAFETY: as above.
        let word = match unsafe { self.reach.load(platform, entry + SYNDROME_WORD_OFFSET as u64) } {
            Ok(word) => word.to_le_bytes(),
            Err(error) => return Some(Err(error.into())),
        };
        let (vendor, syndrome) = (word[2], word[3]);
        Some(Err(NicError::Completion { nic: self.nic.clone(), qpn: self.qpn, index, syndrome, vendor }))
    }

    /// Waits until everything posted is complete; the first failure, or a passed deadline, is the answer.
    pub fn wait_all(&mut self, world: &dyn World, patience_ns: u64) -> Result<(), NicError> {
        let since = world.now_ns();
        while self.done + self.wide < self.next {
            match self.poll(world) {
                Some(result) => {
                    result?;
                }
                None => {
                    let waited_ns = world.now_ns().saturating_sub(since);
                    if waited_ns > patience_ns {
                        let (nic, qpn, index) = (self.nic.clone(), self.qpn, self.done);
                        return Err(NicError::Overdue { nic, qpn, index, waited_ns });
                    }
                    world.relax();
                }
            }
        }
        Ok(())
    }
}

/// Where to ring, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// Address of the doorbell register.
    pub register: u64,
    /// Queue pair.
    pub qpn: u32,
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
