//! Bytes that a lane has executed and that may be on their way in the receiver's NIC still. Pure.
//!
//! A lane has none of a region any more once it has answered a READ of that region ([`Op::Flush`](crate::piece::Op)),
//! which waits in that NIC for what came before it, or once it is fenced at both ends. Transfers that end while a lane
//! is asked share the next READ of their region.

use crate::ids::{LaneId, TransferId};
use crate::life::Life;
use crate::piece::Held;
use crate::routes::Routes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Transfers that wait for the same READ, which was not posted yet.
#[derive(Debug)]
struct Group {
    flush: Held,
    all: Vec<TransferId>,
}

/// What a lane is asked, in this order, and what it is asked after that, by the keys of the region.
#[derive(Debug, Default)]
struct Asked {
    now: VecDeque<Vec<TransferId>>,
    next: BTreeMap<Arc<[u32]>, Group>,
}

/// Which transfers wait for which lanes.
#[derive(Debug, Default)]
pub(crate) struct Landings(BTreeMap<LaneId, Asked>);

impl Landings {
    /// A transfer of which nothing is under way waits for lanes that have executed some of it: for how many.
    pub fn begin(&mut self, routes: &mut Routes, transfer: TransferId, life: &Life) -> u32 {
        let Some(at) = life.lands_at() else { return 0 };
        let route = routes.to(life.peer);
        let lanes = routes.marked(route, life.on);
        for (lane, is_closing) in &lanes {
            for held in self.wait(*lane, (transfer, at), &life.work.remote_keys) {
                // A fence is an answer as well.
                if !is_closing {
                    routes.wait_first(route, held);
                }
            }
        }
        lanes.len() as u32
    }

    /// A lane has answered the oldest READ: who waits for it no more. It is asked what is next.
    pub fn answered(&mut self, routes: &mut Routes, lane: LaneId) -> Vec<TransferId> {
        let (done, next) = self.answer(lane);
        for held in next.into_iter().rev() {
            if let Some(route) = routes.of(lane) {
                routes.wait_first(route, held);
            }
        }
        done
    }

    /// A transfer with a byte at this place waits for a lane: what is to be posted, if that is asked nothing yet.
    fn wait(&mut self, lane: LaneId, (transfer, at): (TransferId, u64), keys: &Arc<[u32]>) -> Vec<Held> {
        let asked = self.0.entry(lane).or_default();
        let first = || Group { flush: Held::of_flush(transfer, lane, at), all: Vec::new() };
        asked.next.entry(keys.clone()).or_insert_with(first).all.push(transfer);
        asked.ask()
    }

    /// A lane has answered: who waits for it no more, and what is to be posted next, in order.
    fn answer(&mut self, lane: LaneId) -> (Vec<TransferId>, Vec<Held>) {
        let Some(asked) = self.0.get_mut(&lane) else { return (Vec::new(), Vec::new()) };
        let done = asked.now.pop_front().unwrap_or_default();
        let next = asked.ask();
        if asked.now.is_empty() {
            self.0.remove(&lane);
        }
        (done, next)
    }

    /// A lane is closed: who waits for it no more.
    pub fn closed(&mut self, lane: LaneId) -> Vec<TransferId> {
        let Asked { now, next } = self.0.remove(&lane).unwrap_or_default();
        now.into_iter().chain(next.into_values().map(|group| group.all)).flatten().collect()
    }
}

impl Asked {
    /// The next READs, one a region, if none is on its way.
    fn ask(&mut self) -> Vec<Held> {
        if !self.now.is_empty() {
            return Vec::new();
        }
        let next = std::mem::take(&mut self.next).into_values();
        let (flushes, all): (Vec<_>, VecDeque<_>) = next.map(|group| (group.flush, group.all)).unzip();
        self.now = all;
        flushes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId(3);

    /// Cause of one READ a region: a region that is imported twice has the same keys twice, and each took its turn.
    #[test]
    fn transfers_that_end_while_a_lane_is_asked_share_the_next_read_of_their_region() {
        let keys = [1, 1, 2].map(|key| Arc::<[u32]>::from([key]));
        let mut landings = Landings::default();
        let places = |all: Vec<Held>| all.into_iter().map(|held| held.piece.remote).collect::<Vec<_>>();
        let mut wait =
            |id, region: usize| places(landings.wait(LANE, (TransferId(id), 8 * id), &keys[region]));
        assert_eq!([wait(5, 0), wait(1, 0), wait(2, 2), wait(3, 1)], [vec![40], vec![], vec![], vec![]]);
        let mut answered = || {
            let (done, next) = landings.answer(LANE);
            (done.into_iter().map(|id| id.0).collect::<Vec<_>>(), places(next))
        };
        assert_eq!(answered(), (vec![5], vec![8, 16]), "one a region, at once");
        assert_eq!((answered(), answered()), ((vec![1, 3], vec![]), (vec![2], vec![])));
        assert_eq!(answered(), (vec![], vec![]));
    }

    #[test]
    fn a_lane_that_is_closed_has_answered_all() {
        let mut landings = Landings::default();
        for id in 0..3 {
            landings.wait(LANE, (TransferId(id), 0), &Arc::from([id as u32 % 2]));
        }
        assert_eq!(landings.closed(LANE), [0, 2, 1].map(TransferId));
        assert_eq!((landings.closed(LANE), landings.answer(LANE).0), (vec![], vec![]));
    }
}
