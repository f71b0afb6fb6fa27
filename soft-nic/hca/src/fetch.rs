//! Reads WQEs out of send queues.

use crate::dc::Destination;
use crate::dma::{Data, Piece, Sge};
use crate::endpoint::{Endpoint, Service};
use crate::memory::Span;
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_layout::mlx5::prm::caps::{
    ATOMIC_COMPARE_SWAP, ATOMIC_FETCH_ADD, ATOMIC_MASKED_COMPARE_SWAP, ATOMIC_MASKED_FETCH_ADD,
};
use shunt_layout::mlx5::wqe::{
    AddressVector, Ctrl, DataSegment, Opcode, SEGMENT_BYTES, SOLICITED_EVENT, Segment, WQEBB_BYTES,
};
use shunt_layout::mlx5::wqe::{remote_address, remote_key};
use shunt_soft_wire::packet::{AtomicOp, AtomicRequest};
use shunt_soft_wire::psn;

/// Why a WQE fails: syndrome and vendor syndrome.
pub(crate) type WorkError = (Syndrome, u8);

const SEGMENTS_PER_BLOCK: u64 = (WQEBB_BYTES / SEGMENT_BYTES) as u64;
const MALFORMED: WorkError = (Syndrome::LOCAL_QP_OPERATION, vendor::MALFORMED);
const TOO_LONG: WorkError = (Syndrome::LOCAL_LENGTH, vendor::MALFORMED);

/// What a WQE asks for.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Nothing,
    Write { address: u64, rkey: u32, data: Data },
    WriteImm { address: u64, rkey: u32, imm: u32, data: Data },
    Send { imm: Option<u32>, data: Data },
    Datagram(Box<Letter>),
    Read { address: u64, rkey: u32, data: Data },
    Atomic { request: AtomicRequest, result: Sge },
}

/// What a datagram WQE asks for.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) to: AddressVector,
    pub(crate) imm: Option<u32>,
    pub(crate) data: Data,
}

/// A fetched WQE that is not complete. It cannot be copied: it completes once.
#[derive(Debug)]
pub(crate) struct Work {
    /// Index of its first block.
    pub(crate) index: u16,
    pub(crate) blocks: u8,
    pub(crate) opcode: u8,
    pub(crate) signalled: bool,
    pub(crate) event: bool,
    /// The receiver's completion is a solicited event.
    pub(crate) solicited: bool,
    pub(crate) first_psn: u32,
    /// PSNs it takes; a READ's are those of its responses.
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
    /// READ: response packets that arrived. Atomic: 1 once answered.
    pub(crate) answered: u32,
    pub(crate) task: Task,
    /// The target it goes to, of an initiator.
    pub(crate) to: Option<Box<Destination>>,
    /// It cannot be sent: the error to complete with once all before it are done.
    pub(crate) error: Option<WorkError>,
}

impl Work {
    /// The PSN behind its last packet.
    #[inline(always)]
    pub(crate) fn end_psn(&self) -> u32 {
        psn::add(self.first_psn, self.packets)
    }

    /// True if it completes by an answer of its own rather than by any later acknowledgement.
    pub(crate) fn wants_answer(&self) -> bool {
        matches!(self.task, Task::Read { .. } | Task::Atomic { .. })
    }
}

/// A send queue's ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendRing {
    ring: Span,
    log_depth: u32,
}

impl SendRing {
    /// 2^`log_depth` blocks.
    pub(crate) fn new(ring: Span, log_depth: u32) -> Self {
        Self { ring, log_depth }
    }

    /// How many blocks it holds.
    #[inline(always)]
    pub(crate) fn depth(&self) -> u64 {
        1 << self.log_depth
    }

    /// A WQE's control segment, as it lies at block `at`, and the blocks it takes if it is to be skipped: no more than
    /// there are up to `end`.
    pub(crate) fn ctrl_at(&self, at: u64, end: u64) -> (Ctrl, u64) {
        let ctrl = Ctrl::read(self.segment(at, 0));
        let blocks = (ctrl.ds as u64).div_ceil(SEGMENTS_PER_BLOCK).max(1);
        (ctrl, blocks.min(end - at))
    }

    /// Segment `n` of a WQE; the ring wraps between any two.
    #[inline(always)]
    fn segment(&self, at: u64, n: u64) -> Segment {
        let slots = self.depth() * SEGMENTS_PER_BLOCK;
        let offset = ((at * SEGMENTS_PER_BLOCK + n) & (slots - 1)) * SEGMENT_BYTES as u64;
        let (low, high) = (self.ring.load64(offset), self.ring.load64(offset + 8));
        [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
    }
}

/// A WQE in its ring.
struct Wqe<'q> {
    ring: &'q SendRing,
    qp: &'q Endpoint,
    /// Block it starts at, not wrapped.
    at: u64,
    ds: u64,
    /// Segments of address behind the control segment that are passed over.
    address: u64,
}

impl Wqe<'_> {
    /// Segment `n`.
    #[inline(always)]
    fn segment(&self, n: u64) -> Segment {
        self.ring.segment(self.at, n + self.address)
    }

    /// The target that an initiator's WQE names. What follows is read as of a reliable connection.
    fn destination(&mut self) -> Result<Box<Destination>, WorkError> {
        if self.ds < 4 {
            return Err(MALFORMED);
        }
        let vector = [1, 2, 3].map(|n| self.segment(n));
        let key = vector[0].map(u32::from_be);
        let to = AddressVector::read(vector);
        if !to.full {
            return Err(MALFORMED);
        }
        (self.address, self.ds) = (3, self.ds - 3);
        Ok(Box::new(Destination { to, key: (key[0] as u64) << 32 | key[1] as u64 }))
    }

    /// Inline payload that starts in segment `n`, behind the four header bytes.
    fn inline_bytes(&self, n: u64, into: &mut [u8]) {
        let mut done = 0;
        let mut segment = n;
        while done < into.len() {
            let words = self.segment(segment);
            let mut raw = [0; SEGMENT_BYTES];
            for (chunk, word) in raw.chunks_exact_mut(4).zip(words) {
                chunk.copy_from_slice(&word.to_ne_bytes());
            }
            let from = if segment == n { 4 } else { 0 };
            let some = (into.len() - done).min(SEGMENT_BYTES - from);
            into[done..done + some].copy_from_slice(&raw[from..from + some]);
            done += some;
            segment += 1;
        }
    }

    /// The gather or scatter list from segment `first` to the end, and its bytes.
    #[inline(always)]
    fn data(&self, first: u64) -> Result<(Data, u64), WorkError> {
        if first == self.ds {
            return Ok((Data::None, 0));
        }
        if first + 1 == self.ds
            && let DataSegment::Pointer { bytes, lkey, address } = DataSegment::read(self.segment(first))
        {
            // Zero would mean 2^31 to hardware; nobody writes it, and it is refused.
            let one = Data::One(Sge { lkey, address, bytes });
            return if bytes == 0 { Err(MALFORMED) } else { Ok((one, bytes as u64)) };
        }
        self.long_data(first)
    }

    /// The same for what is not RDMA: out of the way of what is.
    #[inline(never)]
    fn other_data(&self, first: u64) -> Result<(Data, u64), WorkError> {
        self.data(first)
    }

    #[inline(always)]
    fn long_data(&self, first: u64) -> Result<(Data, u64), WorkError> {
        let (mut pieces, mut total, mut at) = (Vec::new(), 0, first);
        while at < self.ds {
            match DataSegment::read(self.segment(at)) {
                DataSegment::Pointer { bytes: 0, .. } => return Err(MALFORMED),
                DataSegment::Pointer { bytes, lkey, address } => {
                    pieces.push(Piece::Pointer(Sge { lkey, address, bytes }));
                    total += bytes as u64;
                    at += 1;
                }
                DataSegment::Inline { bytes } => {
                    let segments = (4 + bytes as u64).div_ceil(SEGMENT_BYTES as u64);
                    if at + segments > self.ds {
                        return Err(MALFORMED);
                    }
                    if at == first && at + segments == self.ds && bytes <= 32 {
                        let mut small = [0; 32];
                        self.inline_bytes(at, &mut small[..bytes as usize]);
                        return Ok((Data::Small(small), bytes as u64));
                    }
                    let mut inline = vec![0; bytes as usize];
                    self.inline_bytes(at, &mut inline);
                    pieces.push(Piece::Inline(inline));
                    total += bytes as u64;
                    at += segments;
                }
            }
        }
        Ok((Data::Many(pieces.into()), total))
    }

    fn atomic(&self, opcode: Opcode, opmod: u8) -> Result<Task, WorkError> {
        let masked = matches!(opcode, Opcode::AtomicMaskedCs | Opcode::AtomicMaskedFa);
        let bytes = match (masked, opmod) {
            (false, _) | (true, 0x09) => 8,
            (true, 0x08) => 4,
            _ => return Err(MALFORMED),
        };
        let operand_segments = if opcode == Opcode::AtomicMaskedCs && bytes == 8 { 2 } else { 1 };
        if self.ds != 3 + operand_segments {
            return Err(MALFORMED);
        }
        let words = self.segment(2).map(|word| u32::from_be(word) as u64);
        let (first, second) = (words[0] << 32 | words[1], words[2] << 32 | words[3]);
        let op = match (opcode, bytes) {
            (Opcode::AtomicCs, _) => AtomicOp::CompareSwap {
                swap: first,
                compare: second,
                compare_mask: u64::MAX,
                swap_mask: u64::MAX,
            },
            (Opcode::AtomicFa, _) => AtomicOp::FetchAdd { add: first, boundary: 0 },
            (Opcode::AtomicMaskedFa, 8) => AtomicOp::FetchAdd { add: first, boundary: second },
            (Opcode::AtomicMaskedFa, _) => AtomicOp::FetchAdd { add: words[0], boundary: words[1] },
            (_, 8) => {
                let masks = self.segment(3).map(|word| u32::from_be(word) as u64);
                let (swap_mask, compare_mask) = (masks[0] << 32 | masks[1], masks[2] << 32 | masks[3]);
                AtomicOp::CompareSwap { swap: first, compare: second, compare_mask, swap_mask }
            }
            _ => AtomicOp::CompareSwap {
                swap: words[0],
                compare: words[1],
                swap_mask: words[2],
                compare_mask: words[3],
            },
        };
        let DataSegment::Pointer { bytes: room, lkey, address } =
            DataSegment::read(self.segment(self.ds - 1))
        else {
            return Err(MALFORMED);
        };
        if room < bytes {
            return Err(TOO_LONG);
        }
        let target = self.segment(1);
        let request = AtomicRequest { address: remote_address(target), rkey: remote_key(target), bytes, op };
        Ok(Task::Atomic { request, result: Sge { lkey, address, bytes } })
    }

    /// What it asks for, and how many bytes that moves.
    fn task(&self, ctrl: Ctrl) -> Result<(Task, u64), WorkError> {
        let opcode = Opcode::from_raw(ctrl.opcode).ok_or(MALFORMED)?;
        if self.qp.service == Service::Datagram {
            return self.datagram_task(opcode, ctrl.imm);
        }
        match opcode {
            Opcode::Nop => Ok((Task::Nothing, 0)),
            Opcode::RdmaWrite | Opcode::RdmaWriteImm | Opcode::RdmaRead if self.ds >= 2 => {
                let target = self.segment(1);
                let (address, rkey) = (remote_address(target), remote_key(target));
                let (data, bytes) = self.data(2)?;
                match opcode {
                    Opcode::RdmaWrite => return Ok((Task::Write { address, rkey, data }, bytes)),
                    Opcode::RdmaRead => {}
                    _ => return Ok((Task::WriteImm { address, rkey, imm: ctrl.imm, data }, bytes)),
                }
                let inline = match &data {
                    Data::Small(..) => true,
                    Data::Many(pieces) => pieces.iter().any(|piece| matches!(piece, Piece::Inline(_))),
                    _ => false,
                };
                if inline { Err(MALFORMED) } else { Ok((Task::Read { address, rkey, data }, bytes)) }
            }
            Opcode::AtomicCs | Opcode::AtomicFa | Opcode::AtomicMaskedCs | Opcode::AtomicMaskedFa => {
                self.atomic(opcode, ctrl.opmod).map(|task| (task, 8))
            }
            Opcode::Send | Opcode::SendImm => {
                let (data, bytes) = self.other_data(1)?;
                let imm = (opcode == Opcode::SendImm).then_some(ctrl.imm);
                Ok((Task::Send { imm, data }, bytes))
            }
            _ => Err(MALFORMED),
        }
    }

    /// The same on a datagram queue pair: three segments of address come first.
    fn datagram_task(&self, opcode: Opcode, imm: u32) -> Result<(Task, u64), WorkError> {
        let imm = match opcode {
            Opcode::Nop => return Ok((Task::Nothing, 0)),
            Opcode::Send => None,
            Opcode::SendImm => Some(imm),
            _ => return Err(MALFORMED),
        };
        if self.ds < 4 {
            return Err(MALFORMED);
        }
        let to = AddressVector::read([1, 2, 3].map(|n| self.segment(n)));
        let (data, bytes) = self.other_data(4)?;
        match to.full {
            false => Err(MALFORMED),
            true if bytes > self.qp.mtu as u64 => Err(TOO_LONG),
            true => Ok((Task::Datagram(Box::new(Letter { to, imm, data })), bytes)),
        }
    }
}

/// True if a device with those `atomic_operations` has what the WQE asks for.
fn is_offered(opcode: u8, atomics: u32) -> bool {
    let bit = match Opcode::from_raw(opcode) {
        Some(Opcode::AtomicCs) => ATOMIC_COMPARE_SWAP,
        Some(Opcode::AtomicFa) => ATOMIC_FETCH_ADD,
        Some(Opcode::AtomicMaskedCs) => ATOMIC_MASKED_COMPARE_SWAP,
        Some(Opcode::AtomicMaskedFa) => ATOMIC_MASKED_FETCH_ADD,
        _ => return true,
    };
    atomics & bit != 0
}

/// Reads the WQE at block `at` of a ring that is announced up to `end`. PSNs are not assigned. `atomics` are the
/// operations that the device has.
pub(crate) fn fetch(ring: &SendRing, qp: &Endpoint, at: u64, end: u64, atomics: u32) -> Work {
    let (ctrl, blocks) = ring.ctrl_at(at, end);
    let mut wqe = Wqe { ring, qp, at, ds: ctrl.ds as u64, address: 0 };
    let whole = ctrl.ds > 0 && (ctrl.ds as u64).div_ceil(SEGMENTS_PER_BLOCK) == blocks;
    let whole = whole && is_offered(ctrl.opcode, atomics);
    let sound = whole && ctrl.index == at as u16 && ctrl.qpn == qp.qpn;
    let addressed = sound && qp.service == Service::DcInitiator && ctrl.opcode != Opcode::Nop as u8;
    let to = if addressed { wqe.destination().map(Some) } else { Ok(None) };
    let task = if sound { to.and_then(|to| Ok((to, wqe.task(ctrl)?))) } else { Err(MALFORMED) };
    let (to, task) = match task {
        Ok((to, task)) => (to, Ok(task)),
        Err(error) => (None, Err(error)),
    };
    let (task, bytes, error) = match task {
        Ok((_, bytes)) if bytes > 1 << qp.log_max_message => (Task::Nothing, 0, Some(TOO_LONG)),
        Ok((task, bytes)) => (task, bytes as u32, None),
        Err(error) => (Task::Nothing, 0, Some(error)),
    };
    let packets = match task {
        Task::Nothing => 0,
        Task::Atomic { .. } => 1,
        _ => bytes.div_ceil(qp.mtu).max(1),
    };
    Work {
        index: at as u16,
        blocks: blocks as u8,
        opcode: ctrl.opcode,
        signalled: ctrl.signalled(),
        event: ctrl.fm_ce_se & 0x0c == 0x0c,
        solicited: ctrl.fm_ce_se & SOLICITED_EVENT != 0,
        first_psn: 0,
        packets,
        bytes,
        answered: 0,
        task,
        to,
        error,
    }
}

/// True if the WQE waits for all earlier READs and atomics.
pub(crate) fn is_fenced(ctrl: Ctrl) -> bool {
    ctrl.fm_ce_se >> 5 >= 2
}
