//! What a requester in ERR completes: all that was posted, as flushed.

use super::Requester;
use crate::completion_queue::Completion;
use crate::endpoint::Endpoint;
use crate::units::Units;
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_soft_fault::FaultKind;

impl Requester {
    /// Completes all posted work as flushed, signalled or not.
    pub(crate) fn flush(&mut self, qp: &Endpoint, units: &mut Units, now: u64) {
        while let Some(work) = self.flight.pop_failed() {
            self.queue.free(&work);
            self.flush_one(work.index, work.opcode, qp, units, now);
        }
        self.flight.end();
        while let Some((index, opcode)) = self.queue.skip() {
            self.flush_one(index, opcode, qp, units, now);
        }
    }

    fn flush_one(&self, index: u16, opcode: u8, qp: &Endpoint, units: &mut Units, now: u64) {
        let missing = |kind: &FaultKind| matches!(kind, FaultKind::MissingFlush { .. });
        if units.faults.any() && units.faults.strikes(missing) {
            return;
        }
        let (syndrome, vendor) = (Syndrome::FLUSHED, vendor::REQUESTER_FLUSH);
        units.complete(Completion::bad(qp.origin(self.cqn), index, opcode, syndrome, vendor), now);
    }
}
