//! Events of two PEs in, page and trace out; both are parsed, and their parts compared.

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::{Value, json};
use shunt_view::{Outcome, Run, events, html, trace};

/// An event: when, of which PE, its name and its fields.
fn event(at_ms: u64, pe: u32, name: &str, fields: Value) -> String {
    let mut event = json!({ "schema": 1, "unix_ns": at_ms * 1_000_000, "pe": pe, "event": name });
    let fields = fields.as_object().unwrap().clone();
    event.as_object_mut().unwrap().extend(fields);
    format!("{event}\n")
}

fn path(path: &str) -> Value {
    json!({ "peer": 1, "channel": 0, "path": path })
}

/// A job of two PEs: rail 0 of PE 0 goes down after 500 ms and comes back; PE 0's channel leaves it and returns.
fn of_pe_0() -> String {
    let failover = json!({ "from": path("0.0>1.0"), "to": path("0.1>1.1"), "cause": "port-down", "replayed": 7,
                           "fence_ns": 900_000, "cut_ns": 0, "replay_ns": 99_000, "open_ns": 1_000 });
    let back = json!({ "from": path("0.1>1.1"), "to": path("0.0>1.0"), "drain_ns": 400_000, "flush_ns": 5_000,
                       "open_ns": 1_000 });
    [
        event(1_000, 0, "agent_started", json!({ "pes": 2, "rails": 2 })),
        event(1_500, 0, "rail_down", json!({ "rail": 0 })),
        event(1_502, 0, "failover", failover),
        event(1_700, 0, "rail_up", json!({ "rail": 0 })),
        event(1_900, 0, "switch_back", back),
    ]
    .concat()
}

fn of_pe_1() -> String {
    event(2_000, 1, "agent_failed", json!({ "error": "a <b> & \"c\"" }))
}

fn run() -> Run {
    // The later file first: order is that of time.
    let files = [("ev-1.jsonl", of_pe_1()), ("ev-0.jsonl", of_pe_0())];
    events::read(&files.map(|(name, text)| (name.to_owned(), text))).unwrap()
}

fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

fn by_id<'a>(page: &'a Document<'_>, id: &str) -> Node<'a, 'a> {
    page.descendants().find(|node| node.attribute("id") == Some(id)).unwrap_or_else(|| panic!("no {id}"))
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

fn rows(table: Node<'_, '_>) -> Vec<Vec<String>> {
    let rows = table.children().filter(|node| node.has_tag_name("tr"));
    let cells = |row: Node<'_, '_>| row.children().filter(Node::is_element).map(text).collect();
    rows.map(cells).collect()
}

fn classed<'a>(node: Node<'a, 'a>, class: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    node.descendants().filter(move |node| node.attribute("class") == Some(class))
}

#[test]
fn events_of_several_files_become_one_run() {
    let run = run();
    assert_eq!(run.length_ms, 1000.0);
    let outcomes: Vec<Outcome> = run.switches.iter().map(|switch| switch.outcome).collect();
    assert_eq!(outcomes, [Outcome::Failover, Outcome::Back]);
    assert_eq!((run.switches[0].noticed_ms, run.switches[0].ended_ms()), (501.0, 502.0));
    assert_eq!(run.switches[0].replayed, 7);
    assert_eq!(run.verdict, Some(("1 failover, no channel ended".to_owned(), true)));
}

#[test]
fn the_page_has_channels_switches_rails_and_facts() {
    let html = html(&run());
    let page = parsed(&html);
    assert_eq!(text(by_id(&page, "verdict")), "1 failover, no channel ended");
    let switches = rows(by_id(&page, "switches"));
    assert_eq!(
        switches[1],
        [
            "501.000",
            "0>1#0",
            "failover",
            "0.0>1.0",
            "0.1>1.1",
            "port-down",
            "fence 900.0, cut 0.0, replay 99.0, open 1.0",
            "7"
        ]
    );
    assert_eq!(switches[2][2..6], ["switch-back", "0.1>1.1", "0.0>1.0", "switch-back"]);
    let time = by_id(&page, "time");
    let channel = classed(time, "channel").next().unwrap();
    let titles: Vec<String> =
        channel.descendants().filter(|node| node.has_tag_name("title")).map(text).collect();
    let title = |part: &str| titles.iter().any(|title| title.contains(part));
    assert!(title("0.0>1.0: 0.000 to 501.000 ms") && title("0.1>1.1: 502.000 to 899"), "{titles:?}");
    assert!(title("0.0>1.0: 900.000 to 1000.000 ms"), "{titles:?}");
    assert!(title("failover at 501.000 ms: port-down\n0.0>1.0 to 0.1>1.1\nfence 900.0 us"), "{titles:?}");
    let down: Vec<String> = classed(time, "down").map(text).collect();
    assert_eq!(down, ["down: 500.000 to 700.000 ms"]);
    let rails: Vec<String> = classed(time, "rail")
        .filter_map(|lane| lane.descendants().find(|node| node.has_tag_name("text")))
        .map(text)
        .collect();
    assert_eq!(rails, ["rail 0.0", "rail 0.1"]);
    assert!(rows(by_id(&page, "marks")).contains(&vec![
        "1000.000".into(),
        "PE 1".into(),
        "agent failed: a <b> & \"c\"".into()
    ]));
    assert!(rows(by_id(&page, "facts")).contains(&vec!["failover".into(), "1".into()]));
}

#[test]
fn the_page_needs_no_network() {
    let html = html(&run());
    let page = parsed(&html);
    for node in page.descendants() {
        assert!(!["script", "link", "img", "iframe"].contains(&node.tag_name().name()), "{node:?}");
        assert!(node.attribute("src").is_none() && node.attribute("href").is_none(), "{node:?}");
    }
    assert!(!html.contains("url(") && !html.contains("@import"));
}

#[test]
fn the_trace_has_a_slice_for_each_switch_and_stage() {
    let trace: Value = serde_json::from_str(&trace(&run())).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |name: &str| events.iter().find(|event| event["name"] == name && event["ph"] == "X").unwrap();
    assert_eq!((of("port-down")["ts"].as_f64(), of("port-down")["dur"].as_f64()), (Some(501e3), Some(1e3)));
    assert_eq!(of("fence")["dur"].as_f64().map(f64::round), Some(900.0));
    assert_eq!(of("replay")["ts"].as_f64().map(f64::round), Some(501_900.0));
    assert_eq!(of("port-down")["args"]["to"], "0.1>1.1");
    let tracks: Vec<&Value> =
        events.iter().filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]).collect();
    assert!(
        tracks.contains(&&Value::from("channel 0>1#0")) && tracks.contains(&&Value::from("rail 0.0")),
        "{tracks:?}"
    );
}

#[test]
fn what_is_no_event_is_refused_with_its_line() {
    let error = |text: &str| events::read(&[("f".to_owned(), text.to_owned())]).unwrap_err().to_string();
    assert!(error("{\"schema\":1}\nnonsense").starts_with("f:2: expected an event"));
    assert!(error("{\"schema\":2}").starts_with("f:1: schema: expected 1, got 2;"));
    assert!(error("\n").contains("SHUNT_EVENTS=FILE"));
    assert!(error("{\"schema\":1}\n{\"sch\n").starts_with("f:2: expected an event"));
    // A process that was killed leaves half a line, the last one.
    let half = ("f".to_owned(), "{\"schema\":1}\n{\"sch".to_owned());
    assert!(events::read(&[half]).is_ok());
}

#[test]
fn a_channel_that_ended_stays_ended() {
    let dead = event(1_950, 0, "channel_dead", json!({ "at": path("0.0>1.0"), "cause": "overdue" }));
    let run = events::read(&[("f".into(), [of_pe_0(), dead, of_pe_1()].concat())]).unwrap();
    assert_eq!(run.verdict, Some(("a channel ended".to_owned(), false)));
    let html = html(&run);
    let page = parsed(&html);
    assert_eq!(by_id(&page, "verdict").attribute("class"), Some("verdict bad"));
    let last = rows(by_id(&page, "switches")).pop().unwrap();
    assert_eq!(last[2..6], ["channel ended", "0.0>1.0", "", "overdue"]);
}
