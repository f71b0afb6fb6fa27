//! The way to one peer: pieces that wait, and the lanes that take them. Pure.

use crate::domain::{Batch, LaneFacts};
use crate::ids::{LaneId, PeerId, TransferId};
use crate::lane::Lane;
use crate::lives::Lives;
use crate::piece::{Held, Op, Piece, Span};
use crate::shard::choose;
use shunt_recovery::nanos::Nanos;
use std::collections::{BTreeSet, VecDeque};

/// Bytes that a lane takes at once where many wait.
const RUN_BYTES: u32 = 256 << 10;
/// Pieces that a lane takes at once, and that are given to a domain at once.
const BATCH: usize = 16;
/// Entries that were taken stay in their place until they are so many, and half of all.
const STAY: usize = 256;

/// What waits.
#[derive(Clone, Copy, Debug)]
enum Waits {
    /// The last pieces of a transfer, from this one on. None was posted yet.
    Rest(TransferId, usize),
    /// One piece: the first of those that are kept beside.
    One,
}

/// Lanes of a route.
#[derive(Debug)]
struct Lanes {
    all: Vec<(LaneId, Lane)>,
    /// They carry the same.
    is_even: bool,
}

/// The way to a peer.
#[derive(Debug)]
pub(crate) struct Route {
    pub peer: PeerId,
    /// Pieces that go first, from the last one on.
    urgent: Vec<Held>,
    /// What goes then, from this place on.
    waiting: Vec<Waits>,
    next: usize,
    ones: VecDeque<Held>,
    lanes: Lanes,
    /// Rails, of this end and of the peer, of lanes that were closed and not opened again.
    closed: Vec<(u32, u32)>,
    /// Since when no lane is open.
    pub pathless: Option<Nanos>,
    /// The peer is lost, and that was said.
    pub lost: bool,
    /// The peer has left for good.
    pub left: bool,
    /// A lane was closed without a proof: what it had executed may land at any time.
    pub unproven: bool,
    /// It stands among those for which a piece may be posted.
    pub ready: bool,
}

impl Route {
    /// That to a peer of which nothing is known.
    pub const fn new(peer: PeerId) -> Self {
        Self {
            peer,
            urgent: Vec::new(),
            waiting: Vec::new(),
            next: 0,
            ones: VecDeque::new(),
            lanes: Lanes { all: Vec::new(), is_even: true },
            closed: Vec::new(),
            pathless: None,
            lost: false,
            left: false,
            unproven: false,
            ready: false,
        }
    }

    /// True if something waits.
    #[inline]
    pub const fn has_any(&self) -> bool {
        self.next < self.waiting.len() || !self.urgent.is_empty()
    }

    /// True if a transfer waits.
    pub fn has_more(&self) -> bool {
        let is_more = |held: &Held| held.piece.transfer != TransferId::ENDED;
        let waits = |waits: &Waits| matches!(waits, Waits::Rest(..));
        self.urgent.iter().chain(&self.ones).any(is_more) || self.waiting[self.next..].iter().any(waits)
    }

    /// All pieces of a transfer wait.
    #[inline]
    pub fn wait_all(&mut self, transfer: TransferId) {
        self.waiting.push(Waits::Rest(transfer, 0));
    }

    /// A piece waits.
    pub fn wait(&mut self, held: Held) {
        self.waiting.push(Waits::One);
        self.ones.push_back(held);
    }

    /// A piece waits, in front of all.
    pub fn wait_first(&mut self, held: Held) {
        self.urgent.push(held);
    }

    /// Nothing waits any more.
    pub fn wait_for_nothing(&mut self) {
        self.urgent.clear();
        self.waiting.clear();
        self.ones.clear();
        self.next = 0;
    }

    /// Drops the pieces of these transfers of which none was posted. `kept` has every other one stay, or makes another
    /// one of it.
    pub fn drop_waiting(&mut self, ids: &BTreeSet<TransferId>, mut kept: impl FnMut(Held) -> Option<Held>) {
        // What goes first comes last among these.
        let urgent: Vec<_> =
            std::mem::take(&mut self.urgent).into_iter().rev().filter_map(&mut kept).collect();
        self.urgent = urgent.into_iter().rev().collect();
        let (mut ones, next) = (std::mem::take(&mut self.ones).into_iter(), std::mem::take(&mut self.next));
        for waits in std::mem::take(&mut self.waiting).into_iter().skip(next) {
            match waits {
                Waits::Rest(transfer, _) if ids.contains(&transfer) => {}
                Waits::Rest(..) => self.waiting.push(waits),
                Waits::One => ones.next().and_then(&mut kept).into_iter().for_each(|held| self.wait(held)),
            }
        }
    }

    /// A lane may be used. True if one between its rails was closed before.
    pub fn opened(&mut self, id: LaneId, facts: LaneFacts) -> bool {
        let rails = (facts.local, facts.remote);
        let before = self.closed.iter().position(|closed| *closed == rails);
        before.into_iter().for_each(|at| _ = self.closed.swap_remove(at));
        let marks = self.lanes.all.iter().fold(0, |marks, (_, lane)| marks | lane.mark);
        // More lanes than marks share the last one: both are asked then.
        let mark = 1 << (!marks).trailing_zeros().min(u32::BITS - 1);
        self.lanes.all.push((id, Lane::new(facts, mark)));
        self.lanes.compare();
        (self.pathless, self.lost) = (None, false);
        before.is_some()
    }

    /// The peer leaves, and its lanes take no more.
    pub fn leave(&mut self) {
        self.left = true;
        self.lanes.all.iter_mut().for_each(|(_, lane)| lane.close());
    }

    /// Its lanes.
    pub fn lanes(&self) -> impl Iterator<Item = &(LaneId, Lane)> {
        self.lanes.all.iter()
    }

    /// Lanes that may be used.
    pub fn open(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.all.iter().map(|(_, lane)| lane).filter(|lane| !lane.is_closing())
    }

    /// A lane.
    pub fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.all.iter_mut().find(|(known, _)| *known == id).map(|(_, lane)| lane)
    }

    /// A lane is closed.
    pub fn remove(&mut self, id: LaneId) -> Option<Lane> {
        let at = self.lanes.all.iter().position(|(known, _)| *known == id)?;
        let (_, lane) = self.lanes.all.remove(at);
        self.urgent.retain(|held| held.only != Some(id));
        self.closed.push((lane.facts.local, lane.facts.remote));
        self.lanes.compare();
        Some(lane)
    }

    /// The place of the lane that takes a piece of so many bytes at once: one has room, and nothing waits.
    #[inline]
    pub fn at_once(&self, len: u32) -> Option<usize> {
        if self.has_any() { None } else { self.lanes.choice(len) }
    }

    /// Gives a piece to `post` that goes at once, on the lane at this place.
    #[inline]
    pub fn post_at_once(
        &mut self,
        at: usize,
        piece: Piece,
        lives: &Lives,
        post: impl FnOnce(LaneId, &Batch<'_>),
    ) {
        let Some((id, lane)) = self.lanes.all.get_mut(at) else { return };
        lane.post_one(piece);
        if let Some((pieces, first, odd)) = lane.next_batch(1) {
            post(*id, &Batch { pieces, first, odd, lives });
        }
    }

    /// Puts pieces that wait on lanes, while these have room, and gives them to `post`. True if there were some.
    #[inline]
    pub fn post(&mut self, lives: &mut Lives, post: &mut impl FnMut(LaneId, &Batch<'_>)) -> bool {
        let count = self.assign(lives);
        let mut left = count;
        for (id, lane) in &mut self.lanes.all {
            if left == 0 {
                break;
            }
            while let Some((pieces, first, odd)) = lane.next_batch(BATCH) {
                post(*id, &Batch { pieces, first, odd, lives });
                left -= pieces.len();
            }
        }
        count > 0
    }

    /// The same of what goes first; and false if a lane has no room for a piece that any could take.
    #[cold]
    fn assign_urgent(&mut self, lives: &mut Lives) -> (usize, bool) {
        let (mut count, mut later, mut is_all) = (0, Vec::new(), true);
        while let Some(held) = self.urgent.pop() {
            let place = held.only.map(|lane| self.lanes.open(lane));
            match place {
                Some(Some(lane)) if lane.room() > 0 => lane.post_held(held),
                Some(Some(_)) => {
                    later.push(held);
                    continue;
                }
                // The lane is being closed, which answers it.
                Some(None) => continue,
                None => {
                    if let Err(held) = self.lanes.put(held, lives) {
                        self.urgent.push(held);
                        is_all = false;
                        break;
                    }
                }
            }
            count += 1;
        }
        self.urgent.extend(later.into_iter().rev());
        (count, is_all)
    }

    /// Puts pieces that wait on lanes, while these have room: how many.
    #[inline]
    fn assign(&mut self, lives: &mut Lives) -> usize {
        let mut count = 0;
        if !self.urgent.is_empty() {
            let is_all;
            (count, is_all) = self.assign_urgent(lives);
            if !is_all {
                return count;
            }
        }
        while let Some(waits) = self.waiting.get_mut(self.next) {
            let (more, is_all) = match waits {
                // Of one that has ended nothing is left.
                Waits::Rest(id, first) => lives.get_mut(*id).map_or((0, true), |life| {
                    let rest = life.work.spans.all().get(*first..).unwrap_or_default();
                    let (more, all) = (self.lanes.deal(*id, life.work.op, rest), rest.len());
                    life.posted(more as u32);
                    *first += more;
                    (more, more == all)
                }),
                Waits::One => match self.ones.pop_front().map(|held| self.lanes.put(held, lives)) {
                    Some(Err(held)) => {
                        self.ones.push_front(held);
                        (0, false)
                    }
                    Some(Ok(())) => (1, true),
                    None => (0, true),
                },
            };
            count += more;
            if !is_all {
                break;
            }
            self.next += 1;
        }
        if self.next == self.waiting.len() {
            self.waiting.clear();
            self.next = 0;
        } else if self.next >= STAY.max(self.waiting.len() / 2) {
            self.waiting.drain(..std::mem::take(&mut self.next));
        }
        count
    }
}

impl Lanes {
    /// A lane that takes pieces.
    fn open(&mut self, id: LaneId) -> Option<&mut Lane> {
        let (_, lane) = self.all.iter_mut().find(|(known, _)| *known == id)?;
        Some(lane).filter(|lane| !lane.is_closing())
    }

    fn compare(&mut self) {
        self.is_even = self.all.windows(2).all(|two| two[0].1.facts.rate == two[1].1.facts.rate);
    }

    /// The lane that takes a piece of so many bytes, if one has room.
    #[inline]
    fn choose(&mut self, len: u32) -> Option<&mut Lane> {
        let at = self.choice(len)?;
        self.all.get_mut(at).map(|(_, lane)| lane)
    }

    /// Its place.
    #[inline]
    fn choice(&self, len: u32) -> Option<usize> {
        if self.is_even {
            let (mut best, mut least) = (usize::MAX, u64::MAX);
            for (at, (_, lane)) in self.all.iter().enumerate() {
                let load = lane.load();
                if load.free > 0 && load.bytes < least {
                    (best, least) = (at, load.bytes);
                    // None is idler.
                    if least == 0 {
                        break;
                    }
                }
            }
            (best != usize::MAX).then_some(best)
        } else {
            choose(self.all.iter().map(|(_, lane)| lane.load()).enumerate(), len.into())
        }
    }

    /// Deals pieces of a transfer: how many of them.
    #[inline]
    fn deal(&mut self, id: TransferId, op: Op, mut rest: &[Span]) -> usize {
        if let [span] = rest {
            let Some(lane) = self.choose(span.len) else { return 0 };
            lane.post_one(Piece::new(id, op, *span));
            return 1;
        }
        // None takes more than its share at once.
        let (all, share) = (rest.len(), (rest.len() / self.all.len().max(1)).clamp(1, BATCH));
        while let Some(next) = rest.first()
            && let Some(lane) = self.choose(next.len)
        {
            let most = (RUN_BYTES / next.len.max(1)) as usize;
            let (run, others) = rest.split_at(most.clamp(1, share).min(lane.room()).min(rest.len()));
            lane.post(id, op, run);
            rest = others;
        }
        all - rest.len()
    }

    /// Takes one piece. Gives it back if none has room.
    fn put(&mut self, held: Held, lives: &mut Lives) -> Result<(), Held> {
        let Some(lane) = self.choose(held.piece.len) else { return Err(held) };
        let life = if held.tag.is_none() { lives.get_mut(held.piece.transfer) } else { None };
        life.into_iter().for_each(|life| life.posted(1));
        lane.post_held(held);
        Ok(())
    }
}
