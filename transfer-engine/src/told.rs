//! What the ends of transfers and expectations are for, and how callers are told.

use crate::call::{OnDone, OnReached};
use crate::ids::{PeerId, TransferId};
use crate::join::Part;
use crate::slab::place;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the end of a transfer is for.
#[derive(Default)]
pub(crate) enum Told {
    #[default]
    Nobody,
    Caller(OnDone),
    Scatter(PeerId, Part),
    Barrier(PeerId, Part),
    Probe(PeerId),
}

/// What the end of an expectation is for.
pub(crate) enum Reached {
    Caller(OnReached),
    Barrier(PeerId, Part),
}

/// What the end of each transfer is for, by its place.
#[derive(Default)]
pub(crate) struct AllTold(Vec<Told>);

impl AllTold {
    /// That of a transfer which has begun.
    #[inline]
    pub fn put(&mut self, id: TransferId, told: Told) {
        match self.0.get_mut(place(id.0)) {
            Some(known) => *known = told,
            // Places are taken one after the other.
            None => self.0.push(told),
        }
    }

    /// That of one which has ended.
    pub fn take(&mut self, id: TransferId) -> Told {
        self.0.get_mut(place(id.0)).map(std::mem::take).unwrap_or_default()
    }
}

/// What a function of the caller's answers; `None`: it has panicked, and that was counted.
pub(crate) fn caught<T>(panics: &mut u64, call: impl FnOnce() -> T) -> Option<T> {
    let answer = catch_unwind(AssertUnwindSafe(call));
    *panics += u64::from(answer.is_err());
    answer.ok()
}
