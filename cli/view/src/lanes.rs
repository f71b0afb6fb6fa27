//! What each channel and each rail did over time, from switches and marks.

use crate::{Channel, Outcome, Port, Run};
use std::collections::BTreeMap;

/// A stretch of time in one state.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Start, ms.
    pub from_ms: f64,
    /// End, ms.
    pub to_ms: f64,
    /// Path of a channel, `up` or `down` of a rail.
    pub state: String,
}

/// Segments of each channel that switched: the path in use.
pub fn channels(run: &Run) -> BTreeMap<Channel, Vec<Segment>> {
    let mut lanes: BTreeMap<Channel, Vec<Segment>> = BTreeMap::new();
    for switch in &run.switches {
        let lane = lanes.entry(switch.channel).or_default();
        let start = lane.last().map_or(0.0, |last| last.to_ms);
        lane.push(Segment { from_ms: start, to_ms: switch.noticed_ms, state: switch.from.clone() });
        // The switch itself belongs to no path.
        let end = if switch.outcome == Outcome::Dead { run.length_ms } else { switch.ended_ms() };
        lane.push(Segment { from_ms: switch.noticed_ms, to_ms: end, state: String::new() });
    }
    for (channel, lane) in &mut lanes {
        let last = run.switches.iter().rev().find(|switch| switch.channel == *channel);
        if let Some(last) = last.filter(|last| last.outcome != Outcome::Dead) {
            let from_ms = last.ended_ms();
            lane.push(Segment { from_ms, to_ms: run.length_ms, state: last.to.clone() });
        }
        lane.retain(|segment| !segment.state.is_empty() && segment.to_ms > segment.from_ms);
    }
    lanes
}

/// Segments of each rail that is known or that marks name.
pub fn rails(run: &Run) -> BTreeMap<(u32, u32), Vec<Segment>> {
    let known = run.rails.iter().map(|rail| (*rail, vec![up(0.0)]));
    let mut lanes: BTreeMap<(u32, u32), Vec<Segment>> = known.collect();
    for mark in &run.marks {
        let Some(rail) = mark.rail else { continue };
        let lane = lanes.entry((mark.pe, rail)).or_insert_with(|| vec![up(0.0)]);
        let Some(port) = mark.port else { continue };
        let state = if port == Port::Down { "down" } else { "up" };
        if let Some(last) = lane.last_mut().filter(|last| last.state != state) {
            last.to_ms = mark.at_ms;
            lane.push(Segment { from_ms: mark.at_ms, to_ms: mark.at_ms, state: state.into() });
        }
    }
    for lane in lanes.values_mut() {
        lane.iter_mut().next_back().into_iter().for_each(|last| last.to_ms = run.length_ms.max(last.from_ms));
    }
    lanes
}

fn up(from_ms: f64) -> Segment {
    Segment { from_ms, to_ms: from_ms, state: "up".into() }
}
