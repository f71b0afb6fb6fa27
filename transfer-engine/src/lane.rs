//! One lane: its pieces under way, and what becomes of each when it is closed. Pure.

use crate::domain::{Fence, LaneFacts};
use crate::ids::TransferId;
use crate::piece::{Held, Op, Piece, Span, Tag};
use crate::recover::{Plan, plan};
use crate::shard::Load;
use shunt_layout::mutant::Mutant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Pieces that are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// So many of a transfer.
    Pieces(TransferId, u32),
    /// One of a replay.
    Replayed(Tag),
    /// What flushed the lane.
    Flushed,
}

impl Held {
    /// What is done once it is executed.
    pub fn done(&self) -> Done {
        let own = Done::Pieces(self.piece.transfer, 1);
        let own = if self.only.is_some() { Done::Flushed } else { own };
        self.tag.map_or(own, Done::Replayed)
    }
}

/// A lane that is open or being closed.
#[derive(Debug)]
pub(crate) struct Lane {
    pub facts: LaneFacts,
    /// Its mark among the lanes to its peer, in [`Life::on`](crate::life::Life); none if nothing of it lands late.
    pub mark: u32,
    /// In the order of posting.
    pieces: Vec<Piece>,
    /// Where the oldest one that is under way is among them: those before it are executed.
    oldest: usize,
    /// The number of the first of them.
    first: u64,
    /// Numbers of those that were executed before an older one.
    early: BTreeSet<u64>,
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
    pub const fn new(facts: LaneFacts, mark: u32) -> Self {
        Self {
            facts,
            mark: if facts.lands_late { mark } else { 0 },
            pieces: Vec::new(),
            oldest: 0,
            first: 0,
            early: BTreeSet::new(),
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
        self.first + self.pieces.len() as u64
    }

    /// Pieces that are to be given to the domain, in order, at most so many, and the number of the first one.
    #[inline]
    pub fn next_batch(&mut self, most: usize) -> Option<(&[Piece], u64, &BTreeMap<u64, Held>)> {
        if self.fresh == 0 {
            return None;
        }
        let at = self.pieces.len() - self.fresh;
        let fresh = &self.pieces[at..];
        let batch = &fresh[..fresh.len().min(most)];
        self.fresh -= batch.len();
        Some((batch, self.first + at as u64, &self.odd))
    }

    /// True if a piece of this transfer is under way: what flushes the lane is none.
    pub fn holds(&self, transfer: TransferId) -> bool {
        let theirs = |(number, piece): (u64, &Piece)| piece.is_of(transfer) && !self.early.contains(&number);
        (self.executed()..).zip(&self.pieces[self.oldest..]).any(theirs)
    }

    /// The number of the oldest piece under way.
    const fn executed(&self) -> u64 {
        self.first + self.oldest as u64
    }

    /// What stays the same until the oldest piece under way is done, if there is one.
    pub fn oldest(&self) -> Option<u64> {
        let progress = if Mutant::AnyProgress.on() { self.early.len() } else { 0 };
        (self.pieces.len() > self.oldest).then(|| self.executed() + progress as u64)
    }

    /// The oldest pieces are executed. Answers with its mark.
    pub fn sent(&mut self, count: u64, done: &mut Vec<Done>) -> u32 {
        let all = self.pieces.len();
        let end = usize::try_from(count).map_or(all, |count| all.min(self.oldest.saturating_add(count)));
        let (mut of, mut many) = (TransferId::ENDED, 0);
        for at in self.oldest..end {
            let (piece, number) = (self.pieces[at], self.first + at as u64);
            if !self.early.is_empty() && self.early.remove(&number) {
                continue;
            }
            self.is_done(piece);
            if !self.odd.is_empty()
                && let Some(held) = self.odd.remove(&number)
                && held.part.is_none()
            {
                done.push(held.done());
            } else if piece.transfer == of {
                many += 1;
            } else {
                done.extend((many > 0).then_some(Done::Pieces(of, many)));
                (of, many) = (piece.transfer, 1);
            }
        }
        done.extend((many > 0).then_some(Done::Pieces(of, many)));
        self.oldest = end;
        self.skip();
        self.mark
    }

    #[inline]
    fn is_done(&mut self, piece: Piece) {
        self.room += u32::from(!self.closing);
        self.bytes -= u64::from(piece.len);
    }

    /// True if the piece of a number is a READ.
    fn reads(&self, number: u64) -> bool {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.pieces.get(at)).is_some_and(|piece| matches!(piece.op, Op::Read | Op::Flush))
    }

    /// Passes over the oldest pieces that were executed before.
    fn skip(&mut self) {
        while !self.early.is_empty() && self.early.remove(&self.executed()) {
            self.oldest += 1;
        }
        self.fresh = self.fresh.min(self.pieces.len() - self.oldest);
        if self.oldest == self.pieces.len() || self.oldest >= STAY {
            self.first += self.oldest as u64;
            self.pieces.drain(..std::mem::take(&mut self.oldest));
        }
    }

    /// The piece of a number, which is under way no more.
    pub fn take(&mut self, number: u64) -> Option<Held> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let piece = *self.pieces.get(at).filter(|_| at >= self.oldest)?;
        if !self.early.insert(number) {
            return None;
        }
        self.is_done(piece);
        let held = self.odd.remove(&number).unwrap_or(Held::of_transfer(piece));
        self.skip();
        Some(held)
    }

    /// What becomes of its pieces after this fence.
    pub fn rest(mut self, fence: Fence) -> Rest {
        // A truth that fails its cross-check is no truth. No write that was refused was executed, and nothing behind
        // it. A READ counts as executed before it is answered, and what is behind it may be executed before it is
        // refused.
        let posted = self.next();
        let denied = self.denied.filter(|number| !self.reads(*number)).unwrap_or(posted);
        let known = self.executed()..=denied.min(posted);
        let fence = match fence {
            Fence::Executed(count) if !known.contains(&count) => Fence::NoTruth,
            fence => fence,
        };
        let quiet = fence != Fence::Unproven;
        let denied = self.denied.filter(|_| quiet).and_then(|number| self.take(number));
        let first = self.executed();
        let Self { pieces, oldest, early, mut odd, .. } = self;
        let out =
            (first..).zip(pieces.into_iter().skip(oldest)).filter(|(number, _)| !early.contains(number));
        let held = |(number, piece)| (number, odd.remove(&number).unwrap_or(Held::of_transfer(piece)));
        let out: Vec<(u64, Held)> = out.map(held).collect();
        let end = if let Fence::Executed(count) = fence { count } else { posted };
        let (under_way, rest): (Vec<_>, Vec<_>) = out.into_iter().partition(|(number, _)| *number < end);
        let [under_way, rest] =
            [under_way, rest].map(|all| all.into_iter().map(|(_, held)| held).collect::<VecDeque<_>>());
        let plan = match fence {
            Fence::Executed(_) => {
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
        let is_piece = |held: &Held| held.only.is_none();
        Rest { denied: denied.filter(is_piece), plan: plan.only(is_piece), quiet }
    }
}

/// Pieces of which something is true, and the others.
fn split(pieces: VecDeque<Held>, is: impl Fn(Op) -> bool) -> (VecDeque<Held>, VecDeque<Held>) {
    pieces.into_iter().partition(|held| is(held.piece.op))
}
