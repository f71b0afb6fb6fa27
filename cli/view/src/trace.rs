//! The Trace Event Format of Chrome, which Perfetto reads: one process a PE, one track a channel or rail.

use crate::lanes;
use crate::{Run, Switch};
use serde_json::{Value, json};

/// Track of what happens to a PE as a whole; channels and rails come behind it.
const PE_TRACK: u32 = 0;
const RAIL_TRACK: u32 = 10_000;

/// A run as JSON for <https://ui.perfetto.dev> or `chrome://tracing`.
pub fn trace(run: &Run) -> String {
    let mut events = Vec::new();
    let channels = lanes::channels(run);
    for (track, (channel, lane)) in channels.iter().enumerate() {
        let track = track as u32 + 1;
        let name = format!("channel {}>{}#{}", channel.pe, channel.peer, channel.index);
        events.push(named(channel.pe, track, &name));
        for segment in lane {
            let span = (segment.from_ms, segment.to_ms);
            events.push(slice(channel.pe, track, &segment.state, span, json!({})));
        }
        for switch in run.switches.iter().filter(|switch| switch.channel == *channel) {
            events.extend(stages(switch, track));
        }
    }
    for ((pe, rail), lane) in lanes::rails(run) {
        events.push(named(pe, RAIL_TRACK + rail, &format!("rail {pe}.{rail}")));
        for segment in lane {
            let span = (segment.from_ms, segment.to_ms);
            events.push(slice(pe, RAIL_TRACK + rail, &segment.state, span, json!({})));
        }
    }
    for mark in &run.marks {
        let track = mark.rail.map_or(PE_TRACK, |rail| RAIL_TRACK + rail);
        events.push(json!({ "ph": "i", "s": "t", "name": mark.text, "pid": mark.pe, "tid": track,
                            "ts": mark.at_ms * 1e3 }));
    }
    for rate in &run.rates {
        events.push(json!({ "ph": "C", "name": "delivered", "pid": 0, "ts": rate.at_ms * 1e3,
                            "args": { "GB/s": rate.gb_s } }));
    }
    let whole =
        json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": { "title": run.title } });
    format!("{whole:#}\n")
}

fn named(pe: u32, track: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": "thread_name", "pid": pe, "tid": track, "args": { "name": name } })
}

fn slice(pe: u32, track: u32, name: &str, (from_ms, to_ms): (f64, f64), args: Value) -> Value {
    json!({ "ph": "X", "name": name, "pid": pe, "tid": track, "ts": from_ms * 1e3,
            "dur": (to_ms - from_ms) * 1e3, "args": args })
}

/// A switch and, inside it, its stages.
fn stages(switch: &Switch, track: u32) -> Vec<Value> {
    let pe = switch.channel.pe;
    let args = json!({ "from": switch.from, "to": switch.to, "replayed": switch.replayed });
    let span = (switch.noticed_ms, switch.ended_ms());
    let mut out = vec![slice(pe, track, &switch.cause, span, args)];
    let mut at = switch.noticed_ms;
    for (name, us) in &switch.stages {
        out.push(slice(pe, track, name, (at, at + us / 1e3), json!({})));
        at += us / 1e3;
    }
    out
}
