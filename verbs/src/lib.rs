//! What stands between an unmodified verbs program and libibverbs, so that its reliable connections outlive a NIC.
//!
//! * Pure: [`request`], [`send_queue`] (the journal, and the cut), [`receive_queue`], [`words`].
//! * The program's objects and what is kept of them: [`objects`], [`queue_pair`], [`registry`]; what it calls:
//!   [`hooks`], [`real`], [`work_request`].
//! * Queue pairs that stand in for the program's: [`spare`]; as the recovery engine sees both kinds: [`endpoint`].
//! * [`agent`]: the thread that carries the recovery engine on, and moves queue pairs.
//! * [`directory`], [`settings`], [`status`]: how processes find each other, what is asked for, what is told.
//!
//! The program's queue pair is the first incarnation of its first path. Once that was fenced it is never posted on
//! again: it stays in ERR and keeps its number, and every later incarnation of either path is a queue pair of this
//! library's own.

pub mod agent;
pub mod directory;
pub mod endpoint;
pub mod hooks;
pub mod objects;
pub mod queue_pair;
pub mod real;
pub mod receive_queue;
pub mod registry;
pub mod request;
pub mod send_queue;
pub mod settings;
pub mod spare;
pub mod status;
pub mod words;
pub mod work_request;
