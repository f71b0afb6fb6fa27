//! Completions: from a finished WQE to 64 bytes in a completion queue.
//!
//! The last eight bytes hold everything a poller looks at. They are written last, as one word, and never hold
//! anything but a whole completion: pollers of a collapsed queue read them at any time.

use crate::cx::Cx;
use crate::event;
use crate::fault::FaultKind;
use crate::nic::SoftNic;
use crate::object::Cq;
use crate::qp::Qp;
use crate::receive::Received;
use shunt_layout::mlx5::cqe::{
    BYTE_COUNT_OFFSET, CQE_BYTES, FLAGS_REMOTE_QPN_OFFSET, IMMEDIATE_OFFSET, OPCODE_QPN_OFFSET, SOLICITED,
    SOURCE_LID_OFFSET, SYNDROME_OFFSET, SYNDROME_WORD_OFFSET, Syndrome, Tail, USER_INDEX_OFFSET,
    VENDOR_SYNDROME_OFFSET, opcode,
};
use shunt_layout::mlx5::eqe::event as events;
use shunt_layout::mlx5::prm::qp::State;
use std::collections::VecDeque;

/// The WQE asked for an event.
const EVENT: u8 = 1;
/// The sender asked for an event, or it is an error.
const NOTABLE: u8 = 2;

/// A completion on its way to its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    cqn: u32,
    qpn: u32,
    user_index: u32,
    index: u16,
    /// Opcode of the WQE.
    wqe_opcode: u8,
    bytes: u32,
    /// Syndrome and vendor syndrome; zero is success.
    syndrome: Syndrome,
    vendor: u8,
    /// Opcode of the CQE.
    kind: u8,
    /// [`EVENT`], [`NOTABLE`] or both.
    attention: u8,
    /// This and what follows is of a message that landed.
    source_lid: u16,
    imm: u32,
    origin: u32,
}

impl Completion {
    pub(crate) fn good(qp: &Qp, index: u16, wqe_opcode: u8, bytes: u32) -> Self {
        Self {
            cqn: qp.cqn,
            qpn: qp.qpn,
            user_index: qp.user_index,
            index,
            wqe_opcode,
            bytes,
            syndrome: Syndrome(0),
            vendor: 0,
            kind: opcode::REQ,
            attention: 0,
            source_lid: 0,
            imm: 0,
            origin: 0,
        }
    }

    /// A message that landed in a receive WQE.
    pub(crate) fn received(qp: &Qp, index: u16, what: Received) -> Self {
        Self {
            cqn: qp.receive.as_ref().map_or(0, |queue| queue.cqn),
            kind: what.opcode,
            attention: NOTABLE * what.solicited as u8,
            source_lid: what.source_lid,
            imm: what.imm,
            origin: what.origin,
            ..Self::good(qp, index, 0, what.bytes)
        }
    }

    /// A receive WQE that failed or is flushed.
    pub(crate) fn bad_receive(qp: &Qp, index: u16, syndrome: Syndrome, vendor: u8) -> Self {
        let what = Received { opcode: opcode::RESP_ERR, ..Received::default() };
        Self { attention: NOTABLE, syndrome, vendor, ..Self::received(qp, index, what) }
    }

    /// The same, with an event or not.
    pub(crate) fn with_event(self, event: bool) -> Self {
        Self { attention: EVENT * event as u8, ..self }
    }

    pub(crate) fn bad(qp: &Qp, index: u16, wqe_opcode: u8, syndrome: Syndrome, vendor: u8) -> Self {
        let (kind, attention) = (opcode::REQ_ERR, NOTABLE);
        Self { kind, attention, syndrome, vendor, ..Self::good(qp, index, wqe_opcode, 0) }
    }

    fn is_error(&self) -> bool {
        self.syndrome.0 != 0
    }

    /// The 64 bytes.
    #[inline]
    fn encode(&self, now: u64, owner: bool) -> [u8; CQE_BYTES] {
        let mut cqe = [0; CQE_BYTES];
        let mut put = |at: usize, value: u32| cqe[at..at + 4].copy_from_slice(&value.to_be_bytes());
        put(USER_INDEX_OFFSET, self.user_index);
        put(OPCODE_QPN_OFFSET, (self.wqe_opcode as u32) << 24 | self.qpn);
        if self.is_error() {
            cqe[VENDOR_SYNDROME_OFFSET] = self.vendor;
            cqe[SYNDROME_OFFSET] = self.syndrome.0;
        } else {
            put(BYTE_COUNT_OFFSET, self.bytes);
            cqe[0x30..0x38].copy_from_slice(&now.to_be_bytes()); // timestamp
        }
        let tail = Tail { wqe_counter: self.index, opcode: self.kind, owner }.to_memory();
        cqe[60..].copy_from_slice(&tail.to_ne_bytes());
        if matches!(self.kind, opcode::RESP_WRITE_IMM | opcode::RESP_SEND | opcode::RESP_SEND_IMM) {
            self.encode_received(&mut cqe);
        }
        cqe
    }

    /// What only the completion of a message that landed tells.
    fn encode_received(&self, cqe: &mut [u8; CQE_BYTES]) {
        let mut put = |at: usize, value: u32| cqe[at..at + 4].copy_from_slice(&value.to_be_bytes());
        put(IMMEDIATE_OFFSET, self.imm);
        put(FLAGS_REMOTE_QPN_OFFSET, self.origin);
        // The upper half of this word is reserved.
        put(SOURCE_LID_OFFSET - 2, self.source_lid as u32);
        if self.attention & NOTABLE != 0 {
            cqe[CQE_BYTES - 1] |= SOLICITED;
        }
    }
}

const _: () = assert!(SYNDROME_WORD_OFFSET == 0x34 && OPCODE_QPN_OFFSET == CQE_BYTES - 8);

/// Completions that `late-cqe` holds back.
#[derive(Default)]
pub(crate) struct LateCqes {
    queue: VecDeque<(u64, Completion)>,
}

impl LateCqes {
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.front().map(|(due, _)| *due)
    }
}

impl Cq {
    /// True if the consumer has not freed the next entry.
    fn is_full(&self) -> bool {
        if self.overrun_ignore || self.collapsed {
            return false;
        }
        let consumed = u32::from_be(self.record.load32(0)) & 0xff_ffff;
        let unread = (self.produced as u32).wrapping_sub(consumed) & 0xff_ffff;
        unread >= 1 << self.log_size
    }

    fn write(&mut self, completion: &Completion, now: u64) {
        let owner = self.produced >> self.log_size & 1 != 0;
        let slot = if self.collapsed { 0 } else { self.produced & ((1 << self.log_size) - 1) };
        let cqe = completion.encode(now, owner);
        let mut words = cqe.chunks_exact(8).map(|word| {
            u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]])
        });
        let entry = self.ring.part(slot * CQE_BYTES as u64, CQE_BYTES as u64);
        for offset in (0..OPCODE_QPN_OFFSET as u64).step_by(8) {
            entry.store64(offset, words.next().unwrap_or(0));
        }
        entry.store64_release(OPCODE_QPN_OFFSET as u64, words.next().unwrap_or(0));
        self.produced += 1;
    }
}

impl SoftNic {
    /// Sends a completion on its way.
    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion, cx: &mut Cx) {
        if self.faults.any() {
            let late = |kind: &FaultKind| match kind {
                FaultKind::LateCqe { by_ns, .. } => Some(*by_ns),
                _ => None,
            };
            if let Some(by_ns) = self.faults.strike(late) {
                return self.late_cqes.queue.push_back((cx.now + by_ns, completion));
            }
        }
        if self.late_cqes.queue.is_empty() {
            self.place_cqe(completion, cx);
        } else {
            // The fault ended, but completions of one NIC stay in order.
            self.late_cqes.queue.push_back((cx.now, completion));
        }
    }

    /// Writes late completions that are due. True if there were any.
    pub(crate) fn run_late_cqes(&mut self, cx: &mut Cx) -> bool {
        let mut any = false;
        while self.late_cqes.queue.front().is_some_and(|(due, _)| *due <= cx.now) {
            if let Some((_, completion)) = self.late_cqes.queue.pop_front() {
                self.place_cqe(completion, cx);
                any = true;
            }
        }
        any
    }

    /// Writes a CQE into its queue: the instant at which it becomes visible.
    pub(crate) fn write_cqe(&mut self, completion: Completion, cx: &mut Cx) {
        let Some(cq) = self.cq_mut(completion.cqn) else { return };
        if cq.failed {
            return;
        }
        if cq.is_full() {
            cq.failed = true;
            self.failed_cqs += 1;
            return self.cq_overrun(completion.cqn, cx);
        }
        cq.write(&completion, cx.now);
        let looks = completion.attention | cq.arming.waiting as u8 != 0;
        let due = looks && {
            let armed = cq.arming.completed(cq.produced, completion.attention & NOTABLE != 0);
            armed || completion.attention & EVENT != 0
        };
        self.counters.cqes += 1;
        if due {
            self.raise(cx.now, event::object(events::COMPLETION, completion.cqn));
        }
    }

    /// A queue without overrun-ignore overran: it is dead, and so are the queue pairs that complete there.
    fn cq_overrun(&mut self, cqn: u32, cx: &mut Cx) {
        self.raise(cx.now, event::object(events::CQ_ERROR, cqn));
        for at in 0..self.qps.len() {
            // Not the pair that is being worked on: it is out of the table, and sees the failure in `retire`.
            if let Some(mut qp) = self.qps[at].take() {
                let completes_there =
                    qp.cqn == cqn || qp.receive.as_ref().is_some_and(|queue| queue.cqn == cqn);
                if completes_there && qp.state != State::Rst {
                    self.enter_error(&mut qp, cx.now);
                }
                self.qps[at] = Some(qp);
            }
        }
    }
}
