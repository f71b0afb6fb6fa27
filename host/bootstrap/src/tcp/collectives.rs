//! The exchanges at start, through rank 0: everybody gives to all, or to each their own.

use super::PART_MAX;
use super::handle::Handle;
use super::state::{Give, Parts, State, after};
use crate::{Bootstrap, BootstrapError};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of rows that a rank gives ahead of those it has got: what rank 0 keeps of them for slow readers is bounded.
const AHEAD: usize = 64 << 10;

/// The exchange at start. Its handles of one [`TcpNet`](super::TcpNet) count the same rounds.
#[derive(Clone, Debug)]
pub struct TcpBootstrap {
    handle: Arc<Handle>,
    patience: Duration,
}

/// A round under way.
struct Round {
    number: u64,
    since: Instant,
}

/// How long a round may still take. It follows what comes: a rank waits for as long as its patience since it began to
/// wait, and again since each part that it got. So ranks that are slow, on a machine with few cores, are waited for
/// while they come one after the other; and the end is bounded, as often as there are ranks.
struct Awaiting {
    missing: usize,
    since: Instant,
}

impl Awaiting {
    fn new(since: Instant) -> Self {
        Self { missing: usize::MAX, since }
    }

    /// So many are missing now: until when they are waited for.
    fn until(&mut self, missing: usize, now: Instant, patience: Duration) -> Instant {
        if missing < self.missing {
            (self.missing, self.since) = (missing, now);
        }
        self.since + patience
    }
}

impl TcpBootstrap {
    pub(super) fn new(handle: Arc<Handle>, patience: Duration) -> Self {
        Self { handle, patience }
    }

    /// The same member with another patience.
    pub fn with_patience(self, patience_ns: u64) -> Self {
        Self { patience: Duration::from_nanos(patience_ns), ..self }
    }

    fn check(round: u64, part: &[u8]) -> Result<(), BootstrapError> {
        match part.len() {
            met if met > PART_MAX => Err(BootstrapError::TooLong { round, met, want: PART_MAX }),
            _ => Ok(()),
        }
    }

    /// Begins the next round with what this rank gives to itself.
    fn begin(&self, next: &mut u64, own: Arc<Vec<u8>>) -> Round {
        let round = Round { number: *next, since: Instant::now() };
        *next += 1;
        let me = self.rank();
        self.handle.shared.update(|state| state.rounds.entry(round.number).or_default().insert(me, own));
        round
    }

    fn give(&self, round: &Round, to: Option<u32>, bytes: Arc<Vec<u8>>) {
        self.handle.shared.lock().gives.push_back(Give { round: round.number, to, bytes });
        self.handle.shared.wake();
    }

    /// Waits until nobody is missing.
    fn wait(
        &self,
        round: &Round,
        missing: impl Fn(&State, &Parts) -> Vec<u32>,
    ) -> Result<MutexGuard<'_, State>, BootstrapError> {
        let (shared, number) = (&self.handle.shared, round.number);
        let mut awaiting = Awaiting::new(Instant::now());
        let mut state = shared.lock();
        loop {
            // All parts may be here, but ours went to nobody.
            if state.closing {
                return Err(BootstrapError::Closed { round: number });
            }
            let missing = state.rounds.get(&number).map(|parts| missing(&state, parts)).unwrap_or_default();
            if missing.is_empty() {
                return Ok(state);
            }
            // Without rank 0 nothing comes any more.
            let needed = [&missing[..], &[0]].concat();
            if let Some((rank, reason)) = state.first_gone(&needed) {
                return Err(BootstrapError::Lost { round: number, rank, reason });
            }
            let now = Instant::now();
            let until = awaiting.until(missing.len(), now, self.patience);
            if now >= until {
                let (size, waited_ns) = (shared.world, round.since.elapsed().as_nanos() as u64);
                return Err(BootstrapError::Missing { round: number, missing, size, waited_ns });
            }
            state = shared.wait(state, until);
        }
    }

    /// Waits until all parts of a round are there.
    fn collect(&self, round: &Round) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let size = self.size();
        let answer = self.wait(round, |state, parts| {
            // Rank 0 may leave afterwards, so it stays until all that goes through it has done so.
            let under_way = |rank: &u32| state.given.get(rank).is_some_and(|given| *given <= round.number);
            (0..size).filter(|rank| !parts.contains_key(rank) || under_way(rank)).collect()
        });
        let parts = answer.map(|mut state| state.rounds.remove(&round.number).unwrap_or_default())?;
        // Copied without the lock: it may be much.
        Ok(parts.into_values().map(Arc::unwrap_or_clone).collect())
    }

    /// Nothing of this round is wanted any more. Where it failed the others will be told why this rank leaves.
    fn end<T>(&self, round: &Round, answer: Result<T, BootstrapError>) -> Result<T, BootstrapError> {
        self.handle.shared.update(|state| {
            state.rounds.remove(&round.number);
            state.oldest_round = round.number + 1;
            match &answer {
                Ok(_) => state.failed = None,
                Err(error) => state.fail(&error.to_string()),
            }
        });
        answer
    }

    fn gather(&self, next: &mut u64, mine: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let bytes = Arc::new(mine.to_vec());
        let round = self.begin(next, bytes.clone());
        self.give(&round, None, bytes);
        let answer = self.collect(&round);
        self.end(&round, answer)
    }

    /// Gives each other rank its row: in the order of the ranks behind this one, so that nobody is given to by all at
    /// once, and none much sooner than the rank as far before this one has given its own. The first failure ends the
    /// waiting and not the giving: the one that comes late finds what it needs.
    fn give_rows(
        &self,
        round: &Round,
        mut rows: Vec<Vec<u8>>,
        mut so_far: Result<(), BootstrapError>,
    ) -> Result<(), BootstrapError> {
        let (me, size) = (self.rank(), self.size());
        let (mut ahead, mut got) = (0, 0);
        let mut lengths = Vec::with_capacity(rows.len());
        for step in 1..size {
            let to = after(me, step, size);
            let row = std::mem::take(&mut rows[to as usize]);
            ahead += row.len();
            lengths.push(row.len());
            self.give(round, Some(to), Arc::new(row));
            while so_far.is_ok() && ahead > AHEAD && got < lengths.len() {
                ahead -= lengths[got];
                got += 1;
                let from = after(me, size - got as u32, size);
                let missing = |_: &State, parts: &Parts| match parts.contains_key(&from) {
                    true => Vec::new(),
                    false => vec![from],
                };
                so_far = self.wait(round, missing).map(drop);
            }
        }
        so_far
    }
}

impl Bootstrap for TcpBootstrap {
    fn rank(&self) -> u32 {
        self.handle.shared.rank
    }

    fn size(&self) -> u32 {
        self.handle.shared.world
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let mut next = self.handle.round.lock().unwrap_or_else(PoisonError::into_inner);
        Self::check(*next, mine)?;
        self.gather(&mut next, mine)
    }

    fn all_gather_within(&self, mine: &[u8], patience_ns: u64) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.clone().with_patience(patience_ns).all_gather(mine)
    }

    fn exchange(&self, mut rows: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let mut next = self.handle.round.lock().unwrap_or_else(PoisonError::into_inner);
        let (me, size) = (self.rank(), self.size());
        if rows.len() != size as usize {
            return Err(BootstrapError::Rows { met: rows.len(), size });
        }
        rows.iter().try_for_each(|row| Self::check(*next + 1, row))?;
        // A rank that waits for another's row cannot tell who holds that one up: so all are here before it begins.
        let so_far = self.gather(&mut next, &[]).map(drop);
        let own = Arc::new(std::mem::take(&mut rows[me as usize]));
        let round = self.begin(&mut next, own);
        let given = self.give_rows(&round, rows, so_far);
        let answer = given.and_then(|()| self.collect(&round));
        self.end(&round, answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixteen ranks on two cores were given up after 60 s in all, while they came one after the other.
    #[test]
    fn patience_counts_from_the_last_part_that_came() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let (patience, mut awaiting) = (60 * second, Awaiting::new(begin));
        assert_eq!(awaiting.until(3, begin, patience), begin + patience);
        assert_eq!(awaiting.until(3, begin + 50 * second, patience), begin + patience, "nothing came");
        let later = begin + 59 * second;
        assert_eq!(awaiting.until(2, later, patience), later + patience);
        assert_eq!(awaiting.until(2, later + 59 * second, patience), later + patience);
        let rest = (1..2).rev().fold(later, |at, missing| awaiting.until(missing, at + patience, patience));
        assert_eq!(rest, later + 2 * patience, "as often as there are ranks, and no longer");
    }
}
