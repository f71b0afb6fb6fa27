//! One look at a path, at what a NIC has done, and at the agents' second link.

use super::{datagrams, fetches, ports, proof, slots};
use crate::agent::engine::Around;
use crate::agent::health::Health;
use crate::agent::nic_job::{JobId, Outcome};
use crate::agent::recovery::Recovery;
use crate::nanos::Nanos;

/// What a NIC has done, for a path or for its rail.
pub(super) fn at_outcome(recovery: &mut Recovery, now: Nanos, rail: usize, id: JobId, outcome: Outcome) {
    match outcome {
        Outcome::Port(up) => {
            let asked = recovery.engine.nics.port_answered(rail);
            ports::answered(recovery, now, rail, up, asked);
        }
        Outcome::Address(result) => datagrams::address_asked(recovery, now, rail, result),
        Outcome::Datagrams(result) => datagrams::made(recovery, now, rail, result),
        Outcome::Worked(result) => fetches::worked(recovery, now, id.about, result),
        outcome => {
            if let Outcome::Fenced(Ok(fenced)) = &outcome
                && fenced.stopped
                && recovery.engine.is_about_fence(id)
            {
                proof::judge_path(recovery, now, id.about, fenced);
            }
            recovery.engine.outcome(&mut recovery.channels, now, id, outcome);
        }
    }
}

/// Carries one path on.
pub(super) fn at_path(recovery: &mut Recovery, now: Nanos, key: usize) -> bool {
    // Most paths of a large job, in each of the agent's steps.
    let Some(path) = recovery.path(key).filter(|path| !path.is_at_rest()) else { return false };
    // Looked for only where it matters.
    let (leaving, probing) = (path.standing().leaving, path.health() == Health::Probing);
    let around = Around {
        standby: leaving && recovery.has_standby(key),
        gives_way: probing && slots::gives_way(recovery, now, key),
    };
    recovery.engine.look(&mut recovery.channels, now, key, around)
}

/// What the operator should know of the agents' second link.
pub(super) fn at_strangers(recovery: &mut Recovery, now: Nanos) {
    datagrams::look(recovery, now);
    match recovery.engine.links.take_strangers() {
        0 => {}
        count => {
            recovery.note(now, format!("{count} datagram(s) on the rails were none of this job's agents"));
        }
    }
}
