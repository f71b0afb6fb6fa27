//! The nouns of the device API. All are plain values: no pointers, no lifetimes.

use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::state::CauseKind;

/// A byte offset in the symmetric heap; the same on every PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeapOffset(pub u64);

/// The logical index of an operation on its channel. Never restarts; valid across switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// An absolute instant in nanoseconds. There is no "for ever".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    /// When waiting ends.
    pub at_ns: u64,
}

impl Deadline {
    /// `span_ns` after `now_ns`.
    #[inline(always)]
    pub const fn after(now_ns: u64, span_ns: u64) -> Self {
        Self { at_ns: now_ns.saturating_add(span_ns) }
    }
}

/// A put: `bytes` from this PE's heap at `src` to the peer's heap at `dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Destination in the peer's heap.
    pub dst: HeapOffset,
    /// Source in this PE's heap.
    pub src: HeapOffset,
    /// Length in bytes; 0 is a message that moves nothing.
    pub bytes: u64,
}

/// What went wrong.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An error completion, and fault tolerance is off or the cause is the program's own.
    Completion = 1,
    /// The caller's deadline passed; the operation is still under way.
    Overdue = 2,
    /// Every path to the peer is dead and has stayed so for the give-up time.
    PeerLost = 3,
    /// An address outside the symmetric heap, or a length no group of WQEs can carry.
    BadAddress = 4,
    /// The old path could not be fenced.
    FenceUnproven = 5,
}

/// A typed failure. Copied by value, no text; the host knows the names behind the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// What was seen first on the path that failed.
    pub cause: CauseKind,
    /// Peer of the channel.
    pub peer: u32,
    /// Index of the channel at the peer.
    pub channel: u32,
    /// Path slot the channel was on.
    pub slot: u32,
    /// First ticket not known to be done.
    pub at: Ticket,
    /// Tickets handed out and not done, from `at` on.
    pub unfinished: u64,
    /// Syndrome in the low byte, vendor syndrome in the next; 0 if there was no error completion.
    pub syndrome: u32,
}

impl Fault {
    /// The syndrome of the first error completion.
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome(self.syndrome as u8)
    }
}

/// The answer of one look at a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqCheck {
    /// Done: delivered, or replayed and delivered.
    Done,
    /// Not yet.
    Pending,
    /// The channel is dead.
    Failed(Fault),
    /// Not yet, and the deadline has passed.
    Overdue(Fault),
}

/// Why [`attach`](crate::Device::attach) refused a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbiMismatch {
    /// Magic met.
    pub magic: u64,
    /// Version met; right would be [`shunt_layout::ABI_VERSION`].
    pub abi_version: u32,
    /// Size met; right would be the size of a `DeviceState`.
    pub bytes: u32,
}
