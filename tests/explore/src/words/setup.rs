//! One exploration of model W: how much of everything there is, and what is taken away.

use super::state::{GROUP_MAX, TICKETS, WARPS};

/// A part of the protocol taken away, or a design that is known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// A head group that cannot fit a frozen ring does not say so.
    NoBlocked,
    /// As `NoBlocked`, and the switcher takes what surely fits for the journal's limit.
    LimitByDepth,
    /// The ring check does not compare generations.
    RoomWithoutGeneration,
    /// A poller raises `done` whatever generation it is of.
    DoneWithoutGeneration,
    /// A doorbell is rung without a look under the post lock.
    LateDoorbell,
    /// The ticket word is opened by a store.
    OpenByStore,
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Slots of a ring.
    pub depth: u64,
    /// Tickets of a group, by warp.
    pub group: [u64; WARPS],
    /// Groups that each warp posts.
    pub groups: [u8; WARPS],
    /// Paths that die.
    pub faults: u8,
    /// What is taken away.
    pub broken: Option<Break>,
}

impl Setup {
    /// Rings of `depth`, and `faults`; each warp posts `groups` groups of `group` tickets.
    pub fn new(depth: u64, faults: u8, group: [u64; WARPS], groups: [u8; WARPS]) -> Self {
        let tickets: u64 = (0..WARPS).map(|warp| group[warp] * u64::from(groups[warp])).sum();
        assert!(tickets <= TICKETS as u64 && group.iter().all(|size| *size <= GROUP_MAX.min(depth)));
        Self { depth, group, groups, faults, broken: None }
    }

    /// The same without a part of the protocol.
    pub fn without(mut self, part: Break) -> Self {
        self.broken = Some(part);
        self
    }

    pub(super) fn lacks(&self, part: Break) -> bool {
        self.broken == Some(part)
    }
}
