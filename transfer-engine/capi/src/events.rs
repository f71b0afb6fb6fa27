//! Ends of operations that nobody has polled yet.

use crate::tally::left;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    /// Operations that were begun and not freed.
    known: BTreeSet<usize>,
    /// Those that have ended, in order, and where each stands.
    ended: BTreeMap<u64, usize>,
    places: HashMap<usize, u64>,
    closed: bool,
}

/// The events of an engine.
#[derive(Debug, Default)]
pub struct Events {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Events {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation was begun.
    pub fn know(&self, operation: usize) {
        self.queue().known.insert(operation);
    }

    /// An operation has ended. Nothing is told of one that was freed.
    pub fn ended(&self, operation: usize) {
        let mut queue = self.queue();
        if queue.known.contains(&operation) {
            let place = queue.next;
            queue.next += 1;
            queue.ended.insert(place, operation);
            queue.places.insert(operation, place);
            self.changed.notify_one();
        }
    }

    /// An operation was freed.
    pub fn forget(&self, operation: usize) {
        let mut queue = self.queue();
        queue.known.remove(&operation);
        if let Some(place) = queue.places.remove(&operation) {
            queue.ended.remove(&place);
        }
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_all();
    }

    /// The next so many at most, oldest first: as soon as there is one, or none after this time. `None`: closed.
    pub fn take(&self, most: usize, patience: Duration) -> Option<Vec<usize>> {
        let until = Instant::now().checked_add(patience);
        let mut queue = self.queue();
        while queue.ended.is_empty() {
            let left = left(until);
            match (queue.closed, left.is_zero()) {
                (true, _) => return None,
                (_, true) => return Some(Vec::new()),
                _ => queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0,
            }
        }
        let mut taken = Vec::new();
        while let Some((_, operation)) = (taken.len() < most).then(|| queue.ended.pop_first()).flatten() {
            queue.places.remove(&operation);
            taken.push(operation);
        }
        // Another thread may wait for what is left.
        if !queue.ended.is_empty() {
            self.changed.notify_one();
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_told_once_in_order_unless_it_was_freed() {
        let events = Events::default();
        (1..6).for_each(|operation| events.know(operation));
        events.forget(3);
        [5, 3, 2, 4].into_iter().for_each(|operation| events.ended(operation));
        events.forget(2);
        assert_eq!(events.take(1, Duration::MAX), Some(vec![5]));
        assert_eq!(events.take(9, Duration::MAX), Some(vec![4]));
        assert_eq!(events.take(9, Duration::from_millis(1)), Some(vec![]));
        events.ended(1);
        events.close();
        assert_eq!(events.take(9, Duration::ZERO), Some(vec![1]), "what came before the end");
        assert_eq!(events.take(9, Duration::MAX), None);
    }
}
