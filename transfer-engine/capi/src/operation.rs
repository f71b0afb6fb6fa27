//! A transfer or an expectation, and its end.

use crate::events::Events;
use crate::failure::{Failure, Status};
use shunt_transfer::pending::{CancelHow, End};
use shunt_transfer::{CallError, Expectation, Transfer};
use std::sync::Arc;
use std::time::Duration;

/// What was begun.
pub enum Begun {
    /// It moves memory.
    Transfer(Transfer),
    /// It counts.
    Expectation(Expectation),
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
        }
    }

    /// What the caller gave to find it again.
    pub fn user(&self) -> usize {
        self.user
    }

    /// How it ended; `None`: not within this time.
    pub fn wait(&self, patience: Duration) -> Option<Ended> {
        let ended = match &self.begun {
            Begun::Transfer(transfer) => transfer.wait(patience),
            // What is missing may still come: only what was counted has landed.
            Begun::Expectation(expectation) => expectation
                .wait(patience)
                .map(|ended| ended.map(|result| End { is_quiet: result.is_ok(), result })),
        };
        match ended {
            Ok(ended) => ended.map(|End { result, is_quiet }| {
                let failure = result.err().map(|error| Failure::from(&error));
                Ended { failure, is_quiet }
            }),
            Err(error) => Some(Ended { failure: Some(closed(error)), is_quiet: false }),
        }
    }

    /// Cancels a transfer.
    ///
    /// # Errors
    /// It is an expectation.
    pub fn cancel(&self, how: CancelHow) -> Result<(), Failure> {
        match &self.begun {
            Begun::Transfer(transfer) => transfer.cancel(how),
            Begun::Expectation(_) => {
                let want = "a transfer: an expectation ends by its deadline";
                return Err(Failure::refused("operation", want, "an expectation"));
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
