//! What a transfer has to do, and its pieces, as transfers and lanes hold them. Pure.

use crate::ids::{LaneId, TransferId};
use crate::message::skipped;
use crate::region::{Mr, MrDesc};
use std::sync::Arc;

/// What a piece does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// RDMA WRITE, with what the receiver's completion carries, or without one.
    Write(Option<u32>),
    /// RDMA READ.
    Read,
    /// READ of a byte of the peer's region, which comes to memory of the lane's own: what the lane had executed before
    /// is in the peer's memory then.
    Flush,
    /// SEND of a part of a message, [`PART_BYTES`](crate::message::PART_BYTES) at most. It names no memory of either
    /// end.
    Send,
}

impl Op {
    /// True if it takes a receive of the other end.
    pub const fn takes_receive(self) -> bool {
        matches!(self, Self::Write(Some(_)) | Self::Send)
    }

    /// True if the other end changes in no way when it is done twice: a receiver passes over a part that it has.
    pub const fn repeats(self) -> bool {
        !matches!(self, Self::Write(Some(_)))
    }
}

/// Where the bytes of a piece are at this end and at the peer, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub local: u64,
    pub remote: u64,
    /// At most [`PIECE_MAX`](crate::shard::PIECE_MAX).
    pub len: u32,
}

/// Where the bytes of a transfer are.
#[derive(Debug)]
pub(crate) enum Spans {
    One(Span),
    Many(Vec<Span>),
}

impl Spans {
    /// Of each piece.
    pub fn all(&self) -> &[Span] {
        match self {
            Self::One(span) => std::slice::from_ref(span),
            Self::Many(spans) => spans,
        }
    }
}

/// What all pieces of a transfer share.
#[derive(Debug)]
pub(crate) struct Work {
    pub op: Op,
    /// Keys of the region of this end, by rail of this end.
    pub local_keys: Arc<[u32]>,
    /// Keys of the region of the peer, by rail of the peer.
    pub remote_keys: Arc<[u32]>,
    /// Those of a message are not here: each has bytes of its own.
    pub spans: Spans,
}

impl Work {
    /// That of pieces between these regions.
    #[inline]
    pub fn new(op: Op, local: &Mr, remote: &MrDesc, spans: Spans) -> Self {
        Self { op, local_keys: local.keys().clone(), remote_keys: remote.keys().clone(), spans }
    }

    /// That of what flushes lanes, in a peer's region, where this byte is.
    pub fn of_flush(to: &MrDesc, remote: u64) -> Self {
        let spans = Spans::One(Span { local: 0, remote, len: 1 });
        Self { op: Op::Write(None), local_keys: Arc::default(), remote_keys: to.keys().clone(), spans }
    }

    /// That of a message.
    pub fn of_message() -> Self {
        Self {
            op: Op::Send,
            local_keys: Arc::default(),
            remote_keys: Arc::default(),
            spans: Spans::Many(Vec::new()),
        }
    }
}

/// One request. Its keys are those of its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Whose it is.
    pub transfer: TransferId,
    pub op: Op,
    pub local: u64,
    pub remote: u64,
    pub len: u32,
}

impl Piece {
    /// One of a transfer.
    #[inline]
    pub const fn new(transfer: TransferId, op: Op, span: Span) -> Self {
        let Span { local, remote, len } = span;
        Self { transfer, op, local, remote, len }
    }

    /// True if this transfer counts it.
    pub fn is_of(&self, transfer: TransferId) -> bool {
        self.transfer == transfer && self.op != Op::Flush
    }
}

/// Whose a piece that is sent again is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub replay: u64,
    /// Which member's bytes it carries; `None`: it is an immediate that was missing.
    pub member: Option<usize>,
}

/// A piece with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub piece: Piece,
    /// Of a replay. Its transfer counts the piece that it replaces, and not this one.
    pub tag: Option<Tag>,
    /// The bytes of a SEND.
    pub part: Option<Arc<[u8]>>,
    /// It is for this lane alone, and of no use once that is closed. Its transfer does not count it.
    pub only: Option<LaneId>,
}

impl Held {
    /// A piece of a transfer that names memory.
    pub const fn of_transfer(piece: Piece) -> Self {
        Self { piece, tag: None, part: None, only: None }
    }

    /// A part of a message.
    pub fn of_message(transfer: TransferId, part: Arc<[u8]>) -> Self {
        let span = Span { local: 0, remote: 0, len: part.len() as u32 };
        Self { part: Some(part), ..Self::of_transfer(Piece::new(transfer, Op::Send, span)) }
    }

    /// What flushes a lane, in the region where this byte is.
    pub fn of_flush(transfer: TransferId, lane: LaneId, remote: u64) -> Self {
        let piece = Piece { transfer, op: Op::Flush, local: 0, remote, len: 1 };
        Self { only: Some(lane), ..Self::of_transfer(piece) }
    }

    /// What is still to be sent of it if its transfer has ended: a receiver waits for the number of each part.
    pub fn left(self) -> Option<Self> {
        Some(Self::of_message(TransferId::ENDED, skipped(&self.part?)))
    }

    /// True if the piece does not say all of it.
    pub const fn is_odd(&self) -> bool {
        self.tag.is_some() || self.part.is_some() || self.only.is_some()
    }
}
