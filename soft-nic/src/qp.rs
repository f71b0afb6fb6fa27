//! A queue pair's state, both halves.

use crate::memory::Span;
use crate::packet::AtomicRequest;
use crate::receive::ReceiveQueue;
use crate::timer::Timer;
use crate::window::Charge;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mlx5::wqe::AddressVector;
use std::collections::VecDeque;

/// Unacknowledged packets a requester may have outstanding.
pub(crate) const WINDOW: i32 = 1024;
/// The window while an RNR NAK is waited out: nothing is sent.
pub(crate) const SHUT: i32 = i32::MIN;
/// `rnr_retry`: for ever.
pub(crate) const RNR_FOR_EVER: u32 = 7;
/// A request packet in this many asks for an acknowledgement, besides the last of each message.
pub(crate) const ACK_EVERY: u32 = 64;
/// No route known.
pub(crate) const NO_ROUTE: u32 = u32::MAX;

/// What a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Reliable,
    Datagram,
}

/// A pointer segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sge {
    pub(crate) lkey: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
}

/// One entry of a gather list.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Pointer(Sge),
    Inline(Vec<u8>),
}

impl Piece {
    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Self::Pointer(sge) => sge.bytes,
            Self::Inline(bytes) => bytes.len() as u32,
        }
    }
}

/// Local data of a WQE. The common shapes need no allocation.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    None,
    /// Inline, up to 32 bytes; the WQE holds how many.
    Small([u8; 32]),
    One(Sge),
    Many(Box<[Piece]>),
}

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

/// A fetched WQE that is not complete.
#[derive(Clone, Debug)]
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
    /// It cannot be sent: the error to complete with once all before it are done.
    pub(crate) error: Option<(Syndrome, u8)>,
}

impl Work {
    /// True if it completes by an answer of its own rather than by any later acknowledgement.
    pub(crate) fn wants_answer(&self) -> bool {
        matches!(self.task, Task::Read { .. } | Task::Atomic { .. })
    }
}

/// A WRITE that has begun to arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub(crate) rkey: u32,
    pub(crate) address: u64,
    /// Bytes still to come.
    pub(crate) left: u64,
    /// Bytes of the whole message.
    pub(crate) bytes: u32,
}

/// A message of several packets that has begun to arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Arriving {
    #[default]
    Nothing,
    Write(Incoming),
    /// A SEND, and the bytes of it that came.
    Send(u64),
}

impl Arriving {
    pub(crate) fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// Something a responder owes, in the order asked. `again`: asked by a duplicate, so outside the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owed {
    Ack {
        psn: u32,
        msn: u32,
        syndrome: u8,
    },
    Read {
        psn: u32,
        msn: u32,
        rkey: u32,
        address: u64,
        bytes: u32,
        sent: u32,
        ticket: u64,
        ready: bool,
        again: bool,
    },
    Atomic {
        psn: u32,
        msn: u32,
        ticket: u64,
        original: Option<u64>,
        again: bool,
    },
}

/// A READ or atomic remembered for duplicates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Remembered {
    Read { psn: u32, packets: u32, rkey: u32, address: u64, bytes: u32 },
    Atomic { psn: u32, ticket: u64, original: Option<u64> },
}

/// Requester half.
#[derive(Debug)]
pub(crate) struct Requester {
    /// Blocks announced, fetched and completed; they never wrap.
    pub(crate) announced: u64,
    pub(crate) fetched: u64,
    pub(crate) completed: u64,
    pub(crate) work: VecDeque<Work>,
    /// Entry of `work` that is sent next.
    pub(crate) cursor: usize,
    /// PSN sent next; one in the past after a rewind.
    pub(crate) send_psn: u32,
    /// PSN of the next WQE fetched.
    pub(crate) next_psn: u32,
    /// Oldest PSN not acknowledged.
    pub(crate) oldest: u32,
    /// READs and atomics in `work`.
    pub(crate) answers_due: u32,
    pub(crate) max_answers: u32,
    pub(crate) retry_count: u32,
    pub(crate) retries_left: u32,
    pub(crate) rnr_retry: u32,
    pub(crate) rnr_left: u32,
    /// Packets that may be unacknowledged: [`WINDOW`] or [`SHUT`].
    pub(crate) window: i32,
    /// What it has under way as its destination's window counts it.
    pub(crate) charge: Charge,
    /// It waits for room in that window.
    pub(crate) held: bool,
    /// 0: never.
    pub(crate) timeout_ns: u64,
    /// Its waits grow from retry to retry.
    pub(crate) adaptive: bool,
    pub(crate) timer: Timer,
    /// It rewound for a lost response; further signs of the same loss are ignored until progress.
    pub(crate) rewound: bool,
    /// ERR and not all posted work flushed.
    pub(crate) flush_due: bool,
}

/// Responder half.
#[derive(Debug)]
pub(crate) struct Responder {
    /// PSN expected next.
    pub(crate) expected: u32,
    /// Messages executed.
    pub(crate) msn: u32,
    pub(crate) arriving: Arriving,
    /// A NAK was sent for `expected`: what comes behind it is dropped in silence.
    pub(crate) nak_sent: bool,
    /// A fatal NAK is owed: nothing more is accepted, and ERR follows once it is sent.
    pub(crate) refusing: bool,
    pub(crate) owed: VecDeque<Owed>,
    pub(crate) remembered: VecDeque<Remembered>,
    pub(crate) max_remembered: usize,
    pub(crate) next_ticket: u64,
    /// Timer code of its RNR NAKs.
    pub(crate) min_rnr: u8,
    pub(crate) allows_read: bool,
    pub(crate) allows_write: bool,
    pub(crate) allows_atomic: bool,
}

/// The other end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) qpn: u32,
    /// GID, or LID on InfiniBand without a GRH.
    pub(crate) address: u128,
    pub(crate) mac: u64,
    /// NIC it leads to, valid for `epoch`.
    pub(crate) route: u32,
    pub(crate) epoch: u32,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) qpn: u32,
    pub(crate) state: State,
    pub(crate) service: Service,
    /// Key of datagrams.
    pub(crate) qkey: u32,
    pub(crate) pd: u32,
    /// Number of its send CQ.
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
    pub(crate) uar: u32,
    pub(crate) ring: Span,
    pub(crate) log_depth: u32,
    /// Its own receive queue, if it has one.
    pub(crate) receive: Option<Box<ReceiveQueue>>,
    pub(crate) record: Span,
    pub(crate) umems: [u32; 2],
    pub(crate) mtu: u32,
    pub(crate) log_max_message: u32,
    pub(crate) remote: Remote,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// It stands in a transmit queue.
    pub(crate) queued: bool,
    /// The context as software wrote it.
    pub(crate) context: [u8; 232],
}

impl Requester {
    pub(crate) fn new() -> Self {
        Self {
            announced: 0,
            fetched: 0,
            completed: 0,
            work: VecDeque::new(),
            cursor: 0,
            send_psn: 0,
            next_psn: 0,
            oldest: 0,
            answers_due: 0,
            max_answers: 1,
            retry_count: 0,
            retries_left: 0,
            rnr_retry: 0,
            rnr_left: 0,
            window: WINDOW,
            charge: Charge::default(),
            held: false,
            timeout_ns: 0,
            adaptive: false,
            timer: Timer::new(),
            rewound: false,
            flush_due: false,
        }
    }

    /// How long it waits before it sends again.
    pub(crate) fn patience_ns(&self) -> u64 {
        match self.adaptive {
            // The schedule begins at an eighth of the timeout and doubles.
            true => (self.timeout_ns / 8).max(1) << (self.retry_count - self.retries_left).min(32),
            false => self.timeout_ns,
        }
    }

    /// True if packets are unacknowledged.
    pub(crate) fn outstanding(&self) -> bool {
        self.send_psn != self.oldest
    }
}

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            expected: 0,
            msn: 0,
            arriving: Arriving::Nothing,
            nak_sent: false,
            refusing: false,
            owed: VecDeque::new(),
            remembered: VecDeque::new(),
            max_remembered: 1,
            next_ticket: 0,
            min_rnr: 0,
            allows_read: false,
            allows_write: false,
            allows_atomic: false,
        }
    }

    /// Forgets what it owes: the queue pair left the states in which a responder answers.
    pub(crate) fn silence(&mut self) {
        self.owed.clear();
        self.remembered.clear();
        self.arriving = Arriving::Nothing;
    }
}

impl Qp {
    /// Blocks of the send queue.
    pub(crate) fn depth(&self) -> u64 {
        1 << self.log_depth
    }

    /// Back to RST: everything software did not put into the context is forgotten.
    pub(crate) fn reset(&mut self) {
        self.state = State::Rst;
        // The heap may still hold the old timer's entry; keeping the timer keeps their bookkeeping true.
        let mut timer = self.requester.timer;
        timer.at = crate::timer::NEVER;
        self.requester = Requester { timer, ..Requester::new() };
        self.responder = Responder { next_ticket: self.responder.next_ticket, ..Responder::new() };
        self.remote = Remote::none();
        if let Some(queue) = &mut self.receive {
            queue.reset();
        }
    }

    /// Takes a doorbell's index: never backwards, never beyond the ring. False if it makes no sense.
    pub(crate) fn announce(&mut self, next_index: u16) -> bool {
        let requester = &mut self.requester;
        let ahead = next_index.wrapping_sub(requester.completed as u16) as u64;
        if ahead > 1 << self.log_depth {
            return false;
        }
        requester.announced = requester.announced.max(requester.completed + ahead);
        true
    }
}

impl Remote {
    /// Nobody: no NIC has this address, so nothing comes from it.
    pub(crate) const fn none() -> Self {
        Self { qpn: 0, address: u128::MAX, mac: 0, route: NO_ROUTE, epoch: 0 }
    }
}
