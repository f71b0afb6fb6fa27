//! The way to one peer: pieces that wait, and the lanes that take them. Pure.

use crate::domain::{Batch, LaneFacts};
use crate::ids::{LaneId, PeerId, TransferId};
use crate::lane::Lane;
use crate::life::Life;
use crate::piece::{Held, Op, Piece, Span};
use crate::shard::choose;
use crate::slab::Slab;
use shunt_recovery::nanos::Nanos;

/// Bytes that a lane takes at once where many wait.
const RUN_BYTES: u32 = 256 << 10;
/// Pieces that a lane takes at once, and that are given to a domain at once.
const BATCH: usize = 16;
/// Entries that were taken stay in their place until they are so many, and half of all.
const STAY: usize = 256;

/// What waits.
#[derive(Debug)]
enum Waits {
    /// The last pieces of a transfer, from this one on. None was posted yet.
    Rest(TransferId, usize),
    /// One piece.
    One(Box<Held>),
    /// What was here was taken.
    Taken,
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
    lanes: Vec<(LaneId, Lane)>,
    /// Since when no lane is open.
    pub pathless: Option<Nanos>,
    /// The peer is lost, and that was said.
    pub lost: bool,
    /// The peer has left for good.
    pub left: bool,
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
            lanes: Vec::new(),
            pathless: None,
            lost: false,
            left: false,
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
        let waits = |waits: &Waits| match waits {
            Waits::Rest(..) => true,
            Waits::One(held) => is_more(held),
            Waits::Taken => false,
        };
        self.urgent.iter().any(is_more) || self.waiting[self.next..].iter().any(waits)
    }

    /// All pieces of a transfer wait.
    #[inline]
    pub fn wait_all(&mut self, transfer: TransferId) {
        self.waiting.push(Waits::Rest(transfer, 0));
    }

    /// A piece waits.
    pub fn wait(&mut self, held: Held) {
        self.waiting.push(Waits::One(Box::new(held)));
    }

    /// A piece waits, in front of all.
    pub fn wait_first(&mut self, held: Held) {
        self.urgent.push(held);
    }

    /// Nothing waits any more.
    pub fn wait_for_nothing(&mut self) {
        self.urgent.clear();
        self.waiting.clear();
        self.next = 0;
    }

    /// Drops the pieces of a transfer of which none was posted. `kept` has every other one stay, or makes another one
    /// of it.
    pub fn drop_waiting(&mut self, id: TransferId, mut kept: impl FnMut(Held) -> Option<Held>) {
        // What goes first comes last among these.
        let urgent: Vec<_> =
            std::mem::take(&mut self.urgent).into_iter().rev().filter_map(&mut kept).collect();
        self.urgent = urgent.into_iter().rev().collect();
        let kept = |waits| match waits {
            Waits::Rest(transfer, _) => (transfer != id).then_some(waits),
            Waits::One(held) => kept(*held).map(|held| Waits::One(Box::new(held))),
            Waits::Taken => None,
        };
        self.waiting = self.waiting.drain(self.next..).filter_map(kept).collect();
        self.next = 0;
    }

    /// A lane may be used.
    pub fn opened(&mut self, id: LaneId, facts: LaneFacts) {
        self.lanes.push((id, Lane::new(facts)));
        (self.pathless, self.lost) = (None, false);
    }

    /// The peer leaves, and its lanes take no more.
    pub fn leave(&mut self) {
        self.left = true;
        self.lanes.iter_mut().for_each(|(_, lane)| lane.close());
    }

    /// Its lanes.
    pub fn lanes(&self) -> impl Iterator<Item = &(LaneId, Lane)> {
        self.lanes.iter()
    }

    /// Lanes that may be used.
    pub fn open(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().map(|(_, lane)| lane).filter(|lane| !lane.is_closing())
    }

    /// A lane.
    pub fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|(known, _)| *known == id).map(|(_, lane)| lane)
    }

    /// A lane is closed.
    pub fn remove(&mut self, id: LaneId) -> Option<Lane> {
        let at = self.lanes.iter().position(|(known, _)| *known == id)?;
        Some(self.lanes.remove(at).1)
    }

    /// Puts pieces that wait on lanes, while these have room, and gives them to `post`. True if there were some.
    #[inline]
    pub fn post(&mut self, lives: &mut Slab<Life>, post: &mut impl FnMut(LaneId, &Batch<'_>)) -> bool {
        self.assign(lives);
        let mut any = false;
        for (id, lane) in &mut self.lanes {
            while let Some((pieces, first, odd)) = lane.next_batch(BATCH) {
                post(*id, &Batch { pieces, first, odd, lives });
                any = true;
            }
        }
        any
    }

    /// Puts pieces that wait on lanes, while these have room.
    #[inline]
    fn assign(&mut self, lives: &mut Slab<Life>) {
        if !self.urgent.is_empty() && !self.put_urgent(lives) {
            return;
        }
        while self.next < self.waiting.len() && self.put_next(lives) {
            self.next += 1;
        }
        if self.next == self.waiting.len() || self.next >= STAY.max(self.waiting.len() / 2) {
            self.waiting.drain(..self.next);
            self.next = 0;
        }
    }

    /// True if all of them found room.
    fn put_urgent(&mut self, lives: &mut Slab<Life>) -> bool {
        while let Some(held) = self.urgent.pop() {
            if let Err(held) = put(&mut self.lanes, held, lives) {
                self.urgent.push(held);
                return false;
            }
        }
        true
    }

    /// True if all of what waits next found room.
    #[inline]
    fn put_next(&mut self, lives: &mut Slab<Life>) -> bool {
        let Self { waiting, next, lanes, .. } = self;
        let Some(waits) = waiting.get_mut(*next) else { return false };
        if let Waits::Rest(id, first) = waits {
            // Of one that has ended nothing is left.
            let Some(life) = lives.get_mut(id.0) else { return true };
            let rest = life.work.spans.all().get(*first..).unwrap_or_default();
            let (count, all) = (deal(lanes, *id, life.work.op, rest), rest.len());
            life.posted(count as u32);
            *first += count;
            return count == all;
        }
        let Waits::One(held) = std::mem::replace(waits, Waits::Taken) else { return true };
        let rest = put(lanes, *held, lives);
        let is_all = rest.is_ok();
        if let Err(held) = rest {
            *waits = Waits::One(Box::new(held));
        }
        is_all
    }
}

/// Deals pieces of a transfer to lanes: how many of them.
#[inline]
fn deal(lanes: &mut [(LaneId, Lane)], id: TransferId, op: Op, mut rest: &[Span]) -> usize {
    if let [span] = rest {
        let Some(lane) = choose_lane(lanes, span.len) else { return 0 };
        lane.post_one(Piece::new(id, op, *span));
        return 1;
    }
    // None takes more than its share at once.
    let (all, share) = (rest.len(), (rest.len() / lanes.len().max(1)).clamp(1, BATCH));
    while let Some(next) = rest.first()
        && let Some(lane) = choose_lane(lanes, next.len)
    {
        let (mut count, mut bytes) = (0, 0);
        for span in rest.iter().take(share.min(lane.room())) {
            (count, bytes) = (count + 1, bytes + span.len);
            if bytes >= RUN_BYTES {
                break;
            }
        }
        lane.post(id, op, &rest[..count], bytes);
        rest = &rest[count..];
    }
    all - rest.len()
}

/// Puts one piece on a lane. Gives it back if none has room.
fn put(lanes: &mut [(LaneId, Lane)], held: Held, lives: &mut Slab<Life>) -> Result<(), Held> {
    let Some(lane) = choose_lane(lanes, held.piece.len) else { return Err(held) };
    let life = if held.tag.is_none() { lives.get_mut(held.piece.transfer.0) } else { None };
    life.into_iter().for_each(|life| life.posted(1));
    lane.post_held(held);
    Ok(())
}

/// The lane that takes a piece of so many bytes, if one has room.
#[inline]
fn choose_lane(lanes: &mut [(LaneId, Lane)], len: u32) -> Option<&mut Lane> {
    choose(lanes.iter_mut().map(|(_, lane)| lane.load()), len.into())
}
