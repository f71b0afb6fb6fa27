//! What an agent keeps of the agreement on who is left out: which ranks, and what it has told of them.

use crate::nanos::Nanos;
use crate::ranks::Ranks;
use crate::ranks::machine::Standing;
use std::sync::Arc;

/// What an agent knows of it beside what outlives it.
pub(super) struct Agreement {
    pub(super) ranks: Arc<Ranks>,
    /// Epoch and standing that were told.
    pub(super) told: (u64, Standing),
    pub(super) next_touch_ns: Nanos,
    /// It follows another agent, and has not said so.
    pub(super) follows: bool,
}

impl Agreement {
    pub(super) fn new(ranks: &Arc<Ranks>, follows: bool) -> Self {
        let agreed = ranks.agreed();
        Self {
            ranks: ranks.clone(),
            told: (agreed.epoch, agreed.standing),
            next_touch_ns: Nanos::ZERO,
            follows,
        }
    }
}
