//! When transfers are cancelled, and how long each took to be quiet. Pure.

use crate::end::SLOTS;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::ids::TransferId;

/// The last moment of a cancel, in times of a whole transfer: some end before it.
const LATEST: u64 = 2;
/// Taken for the time of a transfer until one has ended.
const FIRST: Nanos = Nanos::millis(1);

/// A transfer that will be cancelled, or was.
#[derive(Clone, Copy, Debug)]
struct Planned {
    transfer: TransferId,
    began: Nanos,
    at: Nanos,
    cancelled: bool,
}

/// The cancels of all slots.
#[derive(Debug)]
pub struct Cancels {
    slots: [Option<Planned>; SLOTS],
    draws: u64,
    /// How long the last transfer took that was not cancelled.
    whole: Nanos,
    took: Vec<u64>,
}

impl Default for Cancels {
    fn default() -> Self {
        Self { slots: [None; SLOTS], draws: 0, whole: FIRST, took: Vec::new() }
    }
}

impl Cancels {
    /// A transfer began: it is cancelled at a random moment of its life, or a little later.
    pub fn begun(&mut self, now: Nanos, slot: usize, transfer: TransferId) {
        self.draws = self.draws.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let window = self.whole.get().saturating_mul(LATEST).max(1);
        let at = now + Nanos::new((self.draws >> 33) % window);
        self.slots[slot] = Some(Planned { transfer, began: now, at, cancelled: false });
    }

    /// The next one whose moment has come. It is given once.
    pub fn due(&mut self, now: Nanos) -> Option<TransferId> {
        let due = |it: &Option<Planned>| it.is_some_and(|it| !it.cancelled && it.at <= now);
        let slot = self.slots.iter().position(due)?;
        let planned = self.slots[slot].as_mut()?;
        (planned.cancelled, planned.at) = (true, now);
        Some(planned.transfer)
    }

    /// The transfer of a slot has ended, `whole` if all of it was written.
    pub fn ended(&mut self, now: Nanos, slot: usize, whole: bool) {
        let Some(planned) = self.slots[slot].take() else { return };
        if planned.cancelled {
            self.took.push((now - planned.at).get());
        } else if whole {
            self.whole = now - planned.began;
        }
    }

    /// Nanoseconds from a cancel to the transfer's end: median, 99th percentile, longest.
    pub fn percentiles(&self) -> [u64; 3] {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = |percent: usize| took.get((took.len() * percent / 100).min(took.len().saturating_sub(1)));
        [50, 99, 100].map(|percent| at(percent).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transfer_is_due_once_within_twice_its_life() {
        let mut cancels = Cancels::default();
        for slot in 0..3 {
            cancels.begun(Nanos::new(5), slot, TransferId(slot as u64));
        }
        assert_eq!(cancels.due(Nanos::new(4)), None);
        let last = Nanos::new(5) + FIRST + FIRST;
        let due: Vec<_> = std::iter::from_fn(|| cancels.due(last)).collect();
        assert_eq!(due, [TransferId(0), TransferId(1), TransferId(2)]);
        for (slot, took) in [(0, 10), (1, 30), (2, 20)] {
            cancels.ended(last + Nanos::new(took), slot, false);
        }
        assert_eq!(cancels.percentiles(), [20, 30, 30]);
    }

    #[test]
    fn one_that_ended_before_its_moment_is_not_cancelled() {
        let mut cancels = Cancels::default();
        cancels.begun(Nanos::new(0), 0, TransferId(9));
        cancels.ended(Nanos::new(700), 0, true);
        assert_eq!((cancels.due(Nanos::MAX), cancels.whole), (None, Nanos::new(700)));
        assert_eq!(cancels.percentiles(), [0; 3]);
    }
}
