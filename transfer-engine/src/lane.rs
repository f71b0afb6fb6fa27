//! One lane: its pieces under way, and what becomes of each when it is closed. Pure.

use crate::domain::{Fence, LaneFacts};
use crate::ids::TransferId;
use crate::piece::{Held, Op, Piece, Span, Tag};
use crate::recover::{Plan, plan};
use crate::shard::Load;
use shunt_layout::mutant::Mutant;
use std::collections::{BTreeMap, VecDeque};

/// Pieces that are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// So many of a transfer.
    Pieces(TransferId, u32),
    /// One of a replay.
    Replayed(Tag),
}

/// A lane that is open or being closed.
#[derive(Debug)]
pub(crate) struct Lane {
    pub facts: LaneFacts,
    /// In the order of posting.
    pieces: Vec<Piece>,
    /// Where the oldest one that is under way is among them.
    oldest: usize,
    /// Its number: those before it are executed.
    executed: u64,
    /// How many, the youngest, were not given to the domain.
    fresh: usize,
    /// Those of which a piece does not say all, by number.
    odd: BTreeMap<u64, Held>,
    /// How many more it takes; none once it is being closed.
    room: u32,
    closing: bool,
    /// Bytes under way.
    bytes: u64,
    /// A NIC refused the piece of this number.
    pub denied: Option<u64>,
}

/// So many pieces that are executed stay in their place, where they cost no more than what is under way.
const STAY: usize = 256;

/// What becomes of the pieces of a lane that is closed.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The one that a NIC refused.
    pub denied: Option<Held>,
    pub plan: Plan,
    /// Nothing of what is in doubt can land any more.
    pub quiet: bool,
}

impl Lane {
    /// On which nothing was posted yet.
    pub const fn new(facts: LaneFacts) -> Self {
        Self {
            facts,
            pieces: Vec::new(),
            oldest: 0,
            executed: 0,
            fresh: 0,
            odd: BTreeMap::new(),
            room: facts.depth,
            closing: false,
            bytes: 0,
            denied: None,
        }
    }

    /// What is to be known to choose one.
    #[inline]
    pub const fn load(&self) -> Load {
        Load { free: self.room, bytes: self.bytes, rate: self.facts.rate }
    }

    /// How many more pieces it takes.
    #[inline]
    pub const fn room(&self) -> usize {
        self.room as usize
    }

    /// No more is posted.
    pub const fn close(&mut self) {
        (self.closing, self.room) = (true, 0);
    }

    /// True if no more is posted.
    #[inline]
    pub const fn is_closing(&self) -> bool {
        self.closing
    }

    /// Pieces of a transfer are under way, no more than it has room for.
    #[inline]
    pub fn post(&mut self, transfer: TransferId, op: Op, spans: &[Span]) {
        (self.room, self.fresh) = (self.room - spans.len() as u32, self.fresh + spans.len());
        let mut bytes = 0;
        self.pieces.extend(spans.iter().map(|span| {
            bytes += u64::from(span.len);
            Piece::new(transfer, op, *span)
        }));
        self.bytes += bytes;
    }

    /// One more piece is under way. There is room for it.
    #[inline]
    pub fn post_one(&mut self, piece: Piece) {
        (self.room, self.fresh) = (self.room - 1, self.fresh + 1);
        self.bytes += u64::from(piece.len);
        self.pieces.push(piece);
    }

    /// The same of one that may be odd.
    pub fn post_held(&mut self, held: Held) {
        let piece = held.piece;
        if held.is_odd() {
            self.odd.insert(self.next(), held);
        }
        self.post_one(piece);
    }

    /// The number of the next piece.
    const fn next(&self) -> u64 {
        self.executed + (self.pieces.len() - self.oldest) as u64
    }

    /// Pieces that are to be given to the domain, in order, at most so many, and the number of the first one.
    #[inline]
    pub fn next_batch(&mut self, most: usize) -> Option<(&[Piece], u64, &BTreeMap<u64, Held>)> {
        if self.fresh == 0 {
            return None;
        }
        let (number, at) = (self.next() - self.fresh as u64, self.pieces.len() - self.fresh);
        let fresh = &self.pieces[at..];
        let batch = &fresh[..fresh.len().min(most)];
        self.fresh -= batch.len();
        Some((batch, number, &self.odd))
    }

    /// True if a piece of this transfer is under way.
    pub fn holds(&self, transfer: TransferId) -> bool {
        self.pieces[self.oldest..].iter().any(|piece| piece.is_out && piece.transfer == transfer)
    }

    /// What stays the same until the oldest piece under way is done, if there is one.
    pub fn oldest(&self) -> Option<u64> {
        let known = &self.pieces[self.oldest..];
        let under_way = known.iter().filter(|piece| piece.is_out).count();
        let progress = if Mutant::AnyProgress.on() { known.len() - under_way } else { 0 };
        (under_way > 0).then_some(self.executed + progress as u64)
    }

    /// The oldest pieces are executed.
    pub fn sent(&mut self, count: u64, done: &mut Vec<Done>) {
        for _ in 0..count {
            let Some((piece, tag)) = self.pop() else { break };
            match (tag, done.last_mut()) {
                _ if !piece.is_out => {}
                (Some(tag), _) => done.push(Done::Replayed(tag)),
                (None, Some(Done::Pieces(id, many))) if *id == piece.transfer => *many += 1,
                (None, _) => done.push(Done::Pieces(piece.transfer, 1)),
            }
        }
        self.skip();
    }

    /// The oldest piece is under way no more.
    #[inline]
    fn pop(&mut self) -> Option<(Piece, Option<Tag>)> {
        let piece = *self.pieces.get(self.oldest)?;
        self.oldest += 1;
        let held = if self.odd.is_empty() { None } else { self.odd.remove(&self.executed) };
        self.executed += 1;
        if piece.is_out {
            self.is_done(piece);
        }
        Some((piece, held.and_then(|held| held.tag)))
    }

    #[inline]
    fn is_done(&mut self, piece: Piece) {
        self.room += u32::from(!self.closing);
        self.bytes -= u64::from(piece.len);
    }

    /// Passes over the oldest pieces that were executed before.
    fn skip(&mut self) {
        while self.pieces.get(self.oldest).is_some_and(|piece| !piece.is_out) {
            self.pop();
        }
        self.fresh = self.fresh.min(self.pieces.len() - self.oldest);
        if self.oldest == self.pieces.len() || self.oldest >= STAY {
            self.pieces.drain(..self.oldest);
            self.oldest = 0;
        }
    }

    /// The piece of a number, which is under way no more.
    pub fn take(&mut self, number: u64) -> Option<Held> {
        let at = usize::try_from(number.checked_sub(self.executed)?).ok()?;
        let piece = self.pieces.get_mut(self.oldest..)?.get_mut(at).filter(|piece| piece.is_out)?;
        let known = *piece;
        piece.is_out = false;
        self.is_done(known);
        let held = self.odd.remove(&number).unwrap_or(Held::of_transfer(known));
        self.skip();
        Some(held)
    }

    /// What becomes of its pieces after this fence.
    pub fn rest(mut self, fence: Fence) -> Rest {
        // A truth that fails its cross-check is no truth. Nothing that was refused or is behind it was executed.
        let posted = self.next();
        let known = self.executed..=self.denied.unwrap_or(posted).min(posted);
        let fence = match fence {
            Fence::Executed(count) if !known.contains(&count) => Fence::NoTruth,
            fence => fence,
        };
        let quiet = fence != Fence::Unproven;
        let denied = self.denied.filter(|_| quiet).and_then(|number| self.take(number));
        let first = self.executed;
        let Self { pieces, oldest, mut odd, .. } = self;
        let out = (first..).zip(pieces.into_iter().skip(oldest)).filter(|(_, piece)| piece.is_out);
        let held = |(number, piece)| odd.remove(&number).unwrap_or(Held::of_transfer(piece));
        let mut under_way: VecDeque<_> = out.map(held).collect();
        let plan = match fence {
            Fence::Executed(count) => {
                let rest = under_way.split_off(count.saturating_sub(first) as usize);
                // Of a read the peer's count says that it was answered, and not that the answer came.
                let (mut again, mut executed) = split(under_way, |op| op == Op::Read);
                again.extend(rest);
                if Mutant::ExecutedSentAgain.on() {
                    again.extend(executed.drain(..));
                }
                Plan { again, executed: executed.into(), ..Plan::default() }
            }
            Fence::Counted(counts) => plan(under_way, &counts),
            // A piece without an immediate changes nothing when it is done twice: its transfer has not ended.
            Fence::NoTruth => {
                let (again, in_doubt) = split(under_way, Op::repeats);
                Plan { again, in_doubt, ..Plan::default() }
            }
            // The memory of a SEND is the lane's own.
            Fence::Unproven => {
                let (again, in_doubt) = split(under_way, |op| op == Op::Send);
                Plan { again, in_doubt, ..Plan::default() }
            }
        };
        Rest { denied, plan, quiet }
    }
}

/// Pieces of which something is true, and the others.
fn split(pieces: VecDeque<Held>, is: impl Fn(Op) -> bool) -> (VecDeque<Held>, VecDeque<Held>) {
    pieces.into_iter().partition(|held| is(held.piece.op))
}
