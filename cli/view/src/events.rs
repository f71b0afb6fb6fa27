//! Event files (`SHUNT_EVENTS`, docs/OPERATIONS.md) as a [`Run`].

use crate::{Channel, Mark, Outcome, Port, Run, Switch};
use serde_json::Value;
use std::collections::BTreeSet;

/// The schema of the lines that this reads.
const SCHEMA: u64 = 1;

/// A line that is no event.
#[derive(Debug, thiserror::Error)]
pub enum BadEvents {
    /// No JSON object.
    #[error(
        "{file}:{line}: expected an event, one JSON object a line, got {start:?} ({error}); name files of SHUNT_EVENTS"
    )]
    Json {
        /// File.
        file: String,
        /// Line, from 1.
        line: usize,
        /// How the line begins.
        start: String,
        /// What the parser says.
        error: serde_json::Error,
    },
    /// Written by another version.
    #[error(
        "{file}:{line}: schema: expected {SCHEMA}, got {found}; use the `shunt` of the program that wrote it"
    )]
    Schema {
        /// File.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is there.
        found: String,
    },
    /// No line at all.
    #[error("no event in the files; set SHUNT_EVENTS=FILE for the job (% in FILE is the PE's number)")]
    Empty,
}

/// One line.
struct Event {
    unix_ns: u64,
    body: Value,
}

impl Event {
    fn text(&self, key: &str) -> &str {
        self.body[key].as_str().unwrap_or_default()
    }

    fn number(&self, key: &str) -> u64 {
        self.body[key].as_u64().unwrap_or_default()
    }

    fn pe(&self) -> u32 {
        self.number("pe") as u32
    }

    /// The channel of a path object.
    fn channel(&self, key: &str) -> Channel {
        let number = |name: &str| self.body[key][name].as_u64().unwrap_or_default() as u32;
        Channel { pe: self.pe(), peer: number("peer"), index: number("channel") }
    }

    fn path(&self, key: &str) -> String {
        self.body[key]["path"].as_str().unwrap_or_default().to_owned()
    }
}

/// Reads files: names and contents. Lines of several PEs may be in one file, in any order.
///
/// # Errors
/// The first line that is no event of this schema, or no line.
pub fn read(files: &[(String, String)]) -> Result<Run, BadEvents> {
    let mut events = Vec::new();
    for (file, text) in files {
        let lines = text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty());
        let last = text.lines().count();
        for (at, line) in lines {
            match event(file, at + 1, line) {
                // A process that was killed may leave half a line.
                Err(BadEvents::Json { error, .. })
                    if error.is_eof() && at + 1 == last && at > 0 && !text.ends_with('\n') => {}
                event => events.push(event?),
            }
        }
    }
    events.sort_by_key(|event| event.unix_ns);
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return Err(BadEvents::Empty);
    };
    let start = first.unix_ns;
    let at_ms = |event: &Event| (event.unix_ns - start) as f64 / 1e6;
    let mut run = Run { title: "Shunt: events of a run".into(), length_ms: at_ms(last), ..Run::default() };
    for event in &events {
        let at = at_ms(event);
        if event.text("event") == "agent_started" {
            run.rails.extend((0..event.number("rails") as u32).map(|rail| (event.pe(), rail)));
        }
        run.switches.extend(switch(event, at));
        run.marks.extend(mark(event, at));
    }
    run.switches.sort_by(|a, b| a.noticed_ms.total_cmp(&b.noticed_ms));
    run.facts = facts(&events, files);
    run.verdict = Some(verdict(&events));
    Ok(run)
}

fn event(file: &str, line: usize, text: &str) -> Result<Event, BadEvents> {
    let start = || text.chars().take(40).collect();
    let json = |error| BadEvents::Json { file: file.to_owned(), line, start: start(), error };
    let body: Value = serde_json::from_str(text).map_err(json)?;
    if body["schema"].as_u64() != Some(SCHEMA) {
        let found = body["schema"].to_string();
        return Err(BadEvents::Schema { file: file.to_owned(), line, found });
    }
    let unix_ns = body["unix_ns"].as_u64().unwrap_or_default();
    Ok(Event { unix_ns, body })
}

/// The switch that an event ends.
fn switch(event: &Event, at_ms: f64) -> Option<Switch> {
    let (outcome, names): (_, &[&str]) = match event.text("event") {
        "failover" => (Outcome::Failover, &["fence", "cut", "replay", "open"]),
        "switch_back" => (Outcome::Back, &["drain", "flush", "open"]),
        "channel_dead" => (Outcome::Dead, &[]),
        _ => return None,
    };
    let stage = |name: &&str| ((*name).to_owned(), event.number(&format!("{name}_ns")) as f64 / 1e3);
    let stages: Vec<(String, f64)> = names.iter().map(stage).collect();
    let took_ms = stages.iter().map(|(_, us)| us).sum::<f64>() / 1e3;
    let left = if outcome == Outcome::Dead { "at" } else { "from" };
    let cause = if outcome == Outcome::Back { "switch-back" } else { event.text("cause") };
    Some(Switch {
        channel: event.channel(left),
        from: event.path(left),
        to: event.path("to"),
        cause: cause.to_owned(),
        outcome,
        noticed_ms: (at_ms - took_ms).max(0.0),
        stages,
        replayed: event.number("replayed"),
    })
}

/// What an event says of a rail or a PE.
fn mark(event: &Event, at_ms: f64) -> Option<Mark> {
    let own = (event.pe(), Some(event.number("rail") as u32));
    let ((pe, rail), port, text) = match event.text("event") {
        "rail_down" => (own, Some(Port::Down), "down".to_owned()),
        "rail_up" => (own, Some(Port::Up), "up".to_owned()),
        "nic_error" => (own, Some(Port::Down), "internal error of the NIC".to_owned()),
        "rail_suspected" => {
            ((event.number("of") as u32, own.1), None, format!("suspected by PE {}", event.pe()))
        }
        "rail_cleared" => ((event.number("of") as u32, own.1), None, format!("cleared by PE {}", event.pe())),
        "agent_failed" => ((event.pe(), None), None, format!("agent failed: {}", event.text("error"))),
        "peer_lost" => ((event.pe(), None), None, format!("PE {} is lost", event.number("peer"))),
        "uncertain" => ((event.pe(), None), None, format!("{} uncertain", event.number("count"))),
        _ => return None,
    };
    Some(Mark { at_ms, pe, rail, text, port })
}

fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.text("event") == name).count()
}

fn facts(events: &[Event], files: &[(String, String)]) -> Vec<(String, String)> {
    let pes: BTreeSet<u32> = events.iter().map(Event::pe).collect();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let list: Vec<String> = pes.iter().map(u32::to_string).collect();
    let mut facts = vec![
        ("files".to_owned(), names.join(", ")),
        ("PEs".to_owned(), list.join(", ")),
        ("events".to_owned(), events.len().to_string()),
    ];
    for name in ["failover", "switch_back", "channel_dead", "peer_lost", "uncertain", "events_lost"] {
        facts.push((name.to_owned(), count(events, name).to_string()));
    }
    facts
}

/// Events tell what agents saw, not whether every byte arrived: no more is concluded here.
fn verdict(events: &[Event]) -> (String, bool) {
    for (name, text) in [
        ("peer_lost", "a peer was lost"),
        ("channel_dead", "a channel ended"),
        ("uncertain", "operations are uncertain"),
        ("events_lost", "events were lost: this is not the whole run"),
    ] {
        if count(events, name) > 0 {
            return (text.to_owned(), false);
        }
    }
    match count(events, "failover") {
        0 => ("no failover".to_owned(), true),
        1 => ("1 failover, no channel ended".to_owned(), true),
        many => (format!("{many} failovers, no channel ended"), true),
    }
}
