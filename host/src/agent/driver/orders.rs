//! What only an operator may order: a path that is taken out stays out until it is brought back, at both ends. How it
//! is left is in the recovery engine's `path/ready.rs`.

use crate::agent::path::{self, PathMachine};
use crate::agent::recovery::Recovery;
use crate::agent::words::Place;
use crate::events::control::{Order, Verb};
use crate::nanos::Nanos;

/// Takes a path out: drained, if it works and its channel has another one, and else fenced like one that failed; it is
/// not made again. Nothing on it is lost. False if there is no such path.
pub(super) fn retire(recovery: &mut Recovery, now: Nanos, at: Place) -> bool {
    let key = recovery.key(at);
    let standby = recovery.path(key).is_some() && recovery.has_standby(key);
    recovery.with(now, key, |path, cx| path::orders::retire(path, cx, standby)).is_some()
}

/// Brings a path back that was taken out: it is made again, probed, and ready after its recovery window. False if there
/// is no such path.
pub(super) fn readmit(recovery: &mut Recovery, now: Nanos, at: Place) -> bool {
    let key = recovery.key(at);
    recovery.with(now, key, path::orders::readmit).is_some()
}

/// Carries out an order; answers with what was done, or why nothing was.
pub(super) fn obey(recovery: &mut Recovery, now: Nanos, order: Order) -> Result<String, String> {
    let (me, paths) = (recovery.channels.words.root().my_pe, order.paths);
    if paths.pe != me {
        return Err(format!("{paths} begins at PE {}; this is PE {me}", paths.pe));
    }
    let meant = |key: &usize| {
        let peer = recovery.channels.place(*key).peer;
        recovery.path(*key).map(|path| path.rails()).is_some_and(|rails| {
            rails.local == paths.rail && paths.to.is_none_or(|to| to == (peer, rails.remote))
        })
    };
    let keys: Vec<usize> = recovery.engine.paths().keys().filter(meant).collect();
    if keys.is_empty() {
        return Err(format!("PE {me} has no path {paths}; shunt topology and shunt status name its rails"));
    }
    let places: Vec<Place> = keys.iter().map(|key| recovery.channels.place(*key)).collect();
    if order.verb == Verb::Readmit {
        let back = keys.iter().filter(|key| recovery.path(**key).is_some_and(PathMachine::is_out)).count();
        if back == 0 {
            return Err(format!("expected paths that were taken out, got {} that were not", places.len()));
        }
        for at in &places {
            readmit(recovery, now, *at);
        }
        return Ok(format!("{back} path(s) are recreated, as soon as their ports are up"));
    }
    let has_another =
        |key: usize| recovery.siblings(key).any(|other| !keys.contains(&other) && recovery.is_standby(other));
    if let Some(key) = keys.iter().find(|key| !has_another(**key)) {
        let at = recovery.channels.place(*key);
        return Err(format!(
            "{paths}: expected another path that works, got none for channel {} to PE {}: bring one back first; \
             nothing was taken out",
            at.channel, at.peer
        ));
    }
    for at in &places {
        retire(recovery, now, *at);
    }
    Ok(format!("{} path(s) are taken out; those in use are drained first", places.len()))
}
