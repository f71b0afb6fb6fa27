//! Rows that need other programs: the devx check, and two processes over one rail, over two, over one that goes down.

use super::child::{self, Scratch, sibling};
use serde_json::Value;
use shunt_doctor::first_day::{Outcome, Row};
use std::path::Path;
use std::time::Duration;

/// Longest a program runs beyond what it was asked for.
const LIMIT: Duration = Duration::from_secs(60);

/// Rails of the run whose first port goes down: one is left.
const TOGGLED_RAILS: usize = 2;

/// What the rows of two processes stand on.
pub struct Plan<'a> {
    /// NICs.
    pub devices: usize,
    /// They are the interposer's.
    pub soft: bool,
    /// Commands that take the port down and up.
    pub toggle: Option<(&'a str, &'a str)>,
    /// Length of each stream.
    pub duration_ms: u64,
}

/// A row that needs a NIC where there is none.
pub fn no_nic(name: &str) -> Row {
    Row::new(name, Outcome::NotRun, "no RDMA device that may be used")
        .todo("the rows of the machine say what is missing")
}

fn no_program(name: &str, why: String) -> Row {
    Row::new(name, Outcome::NotRun, why).todo("`cargo build --release` makes it; carry it in the same folder")
}

fn broken(name: &str, error: std::io::Error) -> Row {
    Row::new(name, Outcome::Fail, format!("a program could not be run: {error}"))
        .todo("space and rights of the folder for temporary files, and of the program")
}

/// `shunt-devx-check` on all devices.
pub fn devx_check(devices: &[&str]) -> Row {
    const NAME: &str = "shunt-devx-check";
    if devices.len() < 2 {
        return Row::new(NAME, Outcome::NotRun, format!("expected 2 NICs or more, got {}", devices.len()))
            .todo("a machine with two ports that reach each other; the rows below look at each NIC alone");
    }
    let program = match sibling(NAME) {
        Ok(program) => program,
        Err(why) => return no_program(NAME, why),
    };
    let arguments: Vec<String> = devices.iter().map(|device| (*device).to_owned()).collect();
    let ended = Scratch::new().and_then(|scratch| child::run(&program, &arguments, LIMIT, &scratch));
    match ended {
        Err(error) => broken(NAME, error),
        Ok(ended) if ended.status.is_some_and(|status| status.success()) => {
            Row::new(NAME, Outcome::Ok, ended.last)
        }
        Ok(ended) => Row::new(NAME, Outcome::Fail, ended.words())
            .todo("its last line names the device and the step; send this report"),
    }
}

/// Nothing is taken down, one rail.
pub fn one_rail(plan: &Plan<'_>) -> Row {
    quiet("two processes over one rail", plan, 1)
}

/// Nothing is taken down, two rails.
pub fn two_rails(plan: &Plan<'_>) -> Row {
    quiet("two processes over two rails", plan, 2)
}

fn quiet(name: &str, plan: &Plan<'_>, rails: usize) -> Row {
    stream(name, plan, rails, &["--watch".to_owned()], |result| {
        let left = number(result, "failovers");
        if left == 0 {
            return (Outcome::Ok, String::new());
        }
        let why = if result["oversubscribed"] == Value::Bool(true) {
            "fewer cores than threads: a process that does not run looks silent"
        } else {
            "look at the port's counters and at PFC; send this report"
        };
        (Outcome::Warn, format!("paths were left {left} times although nothing was taken down: {why}"))
    })
}

/// The first rail's port of process 0 goes down and comes back.
pub fn toggled(plan: &Plan<'_>) -> Row {
    const NAME: &str = "a port toggled";
    if plan.devices < TOGGLED_RAILS {
        // The only port would be down for longer than the give-up time: a healthy machine would fail.
        return too_few(
            NAME,
            TOGGLED_RAILS,
            plan.devices,
            "with fewer no path is left to go to; add a second port",
        );
    }
    let (down, up) = match plan.toggle {
        Some((down, up)) => (format!("exec={down}"), format!("exec={up}")),
        None if plan.soft => ("down".into(), "up".into()),
        None => {
            let met = "expected commands that take the first rail's port down and up, got none";
            return Row::new(NAME, Outcome::NotRun, met)
                .todo("as root: --toggle 'ip link set NETDEV down' --untoggle 'ip link set NETDEV up'");
        }
    };
    let (first, second) = (plan.duration_ms / 4, plan.duration_ms / 2);
    let faults = [
        "--inject".to_owned(),
        format!("{first}ms:0.0:{down}"),
        "--inject".into(),
        format!("{second}ms:0.0:{up}"),
    ];
    stream(NAME, plan, TOGGLED_RAILS, &faults, judge_toggle)
}

/// A port that went down without anybody's notice was not the one that carried the stream.
fn judge_toggle(result: &Value) -> (Outcome, String) {
    match number(result, "failovers") {
        0 => (
            Outcome::Fail,
            "expected a path to be left, got none: give the commands of the first rail's port (see `shunt topology`)"
                .into(),
        ),
        _ => (Outcome::Ok, String::new()),
    }
}

/// A row that needs more NICs than there are.
fn too_few(name: &str, wanted: usize, met: usize, todo: &str) -> Row {
    Row::new(name, Outcome::NotRun, format!("expected {wanted} NICs or more, got {met}")).todo(todo)
}

fn number(result: &Value, name: &str) -> u64 {
    result[name].as_u64().unwrap_or(0)
}

/// Starts the stream as two processes and reads its result; `judge` is asked where the verdict is clean.
fn stream(
    name: &str,
    plan: &Plan<'_>,
    rails: usize,
    more: &[String],
    judge: impl FnOnce(&Value) -> (Outcome, String),
) -> Row {
    if plan.devices < rails || plan.devices == 0 {
        return too_few(name, rails, plan.devices, "the rows of the machine say which ports may be used");
    }
    let program = match sibling("shmem_put_bw") {
        Ok(program) => program,
        Err(why) => return no_program(name, why),
    };
    let attempt = || {
        let scratch = Scratch::new()?;
        let file = scratch.file("result.json");
        let arguments = arguments(&program, &file, plan.duration_ms, rails, more);
        let limit = LIMIT + Duration::from_millis(plan.duration_ms);
        let ended = child::run(&std::env::current_exe()?, &arguments, limit, &scratch)?;
        let result = std::fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        Ok((ended, result.unwrap_or(Value::Null)))
    };
    let (ended, result) = match attempt() {
        Ok(done) => done,
        Err(error) => return broken(name, error),
    };
    let success = ended.status.is_some_and(|status| status.success());
    if !success || result["verdict"] != "clean" {
        let verdict = result["verdict"].as_str().unwrap_or("none written");
        return Row::new(name, Outcome::Fail, format!("verdict: {verdict}; {}", ended.words()))
            .todo("send this report; the last lines say what was refused or lost");
    }
    let (outcome, todo) = judge(&result);
    Row::new(name, outcome, told(&result)).todo(todo)
}

fn arguments(program: &Path, file: &Path, duration_ms: u64, rails: usize, more: &[String]) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (rails, duration) = (rails.to_string(), format!("{duration_ms}ms"));
    let (program, file) = (text(program), text(file));
    let start = ["run", "-n", "2", "--", &program, "--nic", "mlx5", "-n", "0", "--rails", &rails];
    let end = ["--duration", &duration, "--json", &file];
    start.into_iter().chain(end).map(str::to_owned).chain(more.iter().cloned()).collect()
}

/// The result in one line.
fn told(result: &Value) -> String {
    let count = |name| number(result, name);
    format!(
        "verdict clean: {} bytes delivered, {} puts lost, {} order violations, {} ghost writes, {} duplicated signals, \
         {} failovers, {} switch-backs, longest gap {:.1} ms; {}",
        count("bytes_delivered"),
        count("puts_lost"),
        count("order_violations"),
        count("ghost_writes"),
        count("signals_duplicated"),
        count("failovers"),
        count("switchbacks"),
        result["max_gap_us"].as_f64().unwrap_or(0.0) / 1e3,
        result["clock"].as_str().unwrap_or("clock not named")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(devices: usize) -> Plan<'static> {
        Plan { devices, soft: true, toggle: Some(("false", "false")), duration_ms: 1 }
    }

    #[test]
    fn one_nic_is_not_taken_down_and_says_why() {
        for devices in [0, 1] {
            for row in [toggled(&plan(devices)), two_rails(&plan(devices))] {
                assert_eq!(row.outcome, Outcome::NotRun, "{row:?}");
                assert_eq!(row.met, format!("expected 2 NICs or more, got {devices}"));
                assert!(!row.todo.is_empty());
            }
        }
    }

    #[test]
    fn hardware_without_a_command_is_not_toggled() {
        let row = toggled(&Plan { soft: false, toggle: None, ..plan(2) });
        assert!(row.outcome == Outcome::NotRun && row.todo.contains("--toggle"), "{row:?}");
    }

    #[test]
    fn a_toggle_that_nobody_noticed_fails() {
        assert_eq!(judge_toggle(&json!({ "failovers": 0 })).0, Outcome::Fail);
        assert_eq!(judge_toggle(&json!({})).0, Outcome::Fail);
        assert_eq!(judge_toggle(&json!({ "failovers": 1 })).0, Outcome::Ok);
    }
}
