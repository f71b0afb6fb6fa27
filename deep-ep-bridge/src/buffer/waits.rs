//! How long a rank waited for each other one: DeepEP's statistics of waits, in nanoseconds.

use super::{Buffer, Combine, Dispatch, Received};
use crate::fault::MoeError;
use crate::runner::Runner;
use crate::settings::Signals;
use shunt_layout::moe::{At, SETS};
use std::borrow::Borrow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Words of a call that a rank waits for, by who sends them.
struct Watch {
    began: Instant,
    least: u64,
    pending: Vec<(u32, At)>,
}

impl<R: Runner> Buffer<R> {
    /// As [`Buffer::receive_dispatch`]; adds to `costs`, by rank, how long the count of each local expert was waited
    /// for from here on.
    ///
    /// # Errors
    /// As there.
    pub fn receive_dispatch_timed(
        &mut self,
        sent: impl Borrow<Dispatch>,
        costs: &mut [u64],
    ) -> Result<Received, MoeError> {
        let sent = sent.borrow();
        self.may_receive(sent.buffer, sent.call)?;
        let (shape, set) = (self.shape, sent.call % SETS);
        let watch = self.watch(sent.call, costs, |rank, local| shape.count(set, local, rank));
        let received = self.receive_dispatch(sent);
        watch.end(costs);
        received
    }

    /// The same of [`Buffer::receive_combine`], and the flag of each expert.
    ///
    /// # Errors
    /// As there.
    pub fn receive_combine_timed(
        &mut self,
        sent: impl Borrow<Combine>,
        costs: &mut [u64],
    ) -> Result<Vec<u16>, MoeError> {
        let sent = sent.borrow();
        self.may_receive(sent.buffer, sent.call)?;
        let (shape, set) = (self.shape, sent.call % SETS);
        let expert =
            |rank: u32, local: u32| u64::from(rank) * u64::from(shape.local_experts) + u64::from(local);
        let watch = self.watch(sent.call, costs, |rank, local| shape.flag(set, expert(rank, local)));
        let received = self.receive_combine(sent);
        watch.end(costs);
        received
    }

    /// Watches the words of a call for a slice at most: the kernel behind it looks after paths as well, and waits for
    /// what has not come by then.
    fn watch(&self, call: u64, costs: &mut [u64], word: impl Fn(u32, u32) -> At) -> Watch {
        let least = if self.patience.signals == Signals::Absolute { call << 32 } else { 1 };
        let ranks = (0..self.shape.ranks).filter(|rank| self.mask_word(*rank).load(Ordering::Acquire) == 0);
        let words = ranks.flat_map(|rank| (0..self.shape.local_experts).map(move |local| (rank, local)));
        let pending = words.map(|(rank, local)| (rank, word(rank, local))).collect();
        let mut watch = Watch { began: Instant::now(), least, pending };
        let slice = Duration::from_nanos(self.patience.slice_ns);
        while !watch.pending.is_empty() && watch.began.elapsed() < slice {
            watch.look(costs, |at| self.word(at).load(Ordering::Acquire));
            std::thread::yield_now();
        }
        watch
    }
}

impl Watch {
    /// Takes off what has come.
    fn look(&mut self, costs: &mut [u64], read: impl Fn(At) -> u64) {
        let (least, began) = (self.least, self.began);
        self.pending.retain(|(rank, at)| {
            let there = read(*at) >= least;
            if there {
                add(costs, *rank, began);
            }
            !there
        });
    }

    /// What is pending came no later than now, or never.
    fn end(self, costs: &mut [u64]) {
        self.pending.iter().for_each(|(rank, _)| add(costs, *rank, self.began));
    }
}

fn add(costs: &mut [u64], rank: u32, began: Instant) {
    if let Some(cost) = costs.get_mut(rank as usize) {
        *cost += began.elapsed().as_nanos() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_costs_its_rank_until_it_is_there() {
        let mut watch =
            Watch { began: Instant::now(), least: 5, pending: vec![(0, At(0)), (1, At(8)), (1, At(16))] };
        let mut costs = [0; 2];
        watch.look(&mut costs, |at| at.0);
        assert!(costs[1] > 0 && costs[0] == 0 && watch.pending.len() == 1, "{costs:?}");
        let early = costs[1];
        watch.end(&mut costs);
        assert!(costs[0] > 0 && costs[1] == early, "{costs:?}");
    }
}
