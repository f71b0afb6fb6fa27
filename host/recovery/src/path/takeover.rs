//! A new life: what an earlier machine knew is lost; what its owner reads is left.

use super::io::{Command, Handle, Output, Step};
use super::machine::PathMachine;
use super::phase::Phase;
use super::ready::Ready;
use super::{Urgency, orders};
use crate::truth::SideTruth;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::PathState;

/// Its path is found with its owner in this state. `incarnation` is the number that the owner reads; `destroying`:
/// the NIC at work may still have a half that was to be destroyed.
pub fn taken_over<H: Handle>(
    path: &mut PathMachine<H>,
    cx: &mut Step<'_, H>,
    state: PathState,
    incarnation: u32,
    destroying: bool,
    standby: bool,
) {
    match state {
        PathState::Ready => {
            let Some(half) = path.pair.half.clone() else { return };
            path.phase = Phase::Ready(Ready::default());
            cx.put(Output::Command(Urgency::Idle, Command::Look(half)));
            if path.pair.is_out() {
                orders::leave(path, cx, false, standby); // it had nowhere to go so far
            }
        }
        PathState::Leaving => {
            path.phase = Phase::Ready(Ready::default());
            orders::leave(path, cx, false, standby);
        }
        PathState::Retired | PathState::Absent => {
            path.phase = Phase::Retired;
            if state == PathState::Retired && !path.pair.is_fresh() {
                taken_over_retired(path, cx, destroying);
            }
        }
        // Bring-up left it to the agents, and the last one had not begun.
        PathState::Released if path.pair.is_fresh() => path.phase = Phase::Released,
        PathState::Fenced | PathState::Released | PathState::Probing => {
            path.phase = Phase::Fencing;
            path.pair.fence.unknown = true;
            if Mutant::IncarnationForgotten.on() {
                path.pair.incarnation = incarnation;
            }
            if Mutant::RestartFencesNothing.on() {
                path.pair.half_fenced(cx, SideTruth::Fenced);
            } else {
                path.fence(cx, Urgency::Idle);
            }
        }
    }
}

/// A path that is out may have a peer that has not heard so. Its half was fenced, or could not be: its NIC says.
fn taken_over_retired<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, destroying: bool) {
    let pair = &mut path.pair;
    pair.fence.unknown = true;
    (pair.fence.left_here, pair.fence.left_there) = (true, true);
    if pair.half.is_none() {
        let mine = if destroying { SideTruth::Dead } else { SideTruth::Unknown };
        pair.fence.mine = Some(mine);
    } else {
        pair.fence_half(cx, Urgency::Idle);
    }
}
