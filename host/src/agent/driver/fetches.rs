//! Exact fetching atomics: what is due goes to the worker of its home's rail. The rules are in `fetch_server.rs`.

use super::homes;
use crate::agent::fetch_server::FetchServer;
use crate::agent::fetch_words::{FetchWords, FetchWork};
use crate::agent::nic_job::{Job, Urgency};
use crate::agent::recovery::Recovery;
use crate::error::NicError;
use crate::nanos::Nanos;
use crate::pe::Pe;
use crate::rail::FetchPatience;
use shunt_layout::mutant::Mutant;

/// Requests wait so long for a NIC that serves, or as long as the give-up time where that is longer.
const GIVE_UP: Nanos = Nanos::secs(1);

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
    server.scan(now, |row| words.number(row), |row| words.replied(row));
    for channel in 0..recovery.channels.words.root().channels_per_pe {
        give(recovery, now, channel);
    }
    recovery.channels.fetches.as_ref().is_some_and(|(server, _)| server.is_awake(now))
}

fn give(recovery: &mut Recovery, now: Nanos, channel: u32) {
    let rail = recovery.channels.own_home(channel).rail;
    let moving = recovery.channels.atomics.moving(channel).is_some() && !Mutant::FetchHomeNotAwaited.on();
    let give_up = Nanos::new(recovery.channels.words.root().policy.give_up_ns).max(GIVE_UP);
    let patience = FetchPatience::of(recovery.engine.timing.lifetime.get(), give_up.get());
    let Some((server, words)) = &mut recovery.channels.fetches else { return };
    if let Some(first) = server.give(now, channel as usize, moving) {
        let work = FetchWork { words: words.clone(), channel, first, patience };
        recovery.engine.nics.submit(rail, Urgency::Peer, channel as usize, Job::Work(Box::new(work)));
    } else if server.is_given(channel as usize) && recovery.engine.nic_is_silent(rail) {
        // Its NIC answers nothing: the requests are served at another one.
        homes::leave(recovery, now, channel);
    }
    let overdue = |server: &FetchServer| server.is_overdue(now, channel as usize, give_up);
    if recovery.channels.fetches.as_ref().is_some_and(|(server, _)| overdue(server)) {
        end_unserved(recovery, now, channel, rail);
    }
}

/// What has waited for the give-up time ends, unless it is under way: nobody waits without an end for a home that
/// cannot move.
fn end_unserved(recovery: &mut Recovery, now: Nanos, channel: u32, rail: u32) {
    if recovery.take_fetches_back(channel, rail) {
        return;
    }
    let Some((server, words)) = &mut recovery.channels.fetches else { return };
    words.end_unserved(channel);
    server.ended(channel as usize);
    let text = format!(
        "fetching atomics of channel {channel} were not executed: rail {rail} does not serve, and an old"
    );
    recovery.note(now, text + " path that is not fenced keeps the home there");
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
