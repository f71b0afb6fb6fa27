//! A transfer, an expectation, a scatter or a barrier, and its end.

use crate::calls::Call;
use crate::events::Events;
use crate::failure::{Failure, Status};
use shunt_transfer::pending::{CancelHow, End, Meeting};
use shunt_transfer::{CallError, Expectation, Met, Scattered, Transfer};
use shunt_transfer_engine::error::TransferError;
use std::sync::Arc;
use std::time::Duration;

/// What was begun.
pub enum Begun {
    /// It moves memory.
    Transfer(Transfer),
    /// It counts.
    Expectation(Expectation),
    /// It moves memory to several peers.
    Scatter(Scattered),
    /// It meets them.
    Barrier(Met),
}

/// `ste_operation`.
pub struct Operation {
    begun: Begun,
    events: Arc<Events>,
    /// The caller's pointer, as a number.
    user: usize,
}

/// How one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why not all of it was done.
    pub failure: Option<Failure>,
    /// No byte of it lands any more.
    pub is_quiet: bool,
}

impl Ended {
    /// Its status.
    pub fn status(&self) -> Status {
        self.failure.as_ref().map_or(Status::Ok, |failure| failure.status)
    }
}

impl From<End> for Ended {
    fn from(End { result, is_quiet }: End) -> Self {
        Self { failure: result.err().map(|error| Failure::from(&error)), is_quiet }
    }
}

/// What all shares come to: the first that failed says why.
fn together(ends: Vec<End>) -> End {
    let is_quiet = ends.iter().all(|end| end.is_quiet);
    let result = ends.into_iter().map(|end| end.result).find(Result::is_err).unwrap_or(Ok(()));
    End { result, is_quiet }
}

/// What a barrier comes to: the first peer that failed says why.
fn first(met: Meeting) -> Result<(), TransferError> {
    met.map_err(|failed| failed.into_iter().map(|(_, error)| error).next())
        .or_else(|error| error.map_or(Ok(()), Err))
}

impl Operation {
    /// What was begun, of an engine with these events.
    pub fn new(begun: Begun, events: Arc<Events>, user: usize) -> Self {
        Self { begun, events, user }
    }

    /// Has its events tell of its end by this handle.
    pub fn tell(&self, handle: usize) {
        self.events.know(handle);
        let told = self.events.clone();
        let tell = move || told.ended(handle);
        match &self.begun {
            Begun::Transfer(transfer) => transfer.when_ended(tell),
            Begun::Expectation(expectation) => expectation.when_ended(tell),
            Begun::Scatter(scatter) => scatter.when_ended(tell),
            Begun::Barrier(barrier) => barrier.when_ended(tell),
        }
    }

    /// Has a function called at its end, instead of an event.
    ///
    /// # Errors
    /// Its end was told already, or its engine is closed.
    pub fn call(&self, handle: usize, call: Call) -> Result<(), Failure> {
        self.events.call(handle, call)
    }

    /// What the caller gave to find it again.
    pub fn user(&self) -> usize {
        self.user
    }

    /// How it ended; `None`: not within this time.
    pub fn wait(&self, patience: Duration) -> Option<Ended> {
        // What is missing may still come: only what was counted has landed.
        let counted = |result: Result<(), TransferError>| End { is_quiet: result.is_ok(), result };
        let ended = match &self.begun {
            Begun::Transfer(transfer) => transfer.wait(patience),
            Begun::Expectation(expectation) => expectation.wait(patience).map(|ended| ended.map(counted)),
            Begun::Scatter(scatter) => scatter.wait(patience).map(|ends| ends.map(together)),
            Begun::Barrier(barrier) => barrier.wait(patience).map(|met| met.map(first).map(counted)),
        };
        match ended {
            Ok(ended) => ended.map(Ended::from),
            Err(error) => Some(Ended { failure: Some(closed(error)), is_quiet: false }),
        }
    }

    /// How each share of a scatter ended.
    ///
    /// # Errors
    /// It is no scatter, it goes on, or its engine was closed before.
    pub fn shares(&self) -> Result<Vec<Ended>, Failure> {
        let Begun::Scatter(scatter) = &self.begun else {
            return Err(Failure::refused("operation", "one of ste_scatter", "another one"));
        };
        match scatter.wait(Duration::ZERO) {
            Ok(Some(ends)) => Ok(ends.into_iter().map(Ended::from).collect()),
            Ok(None) => Err(Failure::new(Status::Timeout, "operation: expected its end, it goes on")),
            Err(error) => Err(closed(error)),
        }
    }

    /// Cancels a transfer or a scatter.
    ///
    /// # Errors
    /// It is an expectation or a barrier.
    pub fn cancel(&self, how: CancelHow) -> Result<(), Failure> {
        match &self.begun {
            Begun::Transfer(transfer) => transfer.cancel(how),
            Begun::Scatter(scatter) => scatter.cancel(how),
            Begun::Expectation(_) | Begun::Barrier(_) => {
                let want = "a transfer: what waits for a peer ends by its deadline";
                return Err(Failure::refused("operation", want, "an expectation or a barrier"));
            }
        }
        Ok(())
    }

    /// Its handle was freed.
    pub fn forget(&self, handle: usize) {
        self.events.forget(handle);
    }
}

fn closed(error: CallError) -> Failure {
    Failure::new(Status::Closed, format!("operation: expected its end, got none: {error}"))
}
