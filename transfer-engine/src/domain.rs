//! What moves the pieces: the rails of one transport, driven by one worker.

pub use crate::batch::{Batch, Request};
use crate::ids::{LaneId, PeerId};
pub use crate::piece::Op;
use shunt_recovery::nanos::Nanos;
use std::collections::BTreeMap;

/// A lane that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneFacts {
    /// Where it leads.
    pub peer: PeerId,
    /// Rail of this end.
    pub local: u32,
    /// Rail of the peer.
    pub remote: u32,
    /// Most pieces under way.
    pub depth: u32,
    /// What it carries, in a unit that all lanes share.
    pub rate: u64,
    /// What it has executed may be on its way to the peer's memory still: an [`Op::Flush`] waits for it there.
    pub lands_late: bool,
}

/// What is known of a lane that is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fence {
    /// It is quiet at both ends, and this many of its pieces were executed, counted from its opening.
    Executed(u64),
    /// It is quiet at both ends. Its receiver has no count of what was executed, and counts immediates: this became of
    /// the pieces under way, by immediate. One that is not named arrived. The piece of [`Event::Denied`] is none of
    /// them: counted as missing, it would have another piece with its immediate sent twice.
    Counted(BTreeMap<u32, Counted>),
    /// It is quiet at both ends. What was executed is not known.
    NoTruth,
    /// Nothing is proved: what was under way may still land.
    Unproven,
}

/// What became of pieces with the same immediate that were under way on a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// So many of them did not arrive.
    pub missing: u64,
    /// The receiver may have taken one of them for the last of an expectation: their memory is in use.
    pub reached: bool,
}

/// What a domain tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A lane may be used.
    Opened(LaneId, LaneFacts),
    /// So many more of its pieces, the oldest, are executed.
    Sent(LaneId, u64),
    /// A piece of a lane without an order is executed: its number, from 0 on since the lane was opened.
    Executed(LaneId, u64),
    /// A lane does not work any more. It is to be closed.
    Failed(LaneId),
    /// The same, because a NIC refused the piece of this number: its keys, its addresses, its length. It would be
    /// refused on every lane. Said of one piece of a lane at most.
    Denied(LaneId, u64),
    /// A lane is closed, whoever asked for it.
    Closed(LaneId, Fence),
    /// A peer that was to leave is cut off: nothing of it lands here any more. Its lanes are closed later.
    Left(PeerId),
    /// An immediate of a peer has arrived, and its bytes before it.
    Imm(PeerId, u32),
    /// A part of a message of a peer has arrived.
    Part(PeerId, Vec<u8>),
}

/// The rails of one transport. A lane with a count executes its pieces in the order they were posted, and tells of them
/// with [`Event::Sent`]; one without has no order. Lanes have none among each other.
pub trait Domain {
    /// Posts pieces on a lane of which the end was not told yet. No more are under way on it at once than it has depth.
    /// If it has ended nothing is done with them, and its fence counts them among what was not executed.
    fn post(&mut self, now: Nanos, lane: LaneId, batch: &Batch<'_>);
    /// Has a lane fenced at both ends. [`Event::Closed`] follows, once, and nothing about the lane after it.
    fn close(&mut self, now: Nanos, lane: LaneId);
    /// Cuts a peer off, whether it answers or not: its queue pairs at this end are destroyed. [`Event::Left`] follows,
    /// then [`Event::Closed`] for each of its lanes, and nothing of the peer after that; where one of them cannot be
    /// destroyed in time, [`Event::Left`] comes last, once it is. Its number is not used again.
    fn leave(&mut self, now: Nanos, peer: PeerId);
    /// An expectation of this immediate of a peer was reached at this end.
    fn reached(&mut self, _peer: PeerId, _imm: u32) {}
    /// What has happened since the last call.
    fn poll(&mut self, now: Nanos, events: &mut Vec<Event>);
}
