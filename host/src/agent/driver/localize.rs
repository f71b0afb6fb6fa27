//! A path fell silent: who is asked, and what becomes of the answers. The rules are in `fault_localizer.rs`.

use crate::agent::fault_localizer::{Blame, Cleared};
use crate::agent::links::Pong;
use crate::agent::recovery::Recovery;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::slots::RailPair;

/// Carries searches on and asks suspects.
pub(super) fn look(recovery: &mut Recovery, now: Nanos) -> bool {
    let engine = &mut recovery.engine;
    if engine.localizer.is_idle() {
        return false;
    }
    let shape = engine.links.shape();
    let (pings, found) = engine.localizer.poll(now, shape, |peer| engine.links.pairs(peer, &engine.ports));
    for (peer, pair) in pings {
        engine.links.ping(peer, pair);
    }
    for ((peer, pair), blame) in &found {
        match blame {
            Blame::Local => suspect(recovery, now, None, pair.local, *peer),
            Blame::Remote => suspect(recovery, now, Some(*peer), pair.remote, *peer),
            Blame::Pair | Blame::Nothing | Blame::Unknown => {}
        }
    }
    !found.is_empty()
}

/// A ping was answered.
pub(super) fn answered(recovery: &mut Recovery, now: Nanos, pong: Pong) {
    let pair = RailPair { local: pong.local, remote: pong.remote };
    for one in recovery.engine.localizer.answered(now, (pong.peer, pair), pong.number) {
        cleared(recovery, now, one);
    }
}

fn suspect(recovery: &mut Recovery, now: Nanos, pe: Option<u32>, rail: u32, peer: u32) {
    let number = recovery.engine.links.number();
    if recovery.engine.localizer.suspect(now, pe, rail, peer, number) {
        recovery.channels.words.set_suspect(pe, rail, true);
        let of = pe.unwrap_or(recovery.channels.words.root().my_pe);
        recovery.report(now, Event::RailSuspected { of, rail });
    }
}

fn cleared(recovery: &mut Recovery, now: Nanos, one: Cleared) {
    recovery.channels.words.set_suspect(one.pe, one.rail, false);
    let of = one.pe.unwrap_or(recovery.channels.words.root().my_pe);
    recovery.report(now, Event::RailCleared { of, rail: one.rail, suspected_ns: one.suspected.get() });
}

/// A port changed: what is known of it takes the place of what was suspected.
pub(super) fn forget(recovery: &mut Recovery, now: Nanos, pe: Option<u32>, rail: u32) {
    if let Some(one) = recovery.engine.localizer.forget(now, pe, rail) {
        cleared(recovery, now, one);
    }
}
