//! Exact fetching atomics: what is due goes to the worker of its home's rail. The rules are in `fetch_server.rs`.

use super::homes;
use crate::agent::fetch_server::FetchServer;
use crate::agent::fetch_words::{FetchWords, FetchWork};
use crate::agent::nic_job::{Job, Urgency};
use crate::agent::recovery::Recovery;
use crate::error::NicError;
use crate::nanos::Nanos;
use crate::pe::Pe;
use shunt_layout::mutant::Mutant;

/// The requests to a PE, where there is room for them.
pub(super) fn of(pe: &Pe) -> Option<(FetchServer, FetchWords)> {
    let root = *pe.root();
    // SAFETY: state and heap live as long as the `Pe`, and there is room only where the host reaches the heap. Workers
    // end before the agent's checkpoint does, which the `Pe` drops first.
    let words = unsafe { FetchWords::new(root, pe.world().clone()) }?;
    Some((FetchServer::new(root.channels_per_pe as usize, words.rows()), words))
}

/// Gives what is due to the workers. True while the agent should not sleep.
pub(super) fn look(recovery: &mut Recovery, now: Nanos) -> bool {
    let Some((server, words)) = &mut recovery.channels.fetches else { return false };
    server.scan(|row| words.number(row), |row| words.replied(row));
    for channel in 0..recovery.channels.words.root().channels_per_pe {
        give(recovery, now, channel);
    }
    recovery.channels.fetches.as_ref().is_some_and(|(server, _)| server.is_awake(now))
}

fn give(recovery: &mut Recovery, now: Nanos, channel: u32) {
    let rail = recovery.channels.own_home(channel).rail;
    let moving = recovery.channels.atomics.moving(channel).is_some() && !Mutant::FetchHomeNotAwaited.on();
    let lifetime_ns = recovery.engine.timing.lifetime.get();
    let Some((server, words)) = &mut recovery.channels.fetches else { return };
    if server.give(now, channel as usize, moving) {
        let work = FetchWork { words: words.clone(), channel, lifetime_ns };
        recovery.engine.nics.submit(rail, Urgency::Peer, channel as usize, Job::Work(Box::new(work)));
    } else if server.is_given(channel as usize) && recovery.engine.nic_is_silent(rail) {
        // Its NIC answers nothing: whoever waits is served at another one.
        homes::leave(recovery, now, channel);
    }
}

/// The worker of a rail is done with a channel index, or could not do it.
pub(super) fn worked(recovery: &mut Recovery, now: Nanos, channel: usize, result: Result<(), NicError>) {
    let Some((server, _)) = &mut recovery.channels.fetches else { return };
    match result {
        Ok(()) => server.worked(now, channel),
        Err(error) => {
            server.failed(now, channel);
            recovery.note(now, format!("a fetching atomic of channel {channel} was not executed: {error}"));
            homes::leave(recovery, now, channel as u32);
        }
    }
}
