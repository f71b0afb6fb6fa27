//! Leaving a path without a fault, and going back to it: by an operator's order of either end, or because its slot is
//! wanted for other rails. How it is left is in `ready`. `standby`: the owner has another path that is ready.

use super::Urgency;
use super::io::{Handle, Step};
use super::machine::PathMachine;
use super::phase::Phase;
use super::ready::{Leaving, Ready};
use crate::health::Observation;
use shunt_layout::state::PathState;

/// Its slot is wanted for another pair of rails. Called for as long as it is.
pub fn want_slot<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>) {
    if let Phase::Ready(ready) = &mut path.phase
        && ready.is_wanted(&path.pair, cx)
    {
        path.fence_asked(cx, Urgency::Idle);
    }
}

/// An operator takes it out: drained, if it works and its owner has another one, and else fenced like one that
/// failed; it is not made again.
pub fn retire<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, standby: bool) {
    path.pair.order(true);
    path.pair.tell_order(cx);
    take_out(path, cx, standby);
}

/// An operator brings it back.
pub fn readmit<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>) {
    path.pair.order(false);
    path.pair.readmitted = !path.pair.leads;
    bring_back(path, cx);
    path.pair.tell_order(cx);
}

/// An order to take a path out is carried out from whatever phase it is in; one that is down has nothing to leave.
fn take_out<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, standby: bool) {
    path.pair.readmitted = false;
    match &path.phase {
        Phase::Ready(ready) if ready.leaving.is_none() => leave(path, cx, false, standby),
        Phase::Connecting | Phase::Probing(_) => path.fence_asked(cx, Urgency::Idle),
        _ => {}
    }
}

fn bring_back<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>) {
    let state = cx.facts.row_state();
    path.fence_overlooked(cx);
    path.pair.failures = 0;
    match &mut path.phase {
        Phase::Ready(ready) => {
            // A mark that the owner makes just now stays: the next look finds it.
            let left = ready.leaving.take().is_some();
            if left && state == PathState::Leaving {
                cx.facts.change_row(state, PathState::Ready);
            }
        }
        Phase::Retired if state != PathState::Absent => {
            path.observe(cx, Observation::Readmit, Urgency::Idle);
        }
        _ => {}
    }
}

/// What the other end's operator ordered. An order that is older than the last one is void, and an end that still
/// carries it out is told the later one.
pub(super) fn peer_orders<H: Handle>(
    path: &mut PathMachine<H>,
    cx: &mut Step<'_, H>,
    order: u32,
    standby: bool,
) {
    let before = path.pair.orders;
    path.pair.orders = order.max(before);
    if order < before {
        path.pair.tell_order(cx);
    } else if path.pair.is_out() {
        take_out(path, cx, standby);
    } else if order > before {
        bring_back(path, cx);
    }
}

/// A path that works is to be left by both directions; the other one has already, if `there_left`.
pub(super) fn leave<H: Handle>(
    path: &mut PathMachine<H>,
    cx: &mut Step<'_, H>,
    there_left: bool,
    standby: bool,
) {
    if let Phase::Ready(ready) = &mut path.phase {
        ready.leave(&mut path.pair, cx.now, there_left);
        look_leaving(path, cx, standby);
    }
}

/// Carries on with a path that is to be left; nothing to do for any other. True if something was done.
pub fn look_leaving<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, standby: bool) -> bool {
    let Phase::Ready(Ready { leaving: Some(_), .. }) = &path.phase else { return false };
    if path.fence_overlooked(cx) {
        return true;
    }
    let Phase::Ready(ready) = &mut path.phase else { return false };
    match ready.carry_on(&mut path.pair, cx, standby) {
        Leaving::Waits => false,
        Leaving::Busy => true,
        over @ (Leaving::Gone | Leaving::Late) => {
            path.fence_asked(cx, Urgency::Idle);
            over == Leaving::Gone
        }
    }
}

/// True if the other end's wish for the slot, about this incarnation, concerns a path that this end may leave.
pub fn may_do_without<H: Handle>(path: &PathMachine<H>, incarnation: u32) -> bool {
    path.pair.incarnation == incarnation && matches!(&path.phase, Phase::Ready(one) if one.leaving.is_none())
}

/// The other end wants the slot, and this one has another path.
pub fn do_without<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>) {
    if cx.facts.has_left() {
        return path.fence_asked(cx, Urgency::Idle);
    }
    // Before the first look at what becomes of it: one that is fenced there has been left by nobody.
    leave(path, cx, true, true);
}
