//! The report of `shunt doctor --first-day` on the interposer's NICs, beside the scenarios of the stage `mlx5`: on two
//! everything is tried but a GPU; on one, what needs a second must not read as a pass.

use anyhow::{Context, Result};
use serde_json::Value;
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::Path;
use std::process::{Command, Stdio};

/// Sections of every report, in the order in which they are run.
const TITLES: [&str; 9] = [
    "machine and versions",
    "capabilities",
    "devx check",
    "truth proof",
    "command times",
    "two processes, one rail",
    "two processes, two rails",
    "a port that goes down and comes back",
    "GPU",
];

/// Results that all rows of a section may have.
type Allowed = (&'static str, &'static [&'static str]);

/// A run, and what each of its sections must come to. A path may be left on a busy machine without a fault: `warn`.
struct Case {
    name: &'static str,
    nics: &'static str,
    sections: &'static [Allowed],
}

const CASES: &[Case] = &[
    Case {
        name: "first-day-two-nics",
        nics: "2",
        sections: &[
            ("capabilities", &["ok"]),
            ("devx check", &["ok"]),
            ("truth proof", &["ok"]),
            ("command times", &["ok"]),
            ("two processes, one rail", &["ok", "warn"]),
            ("two processes, two rails", &["ok", "warn"]),
            ("a port that goes down and comes back", &["ok"]),
        ],
    },
    Case {
        name: "first-day-one-nic",
        nics: "1",
        sections: &[
            ("capabilities", &["ok"]),
            ("devx check", &["not run"]),
            ("truth proof", &["ok"]),
            ("command times", &["ok"]),
            ("two processes, one rail", &["ok", "warn"]),
            ("two processes, two rails", &["not run"]),
            ("a port that goes down and comes back", &["not run"]),
        ],
    },
];

/// A row of the JSON.
struct Row<'a> {
    section: &'a str,
    name: &'a str,
    result: &'a str,
    seen: &'a str,
}

fn rows(json: &Value) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for section in json["sections"].as_array().into_iter().flatten() {
        for row in section["rows"].as_array().into_iter().flatten() {
            rows.push(Row {
                section: section["title"].as_str().unwrap_or(""),
                name: row["name"].as_str().unwrap_or(""),
                result: row["result"].as_str().unwrap_or(""),
                seen: row["seen"].as_str().unwrap_or(""),
            });
        }
    }
    rows
}

/// What is wrong with a report, whatever it ran on: the order, the sums, and rows that Markdown and JSON tell
/// differently.
fn inconsistent(markdown: &str, json: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let titles: Vec<&str> =
        json["sections"].as_array().into_iter().flatten().filter_map(|s| s["title"].as_str()).collect();
    if titles != TITLES {
        wrong.push(format!("sections are {titles:?}, not {TITLES:?}"));
    }
    if json["schema"] != "shunt-first-day" || json["version"] != 1 {
        wrong.push(format!("schema {} version {}", json["schema"], json["version"]));
    }
    if !json["on"].as_str().is_some_and(|on| on.contains("soft NIC through the interposer")) {
        wrong.push(format!("it ran on {}, and does not say that the NICs are soft", json["on"]));
    }
    let rows = rows(json);
    for (key, result) in [("ok", "ok"), ("warn", "warn"), ("fail", "fail"), ("not_run", "not run")] {
        let count = rows.iter().filter(|row| row.result == result).count();
        if json["summary"][key].as_u64() != Some(count as u64) {
            wrong.push(format!("{} rows are said to be '{result}', {count} are", json["summary"][key]));
        }
    }
    for row in rows {
        let cell = |text: &str| text.replace('|', "\\|");
        let why = if row.result == "not run" { "not run: " } else { "" };
        let line = format!("| {} | {} | {why}", row.result, cell(row.name));
        if row.name.is_empty() || row.seen.is_empty() || !markdown.lines().any(|met| met.starts_with(&line)) {
            wrong.push(format!(
                "'{}' is '{}' ({}), and no line starts with '{line}'",
                row.name, row.result, row.seen
            ));
        }
    }
    wrong
}

impl Case {
    fn wrong(&self, exit: Option<i32>, markdown: &str, json: &Value) -> Vec<String> {
        let mut wrong = inconsistent(markdown, json);
        if exit != Some(0) {
            wrong.push(format!("exit status {exit:?}, not 0"));
        }
        let rows = rows(json);
        for (title, allowed) in self.sections {
            let of: Vec<&Row<'_>> = rows.iter().filter(|row| row.section == *title).collect();
            if of.is_empty() {
                wrong.push(format!("no row of '{title}'"));
            }
            let bad = of.iter().filter(|row| !allowed.contains(&row.result));
            wrong.extend(
                bad.map(|row| format!("'{}' is '{}', not {allowed:?}: {}", row.name, row.result, row.seen)),
            );
        }
        wrong
    }

    fn run(&self, dir: &Path) -> Result<Vec<String>> {
        let [markdown, json] = ["md", "json"].map(|end| dir.join(format!("{}.{end}", self.name)));
        for file in [&markdown, &json] {
            if file.exists() {
                std::fs::remove_file(file)?;
            }
        }
        let shunt = sh::target_dir().join("release/shunt");
        let fabric = format!("ci-{}-{}", self.name, std::process::id());
        let mut command = Command::new("timeout");
        command.arg("300").arg(&shunt).args(["soft-rdma", "run", "--nics", self.nics, "--fabric", &fabric]);
        command.arg("--").arg(&shunt).args(["doctor", "--first-day", "--short", "--out"]).arg(&markdown);
        let output = command.stdin(Stdio::null()).output().context("cannot start timeout")?;
        let text = std::fs::read_to_string(&markdown).unwrap_or_default();
        let data = std::fs::read_to_string(&json).ok().and_then(|text| serde_json::from_str(&text).ok());
        let wrong = self.wrong(output.status.code(), &text, &data.unwrap_or(Value::Null));
        if !wrong.is_empty() {
            println!("{}", sh::last_lines(&String::from_utf8_lossy(&output.stderr), 20));
        }
        Ok(wrong)
    }
}

/// Part of the stage `mlx5` of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    let dir = sh::target_dir().join("ci");
    std::fs::create_dir_all(&dir)?;
    let mut count = Count::default();
    for case in CASES {
        count += Count::told(case.name, &case.run(&dir)?);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A report as the first case wants it, but for what `change` makes of the result of a section's row.
    fn report(case: &Case, change: impl Fn(&str) -> Option<&'static str>) -> (String, Value) {
        let mut markdown = String::new();
        let mut counts = [("ok", 0), ("warn", 0), ("fail", 0), ("not_run", 0)];
        let sections: Vec<Value> = TITLES
            .iter()
            .map(|title| {
                let wanted = case.sections.iter().find(|(name, _)| name == title).map(|(_, allowed)| allowed[0]);
                let result = change(title).or(wanted).unwrap_or("not run");
                for (key, count) in &mut counts {
                    *count += u64::from(*key == result.replace(' ', "_"));
                }
                let why = if result == "not run" { "not run: " } else { "" };
                markdown += &format!("| {result} | a row of {title} | {why}seen |  |\n");
                let row = json!({ "name": format!("a row of {title}"), "result": result, "seen": "seen", "to_do": "" });
                json!({ "title": title, "rows": [row] })
            })
            .collect();
        let summary: serde_json::Map<String, Value> =
            counts.iter().map(|(key, count)| ((*key).to_owned(), json!(count))).collect();
        let json = json!({ "schema": "shunt-first-day", "version": 1, "summary": summary, "sections": sections,
                           "on": "mlx5_0 (soft NIC through the interposer)" });
        (markdown, json)
    }

    #[test]
    fn a_row_that_was_not_run_is_no_pass() {
        for case in CASES {
            let (markdown, json) = report(case, |_| None);
            assert_eq!(case.wrong(Some(0), &markdown, &json), [""; 0], "{}", case.name);
            for (title, allowed) in case.sections {
                for other in ["ok", "fail", "not run"].into_iter().filter(|other| !allowed.contains(other)) {
                    let (markdown, json) = report(case, |section| (section == *title).then_some(other));
                    let wrong = case.wrong(Some(0), &markdown, &json);
                    assert!(wrong.len() == 1 && wrong[0].contains(title), "{wrong:?}");
                }
            }
        }
    }

    #[test]
    fn markdown_and_json_must_tell_the_same() {
        let case = &CASES[1];
        let (markdown, json) = report(case, |_| None);
        for (from, to) in [("| not run | a row of devx", "| ok | a row of devx"), ("not run: seen", "seen")] {
            let wrong = case.wrong(Some(0), &markdown.replacen(from, to, 1), &json);
            assert_eq!(wrong.len(), 1, "{wrong:?}");
        }
        for (key, value) in
            [("version", json!(2)), ("on", json!("mlx5_0 (hardware)")), ("summary", json!({}))]
        {
            let mut other = json.clone();
            other[key] = value;
            assert!(!case.wrong(Some(0), &markdown, &other).is_empty(), "{key}");
        }
        let mut other = json.clone();
        other["sections"].as_array_mut().unwrap().swap(1, 2);
        assert!(!case.wrong(Some(0), &markdown, &other).is_empty(), "the order");
        assert_eq!(case.wrong(Some(1), &markdown, &json).len(), 1);
        assert!(!case.wrong(Some(0), "", &Value::Null).is_empty());
    }
}
