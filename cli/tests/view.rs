//! `shunt view`: files in, files out, and what is refused.

use crate::support::{shunt, text};
use std::path::PathBuf;

/// A fresh folder of this test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("view-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn file(folder: &std::path::Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

const EVENTS: &str = "{\"schema\":1,\"unix_ns\":1000000,\"pe\":3,\"event\":\"rail_down\",\"rail\":1}\n\
                      {\"schema\":1,\"unix_ns\":9000000,\"pe\":3,\"event\":\"rail_up\",\"rail\":1}\n";

#[test]
fn a_page_and_a_trace_are_written() {
    let folder = folder("written");
    let [events, page, trace] = ["ev.jsonl", "run.html", "trace.json"].map(|name| file(&folder, name));
    std::fs::write(&events, EVENTS).unwrap();
    let output = shunt(&["view", &events, "-o", &page, "--trace", &trace], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("{page}, {trace}: no failover\n"));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("rail 3.1") && page.contains("down: 0.000 to 8.000 ms"), "{page}");
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["name"] == "down"));
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let folder = folder("refused");
    let [events, page, none] = ["ev.jsonl", "run.html", "none.jsonl"].map(|name| file(&folder, name));
    std::fs::write(&events, "nonsense\n").unwrap();
    let good = file(&folder, "good.jsonl");
    std::fs::write(&good, EVENTS).unwrap();
    let lost = file(&folder, "no/such.html");
    for (arguments, status, part) in [
        (["view", &none, "-o", &page], 1, "SHUNT_EVENTS"),
        (["view", &events, "-o", &page], 1, ":1: expected an event"),
        (["view", &good, "-o", &lost], 1, "in a folder that exists"),
        (["view", "-o", &page, "--trace"], 2, "--trace"),
    ] {
        let output = shunt(&arguments, &[]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    assert!(!std::path::Path::new(&page).exists());
}
