//! Calls to several peers at once: scatters and barriers.

use crate::asker::until;
use crate::error::CallError;
use crate::node::{Node, Region};
use crate::pending::{Met, Scattered, Slot};
use shunt_transfer_engine::engine::{Barrier, Scatter, Share};
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::MrDesc;
use shunt_transfer_engine::transfer::Ended;
use std::time::Duration;

impl Node {
    /// Begins to write parts of a region to several peers: one write and one immediate each.
    ///
    /// # Errors
    /// The region is another node's; there are no shares, one leaves a region, or its target is not for peers to write.
    /// Nothing was posted.
    pub fn scatter(&self, from: &Region, shares: &[Share<'_>]) -> Result<Scattered, CallError> {
        shares.iter().try_for_each(|share| self.peer(share.peer.0).map(|_| ()))?;
        let (slot, filler) = Slot::new(self.asker.process());
        let ends = |ends: Vec<(PeerId, Ended)>| ends.into_iter().map(|(_, ended)| ended.into()).collect();
        let done = Box::new(move |ended| filler.fill(ends(ended)));
        let plain = |share: &Share<'_>| (share.peer, share.len, share.imm, share.from, share.to.1);
        let own: Vec<_> = shares.iter().map(|share| (plain(share), share.to.0.clone())).collect();
        let from = self.own(from)?;
        let id = self.asker.ask(move |engine, now| {
            let share = |((peer, len, imm, from, at), to)| Share { peer, len, imm, from, to: (to, at) };
            let shares: Vec<_> = own.iter().map(|(plain, to)| share((*plain, to))).collect();
            engine.submit_scatter(now, &Scatter { from: &from, shares: &shares }, done)
        })??;
        Ok(Scattered { id, slot, asker: self.asker.clone() })
    }

    /// Begins to meet others: it ends once each of them has called it with this end, or when this time is over. `from`
    /// and the regions of the others lend their keys alone. What was written before is not covered: wait for its end
    /// first.
    ///
    /// # Errors
    /// The region is another node's; there are no others, one is named twice, its region is not for peers to write, or
    /// this immediate is expected of it already. Nothing was posted.
    pub fn barrier(
        &self,
        imm: u32,
        from: &Region,
        others: &[(u32, &MrDesc)],
        patience: Duration,
    ) -> Result<Met, CallError> {
        let other = |(peer, target): &(u32, &MrDesc)| Ok((self.peer(*peer)?, (*target).clone()));
        let others = others.iter().map(other).collect::<Result<Vec<_>, CallError>>()?;
        let (from, (slot, filler)) = (self.own(from)?, Slot::new(self.asker.process()));
        let done = Box::new(move |met| filler.fill(met));
        self.asker.ask(move |engine, now| {
            let until = until(now, patience);
            let others: Vec<_> = others.iter().map(|(peer, target)| (*peer, target)).collect();
            engine.submit_barrier(now, &Barrier { imm, from: &from, others: &others, until }, done)
        })??;
        Ok(Met { slot })
    }
}
