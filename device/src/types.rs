//! The nouns of the device API. All are plain values: no pointers, no lifetimes.

use shunt_layout::mlx5::cqe::Syndrome;
use shunt_layout::state::{AmoForm, CauseKind, FetchRequest};

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

/// A get: `bytes` from the peer's heap at `src` to this PE's heap at `dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get {
    /// Destination in this PE's heap.
    pub dst: HeapOffset,
    /// Source in the peer's heap.
    pub src: HeapOffset,
    /// Length in bytes; 0 is a message that moves nothing.
    pub bytes: u64,
}

/// What a word of the peer's heap is told. Words have eight bytes and are aligned to them, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Kind 1: the absolute value. One channel writes the word, which begins at 0; each value is greater than the one
    /// before, as an unsigned number, and the receiver never clears it. Repeating it changes nothing, and the word
    /// tells how far its writer got.
    Monotone(u64),
    /// Kind 2: adds. One channel writes the word; the receiver clears it, so that it tells nothing. Bracketed by two
    /// ledger words.
    Cleared(u64),
    /// The same on a word of four bytes, aligned to four.
    Cleared32(u32),
    /// Kind 3: adds, where others add too. All of them use channels of one index: see `Channel::amo_nbi`.
    Add(u64),
}

impl Signal {
    /// Bytes of the word.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Cleared32(_) => 4,
            _ => 8,
        }
    }

    /// The NIC counts it with an atomic that not every NIC has.
    #[inline(always)]
    pub(crate) const fn is_masked(self) -> bool {
        matches!(self, Self::Cleared32(_))
    }
}

/// An atomic on a word of the peer's heap, aligned to its size. Executed by the NIC at the peer, atomic among all that
/// comes through that NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amo {
    /// Adds, modulo 2^32.
    Add32(u32),
    /// Adds, modulo 2^64.
    Add64(u64),
    /// Stores.
    Set32(u32),
    /// Stores.
    Set64(u64),
    /// Clears the bits that are not set here.
    And32(u32),
    /// Clears the bits that are not set here.
    And64(u64),
    /// Sets bits.
    Or32(u32),
    /// Sets bits.
    Or64(u64),
    /// Flips bits.
    Xor32(u32),
    /// Flips bits.
    Xor64(u64),
    /// Stores; the old value is the answer.
    Swap32(u32),
    /// Stores; the old value is the answer.
    Swap64(u64),
    /// Stores `new` where the word is `expect`.
    CompareSwap32 {
        /// What the word must be.
        expect: u32,
        /// What it becomes.
        new: u32,
    },
    /// Stores `new` where the word is `expect`.
    CompareSwap64 {
        /// What the word must be.
        expect: u64,
        /// What it becomes.
        new: u64,
    },
}

impl Amo {
    /// Bytes of the word.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Add32(_)
            | Self::Set32(_)
            | Self::And32(_)
            | Self::Or32(_)
            | Self::Xor32(_)
            | Self::Swap32(_)
            | Self::CompareSwap32 { .. } => 4,
            _ => 8,
        }
    }

    /// Not every NIC has it.
    #[inline(always)]
    pub const fn is_masked(self) -> bool {
        !matches!(self, Self::Add64(_) | Self::CompareSwap64 { .. })
    }

    /// Blocks of the send queue, and tickets, that it takes.
    #[inline(always)]
    pub const fn blocks(self) -> u64 {
        match self {
            Self::Set64(_) | Self::Swap64(_) | Self::And64(_) | Self::Or64(_) => 2,
            _ => 1,
        }
    }
}

impl Amo {
    /// What a request of it says: form, operand, and what the word must be.
    pub(crate) const fn request(self) -> (AmoForm, u64, u64) {
        match self {
            Self::Add32(value) => (AmoForm::Add32, value as u64, 0),
            Self::Add64(value) => (AmoForm::Add64, value, 0),
            Self::Set32(value) | Self::Swap32(value) => (AmoForm::Set32, value as u64, 0),
            Self::Set64(value) | Self::Swap64(value) => (AmoForm::Set64, value, 0),
            Self::And32(value) => (AmoForm::And32, value as u64, 0),
            Self::And64(value) => (AmoForm::And64, value, 0),
            Self::Or32(value) => (AmoForm::Or32, value as u64, 0),
            Self::Or64(value) => (AmoForm::Or64, value, 0),
            Self::Xor32(value) => (AmoForm::Xor32, value as u64, 0),
            Self::Xor64(value) => (AmoForm::Xor64, value, 0),
            Self::CompareSwap32 { expect, new } => (AmoForm::CompareSwap32, new as u64, expect as u64),
            Self::CompareSwap64 { expect, new } => (AmoForm::CompareSwap64, new, expect),
        }
    }

    /// The atomic of a request; none if its form is unknown.
    pub const fn from_request(request: &FetchRequest) -> Option<Self> {
        Self::from_form(request.form, request.operand, request.expect)
    }

    /// The atomic of an [`AmoForm`] with its operand and what the word must be; none if the form is unknown.
    #[inline(always)]
    pub const fn from_form(form: u32, value: u64, expect: u64) -> Option<Self> {
        let narrow = value as u32;
        Some(match AmoForm::from_raw(form) {
            Some(AmoForm::Add32) => Self::Add32(narrow),
            Some(AmoForm::Add64) => Self::Add64(value),
            Some(AmoForm::Set32) => Self::Swap32(narrow),
            Some(AmoForm::Set64) => Self::Swap64(value),
            Some(AmoForm::And32) => Self::And32(narrow),
            Some(AmoForm::And64) => Self::And64(value),
            Some(AmoForm::Or32) => Self::Or32(narrow),
            Some(AmoForm::Or64) => Self::Or64(value),
            Some(AmoForm::Xor32) => Self::Xor32(narrow),
            Some(AmoForm::Xor64) => Self::Xor64(value),
            Some(AmoForm::CompareSwap32) => Self::CompareSwap32 { expect: expect as u32, new: narrow },
            Some(AmoForm::CompareSwap64) => Self::CompareSwap64 { expect, new: value },
            None => return None,
        })
    }
}

/// What an operation was, in faults.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// None is named.
    None = 0,
    /// Data written: a put, a `p`, a placeholder or a ledger word.
    Put = 1,
    /// A kind 1 signal.
    Monotone = 2,
    /// A kind 2 signal.
    Cleared = 3,
    /// A kind 3 signal, or an atomic whose answer nobody wants.
    Add = 4,
    /// A fetching atomic.
    Fetch = 5,
    /// A get.
    Get = 6,
}

impl Operation {
    /// The operation of a raw word; anything unknown is none.
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Put,
            2 => Self::Monotone,
            3 => Self::Cleared,
            4 => Self::Add,
            5 => Self::Fetch,
            6 => Self::Get,
            _ => Self::None,
        }
    }
}

/// What the owner of an uncertain operation found out about it, say by asking the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It was applied: it is not repeated. What a fetching atomic fetched is lost.
    Applied,
    /// It was not applied: it is issued again.
    NotApplied,
}

/// What went wrong.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An error completion, and fault tolerance is off or the cause is the program's own.
    Completion = 1,
    /// The caller's deadline passed; the operation is still under way. Of a post: nothing was posted.
    Overdue = 2,
    /// Every path to the peer is dead and has stayed so for the give-up time.
    PeerLost = 3,
    /// An address outside the symmetric heap, or a length no group of WQEs can carry.
    BadAddress = 4,
    /// The old path could not be fenced.
    FenceUnproven = 5,
    /// An operation may or may not have been applied, or its answer is lost, and nobody can know. The channel stands
    /// still until its owner says what holds: `Channel::resolve`.
    Uncertain = 6,
    /// A resolution of a ticket that is not the uncertain one, or one against what is known: a fetching atomic of
    /// which only the answer is lost was applied.
    BadResolution = 7,
    /// Of an exact fetching atomic: its owner's NIC failed in the middle of it, and nobody can know whether it was
    /// applied. The channel goes on.
    AnswerLost = 8,
    /// Exact fetching atomics were not set up: `SHUNT_FETCH=nic`, fault tolerance is off, or the heap is in memory that
    /// its host does not reach.
    FetchNotExact = 9,
    /// An atomic of 4 bytes, or a swap, set, and, or or xor of 8, and a NIC of the job has no masked atomics: it could
    /// not execute it, as a backup if not now. Nothing was posted, and the channel goes on. `Channel::fetch_exact` has
    /// those of 8 bytes executed.
    NoMaskedAtomics = 10,
}

impl FaultKind {
    /// The kind of a raw word.
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::Completion,
            2 => Self::Overdue,
            3 => Self::PeerLost,
            4 => Self::BadAddress,
            5 => Self::FenceUnproven,
            6 => Self::Uncertain,
            7 => Self::BadResolution,
            8 => Self::AnswerLost,
            9 => Self::FetchNotExact,
            10 => Self::NoMaskedAtomics,
            _ => return None,
        })
    }
}

// See `CauseKind::Unknown`.
const _: () = assert!((FaultKind::NoMaskedAtomics as u32) < CauseKind::Unknown as u32);

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
    /// What the uncertain operation was, an [`Operation`]; 0 in other faults.
    pub op: u32,
    /// The remote heap offset it went to; 0 in other faults.
    pub address: u64,
}

impl Fault {
    /// The syndrome of the first error completion.
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome(self.syndrome as u8)
    }
}

/// The answer of a raw post, in one register: on a GPU a `Result` of many fields is a kernel's largest part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Posted(u64);

impl Posted {
    const FAILED: u64 = 1 << 63;
    /// The channel is dead; its memory says why.
    pub(crate) const DEAD: Self = Self(Self::FAILED);
    /// Not posted: the channel is dead, or did not come to the words' home in time.
    pub(crate) const UNBOUND: Self = Self::refused(FaultKind::Overdue);

    /// What a lane answers that does not post: nobody looks at it. A constant, because with one call more the compiler
    /// does not inline the public calls before it optimises them.
    pub(crate) const NOBODY: Self = Self(0);

    /// Posted; `last` is the ticket of its last message.
    #[inline(always)]
    pub(crate) const fn at(last: u64) -> Self {
        Self(last)
    }

    /// Not posted.
    #[inline(always)]
    pub(crate) const fn refused(kind: FaultKind) -> Self {
        Self(Self::FAILED | kind as u64)
    }

    /// From such a register.
    #[inline(always)]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The register: the ticket, or the top bit and a kind of fault.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The ticket, if it was posted.
    #[inline(always)]
    pub const fn ticket(self) -> Option<Ticket> {
        if self.0 & Self::FAILED == 0 { Some(Ticket(self.0)) } else { None }
    }

    /// The kind of a fault that is not the channel's.
    #[inline(always)]
    pub(crate) const fn kind(self) -> Option<FaultKind> {
        FaultKind::from_raw(self.0 as u32)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Set and swap differ in who looks at the answer, which a request always brings.
    #[test]
    fn a_request_says_which_atomic_it_is() {
        let amos = [
            Amo::Add32(7),
            Amo::Add64(1 << 40),
            Amo::Swap32(8),
            Amo::Swap64(1 << 41),
            Amo::And32(9),
            Amo::And64(1 << 42),
            Amo::Or32(10),
            Amo::Or64(1 << 43),
            Amo::Xor32(11),
            Amo::Xor64(1 << 44),
            Amo::CompareSwap32 { expect: 1, new: 2 },
            Amo::CompareSwap64 { expect: 1 << 45, new: 3 << 45 },
        ];
        for amo in amos {
            let (form, operand, expect) = amo.request();
            let request = FetchRequest { operand, expect, form: form as u32, ..FetchRequest::default() };
            assert_eq!(Amo::from_request(&request), Some(amo));
        }
        assert_eq!(Amo::Set64(3).request(), Amo::Swap64(3).request());
        assert_eq!(Amo::from_request(&FetchRequest::default()), None, "no form");
    }
}
