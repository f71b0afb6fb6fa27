//! One lane: its pieces under way, and what becomes of each when it is closed. Pure.

use crate::domain::{Fence, LaneFacts, Op, Piece};
use crate::ids::TransferId;
use crate::recover::{Held, Plan, Tag, plan};
use shunt_layout::mutant::Mutant;
use std::collections::VecDeque;

/// What is known of a piece beside what is posted.
#[derive(Clone, Copy, Debug)]
struct Mark {
    tag: Option<Tag>,
    /// False: executed before an older one.
    is_out: bool,
}

/// Pieces that are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// So many of a transfer.
    Pieces(TransferId, u64),
    /// One of a replay.
    Replayed(Tag),
}

/// A lane that is open or being closed.
#[derive(Debug)]
pub(crate) struct Lane {
    pub facts: LaneFacts,
    /// In the order of posting, from the oldest that is under way.
    pieces: VecDeque<Piece>,
    marks: VecDeque<Mark>,
    /// How many of them, the youngest, were not given to the domain.
    fresh: usize,
    /// Pieces under way.
    count: u32,
    /// Their bytes.
    bytes: u64,
    /// Number of the oldest piece under way: those before it are executed.
    executed: u64,
    /// No more is posted.
    pub closing: bool,
    /// A NIC refused the piece of this number.
    pub denied: Option<u64>,
}

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
            pieces: VecDeque::new(),
            marks: VecDeque::new(),
            fresh: 0,
            count: 0,
            bytes: 0,
            executed: 0,
            closing: false,
            denied: None,
        }
    }

    /// How many more pieces it takes; none once it is being closed.
    pub const fn room(&self) -> u32 {
        if self.closing { 0 } else { self.facts.depth.saturating_sub(self.count) }
    }

    /// Bytes under way.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One more piece is under way.
    pub fn post(&mut self, held: Held) {
        let Held { piece, tag } = held;
        (self.count, self.bytes, self.fresh) = (self.count + 1, self.bytes + piece.len, self.fresh + 1);
        self.pieces.push_back(piece);
        self.marks.push_back(Mark { tag, is_out: true });
    }

    /// True if pieces are to be given to the domain.
    pub const fn has_fresh(&self) -> bool {
        self.fresh > 0
    }

    /// Pieces that are to be given to the domain, in order, at most so many; none once all are.
    pub fn next_batch(&mut self, most: usize) -> Option<&[Piece]> {
        let at = self.pieces.len() - self.fresh;
        let (front, back) = self.pieces.as_slices();
        let rest = if at < front.len() { &front[at..] } else { &back[at - front.len()..] };
        let batch = &rest[..rest.len().min(most)];
        self.fresh -= batch.len();
        if batch.is_empty() { None } else { Some(batch) }
    }

    /// Pieces under way, the oldest first.
    pub fn under_way(&self) -> impl Iterator<Item = &Piece> {
        let out = self.pieces.iter().zip(&self.marks).filter(|(_, mark)| mark.is_out);
        out.map(|(piece, _)| piece)
    }

    /// The oldest pieces are executed.
    pub fn sent(&mut self, count: u64, done: &mut Vec<Done>) {
        for _ in 0..count {
            let Some((piece, mark)) = self.pop() else { return };
            match (mark.tag, done.last_mut()) {
                _ if !mark.is_out => {}
                (Some(tag), _) => done.push(Done::Replayed(tag)),
                (None, Some(Done::Pieces(id, many))) if *id == piece.transfer => *many += 1,
                (None, _) => done.push(Done::Pieces(piece.transfer, 1)),
            }
        }
        self.skip();
    }

    /// The oldest piece is under way no more.
    fn pop(&mut self) -> Option<(Piece, Mark)> {
        let (piece, mark) = (self.pieces.pop_front()?, self.marks.pop_front()?);
        self.executed += 1;
        self.fresh = self.fresh.min(self.pieces.len());
        if mark.is_out {
            (self.count, self.bytes) = (self.count - 1, self.bytes - piece.len);
        }
        Some((piece, mark))
    }

    /// Passes over the oldest pieces that were executed before.
    fn skip(&mut self) {
        while self.marks.front().is_some_and(|mark| !mark.is_out) {
            self.pop();
        }
    }

    /// The piece of a number, which is under way no more.
    pub fn take(&mut self, number: u64) -> Option<Held> {
        let at = usize::try_from(number.checked_sub(self.executed)?).ok()?;
        let (piece, mark) = (self.pieces.get(at)?.clone(), self.marks.get_mut(at)?);
        if !std::mem::replace(&mut mark.is_out, false) {
            return None;
        }
        let tag = mark.tag;
        (self.count, self.bytes) = (self.count - 1, self.bytes - piece.len);
        self.skip();
        Some(Held { piece, tag })
    }

    /// What becomes of its pieces after this fence.
    pub fn rest(mut self, fence: Fence) -> Rest {
        // A truth that fails its cross-check is no truth. Nothing that was refused or is behind it was executed.
        let posted = self.executed + self.pieces.len() as u64;
        let known = self.executed..=self.denied.unwrap_or(posted).min(posted);
        let fence = match fence {
            Fence::Executed(count) if !known.contains(&count) => Fence::NoTruth,
            fence => fence,
        };
        let quiet = fence != Fence::Unproven;
        let denied = self.denied.filter(|_| quiet).and_then(|number| self.take(number));
        let first = self.executed;
        let out = self.pieces.into_iter().zip(self.marks).filter(|(_, mark)| mark.is_out);
        let mut under_way: VecDeque<_> = out.map(|(piece, mark)| Held { piece, tag: mark.tag }).collect();
        let plan = match fence {
            Fence::Executed(count) => {
                let rest = under_way.split_off(count.saturating_sub(first) as usize);
                // Of a read the peer's count says that it was answered, and not that the answer came.
                let (mut again, mut executed) = split(under_way, |op| *op == Op::Read);
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
                let (again, in_doubt) = split(under_way, |op| matches!(op, Op::Send(_)));
                Plan { again, in_doubt, ..Plan::default() }
            }
        };
        Rest { denied, plan, quiet }
    }
}

/// Pieces of which something is true, and the others.
fn split(pieces: VecDeque<Held>, is: impl Fn(&Op) -> bool) -> (VecDeque<Held>, VecDeque<Held>) {
    pieces.into_iter().partition(|held| is(&held.piece.op))
}
