//! What a kernel leaves behind, in memory that host and GPU reach.

use shunt_device::{AbiMismatch, Fault};
#[cfg(not(target_arch = "nvptx64"))]
use shunt_device::{FaultKind, Ticket};
#[cfg(not(target_arch = "nvptx64"))]
use shunt_layout::state::CauseKind;

/// `Outcome::status`: all went well.
pub const STATUS_OK: u32 = 0;
/// `Outcome::status`: the state is not one of this version; `value` holds the version met.
pub const STATUS_ABI_MISMATCH: u32 = 0x100;

/// The result of one block. Any other status is a `FaultKind`, and the fields below it are those of the
/// fault.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// [`STATUS_OK`], [`STATUS_ABI_MISMATCH`] or a `FaultKind`.
    pub status: u32,
    /// `CauseKind` seen first on the path that failed.
    pub cause: u32,
    /// Peer of the channel.
    pub peer: u32,
    /// Index of the channel at the peer.
    pub channel: u32,
    /// Path slot the channel was on.
    pub slot: u32,
    /// Syndrome in the low byte, vendor syndrome in the next.
    pub syndrome: u32,
    /// First ticket not known to be done.
    pub at: u64,
    /// Tickets handed out and not done.
    pub unfinished: u64,
    /// What the kernel's documentation calls its value.
    pub value: u64,
    /// Nanoseconds: what the kernel's documentation calls its time.
    pub ns: u64,
    /// An uncertain operation: the remote heap offset it went to.
    pub address: u64,
    /// An uncertain operation: what it was, an `Operation`.
    pub op: u32,
    /// Unused, zero.
    pub reserved: u32,
}

impl Outcome {
    /// All went well, with a result.
    #[inline(always)]
    pub const fn ok(value: u64) -> Self {
        Self {
            status: STATUS_OK,
            cause: 0,
            peer: 0,
            channel: 0,
            slot: 0,
            syndrome: 0,
            at: 0,
            unfinished: 0,
            value,
            ns: 0,
            address: 0,
            op: 0,
            reserved: 0,
        }
    }

    /// A typed failure, kept whole.
    #[inline(always)]
    pub const fn fault(fault: &Fault) -> Self {
        Self {
            status: fault.kind as u32,
            cause: fault.cause as u32,
            peer: fault.peer,
            channel: fault.channel,
            slot: fault.slot,
            syndrome: fault.syndrome,
            at: fault.at.0,
            unfinished: fault.unfinished,
            value: 0,
            ns: 0,
            address: fault.address,
            op: fault.op,
            reserved: 0,
        }
    }

    /// The fault that it tells of, for who launched.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn as_fault(&self) -> Option<Fault> {
        Some(Fault {
            kind: FaultKind::from_raw(self.status)?,
            cause: CauseKind::from_raw(self.cause),
            peer: self.peer,
            channel: self.channel,
            slot: self.slot,
            at: Ticket(self.at),
            unfinished: self.unfinished,
            syndrome: self.syndrome,
            op: self.op,
            address: self.address,
        })
    }

    /// The state is of another version.
    #[inline(always)]
    pub const fn mismatch(met: &AbiMismatch) -> Self {
        let mut outcome = Self::ok(met.abi_version as u64);
        outcome.status = STATUS_ABI_MISMATCH;
        outcome
    }
}

const _: () = assert!(size_of::<Outcome>() == 72);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_kept_whole() {
        let fault = Fault {
            kind: FaultKind::PeerLost,
            cause: CauseKind::Completion,
            peer: 1,
            channel: 2,
            slot: 3,
            at: Ticket(4),
            unfinished: 5,
            syndrome: 0x8115,
            op: 4,
            address: 6,
        };
        let outcome = Outcome::fault(&fault);
        assert_eq!(
            (outcome.status, outcome.cause),
            (FaultKind::PeerLost as u32, CauseKind::Completion as u32)
        );
        assert_eq!((outcome.peer, outcome.channel, outcome.slot), (1, 2, 3));
        assert_eq!((outcome.at, outcome.unfinished, outcome.syndrome), (4, 5, 0x8115));
        assert_eq!((outcome.op, outcome.address), (4, 6));
        assert_eq!(outcome.as_fault(), Some(fault));
        assert_eq!(Outcome::ok(1).as_fault(), None);
    }

    #[test]
    fn no_fault_reads_as_success_or_mismatch() {
        for kind in [
            FaultKind::Completion,
            FaultKind::Overdue,
            FaultKind::PeerLost,
            FaultKind::BadAddress,
            FaultKind::FenceUnproven,
            FaultKind::Uncertain,
            FaultKind::BadResolution,
            FaultKind::AnswerLost,
            FaultKind::FetchNotExact,
            FaultKind::NoMaskedAtomics,
        ] {
            assert!(![STATUS_OK, STATUS_ABI_MISMATCH].contains(&(kind as u32)), "{kind:?}");
        }
        let met = AbiMismatch { magic: 0, abi_version: 7, bytes: 0 };
        assert_eq!((Outcome::mismatch(&met).status, Outcome::mismatch(&met).value), (STATUS_ABI_MISMATCH, 7));
    }
}
