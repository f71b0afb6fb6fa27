//! Threads that do something one after the other, in the order in which they asked.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Debug, Default)]
struct State {
    /// Turns that were taken.
    taken: u64,
    /// Whose turn it is.
    now: u64,
    /// Turns that are over before those in front of them.
    over: BTreeSet<u64>,
}

/// Gives turns.
#[derive(Debug, Default)]
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// A place in the order. Dropped, its turn is over.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turns {
    /// The next place.
    pub fn take(self: &Arc<Self>) -> Turn {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.taken += 1;
        Turn { turns: self.clone(), number: state.taken - 1 }
    }
}

impl Turn {
    /// Returns when all turns before this one are over.
    pub fn wait(&self) {
        let state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = |state: &mut State| state.now != self.number;
        drop(self.turns.changed.wait_while(state, mine).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.over.insert(self.number);
        while let now = state.now
            && state.over.remove(&now)
        {
            state.now += 1;
        }
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_the_order_in_which_they_were_taken() {
        let (turns, done) = (Arc::new(Turns::default()), Arc::new(Mutex::new(Vec::new())));
        let first = turns.take();
        let takes = |number: u32| {
            let (turn, done) = (turns.take(), done.clone());
            move || {
                turn.wait();
                done.lock().expect("no panic").push(number);
            }
        };
        let (second, unused, third) = (takes(2), turns.take(), takes(3));
        // The last one runs first, and one is given up before its turn.
        let late = std::thread::spawn(third);
        drop(unused);
        let early = std::thread::spawn(second);
        // Time for those that would not wait.
        std::thread::sleep(std::time::Duration::from_millis(50));
        first.wait();
        done.lock().expect("no panic").push(1);
        drop(first);
        early.join().expect("it ends");
        late.join().expect("it ends");
        assert_eq!(*done.lock().expect("no panic"), [1, 2, 3]);
    }
}
