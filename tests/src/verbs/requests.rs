//! What an end of a connection posts, and where things are in its memory.

use crate::oracle::store;
use crate::rng::{Rng, mix};

/// Receives that are posted.
pub(super) const RECEIVES: u64 = 24;
/// Bytes of a place, and of a large one: three packets.
pub(super) const PLACE: u64 = 64;
const LARGE: u64 = 9_000;
/// One request in so many is large at most.
const LARGE_EVERY: u64 = 8;
/// Bytes that are read.
pub(super) const PATTERN: u64 = 1024;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// A message.
    Send,
    /// The same with an immediate.
    SendImmediate,
    /// A WRITE of a place, or of 16 bytes.
    Write,
    /// The same with an immediate.
    WriteImmediate,
    /// A WRITE of three packets.
    WriteLarge,
    /// A READ of a place.
    Read,
    /// FETCH_ADD of 1.
    Add,
    /// CMP_SWAP of a count by the next one.
    Swap,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What it does.
    pub does: Does,
    /// It has a completion of its own.
    pub signaled: bool,
    /// Its bytes travel in the request.
    pub inline: bool,
}

impl Request {
    pub(super) const fn is_two_sided(self) -> bool {
        matches!(self.does, Does::Send | Does::SendImmediate | Does::WriteImmediate)
    }

    pub(super) const fn writes(self) -> bool {
        matches!(self.does, Does::Write | Does::WriteImmediate | Does::WriteLarge)
    }

    pub(super) const fn is_atomic(self) -> bool {
        matches!(self.does, Does::Add | Does::Swap)
    }

    /// What it brings is in its result.
    pub(super) const fn fetches(self) -> bool {
        self.is_atomic() || matches!(self.does, Does::Read)
    }

    /// Bytes that it carries.
    pub(super) const fn bytes(self) -> u64 {
        match self.does {
            Does::Send | Does::SendImmediate => 16,
            Does::Write | Does::WriteImmediate if self.inline => 16,
            Does::Write | Does::WriteImmediate => PLACE,
            Does::WriteLarge => LARGE,
            Does::Read => PLACE,
            Does::Add | Does::Swap => 8,
        }
    }
}

/// What an end posts. The last is a message, so that all before it are checked.
pub(super) fn requests(seed: u64, count: u64, atomics: bool) -> Vec<Request> {
    let mut rng = Rng::new(seed ^ 0xc0de);
    let mut unsignaled = 0;
    let one = |number| {
        let does = match rng.below(16) {
            0..=3 => Does::Send,
            4 => Does::SendImmediate,
            5..=8 => Does::Write,
            9 | 10 => Does::WriteImmediate,
            11 if number % LARGE_EVERY == 0 => Does::WriteLarge,
            12 | 13 => Does::Read,
            14 if atomics => Does::Add,
            15 if atomics => Does::Swap,
            _ => Does::Write,
        };
        let last = number + 1 == count;
        let does = if last { Does::Send } else { does };
        let signaled = last || unsignaled == 3 || matches!(does, Does::Add | Does::Swap) || !rng.one_in(3);
        unsignaled = if signaled { 0 } else { unsignaled + 1 };
        Request { does, signaled, inline: rng.one_in(4) }
    };
    (0..count).map(one).collect()
}

/// Where things are in an end's part of its process's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    base: u64,
    places: u64,
    large: u64,
}

impl Layout {
    pub(super) const fn new(base: u64, count: u64) -> Self {
        Self { base, places: count * PLACE, large: (count / LARGE_EVERY + 1) * LARGE }
    }

    pub(super) fn place(self, area: u64, number: u64, request: Request) -> u64 {
        let at = self.base + area * (self.places + self.large);
        match request.does {
            Does::WriteLarge => at + self.places + number / LARGE_EVERY * LARGE,
            _ => at + number * PLACE,
        }
    }

    pub(super) fn target(self, number: u64, request: Request) -> u64 {
        self.place(0, number, request)
    }

    pub(super) fn source(self, number: u64, request: Request) -> u64 {
        self.place(1, number, request)
    }

    pub(super) fn rest(self) -> u64 {
        self.base + 2 * (self.places + self.large)
    }

    pub(super) fn result(self, number: u64) -> u64 {
        self.rest() + number * PLACE
    }

    /// The word that is added to, and the one that is swapped.
    pub(super) fn word(self, swapped: bool) -> u64 {
        self.rest() + self.places + if swapped { 8 } else { 0 }
    }

    pub(super) fn pattern(self, number: u64) -> u64 {
        self.word(false) + PLACE + number % (PATTERN / PLACE) * PLACE
    }

    pub(super) fn buffer(self, slot: u64) -> u64 {
        self.word(false) + PLACE + PATTERN + slot * PLACE
    }

    pub(super) fn bytes(self) -> u64 {
        self.buffer(RECEIVES) - self.base
    }
}

/// Bytes of an end's part.
pub(super) fn bytes(requests: u64) -> u64 {
    Layout::new(0, requests).bytes()
}

/// What a word of a request is.
pub(super) fn shape(of: u64, number: u64, word: u64) -> u64 {
    mix(of << 40 | number << 16 | word) >> 1
}

pub(super) fn fill(at: u64, bytes: u64, of: impl Fn(u64) -> u64) {
    (0..bytes / 8).for_each(|word| store(at + 8 * word, of(word)));
}
