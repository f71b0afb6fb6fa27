//! The mask that the agents agree on, as a buffer takes it: at the boundary of a call, never in the middle of one.

use crate::fault::MoeError;
use shunt_device::platform::host::World;
use shunt_host::pe::Pe;
use shunt_host::ranks::machine::Standing;
use shunt_host::ranks::{Agreed, Ranks};
use std::sync::Arc;

/// Bits of a meeting's number below the epoch.
const MEETING_BITS: u32 = 16;

/// What the agents of a rank's PE agree on, and the time by which it is waited for.
#[derive(Clone)]
pub struct Agreement {
    ranks: Arc<Ranks>,
    world: Arc<dyn World>,
}

impl Agreement {
    /// That of a PE, whose agent must run.
    pub fn of(pe: &Pe) -> Self {
        Self { ranks: pe.ranks().clone(), world: pe.world().clone() }
    }

    /// Waits until `done` says so, by `timeout_ns`; false if it did not.
    pub(crate) fn wait(&self, timeout_ns: u64, mut done: impl FnMut() -> bool) -> bool {
        let until_ns = self.world.now_ns().saturating_add(timeout_ns);
        while !done() {
            if self.world.now_ns() > until_ns {
                return false;
            }
            self.world.relax();
        }
        true
    }
}

/// Where a buffer stands in it.
pub(crate) struct Mask {
    agreement: Agreement,
    stamp: u64,
    epoch: u64,
    /// Who was found to be lost, in calls since the mask was taken.
    lost: Vec<u32>,
}

/// What a buffer is to do with a mask that it takes.
pub(crate) struct Taken {
    pub masked: Vec<u32>,
    /// The number of the next meeting, if it is another epoch's.
    pub meeting: Option<u64>,
}

/// The first meeting of an epoch. Ranks that tried oftener than others under the last mask meet again under this one.
pub(crate) const fn first_meeting(epoch: u64) -> u64 {
    epoch << MEETING_BITS | 2
}

/// The last one, with both halves.
pub(crate) const fn last_meeting(epoch: u64) -> u64 {
    epoch << MEETING_BITS | ((1 << MEETING_BITS) - 1)
}

impl Mask {
    pub(crate) fn new(agreement: Agreement) -> Self {
        agreement.ranks.ask();
        Self { agreement, stamp: 0, epoch: 0, lost: Vec::new() }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn note_lost(&mut self, rank: u32) {
        self.lost.push(rank);
    }

    /// Nothing was agreed on since the mask was taken; what it was, if it was.
    pub(crate) fn check(&self) -> Result<(), MoeError> {
        if self.agreement.ranks.stamp() == self.stamp {
            return Ok(());
        }
        let agreed = self.agreement.ranks.agreed();
        is_member(&agreed)?;
        Err(MoeError::Epoch { epoch: agreed.epoch, masked: agreed.mask.iter().collect() })
    }

    /// Waits until the ranks agree on all that is known to be lost, by `timeout_ns`, and takes the mask.
    pub(crate) fn take(&mut self, timeout_ns: u64) -> Result<Taken, MoeError> {
        let Agreement { ranks, world } = &self.agreement;
        let until_ns = world.now_ns().saturating_add(timeout_ns);
        loop {
            let stamp = ranks.stamp();
            let agreed = ranks.agreed();
            is_member(&agreed)?;
            let open = self.lost.iter().copied().find(|rank| !agreed.mask.has(*rank));
            if open.is_none() && !agreed.troubled {
                let new = agreed.epoch != self.epoch;
                (self.stamp, self.epoch) = (stamp, agreed.epoch);
                self.lost.clear();
                let meeting = new.then(|| first_meeting(agreed.epoch));
                return Ok(Taken { masked: agreed.mask.iter().collect(), meeting });
            }
            if world.now_ns() > until_ns {
                return Err(MoeError::Undecided { epoch: agreed.epoch, lost: open });
            }
            world.relax();
        }
    }
}

fn is_member(agreed: &Agreed) -> Result<(), MoeError> {
    match agreed.standing {
        Standing::Member => Ok(()),
        Standing::Out => Err(MoeError::LeftOut { epoch: agreed.epoch }),
        Standing::Alone => Err(MoeError::NoMajority { epoch: agreed.epoch }),
    }
}
