//! Buffers that a program has posted and that no message has come into. Pure.

use crate::request::{Piece, Receive};
use shunt_verbs_near::ring::Ring;

/// A buffer, or several.
#[derive(Clone, Debug, Default)]
struct Entry {
    wr_id: u64,
    first: Piece,
    /// All of them, unless they are one. The memory is used again.
    pieces: Vec<Piece>,
}

/// The receives of one queue pair. A queue pair takes them in order.
#[derive(Default)]
pub struct ReceiveQueue {
    entries: Ring<Entry>,
    /// Number of the oldest one: so many messages have come.
    first: u64,
    /// Number of the next one that a NIC is to get.
    next: u64,
    /// Number that the next one of the program gets.
    end: u64,
    /// The program's number for the newest that was completed on its own queue pair.
    newest_done: u64,
}

impl ReceiveQueue {
    /// An empty one, for so many at first.
    pub fn new(depth: usize) -> Self {
        Self { entries: Ring::new(depth), ..Self::default() }
    }

    /// Messages that have come.
    pub const fn received(&self) -> u64 {
        self.first
    }

    /// Buffers that wait.
    pub const fn len(&self) -> usize {
        (self.end - self.first) as usize
    }

    /// True if no buffer waits.
    pub const fn is_empty(&self) -> bool {
        self.end == self.first
    }

    /// True if the next one needs no memory to be made.
    #[inline]
    pub const fn has_room(&self) -> bool {
        self.end - self.first < self.entries.room()
    }

    /// The program posts one.
    #[inline]
    pub fn push(&mut self, wr_id: u64, pieces: &[Piece]) {
        if !self.has_room() {
            self.entries.grow(self.first, self.end);
        }
        let entry = self.entries.get_mut(self.end);
        entry.wr_id = wr_id;
        if let [one] = pieces {
            entry.first = *one;
            entry.pieces.clear();
        } else {
            entry.first = Piece::default();
            entry.pieces.clear();
            entry.pieces.extend_from_slice(pieces);
        }
        self.end += 1;
    }

    /// Takes back what no NIC has got.
    pub const fn take_back(&mut self) {
        self.end = self.next;
    }

    /// The next one that a NIC is to get.
    pub fn peek(&self) -> Option<Receive> {
        (self.next < self.end).then(|| self.receive(self.next))
    }

    fn receive(&self, number: u64) -> Receive {
        let Entry { wr_id, first, pieces } = self.entries.get(number).clone();
        let none = first == Piece::default();
        let pieces = if none || !pieces.is_empty() { pieces } else { vec![first] };
        Receive { wr_id, pieces }
    }

    /// So many have been given to a NIC, those among them that a message has come into.
    pub const fn all_given(&self) -> u64 {
        self.next
    }

    /// NICs have taken so many more.
    #[inline]
    pub fn given(&mut self, count: u64) {
        self.next = (self.next + count).min(self.end);
    }

    /// A message has come into the oldest: its number by the program. None if no NIC had one.
    pub fn take(&mut self) -> Option<u64> {
        if self.next == self.first {
            return None;
        }
        self.first += 1;
        Some(self.entries.get(self.first - 1).wr_id)
    }

    /// A message has come into a buffer that is not of this queue.
    pub const fn came_elsewhere(&mut self) {
        self.first += 1;
        self.next += 1;
        self.end += 1;
    }

    /// Gives up the buffers that wait, in order.
    pub fn take_all(&mut self) -> Vec<Receive> {
        let all = (self.first..self.end).map(|number| self.receive(number)).collect();
        (self.next, self.end) = (self.first, self.first);
        all
    }

    /// The same on the program's own queue pair.
    pub fn own_done(&mut self) -> Option<u64> {
        let wr_id = self.take()?;
        self.newest_done = wr_id;
        Some(wr_id)
    }

    /// The program's number for the newest that was completed on its own queue pair.
    pub const fn newest_done(&self) -> u64 {
        self.newest_done
    }

    /// What no message has come into goes to another queue pair.
    pub const fn rewind(&mut self) {
        self.next = self.first;
    }

    /// Gives everything up: numbers of the buffers that wait, in order.
    pub fn give_up(&mut self) -> Vec<u64> {
        let ids = (self.first..self.end).map(|number| self.entries.get(number).wr_id).collect();
        self.next = self.first;
        self.end = self.first;
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_message_came_into_goes_to_the_next_queue_pair_in_order() {
        let pieces = [1, 2, 3].map(|length| Piece { address: 0, length, lkey: 0 });
        let mut queue = ReceiveQueue::new(2);
        for wr_id in 1..=4 {
            queue.push(wr_id, &pieces[..wr_id as usize - 1]);
        }
        queue.given(3);
        assert_eq!((queue.take(), queue.received()), (Some(1), 1));
        queue.rewind();
        assert_eq!(queue.take(), None, "no NIC has one");
        assert_eq!(queue.peek().map(|receive| receive.wr_id), Some(2));
        queue.given(1);
        assert_eq!(queue.take(), Some(2));
        assert_eq!(queue.peek().map(|receive| receive.pieces), Some(pieces[..2].to_vec()));
        assert_eq!((queue.give_up(), queue.received()), (vec![3, 4], 2));
        queue.push(5, &pieces[..1]);
        queue.push(6, &[]);
        queue.given(1);
        queue.take_back();
        assert_eq!((queue.len(), queue.take(), queue.take()), (1, Some(5), None));
        queue.push(7, &[]);
        assert_eq!(queue.peek(), Some(Receive { wr_id: 7, pieces: vec![] }));
    }
}
