//! The program, run as its users run it: all ends in one process, and one a process.

use serde_json::Value;
use shunt_task::ports;
use shunt_transfer_program::trial::{
    RUNS, all_zero, alone, first, job, last_word, left_of_killed, number, plain, said, verdict,
};
use std::process::{Command, Output, Stdio};

fn program(line: &str) -> Command {
    let mut command = plain(env!("CARGO_BIN_EXE_weight_sync"));
    command.args(line.split_whitespace());
    command
}

fn weight_sync(line: &str) -> Output {
    let _alone = alone();
    program(line).output().expect("the program starts")
}

/// Nothing that was promised is broken, whatever the run was.
fn nothing_wrong(verdict: &Value) {
    all_zero(
        verdict,
        &["bytes_wrong", "bytes_doubled", "bytes_missing", "bytes_foreign", "imm_doubled", "imm_missing"],
    );
    let (peak, watermark) = (number(verdict, "staging_peak"), number(verdict, "watermark"));
    assert!(peak > 0 && peak <= watermark && verdict["watermark_passed"] == false, "{verdict}");
    let kind = (verdict["schema"].as_str(), shunt_json::errors(verdict));
    assert_eq!(kind, (Some("shunt-weight-sync"), String::new()));
}

/// The first clean run that shows what is asked for. What a run lost, doubled or failed is never excused.
fn clean(run: impl FnMut() -> Output, shown: impl Fn(&Value) -> bool) -> Value {
    let always = |object: &Value| {
        nothing_wrong(object);
        assert_eq!(number(object, "bytes_written"), number(object, "bytes_wanted"), "{object}");
    };
    let object = first("clean", run, always, shown);
    all_zero(&object, &["writes_failed"]);
    object
}

const SMALL: &str = "--trainers 2 --servers 2 --params 9 --bytes 2M --steps 2";

#[test]
fn every_byte_comes_once_by_either_way() {
    let object = clean(|| weight_sync(SMALL), |_| true);
    // Two servers, two steps of each way; nothing has to be gathered where both trainers hold all.
    assert_eq!(number(&object, "bytes_written"), 2 * 2 * 2 * (2 << 20));
    assert!(object["gb_s"]["ratio"].as_f64() > Some(0.0), "{object}");
    let steps = object["steps"].as_array().expect("steps");
    let modes: Vec<_> = steps.iter().map(|step| step["mode"].as_str().unwrap_or_default()).collect();
    assert_eq!(modes, ["rank0", "rank0", "p2p", "p2p"]);
}

#[test]
fn shards_without_replicas_are_gathered_rounded_and_cut() {
    let line = "--trainers 3 --servers 2 --params 7 --bytes 1M --steps 2 --copies shard --change bf16 --piece 4K \
                --watermark 20K";
    let object = clean(|| weight_sync(line), |_| true);
    // Of half the bytes each server has a half; two thirds are gathered as they are.
    let (written, servers) = (number(&object, "bytes_written"), 2 * 2 * (1 << 20) / 2);
    assert!(
        written > servers + 2 * (1 << 20) * 6 / 10 && written < servers + 2 * (1 << 20) * 7 / 10,
        "{object}"
    );
    assert!(number(&object, "staging_waits") > 0, "the watermark holds fetches back: {object}");
}

#[test]
fn a_port_that_goes_down_and_comes_back_costs_nothing_but_time() {
    let line = "--trainers 2 --servers 2 --params 20 --bytes 3M --steps 7 --mode p2p --rail-gbps 0.05 --inject \
                100ms:1.0:down --inject 900ms:1.0:up";
    let there_and_back = |object: &Value| {
        let down =
            object["steps"].as_array().is_some_and(|steps| steps.iter().any(|step| step["rails_down"] == 1));
        down && number(object, "failovers") > 0 && number(object, "returns") > 0
    };
    clean(|| weight_sync(line), there_and_back);
}

/// A server's port: nothing can be planned around, and its other rail takes all.
#[test]
fn a_port_of_a_server_may_go_down() {
    let line = "--bytes 3M --steps 3 --mode p2p --rail-gbps 0.1 --inject 50ms:3.1:down";
    clean(|| weight_sync(line), |object| number(object, "failovers") > 0);
}

#[test]
fn one_process_an_end() {
    let all_ends = || {
        let _alone = alone();
        let root = format!("127.0.0.1:{}", ports::free(1).expect("a port"));
        let ends: Vec<_> = (0..4)
            .map(|rank: u32| {
                let mut end = program("--bytes 2M --steps 2");
                end.envs([("SHUNT_RANK", rank.to_string()), ("SHUNT_WORLD", "4".to_owned())]);
                end.env("SHUNT_FABRIC", format!("weights-{}", std::process::id()));
                end.env("SHUNT_ROOT", &root).stdout(Stdio::piped()).stderr(Stdio::piped());
                end.spawn().expect("the program starts")
            })
            .collect();
        let mut ends: Vec<Output> =
            ends.into_iter().map(|end| end.wait_with_output().expect("its end")).collect();
        for end in &ends[1..] {
            assert_eq!((end.status.code(), end.stdout.len()), (ends[0].status.code(), 0), "{}", said(end));
        }
        ends.remove(0)
    };
    clean(all_ends, |_| true);
}

/// Each end computed a schedule of its own.
#[test]
fn ends_with_other_options_are_refused_at_all() {
    let _alone = alone();
    let ends = ["2M", "1M"].map(|bytes| program(&format!("--trainers 1 --servers 1 --bytes {bytes}")));
    let ends = job(ports::free(1).expect("a port"), ends);
    for (end, of) in ends.iter().zip([" of end 1", ""]) {
        let why = format!("error: --bytes{of}: expected 2M as at end 0, got 1M");
        assert_eq!((end.status.code(), last_word(end)), (Some(2), why), "{}", said(end));
    }
}

/// Cause: the ends that were left failed for want of what the one that was killed had seen, without a verdict.
#[test]
fn ends_that_are_left_of_one_that_was_killed_have_a_verdict() {
    let _alone = alone();
    let line = "--trainers 2 --servers 1 --bytes 1M --steps 1000 --mode p2p --rail-gbps 0.1";
    for killed in 0..3 {
        let meet = ports::free(1).expect("a port");
        let object = left_of_killed(meet, killed, env!("CARGO_BIN_EXE_weight_sync"), line);
        nothing_wrong(&object);
        assert_eq!(object["peer_lost"], true, "{object}");
    }
}

/// Both rails of trainer 1 are gone. Its shards have replicas: the step is made again without it.
#[test]
fn a_trainer_that_is_lost_is_told_and_planned_around() {
    let line = "--trainers 2 --servers 1 --bytes 12M --steps 2 --mode p2p --rail-gbps 0.1 --inject 100ms:1.0:down \
                --inject 100ms:1.1:down";
    for _ in 0..RUNS {
        let _alone = alone();
        let output = program(line).env("SHUNT_GIVE_UP", "300ms").output().expect("the program starts");
        let object = verdict(&output);
        nothing_wrong(&object);
        let steps = object["steps"].as_array().map_or(0, Vec::len);
        if number(&object, "steps_repeated") == 1 {
            let told = (output.status.code(), object["verdict"].as_str(), object["peer_lost"].as_bool());
            assert_eq!(told, (Some(3), Some("peer lost"), Some(true)), "{object}");
            assert_eq!(steps, 2, "all steps: {object}");
            return;
        }
    }
    panic!("the faults hit nothing in {RUNS} runs");
}

#[test]
fn bytes_without_a_replica_are_named_and_the_run_ends() {
    let line = "--trainers 3 --servers 1 --bytes 4M --steps 6 --mode p2p --rail-gbps 0.1 --inject 150ms:1.0:down \
                --inject 150ms:1.1:down";
    for _ in 0..RUNS {
        let _alone = alone();
        let output = program(line).env("SHUNT_GIVE_UP", "300ms").output().expect("the program starts");
        let object = verdict(&output);
        nothing_wrong(&object);
        if object["steps"].as_array().map_or(0, Vec::len) < 6 {
            assert_eq!(
                (output.status.code(), object["verdict"].as_str()),
                (Some(3), Some("peer lost")),
                "{object}"
            );
            return;
        }
    }
    panic!("the faults hit nothing in {RUNS} runs");
}

#[test]
fn a_fault_that_hits_nothing_is_no_success() {
    // Nothing here is an atomic.
    let output = weight_sync(&format!("{SMALL} --mode p2p --inject 1ms:0.1:lost-atomic-response"));
    let object = verdict(&output);
    let told = (output.status.code(), object["verdict"].as_str());
    assert_eq!(told, (Some(1), Some("not exercised")), "{object}");
    assert_eq!(number(&object["faults"][0], "hits"), 0, "{object}");
    let why = "weight_sync: --inject 1ms:0.1:lost-atomic-response: expected one hit or more, got 0";
    assert_eq!(last_word(&output), why);
}

#[test]
fn what_cannot_be_honoured_is_refused_with_what_was_typed() {
    for (line, refusal) in [
        ("--trainers 0", "expected a whole number from 1 to 64, got \"0\""),
        ("--servers 65", "expected a whole number from 1 to 64, got \"65\""),
        ("--params 0", "expected a whole number from 1 to 100000, got \"0\""),
        ("--steps 0", "expected a whole number from 1 to 1000, got \"0\""),
        ("--bytes 64", "--bytes: expected 12K to 4G for 24 parameters, got 64"),
        ("--bytes 5G", "--bytes: expected 12K to 4G for 24 parameters, got 5G"),
        ("--bytes 4G --servers 32", "--bytes: expected at most 64G at all ends together, got"),
        (
            "--bytes 1G --rail-gbps 0.1",
            "--bytes: expected a step of at most 30 s at the rate of the rails, got 86 s",
        ),
        ("--trainers 4 --replicas 3", "--replicas: expected a divisor of 4 trainers, got 3"),
        ("--piece 100", "--piece: expected a multiple of 64 up to 1G, got 100"),
        (
            "--watermark 500K",
            "--watermark: expected at least 512K, a piece of 256K fetched and staged, got 500K",
        ),
        ("--inject 1ms:4.0:down", "--inject 1ms:4.0:down: expected end 0 to 3 and rail 0 to 1, got 4.0"),
        ("--inject 1ms:0.2:down", "expected end 0 to 3 and rail 0 to 1, got 0.2"),
        ("--inject 1ms:0:peer-killed", "expected a fault of a NIC"),
        ("--rails 9", "expected a whole number from 1 to 8, got \"9\""),
        ("--mode p2p --rank0-steps 2", "--rank0-steps 2: expected --mode both or rank0, got p2p"),
        (
            "--mode rank0 --steps 3 --rank0-steps 2",
            "--steps: expected none with --mode rank0 and --rank0-steps, got 3",
        ),
        ("--mode ring", "[possible values: p2p, rank0, both]"),
        ("--json /no/such/v.json", "--json /no/such/v.json: No such file or directory"),
    ] {
        let output = weight_sync(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line}: {text}");
        assert!(text.starts_with("error: ") && text.contains(refusal), "{line}: {text}");
    }
}

#[test]
fn its_page_and_completions_name_its_options() {
    for line in ["--man", "--completions bash"] {
        let output = weight_sync(line);
        let text = said(&output);
        assert!(output.status.success() && text.contains("watermark") && text.contains("inject"), "{text}");
    }
}
