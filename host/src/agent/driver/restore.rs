//! The second life of an agent. It knows nothing: what its predecessor was told, had asked and was waiting for is lost.
//! What it finds are rows, mailboxes, hints, queue pairs, and the numbers used so far (`checkpoint.rs`).
//!
//! A path whose row says ready was never told of to anybody: it goes on if its queue pair does. Every other half may
//! have been fenced, and its truth told, taken or not: it is fenced once more, and what it executed is *unknown*. Then
//! it is released and made again like any other. Rules 10, 17, 18; H8.

use super::{datagrams, ports};
use crate::agent::health::Health;
use crate::agent::links::Reach;
use crate::agent::path;
use crate::agent::port_table::PortTable;
use crate::agent::recovery::Recovery;
use crate::events::Event;
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;

/// Looks at what the last of `lives - 1` agents left.
pub(super) fn take_over(recovery: &mut Recovery, now: Nanos, lives: u32) {
    recovery.engine.ports = ports_by_hints(recovery, now);
    let (mut ready, mut again) = (0, 0);
    for key in recovery.engine.paths().keys() {
        match take_over_path(recovery, now, key) {
            Some(Health::Ready) => ready += 1,
            Some(Health::Retired) | None => {}
            Some(_) => again += 1,
        }
    }
    let requests = requests_left(recovery);
    recovery.report(now, Event::AgentRestarted { lives, ready, again, requests });
    for rail in 0..recovery.engine.rails.len() as u32 {
        // The last word of its predecessor may have been another one.
        ports::tell(recovery, now, rail, Reach::Both);
        datagrams::tell(recovery, now, rail as usize, Reach::Both);
    }
}

fn take_over_path(recovery: &mut Recovery, now: Nanos, key: usize) -> Option<Health> {
    let rail = recovery.path(key)?.standing().rail_at_work;
    let row = recovery.channels.words.read_row(recovery.channels.place(key));
    let state = recovery.channels.words.path_state(recovery.channels.place(key));
    let (destroying, standby) = (recovery.engine.destroys.holds(key, rail), recovery.has_standby(key));
    recovery.with(now, key, |path, cx| {
        path::takeover::taken_over(path, cx, state, row.incarnation, destroying, standby);
        path.health()
    })
}

/// What is known of the ports lies in the hints. Of what is suspected nothing is: the searches are gone.
fn ports_by_hints(recovery: &Recovery, now: Nanos) -> PortTable {
    let words = &recovery.channels.words;
    let root = words.root();
    let mut ports = PortTable::new(root.pe_count, root.rails);
    ports.keep_words(&recovery.engine.ports.words());
    for rail in 0..root.rails {
        for pe in std::iter::once(None).chain(recovery.peers().map(Some)) {
            words.set_suspect(pe, rail, false);
            ports.remember(pe, rail, words.is_down(pe, rail), now);
        }
    }
    ports
}

/// Requests that were answered are not answered again; the others are new to this agent. Answers with how many.
fn requests_left(recovery: &mut Recovery) -> u64 {
    let channels = &mut recovery.channels;
    let per = channels.words.root().channels_per_pe;
    let mut left = 0;
    for (row, seen) in (0..).zip(&mut channels.requests_seen) {
        let (peer, channel) = (row / per, row % per);
        let request = channels.words.request(peer, channel).number;
        if channels.words.answered(peer, channel) == request || Mutant::RequestsLostAtRestart.on() {
            *seen = request;
        } else {
            left += 1;
        }
    }
    left
}
