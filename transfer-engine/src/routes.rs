//! The ways to all peers, and which of them may have something to post. Pure.

use crate::domain::{Batch, LaneFacts};
use crate::ids::{ByNumber, LaneId, PeerId, TransferId};
use crate::lane::Lane;
use crate::lives::Lives;
use crate::piece::Held;
use crate::route::Route;
use shunt_recovery::nanos::Nanos;

/// Peers whose way is found without a search: domains number them from 0 on.
const NEAR: usize = 4096;
const NONE: u32 = u32::MAX;

/// All of them. They have places, which stay.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    all: Vec<Route>,
    /// Places of peers with small numbers, and of the others.
    near: Vec<u32>,
    far: ByNumber<PeerId, u32>,
    of_lane: ByNumber<LaneId, u32>,
    /// Where a piece may be posted, each once.
    ready: Vec<u32>,
}

impl Routes {
    /// The place of the way to a peer, if there is one.
    #[inline]
    fn known(&self, peer: PeerId) -> Option<u32> {
        match self.near.get(peer.0 as usize) {
            Some(at) => (*at != NONE).then_some(*at),
            None => self.far.get(&peer).copied(),
        }
    }

    /// The place of the way to a peer.
    #[inline]
    pub fn to(&mut self, peer: PeerId) -> u32 {
        self.known(peer).unwrap_or_else(|| self.begin(peer))
    }

    #[cold]
    fn begin(&mut self, peer: PeerId) -> u32 {
        let (at, number) = (self.all.len() as u32, peer.0 as usize);
        self.all.push(Route::new(peer));
        if number >= NEAR {
            self.far.insert(peer, at);
            return at;
        }
        if self.near.len() <= number {
            self.near.resize(number + 1, NONE);
        }
        self.near[number] = at;
        at
    }

    /// The way to a peer, if there is one.
    #[cfg(test)]
    pub fn get(&self, peer: PeerId) -> Option<&Route> {
        self.known(peer).map(|at| &self.all[at as usize])
    }

    /// The one at a place.
    #[inline]
    pub fn at(&mut self, at: u32) -> &mut Route {
        &mut self.all[at as usize]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.all.iter()
    }

    /// Peers that have had no lane for so long, by number.
    pub fn lost(&self, now: Nanos, give_up: Nanos) -> Vec<PeerId> {
        let is_lost =
            |route: &&Route| !route.left && route.pathless.is_some_and(|since| since + give_up <= now);
        let mut lost: Vec<_> = self.all.iter().filter(is_lost).map(|route| route.peer).collect();
        lost.sort_unstable();
        lost
    }

    /// When the next one is, if something waits for it or that was not told.
    pub fn next_loss(&self, give_up: Nanos) -> Nanos {
        let waits = self.all.iter().filter(|route| !route.left && (!route.lost || route.has_more()));
        let losses = waits.filter_map(|route| route.pathless.map(|since| since + give_up));
        losses.min().unwrap_or(Nanos::MAX)
    }

    /// Lanes with pieces of a transfer under way, by number.
    pub fn holders(&self, transfer: TransferId) -> Vec<LaneId> {
        let all = self.all.iter().flat_map(Route::lanes);
        let mut holders: Vec<_> = all.filter(|(_, lane)| lane.holds(transfer)).map(|(id, _)| *id).collect();
        holders.sort_unstable();
        holders
    }

    /// A lane may be used. True if one between its rails was closed before.
    pub fn opened(&mut self, id: LaneId, facts: LaneFacts) -> bool {
        let at = self.to(facts.peer);
        self.of_lane.insert(id, at);
        let returns = self.at(at).opened(id, facts);
        self.make_ready(at);
        returns
    }

    /// Where a lane is.
    pub fn of(&self, id: LaneId) -> Option<u32> {
        self.of_lane.get(&id).copied()
    }

    /// A lane.
    pub fn lane(&mut self, id: LaneId) -> Option<&mut Lane> {
        let at = self.of(id)?;
        self.at(at).lane(id)
    }

    /// Lanes with one of these marks, and whether each is being closed.
    pub fn marked(&self, at: u32, marks: u32) -> Vec<(LaneId, bool)> {
        let lanes = self.all.get(at as usize).into_iter().flat_map(Route::lanes);
        let marked = lanes.filter(|(_, lane)| lane.mark & marks != 0);
        marked.map(|(id, lane)| (*id, lane.is_closing())).collect()
    }

    /// A lane is closed.
    pub fn closed(&mut self, id: LaneId) -> Option<(u32, Lane)> {
        let at = self.of_lane.remove(&id)?;
        Some((at, self.at(at).remove(id)?))
    }

    /// A piece may be posted on this one, if one waits.
    #[inline]
    pub fn make_ready(&mut self, at: u32) {
        let route = &mut self.all[at as usize];
        if route.has_any() && !std::mem::replace(&mut route.ready, true) {
            self.ready.push(at);
        }
    }

    /// All pieces of a transfer wait. True if they may be posted, on a lane that is open.
    #[inline]
    pub fn wait_all(&mut self, at: u32, transfer: TransferId) -> bool {
        let route = &mut self.all[at as usize];
        route.wait_all(transfer);
        if !std::mem::replace(&mut route.ready, true) {
            self.ready.push(at);
        }
        !route.left && route.open().next().is_some()
    }

    /// A piece waits, in front of all.
    pub fn wait_first(&mut self, at: u32, held: Held) {
        self.at(at).wait_first(held);
        self.make_ready(at);
    }

    /// Gives pieces to `post`, as many as lanes have room for. True if there were some.
    #[inline]
    pub fn post(&mut self, lives: &mut Lives, mut post: impl FnMut(LaneId, &Batch<'_>)) -> bool {
        let mut any = false;
        for at in self.ready.drain(..) {
            let route = &mut self.all[at as usize];
            route.ready = false;
            any |= route.post(lives, &mut post);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_places_whatever_their_numbers_are() {
        let (mut routes, peers) = (Routes::default(), [7, 0, NEAR as u32 - 1, NEAR as u32, u32::MAX]);
        for peer in peers {
            assert!(routes.get(PeerId(peer)).is_none());
        }
        assert_eq!(peers.map(|peer| routes.to(PeerId(peer))), [0, 1, 2, 3, 4]);
        assert_eq!(peers.map(|peer| routes.to(PeerId(peer))), [0, 1, 2, 3, 4], "they stay");
        assert_eq!(routes.get(PeerId(7)).map(|route| route.peer), Some(PeerId(7)));
        assert!(routes.near.len() <= NEAR, "no memory for numbers that are far away");
    }
}
