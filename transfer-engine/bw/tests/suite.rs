//! The program, run as its users run it: both ends in one process, and one a process.

use serde_json::Value;
use shunt_task::ports;
use shunt_transfer_program::trial::{all_zero, alone, first, job, last_word, number, plain, said, verdict};
use std::process::{Command, Output, Stdio};

mod fabric;
mod simulated;

fn program() -> Command {
    plain(env!("CARGO_BIN_EXE_transfer_bw"))
}

fn transfer_bw(arguments: &[&str]) -> Output {
    let _alone = alone();
    program().args(arguments).output().expect("the program starts")
}

/// What a run lost, doubled or failed is never excused where the verdict is to be clean.
fn first_with(word: &str, run: impl FnMut() -> Output, shown: impl Fn(&Value) -> bool) -> Value {
    let always = |object: &Value| {
        if word == "clean" {
            nothing_wrong(object);
        }
    };
    first(word, run, always, shown)
}

fn clean(arguments: &[&str], shown: impl Fn(&Value) -> bool) -> Value {
    first_with("clean", || transfer_bw(arguments), shown)
}

/// The port was left and taken again.
fn there_and_back(verdict: &Value) -> bool {
    number(verdict, "failovers") > 0 && number(verdict, "returns") > 0
}

fn nothing_wrong(verdict: &Value) {
    all_zero(verdict, &["pages_wrong", "imm_doubled", "imm_missing", "late_writes", "transfers_failed"]);
    assert_eq!(
        (verdict["schema"].as_str(), shunt_json::errors(verdict)),
        (Some("shunt-transfer-bw"), String::new())
    );
}

#[test]
fn a_port_that_goes_down_and_comes_back_costs_nothing_but_time() {
    let faults = ["--inject", "300ms:0.0:down", "--inject", "700ms:0.0:up"];
    for mode in ["paged", "single", "read"] {
        let arguments = [&["--mode", mode, "--duration", "2s", "--size", "64K"][..], &faults[..]].concat();
        // A busy machine may hold up a rail for so long that it is left besides.
        let rails = |verdict: &Value| rates(verdict).iter().map(|(rails, _)| *rails).collect::<Vec<_>>();
        clean(&arguments, |verdict| there_and_back(verdict) && rails(verdict) == [2, 1, 2]);
    }
}

/// Rails that worked and the rate, of each phase that was long enough for one.
fn rates(verdict: &serde_json::Value) -> Vec<(u64, f64)> {
    let phases = verdict["phases"].as_array().expect("phases");
    let rated = phases.iter().filter_map(|phase| Some((number(phase, "rails"), phase["gb_s"].as_f64()?)));
    rated.inspect(|(_, rate)| assert!(*rate > 0.0, "{verdict}")).collect()
}

/// Regression: a NIC that is gone counts nothing, and transfers ended uncertain although their receiver knew.
#[test]
fn where_the_receivers_nic_is_gone_its_own_count_says_what_arrived() {
    let fault = ["--mode", "paged", "--duration", "2s", "--size", "64K", "--inject", "500ms:1.0:nic-gone"];
    clean(&fault, |verdict| number(verdict, "failovers") > 0);
}

/// Cause: a cancelled transfer ended with a proof while its receiver's NIC had acknowledged writes that were not in
/// memory, on a lane that goes on. So did a write without an immediate, and the word that followed it was there first.
#[test]
fn what_is_acknowledged_and_lands_late_is_behind_no_proof() {
    let fault = ["--mode", "cancel", "--duration", "2s", "--inject", "100ms:1.0:placement-delay=40ms"];
    clean(&fault, |verdict| number(verdict, "cancelled") > 0 && number(verdict, "transfers") > 0);
}

#[test]
fn two_processes_go_on_by_the_other_port() {
    let arguments = ["--duration", "2s", "--inject", "300ms:0.0:down", "--inject", "900ms:0.0:up"];
    let both_ends = || {
        let _alone = alone();
        let end = || {
            let mut end = program();
            end.args(arguments);
            end
        };
        let mut ends = job(ports::free(1).expect("a port"), [end(), end()]);
        let (second, first) = (ends.pop().expect("end 1"), ends.pop().expect("end 0"));
        let told = (second.status.code(), second.stdout.len());
        assert_eq!(told, (first.status.code(), 0), "{}", said(&second));
        first
    };
    first_with("clean", both_ends, there_and_back);
}

/// Cause: an end that had given up a partner which was killed failed for want of what that had seen, without a verdict.
/// A sender that had sent all waited for its receiver's last word until its patience was over.
#[test]
fn an_end_whose_partner_was_killed_has_a_verdict() {
    let _alone = alone();
    for (killed, duration) in [(0, "20s"), (1, "2500ms")] {
        let line = ["--duration", duration];
        let ends = [0, 1].map(|end| {
            let mut command = if end == killed { plain("timeout") } else { program() };
            if end == killed {
                command.args(["--signal=KILL", "2", env!("CARGO_BIN_EXE_transfer_bw")]);
            }
            command.args(line).env("SHUNT_GIVE_UP", "3s");
            command
        });
        let ends = job(ports::free(1).expect("a port"), ends);
        // The one that is left speaks for both.
        let left = &ends[1 - killed];
        let object = verdict(left);
        let told = (left.status.code(), object["verdict"].as_str());
        assert_eq!(told, (Some(3), Some("peer lost")), "{}", said(left));
    }
}

/// Two ends that were started with other options reported immediates that came twice, or bytes that were wrong.
#[test]
fn ends_with_other_options_are_refused_at_both() {
    let _alone = alone();
    for (here, there, option) in [
        ("", "--pages 4", "--pages$: expected 8 as at end 0, got 4"),
        ("--size 4K", "", "--size$: expected 4K as at end 0, got 64K"),
        ("--mode single", "--mode cancel", "--mode$: expected single as at end 0, got cancel"),
        ("", "--table", "--table$: expected none as at end 0, got given"),
        ("--rails 1", "", "--rails$: expected 1 as at end 0, got 2"),
    ] {
        let end = |line: &str| {
            let mut end = program();
            end.args(line.split_whitespace()).args(["--duration", "100ms"]);
            end
        };
        let ends = job(ports::free(1).expect("a port"), [end(here), end(there)]);
        for (end, of) in ends.iter().zip([" of end 1", ""]) {
            let why = format!("error: {}", option.replace('$', of));
            assert_eq!((end.status.code(), last_word(end)), (Some(2), why), "{}", said(end));
        }
    }
}

#[test]
fn a_fault_that_hits_nothing_is_no_success() {
    // Nothing here is an atomic.
    let output = transfer_bw(&["--duration", "300ms", "--inject", "1ms:0.1:lost-atomic-response"]);
    let object = verdict(&output);
    let told = (output.status.code(), object["verdict"].as_str());
    assert_eq!(told, (Some(1), Some("not exercised")), "{object}");
    assert_eq!(number(&object["faults"][0], "hits"), 0, "{object}");
    let why = "transfer_bw: --inject 1ms:0.1:lost-atomic-response: expected one hit or more, got 0";
    assert_eq!(last_word(&output), why);
}

#[test]
fn what_cannot_be_honoured_is_refused_with_what_was_typed() {
    for (arguments, said) in [
        (&["--size", "7"][..], "--size: expected a multiple of 8 from 8 on, got 7"),
        (&["--size", "0"], "got 0"),
        (
            &["--size", "8M"],
            "--size: expected at most 32M in one transfer, got 8 times 8M; take fewer --pages",
        ),
        (&["--size", "17179869184G"], "expected less than 2^64 bytes, got \"17179869184G\""),
        (&["--size", "x"], "such as 64K, got \"x\""),
        (&["--rail-gbps", "0"], "expected a number of Gb/s from 0.01 to 800, got \"0\""),
        (&["--rails", "9"], "expected a whole number from 1 to 8, got \"9\""),
        (&["--duration", "0"], "--duration: expected at least 20ms, got 0ns"),
        (&["--inject", "1ms:2.0:down"], "--inject 1ms:2.0:down: expected end 0 or 1 and rail 0 to 1"),
        (&["--inject", "1ms:0.9:down"], "rail 0 to 1"),
        (&["--inject", "9s:0.0:down"], "expected a time before --duration 3s"),
        (&["--inject", "1ms:0:peer-killed"], "expected a fault of a NIC"),
        (&["--inject", "1ms:0.0:dwon"], "no fault is called `dwon`; did you mean `down`?"),
        (&["--json", "/no/such/v.json"], "--json /no/such/v.json: No such file or directory"),
        (&["--mode", "other"], "[possible values: single, paged, read, cancel, revoke]"),
        (&["--mode", "revoke", "--cancel", "drain"], "--cancel: expected now or never with --mode revoke"),
        (&["--mode", "revoke", "--inject", "1ms:0.0:down"], "expected no fault with --mode revoke"),
        // It ran, and the sender's transfers ended without the proof that its verdict asks for.
        (
            &["--mode", "revoke", "--transport", "tcp"],
            "--mode revoke: expected --transport rdma, whose NICs prove",
        ),
        (&["--mode", "revoke", "--transport", "shm"], "lands that was cut off, got shm"),
        // It was ignored.
        (&["--cancel", "drain"], "--cancel: expected with --mode cancel or revoke, got another mode"),
        (&["--mode", "read", "--cancel", "never"], "--cancel: expected with --mode cancel or revoke"),
        (&["--cancels", "5"], "--cancels: expected with --mode cancel"),
        (&["--nic", "mlx4"], "[possible values: auto, mlx5, soft]"),
        (&["--table", "--size", "4K"], "'--table' cannot be used with '--size <SIZE>'"),
        (
            &["--rails", "1,2,4"],
            "--rails: expected one number, got 1,2,4; transfer_bw --table has rows for each",
        ),
        (&["--table", "--rails", "1,9"], "expected a whole number from 1 to 8, got \"9\""),
        (&["--table", "--pages", "33"], "--pages: expected at most 32 with --table, got 33"),
    ] {
        let output = transfer_bw(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(said), "{arguments:?}: {text}");
    }
}

#[test]
fn its_page_and_completions_name_its_options() {
    for arguments in [&["--man"][..], &["--completions", "bash"]] {
        let output = transfer_bw(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("pages") && text.contains("inject"), "{text}");
    }
}

/// Packets that a pause of the port holds back arrive later, and their transfer was cancelled meanwhile.
const HELD: [&str; 6] = [
    "--inject",
    "100ms:0.0:hold=300ms",
    "--inject",
    "800ms:0.1:hold=300ms",
    "--inject",
    "1400ms:0.0:hold=300ms",
];

#[test]
fn nothing_of_a_cancelled_transfer_lands_after_its_end() {
    for how in ["now", "drain", "unposted"] {
        let arguments = [&["--mode", "cancel", "--cancel", how, "--duration", "2s"][..], &HELD].concat();
        clean(&arguments, |verdict| number(verdict, "cancelled") > 0);
    }
}

#[test]
fn a_run_ends_once_so_many_transfers_were_cancelled() {
    let arguments =
        ["--mode", "cancel", "--cancels", "300", "--size", "4K", "--inject", "100ms:0.0:hold=300ms"];
    let verdict = clean(&arguments, |verdict| number(verdict, "failovers") > 0);
    assert!((300..400).contains(&number(&verdict, "cancelled")), "{verdict}");
    let short = ["--mode", "cancel", "--cancels", "1000000", "--duration", "300ms"];
    first_with("not exercised", || transfer_bw(&short), |_| true);
}

#[test]
fn nothing_of_a_sender_that_was_stopped_and_cut_off_lands_when_it_goes_on() {
    let arguments = ["--mode", "revoke", "--duration", "1s"];
    clean(&arguments, |verdict| number(verdict, "cancelled") > 0);
    let never = [&arguments[..], &["--cancel", "never"]].concat();
    first_with("broken", || transfer_bw(&never), |verdict| number(verdict, "late_writes") > 0);
}

#[test]
fn memory_that_is_used_again_without_proof_is_written_late() {
    let arguments = [&["--mode", "cancel", "--cancel", "never", "--duration", "2s"][..], &HELD].concat();
    let said = std::cell::RefCell::new(String::new());
    let run = || {
        let output = transfer_bw(&arguments);
        *said.borrow_mut() = last_word(&output);
        output
    };
    let verdict = first_with("broken", run, |verdict| number(verdict, "late_writes") > 0);
    let why = format!("late writes: expected 0, got {}", number(&verdict, "late_writes"));
    assert!(said.borrow().starts_with("transfer_bw: ") && said.borrow().contains(&why), "{said:?}");
}

#[test]
fn words_that_cannot_be_written_are_no_success_and_a_reader_may_leave() {
    for line in ["--help", "--version", "--man", "--duration 100ms"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the system's");
        let (reader, left) = std::io::pipe().expect("a pipe");
        drop(reader);
        let run = |out: Stdio| {
            let _alone = alone();
            program().args(line.split(' ')).stdout(out).output().expect("the program starts")
        };
        let (lost, left) = (run(full.into()), run(left.into()));
        assert_eq!(lost.status.code(), Some(1), "{line}: {}", said(&lost));
        let why = "error: stdout: No space left on device (os error 28)";
        assert_eq!(last_word(&lost), why, "{line}");
        let text = said(&left);
        assert!(
            left.status.success() && !text.contains("error") && !text.contains("panicked"),
            "{line}: {text}"
        );
    }
}

#[test]
fn the_file_of_a_timeline_takes_no_verdict() {
    let json = std::env::temp_dir().join(format!("transfer_events.{}.jsonl", std::process::id()));
    let output = program().arg("--json").arg(&json).env("SHUNT_EVENTS", &json).output().expect("it starts");
    let why =
        format!("error: SHUNT_EVENTS and --json both name {}; give each a file of its own", json.display());
    assert_eq!((output.status.code(), last_word(&output)), (Some(2), why));
    assert!(output.stdout.is_empty() && !json.exists(), "{}", said(&output));
}

#[test]
fn the_table_has_a_row_for_each_kind_and_number_of_rails() {
    let json = std::env::temp_dir().join(format!("transfer_table.{}.json", std::process::id()));
    let file = json.display().to_string();
    let output = transfer_bw(&["--table", "--rails", "3,1", "--duration", "20ms", "--json", &file]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let table: Value = serde_json::from_slice(&std::fs::read(&json).expect("its file")).expect("one object");
    std::fs::remove_file(&json).expect("the file goes");
    assert_eq!((shunt_json::errors(&table), number(&table, "pages_wrong")), (String::new(), 0), "{said}");
    let rows = table["rows"].as_array().expect("rows");
    let of = |rails: u64, mode: &str| {
        rows.iter().filter(|row| row["rails"] == rails && row["mode"] == mode).count()
    };
    assert_eq!([of(3, "paged"), of(3, "single"), of(1, "paged"), of(1, "single")], [6, 4, 6, 4], "{said}");
    assert_eq!((rows[0]["rails"].as_u64(), rows.len()), (Some(3), 20), "{said}");
    assert!(rows.iter().all(|row| row["gb_s"].as_f64() > Some(0.0)), "{said}");
    assert_eq!(said.matches(" paged ").count() + said.matches(" single ").count(), rows.len(), "{said}");
}

/// It waited without end for a last word that no rail could carry.
#[test]
fn where_every_rail_is_gone_both_ends_say_so() {
    let faults = ["--inject", "200ms:0.0:down", "--inject", "200ms:0.1:down"];
    for mode in ["paged", "read"] {
        let mut program = program();
        program.args(["--duration", "1s", "--mode", mode]).args(faults).env("SHUNT_GIVE_UP", "300ms");
        let output = program.output().expect("the program starts");
        let object = verdict(&output);
        let told = (output.status.code(), object["verdict"].as_str(), object["peer_lost"].as_bool());
        assert_eq!(told, (Some(3), Some("peer lost"), Some(true)), "{object}");
        assert_eq!(
            last_word(&output),
            "transfer_bw: rails to an end that is there: expected one or more, got none"
        );
        all_zero(&object, &["pages_wrong", "imm_doubled"]);
    }
}

/// A lane that was left stood in no log, whatever `SHUNT_LOG` said.
#[test]
fn the_log_tells_of_lanes_that_are_left() {
    let lines = std::cell::RefCell::new(Vec::new());
    let run = || {
        let _alone = alone();
        let mut program = program();
        program.args(["--duration", "1s", "--inject", "300ms:0.0:down"]).env("SHUNT_LOG", "info");
        let output = program.output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        *lines.borrow_mut() = said.lines().map(str::to_owned).collect();
        output
    };
    let verdict = first_with("clean", run, |verdict| number(verdict, "failovers") > 0);
    let lines = lines.into_inner();
    let of = |event: &str| lines.iter().filter(|line| line.contains(event)).collect::<Vec<_>>();
    assert!(of(" INFO lane_opened end=0 peer=1 local=1 remote=1 ").len() == 1, "{lines:#?}");
    let left = of(" WARN lane_left end=0 peer=1 local=0 remote=0 lanes=1: ");
    assert_eq!((left.len(), number(&verdict, "failovers")), (1, 1), "{lines:#?}");
}
