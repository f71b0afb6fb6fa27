//! What has come and waits for a thread of the program.

use crate::asker::{is_an_engines, refused};
use crate::error::CallError;
use crate::process::Process;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

/// It, and who waits for some.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    /// Whose threads put something there.
    process: Process,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let state = State { waiting: VecDeque::new(), closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), process: Process::own() }
    }
}

impl<T> Mailbox<T> {
    /// One more has come.
    pub fn put(&self, one: T) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.push_back(one);
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
    /// None is there, and none comes any more, or a callback would wait for one.
    pub fn take(&self, patience: Duration) -> Result<Option<T>, CallError> {
        let taken = self.take_if(patience, |_| Ok::<_, std::convert::Infallible>(()))?;
        Ok(taken.map(|Ok(one)| one))
    }

    /// The same if it may be taken: else it stays where it is, and why is the answer.
    ///
    /// # Errors
    /// As [`Mailbox::take`].
    pub fn take_if<E>(
        &self,
        patience: Duration,
        may: impl Fn(&T) -> Result<(), E>,
    ) -> Result<Option<Result<T, E>>, CallError> {
        let until = Instant::now().checked_add(patience);
        if !self.process.is_here() {
            return Err(CallError::Closed);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(why) = state.waiting.front().and_then(|one| may(one).err()) {
                // Another thread may take it.
                self.changed.notify_one();
                return Ok(Some(Err(why)));
            }
            if let Some(one) = state.waiting.pop_front() {
                return Ok(Some(Ok(one)));
            }
            if state.closed {
                return Err(CallError::Closed);
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            if is_an_engines() {
                return Err(refused());
            }
            // The standard library adds the time to its own clock, which has an end.
            let slice = left.min(Duration::from_secs(3600));
            state = self.changed.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
