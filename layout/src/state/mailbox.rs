//! A channel's mailbox: the switcher asks, the agent answers (rule 9). One line each, so neither tears the
//! other.

/// How the agent answered a fence request.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerStatus {
    /// Both halves are in ERR, the receiver's NIC is flushed, and its count was cross-checked.
    Truth = 1,
    /// The old path can change nothing any more, but no count can be trusted: use the ledger.
    FencedNoTruth = 2,
    /// The fence cannot be proved.
    Unprovable = 3,
}

impl AnswerStatus {
    /// The status of a raw word; anything unknown is unprovable.
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Truth,
            2 => Self::FencedNoTruth,
            _ => Self::Unprovable,
        }
    }
}

/// One per channel, in memory both sides reach.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct Mailbox {
    /// Number of the request; written last.
    pub request: u64,
    /// Slot to fence.
    pub request_slot: u32,
    /// Its incarnation.
    pub request_incarnation: u32,
    /// Unused, zero.
    pub reserved1: u32,
    /// Unused, zero.
    pub reserved0: u32,
    /// What the switcher last saw of `in_hand`.
    pub in_hand_seen: u64,
    /// Unused, zero.
    pub pad0: [u64; 4],
    /// Number of the request answered; written last.
    pub answer: u64,
    /// [`AnswerStatus`].
    pub answer_status: u32,
    /// Messages of this incarnation the receiver executed, modulo 2^24.
    pub answer_executed: u32,
    /// Slot answered for.
    pub answer_slot: u32,
    /// Incarnation answered for.
    pub answer_incarnation: u32,
    /// [`InHand`]: the request that the agent is at.
    pub in_hand: u64,
    /// Unused, zero.
    pub pad1: [u64; 4],
}

/// What an agent says of a request that it has not answered yet, and goes on saying while it works on it: the fence of
/// one channel of thousands waits for its turn at the NIC, and nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InHand(pub u64);

impl InHand {
    /// `request` is in hand, at the `turn`th time of asking. Never zero: requests begin at 1.
    #[inline(always)]
    pub const fn new(request: u64, turn: u64) -> Self {
        Self(request << 32 | turn & 0xffff_ffff)
    }

    /// True if it is said of this request.
    #[inline(always)]
    pub const fn is_of(self, request: u64) -> bool {
        self.0 >> 32 == request & 0xffff_ffff && self.0 != 0
    }
}

const _: () = {
    assert!(size_of::<Mailbox>() == 128);
    assert!(core::mem::offset_of!(Mailbox, answer) == 64);
};
