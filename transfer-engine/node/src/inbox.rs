//! Messages that have arrived and wait for a thread of the program.

use crate::error::CallError;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<(u32, Vec<u8>)>,
    closed: bool,
}

/// They, and who waits for one.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl Inbox {
    /// One has arrived.
    pub fn put(&self, peer: u32, message: Vec<u8>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.messages.push_back((peer, message));
        self.changed.notify_one();
    }

    /// None comes any more.
    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }

    /// The oldest; `None` if none comes within this time.
    ///
    /// # Errors
    /// None is there, and none comes any more.
    pub fn take(&self, patience: Duration) -> Result<Option<(u32, Vec<u8>)>, CallError> {
        let until = Instant::now().checked_add(patience);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(message) = state.messages.pop_front() {
                return Ok(Some(message));
            }
            if state.closed {
                return Err(CallError::Closed);
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            // The standard library adds the time to its own clock, which has an end.
            let slice = left.min(Duration::from_secs(3600));
            state = self.changed.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
