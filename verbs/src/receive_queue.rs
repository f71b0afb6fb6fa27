//! Buffers that a program has posted and that no message has come into. Pure.

use crate::request::Receive;
use std::collections::VecDeque;

/// The receives of one queue pair. A queue pair takes them in order.
#[derive(Default)]
pub struct ReceiveQueue {
    waiting: VecDeque<Receive>,
    /// Number of the oldest one: so many messages have come.
    first: u64,
    /// Number of the next one that a NIC is to get.
    next: u64,
}

impl ReceiveQueue {
    /// Messages that have come.
    pub const fn received(&self) -> u64 {
        self.first
    }

    /// Buffers that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no buffer waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The program posts one.
    pub fn push(&mut self, receive: Receive) {
        self.waiting.push_back(receive);
    }

    /// Takes the newest one back, which no NIC has taken.
    pub fn unpush(&mut self) {
        if self.next < self.first + self.waiting.len() as u64 {
            self.waiting.pop_back();
        }
    }

    /// The next one that a NIC is to get.
    pub fn peek(&self) -> Option<&Receive> {
        self.waiting.get(usize::try_from(self.next - self.first).ok()?)
    }

    /// A NIC has taken it.
    pub fn given(&mut self) {
        self.next = (self.next + 1).min(self.first + self.waiting.len() as u64);
    }

    /// A message has come into the oldest: its number by the program. None if no NIC had one.
    pub fn take(&mut self) -> Option<u64> {
        if self.next == self.first {
            return None;
        }
        let receive = self.waiting.pop_front()?;
        self.first += 1;
        Some(receive.wr_id)
    }

    /// What no message has come into goes to another queue pair.
    pub fn rewind(&mut self) {
        self.next = self.first;
    }

    /// Gives everything up: numbers of the buffers that wait, in order.
    pub fn give_up(&mut self) -> Vec<u64> {
        self.next = self.first;
        self.waiting.drain(..).map(|receive| receive.wr_id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_message_came_into_goes_to_the_next_queue_pair_in_order() {
        let mut queue = ReceiveQueue::default();
        for wr_id in 1..=4 {
            queue.push(Receive { wr_id, pieces: vec![] });
        }
        (0..3).for_each(|_| queue.given());
        assert_eq!((queue.take(), queue.received()), (Some(1), 1));
        queue.rewind();
        assert_eq!(queue.take(), None, "no NIC has one");
        assert_eq!(queue.peek().map(|receive| receive.wr_id), Some(2));
        queue.given();
        assert_eq!(queue.take(), Some(2));
        assert_eq!((queue.give_up(), queue.received()), (vec![3, 4], 2));
    }
}
