//! Transfers that have not ended, by number and by age. Pure.

use crate::ids::{PeerId, TransferId};
use crate::life::Life;
use crate::piece::Work;
use crate::slab::Slab;
use shunt_recovery::nanos::Nanos;

/// All of them.
#[derive(Debug)]
pub(crate) struct Lives {
    all: Slab<Life>,
    /// Transfers so far.
    count: u64,
}

impl Lives {
    /// None yet.
    pub const fn new() -> Self {
        Self { all: Slab::new(), count: 0 }
    }

    /// One more, of so many pieces, of which so many are under way. The others wait.
    #[inline]
    pub fn put(&mut self, peer: PeerId, work: Work, pieces: usize, under_way: u32) -> TransferId {
        self.count += 1;
        TransferId(self.all.put(Life::new(work, (peer, self.count), pieces as u32, under_way)))
    }

    /// What flushes all lanes to a peer; where one of them was closed without a `proof`, of no use.
    pub fn put_flush(&mut self, peer: PeerId, work: Work, unproven: bool) -> TransferId {
        let id = self.put(peer, work, 0, 0);
        if let Some(life) = self.get_mut(id) {
            life.on = u32::MAX;
            life.trouble_mut().unsure = unproven;
        }
        id
    }

    /// That of a number.
    #[inline]
    pub fn get(&self, id: TransferId) -> Option<&Life> {
        self.all.get(id.0)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: TransferId) -> Option<&mut Life> {
        self.all.get_mut(id.0)
    }

    /// Takes one out that ends. Its number is let go once that was told.
    #[inline]
    pub fn take(&mut self, id: TransferId) -> Option<Life> {
        self.all.take(id.0)
    }

    /// The end of one was told.
    #[inline]
    pub fn let_go(&mut self, id: TransferId) {
        self.all.let_go(id.0);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Life> {
        self.all.iter().map(|(_, life)| life)
    }

    /// Those of which something is true, the oldest first.
    pub fn which(&self, is: impl Fn(&Life) -> bool) -> Vec<TransferId> {
        let all = self.all.iter().filter(|(_, life)| is(life));
        let mut ids: Vec<_> = all.map(|(id, life)| (life.age, TransferId(id))).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// The lane of this mark to a peer was closed without a proof: what it had executed may still land.
    pub fn unsure(&mut self, peer: PeerId, mark: u32) {
        for id in self.which(|life| life.peer == peer && life.on & mark != 0) {
            self.get_mut(id).into_iter().for_each(|life| life.trouble_mut().unsure = true);
        }
    }

    /// Those that have waited long enough for what is under way: they wait for it no more.
    pub fn drained(&mut self, now: Nanos) -> Vec<TransferId> {
        let overdue = self.which(|life| life.trouble().drain_until.is_some_and(|until| until <= now));
        for id in &overdue {
            self.get_mut(*id).into_iter().for_each(|life| life.trouble_mut().drain_until = None);
        }
        overdue
    }
}
