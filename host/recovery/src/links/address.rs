//! Where the datagrams of another PE are taken.

use super::envelope::Taken;
use crate::nanos::Nanos;
use shunt_mlx5::descriptor::RailCard;

/// What outlives an agent of what it knew of another one: where the datagrams of that PE are taken, by rail, since when
/// by that PE's own word, and the numbers taken from it, so that no old word is a new one to the next agent.
pub struct Address {
    /// Addresses of its rails.
    pub rails: Vec<RailCard>,
    /// QPNs of their datagram queue pairs.
    pub datagrams: Vec<u32>,
    /// When it said so of each, on its clock.
    pub said_ns: Vec<Nanos>,
    /// Which of its datagrams were taken.
    pub taken: Option<Taken>,
}
