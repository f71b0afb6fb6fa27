//! All of a system of two PEs: what is in rings, networks, NICs, memories and agents. Small enough to be hashed whole.

use shunt_host::agent::health::Health;

/// Paths there may be.
pub const PATHS: usize = 3;
/// Operations a channel may have.
pub const OPS: usize = 4;
/// Messages a path's ring may have seen.
pub const RING: usize = 14;
/// Writes one NIC may hold back.
pub const QUEUE: usize = 6;
/// Messages of an earlier incarnation that are remembered.
pub const GHOSTS: usize = 4;
/// "None" where a number is expected.
pub const NONE: u8 = 255;

/// What a message of a ring is, beside the operation that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The operation itself.
    Whole,
    /// The first ledger word of a bracket.
    Before,
    /// The second one.
    After,
    /// A zero-length write in place of an operation that was executed already.
    Placeholder,
}

/// One message in a ring.
#[derive(Clone, Copy, Hash, PartialEq, Eq)]
pub struct Message(u8);

impl Message {
    /// Nothing yet.
    pub const EMPTY: Self = Self(0);

    /// `part` of operation `op`.
    pub fn new(op: usize, part: Part) -> Self {
        Self(op as u8 | (part as u8) << 4)
    }

    /// Index of the operation on its channel.
    pub fn op(self) -> usize {
        usize::from(self.0 & 15)
    }

    /// Which part of it.
    pub fn part(self) -> Part {
        match self.0 >> 4 {
            0 => Part::Whole,
            1 => Part::Before,
            2 => Part::After,
            _ => Part::Placeholder,
        }
    }
}

/// One direction of a path's queue pair.
#[derive(Clone, Copy, Hash)]
pub struct Direction {
    /// The send queue.
    pub ring: [Message; RING],
    /// Messages written and rung.
    pub rung: u8,
    /// Of these, so many have left at least once.
    pub sent: u8,
    /// Of these, so many were executed by the responder.
    pub executed: u8,
    /// Of these, so many have a completion.
    pub completed: u8,
    /// The packet lifetime is over: nothing of it is in the network any more.
    pub gone: bool,
    /// What the responder's agent stored of it, [`NONE`] before.
    pub truth: u8,
    /// Messages of the incarnation before that may still be in the network.
    pub ghosts: [Message; GHOSTS],
    /// How many.
    pub ghost_count: u8,
}

impl Direction {
    /// A fresh queue.
    pub const NEW: Self = Self {
        ring: [Message::EMPTY; RING],
        rung: 0,
        sent: 0,
        executed: 0,
        completed: 0,
        gone: false,
        truth: NONE,
        ghosts: [Message::EMPTY; GHOSTS],
        ghost_count: 0,
    };
}

/// Where a channel's switch stands.
#[derive(Clone, Copy, Hash, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Open: operations are posted.
    Open,
    /// Closed, the old path is being fenced.
    Fence,
    /// The journal is being written into the next path's ring.
    Replay,
    /// Switch-back: waiting for the backup's completions.
    Drain,
    /// Ended with an error.
    Dead,
}

/// Why a channel ended.
#[derive(Clone, Copy, Hash, PartialEq, Eq, Debug)]
pub enum Error {
    /// It has not.
    None,
    /// No path is left.
    PeerLost,
    /// Whether a signal was applied cannot be known.
    Uncertain,
    /// The old path could not be fenced.
    Unproven,
}

/// How far the fence of the old path is.
#[derive(Clone, Copy, Hash, PartialEq, Eq, Debug, Default)]
pub struct Fence {
    /// The own half is in ERR and read.
    pub local: bool,
    /// The other half is in ERR.
    pub remote: bool,
    /// The other half was read.
    pub queried: bool,
    /// The other NIC's held writes are placed.
    pub flushed: bool,
    /// Nobody answers at the other end: time decides.
    pub timed: bool,
    /// The packet lifetime is over.
    pub waited: bool,
}

/// One channel: from PE `n` to the other.
#[derive(Clone, Copy, Hash)]
pub struct Channel {
    /// Where it stands.
    pub phase: Phase,
    /// Path in use, or being left.
    pub path: u8,
    /// Path being entered.
    pub to: u8,
    /// Operations posted.
    pub next: u8,
    /// D: operations reported done.
    pub done: u8,
    /// X: executed watermark.
    pub executed: u8,
    /// Next operation to replay.
    pub replaying: u8,
    /// The fence.
    pub fence: Fence,
    /// Why it ended.
    pub error: Error,
    /// Gets whose value the program has used and whose buffer it has reused, a bit each.
    pub used: u8,
    /// Paths tried in vain, a bit each.
    pub tried: u8,
    /// It has gone back to the primary once.
    pub went_back: bool,
}

impl Channel {
    /// Nothing posted.
    pub const NEW: Self = Self {
        phase: Phase::Open,
        path: 0,
        to: 0,
        next: 0,
        done: 0,
        executed: 0,
        replaying: 0,
        fence: Fence {
            local: false,
            remote: false,
            queried: false,
            flushed: false,
            timed: false,
            waited: false,
        },
        error: Error::None,
        used: 0,
        tried: 0,
        went_back: false,
    };
}

/// The value that a put or a get brings.
pub const DATA: u8 = 1;
/// What a program writes over a buffer that is its own again.
pub const REUSED: u8 = 2;

/// The memory of one PE.
#[derive(Clone, Copy, Hash)]
pub struct Memory {
    /// Where puts of the other PE go.
    pub buffers: [u8; OPS],
    /// Where its signals go.
    pub words: [u8; OPS],
    /// Operations of the other PE that the program has seen, a bit each.
    pub consumed: u8,
    /// Operations of the other PE that were executed here, a bit each.
    pub applied: u8,
    /// Where this PE's gets land.
    pub fetched: [u8; OPS],
    /// Ledger: one more than the operation whose first bracket was written.
    pub ledger_before: u8,
    /// The same for the second bracket.
    pub ledger_after: u8,
}

/// What a NIC has executed and not yet placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A put's data.
    Buffer(usize),
    /// A signal word takes a value.
    Word(usize, u8),
    /// The first ledger word.
    LedgerBefore(usize),
    /// The second one.
    LedgerAfter(usize),
}

/// Posted writes of one NIC, in order.
#[derive(Clone, Copy, Hash)]
pub struct Queue {
    writes: [u8; QUEUE],
    length: u8,
}

impl Queue {
    /// Nothing held.
    pub const EMPTY: Self = Self { writes: [0; QUEUE], length: 0 };

    /// True if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// True if no more can be held.
    pub fn is_full(&self) -> bool {
        usize::from(self.length) == QUEUE
    }

    /// Adds behind the others. There must be room.
    pub fn push(&mut self, place: Place) {
        let code = match place {
            Place::Buffer(at) => at as u8,
            Place::Word(at, value) => 1 << 6 | value << 3 | at as u8,
            Place::LedgerBefore(op) => 2 << 6 | op as u8,
            Place::LedgerAfter(op) => 3 << 6 | op as u8,
        };
        self.writes[usize::from(self.length)] = code;
        self.length += 1;
    }

    /// The oldest write.
    pub fn first(&self) -> Option<Place> {
        let code = *self.writes[..usize::from(self.length)].first()?;
        let (at, value) = (usize::from(code & 7), code >> 3 & 7);
        Some(match code >> 6 {
            0 => Place::Buffer(at),
            1 => Place::Word(at, value),
            2 => Place::LedgerBefore(at),
            _ => Place::LedgerAfter(at),
        })
    }

    /// Takes the oldest write away.
    pub fn pop(&mut self) -> Option<Place> {
        let first = self.first()?;
        self.writes.copy_within(1.., 0);
        self.writes[QUEUE - 1] = 0;
        self.length -= 1;
        Some(first)
    }
}

/// One end of one path.
#[derive(Clone, Copy, Hash)]
pub struct Half {
    /// What its agent knows of it.
    pub health: Health,
    /// The queue pair is in ERR.
    pub in_error: bool,
    /// Its NIC answers no commands any more.
    pub mute: bool,
}

/// What may still go wrong.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Budget {
    /// Retries run out.
    pub faults: u8,
    /// Deadlines pass though the path is alive.
    pub deadlines: u8,
    /// Path 0 is recreated.
    pub revivals: u8,
    /// PE B's agent dies.
    pub agent_deaths: u8,
    /// A NIC stops answering commands.
    pub mutes: u8,
}

/// Where the atomics of the other writer of a shared word go.
#[derive(Clone, Copy, Hash)]
pub struct OtherWriter {
    /// Its adds so far.
    pub added: u8,
    /// The NIC of B that is home of the word, [`NONE`] while it moves.
    pub home: u8,
}

/// The whole system. Index 0 is PE A, index 1 PE B; `directions[n][p]` is what `n` sends over path `p`.
#[derive(Clone, Copy, Hash)]
pub struct System {
    /// Rings and networks.
    pub directions: [[Direction; PATHS]; 2],
    /// Channels, by sender.
    pub channels: [Channel; 2],
    /// Memories.
    pub memory: [Memory; 2],
    /// Writes held back, by PE and path.
    pub queues: [[Queue; PATHS]; 2],
    /// Ends of paths.
    pub halves: [[Half; PATHS]; 2],
    /// Agents that live.
    pub agents: [bool; 2],
    /// Path 0 was recreated.
    pub revived: bool,
    /// The other writer.
    pub other: OtherWriter,
    /// What is left of the faults.
    pub budget: Budget,
}
