//! A port went down or came up: who is told, and what is fenced. The rules of ports are in `port_table.rs`.

use super::{datagrams, localize};
use crate::agent::checkpoint::NicEvent;
use crate::agent::health::Health;
use crate::agent::links::Reach;
use crate::agent::message::Message;
use crate::agent::nic_job::Urgency;
use crate::agent::port_table::penalty_ns;
use crate::agent::recovery::Recovery;
use crate::error::DevxError;
use crate::events::Event;
use crate::nanos::Nanos;
use shunt_layout::mlx5::eqe;
use shunt_layout::mutant::Mutant;

/// A port: of this PE (`None`) or of a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Port {
    pe: Option<u32>,
    rail: u32,
}

/// What was read of a NIC's events. True if there was one.
pub(super) fn hear_nic(recovery: &mut Recovery, now: Nanos, (rail, event): NicEvent) -> bool {
    match event {
        Ok(Some(event)) => {
            nic_event(recovery, now, rail, &event);
            return true;
        }
        Ok(None) => {
            recovery.engine.ports.set_silent(rail, false);
        }
        Err(error) => unheard(recovery, now, rail, &error),
    }
    false
}

/// Asks ports that are down now and then, in case the event of their return was lost, and those whose NIC's events
/// cannot be read.
pub(super) fn ask_again(recovery: &mut Recovery, now: Nanos, pause: Nanos) {
    if !recovery.engine.ports.is_due(now, pause) {
        return;
    }
    for rail in 0..recovery.engine.rails.len() {
        if recovery.engine.ports.is_in_question(rail) {
            recovery.engine.nics.ask_port(now, rail);
        }
        // Said twice it changes nothing.
        if recovery.engine.ports.is_told_again(now, rail, pause) {
            tell(recovery, now, rail as u32, Reach::Link);
        }
        datagrams::tell_again(recovery, now, rail, pause);
    }
}

/// The events of a NIC cannot be read. It is told once, and the port counts as down until firmware says that it is up:
/// events may have been lost, and a NIC that failed often shows in nothing else.
fn unheard(recovery: &mut Recovery, now: Nanos, rail: u32, error: &DevxError) {
    if recovery.engine.ports.set_silent(rail, true) {
        recovery.report(now, Event::NicSilent { rail, error: error.to_string() });
        own_changed(recovery, now, rail, true);
    }
}

/// What firmware said of a port at `asked`.
pub(super) fn answered(recovery: &mut Recovery, now: Nanos, rail: usize, up: bool, asked: Nanos) {
    if recovery.engine.ports.believes_firmware(rail, up, asked) {
        own_changed(recovery, now, rail as u32, !up);
    }
}

fn nic_event(recovery: &mut Recovery, now: Nanos, rail: u32, event: &[u8; 64]) {
    let (kind, sub) = (eqe::EVENT_TYPE.get(event) as u8, eqe::SUB_TYPE.get(event) as u8);
    match (kind, sub) {
        (eqe::event::PORT_CHANGE, eqe::port::DOWN) => own_changed(recovery, now, rail, true),
        (eqe::event::PORT_CHANGE, eqe::port::ACTIVE) => own_changed(recovery, now, rail, false),
        // Nothing passes through a NIC that failed: as good as a port that is down, and looked at like one.
        (eqe::event::INTERNAL_ERROR, _) => {
            recovery.report(now, Event::NicError { rail });
            own_changed(recovery, now, rail, true);
        }
        _ => {} // QP errors show in completions, which name the work request as well
    }
}

/// What would have helped a job whose fault tolerance was turned off.
const OFF: &str = "fault tolerance is off: what uses this port ends when its retries are over; \
                   NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE=1 goes on by another path where there is one";

/// A port of this PE changed: kernels are hinted, the peers told at once (bilateral awareness).
fn own_changed(recovery: &mut Recovery, now: Nanos, rail: u32, down: bool) {
    let Some(before) = recovery.engine.ports.own_changes(now, rail, down) else { return };
    recovery.report(
        now,
        match down {
            true => Event::RailDown { rail },
            false => Event::RailUp { rail, down_ns: (now - before).get() },
        },
    );
    if down && recovery.channels.words.root().policy.fault_tolerance == 0 {
        recovery.note(now, OFF.to_owned());
    }
    let port = Port { pe: None, rail };
    if !down {
        restart_windows(recovery, now, port);
        recovery.engine.hasten_stops(rail);
    }
    localize::forget(recovery, now, None, rail);
    recovery.channels.words.set_hint(None, rail, down);
    tell(recovery, now, rail, Reach::Both);
    if down {
        leave(recovery, now, port);
    }
}

/// Tells every peer how a port of this PE is.
pub(super) fn tell(recovery: &mut Recovery, now: Nanos, rail: u32, reach: Reach) {
    if Mutant::PortNotTold.on() {
        return;
    }
    let (down, at_ns) = recovery.engine.ports.own(rail);
    for peer in recovery.peers() {
        let message = Message::Port { rail, down, at_ns: at_ns.get() };
        let engine = &mut recovery.engine;
        engine.links.send(now, peer, message.to_bytes(), reach, &engine.ports);
    }
}

/// A port of a peer changed.
pub(super) fn peer_changed(recovery: &mut Recovery, now: Nanos, from: u32, rail: u32, down: bool, at: Nanos) {
    let root = recovery.channels.words.root();
    if from >= root.pe_count || rail >= root.rails {
        return recovery.note(now, format!("PE {from} speaks of rail {rail}, which does not exist"));
    }
    let Some(before) = recovery.engine.ports.peer_says(now, from, rail, down, at) else { return };
    recovery.report(
        now,
        match down {
            true => Event::PeerRailDown { peer: from, rail },
            false => Event::PeerRailUp { peer: from, rail, down_ns: (now - before).get() },
        },
    );
    let port = Port { pe: Some(from), rail };
    if !down {
        restart_windows(recovery, now, port);
    }
    localize::forget(recovery, now, Some(from), rail);
    recovery.channels.words.set_hint(Some(from), rail, down);
    if down {
        leave(recovery, now, port);
    }
}

/// Ready paths that use a port.
fn ready_on(recovery: &Recovery, key: usize, port: Port) -> bool {
    let peer = recovery.channels.place(key).peer;
    recovery.path(key).filter(|path| path.health() == Health::Ready).is_some_and(|path| match port.pe {
        None => path.rails().local == port.rail,
        Some(pe) => pe == peer && path.rails().remote == port.rail,
    })
}

/// Rule 20: every path on a dead port that a channel is on is fenced now, behind those that a switcher waits for: it
/// may have work outstanding. A channel with nowhere to go keeps its path: RC retries. Without fault tolerance nobody
/// leaves a path, and the report is the transport's own error.
fn leave(recovery: &mut Recovery, now: Nanos, port: Port) {
    if Mutant::PortNotFenced.on() || recovery.channels.words.root().policy.fault_tolerance == 0 {
        return;
    }
    for key in recovery.engine.paths().keys() {
        let leaves = ready_on(recovery, key, port)
            && recovery.channels.words.is_on(recovery.channels.place(key))
            && recovery.has_standby(key);
        if leaves {
            recovery.with(now, key, |path, cx| path.fence_asked(cx, Urgency::Port));
        }
    }
}

/// A standby path whose port just came back waits its recovery window again; before the hint says it is up.
fn restart_windows(recovery: &mut Recovery, now: Nanos, port: Port) {
    for key in recovery.engine.paths().keys() {
        if !ready_on(recovery, key, port) {
            continue;
        }
        let at = recovery.channels.place(key);
        let Some(path) = recovery.path(key) else { continue };
        let (rails, relapses) = (path.rails(), path.standing().relapses);
        let calm = recovery.engine.ports.calm_from(now, rails.local, at.peer, rails.remote);
        recovery.channels.words.set_ready_since(at, calm + penalty_ns(relapses));
    }
}
