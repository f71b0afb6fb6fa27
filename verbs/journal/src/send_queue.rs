//! What a program has posted to send and does not know to be complete: the journal. Pure.
//!
//! Requests have numbers that never restart. The peer's count of executed messages, which is exact, says which of them
//! are done; the rest is posted again, in order, on another queue pair. Of what was executed only a READ is posted
//! again: its data may not have come. Completions keep their order behind it: what was executed there takes part as a
//! WRITE of nothing.
//!
//! An atomic that was executed and is not complete has lost its answer, which no NIC gives twice. By
//! [`Answers::Needed`] the queue stands there, and the program gets an error for it. By [`Answers::Unread`] it counts
//! as done.

use crate::policy::{Answers, Policy, Rule};
use crate::record::{Beside, Record, Slot};
use crate::request::{Kind, Request};
use crate::shapes::Shapes;
use shunt_layout::mutant::Mutant;
use shunt_verbs_near::ring::Ring;
use shunt_verbs_near::row::{Cursor, Row};

/// Counts of a queue pair have so many bits.
const MASK: u64 = 0xff_ffff;

/// A completion that the program is to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number for the request.
    pub wr_id: u64,
    /// What the request did.
    pub kind: Kind,
}

/// The journal of one queue pair.
#[derive(Default)]
pub struct SendQueue {
    policy: Policy,
    /// Every request is signaled, whatever its flags say.
    all_signaled: bool,
    /// The program has posted an atomic.
    atomics: bool,
    /// What differs from one request to the next. It knows the number that the next entry gets.
    slots: Row<Slot>,
    /// What is the same of many.
    shapes: Shapes,
    /// What slots have no room for, by the same numbers; none before the first that needs it.
    beside: Ring<Beside>,
    /// Number of the oldest entry.
    first: u64,
    /// Number of the next that is to be given to a NIC.
    next: u64,
    /// The other end has executed all before this number.
    executed: u64,
    /// A NIC had been given all before this number when it was left.
    tried: u64,
    /// Messages that were executed and consumed a receive of the other end.
    two_sided: u64,
    /// The program's number for the newest signaled request that completed on its own queue pair.
    newest_done: u64,
}

/// A count that cannot be: the queue pair told something else than what was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible;

impl SendQueue {
    /// An empty one, for so many requests at first. There is room for twice as many: where it ends, what is complete is
    /// looked for, and a program that keeps so many under way would come there with each request.
    pub fn new(policy: Policy, all_signaled: bool, depth: usize) -> Self {
        Self { policy, all_signaled, slots: Row::new(2 * depth), beside: Ring::new(depth), ..Self::default() }
    }

    /// True once the program has posted an atomic.
    pub const fn has_atomics(&self) -> bool {
        self.atomics
    }

    /// True once an atomic was posted whose answer the program needs: a queue pair is not left without need then,
    /// because an answer that is under way would be lost.
    pub fn needs_answers(&self) -> bool {
        self.atomics && (self.policy.answers == Answers::Needed || self.policy.rule == Rule::Paper)
    }

    /// True if the oldest request is an atomic whose answer is lost and needed: nothing behind it can complete.
    pub fn answer_is_lost(&self) -> bool {
        !self.is_empty() && self.stands_at(self.first)
    }

    fn stands_at(&self, number: u64) -> bool {
        let lost = match self.policy.rule {
            Rule::Exact => number < self.executed && self.policy.answers == Answers::Needed,
            Rule::Paper => number < self.tried,
        };
        lost && self.record(number).is_atomic()
    }

    /// The entry of a number.
    fn record(&self, number: u64) -> Record {
        let shape = self.shapes.at(number);
        let target = (shape.is_atomic() && self.beside.room() > 0).then(|| self.beside.get(number).target);
        Record::whole(shape, &self.slots.get(number), target)
    }

    /// The other end has executed it, and that counts.
    fn is_known_done(&self, number: u64) -> bool {
        let again = Mutant::LostAnswerRepeated.on() && self.record(number).is_atomic();
        number < self.executed && (self.policy.rule == Rule::Exact && !again || !self.is_repeated(number))
    }

    /// If the other end has executed it, it is posted again whole.
    fn is_repeated(&self, number: u64) -> bool {
        let record = self.record(number);
        match self.policy.rule {
            Rule::Exact if Mutant::LostAnswerRepeated.on() => record.is_read() || record.is_atomic(),
            Rule::Exact => record.is_read() && !Mutant::ReadNotRepeated.on(),
            Rule::Paper => !record.is_two_sided(),
        }
    }

    /// Number of the oldest request that is not complete.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Number of the next request that a NIC is to get.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Number that the next request of the program gets.
    pub const fn end(&self) -> u64 {
        self.slots.end()
    }

    /// Requests that are not complete, as far as the program can know.
    pub const fn len(&self) -> usize {
        (self.end() - self.first) as usize
    }

    /// True if every request is complete.
    pub const fn is_empty(&self) -> bool {
        self.end() == self.first
    }

    /// Receives of the other end that all requests of a NIC consume, since it was connected: done or not.
    pub fn consumes(&self) -> u64 {
        let open = self.first.max(self.executed)..self.next;
        self.two_sided + open.filter(|number| self.record(*number).is_two_sided()).count() as u64
    }

    /// Messages so far that consumed a receive of the other end.
    pub const fn two_sided(&self) -> u64 {
        self.two_sided
    }

    /// The program's number for the newest signaled request that completed on its own queue pair.
    pub const fn newest_done(&self) -> u64 {
        self.newest_done
    }

    /// True if the next request needs room, though there may be more without memory being made.
    pub fn is_full(&mut self) -> bool {
        !self.slots.cursor().has_room()
    }

    /// Makes room for the next request.
    #[cold]
    pub fn make_room(&mut self) {
        let end = self.end();
        if end - self.first == self.slots.room() {
            self.slots.grow(self.first);
            if self.beside.room() > 0 {
                self.beside.grow(self.first, end);
            }
        }
        self.slots.go_to(end, self.first);
    }

    /// Requests go straight to the program's own queue pair: only then one may be [`SendQueue::usual`].
    pub fn set_open(&mut self, open: bool) {
        self.shapes.set_open(open);
    }

    /// What [`crate::work_request::word`] gives of a request that is like the newest, if it has one buffer.
    #[inline(always)]
    pub const fn usual(&self) -> u64 {
        self.shapes.usual()
    }

    /// The program posts one that is like the newest. False if there is no room.
    #[inline(always)]
    pub fn put(&mut self, write: impl FnOnce(&mut Slot)) -> bool {
        self.slots.put(write)
    }

    /// Where the program posts requests that are like the newest, while there is room.
    #[inline(always)]
    pub const fn cursor(&mut self) -> Cursor<'_, Slot> {
        self.slots.cursor()
    }

    /// The program posts one; `fill` says what is beside it.
    pub fn push(&mut self, record: Record, fill: impl FnOnce(&mut Beside)) {
        let end = self.end();
        if !record.is_plain() {
            if self.beside.room() == 0 || end - self.first == self.slots.room() {
                self.make_room();
            }
            while self.beside.room() < self.slots.room() {
                self.beside.grow(self.first, end);
            }
            let beside = self.beside.get_mut(end);
            fill(beside);
            beside.target = record.words.target;
        }
        self.atomics |= record.is_atomic();
        self.shapes.next(end, record.shape());
        let slot = record.slot();
        if !self.slots.put(|to| *to = slot) {
            self.make_room();
            self.slots.put(|to| *to = slot);
        }
    }

    /// The newest ones, so many, were not taken.
    pub fn not_taken(&mut self, count: u64) {
        self.next = self.end() - count.min(self.end() - self.first);
        self.take_back();
    }

    /// Takes back what no NIC has got.
    pub fn take_back(&mut self) {
        self.shapes.take_back(self.next);
        self.slots.go_to(self.next, self.first);
    }

    /// The next request that a NIC is to get, and whether the other end has executed it. None goes past an atomic whose
    /// answer is lost and needed.
    pub fn peek(&self) -> Option<(Request, bool)> {
        let number = self.next;
        if number >= self.end() || self.stands_at(number) {
            return None;
        }
        let beside = (self.beside.room() > 0).then(|| self.beside.get(number));
        Some((self.record(number).request(beside)?, self.is_known_done(number)))
    }

    /// NICs have taken so many more.
    pub fn given(&mut self, count: u64) {
        self.next = (self.next + count).min(self.end());
    }

    /// They have taken all.
    #[inline]
    pub const fn all_given(&mut self) {
        self.next = self.end();
    }

    fn is_signaled(&self, record: &Record) -> bool {
        self.all_signaled || record.is_signaled()
    }

    fn pop(&mut self) -> Record {
        let record = self.record(self.first);
        self.two_sided += u64::from(self.first >= self.executed && record.is_two_sided());
        self.first += 1;
        self.next = self.next.max(self.first);
        record
    }

    fn pop_done(&mut self) -> Option<Done> {
        let record = self.pop();
        let kind = record.kind().filter(|_| self.is_signaled(&record))?;
        Some(Done { wr_id: record.wr_id, kind })
    }

    /// The program's own NIC completed so many more signaled requests, the oldest, and all before the last of them.
    ///
    /// # Errors
    /// So many were not given to it.
    pub fn signaled_done(&mut self, mut count: u64) -> Result<(), Impossible> {
        let (mut first, mut two_sided, mut newest) = (self.first, 0, None);
        for (shape, end) in self.shapes.runs() {
            let run = end.min(self.next).saturating_sub(first);
            // What comes behind the last one that counts is not passed.
            let signaled = shape.is_signaled() || self.all_signaled;
            let passed = if count == 0 || signaled { run.min(count) } else { run };
            first += passed;
            two_sided += if shape.is_two_sided() { passed } else { 0 };
            if signaled && passed > 0 {
                count -= passed;
                newest = Some(first - 1);
            }
        }
        let newest = newest.map_or(self.newest_done, |number| self.slots.get(number).wr_id);
        self.shapes.forget(first);
        // Nothing is cut while the program's own queue pair completes requests, so none of these was counted.
        (self.first, self.newest_done) = (first, newest);
        self.two_sided += two_sided;
        if count == 0 { Ok(()) } else { Err(Impossible) }
    }

    /// The NIC completed the request of this number, and all before it: what the program is to see.
    ///
    /// # Errors
    /// It was not given to a NIC, or is complete already.
    pub fn numbered_done(&mut self, number: u64) -> Result<Vec<Done>, Impossible> {
        if number < self.first || number >= self.next {
            return Err(Impossible);
        }
        let done = (self.first..=number).filter_map(|_| self.pop_done()).collect();
        self.shapes.forget(self.first);
        Ok(done)
    }

    /// The program's number for the request of this number, if that is not complete.
    pub fn wr_id(&self, number: u64) -> Option<u64> {
        (self.first..self.end()).contains(&number).then(|| self.slots.get(number).wr_id)
    }

    /// The peer executed `executed` messages (24 bits) of a queue pair on which request `first_number` had index
    /// `first_index`. What the program is to see at once; the rest is to be posted again, from [`SendQueue::first`] on.
    ///
    /// # Errors
    /// No such count fits what was posted.
    pub fn cut(
        &mut self,
        executed: u32,
        first_number: u64,
        first_index: u64,
    ) -> Result<Vec<Done>, Impossible> {
        let index = |number: u64| first_index + (number - first_number);
        let low = index(self.first.max(first_number));
        let ahead = u64::from(executed).wrapping_sub(low) & MASK;
        let mut cut = self.first.max(first_number) + ahead;
        if self.first < first_number || cut > self.next {
            return Err(Impossible);
        }
        match () {
            () if Mutant::CutTooEarly.on() => cut = cut.saturating_sub(1).max(self.first),
            () if Mutant::CutTooLate.on() => cut = (cut + 1).min(self.next),
            () => {}
        }
        for number in self.first.max(self.executed)..cut {
            let counts = self.record(number).is_two_sided() && !Mutant::CutUncounted.on();
            self.two_sided += u64::from(counts);
        }
        self.executed = self.executed.max(cut);
        self.tried = self.tried.max(self.next);
        self.next = self.first;
        let mut seen = Vec::new();
        while self.first < self.executed && !self.is_repeated(self.first) && !self.stands_at(self.first) {
            seen.extend(self.pop_done());
        }
        self.shapes.forget(self.first);
        Ok(seen)
    }

    /// Gives everything up: numbers of the requests that were not complete, in order.
    pub fn give_up(&mut self) -> Vec<u64> {
        let end = self.end();
        let ids = (self.first..end).map(|number| self.slots.get(number).wr_id).collect();
        (self.first, self.next) = (end, end);
        self.shapes.forget(end);
        ids
    }
}

#[cfg(test)]
#[path = "send_queue_tests.rs"]
mod tests;
