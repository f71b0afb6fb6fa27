//! Events as others see them: the committed table of docs/OPERATIONS.md, names, JSON lines, the order of the log.

use serde_json::json;
use shunt_telemetry::{EVENTS, Event, FileSink, Kind, Log, Place, Route, Sink, Told, line, markdown};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use tracing::field::Field;

fn route() -> Route {
    let place = Place { peer: 1, channel: 2, slot: 3 };
    Route { pe: 0, place, local_rail: 4, remote_rail: 5, incarnation: 6 }
}

/// What stands between two marks of the document is what the code says.
#[test]
fn the_committed_table_is_that_of_the_code() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATIONS.md");
    let text = std::fs::read_to_string(&path).expect("the document");
    let begin = text.find("<!-- events:").expect("the mark before the table");
    let begin = begin + text[begin..].find('\n').expect("a line") + 1;
    let end = text.find("<!-- end of events -->").expect("the mark behind the table");
    let table = markdown();
    if std::env::var_os("SHUNT_DOCS_BLESS").is_some() {
        let text = format!("{}{table}{}", &text[..begin], &text[end..]);
        return std::fs::write(&path, text).expect("the document can be written");
    }
    assert!(text[begin..end] == table, "run SHUNT_DOCS_BLESS=1 cargo test -p shunt-telemetry --test events");
}

#[test]
fn names_are_names_and_nobody_has_anothers() {
    let names: BTreeSet<_> = EVENTS.iter().map(|event| event.name).collect();
    assert_eq!(names.len(), EVENTS.len());
    let word = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    for event in EVENTS {
        assert!(word(event.name) && !event.sentence.is_empty() && event.sentence.ends_with('.'), "{event:?}");
        assert!(event.fields.iter().all(|(name, meaning)| word(name) && !meaning.is_empty()), "{event:?}");
        assert!(event.sentence.len() < 110 && !event.sentence.contains('|'), "{event:?}");
        for field in event.fields {
            // Would hide what every line has.
            assert!(
                !["schema", "seq", "at_ns", "pe", "fault", "event", "level", "unix_ns"].contains(&field.0)
            );
        }
    }
}

#[test]
fn a_line_is_what_it_always_was() {
    let told = |event| Told { number: 7, at_ns: 12, pe: 0, fault: 2, event };
    let text = "a \"quoted\" \\ word\n".to_owned();
    assert_eq!(
        line(&told(Event::FenceFailed { at: route(), error: text }), Some(1_000)),
        "{\"schema\":1,\"seq\":7,\"at_ns\":12,\"pe\":0,\"fault\":2,\"event\":\"fence_failed\",\"level\":\"error\",\
         \"unix_ns\":1012,\"at\":{\"peer\":1,\"channel\":2,\"slot\":3,\"path\":\"0.4>1.5\",\"incarnation\":6},\
         \"error\":\"a \\\"quoted\\\" \\\\ word\\u000a\"}"
    );
    assert_eq!(
        line(&told(Event::PeerRailUp { peer: 3, rail: 1, down_ns: u64::MAX }), None),
        "{\"schema\":1,\"seq\":7,\"at_ns\":12,\"pe\":0,\"fault\":2,\"event\":\"peer_rail_up\",\"level\":\"info\",\
         \"peer\":3,\"rail\":1,\"down_ns\":18446744073709551615}"
    );
}

/// JSON Schema of a line.
fn schema() -> serde_json::Value {
    let number = json!({ "type": "integer", "minimum": 0 });
    let events = EVENTS.iter().map(|event| {
        let fields = event.fields.iter().zip(event.kinds).map(|((name, meaning), kind)| {
            let mut field = match kind {
                Kind::Number => number.clone(),
                Kind::Flag => json!({ "type": "boolean" }),
                Kind::Text => json!({ "type": "string" }),
                Kind::Route => json!({ "$ref": "#/$defs/route" }),
            };
            field["description"] = (*meaning).into();
            ((*name).to_owned(), field)
        });
        let names = [("event", event.name), ("level", event.level.name())];
        let names = names.map(|(field, name)| (field.to_owned(), json!({ "const": name })));
        let required: Vec<&str> = event.fields.iter().map(|(name, _)| *name).collect();
        let properties: serde_json::Map<_, _> = names.into_iter().chain(fields).collect();
        json!({ "description": event.sentence, "properties": properties, "required": required })
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "shunt-event",
        "description": "A line of SHUNT_EVENTS. Times of `at_ns` are the PE's clock, of `unix_ns` since 1970.",
        "type": "object",
        "properties": {
            "schema": { "const": 1 }, "seq": number, "at_ns": number, "unix_ns": number, "pe": number, "fault": number,
        },
        "required": ["schema", "seq", "at_ns", "pe", "fault", "event", "level"],
        "oneOf": events.collect::<Vec<_>>(),
        "$defs": { "route": {
            "description": "A path of this PE; `path` is local rail > remote rail.",
            "type": "object",
            "properties": {
                "peer": number, "channel": number, "slot": number, "path": { "type": "string" }, "incarnation": number,
            },
            "required": ["peer", "channel", "slot", "path", "incarnation"],
        } },
    })
}

#[test]
fn the_schema_of_a_line_is_kept() {
    shunt_json::kept("shunt-event", &schema());
    let told = |event| Told { number: 7, at_ns: 12, pe: 0, fault: 2, event };
    let failed = Event::FenceFailed { at: route(), error: "no answer".into() };
    let mut document = serde_json::from_str(&line(&told(failed), Some(1_000))).unwrap();
    assert_eq!(shunt_json::errors_of("shunt-event", &document), "");
    document["at"] = "0.4>1.5".into();
    assert!(shunt_json::errors_of("shunt-event", &document).contains("/at"));
}

/// A program's own subscriber.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<BTreeMap<String, String>>>);

impl tracing::field::Visit for Listener {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.lock().unwrap().insert(field.name().to_owned(), format!("number {value}"));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.lock().unwrap().insert(field.name().to_owned(), format!("flag {value}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.lock().unwrap().insert(field.name().to_owned(), format!("text {value}"));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// Hands every event of ours to a visitor.
struct Hears<V>(V);

impl<V: tracing::field::Visit + Clone + Send + Sync + 'static> tracing::Subscriber for Hears<V> {
    fn enabled(&self, about: &tracing::Metadata<'_>) -> bool {
        about.target() == "shunt"
    }
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.0.clone());
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A program in Rust gets fields of their own kinds, and nobody installs a subscriber for it.
#[test]
fn a_programs_own_subscriber_gets_numbers_as_numbers() {
    let listener = Listener::default();
    let heard = listener.0.clone();
    tracing::subscriber::with_default(Hears(listener), || {
        let (cause, at) = ("port-down", route());
        let event = Event::SwitchCut {
            at: route(),
            generation: 3,
            done: 4,
            executed: 5,
            journal_end: 6,
            ledger: true,
        };
        Log::new(9).take(77, event);
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        let of = |name: &str| heard[name].as_str();
        assert_eq!((of("event"), of("pe"), of("at_ns")), ("text switch_cut", "number 9", "number 77"));
        assert_eq!((of("at"), of("done"), of("ledger")), ("0.4>1.5#2", "number 4", "flag true"));
        Log::new(9).take(78, Event::SwitchNoticed { at, generation: 1, cause, syndrome: 0x15 });
    });
    let heard = heard.lock().unwrap();
    assert_eq!((heard["cause"].as_str(), heard["syndrome"].as_str()), ("text port-down", "number 21"));
}

/// A rail is suspected again and again: the log has a line and a sum, the timeline all of it.
#[test]
fn many_suspicions_are_few_lines_and_a_whole_timeline() {
    let lines = Lines::default();
    let mut log = Log::new(0);
    tracing::subscriber::with_default(Hears(lines.clone()), || {
        log.take(0, Event::RailOpened { rail: 1, device: "mlx5_1".into(), up: true });
        for at_ns in (0..1_000).map(|turn| turn * 5_000_000) {
            log.take(at_ns, Event::RailSuspected { of: 1, rail: 0 });
            log.take(at_ns + 1, Event::RailCleared { of: 1, rail: 0, suspected_ns: 1 });
            log.sum_up(at_ns + 2);
        }
        log.release_all();
    });
    let said = lines.0.lock().unwrap().clone();
    assert_eq!(said, ["rail_opened", "rail_suspected", "rail_cleared", "rail_suspected_again"]);
    let told = log.fetch().0;
    let count = |name: &str| told.iter().filter(|told| told.event.name() == name).count();
    assert_eq!((count("rail_suspected"), count("rail_cleared")), (1_000, 1_000));
    assert!(told.iter().any(|told| matches!(told.event, Event::RailSuspectedAgain { times: 999, .. })));
    assert!(told.is_sorted_by_key(|told| told.at_ns));
}

/// Names of events, as a program's own subscriber hears them.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Lines {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "event" {
            self.0.lock().unwrap().push(value.to_owned());
        }
    }
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

struct Wire(mpsc::Sender<Told>);

impl Sink for Wire {
    fn tell(&mut self, told: &Told) {
        self.0.send(told.clone()).expect("the test listens");
    }
}

/// A switch is told of when it is over: what happened meanwhile waits for it.
#[test]
fn what_comes_late_still_comes_in_order() {
    let (send, receive) = mpsc::channel();
    let mut log = Log::new(3);
    log.add_sink(Box::new(Wire(send)));
    let rail = |rail| Event::PeerRailDown { peer: 1, rail };
    log.take(10_000_000, Event::AgentStarted { pes: 2, rails: 1 });
    log.take(50_000_000, rail(1));
    log.release(80_000_000, Some(40_000_000));
    let first: Vec<_> = receive.try_iter().collect();
    assert_eq!(first.len(), 1, "a switch that began before the other is under way");
    assert_eq!((first[0].number, first[0].fault, first[0].pe), (0, 0, 3));
    log.take(40_000_000, rail(0));
    log.take(79_500_000, rail(2));
    log.release(80_000_000, None);
    let then: Vec<_> =
        receive.try_iter().map(|told| (told.number, told.at_ns, told.fault, told.event)).collect();
    assert_eq!(then, [(1, 40_000_000, 1, rail(0)), (2, 50_000_000, 1, rail(1))], "the last one is too young");
    log.recovered(90_000_000);
    assert_eq!(log.trouble_since(), Some(40_000_000), "nothing ends before all of it was told");
    log.release(100_000_000, None);
    log.recovered(100_000_000);
    let end: Vec<_> = receive.try_iter().map(|told| (told.fault, told.event)).collect();
    assert_eq!(end, [(1, rail(2)), (1, Event::Recovered { lasted_ns: 60_000_000 })]);
    log.take(200_000_000, rail(9));
    log.release_all();
    assert_eq!(receive.try_iter().map(|told| told.fault).collect::<Vec<_>>(), [2], "a trouble of its own");
    assert_eq!(log.fetch().0.len(), 6);
}

/// The last word of a fault was that traffic is elsewhere, after it had come back.
#[test]
fn where_traffic_went_is_told_before_the_end() {
    let (send, receive) = mpsc::channel();
    let mut log = Log::new(0);
    log.add_sink(Box::new(Wire(send)));
    let at = |local_rail| Route { local_rail, ..route() };
    log.take(1_000, Event::RailDown { rail: 0 });
    let (from, to, cause) = (at(0), at(1), "port-down");
    let (fence_ns, cut_ns, replay_ns, open_ns) = (1, 2, 3, 4);
    let failover =
        Event::Failover { from, to, generation: 1, cause, fence_ns, cut_ns, replay_ns, open_ns, replayed: 3 };
    log.take(2_000, failover);
    log.release(10_000_000_000, None);
    log.recovered(10_000_000_000);
    let names: Vec<_> = receive.try_iter().map(|told| told.event.name()).collect();
    assert_eq!(names, ["rail_down", "failover", "traffic_moved", "recovered"]);
}

/// A switch that finds no path for long does not keep the rest waiting; what nobody fetches is dropped and counted.
#[test]
fn nothing_is_held_for_ever_and_nothing_grows_for_ever() {
    let mut log = Log::new(0);
    log.take(5_000_000_000, Event::AgentEnded {});
    log.release(6_000_000_000, Some(1));
    assert!(log.is_waiting());
    log.release(7_000_000_001, Some(1));
    assert!(!log.is_waiting());
    for at_ns in 0..10_000 {
        log.take(at_ns, Event::AgentEnded {});
        log.release(8_000_000_000, None);
    }
    let (events, dropped) = log.fetch();
    assert_eq!((events.len() as u64 + dropped, log.told()), (10_001, 10_001));
    assert!(events.len() < 5_000 && log.fetch().0.is_empty());
    for at_ns in 0..10_000 {
        log.take(7_999_000_000 + at_ns, Event::AgentEnded {});
    }
    log.release(8_000_000_000, Some(1));
    let told: usize = log.fetch().0.len();
    assert!(told > 4_000, "{told}: no more than so many wait for a switch");
}

/// A file that takes nothing for a while: what is lost is told with a number of its own, at the end at the latest.
#[test]
fn a_file_that_is_too_slow_is_told_what_it_lost() {
    let path = std::env::temp_dir().join(format!("shunt-events-{}", std::process::id()));
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Until somebody reads, the writer is not even through with opening it.
    let mut sink = FileSink::new(path.clone(), None, 1 << 30);
    let told = |number| Told { number, at_ns: number, pe: 0, fault: 0, event: Event::AgentEnded {} };
    (0..10_000).for_each(|number| sink.tell(&told(number)));
    let from = path.clone();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::fs::File::open(from).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    drop(sink);
    let text = reader.join().unwrap();
    std::fs::remove_file(path).unwrap();
    let number = |line: &str, field: &str| -> u64 {
        let from = line.find(field).expect("the field") + field.len();
        line[from..].split([',', '}']).next().unwrap().parse().unwrap()
    };
    let numbers: Vec<u64> = text.lines().map(|line| number(line, "\"seq\":")).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "no number twice");
    let last = text.lines().last().unwrap();
    assert!(last.contains("\"events_lost\"") && numbers.last() == Some(&9_999), "{last}");
    assert_eq!(number(last, "\"count\":") + numbers.len() as u64 - 1, 10_000);
}
