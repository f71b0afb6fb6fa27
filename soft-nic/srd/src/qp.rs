//! A queue pair: what it is, its rings, and its two halves.

use crate::flow::Flows;
use crate::queues::{Receive, ReceiveQueue, SendQueue};
use crate::sender::{FOR_EVER, Sender};

/// What a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Scalable reliable datagrams.
    Reliable,
    /// Unreliable datagrams.
    Unreliable,
}

/// Where a queue pair stands; the numbers are those of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Made.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// It receives.
    Receives = 2,
    /// It receives and sends.
    Sends = 3,
    /// All is flushed.
    Error = 6,
}

/// What changes of a queue pair. What is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its state.
    pub state: Option<State>,
    /// Its key.
    pub qkey: Option<u32>,
    /// How often a receiver that is not ready is tried again; 7 is for ever.
    pub retries: Option<u8>,
}

/// What a queue pair is made from.
#[derive(Debug)]
pub struct Parts {
    /// What it is.
    pub service: Service,
    /// Protection domain.
    pub pd: u16,
    /// Completion queue of what it sends.
    pub send_cq: u16,
    /// Completion queue of what it receives.
    pub receive_cq: u16,
    /// Its send ring, if it has one.
    pub send: Option<SendQueue>,
    /// Its receive ring, if it has one.
    pub receive: Option<ReceiveQueue>,
}

/// A queue pair.
pub struct Qp {
    pub(crate) parts: Parts,
    pub(crate) state: State,
    pub(crate) qkey: u32,
    pub(crate) retries: u8,
    /// Which life of this number it is.
    pub(crate) epoch: u64,
    pub(crate) sender: Sender,
    pub(crate) flows: Flows,
    piece_bytes: u32,
}

impl Qp {
    pub(crate) fn new(parts: Parts, epoch: u64, piece_bytes: u32) -> Self {
        Self {
            parts,
            state: State::Reset,
            qkey: 0,
            retries: FOR_EVER,
            epoch,
            sender: Sender::new(piece_bytes),
            flows: Flows::default(),
            piece_bytes,
        }
    }

    /// True if it takes messages.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.state, State::Receives | State::Sends)
    }

    /// Begins a new life with empty rings.
    pub(crate) fn reset(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.sender = Sender::new(self.piece_bytes);
        self.flows.clear();
        self.parts.send.iter_mut().for_each(SendQueue::reset);
        self.parts.receive.iter_mut().for_each(ReceiveQueue::reset);
    }

    /// Requests that were posted or under way and never end otherwise; then receives.
    pub(crate) fn flush(&mut self) -> (Vec<u16>, Vec<u16>) {
        let mut sends = self.sender.flush();
        while let Some(met) = self.parts.send.as_mut().and_then(SendQueue::take) {
            sends.push(met.map_or_else(|(request, _)| request, |wqe| wqe.request));
        }
        let queue = &mut self.parts.receive;
        let receives = std::iter::from_fn(|| queue.as_mut().and_then(ReceiveQueue::take));
        (sends, receives.map(|Receive { request, .. }| request).collect())
    }
}
