//! The typed failure of a channel, read from its memory.

use super::words::words;
use crate::part::part;
use crate::platform::Platform;
use crate::types::{Fault, FaultKind, Operation, Ticket};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::CauseKind;

part! {
    /// Reads what a fault says. It changes nothing.
    pub(crate) Report {}
}

impl<P: Platform> Report<'_, P> {
    /// The typed failure of this channel as it stands.
    #[inline(always)]
    pub(crate) fn fault(self, kind: FaultKind) -> Fault {
        let (done, ticket) = (self.ptr.load_done(), self.ptr.load_ticket());
        let words = words(self.ptr);
        let (cause, syndrome) = (words.cause().load(), words.syndrome().load());
        let (at, op, address) = match kind {
            FaultKind::Uncertain => self.uncertain_operation(),
            _ => (done.index(), 0, 0),
        };
        let unfinished = match Mutant::UnfinishedUnnamed.on() {
            true => 0,
            false => ticket.index().saturating_sub(done.index()),
        };
        Fault {
            kind,
            cause: CauseKind::from_raw(cause),
            peer: self.ptr.peer(),
            channel: self.ptr.index(),
            slot: done.slot(),
            at: Ticket(at),
            unfinished,
            syndrome,
            op,
            address,
        }
    }

    /// The fault that ended the channel.
    pub(crate) fn dead_fault(self) -> Fault {
        self.fault(self.dead_kind())
    }

    /// The kind of the fault that ended the channel.
    #[inline(always)]
    pub(crate) fn dead_kind(self) -> FaultKind {
        match words(self.ptr).fault().load() {
            1 => FaultKind::Completion,
            5 => FaultKind::FenceUnproven,
            6 => FaultKind::Uncertain,
            _ => FaultKind::PeerLost,
        }
    }

    /// Ticket, operation and remote heap offset of what is uncertain.
    #[inline(always)]
    fn uncertain_operation(self) -> (u64, u32, u64) {
        let asked = words(self.ptr).asked().load();
        let channel = self.ptr.words();
        (asked, channel.uncertain_op().load(), channel.uncertain_address().load())
    }
}

impl Fault {
    /// What the uncertain operation was.
    pub const fn operation(&self) -> Operation {
        Operation::from_raw(self.op)
    }
}
