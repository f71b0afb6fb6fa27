//! The line of JSON that an event is in a timeline.

use super::Told;
use super::declare::{Route, Value};
use std::fmt::Write;

/// Version of the lines. Fields are added under the same version; what is renamed or left out raises it.
pub const SCHEMA: u32 = 1;

/// One event as one line, without its end. `unix_ns`: what the wall clock is ahead of the PE's clock, where that is
/// known.
pub fn line(told: &Told, unix_ns: Option<u64>) -> String {
    let mut out = String::with_capacity(192);
    let event = &told.event;
    let _ = write!(
        out,
        "{{\"schema\":{SCHEMA},\"seq\":{},\"at_ns\":{},\"pe\":{},\"fault\":{},\"event\":\"{}\",\"level\":\"{}\"",
        told.number,
        told.at_ns,
        told.pe,
        told.fault,
        event.name(),
        event.level().name()
    );
    if let Some(ahead) = unix_ns {
        let _ = write!(out, ",\"unix_ns\":{}", told.at_ns.wrapping_add(ahead));
    }
    event.visit(&mut |name, value| {
        let _ = write!(out, ",\"{name}\":");
        match value {
            Value::Number(number) => _ = write!(out, "{number}"),
            Value::Flag(flag) => _ = write!(out, "{flag}"),
            Value::Text(text) => quote(&mut out, text),
            Value::Route(at) => route(&mut out, at),
        }
    });
    out.push('}');
    out
}

fn route(out: &mut String, at: &Route) {
    let place = at.place;
    let _ = write!(
        out,
        "{{\"peer\":{},\"channel\":{},\"slot\":{},\"path\":\"{at}\",\"incarnation\":{}}}",
        place.peer, place.channel, place.slot, at.incarnation
    );
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            _ if letter.is_control() => _ = write!(out, "\\u{:04x}", letter as u32),
            _ => out.push(letter),
        }
    }
    out.push('"');
}
