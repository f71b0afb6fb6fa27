//! Shunt explored: every interleaving within bounds, instead of some of them.
//!
//! [`search`] looks at all states of a model, breadth first, so that what it finds is found by a shortest trace.
//! [`failover`] is model F: two PEs, their paths, networks, NICs and agents. [`words`] is model W: one channel's words
//! under warps, a poller and a switcher. [`paths`] is model P: the machines at both ends of one path. [`fetches`] is
//! model X: exact fetching atomics. [`mirror`] is model M: what an agent is shown of a switch. [`placement`] runs what
//! ships, with faults at every instant.

pub mod failover;
pub mod fetches;
pub mod fingerprint;
pub mod mirror;
pub mod paths;
pub mod placement;
pub mod search;
pub mod suite;
pub mod words;
