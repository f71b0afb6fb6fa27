//! Transfers that end early, and lanes that may still have bytes of theirs: in the receiver's NIC, executed and on
//! their way to memory. Pure.
//!
//! A lane has none any more once it has answered a READ of the same region ([`Op::Flush`](crate::piece::Op::Flush)),
//! which waits in that NIC for what came before it, or once it is fenced at both ends.

use crate::ids::{LaneId, PeerId, TransferId};
use crate::lane::Lane;
use crate::piece::Held;
use crate::routes::Routes;
use std::collections::BTreeMap;

/// Which transfers wait for which lanes.
#[derive(Debug, Default)]
pub(crate) struct Landings(BTreeMap<LaneId, Vec<TransferId>>);

impl Landings {
    /// A transfer to a peer, with a byte at this place there, waits for every lane to it: for how many.
    pub fn ask(&mut self, routes: &mut Routes, peer: PeerId, (transfer, at): (TransferId, u64)) -> u32 {
        let route = routes.to(peer);
        let late = |(id, lane): &(LaneId, Lane)| lane.facts.lands_late.then_some((*id, lane.is_closing()));
        let lanes: Vec<_> = routes.at(route).lanes().filter_map(late).collect();
        for (lane, is_closing) in &lanes {
            self.0.entry(*lane).or_default().push(transfer);
            // A fence is an answer as well.
            if !is_closing {
                routes.wait_first(route, Held::of_flush(transfer, *lane, at));
            }
        }
        lanes.len() as u32
    }

    /// A lane has brought into memory what it had of a transfer. False if that one did not wait for it.
    pub fn landed(&mut self, lane: LaneId, transfer: TransferId) -> bool {
        let Some(all) = self.0.get_mut(&lane) else { return false };
        let Some(at) = all.iter().position(|id| *id == transfer) else { return false };
        all.swap_remove(at);
        if all.is_empty() {
            self.0.remove(&lane);
        }
        true
    }

    /// A lane is closed: who waited for it, the first one first.
    pub fn closed(&mut self, lane: LaneId) -> Vec<TransferId> {
        self.0.remove(&lane).unwrap_or_default()
    }
}
