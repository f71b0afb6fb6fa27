//! What arrived from other agents.

use super::envelope::Kind;
use crate::slots::RailPair;

/// What arrived and is of this job.
pub(in crate::agent) enum Arrival {
    /// From the agent of a PE, over the agents' own link.
    Own(u32, Vec<u8>),
    /// On a rail.
    Datagram(Datagram),
}

/// One that is new.
pub(in crate::agent) struct Datagram {
    pub(super) from: u32,
    pub(super) pair: RailPair,
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) body: Vec<u8>,
}
