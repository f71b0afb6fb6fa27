//! One channel: the words of its data path, and the memory of a switch.

/// "No slot" in a slot field.
pub const NO_SLOT: u32 = u32::MAX;

/// Where a switch stands. Kept in memory, so a caller that comes next goes on.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No switch under way.
    Idle = 0,
    /// Closed and frozen; waiting until all that was reserved is published or blocked.
    Settle = 1,
    /// Waiting for the agent's fence and truth of the old path.
    Fence = 2,
    /// Choosing the next path, waiting for one if none is usable.
    Choose = 3,
    /// Without truth: reading the signal words over the next path.
    Ledger = 4,
    /// Writing the journal into the new ring.
    Replay = 5,
    /// Switch-back: closed, waiting for every completion of the backup.
    Drain = 6,
    /// Switch-back: flush READ on the backup posted.
    DrainFlush = 7,
    /// The channel ended: no path for the give-up time, a fence that nothing proves, an error of the program's own, a
    /// lock or an answer that never came. Final.
    Dead = 8,
    /// An operation may or may not have been applied, or its answer is lost: waiting for its owner's word.
    Uncertain = 9,
}

impl Step {
    /// The step of a raw word; anything unknown reads as dead, which is the closed answer.
    #[inline(always)]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Idle,
            1 => Self::Settle,
            2 => Self::Fence,
            3 => Self::Choose,
            4 => Self::Ledger,
            5 => Self::Replay,
            6 => Self::Drain,
            7 => Self::DrainFlush,
            9 => Self::Uncertain,
            _ => Self::Dead,
        }
    }

    /// True if a switch may go from `before` to this step. [`Step::Dead`] follows all of them and is not asked about.
    #[inline(always)]
    pub const fn follows(self, before: Self) -> bool {
        use Step::*;
        matches!(
            (before, self),
            (Idle, Settle | Drain)
                | (Settle, Fence)
                | (Fence | Uncertain, Choose)
                | (Choose, Ledger | Replay | Uncertain)
                | (Ledger, Choose | Replay | Uncertain)
                | (Replay, Idle)
                | (Drain, DrainFlush | Settle | Choose)
                | (DrainFlush, Settle | Choose)
        )
    }
}

/// The memory of a switch. Written by its owner only, `owner` by a caller that takes it over or sees its lease pass as
/// well.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// [`super::OwnerWord`], taken by compare-and-swap.
    pub owner: u64,
    /// [`super::SwitchWord`], changed by compare-and-swap from what its owner met. Copied to [`super::Mirror::word`].
    pub word: u64,
    /// Slot that is being left.
    pub from: u32,
    /// 1 if this is a switch-back.
    pub back: u32,
    /// First ticket that was reserved closed.
    pub close: u64,
    /// D: tickets complete when `done` was frozen.
    pub done_at_close: u64,
    /// L: first ticket not in the journal.
    pub journal_end: u64,
    /// X: executed watermark. Monotone over the channel's life, stored before anything is replayed.
    pub executed: u64,
    /// Number of the last fence request.
    pub request: u64,
    /// When the present step began.
    pub step_since_ns: u64,
    /// Unused, zero.
    pub reserved0: u64,
    /// Cause: [`super::CauseKind`].
    pub cause: u32,
    /// Syndrome in the low byte, vendor syndrome in the next.
    pub syndrome: u32,
    /// Ticket at which the failure was seen.
    pub cause_ticket: u64,
    /// Incarnation of the path that is left.
    pub from_incarnation: u32,
    /// 1 while the cut waits for the ledger (fenced, but no truth).
    pub ledger: u32,
    /// Physical index of the flush READ, or number of ledger READs posted.
    pub posted_reads: u64,
    /// Stamps: noticed, closed, fenced, cut known, replayed, opened.
    pub stamps: [u64; 6],
    /// Unused, zero.
    pub reserved1: [u64; 2],
    /// Why the channel is dead: a fault kind of the device API, 0 while it lives.
    pub fault: u32,
    /// Bit per slot: tried in this switch and found unusable, though the agent has not said so yet.
    pub excluded: u32,
    /// Send queue that is the journal: the path's row may be that of a new incarnation already.
    pub journal_queue: u64,
    /// Base of the journal.
    pub journal_base: u64,
    /// First ticket not done when the channel was last opened.
    pub opened_at: u64,
    /// Generations in a row that had work and finished none of it, since the last round over all paths.
    pub fruitless: u32,
    /// Such rounds: the suspect time is doubled by each, up to [`SUSPECT_DOUBLINGS_MAX`].
    pub rounds: u32,
    /// N: first ticket known not to be executed, or L. Between X and N nothing is known.
    pub unexecuted: u64,
    /// Tickets below are settled: known, or answered by their owner. While uncertain, the ticket asked about.
    pub asked: u64,
    /// The owner's answer: [`Resolution`] of the ticket asked about, 0 while there is none.
    pub resolution: u64,
    /// When the old path's error completion was last looked at; 0 before it was seen. Time fence only.
    pub erred_seen_ns: u64,
    /// How long ago it was first seen, as far as anybody was there to see time pass.
    pub erred_age_ns: u64,
}

/// An owner's answer to an uncertain operation, as it lies in [`Switch::resolution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution(pub u64);

impl Resolution {
    /// The answer for `ticket`, asked about while the channel left `generation`. Never zero.
    #[inline(always)]
    pub const fn new(ticket: u64, generation: u64, applied: bool) -> Self {
        Self(ticket << 10 | (generation & 0xff) << 2 | 2 | applied as u64)
    }

    /// True if it answers this question: the same ticket may be asked about in a later switch again.
    #[inline(always)]
    pub const fn is_for(self, ticket: u64, generation: u64) -> bool {
        self.0 >> 2 == Self::new(ticket, generation, false).0 >> 2
    }

    /// True if the operation was applied.
    #[inline(always)]
    pub const fn applied(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Bit of [`Channel::bound`]: switches choose paths to the home only.
pub const BINDING: u64 = 1;
/// Bit of [`Channel::bound`]: and the channel was seen at home since.
pub const BOUND: u64 = 2;

/// How often the suspect time of a channel is doubled at most.
pub const SUSPECT_DOUBLINGS_MAX: u32 = 6;

/// One channel. Lines are apart by writer; a put touches `ticket`, `done`, `ready`, `posted`, `post_lock`.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Next ticket: CLOSED, slot, generation, index. [`super::Word`].
    pub ticket: u64,
    /// Unused, zero.
    pub pad0: [u64; 7],
    /// Tickets complete: FROZEN, slot, generation, index. [`super::Word`].
    pub done: u64,
    /// Unused, zero.
    pub pad1: [u64; 7],
    /// Tickets published: BLOCKED, index. [`super::ReadyWord`].
    pub ready: u64,
    /// Tickets whose doorbell was rung; written under `post_lock`.
    pub posted: u64,
    /// 0 free, 1 held.
    pub post_lock: u32,
    /// Peer this channel leads to.
    pub peer: u32,
    /// Number of the channel at that peer.
    pub index: u32,
    /// What the uncertain operation was: an `Operation` of the device API, 0 while there is none.
    pub uncertain_op: u32,
    /// Its remote heap offset.
    pub uncertain_address: u64,
    /// Unused, zero.
    pub pad2: [u64; 3],
    /// [`BINDING`] and [`BOUND`]: whether operations of kind 3 keep the channel at the word's home. Bits are only set.
    pub bound: u64,
    /// Unused, zero.
    pub pad3: [u64; 7],
    /// The switch.
    pub switch: Switch,
}

const _: () = {
    assert!(size_of::<Switch>() == 256 && align_of::<Switch>() == 64);
    assert!(size_of::<Channel>() == 512 && align_of::<Channel>() == 128);
    assert!(core::mem::offset_of!(Channel, done) == 64);
    assert!(core::mem::offset_of!(Channel, ready) == 128);
    assert!(core::mem::offset_of!(Channel, bound) == 192);
    assert!(core::mem::offset_of!(Channel, switch) == 256);
};
