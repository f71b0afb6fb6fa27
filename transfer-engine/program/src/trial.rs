//! Runs of a program by its own tests: one at a time, made again where a fault did not do what is asked for.

use crate::start::exit_status;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Times at which faults strike are wall times, and a busy machine is still at something else then: a run that does not
/// show what is asked for is made again, so often at most.
pub const RUNS: usize = 5;

/// Held by a run, so that runs do not take each other's processors.
pub fn alone() -> MutexGuard<'static, ()> {
    static RUN: Mutex<()> = Mutex::new(());
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program without what a launcher or a user may have set, on NICs in software whatever the machine has.
pub fn plain(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in
        ["SHUNT_RANK", "SHUNT_WORLD", "SHUNT_FABRIC", "SHUNT_GIVE_UP", "SHUNT_SECRET", "SHUNT_SECRET_FILE"]
    {
        command.env_remove(name);
    }
    command.env("SHUNT_NIC", "soft");
    command
}

/// What came of the ends of a job that was started by hand, by number. `meet`: where they find each other, a port of
/// this machine, and on a fabric of its own.
///
/// # Panics
/// One does not start.
pub fn job(meet: u16, ends: impl IntoIterator<Item = Command>) -> Vec<Output> {
    let mut ends: Vec<Command> = ends.into_iter().collect();
    let world = ends.len().to_string();
    let start = |(rank, end): (usize, &mut Command)| {
        end.envs([("SHUNT_RANK", &rank.to_string()), ("SHUNT_WORLD", &world)]);
        end.env("SHUNT_ROOT", format!("127.0.0.1:{meet}")).env("SHUNT_FABRIC", format!("job-{meet}"));
        end.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    };
    let started: Vec<_> = ends.iter_mut().enumerate().map(start).collect();
    started.into_iter().map(|end| end.wait_with_output().expect("its end")).collect()
}

/// What came of the ends that are left of a job of three, by number, after one was killed two seconds after its start.
/// The first of them speaks for all.
///
/// # Panics
/// One does not start, another one speaks, or the verdict is not `peer lost`.
pub fn left_of_killed(meet: u16, killed: usize, program: &str, line: &str) -> Value {
    let ends = (0..3).map(|end| {
        let mut command = plain(if end == killed { "timeout" } else { program });
        if end == killed {
            command.args(["--signal=KILL", "2", program]);
        }
        command.args(line.split_whitespace());
        command
    });
    let mut left = job(meet, ends);
    left.remove(killed);
    let told: Vec<_> = left.iter().map(|end| (end.status.code(), end.stdout.is_empty())).collect();
    let all: String = left.iter().map(said).collect();
    assert_eq!(told, [(Some(3), false), (Some(3), true)], "{all}");
    let object = verdict(&left[0]);
    assert_eq!(object["verdict"].as_str(), Some("peer lost"), "{all}");
    object
}

/// All that a run said.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The last line that it said on standard error.
pub fn last_word(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

/// Its verdict.
///
/// # Panics
/// It printed something else.
pub fn verdict(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("one object: {}", said(output)))
}

/// A number of a verdict.
///
/// # Panics
/// There is none of this name.
pub fn number(verdict: &Value, field: &str) -> u64 {
    verdict[field].as_u64().unwrap_or_else(|| panic!("{field}: expected a number in {verdict}"))
}

/// Looks that each of these numbers is 0.
///
/// # Panics
/// One is not.
pub fn all_zero(verdict: &Value, fields: &[&str]) {
    for field in fields {
        assert_eq!(number(verdict, field), 0, "{field} in {verdict}");
    }
}

/// Whether there are faults, and each has struck.
pub fn all_hit(verdict: &Value) -> bool {
    let faults = verdict["faults"].as_array().map(Vec::as_slice).unwrap_or_default();
    !faults.is_empty() && faults.iter().all(|fault| number(fault, "hits") > 0)
}

/// The first run whose verdict is this word and shows what is asked for. `always` looks at each: what a run got wrong
/// is never excused.
///
/// # Panics
/// None of [`RUNS`] does; one has another exit status than its verdict stands for.
pub fn first(
    word: &str,
    mut run: impl FnMut() -> Output,
    always: impl Fn(&Value),
    shown: impl Fn(&Value) -> bool,
) -> Value {
    let mut last = String::new();
    for _ in 0..RUNS {
        let output = run();
        let object = verdict(&output);
        last = said(&output);
        always(&object);
        if object["verdict"] == word && shown(&object) {
            assert_eq!(output.status.code(), Some(exit_status(word).into()), "{last}");
            return object;
        }
    }
    panic!("{word}: expected a run that shows it in one of {RUNS}, got {last}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn run(text: &str, status: i32) -> Output {
        let line = format!("printf '%s' '{text}'; exit {status}");
        Command::new("sh").args(["-c", &line]).output().expect("a shell")
    }

    #[test]
    fn runs_are_made_again_until_one_shows_what_is_asked_for() {
        let made = Cell::new(0);
        let next = || {
            made.set(made.get() + 1);
            run(&format!("{{\"verdict\": \"clean\", \"hits\": {}}}", made.get() / 3), 0)
        };
        let object = first("clean", next, |_| (), |object| number(object, "hits") > 0);
        assert_eq!((number(&object, "hits"), made.get()), (1, 3));
    }

    #[test]
    #[should_panic(expected = "wrong in")]
    fn what_a_run_got_wrong_is_not_excused() {
        let bad = || run("{\"verdict\": \"broken\", \"wrong\": 1}", 1);
        first("clean", bad, |object| all_zero(object, &["wrong"]), |_| true);
    }

    #[test]
    #[should_panic(expected = "expected a run that shows it in one of 5")]
    fn a_run_that_never_shows_it_is_no_success() {
        first("clean", || run("{\"verdict\": \"not exercised\"}", 1), |_| (), |_| true);
    }

    #[test]
    #[should_panic(expected = "left: Some(1)")]
    fn an_exit_status_must_be_the_verdicts() {
        first("clean", || run("{\"verdict\": \"clean\"}", 1), |_| (), |_| true);
    }
}
