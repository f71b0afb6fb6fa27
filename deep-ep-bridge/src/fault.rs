//! What went wrong, with the path it happened on.

use shunt_device::{Fault, FaultKind};
use shunt_kernels::moe::Stage;
use shunt_kernels::moe::normal::Role;
use shunt_layout::moe::BadShape;
use shunt_layout::moe_normal::{BadNormalShape, Difference, Why};
use shunt_layout::state::PathRow;
use std::fmt;

/// The path that a channel was on, and where on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathName {
    /// Local rail and its GID.
    pub local: (u32, [u8; 16]),
    /// Remote rail and its GID.
    pub remote: (u32, [u8; 16]),
    /// Local and remote queue pair.
    pub qpns: (u32, u32),
    /// Index of the first WQE not known to be done, on this path.
    pub wqe: u64,
}

impl PathName {
    /// What a row of the path table says of ticket `at`.
    pub fn of(row: &PathRow, at: u64) -> Self {
        let identity = &row.identity;
        Self {
            local: (identity.local_rail, identity.local_gid),
            remote: (identity.remote_rail, identity.remote_gid),
            qpns: (identity.local_qpn, identity.remote_qpn),
            wqe: at.wrapping_sub(row.base),
        }
    }
}

fn gid(bytes: [u8; 16]) -> impl fmt::Display {
    std::net::Ipv6Addr::from(bytes)
}

impl fmt::Display for PathName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((local, local_gid), (remote, remote_gid)) = (self.local, self.remote);
        write!(
            f,
            "rail {local} (GID {}, QPN {:#x}) to rail {remote} (GID {}, QPN {:#x}), WQE {}",
            gid(local_gid),
            self.qpns.0,
            gid(remote_gid),
            self.qpns.1,
            self.wqe
        )
    }
}

/// Where a kernel was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In a phase of low latency.
    Stage(Stage),
    /// In a role of normal mode.
    Role(Role),
}

impl At {
    /// As a message names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stage(stage) => stage.name(),
            Self::Role(role) => role.name(),
        }
    }
}

/// A fault of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoeFault {
    /// Where the kernel was.
    pub at: At,
    /// What the device library said: peer, channel, ticket, syndrome.
    pub fault: Fault,
    /// The path, where the peer is another rank.
    pub path: Option<PathName>,
}

impl fmt::Display for MoeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault.kind {
            FaultKind::Completion => "an error completion",
            FaultKind::Overdue => "it did not answer by the deadline",
            FaultKind::PeerLost => "every path to it is dead",
            FaultKind::BadAddress => "a count or an index that cannot be",
            FaultKind::FenceUnproven => "an old path could not be fenced",
            FaultKind::Uncertain => "an operation may or may not have been applied",
            FaultKind::AnswerLost => "its NIC failed in the middle of an atomic",
            FaultKind::NoMaskedAtomics => "a NIC of the job has no masked atomics",
            FaultKind::FetchNotExact => "exact fetching atomics were not set up",
            FaultKind::BadResolution => "resolve() names an operation that is not uncertain",
        };
        write!(f, "{}: rank {}: {what}", self.at.name(), self.fault.peer)?;
        write!(f, "; syndrome {:#04x}, channel {}", self.fault.syndrome, self.fault.channel)?;
        match &self.path {
            Some(path) => write!(f, "; {path}"),
            None => Ok(()),
        }
    }
}

/// Why a call of a buffer did not do what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoeError {
    /// Sizes that cannot be.
    #[error("{0}")]
    Shape(BadShape),
    /// Sizes of normal mode that cannot be.
    #[error("{0}")]
    NormalShape(BadNormalShape),
    /// The heap is too small.
    #[error("the buffer takes {needed} bytes from {base} on, and the heap has {met}; make the heap larger")]
    Room {
        /// Bytes of the buffer.
        needed: u64,
        /// Where it begins.
        base: u64,
        /// Bytes of the heap.
        met: u64,
    },
    /// An argument of another size than it must have.
    #[error("{what}: expected {right}, got {met}")]
    Argument {
        /// Which.
        what: &'static str,
        /// What was given.
        met: String,
        /// What would be right.
        right: String,
    },
    /// A fault in an earlier call: the words of this buffer are in no known state.
    #[error("an earlier call was broken off; call clean_low_latency_buffer on all ranks")]
    Broken,
    /// A fault in an earlier call of normal mode: the rings of this buffer are in no known state.
    #[error("an earlier call was broken off; call `clean` on all ranks")]
    NormalBroken,
    /// More calls under way than there are sets of buffers, or received out of order.
    #[error("{0}")]
    Order(&'static str),
    /// Numbers of calls, or of meetings that clean, are used up: words of the exchange hold them in 32 bits, and
    /// meetings of an epoch in 16.
    #[error("{what} number {met} was to come, {most} is the last; make a new buffer elsewhere in the heap")]
    Numbers {
        /// Which.
        what: &'static str,
        /// The one that was to come.
        met: u64,
        /// The last that there is.
        most: u64,
    },
    /// The ranks agreed on another mask since the last call: what is under way is given up.
    #[error(
        "the ranks agreed on epoch {epoch}: {masked:?} are left out; call clean_low_latency_buffer on all others"
    )]
    Epoch {
        /// Decisions so far.
        epoch: u64,
        /// Who is left out.
        masked: Vec<u32>,
    },
    /// The others agreed to go on without this rank.
    #[error("the others go on without this rank, from epoch {epoch} on; start a new job")]
    LeftOut {
        /// Decisions so far.
        epoch: u64,
    },
    /// This rank lost others and reaches no majority: it left itself out, so that no two parts of the job go on.
    #[error("this rank reached no majority after epoch {epoch} and left itself out; start a new job")]
    NoMajority {
        /// Decisions so far.
        epoch: u64,
    },
    /// Nothing was decided in time about ranks that lost each other.
    #[error(
        "nothing was decided since epoch {epoch} about ranks that lost each other{}; give a longer timeout, \
         and call mask_lost on all ranks",
        lost.map_or(String::new(), |rank| format!(", {rank} among them"))
    )]
    Undecided {
        /// Decisions so far.
        epoch: u64,
        /// One of them.
        lost: Option<u32>,
    },
    /// A rank did not come to the second half of a meeting whose first half all ranks came to.
    #[error("cleaning: rank {0} did not come to the second half in time; clean once more")]
    Unmet(u32),
    /// Ranks do not have alike what they must: sizes, which is for good, or terms of a call.
    #[error("rank {rank} and this one differ: {}; give the same on all ranks", told(difference))]
    Differs {
        /// The first rank that differs.
        rank: u32,
        /// In what, here and there.
        difference: Difference,
    },
    /// A rank gave up the call that this one is in.
    #[error("rank {rank} gave the call up: {}", gave_up(*why))]
    GaveUp {
        /// Which.
        rank: u32,
        /// Why it did.
        why: Why,
    },
    /// A kernel met a fault.
    #[error("{0}")]
    Fault(Box<MoeFault>),
}

fn told(difference: &Difference) -> String {
    let Difference { what, theirs, ours } = difference;
    format!("{what}: {theirs} there, {ours} here")
}

fn gave_up(why: Why) -> String {
    match why {
        Why::Differs { rank, theirs, own } => {
            let found = own.differ(theirs);
            let in_what = found.map_or(String::new(), |found| {
                format!(": {}: {} there, {} at the one that gave up", found.what, found.theirs, found.ours)
            });
            format!("rank {rank} and that one differ{in_what}; give the same on all ranks")
        }
        Why::Rows(room) => format!("more rows came than the {room} that it has room for"),
        Why::Unknown(bits) => format!("for a reason that no version says yet, {bits:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_device::Ticket;
    use shunt_layout::state::CauseKind;

    #[test]
    fn who_differs_and_in_what_is_said_on_both_sides() {
        use shunt_layout::moe_normal::CallTerms;
        let (own, theirs) = (CallTerms::dispatch(8, false), CallTerms::dispatch(6, false));
        let difference = own.differ(theirs).expect("they do");
        let text = MoeError::Differs { rank: 3, difference }.to_string();
        assert!(text.contains("rank 3") && text.contains("6 there, 8 here"), "{text}");
        let text = MoeError::GaveUp { rank: 2, why: Why::Differs { rank: 3, theirs, own } }.to_string();
        for part in ["rank 2 gave", "rank 3 and that one", "6 there, 8 at the one"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = MoeError::GaveUp { rank: 2, why: Why::Rows(7) }.to_string();
        assert!(text.contains("the 7 that"), "{text}");
    }

    #[test]
    fn a_fault_names_all_that_somebody_looks_for() {
        let mut gids = ([0; 16], [0; 16]);
        (gids.0[15], gids.1[15]) = (1, 2);
        let path = PathName { local: (0, gids.0), remote: (1, gids.1), qpns: (0x1234, 0x77), wqe: 42 };
        let fault = Fault {
            kind: FaultKind::PeerLost,
            cause: CauseKind::Completion,
            peer: 3,
            channel: 2,
            slot: 1,
            at: Ticket(9),
            unfinished: 5,
            syndrome: 0x15,
            op: 0,
            address: 0,
        };
        let text = MoeFault { at: At::Stage(Stage::CombineReceive), fault, path: Some(path) }.to_string();
        for part in
            ["combine, receiving", "rank 3", "0x15", "::1", "0x1234", "::2", "0x77", "WQE 42", "channel 2"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
