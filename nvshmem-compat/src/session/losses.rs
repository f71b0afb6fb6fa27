//! Which losses of PEs end a wait for a word. A wait does not know who will write the word: so it ends by the loss of
//! any PE, once what was under way has had its time, and each loss is told once. A program that goes on without a PE
//! was told of it, and its further waits are for others. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// What is known of PEs that were given up.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// PE to when a wait first saw it.
    seen: BTreeMap<u32, u64>,
    told: BTreeSet<u32>,
}

impl Losses {
    /// A call has failed by the loss of a PE.
    pub fn tell(&mut self, pe: u32) {
        self.told.insert(pe);
    }

    /// The PE whose loss ends a wait now. `lost`: all that are lost, of `others`; `grace_ns`: how long after the loss
    /// was first seen something may still arrive. Where nobody is left that could write, every wait ends.
    pub fn due(&mut self, lost: &[u32], others: u32, now_ns: u64, grace_ns: u64) -> Option<u32> {
        let alone = lost.len() as u32 == others;
        for pe in lost {
            let since = *self.seen.entry(*pe).or_insert(now_ns);
            if (alone || !self.told.contains(pe)) && now_ns.saturating_sub(since) >= grace_ns {
                return Some(*pe);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_ends_one_wait_behind_its_grace() {
        let mut losses = Losses::default();
        assert_eq!(losses.due(&[], 3, 5, 100), None);
        assert_eq!(losses.due(&[2], 3, 10, 100), None, "what is under way may still arrive");
        assert_eq!(losses.due(&[2], 3, 109, 100), None);
        assert_eq!(losses.due(&[2], 3, 110, 100), Some(2));
        losses.tell(2);
        assert_eq!(losses.due(&[2], 3, 1000, 100), None, "its program goes on without it");
        assert_eq!(losses.due(&[1, 2], 3, 2000, 100), None);
        assert_eq!(losses.due(&[1, 2], 3, 2100, 100), Some(1));
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let mut losses = Losses::default();
        losses.tell(1);
        assert_eq!(losses.due(&[1], 1, 0, 100), None);
        assert_eq!(losses.due(&[1], 1, 100, 100), Some(1));
        assert_eq!(losses.due(&[], 0, 100, 0), None, "a job of one");
    }
}
