//! The report as Markdown and as JSON.

use crate::print;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_doctor::first_day::{CommandTimes, Histogram, Outcome, Row};
use shunt_json::Kind;
use std::collections::BTreeMap;

/// Width of the longest bar.
const BAR: usize = 40;

/// Commands whose times are shown, and what they are called.
const COMMANDS: [(&str, &str); 8] = [
    ("QueryQp", "QUERY_QP"),
    ("Qp2Err", "2ERR"),
    ("CreateQp", "CREATE_QP"),
    ("Rst2InitQp", "RST2INIT"),
    ("Init2RtrQp", "INIT2RTR"),
    ("Rtr2RtsQp", "RTR2RTS"),
    ("key registration", "key registration (1 MiB)"),
    ("memory registration", "memory registration"),
];

/// Rows of one kind.
pub struct Section {
    title: &'static str,
    rows: Vec<Row>,
}

impl Section {
    /// A section.
    pub fn new(title: &'static str, rows: Vec<Row>) -> Self {
        Self { title, rows }
    }
}

/// All that was seen.
#[derive(Default)]
pub struct Report {
    /// What kind of NIC it ran on.
    pub on: String,
    /// In the order in which they were run.
    pub sections: Vec<Section>,
    /// Times of each NIC's commands.
    pub times: Vec<(String, CommandTimes)>,
    /// Each NIC's answer to QUERY_HCA_CAP.
    pub capabilities: Vec<(String, Vec<u8>)>,
}

impl Report {
    /// Rows that came to this.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.sections.iter().flat_map(|section| &section.rows).filter(|row| row.outcome == outcome).count()
    }

    /// `10 ok, 2 warn, 0 fail, 3 not run`.
    pub fn summary(&self) -> String {
        Outcome::ALL.map(|outcome| format!("{} {outcome}", self.count(outcome))).join(", ")
    }

    /// For people.
    pub fn markdown(&self) -> String {
        let titles: Vec<&str> = self.sections.iter().map(|section| section.title).collect();
        let mut out = format!(
            "# First day on a machine\n\nThis report contains: {}. Shunt {}. Addresses and names of this machine's \
             devices are in it.\n\n\
             Run on: {}\n\nSummary: {}\n\n`ok`: as it should be. `warn`: it works, less well than \
             it could. `fail`: it does not work. `not run`: not known, which is not a pass.\n",
            titles.join("; "),
            env!("CARGO_PKG_VERSION"),
            cell(&self.on),
            self.summary()
        );
        for (section, number) in self.sections.iter().zip(1..) {
            out += &format!("\n## {number}. {}\n\n| result | what | seen | to do |\n", section.title);
            out += "| --- | --- | --- | --- |\n";
            for row in &section.rows {
                let (name, met, todo) = (cell(&row.name), cell(&row.met), cell(&row.todo));
                let met = if row.outcome == Outcome::NotRun { format!("not run: {met}") } else { met };
                out += &format!("| {} | {name} | {met} | {todo} |\n", row.outcome);
            }
            if section.title == "command times" {
                self.times.iter().for_each(|(nic, times)| out += &histograms(nic, times));
            }
        }
        out
    }

    /// For programs.
    pub fn json(&self) -> String {
        let row = |row: &Row| RowJson {
            name: row.name.clone(),
            result: row.outcome.to_string(),
            seen: row.met.clone(),
            to_do: row.todo.clone(),
        };
        let section = |section: &Section| SectionJson {
            title: section.title,
            rows: section.rows.iter().map(row).collect(),
        };
        let count = |outcome: &Outcome| (outcome.to_string().replace(' ', "_"), self.count(*outcome));
        let nics = self.times.iter().zip(&self.capabilities).map(|((nic, times), (_, bytes))| NicJson {
            name: nic.clone(),
            query_hca_cap_hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            command_times_ns: times.clone(),
        });
        print::document(FirstDay {
            on: self.on.clone(),
            summary: Outcome::ALL.iter().map(count).collect(),
            sections: self.sections.iter().map(section).collect(),
            nics: nics.collect(),
        })
    }
}

/// What `shunt doctor --first-day` writes beside its report.
#[derive(JsonSchema, Serialize)]
struct FirstDay {
    /// What kind of NIC it ran on.
    on: String,
    /// Rows by result.
    summary: BTreeMap<String, usize>,
    sections: Vec<SectionJson>,
    nics: Vec<NicJson>,
}

impl Kind for FirstDay {
    const NAME: &'static str = "shunt-first-day";
    const VERSION: u32 = 1;
}

#[derive(JsonSchema, Serialize)]
struct SectionJson {
    title: &'static str,
    rows: Vec<RowJson>,
}

#[derive(JsonSchema, Serialize)]
struct RowJson {
    name: String,
    /// `ok`, `warn`, `fail` or `not run`.
    result: String,
    seen: String,
    to_do: String,
}

#[derive(JsonSchema, Serialize)]
struct NicJson {
    name: String,
    /// Its answer to QUERY_HCA_CAP.
    query_hca_cap_hex: String,
    /// By command, nanoseconds of each call.
    command_times_ns: CommandTimes,
}

/// Text that stays within a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn histograms(nic: &str, times: &CommandTimes) -> String {
    let mut out = format!("\n### {nic}\n\nWall time from the call to the answer.\n\n```\n");
    for (key, name) in COMMANDS {
        let Some(shape) = times.get(key).and_then(|samples| Histogram::of(samples)) else {
            out += &format!("{name}: not run: this NIC was not asked for it\n");
            continue;
        };
        let us = |ns: u64| ns as f64 / 1e3;
        out += &format!(
            "{name}: {} samples, p50 {:.1} us, p90 {:.1} us, p99 {:.1} us, max {:.1} us\n",
            shape.count,
            us(shape.p50),
            us(shape.p90),
            us(shape.p99),
            us(shape.max)
        );
        let most = shape.classes.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        for (end, count) in &shape.classes {
            let class = end.map_or("      more".into(), |end| format!("<= {end:>6}"));
            out += format!("  {class} us {count:>6} {}", "#".repeat((count * BAR).div_ceil(most))).trim_end();
            out.push('\n');
        }
    }
    out + "```\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(FirstDay::NAME, &shunt_json::schema::<FirstDay>());
    }

    #[test]
    fn what_was_not_run_never_reads_as_a_pass_and_each_kind_is_counted() {
        let rows = vec![
            Row::new("a", Outcome::Ok, "x | y"),
            Row::new("b", Outcome::NotRun, "why").todo("do"),
            Row::new("c", Outcome::Fail, "seen"),
        ];
        let report = Report { sections: vec![Section::new("one", rows)], ..Report::default() };
        assert_eq!(report.summary(), "1 ok, 0 warn, 1 fail, 1 not run");
        let text = report.markdown();
        for line in
            ["| ok | a | x \\| y |  |", "| not run | b | not run: why | do |", "| fail | c | seen |  |"]
        {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        let data: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(shunt_json::errors(&data), "");
        assert_eq!(data["summary"], json!({ "ok": 1, "warn": 0, "fail": 1, "not_run": 1 }));
    }
}
