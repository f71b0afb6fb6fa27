//! Which NICs of a fabric have something due: for steps of thousands of NICs that look at those only.
//!
//! For callers that know whose doorbells were rung, as a simulator does. What happens, and when, is the same as
//! without; between NICs that have something due at one instant the order is that of their numbers, too. Doorbells of
//! a NIC that was not rung are not read: with thousands of queue pairs that is most of the work.

use std::collections::BTreeSet;

/// Which NICs have something due, and when.
#[derive(Default)]
pub(crate) struct Scheduler {
    /// As last filed, by NIC.
    filed: Vec<Option<u64>>,
    order: BTreeSet<(u64, u32)>,
    /// NICs that somebody had in hand since they were filed.
    touched: BTreeSet<u32>,
    /// A doorbell may have been written, by NIC.
    rung: Vec<bool>,
    /// Sparse steps are taken: else nobody keeps books.
    used: bool,
}

impl Scheduler {
    /// Keeps books of so many NICs from now on.
    pub(crate) fn start(&mut self, nics: usize) {
        if self.used && self.filed.len() == nics {
            return;
        }
        self.filed = vec![None; nics];
        self.order.clear();
        self.rung.resize(nics, false);
        self.touched = (0..nics as u32).collect();
        self.used = true;
    }

    /// Something was done to a NIC: what it has due may have changed.
    #[inline]
    pub(crate) fn touch(&mut self, nic: u32) {
        if self.used {
            self.touched.insert(nic);
        }
    }

    /// A doorbell of a NIC may have been written.
    pub(crate) fn ring(&mut self, nic: u32) {
        self.touch(nic);
        self.rung[nic as usize] = true;
    }

    /// True if a doorbell may have been written. One that is `gone` looks at nothing, and at everything when it is
    /// back.
    pub(crate) fn take_rung(&mut self, nic: u32, gone: bool) -> bool {
        let rung = &mut self.rung[nic as usize];
        std::mem::replace(rung, *rung && gone)
    }

    /// A NIC that is to be filed again.
    pub(crate) fn pop_touched(&mut self) -> Option<u32> {
        self.touched.pop_first()
    }

    /// Files what a NIC has due.
    pub(crate) fn file(&mut self, nic: u32, due: Option<u64>) {
        let before = std::mem::replace(&mut self.filed[nic as usize], due);
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, nic));
        }
        if let Some(due) = due {
            self.order.insert((due, nic));
        }
    }

    /// The NICs to look at, by number: those touched, and those with something due at `now`.
    pub(crate) fn take_due(&mut self, now: u64) -> BTreeSet<u32> {
        let mut due = std::mem::take(&mut self.touched);
        due.extend(self.order.range(..=(now, u32::MAX)).map(|(_, nic)| *nic));
        due
    }

    /// When the first of what is filed is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.order.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nics_are_looked_at_when_touched_or_due() {
        let mut scheduler = Scheduler::default();
        scheduler.touch(1);
        scheduler.start(3);
        assert_eq!(scheduler.take_due(0), BTreeSet::from([0, 1, 2]), "all are new");
        scheduler.file(2, Some(50));
        scheduler.file(1, Some(90));
        scheduler.file(1, Some(40));
        assert_eq!(scheduler.next_due(), Some(40));
        assert_eq!(scheduler.take_due(45), BTreeSet::from([1]));
        scheduler.ring(0);
        assert_eq!(scheduler.take_due(50), BTreeSet::from([0, 1, 2]));
        assert!(
            scheduler.take_rung(0, true) && scheduler.take_rung(0, false) && !scheduler.take_rung(0, false)
        );
    }
}
