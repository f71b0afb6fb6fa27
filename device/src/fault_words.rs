//! Faults in words, for programs on the host: a GPU has numbers.

use crate::types::{Fault, FaultKind};
use shunt_layout::state::CauseKind;

impl FaultKind {
    /// What it means, in words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Completion => "an error completion",
            Self::Overdue => "no completion in time",
            Self::PeerLost => "every path to the peer is dead",
            Self::BadAddress => {
                "bytes outside the heap, or a word at an offset that its size does not divide"
            }
            Self::FenceUnproven => "an old path could not be fenced",
            Self::Uncertain => "an operation's fate is not known whole",
            Self::AnswerLost => {
                "its NIC failed in the middle of an atomic, and it is not known whether it was applied"
            }
            Self::NoMaskedAtomics => {
                "a NIC of the job has no masked atomics: words of 8 bytes have all atomics unless SHUNT_FETCH=nic, \
                 words of 4 bytes have none"
            }
            Self::FetchNotExact => "exact fetching atomics were not set up",
            Self::BadResolution => "resolve() names an operation that is not uncertain",
        }
    }
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "channel {} to PE {}: {}", self.channel, self.peer, self.kind.meaning())?;
        if self.unfinished > 0 {
            write!(f, "; {} operations from ticket {} on are not done", self.unfinished, self.at.0)?;
        }
        if self.cause != CauseKind::None {
            write!(f, "; first cause {}", self.cause.name())?;
        }
        if self.syndrome != 0 {
            write!(f, "; syndrome {:#04x} {}", self.syndrome().0, self.syndrome().meaning())?;
        }
        if self.op != 0 {
            write!(f, "; {:?} at heap offset {:#x}", self.operation(), self.address)?;
        }
        Ok(())
    }
}

impl core::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Ticket;

    #[test]
    fn a_fault_says_what_happened_where_and_what_is_not_done() {
        let fault = Fault {
            kind: FaultKind::PeerLost,
            cause: CauseKind::PortDown,
            peer: 3,
            channel: 1,
            slot: 0,
            at: Ticket(7),
            unfinished: 2,
            syndrome: 0x15,
            op: 0,
            address: 0,
        };
        let said = std::format!("{fault}");
        assert!(said.starts_with(
            "channel 1 to PE 3: every path to the peer is dead; 2 operations from ticket 7 on are"
        ));
        assert!(
            said.contains("first cause port-down; syndrome 0x15 ") && !said.contains("heap offset"),
            "{said}"
        );
        let early = Fault { cause: CauseKind::None, unfinished: 0, syndrome: 0, ..fault };
        assert_eq!(std::format!("{early}"), "channel 1 to PE 3: every path to the peer is dead");
    }
}
