//! What each call of a verbs program looks at, in as few instructions as that takes.
//!
//! * [`table`]: objects by address, without a lock.
//! * [`gate`]: a lock that is free most of the time, with a sign beside it that all is well.
//! * [`rest`]: a thread that sleeps while there is nothing for it; [`waker`]: descriptors that wake it.
//! * [`lane`]: completions, counted.
//! * [`row`]: entries that are written one behind the other; [`ring`]: entries by number.
//!
//! Nothing here knows what verbs are. `tests/concurrency` tries the lock and the sleep on loom's words.

pub mod gate;
pub mod lane;
pub mod rest;
pub mod ring;
pub mod row;
pub mod table;
pub mod waker;
