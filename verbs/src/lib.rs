//! What stands between an unmodified verbs program and libibverbs, so that its reliable connections outlive a NIC.
//!
//! * Pure: [`request`], [`record`] and [`shapes`] (how one is kept), [`send_queue`] (the journal, and the cut),
//!   [`receive_queue`], [`policy`], [`batch`], [`chain`], [`words`], [`port_events`] (what a program is not told).
//! * The program's objects and what is kept of them: [`objects`], [`completions`], [`queue_pair`], [`pair_state`],
//!   [`shared_receive`], [`registry`]; what it calls: [`hooks`], [`real`], [`work_request`]. The lock and the memory of
//!   what each call looks at are a package of their own, `shunt-verbs-near`.
//! * [`moves`]: the parts of a move of what a queue pair sends.
//! * Queue pairs that stand in for the program's: [`spare`]; as the recovery engine sees both kinds: [`endpoint`]. One
//!   that wakes it: [`bell`].
//! * [`agent`]: the thread that carries the recovery engine on, and moves queue pairs.
//! * [`settings`], [`status`]: what is asked for, what is told. How processes find each other is a package of its own,
//!   `shunt-verbs-directory`.
//!
//! The program's queue pair is the first incarnation of its first path. Once that was fenced it is never posted on
//! again: it stays in ERR and keeps its number, and every later incarnation of either path is a queue pair of this
//! library's own.

pub mod agent;
pub mod batch;
pub mod bell;
pub mod chain;
pub mod completions;
pub mod endpoint;
pub mod hooks;
#[cfg(test)]
mod idle_pair;
pub mod moves;
pub mod objects;
pub mod pair_state;
pub mod port_events;
pub mod queue_pair;
pub mod real;
pub mod registry;
pub mod settings;
pub mod shared_receive;
pub mod spare;
pub mod status;
pub mod voice;
pub mod words;
pub mod work_request;
