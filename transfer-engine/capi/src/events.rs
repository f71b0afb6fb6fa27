//! Ends of operations that nobody has polled yet, and functions that are called instead.

use crate::calls::{Call, Calls};
use crate::failure::Failure;
use crate::tally::left;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is known of an operation that was begun and not freed.
enum Stage {
    /// It goes on.
    Open,
    /// It goes on, and this is called at its end.
    Calls(Call),
    /// It has ended, and waits at this place.
    Ended(u64),
    /// Somebody was told.
    Told,
}

#[derive(Default)]
struct Queue {
    next: u64,
    known: HashMap<usize, Stage>,
    /// Those that have ended, in order.
    ended: BTreeMap<u64, usize>,
    closed: bool,
}

/// The events of an engine.
pub struct Events {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Who calls.
    pub calls: Arc<Calls>,
}

impl Events {
    /// None yet.
    pub fn new(calls: Calls) -> Self {
        Self { queue: Mutex::default(), changed: Condvar::new(), calls: Arc::new(calls) }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation was begun.
    pub fn know(&self, operation: usize) {
        self.queue().known.insert(operation, Stage::Open);
    }

    /// An operation has ended. Nothing is told of one that was freed.
    pub fn ended(&self, operation: usize) {
        let mut queue = self.queue();
        let place = queue.next;
        let Some(stage) = queue.known.get_mut(&operation) else { return };
        match std::mem::replace(stage, Stage::Told) {
            Stage::Calls(call) => self.calls.call(0, call),
            Stage::Open => {
                *stage = Stage::Ended(place);
                queue.next += 1;
                queue.ended.insert(place, operation);
                self.changed.notify_one();
            }
            was @ (Stage::Ended(_) | Stage::Told) => *stage = was,
        }
    }

    /// Has a function called at the end of an operation, instead of an event: at once, if it has ended.
    ///
    /// # Errors
    /// Somebody was told of its end already, or is to be called; the engine is closed.
    pub fn call(&self, operation: usize, call: Call) -> Result<(), Failure> {
        self.calls.start()?;
        let mut queue = self.queue();
        if queue.closed {
            // Nobody makes calls any more.
            return self.calls.start();
        }
        let told = || Failure::refused("operation", "one whose end was not told", "one whose end was told");
        let stage = queue.known.get_mut(&operation).ok_or_else(told)?;
        match std::mem::replace(stage, Stage::Told) {
            Stage::Open => *stage = Stage::Calls(call),
            Stage::Ended(place) => {
                queue.ended.remove(&place);
                self.calls.call(0, call);
            }
            Stage::Told => return Err(told()),
            was @ Stage::Calls(_) => {
                *stage = was;
                return Err(Failure::refused("call", "one for an operation", "a second one"));
            }
        }
        Ok(())
    }

    /// An operation was freed.
    pub fn forget(&self, operation: usize) {
        let mut queue = self.queue();
        if let Some(Stage::Ended(place)) = queue.known.remove(&operation) {
            queue.ended.remove(&place);
        }
    }

    /// Nothing comes any more.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        self.changed.notify_all();
        self.calls.close();
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
            queue.known.insert(operation, Stage::Told);
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
    use crate::failure::Status;

    /// Longer than anything takes here.
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn each_end_is_told_once_in_order_unless_it_was_freed() {
        let events = Events::new(Calls::new(Arc::default()));
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
    #[test]
    fn a_function_is_called_instead_once_also_for_what_has_ended() {
        let events = Events::new(Calls::new(Arc::default()));
        let (tell, heard) = std::sync::mpsc::channel();
        let call = |operation: usize| {
            let tell = tell.clone();
            events.call(operation, Box::new(move || _ = tell.send(operation)))
        };
        (1..6).for_each(|operation| events.know(operation));
        assert_eq!(call(1), Ok(()));
        assert_eq!(
            call(1).expect_err("a second one").text,
            "call: expected one for an operation, got a second one"
        );
        events.ended(2);
        assert_eq!(call(2), Ok(()));
        events.ended(1);
        assert_eq!([heard.recv_timeout(SOON), heard.recv_timeout(SOON)], [Ok(2), Ok(1)]);
        events.ended(3);
        assert_eq!(events.take(9, Duration::ZERO), Some(vec![3]), "those with a function are no events");
        let told = "operation: expected one whose end was not told, got one whose end was told";
        assert_eq!([call(1), call(3), call(9)].map(|refused| refused.expect_err("told").text), [told; 3]);
        // One that was freed is not called.
        assert_eq!(call(4), Ok(()));
        events.forget(4);
        events.ended(4);
        assert_eq!(call(5), Ok(()));
        events.ended(5);
        assert_eq!(heard.recv_timeout(SOON), Ok(5));
        events.close();
        events.know(6);
        assert_eq!(call(6).expect_err("it is closed").status, Status::Closed);
    }
}
