//! Where a path stands.

use super::io::Task;
use super::ready::Ready;
use super::reviving::Probing;
use crate::health::Health;
use crate::nanos::Nanos;
use crate::slots::RailPair;

/// Where a path stands, with what only that phase knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Ready(Ready),
    Fencing,
    Fenced,
    Released,
    Connecting,
    Probing(Probing),
    Retired,
}

impl Phase {
    pub(super) fn begin(health: Health, now: Nanos) -> Self {
        match health {
            Health::Ready => Self::Ready(Ready::default()),
            Health::Fencing => Self::Fencing,
            Health::Fenced => Self::Fenced,
            Health::Released => Self::Released,
            Health::Connecting => Self::Connecting,
            Health::Probing => Self::Probing(Probing::new(now)),
            Health::Retired => Self::Retired,
        }
    }

    pub(super) const fn health(&self) -> Health {
        match self {
            Self::Ready(_) => Health::Ready,
            Self::Fencing => Health::Fencing,
            Self::Fenced => Health::Fenced,
            Self::Released => Health::Released,
            Self::Connecting => Health::Connecting,
            Self::Probing(_) => Health::Probing,
            Self::Retired => Health::Retired,
        }
    }
}

/// A path as its machine finds it, and what outlives the machine.
#[derive(Clone, Debug)]
pub struct PathStart<H> {
    /// The highest incarnation that was ever begun; 0: it is to be made.
    pub incarnation: u32,
    /// Rails that it is given to.
    pub rails: RailPair,
    /// This half, while there is one.
    pub half: Option<H>,
    /// PSN that the next incarnation starts at.
    pub next_psn: u32,
    /// The operators' last order: odd if the path is to be out.
    pub orders: u32,
}

/// How a path stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where.
    pub health: Health,
    /// When that began.
    pub since: Nanos,
    /// The rails it is given to.
    pub rails: RailPair,
    /// The rail whose NIC works for it: that of its half.
    pub rail_at_work: u32,
    /// What that NIC is doing.
    pub task: Task,
    /// An operator wants it out.
    pub out: bool,
    /// It was given to its rails and has not been made there yet.
    pub untried: bool,
    /// Failures to revive in a row.
    pub failures: u32,
    /// Times in a row that it was left soon after it was admitted.
    pub relapses: u32,
    /// It is ready and to be left.
    pub leaving: bool,
    /// Its incarnation was probed in both directions.
    pub probed: bool,
}

impl Standing {
    /// True if it is ready and nobody is leaving it.
    pub fn is_standby(&self) -> bool {
        self.health == Health::Ready && !self.leaving
    }

    /// True if its half, or the next one, is on a rail of this end.
    pub fn touches(&self, rail: u32) -> bool {
        self.rails.local == rail || self.rail_at_work == rail
    }

    /// True if its NIC on a rail still has the fence of this half although both directions have left.
    pub fn is_fencing_at_rest(&self, rail: u32) -> bool {
        let fencing = matches!(self.task, Task::Fence(_)) && self.rail_at_work == rail;
        self.health == Health::Released && fencing
    }
}
