//! What the engine is asked for, and who is told what became of it.

use crate::error::TransferError;
use crate::ids::PeerId;
use crate::region::{Mr, MrDesc};
use crate::shard::{PIECE_MIN, Pages, writes_of};
use crate::transfer::Ended;
use shunt_recovery::nanos::Nanos;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// What both ends agree on, and how patient this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Least bytes of a piece of a split write. Both ends have the same.
    pub piece_min: u64,
    /// Rails of a peer and of this end, the smaller number: into how many pieces a single write may be split. Both ends
    /// have the same.
    pub rails: u32,
    /// How long a peer may be without a lane.
    pub give_up: Nanos,
    /// A lane is fenced once its oldest piece under way is that for so long, and for what all bytes under way take at
    /// 50 MB/s besides: also where younger ones are done. The domain may suspect it sooner.
    pub suspect: Nanos,
}

impl Policy {
    /// Between ends with so many rails each.
    pub const fn of_rails(rails: u32) -> Self {
        Self { piece_min: PIECE_MIN, rails, give_up: Nanos::secs(1), suspect: Nanos::secs(1) }
    }

    /// How many immediates a single write of so many bytes has.
    pub const fn writes_of(&self, len: u64) -> u32 {
        writes_of(len, self.rails, self.piece_min)
    }
}

/// A single write: cut into pieces over the rails.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// To whom.
    pub peer: PeerId,
    /// Bytes; none with an immediate is a bare immediate.
    pub len: u64,
    /// What each piece carries.
    pub imm: Option<u32>,
    /// Source, and the first byte in it.
    pub from: (&'a Mr, u64),
    /// Target, and the first byte in it.
    pub to: (&'a MrDesc, u64),
}

/// A single read: cut into pieces over the rails, as a write is. It carries no immediate: the peer is told nothing.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// Of whom.
    pub peer: PeerId,
    /// Bytes, one or more.
    pub len: u64,
    /// Source, a region of the peer, and the first byte in it.
    pub from: (&'a MrDesc, u64),
    /// Target, a region of this end, and the first byte in it.
    pub to: (&'a Mr, u64),
}

/// Pages, one write each.
#[derive(Clone, Copy, Debug)]
pub struct Paged<'a> {
    /// To whom.
    pub peer: PeerId,
    /// Bytes of a page.
    pub page_len: u64,
    /// What each page carries.
    pub imm: Option<u32>,
    /// Source, and its pages.
    pub from: (&'a Mr, &'a Pages),
    /// Target, and its pages, as many.
    pub to: (&'a MrDesc, &'a Pages),
}

/// What one peer gets of a scatter: one write, and so one immediate.
#[derive(Clone, Copy, Debug)]
pub struct Share<'a> {
    /// To whom.
    pub peer: PeerId,
    /// Bytes, 2^30 at most; none with an immediate is a bare immediate.
    pub len: u64,
    /// What the write carries.
    pub imm: Option<u32>,
    /// First byte in the source.
    pub from: u64,
    /// Target, and the first byte in it.
    pub to: (&'a MrDesc, u64),
}

/// Parts of one region, each to a peer of its own.
#[derive(Clone, Copy, Debug)]
pub struct Scatter<'a> {
    /// Where the bytes are.
    pub from: &'a Mr,
    /// Who gets which.
    pub shares: &'a [Share<'a>],
}

/// A meeting of engines, each of which calls it with all the others.
#[derive(Clone, Copy, Debug)]
pub struct Barrier<'a> {
    /// What is sent to each of the others, and expected of each. Barriers that overlap have one each, and so has the
    /// next one after a barrier that failed: what comes late would count for it.
    pub imm: u32,
    /// A region of this engine: no byte of it is sent.
    pub from: &'a Mr,
    /// The others, each with a region of its own: no byte of it is written.
    pub others: &'a [(PeerId, &'a MrDesc)],
    /// When it is given up.
    pub until: Nanos,
}

/// [`OnDone::Flag`] before the end.
pub const FLAG_RUNNING: u8 = 0;
/// [`OnDone::Flag`] of a transfer that was written.
pub const FLAG_DONE: u8 = 1;
/// [`OnDone::Flag`] of one that ended with an error.
pub const FLAG_FAILED: u8 = 2;

/// Who is told that a transfer has ended: once.
pub enum OnDone {
    /// This function, on the thread that steps the engine. A panic in it is counted and harms no other transfer.
    Call(Box<dyn FnOnce(Ended) + Send>),
    /// This flag becomes [`FLAG_DONE`] or [`FLAG_FAILED`].
    Flag(Arc<AtomicU8>),
    /// Nobody.
    None,
}

/// Who is told what became of an expectation: once.
pub type OnReached = Box<dyn FnOnce(Result<(), TransferError>) + Send>;

/// Who is told that a peer is cut off: once.
pub type OnLeft = Box<dyn FnOnce() + Send>;

/// Who is told that a scatter has ended: once, with the end of each share, in order.
pub type OnScattered = Box<dyn FnOnce(Vec<(PeerId, Ended)>) + Send>;

/// Who is told that a barrier has ended: once. With an error: of which peers, and why. A peer may be there twice: that
/// it did not come, then what became of the word to it. With that word alone it has come, and may not know that this
/// engine has.
pub type OnMet = Box<dyn FnOnce(Result<(), Vec<(PeerId, TransferError)>>) + Send>;
