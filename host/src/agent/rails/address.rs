//! Where the datagrams of another PE are taken.

use super::envelope::Taken;
use crate::connect::card::RailCard;
use crate::nanos::Nanos;

/// What outlives an agent of what it knew of another one: where the datagrams of that PE are taken, by rail, since when
/// by that PE's own word, and the numbers taken from it, so that no old word is a new one to the next agent.
pub(in crate::agent) struct Address {
    pub(super) rails: Vec<RailCard>,
    pub(super) datagrams: Vec<u32>,
    pub(super) said_ns: Vec<Nanos>,
    pub(super) taken: Option<Taken>,
}
