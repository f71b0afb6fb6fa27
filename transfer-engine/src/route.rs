//! The way to one peer: pieces that wait, and the lanes that take them. Pure.

use crate::domain::{LaneFacts, Piece};
use crate::ids::{LaneId, PeerId, TransferId};
use crate::lane::Lane;
use crate::recover::Held;
use crate::shard::{Load, choose};
use shunt_recovery::nanos::Nanos;
use std::collections::VecDeque;

/// Pieces that a lane takes at once where many wait, and their bytes.
const RUN: usize = 4;
const RUN_BYTES: u64 = 256 << 10;
/// Pieces that are given to a domain at once.
const BATCH: usize = 16;

/// The way to a peer.
#[derive(Debug, Default)]
pub(crate) struct Route {
    pub waiting: VecDeque<Held>,
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
    /// True if a transfer waits.
    pub fn has_more(&self) -> bool {
        self.waiting.iter().any(|held| held.piece.transfer != TransferId::ENDED)
    }

    /// Has it stand among those for which a piece may be posted, if one waits.
    pub fn make_ready(&mut self, peer: PeerId, all: &mut VecDeque<PeerId>) {
        if !self.waiting.is_empty() && !std::mem::replace(&mut self.ready, true) {
            all.push_back(peer);
        }
    }

    /// A lane may be used.
    pub fn opened(&mut self, id: LaneId, facts: LaneFacts) {
        self.lanes.push((id, Lane::new(facts)));
        (self.pathless, self.lost) = (None, false);
    }

    /// The peer leaves, and its lanes take no more.
    pub fn leave(&mut self) {
        self.left = true;
        self.lanes.iter_mut().for_each(|(_, lane)| lane.closing = true);
    }

    /// Its lanes.
    pub fn lanes(&self) -> impl Iterator<Item = &(LaneId, Lane)> {
        self.lanes.iter()
    }

    /// Lanes that may be used.
    pub fn open(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().map(|(_, lane)| lane).filter(|lane| !lane.closing)
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

    /// Puts pieces that wait on lanes, while these have room. `begun` is told how many of which transfer.
    pub fn assign(&mut self, mut begun: impl FnMut(TransferId, u64)) {
        let lanes = self.lanes.len().max(1);
        while let Some(first) = self.waiting.front() {
            let load = |lane: &Lane| Load { free: lane.room(), bytes: lane.bytes(), rate: lane.facts.rate };
            let all = self.lanes.iter().enumerate().map(|(at, (_, lane))| (at, load(lane)));
            let Some(at) = choose(all, first.piece.len) else { return };
            let lane = &mut self.lanes[at].1;
            let run = (self.waiting.len() / (RUN * lanes)).clamp(1, RUN).min(lane.room() as usize);
            let (mut bytes, mut of, mut count) = (0, first.piece.transfer, 0);
            for _ in 0..run {
                let Some(held) = self.waiting.pop_front() else { break };
                bytes += held.piece.len;
                if held.piece.transfer != of {
                    begun(of, std::mem::take(&mut count));
                    of = held.piece.transfer;
                }
                count += u64::from(held.tag.is_none());
                lane.post(held);
                if bytes >= RUN_BYTES {
                    break;
                }
            }
            begun(of, count);
        }
    }

    /// Pieces of one lane that are to be given to the domain.
    pub fn next_batch(&mut self) -> Option<(LaneId, &[Piece])> {
        self.lanes.iter_mut().find_map(|(id, lane)| Some((*id, lane.next_batch(BATCH)?)))
    }
}
