//! Proof of the count on real paths: of which, and when. The rules are in `path_proof.rs`.

use crate::agent::nic_job::Fenced;
use crate::agent::path::{self, PathMachine};
use crate::agent::path_proof::judge;
use crate::agent::recovery::Recovery;
use crate::events::Event;
use crate::nanos::Nanos;

/// A half was fenced: if nothing but probes crossed its path, its count is judged.
pub(super) fn judge_path(recovery: &mut Recovery, now: Nanos, key: usize, fenced: &Fenced) {
    let peer = recovery.channels.place(key).peer;
    let Some(path) = recovery.path(key) else { return };
    let rails = path.rails();
    // Not a path of the start, which had no probes, and not one of an agent before this one.
    let Some(first_psn) = path.remote().filter(|_| path.standing().probed).map(|remote| remote.psn) else {
        return;
    };
    if !recovery.engine.rails.get(rails.local as usize).is_some_and(|rail| rail.truth_holds) {
        return;
    }
    let shown = judge(recovery.engine.timing.probes, first_psn, fenced);
    if let Some(why) = recovery.engine.proofs.keep(peer, rails, shown) {
        let why = format!("on the path to rail {} of PE {peer}, unlike on loopback: {why}", rails.remote);
        recovery.report(now, Event::CountRefused { rail: rails.local, why });
    }
}

/// Asks for the proof of an idle backup, one at a time; the first one `after` so long a life.
pub(super) fn look(recovery: &mut Recovery, now: Nanos, after: Nanos) -> bool {
    if let Some((key, in_time)) = recovery.engine.proofs.asked(now) {
        if in_time && may_be_proved(recovery, key) {
            recovery.with(now, key, path::orders::want_slot);
        } else {
            recovery.engine.proofs.end();
        }
        return false;
    }
    if recovery.engine.awake.age_ns < after {
        return false;
    }
    let Some(key) = next_to_prove(recovery) else { return false };
    let peer = recovery.channels.place(key).peer;
    if let Some(rails) = recovery.path(key).map(PathMachine::rails) {
        recovery.engine.proofs.ask(now, key, peer, rails);
    }
    true
}

/// A backup whose pair of rails nothing was shown of yet.
fn next_to_prove(recovery: &Recovery) -> Option<usize> {
    // A path, a backup besides, and one to be proved.
    if recovery.channels.words.root().slots < 3 {
        return None;
    }
    let open = |key: &usize| {
        let peer = recovery.channels.place(*key).peer;
        recovery.path(*key).is_some_and(|path| recovery.engine.proofs.is_open(peer, path.rails()))
    };
    recovery.engine.paths().keys().filter(open).find(|key| may_be_proved(recovery, *key))
}

/// True once every path is ready whose ports are up, and no backup is waiting to be proved or being proved.
pub(super) fn is_settled(recovery: &Recovery) -> bool {
    let rests = |key: usize| {
        let Some(path) = recovery.path(key) else { return true };
        path.standing().is_standby() || path.standing().out || !recovery.engine.ports_up(key)
    };
    recovery.engine.paths().keys().all(rests)
        && !recovery.engine.proofs.is_asking()
        && next_to_prove(recovery).is_none()
}

/// True for a backup that was probed, that this direction does not use, and that its channel can spare: it has a path
/// and a backup besides.
fn may_be_proved(recovery: &Recovery, key: usize) -> bool {
    let at = recovery.channels.place(key);
    let ready = |key: usize| recovery.path(key).is_some_and(|path| path.standing().is_standby());
    let spare = recovery.siblings(key).filter(|other| *other != key && ready(*other)).count() >= 2;
    recovery.channels.words.root().my_pe < at.peer
        && spare
        && recovery.path(key).is_some_and(|path| path.standing().is_standby() && path.standing().probed)
        && recovery.channels.words.has_left(at)
        && recovery.engine.ports.all_up()
}
