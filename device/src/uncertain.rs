//! What an owner is told of an operation whose fate nobody can know, and what it answers. H13.

use crate::access::Channel;
use crate::platform::Platform;
use crate::switch::{get, set_word};
use crate::types::{Fault, FaultKind, Operation, Resolution, Ticket};
use core::ptr::addr_of_mut;
use shunt_layout::state::{self, Step};

impl<P: Platform> Channel<'_, P> {
    /// What the channel asks about, if it does; looks at nothing else, never waits.
    #[inline(always)]
    pub fn uncertain(self) -> Option<Fault> {
        if self.asks() { Some(self.fault(FaultKind::Uncertain)) } else { None }
    }

    /// Answers an `Uncertain` fault: `at` is its ticket. The channel goes on; the next wait may find another one.
    ///
    /// What was applied is not repeated, and neither is anything before it; what was not is issued again, with all
    /// that is behind it. One answer counts, the first.
    ///
    /// # Errors
    /// `BadResolution` if the channel does not ask about `at`, if it was answered, or if the answer is against what is
    /// known: a fetching atomic whose answer was lost *was* applied. The channel's fault if it is dead.
    #[inline(always)]
    pub fn resolve(self, at: Ticket, resolution: Resolution) -> Result<(), Fault> {
        match self.resolve_slow(at.0, matches!(resolution, Resolution::Applied)) {
            0 => Ok(()),
            code if code == FaultKind::BadResolution as u64 => Err(self.fault(FaultKind::BadResolution)),
            _ => Err(self.dead_fault()),
        }
    }

    /// Answers with 0 or with the kind of the fault: one register, see `admit_slow`.
    #[inline(never)]
    fn resolve_slow(self, at: u64, applied: bool) -> u64 {
        const REFUSED: u64 = FaultKind::BadResolution as u64;
        if let Err(fault) = self.alive() {
            return fault.kind as u64;
        }
        let known = at < get!(self, executed: u64);
        if !self.asks() || get!(self, asked: u64) != at || (known && !applied) {
            return REFUSED;
        }
        let answer = state::Resolution::new(at, self.load_ticket().generation(), applied);
        // SAFETY: a field of a valid channel's switch. Its owner takes the answer out; it names its ticket, so one that
        // comes late is found out.
        if unsafe { self.platform().compare_swap(set_word!(self, resolution), 0, answer.0) } != 0 {
            return REFUSED;
        }
        match self.drive(None, self.platform().now_ns()) {
            Ok(()) => 0,
            Err(fault) => fault.kind as u64,
        }
    }

    /// True while the channel waits for a resolution.
    #[inline(always)]
    pub(crate) fn asks(self) -> bool {
        matches!(self.load_step(), Step::Uncertain)
    }

    /// Ticket, operation and remote heap offset of what is uncertain.
    #[inline(always)]
    pub(crate) fn uncertain_operation(self) -> (u64, u32, u64) {
        let asked = get!(self, asked: u64);
        // SAFETY: fields of a valid channel; they are for the report only.
        unsafe {
            (
                asked,
                self.platform().load32(addr_of_mut!((*self.words()).uncertain_op)),
                self.platform().load(addr_of_mut!((*self.words()).uncertain_address)),
            )
        }
    }
}

impl Fault {
    /// What the uncertain operation was.
    pub const fn operation(&self) -> Operation {
        Operation::from_raw(self.op)
    }
}
