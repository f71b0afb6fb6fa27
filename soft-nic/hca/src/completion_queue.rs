//! Completions: from a finished WQE to 64 bytes in a completion queue.
//!
//! The last eight bytes hold everything a poller looks at. They are written last, as one word, and never hold
//! anything but a whole completion: pollers of a collapsed queue read them at any time.

use crate::cq_arm::Arming;
use crate::memory::Span;
use crate::object_table::Table;
use shunt_layout::mlx5::cqe::{
    BYTE_COUNT_OFFSET, CQE_BYTES, FLAGS_REMOTE_QPN_OFFSET, IMMEDIATE_OFFSET, OPCODE_QPN_OFFSET, SOLICITED,
    SOURCE_LID_OFFSET, SYNDROME_OFFSET, SYNDROME_WORD_OFFSET, Syndrome, Tail, USER_INDEX_OFFSET,
    VENDOR_SYNDROME_OFFSET, opcode,
};
use shunt_layout::mlx5::doorbell::{ARM_WORD_OFFSET, Arm};
use shunt_layout::mlx5::prm::cq::cqc;
use shunt_soft_fault::{FaultKind, Faults};
use shunt_soft_wire::psn;
use std::collections::VecDeque;

/// First CQN handed out.
const FIRST_CQN: u32 = 0x400;
/// Offset of the consumer index in a completion queue's record.
const CONSUMER_WORD_OFFSET: u64 = 0;

/// The WQE asked for an event.
const EVENT: u8 = 1;
/// The sender asked for an event, or it is an error.
const NOTABLE: u8 = 2;

/// What a completed receive tells.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// Opcode of the CQE.
    pub(crate) opcode: u8,
    pub(crate) imm: u32,
    pub(crate) bytes: u32,
    pub(crate) solicited: bool,
    /// Source QPN and GRH flag of a datagram.
    pub(crate) origin: u32,
    pub(crate) source_lid: u16,
}

impl Received {
    /// A message of a connection.
    pub(crate) fn reliable(opcode: u8, imm: Option<u32>, bytes: u64, solicited: bool) -> Self {
        Self { opcode, imm: imm.unwrap_or(0), bytes: bytes as u32, solicited, origin: 0, source_lid: 0 }
    }
}

/// Where a completion comes from, and the queue it goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) cqn: u32,
    pub(crate) qpn: u32,
    pub(crate) user_index: u32,
}

/// A completion on its way to its queue. It cannot be copied: one WQE makes one, and one makes one CQE.
#[derive(Debug)]
#[must_use]
pub(crate) struct Completion {
    from: Origin,
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
    pub(crate) fn good(from: Origin, index: u16, wqe_opcode: u8, bytes: u32) -> Self {
        Self {
            from,
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
    pub(crate) fn received(from: Origin, index: u16, what: Received) -> Self {
        Self {
            kind: what.opcode,
            attention: NOTABLE * what.solicited as u8,
            source_lid: what.source_lid,
            imm: what.imm,
            origin: what.origin,
            ..Self::good(from, index, 0, what.bytes)
        }
    }

    /// A receive WQE that failed or is flushed.
    pub(crate) fn bad_receive(from: Origin, index: u16, syndrome: Syndrome, vendor: u8) -> Self {
        let what = Received { opcode: opcode::RESP_ERR, ..Received::default() };
        Self { attention: NOTABLE, syndrome, vendor, ..Self::received(from, index, what) }
    }

    /// The same, with an event or not.
    pub(crate) fn with_event(self, event: bool) -> Self {
        Self { attention: EVENT * event as u8, ..self }
    }

    /// A send WQE that failed or is flushed.
    pub(crate) fn bad(from: Origin, index: u16, wqe_opcode: u8, syndrome: Syndrome, vendor: u8) -> Self {
        let (kind, attention) = (opcode::REQ_ERR, NOTABLE);
        Self { kind, attention, syndrome, vendor, ..Self::good(from, index, wqe_opcode, 0) }
    }

    /// The queue it goes to.
    pub(crate) fn cqn(&self) -> u32 {
        self.from.cqn
    }

    fn is_error(&self) -> bool {
        self.syndrome.0 != 0
    }

    /// The 64 bytes.
    #[inline]
    fn encode(&self, now: u64, owner: bool) -> [u8; CQE_BYTES] {
        let mut cqe = [0; CQE_BYTES];
        let mut put = |at: usize, value: u32| cqe[at..at + 4].copy_from_slice(&value.to_be_bytes());
        put(USER_INDEX_OFFSET, self.from.user_index);
        put(OPCODE_QPN_OFFSET, (self.wqe_opcode as u32) << 24 | self.from.qpn);
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
    /// Holds a completion back if it must be late, or if one before it is: those of one NIC stay in order. Gives it
    /// back if it is due at once.
    #[inline]
    pub(crate) fn hold(
        &mut self,
        completion: Completion,
        faults: &mut Faults,
        now: u64,
    ) -> Option<Completion> {
        let mut due = now;
        if faults.any() {
            let late = |kind: &FaultKind| match kind {
                FaultKind::LateCqe { by_ns, .. } => Some(*by_ns),
                _ => None,
            };
            match faults.strike(late) {
                Some(by_ns) => due += by_ns,
                None if self.queue.is_empty() => return Some(completion),
                None => {}
            }
        } else if self.queue.is_empty() {
            return Some(completion);
        }
        self.queue.push_back((due, completion));
        None
    }

    /// The next completion that is due at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<Completion> {
        if self.queue.front()?.0 > now {
            return None;
        }
        self.queue.pop_front().map(|(_, completion)| completion)
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.front().map(|(due, _)| *due)
    }

    /// Nothing of it will be written.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// What became of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its queue is gone or dead.
    Dropped,
    /// There was no room for it: its queue is dead from now on.
    Overran,
    /// It is a CQE.
    Written,
    /// It is a CQE, and somebody waits for the event.
    Notified,
}

/// What software asks for when it makes a queue.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// The entries.
    pub(crate) ring: Span,
    pub(crate) record: Span,
    pub(crate) log_size: u32,
    /// Every CQE goes to entry 0.
    pub(crate) collapsed: bool,
    /// No consumer index is kept.
    pub(crate) overrun_ignore: bool,
    pub(crate) umems: [u32; 2],
    /// Doorbell page it is armed through.
    pub(crate) uar: u32,
    /// The context as created, for QUERY_CQ.
    pub(crate) context: [u8; cqc::BYTES],
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    pub(crate) shape: Shape,
    /// CQEs written.
    produced: u64,
    /// It overran: nothing is written any more.
    failed: bool,
    /// Queue pairs that complete here.
    pub(crate) users: u32,
    arming: Arming,
}

impl CompletionQueue {
    pub(crate) fn new(shape: Shape) -> Self {
        let arming = Arming::starting(shape.record.load32(ARM_WORD_OFFSET as u64));
        Self { shape, produced: 0, failed: false, users: 0, arming }
    }

    /// What the consumer has taken, as its record says.
    fn consumed(&self) -> u32 {
        u32::from_be(self.shape.record.load32(CONSUMER_WORD_OFFSET)) & psn::MASK
    }

    /// True if the consumer has not freed the next entry.
    #[inline]
    fn is_full(&self) -> bool {
        if self.shape.overrun_ignore || self.shape.collapsed {
            return false;
        }
        let unread = (self.produced as u32).wrapping_sub(self.consumed()) & psn::MASK;
        unread >= 1 << self.shape.log_size
    }

    /// Writes a CQE: the instant at which it becomes visible.
    #[inline]
    fn write(&mut self, completion: &Completion, now: u64) -> Outcome {
        if self.failed {
            return Outcome::Dropped;
        }
        if self.is_full() {
            self.failed = true;
            return Outcome::Overran;
        }
        self.store(completion, now);
        let attention = completion.attention;
        if attention == 0 && !self.arming.is_awaited() {
            return Outcome::Written;
        }
        let armed = self.arming.completed(self.produced, attention & NOTABLE != 0);
        if armed || attention & EVENT != 0 { Outcome::Notified } else { Outcome::Written }
    }

    fn store(&mut self, completion: &Completion, now: u64) {
        let shape = &self.shape;
        let owner = self.produced >> shape.log_size & 1 != 0;
        let slot = if shape.collapsed { 0 } else { self.produced & ((1 << shape.log_size) - 1) };
        let cqe = completion.encode(now, owner);
        let mut words = cqe.chunks_exact(8).map(|word| {
            u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]])
        });
        let entry = shape.ring.part(slot * CQE_BYTES as u64, CQE_BYTES as u64);
        for offset in (0..OPCODE_QPN_OFFSET as u64).step_by(8) {
            entry.store64(offset, words.next().unwrap_or(0));
        }
        entry.store64_release(OPCODE_QPN_OFFSET as u64, words.next().unwrap_or(0));
        self.produced += 1;
    }

    /// A request for an event. True if the event is due at once.
    fn request(&mut self, arm: Arm) -> bool {
        self.arming.request(arm, self.produced)
    }

    /// The request that stands in the doorbell record, if it may be one that was not seen in the register.
    fn recorded_request(&mut self) -> Option<Arm> {
        let word = self.shape.record.load32(ARM_WORD_OFFSET as u64);
        let new = self.arming.looked_at(word, self.shape.record.load32(CONSUMER_WORD_OFFSET));
        new.then(|| Arm::from_record(word))
    }

    /// The context as it is now.
    pub(crate) fn context(&self) -> [u8; cqc::BYTES] {
        let mut context = self.shape.context;
        cqc::STATUS.set(&mut context, if self.failed { 9 } else { 0 });
        cqc::ST.set(&mut context, self.arming.state());
        cqc::CONSUMER_COUNTER.set(&mut context, self.consumed());
        cqc::PRODUCER_COUNTER.set(&mut context, self.produced as u32 & psn::MASK);
        context
    }
}

/// All completion queues of a NIC.
pub(crate) struct CompletionQueues {
    table: Table<CompletionQueue>,
    /// Queues that overran: while there are none, nobody looks.
    dead: u32,
    /// Those of them whose queue pairs were not told yet.
    overran: Vec<u32>,
}

impl CompletionQueues {
    pub(crate) fn new() -> Self {
        Self { table: Table::starting_at(FIRST_CQN), dead: 0, overran: Vec::new() }
    }

    /// The number the next queue gets.
    pub(crate) fn next_number(&self) -> Option<u32> {
        self.table.next_number()
    }

    pub(crate) fn add(&mut self, queue: CompletionQueue) -> u32 {
        self.table.add(queue)
    }

    pub(crate) fn get(&self, cqn: u32) -> Option<&CompletionQueue> {
        self.table.get(cqn)
    }

    /// Counts one more queue pair that completes there.
    pub(crate) fn hold(&mut self, cqn: u32) {
        if let Some(queue) = self.table.get_mut(cqn) {
            queue.users += 1;
        }
    }

    /// Counts one queue pair less.
    pub(crate) fn release(&mut self, cqn: u32) {
        if let Some(queue) = self.table.get_mut(cqn) {
            queue.users -= 1;
        }
    }

    pub(crate) fn remove(&mut self, cqn: u32) -> Option<CompletionQueue> {
        let queue = self.table.remove(cqn)?;
        self.dead -= queue.failed as u32;
        Some(queue)
    }

    /// How many there are.
    pub(crate) fn live(&self) -> usize {
        self.table.live()
    }

    /// True if nothing can complete there any more.
    #[inline]
    pub(crate) fn is_dead(&self, cqn: u32) -> bool {
        self.dead > 0 && self.table.get(cqn).is_none_or(|queue| queue.failed)
    }

    /// Writes a completion into its queue.
    #[inline]
    pub(crate) fn write(&mut self, completion: &Completion, now: u64) -> Outcome {
        let cqn = completion.cqn();
        let Some(queue) = self.table.get_mut(cqn) else { return Outcome::Dropped };
        let outcome = queue.write(completion, now);
        if outcome == Outcome::Overran {
            self.dead += 1;
            self.overran.push(cqn);
        }
        outcome
    }

    /// A queue that overran since the last call, for its queue pairs to be told.
    #[inline]
    pub(crate) fn next_overrun(&mut self) -> Option<u32> {
        self.overran.pop()
    }

    /// A request for an event of a queue that is armed through doorbell page `uar`: through another page than its own
    /// it is ignored, as hardware does. `None` if so; else true if the event is due at once.
    pub(crate) fn request(&mut self, cqn: u32, uar: u32, arm: Arm) -> Option<bool> {
        let queue = self.table.get_mut(cqn).filter(|queue| queue.shape.uar == uar)?;
        Some(queue.request(arm))
    }

    /// Takes in the request in a queue's doorbell record, if there is a new one and it `counts`. True if its event is
    /// due at once.
    pub(crate) fn request_from_record(&mut self, cqn: u32, counts: bool) -> bool {
        let Some(queue) = self.table.get_mut(cqn) else { return false };
        let request = queue.recorded_request();
        counts && request.is_some_and(|arm| queue.request(arm))
    }
}
