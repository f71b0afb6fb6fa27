//! Why a transfer, an expectation or a call failed.

use crate::ids::PeerId;
use thiserror::Error;

/// A time as a person reads it: tenths of a second, or the unit below that it has one of.
fn for_people(ns: u64) -> String {
    let tenths = (ns + 50_000_000) / 100_000_000;
    match (tenths / 10, tenths % 10) {
        (0, _) if ns < 1_000 => format!("{ns} ns"),
        (0, _) if ns < 1_000_000 => format!("{} us", ns / 1_000),
        (0, _) => format!("{} ms", ns / 1_000_000),
        (seconds, 0) => format!("{seconds} s"),
        (seconds, tenth) => format!("{seconds}.{tenth} s"),
    }
}

/// What went wrong, with what was met and what was expected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TransferError {
    /// No rail to the peer worked for the give-up time.
    #[error(
        "peer {peer}: expected a rail that works within {}, got none; {written} of {of} pieces were written",
        for_people(*waited_ns)
    )]
    PeerLost {
        /// The peer.
        peer: PeerId,
        /// How long it was waited, nanoseconds.
        waited_ns: u64,
        /// Pieces that are known to be written.
        written: u64,
        /// Pieces of the transfer.
        of: u64,
    },
    /// The peer has left, or this end has cut it off.
    #[error(
        "peer {peer}: expected one that is there, got one that has left; {written} of {of} pieces were written"
    )]
    PeerLeft {
        /// The peer.
        peer: PeerId,
        /// Pieces that are known to be written.
        written: u64,
        /// Pieces of the transfer.
        of: u64,
    },
    /// The caller cancelled it before all of it was written.
    #[error("cancelled: {written} of {of} pieces were written")]
    Cancelled {
        /// Pieces that are known to be written.
        written: u64,
        /// Pieces of the transfer.
        of: u64,
    },
    /// A rail was fenced and its receiver's count is not known: pieces that carry an immediate may have arrived, and a
    /// second one would be counted twice. None of them can change memory any more.
    #[error(
        "peer {peer}: expected the receiver's count after a failed rail, got none; {pieces} pieces with immediates may \
         have arrived or not, agree with the peer before the transfer is repeated"
    )]
    Uncertain {
        /// The peer.
        peer: PeerId,
        /// Pieces in question.
        pieces: u64,
    },
    /// A rail failed and neither end could be fenced: pieces may still be read and written.
    #[error(
        "peer {peer}: expected proof that a failed rail is quiet, got none; {pieces} pieces may still land, do not \
         use their memory again before the peer's process or this one has ended"
    )]
    Unproven {
        /// The peer.
        peer: PeerId,
        /// Pieces in question.
        pieces: u64,
    },
    /// A NIC refused a piece: the peer has taken its region back, say. It would refuse it on every rail.
    #[error(
        "peer {peer}: expected memory that both NICs know under the keys of the transfer, got a refusal; {written} of \
         {of} pieces were written, ask the peer for a new description of its region"
    )]
    Denied {
        /// The peer.
        peer: PeerId,
        /// Pieces that are known to be written.
        written: u64,
        /// Pieces of the transfer.
        of: u64,
    },
    /// An expectation's deadline passed, or its peer was lost.
    #[error("immediate {imm:#x} of peer {peer}: expected {want}, got {got} by the deadline")]
    Missing {
        /// The immediate.
        imm: u32,
        /// How many have arrived.
        got: u64,
        /// How many were expected.
        want: u64,
        /// Who was to send them.
        peer: PeerId,
    },
    /// A transfer would leave the memory that was registered.
    #[error("{what}: expected bytes within {len} of the region, got {offset} + {bytes}")]
    OutOfRegion {
        /// Which end.
        what: &'static str,
        /// Where the access begins, bytes.
        offset: u64,
        /// How many bytes it has.
        bytes: u64,
        /// Bytes of the region.
        len: u64,
    },
    /// The region does not allow it.
    #[error("{what}: expected a region that was described for {want} of peers, got one of {met}")]
    Rights {
        /// Which end.
        what: &'static str,
        /// What the call would do.
        want: &'static str,
        /// What the region is for.
        met: &'static str,
    },
    /// Bytes are no description of a region.
    #[error("a region's description: expected {want}, got {met}; both ends must run the same version")]
    Description {
        /// What would be one.
        want: &'static str,
        /// What was there.
        met: String,
    },
    /// The call makes no sense as it is.
    #[error("{what}: expected {want}, got {met}")]
    Refused {
        /// Which argument.
        what: &'static str,
        /// What it may be.
        want: &'static str,
        /// What it was.
        met: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cause: an error said `10000315175 ns`.
    #[test]
    fn times_are_said_as_people_read_them() {
        for (waited_ns, said) in [
            (10_000_315_175, "within 10 s, got none"),
            (2_460_000_000, "within 2.5 s, got none"),
            (999_000_000, "within 1 s, got none"),
            (300_170_000, "within 300 ms, got none"),
            (5, "within 5 ns, got none"),
        ] {
            let lost = TransferError::PeerLost { peer: PeerId(1), waited_ns, written: 0, of: 1 }.to_string();
            assert!(lost.contains(said), "{lost}");
        }
    }
}
