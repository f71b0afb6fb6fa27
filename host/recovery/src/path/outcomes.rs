//! What NICs have done for a path.

use super::io::Task;
use super::io::{Handle, Notice, Output, Step};
use super::machine::PathMachine;
use super::phase::Phase;
use super::reviving::Reviving;
use super::{Fenced, Urgency};
use crate::health::{Health, Observation};
use crate::nanos::Nanos;
use crate::truth::SideTruth;
use shunt_mlx5::endpoint::revived_psn;

/// What came of a fence or a count.
pub fn fenced<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, result: Result<Fenced, String>) {
    path.pair.fenced(cx, result);
}

/// What came of 2ERR of a half that was counted: it is in ERR and shows it, or counts as one that nobody fenced.
/// Until then it may have sent: its packet lifetime begins now.
pub fn stopped<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, result: Result<(), String>) {
    path.pair.task = Task::None;
    path.pair.fence.stopped_age = Some(cx.age);
    if let Err(error) = result {
        path.pair.fence.mine = Some(SideTruth::Dead);
        path.pair.notice(cx, Notice::FenceFailed(error));
    }
}

/// A half is made, or is not. Somebody who asked for its fence meanwhile gets it now.
pub fn made<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, result: Result<H, String>) {
    if let Ok(half) = &result {
        cx.put(Output::Proven(half.rail()));
    }
    let pair = &mut path.pair;
    pair.task = Task::None;
    let mut error = None;
    match result {
        // The path has gone on to another number while this was made.
        Ok(half) if half.incarnation() != pair.incarnation => cx.put(Output::Destroy(half)),
        Ok(half) => pair.half = Some(half),
        Err(why) => error = Some(why),
    }
    if path.health() != Health::Connecting {
        return path.pair.fence_half(cx, Urgency::Peer);
    }
    if path.pair.half.is_none() {
        return path.failed(cx, error);
    }
    if !path.pair.leads {
        cx.put(Output::Publish);
    }
    Reviving { pair: &mut path.pair, probing: None }.say(cx);
}

/// The leader's half is connected to the follower's, or is not.
pub fn connected_here<H: Handle>(
    path: &mut PathMachine<H>,
    cx: &mut Step<'_, H>,
    result: Result<(), String>,
) {
    path.pair.task = Task::None;
    if let Err(error) = result {
        return path.failed(cx, Some(error));
    }
    if path.health() == Health::Connecting {
        cx.put(Output::Publish);
        path.observe(cx, Observation::Connected, Urgency::Idle);
        let probing = match &mut path.phase {
            Phase::Probing(probing) => Some(probing),
            _ => None,
        };
        Reviving { pair: &mut path.pair, probing }.say(cx);
    }
}

/// The queue pair of a path that was found ready was read. One that failed by itself: nobody was told of a fence, so
/// this one is the first, and its truth is one.
pub fn looked<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, works: bool) {
    path.pair.task = Task::None;
    if !works && path.health() == Health::Ready {
        path.fence_asked(cx, Urgency::Idle);
    }
}

/// An old half was destroyed; its requester would have sent this PSN next, if its NIC knew. The packet lifetime
/// counts from here again.
pub fn destroyed<H: Handle>(path: &mut PathMachine<H>, age: Nanos, next_send_psn: Option<u32>) {
    path.pair.fence.destroyed_age = Some(age);
    if let Some(psn) = next_send_psn.filter(|_| path.pair.half.is_none()) {
        path.pair.next_psn = revived_psn(psn);
    }
}
