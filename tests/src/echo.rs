//! What a sender asks of the peer beside its messages: gets, and fetching atomics. Traffic whose right answer the
//! oracle knows at every instant.
//!
//! A get: the sender puts version `v` into slot `v % SLOTS` of a region at the peer that nobody else touches, and gets
//! it back from there behind the put. Until the get is done its buffer is the library's; then it must hold version
//! `v`. The sender *poisons* it, and nobody may change it until it is used again: what does is a response of an older
//! get, late. A fetching atomic makes a word of the peer `n + 1`; its answer must be `n`. If the answer was lost, the
//! owner says so (`Uncertain`), and nothing is expected of it.

use std::collections::VecDeque;

use shunt_device::{Amo, Channel, Fault, Get, HeapOffset, Lanes, Put, Ticket};

use crate::kernel::Kernel;
use crate::oracle::{Count, Kind, OpAt, Oracle, POISON, Stream, load, pattern, store};
use crate::sim::SimPlatform;
use crate::traffic::Traffic;

/// Slots of the gets, and of the answers.
pub const SLOTS: u64 = 4;
/// So many of them are under way at most; the others lie poisoned.
const UNDER_WAY: usize = 2;
/// Versions are told from messages by this bit of their number.
const VERSION: u64 = 1 << 31;

/// Where a stream's gets and atomics are, in both heaps.
#[derive(Clone, Copy, Debug)]
struct Place {
    stream: Stream,
}

impl Place {
    fn base(self) -> u64 {
        self.stream.credit() + 64
    }

    /// What is put, at the sender.
    fn source(self, version: u64) -> u64 {
        self.base() + version % SLOTS * self.stream.slot_bytes
    }

    /// Where it lies, at the receiver.
    fn there(self, version: u64) -> u64 {
        self.source(version) + SLOTS * self.stream.slot_bytes
    }

    /// Where it comes back to, at the sender.
    fn back(self, version: u64) -> u64 {
        self.there(version) + SLOTS * self.stream.slot_bytes
    }

    /// The word of the atomics, at the receiver.
    fn word(self) -> u64 {
        (self.base() + 3 * SLOTS * self.stream.slot_bytes).next_multiple_of(64)
    }

    /// Where their answers go, at the sender.
    fn answer(self, number: u64) -> u64 {
        self.word() + 64 + number % SLOTS * 8
    }
}

/// Bytes behind a stream's region that its gets and atomics take.
pub fn bytes(slot_bytes: u64) -> u64 {
    (3 * SLOTS * slot_bytes).next_multiple_of(64) + 128
}

/// The gets and fetching atomics of a stream, by its sender.
pub(crate) struct Echoes<'k> {
    kernel: &'k Kernel,
    place: Place,
    wait_ns: u64,
    gets: VecDeque<Ticket>,
    /// The ticket to wait for, and how an uncertain one is named.
    fetches: VecDeque<(Ticket, OpAt)>,
}

impl<'k> Echoes<'k> {
    pub(crate) fn new(kernel: &'k Kernel, stream: Stream, traffic: &Traffic) -> Self {
        let wait_ns = traffic.wait_ns;
        Self { kernel, place: Place { stream }, wait_ns, gets: VecDeque::new(), fetches: VecDeque::new() }
    }

    /// What belongs to message number `message`: a get with each `traffic.gets`th, an atomic with each
    /// `traffic.fetches`th.
    pub(crate) fn post<L: Lanes>(
        &mut self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        traffic: &Traffic,
        message: u64,
    ) -> Result<(), Fault> {
        if traffic.gets > 0 && message.is_multiple_of(traffic.gets) {
            if self.gets.len() >= UNDER_WAY {
                self.see_get(lanes, channel)?;
            }
            self.get(lanes, channel, message / traffic.gets)?;
        }
        if traffic.fetches > 0 && message.is_multiple_of(traffic.fetches) {
            if self.fetches.len() >= UNDER_WAY {
                self.see_answer(lanes, channel)?;
            }
            self.fetch(lanes, channel, message / traffic.fetches)?;
        }
        Ok(())
    }

    /// Waits for all of them.
    pub(crate) fn settle<L: Lanes>(
        &mut self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
    ) -> Result<(), Fault> {
        while !self.gets.is_empty() {
            self.see_get(lanes, channel)?;
        }
        while !self.fetches.is_empty() {
            self.see_answer(lanes, channel)?;
        }
        Ok(())
    }

    fn get<L: Lanes>(
        &mut self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        version: u64,
    ) -> Result<(), Fault> {
        let (place, bytes) = (self.place, self.place.stream.slot_bytes);
        if lanes.rank() == 0 {
            let now = self.kernel.world.now();
            if version >= SLOTS {
                place.check_poison(self.kernel.heap, version - SLOTS, &self.kernel.oracle, now);
            }
            place.each_word(|word| {
                let right = pattern(place.stream.id, version | VERSION, word);
                store(self.kernel.heap + place.source(version) + word * 8, right);
                store(self.kernel.heap + place.back(version) + word * 8, POISON);
            });
            self.kernel.oracle.note(place.stream.id, |book| book.gets.begun = version + 1);
        }
        lanes.sync();
        let [source, there, back] =
            [place.source(version), place.there(version), place.back(version)].map(HeapOffset);
        channel.put_nbi(lanes, Put { dst: there, src: source, bytes })?;
        self.gets.push_back(channel.get_nbi(lanes, Get { dst: back, src: there, bytes })?);
        Ok(())
    }

    fn see_get<L: Lanes>(&mut self, lanes: L, channel: &Channel<'_, SimPlatform<'_>>) -> Result<(), Fault> {
        let Some(ticket) = self.gets.pop_front() else { return Ok(()) };
        self.kernel.wait(lanes, channel, ticket, self.wait_ns)?;
        let (kernel, place) = (self.kernel, self.place);
        if lanes.rank() == 0 {
            let version = kernel.oracle.book(place.stream.id).gets.seen;
            place.consume(kernel.heap, version, &kernel.oracle, kernel.world.now());
            kernel.oracle.note(place.stream.id, |book| book.gets.seen = version + 1);
        }
        lanes.sync();
        Ok(())
    }

    fn fetch<L: Lanes>(
        &mut self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        number: u64,
    ) -> Result<(), Fault> {
        let (place, kernel) = (self.place, self.kernel);
        let answer = kernel.heap + place.answer(number);
        if lanes.rank() == 0 {
            if number >= SLOTS && load(answer) != POISON {
                let what = format!("{}: answer {number} came again", place.stream);
                kernel.oracle.report(Kind::Ghost, kernel.world.now(), what);
            }
            store(answer, POISON);
            kernel.oracle.note(place.stream.id, |book| book.fetches.begun = number + 1);
        }
        lanes.sync();
        let amo = match number % 3 {
            0 => Amo::Add64(1),
            1 => Amo::CompareSwap64 { expect: number, new: number + 1 },
            _ => Amo::Swap64(number + 1),
        };
        let result = HeapOffset(place.answer(number));
        let ticket = channel.amo_fetch_nbi(lanes, HeapOffset(place.word()), amo, result)?;
        // What is uncertain is named by its first ticket.
        let at = place.stream.at(Ticket(ticket.0 + 1 - amo.blocks()));
        if lanes.rank() == 0 {
            kernel.oracle.note_add(at, place.word(), number + 1);
        }
        self.fetches.push_back((ticket, at));
        Ok(())
    }

    fn see_answer<L: Lanes>(
        &mut self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
    ) -> Result<(), Fault> {
        let Some((ticket, at)) = self.fetches.pop_front() else { return Ok(()) };
        self.kernel.wait(lanes, channel, ticket, self.wait_ns)?;
        let (kernel, place) = (self.kernel, self.place);
        if lanes.rank() == 0 {
            let number = kernel.oracle.book(place.stream.id).fetches.seen;
            let answer = load(kernel.heap + place.answer(number));
            let lost = kernel.oracle.is_lost(at);
            if answer != number && !lost {
                let kind = if answer == POISON { Kind::Lost } else { Kind::Duplicate };
                let what = format!("{}: atomic {number} found {answer:#x} in its word", place.stream);
                kernel.oracle.report(kind, kernel.world.now(), what);
            }
            store(kernel.heap + place.answer(number), POISON);
            kernel.oracle.note(place.stream.id, |book| book.fetches.seen = number + 1);
        }
        lanes.sync();
        Ok(())
    }
}

impl Place {
    fn each_word(self, mut word: impl FnMut(u64)) {
        (0..self.stream.slot_bytes / 8).for_each(&mut word);
    }

    /// The first word of a slot that is not what `right` says, and what it is.
    fn first_wrong(self, slot: u64, right: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let mut words = (0..self.stream.slot_bytes / 8).map(|word| (word, load(slot + word * 8)));
        words.find(|(word, seen)| *seen != right(*word))
    }

    /// Checks what get `version` brought, and poisons it.
    fn consume(self, heap: u64, version: u64, oracle: &Oracle, now: u64) {
        let slot = heap + self.back(version);
        let right = |word| pattern(self.stream.id, version | VERSION, word);
        if let Some((word, seen)) = self.first_wrong(slot, right) {
            let kind = if seen == POISON { Kind::Lost } else { Kind::Ghost };
            let what = format!("{}: get {version} is done, its word {word} is {seen:#x}", self.stream);
            oracle.report(kind, now, what);
        }
        self.each_word(|word| store(slot + word * 8, POISON));
    }

    /// Checks that nothing came for get `version` since it was done.
    fn check_poison(self, heap: u64, version: u64, oracle: &Oracle, now: u64) {
        if let Some((word, seen)) = self.first_wrong(heap + self.back(version), |_| POISON) {
            let what = format!("{}: word {word} of get {version} became {seen:#x} afterwards", self.stream);
            oracle.report(Kind::Ghost, now, what);
        }
    }
}

/// Checks a stream's gets and atomics at the end of a run: at its sender, if that lives, and at its receiver.
pub(crate) fn judge(stream: &Stream, heaps: [Option<u64>; 2], well: bool, oracle: &Oracle, now: u64) {
    let (place, book) = (Place { stream: *stream }, oracle.book(stream.id));
    let [sender, receiver] = heaps;
    if let Some(heap) = sender {
        let untouched = |count: Count| (count.begun.max(SLOTS) - SLOTS)..count.seen;
        for version in untouched(book.gets) {
            place.check_poison(heap, version, oracle, now);
        }
        for number in untouched(book.fetches) {
            let seen = load(heap + place.answer(number));
            if seen != POISON {
                let what = format!("{stream}: answer {number} came again: {seen:#x}");
                oracle.report(Kind::Ghost, now, what);
            }
        }
    }
    if let Some(heap) = receiver
        && well
    {
        for version in (book.gets.begun.max(SLOTS) - SLOTS)..book.gets.begun {
            let right = |word| pattern(stream.id, version | VERSION, word);
            if let Some((word, seen)) = place.first_wrong(heap + place.there(version), right) {
                let what = format!("{stream}: word {word} of version {version} is {seen:#x} at the end");
                oracle.report(Kind::Ghost, now, what);
            }
        }
        let count = load(heap + place.word());
        if count != book.fetches.begun {
            let kind = if count < book.fetches.begun { Kind::Lost } else { Kind::Duplicate };
            let what = format!("{stream}: {} atomics made their word {count}", book.fetches.begun);
            oracle.report(kind, now, what);
        }
    }
}
