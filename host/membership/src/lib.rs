//! The mask of ranks: who is left out, agreed on by the agents. `docs/DEEPEP.md` says by which rules.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`rank_set`] | a set of ranks |
//! | [`reachability`] | which ranks can go on together, and who may decide; pure |
//! | [`paxos`] | how they agree: single-decree Paxos, one decision an epoch; pure |
//! | [`message`] | what agents tell each other of it |
//!
//! [`Ranks`] is what a PE, its agent and the users of the mask have in common. Nothing of it runs before somebody
//! asks for it: agents that are not asked say nothing, and answer nothing.

pub mod message;
pub mod paxos;
pub mod rank_set;
pub mod reachability;

use paxos::{Machine, Standing, Times};
use rank_set::RankSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the agents agreed on, as far as this PE knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Counts decisions; 0: there was none.
    pub epoch: u64,
    /// Who is left out.
    pub mask: RankSet,
    /// How this rank stands.
    pub standing: Standing,
    /// Ranks have lost each other, and nothing is decided about it yet.
    pub troubled: bool,
}

/// The mask of one PE.
pub struct Ranks {
    ranks: u32,
    wanted: AtomicBool,
    /// A copy, so that a call costs one load to see that nothing changed.
    stamp: AtomicU64,
    /// Made by the first agent that is asked. It outlives agents: what was promised is kept.
    machine: Mutex<Option<Machine>>,
}

impl Ranks {
    /// Of a job of so many.
    pub fn new(ranks: u32) -> Self {
        Self { ranks, wanted: AtomicBool::new(false), stamp: AtomicU64::new(0), machine: Mutex::new(None) }
    }

    /// From now on the agent of this PE agrees with the others on who is left out. All ranks ask for it, or none.
    pub fn ask(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// True once it was asked for.
    pub fn is_asked(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Changes whenever epoch or standing do, and only then.
    pub fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// What was agreed on.
    pub fn agreed(&self) -> Agreed {
        match &*self.lock() {
            Some(machine) => Agreed {
                epoch: machine.epoch(),
                mask: machine.mask(),
                standing: machine.standing(),
                troubled: machine.is_troubled(),
            },
            None => Agreed {
                epoch: 0,
                mask: RankSet::none(self.ranks),
                standing: Standing::Member,
                troubled: false,
            },
        }
    }

    /// Lets the agent of rank `me` carry it on.
    pub fn with<R>(&self, me: u32, times: Times, now_ns: u64, step: impl FnOnce(&mut Machine) -> R) -> R {
        let mut held = self.lock();
        let machine = held.get_or_insert_with(|| Machine::new(me, self.ranks, times, now_ns));
        let before = (machine.epoch(), machine.standing());
        let done = step(machine);
        if before != (machine.epoch(), machine.standing()) {
            self.stamp.fetch_add(1, Ordering::AcqRel);
        }
        done
    }

    /// Nobody waits under it.
    fn lock(&self) -> MutexGuard<'_, Option<Machine>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
