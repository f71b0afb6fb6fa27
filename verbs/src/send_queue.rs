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

use crate::request::{Kind, Request};
use std::collections::VecDeque;

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

struct Entry {
    request: Request,
    /// The other end has executed it.
    executed: bool,
}

/// What an atomic without its answer is to the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// An error: it may look at the value.
    #[default]
    Needed,
    /// Done: it never looks.
    Unread,
}

/// The journal of one queue pair.
#[derive(Default)]
pub struct SendQueue {
    answers: Answers,
    /// The program has posted an atomic.
    atomics: bool,
    entries: VecDeque<Entry>,
    /// Number of the oldest entry.
    first: u64,
    /// Number of the next that is to be given to a NIC.
    next: u64,
    /// Messages that were executed and consumed a receive of the other end.
    two_sided: u64,
}

/// A count that cannot be: the queue pair told something else than what was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible;

impl SendQueue {
    /// An empty one.
    pub fn new(answers: Answers) -> Self {
        Self { answers, ..Self::default() }
    }

    /// True once the program has posted an atomic.
    pub const fn has_atomics(&self) -> bool {
        self.atomics
    }

    /// True once an atomic was posted whose answer the program needs: a queue pair is not left without need then,
    /// because an answer that is under way would be lost.
    pub fn needs_answers(&self) -> bool {
        self.atomics && self.answers == Answers::Needed
    }

    /// True if the oldest request is an atomic whose answer is lost and needed: nothing behind it can complete.
    pub fn answer_is_lost(&self) -> bool {
        self.entries.front().is_some_and(|entry| self.stands_at(entry))
    }

    fn stands_at(&self, entry: &Entry) -> bool {
        entry.executed && entry.request.kind.is_atomic() && self.answers == Answers::Needed
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
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Requests that are not complete, as far as the program can know.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if every request is complete.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Messages so far that consumed a receive of the other end.
    pub const fn two_sided(&self) -> u64 {
        self.two_sided
    }

    /// The program posts one.
    pub fn push(&mut self, request: Request) {
        self.atomics |= request.kind.is_atomic();
        self.entries.push_back(Entry { request, executed: false });
    }

    /// Takes the newest one back, which no NIC has taken.
    pub fn unpush(&mut self) {
        if self.next < self.end() {
            self.entries.pop_back();
        }
    }

    /// The next request that a NIC is to get, and whether the other end has executed it. None goes past an atomic whose
    /// answer is lost and needed.
    pub fn peek(&self) -> Option<(&Request, bool)> {
        let entry = self.entries.get(usize::try_from(self.next - self.first).ok()?)?;
        (!self.stands_at(entry)).then_some((&entry.request, entry.executed))
    }

    /// A NIC has taken it.
    pub fn given(&mut self) {
        self.next = (self.next + 1).min(self.end());
    }

    fn pop(&mut self) -> Option<Done> {
        let Entry { request, executed } = self.entries.pop_front()?;
        self.first += 1;
        self.next = self.next.max(self.first);
        self.two_sided += u64::from(!executed && request.kind.is_two_sided());
        request.signaled.then_some(Done { wr_id: request.wr_id, kind: request.kind })
    }

    /// The NIC completed the oldest signaled request, and all before it.
    ///
    /// # Errors
    /// That is not the one that the completion names, or was not given to a NIC.
    pub fn signaled_done(&mut self, wr_id: u64) -> Result<(), Impossible> {
        let at = self.entries.iter().position(|entry| entry.request.signaled).ok_or(Impossible)?;
        if self.entries[at].request.wr_id != wr_id || self.first + at as u64 >= self.next {
            return Err(Impossible);
        }
        (0..=at).for_each(|_| _ = self.pop());
        Ok(())
    }

    /// The NIC completed the request of this number, and all before it: what the program is to see.
    ///
    /// # Errors
    /// It was not given to a NIC, or is complete already.
    pub fn numbered_done(&mut self, number: u64) -> Result<Vec<Done>, Impossible> {
        if number < self.first || number >= self.next {
            return Err(Impossible);
        }
        Ok((self.first..=number).filter_map(|_| self.pop()).collect())
    }

    /// The request of this number, if it is not complete.
    pub fn get(&self, number: u64) -> Option<&Request> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get(at).map(|entry| &entry.request)
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
        let cut = self.first.max(first_number) + ahead;
        if self.first < first_number || cut > self.next {
            return Err(Impossible);
        }
        for entry in self.entries.iter_mut().take((cut - self.first) as usize) {
            self.two_sided += u64::from(!entry.executed && entry.request.kind.is_two_sided());
            entry.executed = true;
        }
        self.next = self.first;
        let mut seen = Vec::new();
        let is_over = |queue: &Self| {
            let done = |entry: &Entry| entry.executed && entry.request.kind != Kind::Read;
            queue.entries.front().is_some_and(|entry| done(entry) && !queue.stands_at(entry))
        };
        while is_over(self) {
            seen.extend(self.pop());
        }
        Ok(seen)
    }

    /// Gives everything up: numbers of the requests that were not complete, in order.
    pub fn give_up(&mut self) -> Vec<u64> {
        let ids: Vec<u64> = self.entries.drain(..).map(|entry| entry.request.wr_id).collect();
        self.first += ids.len() as u64;
        self.next = self.first;
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Data;

    fn request(wr_id: u64, kind: Kind, signaled: bool) -> Request {
        let data = Data::Inline(vec![wr_id as u8]);
        Request { wr_id, kind, signaled, fence: false, solicited: false, remote: 0, rkey: 0, data }
    }

    /// Requests 10, 11, .. of these kinds, all signaled and given to a NIC.
    fn queue(kinds: &[Kind]) -> SendQueue {
        let mut queue = SendQueue::default();
        for (n, kind) in kinds.iter().enumerate() {
            queue.push(request(10 + n as u64, *kind, true));
            queue.given();
        }
        queue
    }

    fn ids(seen: &[Done]) -> Vec<u64> {
        seen.iter().map(|done| done.wr_id).collect()
    }

    const SEND: Kind = Kind::Send(None);
    const WRITE: Kind = Kind::Write(None);

    #[test]
    fn what_was_executed_is_seen_once_and_the_rest_is_posted_again_in_order() {
        let mut queue = queue(&[SEND, WRITE, SEND, WRITE, SEND]);
        assert_eq!(queue.signaled_done(10), Ok(()));
        assert_eq!(ids(&queue.cut(3, 0, 0).unwrap()), [11, 12]);
        assert_eq!((queue.first(), queue.next(), queue.two_sided()), (3, 3, 2));
        assert_eq!(queue.peek().map(|(request, executed)| (request.wr_id, executed)), Some((13, false)));
        queue.given();
        assert_eq!(queue.peek().map(|(request, _)| request.wr_id), Some(14));
        queue.given();
        assert_eq!(ids(&queue.numbered_done(4).unwrap()), [13, 14]);
        assert_eq!((queue.two_sided(), queue.is_empty()), (3, true));
    }

    #[test]
    fn a_read_is_posted_again_and_holds_the_completions_behind_it() {
        let mut queue = queue(&[WRITE, Kind::Read, SEND, WRITE]);
        assert_eq!(ids(&queue.cut(3, 0, 0).unwrap()), [10]);
        let mut posted = Vec::new();
        while let Some((request, executed)) = queue.peek() {
            posted.push((request.wr_id, executed));
            queue.given();
        }
        assert_eq!(posted, [(11, true), (12, true), (13, false)]);
        assert_eq!(queue.two_sided(), 1, "counted when it was executed, not when it is complete");
        assert_eq!(ids(&queue.numbered_done(3).unwrap()), [11, 12, 13]);
        assert_eq!(queue.two_sided(), 1);
    }

    const ADD: Kind = Kind::FetchAdd(1);

    #[test]
    fn an_atomic_is_done_once_or_posted_again_or_its_answer_is_lost() {
        let mut queue = queue(&[ADD, WRITE, ADD, SEND, ADD]);
        assert_eq!(queue.signaled_done(10), Ok(()), "executed and answered");
        assert_eq!((ids(&queue.cut(3, 0, 0).unwrap()), queue.answer_is_lost()), (vec![11], true));
        assert_eq!(queue.peek(), None, "nothing goes past it");
        assert!(queue.needs_answers());
        assert_eq!((queue.give_up(), queue.has_atomics()), (vec![12, 13, 14], true), "the error is its own");
    }

    #[test]
    fn an_atomic_whose_answer_nobody_reads_is_done_when_it_was_executed() {
        let mut queue = SendQueue::new(Answers::Unread);
        for (n, kind) in [ADD, Kind::Read, Kind::CompareSwap(1, 2), ADD].into_iter().enumerate() {
            queue.push(request(10 + n as u64, kind, true));
            queue.given();
        }
        assert!(!queue.needs_answers());
        assert_eq!((ids(&queue.cut(3, 0, 0).unwrap()), queue.answer_is_lost()), (vec![10], false));
        let mut posted = Vec::new();
        while let Some((request, executed)) = queue.peek() {
            posted.push((request.wr_id, executed));
            queue.given();
        }
        assert_eq!(posted, [(11, true), (12, true), (13, false)], "only the last is an atomic once more");
        assert_eq!(ids(&queue.numbered_done(3).unwrap()), [11, 12, 13]);
    }

    #[test]
    fn a_read_before_an_atomic_without_answer_completes_first() {
        let mut queue = queue(&[Kind::Read, ADD, SEND]);
        assert_eq!((ids(&queue.cut(3, 0, 0).unwrap()), queue.answer_is_lost()), (vec![], false));
        assert_eq!(queue.peek().map(|(request, _)| request.wr_id), Some(10));
        queue.given();
        assert_eq!(queue.peek(), None);
        assert_eq!(queue.numbered_done(0).map(|seen| ids(&seen)), Ok(vec![10]));
        assert!(queue.answer_is_lost());
    }

    #[test]
    fn a_count_of_another_queue_pair_is_refused() {
        assert_eq!(queue(&[SEND, SEND]).cut(3, 0, 0), Err(Impossible), "more than was posted");
        let mut older = queue(&[SEND, SEND]);
        assert_eq!(older.signaled_done(10), Ok(()));
        assert_eq!(older.cut(0, 0, 0), Err(Impossible), "less than is known to be complete");
    }

    #[test]
    fn counts_wrap_and_probes_count() {
        // Three probes came before request 2, the first of this queue pair, and 2^24 - 4 of the program's before that.
        let mut queue = queue(&[SEND, SEND, SEND, SEND, SEND]);
        assert_eq!(queue.numbered_done(1).map(|seen| seen.len()), Ok(2));
        assert_eq!(ids(&queue.cut(1, 2, MASK).unwrap()), [12, 13]);
        assert_eq!(queue.first(), 4);
    }

    #[test]
    fn a_completion_covers_what_was_not_signaled_before_it() {
        let mut queue = SendQueue::default();
        for (wr_id, signaled) in [(1, false), (2, true), (3, false), (4, true)] {
            queue.push(request(wr_id, SEND, signaled));
            queue.given();
        }
        assert_eq!(queue.signaled_done(4), Err(Impossible), "2 comes first");
        assert_eq!((queue.signaled_done(2), queue.first()), (Ok(()), 2));
        assert_eq!(ids(&queue.cut(3, 0, 0).unwrap()), [0; 0], "3 wants no completion");
        assert_eq!(queue.give_up(), [4]);
    }
}
