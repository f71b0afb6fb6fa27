//! What is told of a step, once it is over. The log is in `reporter.rs`.

use crate::agent::health::Health;
use crate::agent::options::AgentOptions;
use crate::agent::recovery::Recovery;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::rail::{self, Rail};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first events.
pub(super) fn introduce(recovery: &mut Recovery, now: Nanos, options: &AgentOptions) {
    let (pes, rails) = (recovery.channels.words.root().pe_count, recovery.engine.rails.len() as u32);
    recovery.report(now, Event::AgentStarted { pes, rails });
    let refused = |rail: &Arc<Rail>| (!rail.truth_holds).then(|| (rail.index, rail.truth_detail.clone()));
    let refused: Vec<(u32, String)> = recovery.engine.rails.iter().filter_map(refused).collect();
    for (rail, why) in refused {
        recovery.report(now, Event::CountRefused { rail, why });
    }
    for remark in rail::remarks(&recovery.engine.rails) {
        recovery.note(now, remark);
    }
    if let Some(text) = options.misfit(&recovery.channels.words.root().policy) {
        recovery.note(now, text);
    }
    let details = recovery.engine.rails.iter().map(|rail| rail.datagram_detail.clone());
    for detail in details.filter(|text| !text.is_empty()).collect::<Vec<_>>() {
        recovery.note(now, detail);
    }
}

/// Rails and paths as they are at the start, a line a rail and a kind of path. A job has thousands of paths.
pub(super) fn say_paths(recovery: &mut Recovery, now: Nanos) {
    let rails = recovery.engine.rails.iter().enumerate();
    let opened = |(at, rail): (usize, &Arc<Rail>)| {
        let (down, ..) = recovery.engine.ports.told(at);
        Event::RailOpened { rail: rail.index, device: rail.name.clone(), up: !down }
    };
    let opened: Vec<Event> = rails.map(opened).collect();
    opened.into_iter().for_each(|event| recovery.report(now, event));
    let mut kinds = BTreeMap::<(u32, u32, u32), (u32, u32)>::new();
    for key in recovery.engine.paths().keys() {
        let Some(path) = recovery.path(key) else { continue };
        let ready = path.health() == Health::Ready;
        let route = recovery.route(key);
        let kind = kinds.entry((route.place.slot, route.local_rail, route.remote_rail)).or_default();
        *kind = (kind.0 + 1, kind.1 + u32::from(ready));
    }
    for ((slot, local_rail, remote_rail), (paths, ready)) in kinds {
        recovery.report(now, Event::PathsOpened { slot, local_rail, remote_rail, paths, ready });
    }
}

/// Rows of channels that lead to other PEs.
pub(super) fn rows(recovery: &Recovery) -> impl Iterator<Item = u32> + use<> {
    let per = recovery.channels.words.root().channels_per_pe;
    recovery.peers().flat_map(move |peer| peer * per..(peer + 1) * per)
}

/// When the oldest switch under way was noticed.
pub(super) fn oldest_switch(recovery: &Recovery) -> Option<u64> {
    rows(recovery).filter_map(|row| recovery.channels.words.switching_since(row)).min()
}

/// Every port up, every path ready or taken out by an operator, every channel on the first of those that are in.
pub(super) fn is_calm(recovery: &Recovery) -> bool {
    let ready = |key: usize| {
        let health = recovery.path(key).map(|path| path.health());
        matches!(health, None | Some(Health::Ready | Health::Retired))
    };
    recovery.engine.ports.all_up()
        && recovery.engine.paths().keys().all(ready)
        && rows(recovery).all(|row| recovery.channels.words.is_settled(row))
}

/// Which peers are lost follows from the channels that ended.
pub(super) fn gather_records(recovery: &mut Recovery, now: Nanos) {
    let channels = &mut recovery.channels;
    let records = channels.words.records_since(&mut channels.reporter.records);
    let per = channels.words.root().channels_per_pe;
    let is_lost = |peer| (0..per).all(|channel| channels.words.is_dead(peer, channel));
    channels.reporter.tell_records(now, records, is_lost);
}

/// What is told of the steps of switches, where they are recorded.
pub(super) fn gather_steps(recovery: &mut Recovery, now: Nanos) {
    let channels = &mut recovery.channels;
    if channels.words.root().step_records != 0 {
        let steps = channels.words.steps_since(&mut channels.reporter.steps);
        channels.reporter.tell_steps(now, steps, channels.words.root().channels_per_pe);
    }
}

/// What is told of the agents' own link.
pub(super) fn look_at_links(recovery: &mut Recovery, now: Nanos) {
    for peer in recovery.peers() {
        let links = &recovery.engine.links;
        // An end in good order is no loss.
        if links.has_left(peer) {
            continue;
        }
        let reaches = links.own_reaches(peer);
        recovery.channels.reporter.tell_link(now, peer, reaches);
    }
}
