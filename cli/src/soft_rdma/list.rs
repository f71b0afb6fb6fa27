//! `shunt soft-rdma list`: who has soft devices, and how they are.

use super::fabric::alive;
use crate::print::{self, columns};
use crate::run::fabric_name;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_json::Kind;
use shunt_soft_machine::control::{FaultView, NicView, ProcessView, fabrics};
use shunt_soft_nic::fault::format_time;
use std::fmt::Write;

/// Show the programs with soft devices, their NICs, what these counted, and their faults.
#[derive(Args)]
#[command(after_help = "\
HITS says how often a fault changed anything: one with 0 has not struck yet, or nothing came its way.
Exit status: 0, also if there is none; 1 if a program does not answer.")]
pub struct Arguments {
    /// This fabric alone [default: all]
    #[arg(long, value_name = "NAME", value_parser = fabric_name)]
    fabric: Option<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What `shunt soft-rdma list --json` writes.
#[derive(JsonSchema, Serialize)]
struct Processes {
    processes: Vec<Found>,
}

impl Kind for Processes {
    const NAME: &'static str = "shunt-soft-rdma";
    const VERSION: u32 = 1;
}

/// One process.
#[derive(JsonSchema, Serialize)]
struct Found {
    fabric: String,
    #[serde(flatten)]
    process: ProcessView,
    faults: Vec<FaultView>,
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let names = arguments.fabric.clone().map_or_else(fabrics, |name| vec![name]);
    let (mut found, mut status) = (Vec::new(), 0);
    for fabric in names {
        for (process, mut client) in alive(&fabric) {
            match client.nics().and_then(|view| Ok((view, client.faults()?))) {
                Ok((process, faults)) => found.push(Found { fabric: fabric.clone(), process, faults }),
                Err(error) => {
                    shunt_host::complain!("error: process {} of fabric {fabric}: {error}", process.pid);
                    status = 1;
                }
            }
        }
    }
    let text = match arguments.json {
        true => print::document(Processes { processes: found }),
        // A process that did not answer has devices, and was named.
        false if found.is_empty() && status != 0 => String::new(),
        false if found.is_empty() => nobody(arguments.fabric.as_deref()),
        false => table(&found),
    };
    print::stdout(&text, status)
}

fn nobody(fabric: Option<&str>) -> String {
    let (place, option) = match fabric {
        Some(name) => (format!(" in fabric {name}"), format!(" --fabric {name}")),
        None => (String::new(), String::new()),
    };
    format!("no program has soft RDMA devices{place}; `shunt soft-rdma run{option} -- PROG` starts one\n")
}

fn table(found: &[Found]) -> String {
    let head =
        ["FABRIC", "PID", "PROGRAM", "NIC", "GID", "PORT", "RATE", "SENT", "RECEIVED", "AGAIN", "DROPPED"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in found {
        for nic in &one.process.nics {
            let process = match nic.index {
                0 => [one.fabric.clone(), one.process.pid.to_string(), one.process.program.clone()],
                _ => [const { String::new() }; 3],
            };
            rows.push(process.into_iter().chain(nic_columns(nic)).collect());
        }
    }
    // Of devices that keep no order, how often they did not.
    if found.iter().flat_map(|one| &one.process.nics).any(|nic| nic.counters.reordered > 0) {
        rows[0].push("REORDERED".into());
        let nics = found.iter().flat_map(|one| &one.process.nics);
        rows[1..].iter_mut().zip(nics).for_each(|(row, nic)| row.push(nic.counters.reordered.to_string()));
    }
    let mut out = columns(&rows, "");
    let faults: Vec<Vec<String>> = found
        .iter()
        .flat_map(|one| one.faults.iter().map(|fault| fault_columns(&one.process, fault)))
        .collect();
    if !faults.is_empty() {
        let head = vec![["PID", "NIC", "FAULT", "NUMBER", "WHEN", "HITS"].map(str::to_owned).to_vec()];
        // Writing to a string cannot fail.
        let _ = write!(out, "\n{}", columns(&[head, faults].concat(), ""));
    }
    out
}

fn nic_columns(nic: &NicView) -> [String; 8] {
    let counted = &nic.counters;
    [
        nic.name.clone(),
        nic.gid.clone(),
        if nic.up { "ACTIVE".into() } else { "DOWN".into() },
        nic.rate.split(" (").next().unwrap_or_default().to_owned(),
        bytes(counted.bytes_tx),
        bytes(counted.bytes_rx),
        counted.retransmits.to_string(),
        counted.dropped.to_string(),
    ]
}

fn fault_columns(process: &ProcessView, fault: &FaultView) -> Vec<String> {
    // Whole milliseconds are as much as anybody reads.
    let rounded = |ns: u64| format_time(ns / 1_000_000 * 1_000_000);
    let when = match fault.at_ns.checked_sub(process.now_ns) {
        _ if fault.at_ns == u64::MAX => "waits".to_owned(),
        Some(left) if left > 0 => format!("in {}", rounded(left)),
        _ => format!("{} ago", rounded(process.now_ns - fault.at_ns)),
    };
    vec![
        process.pid.to_string(),
        process.nics.get(fault.nic as usize).map_or(fault.nic.to_string(), |nic| nic.name.clone()),
        fault.fault.clone(),
        fault.id.to_string(),
        when,
        fault.hits.to_string(),
    ]
}

/// Bytes in a unit that leaves a number of at most four digits.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 9999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.0} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Processes::NAME, &shunt_json::schema::<Processes>());
    }

    #[test]
    fn bytes_have_four_digits_at_most() {
        for (count, text) in [(0, "0 B"), (9999, "9999 B"), (10_000, "10 kB"), (12_345_678, "12 MB")] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes(u64::MAX), "18447 PB");
    }

    #[test]
    fn times_of_faults_are_told_from_now() {
        let process =
            ProcessView { pid: 7, program: "x".into(), slot: 0, now_ns: 5_000_000_000, nics: Vec::new() };
        let fault =
            |at_ns| FaultView { id: 0, nic: 0, at_ns, fault: "up".into(), kind: "up".into(), hits: 0 };
        let when = |at_ns| fault_columns(&process, &fault(at_ns))[4].clone();
        assert_eq!(when(7_000_500_000), "in 2s");
        assert_eq!(when(3_500_000_000), "1500ms ago");
        assert_eq!(when(5_000_000_000), "0ns ago");
        assert_eq!(when(u64::MAX), "waits", "for packets");
    }
}
