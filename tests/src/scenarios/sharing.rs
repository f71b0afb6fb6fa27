//! What scenarios of words that many PEs add to have in common.

use shunt_host::agent::message::Message;
use shunt_host::connect::oob::Oob;
use shunt_host::events::Event;

use super::kit::{Wrongs, brisk, idle, spec, wrong_if};
use crate::cluster::Cluster;
use crate::sharer::{Share, Sharer};
use crate::spec::RunSpec;

/// Who has the word, and who adds: the leader of a pair is the PE of the lower number, so both ends are tried.
pub(super) struct Roles {
    /// It has the word.
    pub to: u32,
    /// They add.
    pub from: Vec<u32>,
}

impl Roles {
    pub fn of(seed: u64, pes: u32) -> Self {
        let to = if seed.is_multiple_of(2) { 0 } else { pes - 1 };
        Self { to, from: (0..pes).filter(|pe| *pe != to).collect() }
    }
}

/// `pes` PEs of two rails whose NICs take their time over an atomic.
pub(super) fn shared(seed: u64, pes: u32) -> RunSpec {
    let mut spec = brisk(spec(seed, &[]));
    (spec.pes, spec.atomic_gap_ns, spec.log_depth) = (pes, 1_500, 4);
    spec
}

/// Adds one after the other, and some under way.
pub(super) fn adds(to: u32, from: u32) -> Share {
    Share { from, to, channel: 0, adds: 800, pace_ns: 4_000, delay_ns: 0, rest_ns: 0, exact: false }
}

pub(super) fn inject(cluster: &Cluster, faults: &[String]) {
    faults.iter().for_each(|fault| cluster.inject(&fault.parse().unwrap_or_else(|error| panic!("{error}"))));
}

/// How often a PE's homes moved.
pub(super) fn moves(cluster: &Cluster, pe: u32) -> usize {
    cluster.events(pe).iter().filter(|told| matches!(told.event, Event::HomeMoved { .. })).count()
}

/// What is wrong at the end: lost or doubled adds, writers that ended with a fault, faults that hit nothing.
pub(super) fn verdict(cluster: &Cluster, sharers: &[Sharer]) -> Wrongs {
    let mut wrongs = sums(cluster, sharers);
    let ended =
        sharers.iter().filter_map(|one| Some(format!("PE {} ended with {:?}", one.share.from, one.fault()?)));
    wrongs.extend(ended);
    wrongs.extend(idle(&cluster.faults()));
    wrongs
}

pub(super) fn sums(cluster: &Cluster, sharers: &[Sharer]) -> Wrongs {
    cluster.judge_sharers(sharers);
    let oracle = &cluster.oracle;
    wrong_if(oracle.total() > 0, || oracle.describe())
}

pub(super) fn moved(cluster: &Cluster, pe: u32, wanted: std::ops::RangeInclusive<usize>) -> Wrongs {
    let count = moves(cluster, pe);
    wrong_if(!wanted.contains(&count), || format!("the home of PE {pe} moved {count} times, not {wanted:?}"))
}

/// Has a PE press for the home of another to move to its rail 1.
pub(super) fn press(cluster: &Cluster, from: u32, to: u32) {
    let ask = Message::AskHome { channel: 0, version: 0, rails: 0b10, pressing: true };
    cluster.oob.end(from).send(to, ask.to_bytes());
}
