//! `shunt verbs status`: where each queue pair is, how often it moved, and what is unprotected and why.

use crate::print::{self, columns};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_json::Kind;
use shunt_verbs::status::{PairReport, Report, all, forget_ended};
use std::time::UNIX_EPOCH;

/// Print where each queue pair of this user's programs is, and what is unprotected and why.
#[derive(Args)]
#[command(after_help = "Exit status: 0, 1 a queue pair is lost or the reports cannot be read, 2 bad usage.")]
pub struct Arguments {
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// Remove the reports of programs that have ended, once they are printed
    #[arg(long)]
    forget: bool,
}

/// What `shunt verbs status --json` writes.
#[derive(JsonSchema, Serialize)]
struct Programs {
    programs: Vec<Program>,
}

impl Kind for Programs {
    const NAME: &'static str = "shunt-verbs-status";
    const VERSION: u32 = 1;
}

/// One program.
#[derive(JsonSchema, Serialize)]
struct Program {
    /// It runs.
    alive: bool,
    #[serde(flatten)]
    report: Report,
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let found = match all() {
        Ok(found) => found,
        Err(error) => {
            shunt_host::complain!("error: the reports of programs: {error}");
            return 1;
        }
    };
    let lost = found.iter().flat_map(|(report, _)| &report.pairs).any(|pair| pair.state == "lost");
    let out = if arguments.json {
        let programs = found.into_iter().map(|(report, alive)| Program { alive, report });
        print::document(Programs { programs: programs.collect() })
    } else {
        as_text(&found)
    };
    if arguments.forget
        && let Err(error) = forget_ended()
    {
        shunt_host::complain!("error: the reports of programs: {error}");
    }
    print::stdout(&out, lost as u8)
}

fn as_text(found: &[(Report, bool)]) -> String {
    if found.is_empty() {
        return "no program has run under `shunt verbs run`\n".into();
    }
    let heads = ["PID", "QP", "DEVICE", "STATE", "ON", "BACKUP", "SWITCHES", "REPLAYED", "WHY"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let mut notes = String::new();
    let now_unix_ns = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    for (report, alive) in found {
        let end = if *alive { "" } else { " (ended)" };
        notes += &format!("{}{end}, {}: {}\n", report.pid, report.mode, report.command);
        if report.mode == "observe" {
            notes += &format!("  {} posts, {} polls\n", report.posts, report.polls);
        }
        rows.extend(report.pairs.iter().map(|pair| row(report.pid, pair, now_unix_ns)));
    }
    if rows.len() == 1 {
        return notes;
    }
    columns(&rows, "") + "\n" + &notes
}

fn row(pid: u32, pair: &PairReport, now_unix_ns: u64) -> Vec<String> {
    let PairReport { qpn, device, state, on, backup, switches, replayed, why, since_unix_ns } = pair;
    let qpn = format!("{qpn:#x}");
    let mut cells = vec![pid.to_string(), qpn];
    cells.extend([device, state, on, backup].map(Clone::clone));
    let since = if state == "connecting" { lasts(*since_unix_ns, now_unix_ns) } else { String::new() };
    cells.extend([switches.to_string(), replayed.to_string(), format!("{why}{since}")]);
    cells
}

/// ` (12 s so far)` where the beginning is known.
fn lasts(since_unix_ns: u64, now_unix_ns: u64) -> String {
    match since_unix_ns {
        0 => String::new(),
        since => format!(" ({} s so far)", now_unix_ns.saturating_sub(since) / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue pair that waits says for what and how long; no other has a time.
    #[test]
    fn who_is_connecting_says_for_how_long() {
        let pair = |state: &str, since_unix_ns| PairReport {
            state: state.into(),
            why: "a reason".into(),
            since_unix_ns,
            ..PairReport::default()
        };
        let why = |pair: &PairReport| row(1, pair, 15_900_000_000).pop().unwrap();
        assert_eq!(why(&pair("connecting", 3_000_000_000)), "a reason (12 s so far)");
        assert_eq!(why(&pair("connecting", 0)), "a reason");
        assert_eq!(why(&pair("ended", 3_000_000_000)), "a reason");
    }

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Programs::NAME, &shunt_json::schema::<Programs>());
    }
}
