//! What arrived from other agents.

use super::envelope::Kind;
use crate::slots::RailPair;

/// What arrived and is of this job.
pub enum Arrival {
    /// From the agent of a PE, over the agents' own link.
    Own(u32, Vec<u8>),
    /// On a rail.
    Datagram(Datagram),
}

/// One that is new.
pub struct Datagram {
    /// Who sent it.
    pub from: u32,
    /// The rails it came over.
    pub pair: RailPair,
    /// Its number.
    pub number: u64,
    /// Of which kind it is.
    pub kind: Kind,
    /// What it says.
    pub body: Vec<u8>,
}
