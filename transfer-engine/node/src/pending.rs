//! What a call gives back: something that ends once, to wait for.

use crate::asker::{Asker, is_an_engines, refused, until};
use crate::error::CallError;
use crate::process::Process;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::{PeerId, TransferId};
use shunt_transfer_engine::join::JoinId;
use shunt_transfer_engine::transfer::{Cancel, Ended};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What became of something that ends once.
#[derive(Debug)]
enum State<T> {
    Waiting,
    Ended(T),
    /// The engine's thread has ended before it did.
    Closed,
}

/// What is called at an end.
type OnEnd = Box<dyn FnOnce() + Send>;

/// A place for one value, and who waits for it.
pub(crate) struct Slot<T> {
    state: Mutex<(State<T>, Vec<OnEnd>)>,
    changed: Condvar,
    /// Whose thread fills it.
    process: Process,
}

/// Fills a slot, once. Dropped before, it leaves the word that nothing will come.
pub(crate) struct Filler<T>(Arc<Slot<T>>);

impl<T> Filler<T> {
    pub fn fill(self, value: T) {
        self.0.become_if_waiting(State::Ended(value));
    }
}

impl<T> Drop for Filler<T> {
    fn drop(&mut self) {
        self.0.become_if_waiting(State::Closed);
    }
}

impl<T> Slot<T> {
    /// One that a thread of a process fills.
    pub fn new(process: Process) -> (Arc<Self>, Filler<T>) {
        let state = Mutex::new((State::Waiting, Vec::new()));
        let slot = Arc::new(Self { state, changed: Condvar::new(), process });
        (slot.clone(), Filler(slot))
    }

    fn become_if_waiting(&self, next: State<T>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(state.0, State::Waiting) {
            return;
        }
        state.0 = next;
        let calls = std::mem::take(&mut state.1);
        self.changed.notify_all();
        drop(state);
        calls.into_iter().for_each(guarded);
    }

    fn when_ended(&self, call: OnEnd) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(state.0, State::Waiting) {
            return state.1.push(call);
        }
        drop(state);
        guarded(call);
    }
}

/// A panic stays in the call: the others, the engine and what else is under way go on. It was said on standard error.
fn guarded(call: OnEnd) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

impl<T: Clone> Slot<T> {
    /// The value; `None` if it has not come within this time.
    pub(crate) fn wait(&self, patience: Duration) -> Result<Option<T>, CallError> {
        let until = Instant::now().checked_add(patience);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &state.0 {
                State::Ended(value) => return Ok(Some(value.clone())),
                State::Closed => return Err(CallError::Closed),
                State::Waiting => {}
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            if is_an_engines() {
                return Err(refused());
            }
            if !self.process.is_here() {
                return Err(CallError::Closed);
            }
            // The standard library adds the time to its own clock, which has an end.
            let slice = left.min(Duration::from_secs(3600));
            state = self.changed.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// All of it was written or read, or why not.
    pub result: Result<(), TransferError>,
    /// No byte of it lands any more, and its memory may be used again. False only with [`TransferError::Unproven`].
    pub is_quiet: bool,
}

impl From<Ended> for End {
    fn from(ended: Ended) -> Self {
        Self { result: ended.result, is_quiet: ended.quiesced.is_some() }
    }
}

/// A transfer that was begun. It goes on if this is dropped.
#[derive(Clone)]
pub struct Transfer {
    pub(crate) id: TransferId,
    pub(crate) slot: Arc<Slot<End>>,
    pub(crate) asker: Asker,
}

impl Transfer {
    /// How it ended; `None` if it has not within this time, which may be none.
    ///
    /// # Errors
    /// The engine was closed before it ended, or a callback would wait for it.
    pub fn wait(&self, patience: Duration) -> Result<Option<End>, CallError> {
        self.slot.wait(patience)
    }

    /// Has this called once it has ended or its engine was closed: on the engine's thread, or here if that is past. It
    /// must return soon, and not wait for the engine. A panic in it harms nothing else.
    pub fn when_ended(&self, call: impl FnOnce() + Send + 'static) {
        self.slot.when_ended(Box::new(call));
    }

    /// Cancels it. Its end tells whether all of it was written before, and that nothing lands any more.
    pub fn cancel(&self, how: CancelHow) {
        let id = self.id;
        self.asker.tell(move |engine, now| _ = engine.cancel(now, id, how.at(now)));
    }
}

/// How a transfer is cancelled: see [`Cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelHow {
    /// What is not posted is dropped, the rest is waited for.
    Unposted,
    /// The same, so long at most; then as `Now`.
    Drain(Duration),
    /// Rails that hold pieces of it are fenced. Other transfers lose nothing by it.
    Now,
}

impl CancelHow {
    /// As the engine has it, at this time.
    fn at(self, now: Nanos) -> Cancel {
        match self {
            Self::Unposted => Cancel::Unposted,
            Self::Drain(most) => Cancel::Drain(until(now, most)),
            Self::Now => Cancel::Now,
        }
    }
}

/// A scatter that was begun. It goes on if this is dropped.
#[derive(Clone)]
pub struct Scattered {
    pub(crate) id: JoinId,
    pub(crate) slot: Arc<Slot<Vec<End>>>,
    pub(crate) asker: Asker,
}

impl Scattered {
    /// How each share ended, in order; `None` if one of them has not within this time, which may be none.
    ///
    /// # Errors
    /// The engine was closed before all ended.
    pub fn wait(&self, patience: Duration) -> Result<Option<Vec<End>>, CallError> {
        self.slot.wait(patience)
    }

    /// Has this called once all shares have ended or its engine was closed, as [`Transfer::when_ended`] does.
    pub fn when_ended(&self, call: impl FnOnce() + Send + 'static) {
        self.slot.when_ended(Box::new(call));
    }

    /// Cancels the shares that have not ended.
    pub fn cancel(&self, how: CancelHow) {
        let id = self.id;
        self.asker.tell(move |engine, now| _ = engine.cancel_scatter(now, id, how.at(now)));
    }
}

/// What became of a barrier: with an error, of which peers, and why. A peer may be there twice: that it did not come,
/// then what became of the word to it. With that word alone it has come, and may not know that this end has.
pub type Meeting = Result<(), Vec<(PeerId, TransferError)>>;

/// A barrier that was begun. It goes on if this is dropped.
#[derive(Clone)]
pub struct Met {
    pub(crate) slot: Arc<Slot<Meeting>>,
}

impl Met {
    /// What became of it; `None` if it has not ended within this time, which may be none.
    ///
    /// # Errors
    /// The engine was closed before it ended.
    pub fn wait(&self, patience: Duration) -> Result<Option<Meeting>, CallError> {
        self.slot.wait(patience)
    }

    /// Has this called once it has ended or its engine was closed, as [`Transfer::when_ended`] does.
    pub fn when_ended(&self, call: impl FnOnce() + Send + 'static) {
        self.slot.when_ended(Box::new(call));
    }
}

/// Immediates that are awaited. They are counted whether or not this is dropped.
#[derive(Clone)]
pub struct Expectation {
    pub(crate) slot: Arc<Slot<Result<(), TransferError>>>,
}

impl Expectation {
    /// What became of it; `None` if it has not ended within this time, which may be none.
    ///
    /// # Errors
    /// The engine was closed before it ended.
    pub fn wait(&self, patience: Duration) -> Result<Option<Result<(), TransferError>>, CallError> {
        self.slot.wait(patience)
    }

    /// Has this called once it has ended or its engine was closed: on the engine's thread, or here if that is past. It
    /// must return soon, and not wait for the engine.
    pub fn when_ended(&self, call: impl FnOnce() + Send + 'static) {
        self.slot.when_ended(Box::new(call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_waited_for_and_stays() {
        let (slot, filler) = Slot::<u32>::new(Process::own());
        assert_eq!(slot.wait(Duration::from_millis(1)).ok(), Some(None));
        let other = std::thread::spawn(move || filler.fill(7));
        assert_eq!(slot.wait(Duration::MAX).ok(), Some(Some(7)));
        other.join().expect("it fills");
        assert_eq!(slot.wait(Duration::ZERO).ok(), Some(Some(7)));
    }

    #[test]
    fn those_who_want_to_know_are_told_once_whenever_they_ask() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = |word: &'static str| {
            let told = told.clone();
            Box::new(move || told.lock().expect("no panic").push(word))
        };
        let ((slot, filler), (closed, dropped)) =
            (Slot::<u32>::new(Process::own()), Slot::<u32>::new(Process::own()));
        slot.when_ended(tell("before"));
        closed.when_ended(tell("closed"));
        assert!(told.lock().expect("no panic").is_empty());
        filler.fill(7);
        slot.when_ended(tell("after"));
        drop(dropped);
        assert_eq!(*told.lock().expect("no panic"), ["before", "after", "closed"]);
    }

    #[test]
    fn one_that_nothing_comes_to_any_more_says_so() {
        let (slot, filler) = Slot::<u32>::new(Process::own());
        drop(filler);
        assert!(matches!(slot.wait(Duration::MAX), Err(CallError::Closed)));
    }
}
