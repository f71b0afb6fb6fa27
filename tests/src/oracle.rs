//! The memory model: what each slot and each signal word may hold at any time, and what it means if it does not.
//!
//! A stream is single-writer: message `m` fills slot `m % slots` with [`pattern`], then its signal word becomes
//! `m + 1`. The receiver checks the slot, *poisons* it, and later grants credit. From the poison to the credit
//! nobody may write the slot, so any change there is a ghost.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use shunt_device::Ticket;

use crate::rng::mix;

/// What a receiver writes over a slot it has consumed.
pub const POISON: u64 = 0xdead_0bad_dead_0bad;

/// Word `word` of message `message` of stream `stream`. Never the poison, never zero, never that of another message.
pub fn pattern(stream: u32, message: u64, word: u64) -> u64 {
    // Low bits count, high bits tell stream and message apart: a stale word can be named.
    (u64::from(stream) + 1) << 56
        | (message & 0xffff_ffff) << 24
        | mix(message ^ word << 32) & 0xff_0000
        | word & 0xffff
}

/// The message a word of `stream` belongs to, if it looks like one.
pub fn message_of(stream: u32, value: u64) -> Option<u64> {
    (value >> 56 == u64::from(stream) + 1).then_some(value >> 24 & 0xffff_ffff)
}

/// One word of a heap, as kernels see it.
pub fn load(address: u64) -> u64 {
    // SAFETY: callers pass 8-aligned addresses inside a heap that outlives the run; every party is atomic.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Acquire)
}

/// Stores one word of a heap.
pub fn store(address: u64, value: u64) {
    // SAFETY: as for `load`.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(value, Ordering::Relaxed);
}

/// How a promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A signal is visible and a put before it is not: invariants 1 and 3.
    Order,
    /// A slot changed between its consumption and its credit: invariants 4 and 5.
    Ghost,
    /// A slot holds what nobody wrote.
    Corrupt,
    /// A signal word was written twice with one value, or went backwards: invariant 2.
    Duplicate,
    /// Something handed out never arrived though the run ended well: invariant 1.
    Lost,
    /// A signal shows a message that was never posted.
    Invented,
    /// A wait ended later than its deadline and the slack of one look: invariant 6.
    Late,
    /// A kernel ended with a fault that nothing which went wrong justifies: invariant 7.
    Unjustified,
}

/// One broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// How.
    pub kind: Kind,
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// Where and what was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:.1} us: {}", self.kind, self.at_ns as f64 / 1e3, self.what)
    }
}

/// All broken promises of a run, shared by its kernels.
#[derive(Clone, Default)]
pub struct Oracle {
    found: Rc<RefCell<Vec<Violation>>>,
    books: Rc<RefCell<BTreeMap<u32, Book>>>,
    added: Rc<RefCell<BTreeMap<OpAt, (u64, u64)>>>,
    lost: Rc<RefCell<BTreeSet<OpAt>>>,
}

/// Where an operation was posted: PE, peer, channel, ticket.
pub type OpAt = (u32, u32, u32, u64);

/// What was posted of one kind, and what of it was seen to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Begun to be posted.
    pub begun: u64,
    /// Done, and looked at.
    pub seen: u64,
}

/// What the kernels of one stream have begun, noted before it is posted: a bound on what may ever be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// Messages whose posting was begun.
    pub begun: u64,
    /// The highest credit whose posting was begun.
    pub credit: u64,
    /// Credits whose posting was begun.
    pub credits: u64,
    /// Gets of the sender.
    pub gets: Count,
    /// Fetching atomics of the sender.
    pub fetches: Count,
    /// When the sender gave up, if it did.
    pub sender_left_ns: Option<u64>,
    /// When the receiver gave up, if it did.
    pub receiver_left_ns: Option<u64>,
}

impl Oracle {
    /// The book of a stream.
    pub fn book(&self, stream: u32) -> Book {
        self.books.borrow().get(&stream).copied().unwrap_or_default()
    }

    /// Notes an add: the heap offset of its word at the peer, and what the word is at least once it was applied.
    pub fn note_add(&self, at: OpAt, word: u64, value: u64) {
        self.added.borrow_mut().insert(at, (word, value));
    }

    /// What was noted of an add.
    pub fn added(&self, at: OpAt) -> Option<(u64, u64)> {
        self.added.borrow().get(&at).copied()
    }

    /// Notes that the answer of an operation is lost: its owner says so.
    pub fn note_lost(&self, at: OpAt) {
        self.lost.borrow_mut().insert(at);
    }

    /// True if the answer of an operation is lost.
    pub fn is_lost(&self, at: OpAt) -> bool {
        self.lost.borrow().contains(&at)
    }

    /// Notes in the book of a stream.
    pub fn note(&self, stream: u32, note: impl FnOnce(&mut Book)) {
        note(self.books.borrow_mut().entry(stream).or_default());
    }

    /// Notes a broken promise.
    pub fn report(&self, kind: Kind, at_ns: u64, what: String) {
        self.found.borrow_mut().push(Violation { kind, at_ns, what });
    }

    /// How many of `kind`.
    pub fn count(&self, kind: Kind) -> usize {
        self.found.borrow().iter().filter(|violation| violation.kind == kind).count()
    }

    /// How many of any kind.
    pub fn total(&self) -> usize {
        self.found.borrow().len()
    }

    /// The first few, one a line.
    pub fn describe(&self) -> String {
        let found = self.found.borrow();
        let mut lines: Vec<String> = found.iter().take(8).map(Violation::to_string).collect();
        if found.len() > lines.len() {
            lines.push(format!("... and {} more", found.len() - lines.len()));
        }
        lines.join("\n")
    }
}

/// One stream: where its words are. The layout is the same on both PEs (a symmetric heap).
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Number, unique in the run, below 255.
    pub id: u32,
    /// Sending PE.
    pub from: u32,
    /// Receiving PE.
    pub to: u32,
    /// Channel both ends use.
    pub channel: u32,
    /// Heap offset of its region.
    pub base: u64,
    /// Slots.
    pub slots: u64,
    /// Bytes of a slot, a multiple of 8.
    pub slot_bytes: u64,
}

impl Stream {
    /// Bytes of a region: source slots, destination slots, signal line, credit line.
    pub fn bytes(slots: u64, slot_bytes: u64) -> u64 {
        (2 * slots * slot_bytes).next_multiple_of(64) + 128
    }

    /// Source slot of `message`, at the sender.
    pub fn source(&self, message: u64) -> u64 {
        self.base + message % self.slots * self.slot_bytes
    }

    /// Destination slot of `message`, at the receiver.
    pub fn destination(&self, message: u64) -> u64 {
        self.source(message) + self.slots * self.slot_bytes
    }

    /// The signal word, at the receiver: messages sent.
    pub fn signal(&self) -> u64 {
        self.base + (2 * self.slots * self.slot_bytes).next_multiple_of(64)
    }

    /// The credit word, at the sender: messages consumed and given back.
    pub fn credit(&self) -> u64 {
        self.signal() + 64
    }

    /// Where the sender posted an operation.
    pub fn at(&self, ticket: Ticket) -> OpAt {
        (self.from, self.to, self.channel, ticket.0)
    }

    /// Fills the source slot of `message` in the heap at `heap`.
    pub fn fill(&self, heap: u64, message: u64) {
        for word in 0..self.slot_bytes / 8 {
            store(heap + self.source(message) + word * 8, pattern(self.id, message, word));
        }
    }

    /// Checks the destination slot of `message`, whose signal is visible, and poisons it.
    pub fn consume(&self, heap: u64, message: u64, oracle: &Oracle, now: u64) {
        let slot = heap + self.destination(message);
        for word in 0..self.slot_bytes / 8 {
            let seen = load(slot + word * 8);
            if seen != pattern(self.id, message, word) {
                let kind = match message_of(self.id, seen) {
                    Some(older) if older < message => Kind::Ghost,
                    None if seen == POISON || seen == 0 => Kind::Order,
                    _ => Kind::Corrupt,
                };
                let met = self.name_word(seen);
                oracle.report(
                    kind,
                    now,
                    format!("{self} message {message} word {word} is {met} behind its signal"),
                );
                break;
            }
        }
        for word in 0..self.slot_bytes / 8 {
            store(slot + word * 8, POISON);
        }
    }

    /// Checks a slot at the end of a run: consumed for `message` and since then untouched, or, if the next message
    /// of the slot was begun, written with words of that one and of no other.
    pub fn check_at_end(&self, heap: u64, message: u64, oracle: &Oracle, now: u64) {
        let next = message + self.slots;
        let may_be_written = oracle.book(self.id).begun > next;
        let slot = heap + self.destination(message);
        for word in 0..self.slot_bytes / 8 {
            let seen = load(slot + word * 8);
            let right = seen == POISON || may_be_written && seen == pattern(self.id, next, word);
            if !right {
                let met = self.name_word(seen);
                let what = format!("{self} slot of consumed message {message} holds {met} at the end");
                return oracle.report(Kind::Ghost, now, what);
            }
        }
    }

    /// Checks that the consumed slot of `message` is still poisoned.
    pub fn check_poison(&self, heap: u64, message: u64, oracle: &Oracle, now: u64) {
        let slot = heap + self.destination(message);
        for word in 0..self.slot_bytes / 8 {
            let seen = load(slot + word * 8);
            if seen != POISON {
                let met = self.name_word(seen);
                oracle.report(
                    Kind::Ghost,
                    now,
                    format!("{self} slot of consumed message {message} became {met}"),
                );
                return;
            }
        }
    }

    fn name_word(&self, value: u64) -> String {
        match message_of(self.id, value) {
            _ if value == POISON => "poison".into(),
            _ if value == 0 => "zero".into(),
            Some(message) => format!("that of message {message}"),
            None => format!("{value:#x}"),
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {} ({} to {}, channel {})", self.id, self.from, self.to, self.channel)
    }
}
