//! `verbs_check`: two processes on soft NICs under `shunt verbs run`, faults at either, and what came of every message:
//! by this library's rule, and by that of the SHIFT paper beside it.
//!
//! Both processes are `shunt-verbs-count`. The first connects, and adds where that is asked for; the second listens.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::Value;
use std::fmt::Display;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Sends numbered messages both ways on soft NICs while ports fail, by the exact rule and by the paper's.
///
/// Exit status: 0 by the exact rule nothing is lost, doubled, out of order, wrong or written again, and every fault hit
/// something; 1 that does not hold; 2 it could not be run.
///
/// An atomic whose answer is lost is one error, unless SHUNT_VERBS_ATOMIC_ANSWER is any. Atomics go to any NIC, unless
/// SHUNT_VERBS_ATOMICS says otherwise.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// What is posted beside WRITEs: of send, write-imm, read and fetch-add, with commas; send is among them
    #[arg(long, default_value = "send,write-imm,read,fetch-add", value_name = "LIST")]
    ops: String,
    /// A fault: so long after a process opens a device, at which process (0 or 1) and NIC, and what; repeatable
    #[arg(long, value_name = "TIME:PROCESS.NIC:FAULT", default_values = ["300ms:0.0:drop-acks", "600ms:1.0:down"])]
    inject: Vec<Fault>,
    /// How long messages are sent
    #[arg(long, default_value_t = 4.0, value_name = "SECONDS")]
    seconds: f64,
    /// NICs of each process
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=8))]
    nics: u32,
    /// How long a process may take
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    patience: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Fault {
    process: usize,
    /// As `shunt soft-rdma run --fault` has it.
    at_its_nic: String,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected TIME:PROCESS.NIC:FAULT, as 300ms:0.0:drop-acks, got {text:?}");
        let (when, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (place, fault) = rest.split_once(':').ok_or_else(wrong)?;
        let (process, nic) = place.split_once('.').ok_or_else(wrong)?;
        let process = process.parse().ok().filter(|process| *process < 2).ok_or_else(wrong)?;
        let nic: u32 = nic.parse().map_err(|_| wrong())?;
        Ok(Self { process, at_its_nic: format!("{when}:mlx5_{nic}:{fault}") })
    }
}

/// What both processes said, summed.
#[derive(Default)]
struct Found {
    counts: [u64; COLUMNS.len()],
    /// What the first error is of.
    named: String,
    /// Faults that hit something.
    hits: usize,
    /// Moves of queue pairs.
    switches: u64,
}

/// The status of a process that did not begin, or has no result.
const REFUSED: i32 = 2;

const COLUMNS: [&str; 10] =
    ["sent", "received", "reads", "adds", "lost", "doubled", "order", "wrong", "ghost", "errors"];

impl Found {
    fn sum(&self, of: &[&str]) -> u64 {
        COLUMNS.iter().zip(self.counts).filter(|(name, _)| of.contains(name)).map(|(_, count)| count).sum()
    }

    /// What the exact rule promises: an atomic whose answer was lost is one error, and counted once.
    fn holds(&self) -> bool {
        let errors = self.sum(&["errors"]);
        let told = errors == 0 || errors == 1 && self.named == "add";
        told && self.sum(&["lost", "doubled", "order", "wrong", "ghost"]) == 0 && self.sum(&["received"]) > 0
    }
}

/// Kills what it holds when the check ends early.
struct Side(Child);

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where programs are, and a runtime folder of this check alone.
struct Place {
    beside: PathBuf,
    folder: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Place {
    fn new() -> Result<Self> {
        let beside = std::env::current_exe()?.parent().context("no folder of this program")?.to_owned();
        for file in ["shunt", "shunt-verbs-count", "libshunt_verbs.so", "libshunt_soft_rdma.so"] {
            let file = beside.join(file);
            ensure!(file.is_file(), "{}: expected it beside this program, got none", file.display());
        }
        let shared = PathBuf::from("/dev/shm");
        let of = if shared.is_dir() { shared } else { std::env::temp_dir() };
        let folder = of.join(format!("verbs-check-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { beside, folder })
    }

    fn shunt(&self) -> Command {
        let mut command = Command::new(self.beside.join("shunt"));
        command.env("XDG_RUNTIME_DIR", &self.folder).stdin(Stdio::null());
        command
    }

    fn said(&self, name: impl Display) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.join(name.to_string()))?)
    }

    /// Process 0 connects, process 1 listens.
    fn start(&self, options: &Options, rule: &str, process: usize, port: u16) -> Result<Side> {
        let (nics, fabric, seconds) = (options.nics.to_string(), fabric(rule), options.seconds.to_string());
        let mut command = self.shunt();
        command.args(["soft-rdma", "run", "--nics", &nics, "--fabric", &fabric]);
        for fault in options.inject.iter().filter(|fault| fault.process == process) {
            command.args(["--fault", &fault.at_its_nic]);
        }
        command.arg("--").arg(self.beside.join("shunt")).args(["verbs", "run", "--"]);
        let count = self.beside.join("shunt-verbs-count");
        command.arg(count).args(["--seconds", &seconds, "--ops", &options.ops]);
        if options.ops.contains("fetch-add")
            && variable("SHUNT_VERBS_ATOMIC_ANSWER").is_some_and(|one| one == "any")
        {
            // An answer that was lost brings no number to look at.
            command.args(["--adds", "blind"]);
        }
        match process {
            0 => command.args(["--connect", &format!("127.0.0.1:{port}")]),
            _ => command.args(["--listen", &port.to_string()]),
        };
        if variable("SHUNT_VERBS_ATOMICS").is_none() {
            // One queue pair alone changes each word.
            command.env("SHUNT_VERBS_ATOMICS", "move");
        }
        let out = File::create(self.folder.join(format!("{rule}.{process}")))?;
        command.env("SHUNT_VERBS_RULE", rule).stderr(out.try_clone()?).stdout(out);
        Ok(Side(command.spawn().with_context(|| format!("cannot start {command:?}"))?))
    }

    /// Faults of a fabric that have hit: none while no process answers.
    fn hits(&self, rule: &str) -> Result<usize> {
        let said = self.shunt().args(["soft-rdma", "list", "--json", "--fabric", &fabric(rule)]).output()?;
        Ok(numbers(&String::from_utf8_lossy(&said.stdout), "hits").filter(|hits| *hits > 0).count())
    }

    fn run(&self, options: &Options, rule: &str) -> Result<Found> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let until = Instant::now() + Duration::from_secs(options.patience);
        let mut sides = [self.start(options, rule, 1, port)?, self.start(options, rule, 0, port)?];
        let mut found = Found::default();
        loop {
            found.hits = found.hits.max(self.hits(rule)?);
            let ended: Vec<_> = sides.iter_mut().map(|side| side.0.try_wait()).collect::<Result<_, _>>()?;
            // The other one would wait for it.
            let refused =
                |status: &Option<ExitStatus>| status.is_some_and(|status| status.code() == Some(REFUSED));
            if let Some(at) = ended.iter().position(refused) {
                let process = 1 - at;
                bail!(
                    "{rule}: process {process}: expected a result, got: {}",
                    self.said(format!("{rule}.{process}"))?.trim()
                );
            }
            if ended.iter().all(Option::is_some) {
                break;
            }
            if Instant::now() > until {
                bail!(
                    "{rule}: expected both processes to end within {} s, got {ended:?}; --patience gives them longer",
                    options.patience
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        for process in 0..2 {
            let said = self.said(format!("{rule}.{process}"))?;
            let line: Value = said
                .lines()
                .find_map(|line| serde_json::from_str(line).ok())
                .with_context(|| format!("{rule}: process {process} said: {said}"))?;
            for (count, name) in found.counts.iter_mut().zip(COLUMNS) {
                *count += line[name].as_u64().unwrap_or_default();
            }
            found.named += line["named"].as_str().unwrap_or_default();
        }
        let status = self.shunt().args(["verbs", "status", "--json", "--forget"]).output()?;
        found.switches = numbers(&String::from_utf8_lossy(&status.stdout), "switches").sum();
        Ok(found)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn fabric(rule: &str) -> String {
    format!("verbs-check-{}-{rule}", std::process::id())
}

/// All numbers of this name in a text of JSON.
fn numbers<'t>(text: &'t str, name: &str) -> impl Iterator<Item = u64> + 't {
    fn walk(value: &Value, name: &str, found: &mut Vec<u64>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                found.extend(value.as_u64().filter(|_| key == name));
                walk(value, name, found);
            }),
            Value::Array(list) => list.iter().for_each(|value| walk(value, name, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::from_str(text) {
        walk(&value, name, &mut found);
    }
    found.into_iter()
}

fn check(options: &Options) -> Result<bool> {
    let place = Place::new()?;
    print!("{:6}", "rule");
    COLUMNS.iter().for_each(|name| print!(" {name:>9}"));
    println!("  {:>8}  faults that hit", "switches");
    let mut holds = true;
    for rule in ["exact", "paper"] {
        let found = place.run(options, rule)?;
        print!("{rule:6}");
        found.counts.iter().for_each(|count| print!(" {count:>9}"));
        let named =
            if found.named.is_empty() { String::new() } else { format!(", error of: {}", found.named) };
        println!("  {:>8}  {} of {}{named}", found.switches, found.hits, options.inject.len());
        let exercised = found.hits == options.inject.len();
        if rule == "exact" {
            holds = found.holds() && exercised;
        }
        if !exercised {
            println!("{rule}: not exercised: a fault hit nothing");
        }
    }
    Ok(holds)
}

fn main() -> ExitCode {
    match check(&Options::parse()) {
        Ok(holds) => ExitCode::from(u8::from(!holds)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_a_process_and_a_nic() {
        let fault = |text: &str| text.parse::<Fault>();
        let at = Fault { process: 1, at_its_nic: "600ms:mlx5_0:down=2s".into() };
        assert_eq!(fault("600ms:1.0:down=2s"), Ok(at));
        for wrong in ["600ms", "600ms:down", "600ms:2.0:down", "600ms:0:down", "600ms:0.x:down"] {
            assert!(fault(wrong).is_err_and(|said| said.contains(wrong)), "{wrong}");
        }
    }

    #[test]
    fn one_error_of_an_atomic_holds_and_nothing_else_does() {
        let found =
            |counts: [u64; 10], named: &str| Found { counts, named: named.into(), ..Found::default() };
        let clean = [9, 9, 1, 4, 0, 0, 0, 0, 0, 0];
        assert!(found(clean, "").holds());
        for (at, count, named, holds) in [
            (9, 1, "add", true),
            (9, 1, "message", false),
            (9, 2, "add", false),
            (8, 1, "", false),
            (1, 0, "", false),
        ] {
            let mut counts = clean;
            counts[at] = count;
            assert_eq!(found(counts, named).holds(), holds, "{} {count} {named}", COLUMNS[at]);
        }
    }

    #[test]
    fn numbers_are_found_at_any_depth() {
        let text = r#"{"nics": [{"hits": 2, "of": [{"hits": 0}]}], "hits": "x"}"#;
        assert_eq!(numbers(text, "hits").collect::<Vec<_>>(), [2, 0]);
        assert_eq!(numbers("no JSON", "hits").count(), 0);
    }
}
