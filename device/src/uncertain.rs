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
    #[inline(never)]
    pub fn resolve(self, at: Ticket, resolution: Resolution) -> Result<(), Fault> {
        self.alive()?;
        let applied = matches!(resolution, Resolution::Applied);
        let known = at.0 < get!(self, executed: u64);
        if !self.asks() || get!(self, asked: u64) != at.0 || (known && !applied) {
            return Err(self.fault(FaultKind::BadResolution));
        }
        let answer = state::Resolution::new(at.0, applied);
        // SAFETY: a field of a valid channel's switch. Its owner takes the answer out; it names its ticket, so one that
        // comes late is found out.
        if unsafe { self.platform().compare_swap(set_word!(self, resolution), 0, answer.0) } != 0 {
            return Err(self.fault(FaultKind::BadResolution));
        }
        self.drive(None, self.platform().now_ns())
    }

    /// True while the channel waits for a resolution.
    #[inline(always)]
    pub(crate) fn asks(self) -> bool {
        matches!(self.load_step(), Step::Uncertain)
    }

    /// Ticket, operation and remote heap offset of what is uncertain.
    #[inline(never)]
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
