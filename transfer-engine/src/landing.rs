//! Bytes that a lane has executed and that may be on their way in the receiver's NIC still. Pure.
//!
//! A lane has none of a region any more once it has answered a READ of that region ([`Op::Flush`](crate::piece::Op)),
//! which waits in that NIC for what came before it, or once it is fenced at both ends. A lane is asked one thing at a
//! time: transfers that end meanwhile share the next READ.

use crate::ids::{LaneId, TransferId};
use crate::life::Life;
use crate::piece::Held;
use crate::routes::Routes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Transfers that wait for the same READ.
#[derive(Debug)]
struct Group {
    keys: Arc<[u32]>,
    flush: Held,
    all: Vec<TransferId>,
}

/// What a lane is asked, and what it is asked after that.
#[derive(Debug, Default)]
struct Asked {
    now: Vec<TransferId>,
    next: Vec<Group>,
}

/// Which transfers wait for which lanes.
#[derive(Debug, Default)]
pub(crate) struct Landings(BTreeMap<LaneId, Asked>);

impl Landings {
    /// A transfer of which nothing is under way waits for lanes that have executed some of it: for how many.
    pub fn begin(&mut self, routes: &mut Routes, transfer: TransferId, life: &Life) -> u32 {
        let route = routes.to(life.peer);
        let (lanes, single) = routes.marked(route, life.on);
        let Some(at) = life.lands_at(single) else { return 0 };
        for (lane, is_closing) in &lanes {
            let flush = self.wait(*lane, (transfer, at), &life.work.remote_keys);
            // A fence is an answer as well.
            let flush = flush.filter(|_| !is_closing);
            flush.into_iter().for_each(|held| routes.wait_first(route, held));
        }
        lanes.len() as u32
    }

    /// A lane has answered: who waits for it no more. It is asked what is next.
    pub fn answered(&mut self, routes: &mut Routes, lane: LaneId) -> Vec<TransferId> {
        let (done, next) = self.answer(lane);
        if let (Some(held), Some(route)) = (next, routes.of(lane)) {
            routes.wait_first(route, held);
        }
        done
    }

    /// A transfer with a byte at this place waits for a lane: what is to be posted, if that is asked nothing yet.
    fn wait(&mut self, lane: LaneId, (transfer, at): (TransferId, u64), keys: &Arc<[u32]>) -> Option<Held> {
        let asked = self.0.entry(lane).or_default();
        match asked.next.iter_mut().find(|group| Arc::ptr_eq(&group.keys, keys)) {
            Some(group) => group.all.push(transfer),
            None => {
                let flush = Held::of_flush(transfer, lane, at);
                asked.next.push(Group { keys: keys.clone(), flush, all: vec![transfer] });
            }
        }
        asked.ask()
    }

    /// A lane has answered: who waits for it no more, and what is to be posted next.
    fn answer(&mut self, lane: LaneId) -> (Vec<TransferId>, Option<Held>) {
        let Some(asked) = self.0.get_mut(&lane) else { return (Vec::new(), None) };
        let done = std::mem::take(&mut asked.now);
        let next = asked.ask();
        if next.is_none() {
            self.0.remove(&lane);
        }
        (done, next)
    }

    /// A lane is closed: who waits for it no more.
    pub fn closed(&mut self, lane: LaneId) -> Vec<TransferId> {
        let Asked { now, next } = self.0.remove(&lane).unwrap_or_default();
        now.into_iter().chain(next.into_iter().flat_map(|group| group.all)).collect()
    }
}

impl Asked {
    /// The next READ, if none is on its way.
    fn ask(&mut self) -> Option<Held> {
        if !self.now.is_empty() || self.next.is_empty() {
            return None;
        }
        let Group { flush, all, .. } = self.next.remove(0);
        self.now = all;
        Some(flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId(3);

    #[test]
    fn transfers_that_end_while_a_lane_is_asked_share_the_next_read_of_their_region() {
        let (mut landings, keys) = (Landings::default(), [Arc::<[u32]>::from([1]), Arc::from([1])]);
        let mut wait = |id, region: usize| {
            landings
                .wait(LANE, (TransferId(id), 8 * id), &keys[region])
                .map(|held| (held.piece.transfer.0, held.piece.remote))
        };
        assert_eq!((wait(0, 0), wait(1, 0), wait(2, 1), wait(3, 0)), (Some((0, 0)), None, None, None));
        let mut answered = || {
            let (done, next) = landings.answer(LANE);
            (done.into_iter().map(|id| id.0).collect::<Vec<_>>(), next.map(|held| held.piece.remote))
        };
        assert_eq!(answered(), (vec![0], Some(8)), "in the order in which they came");
        assert_eq!((answered(), answered()), ((vec![1, 3], Some(16)), (vec![2], None)));
        assert_eq!(answered(), (vec![], None));
    }

    #[test]
    fn a_lane_that_is_closed_has_answered_all() {
        let (mut landings, keys) = (Landings::default(), Arc::<[u32]>::from([1]));
        for id in 0..3 {
            landings.wait(LANE, (TransferId(id), 0), &keys);
        }
        assert_eq!(landings.closed(LANE), [0, 1, 2].map(TransferId));
        assert_eq!((landings.closed(LANE), landings.answer(LANE).0), (vec![], vec![]));
    }
}
