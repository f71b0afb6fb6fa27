//! All of a channel's words, rings, warps and its switch.

use shunt_layout::state::{ReadyWord, Word};

/// Warps.
pub const WARPS: usize = 3;
/// Tickets a group has at most.
pub const GROUP_MAX: u64 = 2;
/// Tickets a run has at most.
pub const TICKETS: usize = 8;
/// Slots of a ring at most.
const SLOTS: usize = 4;

/// One block of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    /// Ticket that it was written for.
    pub ticket: u8,
    /// It moves nothing: its ticket was executed before.
    pub placeholder: bool,
}

/// Never written.
pub const EMPTY: Block = Block { ticket: u8::MAX, placeholder: false };

impl Block {
    /// In words.
    pub fn words(self) -> String {
        match self {
            EMPTY => "a block never written".into(),
            Self { ticket, placeholder: true } => format!("the placeholder of ticket {ticket}"),
            Self { ticket, .. } => format!("ticket {ticket}"),
        }
    }
}

/// One path: its ring, and how far its NIC is. Used again in each second generation.
#[derive(Clone, Copy, Hash)]
pub struct Ring {
    /// It works.
    pub alive: bool,
    /// Blocks.
    pub blocks: [Block; SLOTS],
    /// Ticket of index 0.
    pub base: u64,
    /// Blocks rung.
    pub rung: u64,
    /// Blocks executed and completed.
    pub executed: u64,
}

impl Ring {
    /// A fresh path.
    pub const NEW: Self = Self { alive: true, blocks: [EMPTY; SLOTS], base: 0, rung: 0, executed: 0 };
}

/// A warp's next access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum At {
    /// Add to the ticket word.
    Reserve,
    /// Read `done` for the first comparison.
    Room,
    /// Read `done` in the wait loop.
    Look,
    /// Read the ticket word in the wait loop, decide.
    Judge,
    /// Read `ready`, to say BLOCKED.
    Head,
    /// Say BLOCKED.
    Announce,
    /// Write the blocks.
    Write,
    /// Publish, when it is the warp's turn.
    Publish,
    /// Take the post lock and compare generations.
    Lock,
    /// Ring, let go of the lock.
    Ring,
}

/// One warp: what its registers hold between two accesses.
#[derive(Clone, Copy, Hash)]
pub struct Warp {
    /// Its next access.
    pub at: At,
    /// Groups left to post.
    pub left: u8,
    /// What `reserve` returned; with another slot and generation once it was admitted.
    pub word: u64,
    /// What it read of `done` in its present look.
    pub done: u64,
    /// What it read of `ready` in its present look.
    pub ready: u64,
}

impl Warp {
    /// Nothing under way.
    pub const AT_REST: Self = Self { at: At::Reserve, left: 0, word: 0, done: 0, ready: 0 };
}

/// Where the poller is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PollAt {
    /// Between two looks.
    Rest,
    /// It has read `done`.
    Completions,
    /// It has read the completion queue.
    Swap,
}

/// The poller's registers.
#[derive(Clone, Copy, Hash)]
pub struct Poller {
    /// Its next access.
    pub at: PollAt,
    /// What it read of `done`.
    pub seen: u64,
    /// Tickets complete, by the completion queue.
    pub found: u64,
}

impl Poller {
    /// Between two looks.
    pub const AT_REST: Self = Self { at: PollAt::Rest, seen: 0, found: 0 };
}

/// The switcher's next step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// Nothing to do, or close.
    Idle,
    /// Freeze `done`.
    Freeze,
    /// Wait until all that was reserved is published or blocked.
    Settle,
    /// Once through the post lock.
    Lock,
    /// The agents' fence and truth.
    Truth,
    /// Write the journal into the other path's ring, ring it.
    Replay,
    /// Open the ticket word.
    OpenTicket,
    /// Clear BLOCKED.
    OpenReady,
    /// Open the done word.
    OpenDone,
}

/// The switch.
#[derive(Clone, Copy, Hash)]
pub struct Switcher {
    /// Its next step.
    pub stage: Stage,
    /// Tickets handed out at the close.
    pub close: u64,
    /// D.
    pub done: u64,
    /// L.
    pub limit: u64,
    /// X.
    pub executed: u64,
}

impl Switcher {
    /// No switch under way.
    pub const AT_REST: Self = Self { stage: Stage::Idle, close: 0, done: 0, limit: 0, executed: 0 };
}

/// Everything.
#[derive(Clone, Copy, Hash)]
pub struct System {
    /// The ticket word.
    pub ticket: u64,
    /// The done word.
    pub done: u64,
    /// The ready word.
    pub ready: u64,
    /// Tickets whose doorbell was rung.
    pub posted: u64,
    /// The post lock.
    pub locked: bool,
    /// The two paths.
    pub rings: [Ring; 2],
    /// The warps.
    pub warps: [Warp; WARPS],
    /// The poller.
    pub poller: Poller,
    /// The switch.
    pub switcher: Switcher,
    /// How often each ticket was executed.
    pub executions: [u8; TICKETS],
    /// Paths that may still die.
    pub faults: u8,
}

impl System {
    /// True if the head group says that it cannot fit this frozen ring.
    pub fn is_blocked(&self) -> bool {
        ReadyWord(self.ready).blocked_in(Word(self.done).generation())
    }
}

/// A word, readable.
pub fn words(word: Word) -> String {
    let flag = if word.flag() { ", flag set" } else { "" };
    format!("index {} of generation {}{flag}", word.index(), word.generation())
}
