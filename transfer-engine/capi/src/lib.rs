//! The transfer engine for C: what `include/shunt_transfer.h` declares.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`api`] | the functions: arguments read, results written |
//! | [`engine`] | an end of a job, open and closed |
//! | [`operation`] | a transfer or an expectation, and its end |
//! | [`events`] | ends that nobody has polled yet |
//! | [`calls`] | the thread that calls the program's functions |
//! | [`watchers`] | words that an engine looks at |
//! | [`handles`] | what a handle stands for |
//! | [`failure`] | statuses, and the text of the last failure of a thread |
//! | [`raw`] | the caller's memory |
//! | [`tally`] | what is still in use |
//! | [`turns`] | threads, one after the other |
//!
//! A handle is a number that is given once, so one that was freed, or never was, is refused and harms nothing. No panic
//! leaves a function.

pub mod api;
pub mod calls;
pub mod engine;
pub mod events;
pub mod failure;
pub mod handles;
pub mod operation;
pub mod raw;
pub mod tally;
pub mod turns;
pub mod watchers;
