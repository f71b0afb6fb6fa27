//! Steps of a fabric with thousands of NICs: only those that have something due are looked at.
//!
//! For callers that know whose doorbells were rung, as a simulator does. What happens, and when, is the same as by
//! [`Fabric::step`]; between NICs that have something due at one instant the order is that of their numbers, too.
//! Doorbells of a NIC that was not rung are not read: with thousands of queue pairs that is most of the work.

use crate::fabric::{Fabric, NicId, ROUNDS};
use std::collections::BTreeSet;

/// Which NICs have something due, and when.
#[derive(Default)]
pub(crate) struct Agenda {
    /// As last filed, by NIC.
    filed: Vec<Option<u64>>,
    order: BTreeSet<(u64, u32)>,
    /// NICs that somebody had in hand since they were filed.
    touched: BTreeSet<u32>,
    /// Sparse steps are taken: else nobody keeps books.
    used: bool,
}

impl Agenda {
    /// Something was done to a NIC: what it has due may have changed.
    #[inline]
    pub(crate) fn touch(&mut self, nic: u32) {
        if self.used {
            self.touched.insert(nic);
        }
    }

    fn file(&mut self, nic: u32, due: Option<u64>) {
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
}

impl Fabric {
    /// As [`Fabric::step`], without a look at NICs that have nothing due. `rung`: those whose doorbells may have been
    /// written since the last step.
    pub fn step_sparse(&mut self, now: u64, rung: &[NicId]) -> bool {
        self.start_agenda();
        for nic in rung {
            self.agenda.touch(nic.0);
            self.nics[nic.0 as usize].may_be_rung = true;
        }
        let mut any = false;
        for _ in 0..ROUNDS {
            if !self.sparse_round(now) {
                break;
            }
            any = true;
        }
        any
    }

    /// As [`Fabric::next_due`], for a fabric that takes sparse steps.
    pub fn next_due_sparse(&mut self) -> Option<u64> {
        self.start_agenda();
        self.file_touched();
        let first = self.agenda.order.first().map(|(due, _)| *due);
        first.into_iter().chain(self.plan_due()).min()
    }

    fn start_agenda(&mut self) {
        if !self.agenda.used || self.agenda.filed.len() != self.nics.len() {
            self.agenda = Agenda { filed: vec![None; self.nics.len()], used: true, ..Agenda::default() };
            (0..self.nics.len() as u32).for_each(|nic| self.agenda.touch(nic));
        }
    }

    fn file_touched(&mut self) {
        while let Some(nic) = self.agenda.touched.pop_first() {
            let arrival = self.links[nic as usize].front().map(|(arrival, _)| *arrival);
            let due = self.nics[nic as usize].next_due(self.cx.now);
            self.agenda.file(nic, due.into_iter().chain(arrival).min());
        }
    }

    fn sparse_round(&mut self, now: u64) -> bool {
        self.cx.now = now;
        let mut any = self.run_plan();
        let mut looked_at = std::mem::take(&mut self.agenda.touched);
        looked_at.extend(self.agenda.order.range(..=(now, u32::MAX)).map(|(_, nic)| *nic));
        for nic in looked_at {
            let one = &mut self.nics[nic as usize];
            // One that is gone looks at nothing, and at everything when it is back.
            let (rung, gone) = (one.may_be_rung, one.is_gone());
            one.may_be_rung = rung && gone;
            any |= self.work(nic as usize, rung);
            self.agenda.touch(nic);
        }
        self.file_touched();
        any
    }
}
