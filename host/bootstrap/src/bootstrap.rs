//! The exchange at start: everybody gives bytes to all, or to each their own.

use crate::BootstrapError;
use shunt_device::platform::host::World;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A group of ranks that start together.
pub trait Bootstrap {
    /// This rank.
    fn rank(&self) -> u32;
    /// Ranks in the group.
    fn size(&self) -> u32;
    /// Gives `mine` to all and returns everyone's, by rank. Every rank calls it equally often.
    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError>;
    /// The same, with this patience in place of the member's own. A call that fails has given its part, and counts.
    fn all_gather_within(&self, mine: &[u8], patience_ns: u64) -> Result<Vec<Vec<u8>>, BootstrapError>;
    /// Gives `rows[rank]` to each rank and to nobody else, and returns what each gave to this one, by rank. Every rank
    /// calls it equally often, in the same order with [`Bootstrap::all_gather`].
    fn exchange(&self, rows: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, BootstrapError>;
    /// This rank's part of the key that the agents' datagrams carry: bytes that nobody outside the group can guess.
    fn draw(&self) -> Result<[u8; DRAW_BYTES], BootstrapError> {
        let mut bytes = [0; DRAW_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| BootstrapError::Random { detail: error.to_string() })?;
        Ok(bytes)
    }
}

/// Bytes of a draw.
pub const DRAW_BYTES: usize = 16;

/// Longest wait for the other ranks, if none is given.
pub const PATIENCE_NS: u64 = 60_000_000_000;

/// What a rank gave in a round.
enum Given {
    All(Vec<u8>),
    Rows(Vec<Vec<u8>>),
}

impl Given {
    /// The part of a rank, who takes it once.
    fn part(&mut self, rank: u32) -> Vec<u8> {
        match self {
            Self::All(bytes) => bytes.clone(),
            Self::Rows(rows) => std::mem::take(&mut rows[rank as usize]),
        }
    }
}

#[derive(Default)]
struct Round {
    given: BTreeMap<u32, Given>,
    taken: u32,
}

/// Ranks of one process: threads, or coroutines of a simulator.
pub struct InMemory {
    rank: u32,
    size: u32,
    patience_ns: u64,
    next_round: Mutex<u64>,
    rounds: Arc<Mutex<BTreeMap<u64, Round>>>,
    world: Arc<dyn World>,
}

impl InMemory {
    /// The members of a group of `size`, by rank.
    pub fn group(size: u32, world: &Arc<dyn World>) -> Vec<Self> {
        let rounds = Arc::new(Mutex::new(BTreeMap::new()));
        (0..size)
            .map(|rank| Self {
                rank,
                size,
                patience_ns: PATIENCE_NS,
                next_round: Mutex::new(0),
                rounds: rounds.clone(),
                world: world.clone(),
            })
            .collect()
    }

    /// The same member with another patience.
    pub fn with_patience(self, patience_ns: u64) -> Self {
        Self { patience_ns, ..self }
    }
}

impl InMemory {
    /// Gives its part of the next round, and waits for all others'.
    fn meet(&self, mine: Given, patience_ns: u64) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let round = {
            let mut next = self.next_round.lock().expect("no panic under this lock");
            *next += 1;
            *next - 1
        };
        let rounds = || self.rounds.lock().expect("no panic under this lock");
        if rounds().entry(round).or_default().given.insert(self.rank, mine).is_some() {
            return Err(BootstrapError::Twice { round, rank: self.rank });
        }
        let since = self.world.now_ns();
        loop {
            {
                let mut rounds = rounds();
                let state = rounds.get_mut(&round).expect("removed by the last to take only");
                if state.given.len() == self.size as usize {
                    let all = state.given.values_mut().map(|given| given.part(self.rank)).collect();
                    state.taken += 1;
                    if state.taken == self.size {
                        rounds.remove(&round);
                    }
                    return Ok(all);
                }
                let waited_ns = self.world.now_ns().saturating_sub(since);
                if waited_ns > patience_ns {
                    let missing = (0..self.size).filter(|rank| !state.given.contains_key(rank)).collect();
                    return Err(BootstrapError::Missing { round, missing, size: self.size, waited_ns });
                }
            }
            self.world.relax();
        }
    }
}

impl Bootstrap for InMemory {
    /// One process: nobody is outside, and simulations are to repeat.
    fn draw(&self) -> Result<[u8; DRAW_BYTES], BootstrapError> {
        let number = self.rank + 1;
        let mut drawn = [number as u8; DRAW_BYTES];
        // One byte is the same for another rank then.
        if number > u32::from(u8::MAX) {
            drawn[..4].copy_from_slice(&number.to_le_bytes());
        }
        Ok(drawn)
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.all_gather_within(mine, self.patience_ns)
    }

    fn all_gather_within(&self, mine: &[u8], patience_ns: u64) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.meet(Given::All(mine.to_vec()), patience_ns)
    }

    fn exchange(&self, rows: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, BootstrapError> {
        if rows.len() != self.size as usize {
            return Err(BootstrapError::Rows { met: rows.len(), size: self.size });
        }
        self.meet(Given::Rows(rows), self.patience_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_world::StepWorld;

    #[test]
    fn a_thousand_ranks_draw_differently() {
        let world: Arc<dyn World> = Arc::new(StepWorld::new(1000));
        let drawn: std::collections::BTreeSet<_> =
            InMemory::group(1000, &world).iter().map(|member| member.draw().unwrap()).collect();
        assert_eq!(drawn.len(), 1000);
    }

    #[test]
    fn everybody_gets_all_by_rank_in_every_round() {
        let world: Arc<dyn World> = Arc::new(StepWorld::new(1000));
        let group = InMemory::group(3, &world);
        std::thread::scope(|scope| {
            for member in &group {
                scope.spawn(move || {
                    for round in 0..20u8 {
                        let all = member.all_gather(&[member.rank() as u8, round]).unwrap();
                        assert_eq!(all, [[0, round], [1, round], [2, round]]);
                    }
                });
            }
        });
        assert!(group[0].rounds.lock().unwrap().is_empty());
    }

    #[test]
    fn everybody_gets_its_own_row_of_each() {
        let world: Arc<dyn World> = Arc::new(StepWorld::new(1000));
        let group = InMemory::group(3, &world);
        std::thread::scope(|scope| {
            for member in &group {
                scope.spawn(move || {
                    let me = member.rank() as u8;
                    for round in 0..20u8 {
                        let rows = (0..3).map(|to| vec![me, to, round]).collect();
                        let mine = member.exchange(rows).unwrap();
                        assert_eq!(mine, [[0, me, round], [1, me, round], [2, me, round]]);
                        assert_eq!(member.all_gather(&[me]).unwrap(), [[0], [1], [2]]);
                    }
                });
            }
        });
        assert!(group[0].rounds.lock().unwrap().is_empty());
        let error = group[0].exchange(vec![vec![]; 2]).unwrap_err();
        assert!(matches!(error, BootstrapError::Rows { met: 2, size: 3 }), "{error}");
    }

    #[test]
    fn the_missing_are_named() {
        let world: Arc<dyn World> = Arc::new(StepWorld::new(1000));
        let group: Vec<_> =
            InMemory::group(4, &world).into_iter().map(|m| m.with_patience(1_000_000)).collect();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let waiting: Vec<_> = [0, 2]
                .map(|i| {
                    scope.spawn({
                        let m = &group[i];
                        move || m.all_gather(&[])
                    })
                })
                .into();
            waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for answer in answers {
            let Err(BootstrapError::Missing { missing, size: 4, waited_ns, .. }) = answer else {
                panic!("{answer:?}");
            };
            assert!(missing.contains(&1) && missing.contains(&3) && waited_ns > 1_000_000, "{missing:?}");
        }
    }
}
